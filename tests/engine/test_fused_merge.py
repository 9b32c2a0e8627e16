"""The merge of pieces in one launch, in Triton's interpreter on a CPU: against float64 and against torch's operations."""

from __future__ import annotations

import math

import pytest
import torch

pytest.importorskip("triton")

from harness.engine import flash_attention, fused_merge


def pieces(copies, tokens, groups, shared, size, dtype):
    """What flash attention leaves of runs of which some have no keys, those of the first token in every copy."""
    generator = torch.Generator().manual_seed(copies + tokens + size)
    queries = tokens * shared
    outs = torch.randn(copies * queries, groups, size, generator=generator).to(dtype)
    lses = 3 * torch.randn(groups, copies * queries, generator=generator)
    empty = torch.rand(copies, queries, generator=generator) < 0.4
    empty[:, 0] = True
    empty = empty.flatten()
    outs[empty], lses[:, empty] = math.nan, math.inf
    return outs, lses, empty, copies, shared


# Copies, tokens of all rows, KV heads, heads that share one, head dimension: widths that are no power of two among them.
SHAPES = [(2, 1, 1, 1, 8), (3, 5, 2, 4, 80), (17, 2, 8, 4, 128), (33, 3, 1, 1, 96)]


@pytest.mark.parametrize("shape", SHAPES)
# The interpreter cuts bfloat16 off where a GPU rounds.
@pytest.mark.parametrize(("dtype", "slack"), [(torch.float16, 1), (torch.bfloat16, 2.5), (torch.float32, 2)])
def test_it_is_as_near_to_float64_as_torch(shape, dtype, slack):
    """Contiguous, in the outputs' own type; what saw no keys at all is 0, though NaN stood there."""
    given = pieces(*shape, dtype)
    found, plain = (module.merge(*given) for module in (fused_merge, flash_attention))
    outs, lses, *rest = given
    exact = flash_attention.merge(outs.double(), lses.double(), *rest)
    assert found.dtype == dtype and found.shape == plain.shape and found.is_contiguous()
    assert (found.double() - exact).abs().max() <= slack * (plain.to(dtype).double() - exact).abs().max()
    assert not found[0, :, 0].any()


def test_a_number_that_is_none_is_not_hidden():
    """NaN in what was attended to is NaN in what comes of it: only runs without keys are left out."""
    outs, lses, empty, copies, shared = pieces(3, 2, 1, 1, 8, torch.float16)
    empty[:] = False
    outs, lses = outs.nan_to_num(), lses.nan_to_num(posinf=0.0)
    outs[2] = lses[0, 2] = math.nan  # the first token's second copy
    found = fused_merge.merge(outs, lses, empty, copies, shared)
    assert found[0].isnan().all() and not found[1].isnan().any()


def test_the_operation_is_one_to_compilers_and_torch_on_a_cpu():
    """Schema, fake tensors and dispatch are in step; on a GPU the kernel answers."""
    given = pieces(3, 5, 2, 4, 80, torch.bfloat16)
    torch.library.opcheck(torch.ops.sbd.merge, given)
    assert torch.equal(torch.ops.sbd.merge(*given), flash_attention.merge(*given).bfloat16())
    assert torch._C._dispatch_has_kernel_for_dispatch_key("sbd::merge", "CUDA")
