"""Attention with the heads of a KV head packed into its queries, against plain sums in float64."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from harness.modeling.kv_buffers import folded_attention  # noqa: E402 - after the import guards

TOLERANCE = {torch.float64: 1e-12, torch.float32: 1e-5, torch.float16: 5e-3, torch.bfloat16: 3e-2}


def by_hand(query, keys, values, mask):
    """Softmax of the scaled scores over what the mask shows, head by head, in float64."""
    rows, heads, _, width = query.shape
    shared = heads // keys.shape[1]
    out = torch.zeros(query.shape, dtype=torch.float64)
    for row in range(rows):
        for head in range(heads):
            key, value = (held[row, head // shared].double() for held in (keys, values))
            scores = query[row, head].double() @ key.T / width**0.5
            if mask is not None:
                scores = scores.masked_fill(~mask[row, 0], float("-inf"))
            out[row, head] = scores.softmax(dim=-1) @ value
    return out


@pytest.mark.parametrize("dtype", list(TOLERANCE))
@pytest.mark.parametrize(("heads", "groups"), [(4, 4), (4, 2), (4, 1)])
@pytest.mark.parametrize("queries", [1, 3])
@pytest.mark.parametrize("masked", [False, True])
def test_packed_heads_see_what_they_would_see_alone(dtype, heads, groups, queries, masked):
    """A single query of half precision that shares its KV head with none, which takes a way of its own on a CPU, too."""
    torch.manual_seed(3)
    query = torch.randn(2, heads, queries, 8).to(dtype)
    keys, values = (torch.randn(2, groups, 9, 8).to(dtype)[:, :, :7] for _ in range(2))
    mask = torch.rand(2, 1, queries, 7) < 0.6 if masked else None
    if masked:
        mask[..., 0] = True
    found = folded_attention(query, keys, values, mask, None)
    assert found.shape == query.shape and found.dtype == dtype
    torch.testing.assert_close(found.double(), by_hand(query, keys, values, mask), rtol=0, atol=TOLERANCE[dtype])
