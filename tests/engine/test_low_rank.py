"""The kernel of an adapter's terms against the same sum in float64, over shapes, strides and ranges of columns."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

from harness.engine import low_rank
from harness.engine.compiling import can_compile
from harness.engine.low_rank import add_low_rank, kernel_loaded, packed

HALF_A_STEP = 2**-8
"""Of bfloat16, relative: what the one rounding of a sum may cost."""


@pytest.fixture(scope="module", autouse=True)
def compiler():
    if not can_compile():
        pytest.skip("no C++ compiler")


def drawn(generator, *shape):
    return torch.randn(*shape, generator=generator).bfloat16()


@given(
    rows=st.integers(1, 3), before=st.integers(0, 5), adapted=st.integers(1, 20), behind=st.integers(0, 3),
    depth=st.sampled_from([32, 96, 576]), rank=st.sampled_from([4, 12, 32]), wide=st.sampled_from([64, 192]),
    strided=st.booleans(), seed=st.integers(0, 99),
)  # fmt: skip
@settings(max_examples=60, deadline=None)
def test_the_kernel_adds_the_term_and_touches_nothing_else(rows, before, adapted, behind, depth, rank, wide, strided, seed):
    generator = torch.Generator().manual_seed(seed)
    columns, extra = before + adapted + behind, 64 if strided else 0
    x = drawn(generator, rows, columns, depth + extra)[..., :depth]
    out = drawn(generator, rows, columns, wide + extra)[..., :wide]
    down, up = drawn(generator, rank, depth), drawn(generator, wide, rank)
    here = slice(before, before + adapted)
    more = (x[:, here].double() @ down.double().T) @ up.double().T
    size = (x[:, here].double().abs() @ down.double().abs().T) @ up.double().abs().T
    expected = out.double().clone()
    expected[:, here] += more
    assert kernel_loaded()
    torch.ops.sbd.add_packed(out, x, *packed(down, up), before, before + adapted)
    error = (out.double() - expected).abs()
    assert (error[:, here] <= HALF_A_STEP * expected[:, here].abs() + 1e-5 * size).all()
    assert not error[:, :before].any() and not error[:, before + adapted :].any()


def test_ties_round_to_even():
    """1 + 2^-8 lies between two numbers of bfloat16, and so does 1 + 3 * 2^-8; torch's own sum says the same."""
    down, up = torch.zeros(4, 32).bfloat16(), torch.zeros(64, 4).bfloat16()
    down[0, 0] = up[:, 0] = 1
    x = torch.zeros(1, 2, 32).bfloat16()
    x[0, :, 0] = torch.tensor([1, 3]) * 2**-8
    found, same = torch.ones(1, 2, 64).bfloat16(), torch.ones(1, 2, 64).bfloat16()
    torch.ops.sbd.add_packed(found, x, *packed(down, up), 0, 2)
    add_low_rank(same, x, down.float(), up.float(), 0, 2)
    assert torch.equal(found, same) and found[0, :, 0].tolist() == [1.0, 1.015625]


@pytest.mark.parametrize(("rank", "depth", "wide"), [(3, 32, 64), (4, 48, 64), (4, 32, 96)])
def test_other_shapes_stay_with_torch(rank, depth, wide):
    assert packed(torch.zeros(rank, depth), torch.zeros(wide, rank)) is None


def test_a_machine_without_a_compiler_is_told_and_goes_on(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.warns(UserWarning, match="low_rank.cpp was not built.*no-such-compiler"):
        assert not low_rank.kernel_loaded.__wrapped__()
    assert not list((tmp_path / "sbd" / "kernels").iterdir())
