"""Attention with the heads of a KV head packed into its queries, against plain sums in float64."""

from __future__ import annotations

import pytest
import torch

from harness.engine import attention_masks
from harness.engine.attention_masks import folded_mask
from harness.engine.kv_cache import causal_attention, folded_attention
from harness.engine.static_session import places_of

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
    visible = torch.rand(2, queries, 7) < 0.6
    visible[..., 0] = True
    mask = folded_mask(visible, heads // groups, dtype) if masked else None
    found = folded_attention(query, keys, values, mask, None)
    assert found.shape == query.shape and found.dtype == dtype
    expected = by_hand(query, keys, values, visible[:, None] if masked else None)
    torch.testing.assert_close(found.double(), expected, rtol=0, atol=TOLERANCE[dtype])


def test_a_prompt_with_padding_sees_what_it_would_see_alone():
    """Rows of 1 to 5 real tokens, padding before and amid them: each real one sees its row's real ones up to itself."""
    torch.manual_seed(4)
    real = torch.tensor([[0, 0, 0, 1, 1], [1, 1, 1, 1, 1], [1, 0, 0, 1, 1], [0, 0, 0, 0, 1]], dtype=torch.bool)
    query, keys, values = (torch.randn(4, heads, 5, 8, dtype=torch.float64) for heads in (4, 2, 2))
    found = causal_attention(query, keys, values, places_of(real), None)
    causal = torch.ones(5, 5, dtype=torch.bool).tril()[None, None]
    for row in range(4):
        own = real[row]
        asked = query[row : row + 1, :, own]
        seen = (one[row : row + 1, :, : int(own.sum())] for one in (keys, values))
        expected = by_hand(asked, *seen, causal[..., : int(own.sum()), : int(own.sum())])
        assert (found[row : row + 1, :, own] - expected).abs().max() < 1e-12


@pytest.mark.parametrize(("lines", "apart"), [({}, 19), ({"cpu": 16}, 32)])
def test_a_mask_lies_as_its_kernel_wants_it(monkeypatch, lines, apart):
    """19 slots, by hand: where a kernel takes lines of 16 numbers, those of the mask begin 32 apart."""
    monkeypatch.setattr(attention_masks, "LINES", lines)
    visible = torch.ones(1, 2, 19, dtype=torch.bool)
    visible[0, 1, 5:] = False
    mask = folded_mask(visible, 2, torch.bfloat16)
    assert mask.shape == (1, 1, 4, 19) and mask.stride(2) == apart
    assert (mask == 0).sum(dim=-1).tolist() == [[[19, 5, 19, 5]]] and mask.isneginf().sum() == 2 * 14
