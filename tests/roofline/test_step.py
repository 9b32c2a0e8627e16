"""The step of a batch: against sums over the whole binomial, equation 16, masks by brute force, and its own parts."""

from __future__ import annotations

from dataclasses import replace
from math import comb
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.errors import UserError
from harness.hardware.profile import load_profile
from harness.models import KNOWN_SHAPES, ModelShape
from harness.models.deployment import Deployment
from harness.roofline.ceilings import Ceilings, ceilings_from_profile
from harness.roofline.methods.calls import PricedAt, price_method
from harness.roofline.methods.set_block import verified_set_block
from harness.roofline.operation import PassCounts, interpolate
from harness.roofline.operations import count_operations
from harness.roofline.pricing import price_counts
from harness.roofline.step import NTP, DecodeArm, opening_rows, price_step
from tests.helpers.speedups import predict_speedup

SIZES: dict[str, int] = {"layers": 2, "hidden": 8, "intermediate": 12, "heads": 4, "kv_heads": 2, "head_dim": 2, "vocab": 10}
H100 = ceilings_from_profile(load_profile("h100-sxm"), "bfloat16")
CALIBRATED = Ceilings(
    rung="calibrated",
    device_name="toy",
    dtype="bfloat16",
    bandwidth_bytes_per_s=13e9,
    overlap=0.0,
    stall=1.2,
    matrix_rates=((1, 1e10), (4, 3e10), (16, 9e10), (64, 9.5e10)),
    fixed_s_per_pass=1e-3,
    fixed_s_per_layer=2e-5,
    sampler_s_per_logit=2e-9,
    link_bytes_per_s=1e10,
)


@given(st.integers(1, 60), st.floats(1, 16))
def test_two_points_have_the_moments_of_the_binomial(rows: int, passes: float) -> None:
    """Mean, variance and third moment of Binomial(rows, 1 / passes), summed over all its values."""
    chance = 1 / passes
    weights = [comb(rows, m) * chance**m * (1 - chance) ** (rows - m) for m in range(rows + 1)]
    points = opening_rows(rows, passes)
    assert all(0 <= point <= rows for _, point in points)
    for power in range(4):
        expected = sum(weight * m**power for m, weight in enumerate(weights))
        assert sum(weight * point**power for weight, point in points) == pytest.approx(expected, rel=1e-6, abs=1e-9)


def test_one_row_is_equation_16() -> None:
    """Either it opens a block, or it does not; at one pass a block every step opens."""
    (upper, one), (lower, none) = opening_rows(1, 4.0)
    assert (upper, one, lower, none) == pytest.approx((0.25, 1, 0.75, 0))
    (upper, every), _ = opening_rows(7, 1.0)
    assert (upper, every) == pytest.approx((1, 7))
    cell: dict[str, Any] = {"block_size": 16, "passes_per_block": 4, "batch": 1, "context_tokens": 1000}
    shape = KNOWN_SHAPES["llama-3.1-8b"]
    ragged = predict_speedup(shape, "bfloat16", H100, batching="ragged", **cell)
    lockstep = predict_speedup(shape, "bfloat16", H100, batching="lockstep", **cell)
    assert ragged.wall_speedup == pytest.approx(lockstep.wall_speedup, rel=1e-12)


@pytest.mark.parametrize("acceptance", [0.0, 0.6, 0.93, 1.0])
@pytest.mark.parametrize("drafts", [1.0, 2.5, 4.0])
def test_one_row_of_verified_blocks_is_the_published_method(acceptance: float, drafts: float) -> None:
    """As harness.roofline.methods prices its calls: (1 - a^k) / (1 - a) tokens a check, of 1 + drafts - a^(k-1) passes."""
    shape, k, context = KNOWN_SHAPES["llama-3.1-8b"], 16, 1000
    gained = sum(acceptance**slot for slot in range(k))
    arm = DecodeArm(block_size=k, passes_per_block=1 + drafts - acceptance ** (k - 1), tokens_per_check=gained)
    at = PricedAt(target=shape, batch=1, context_tokens=context)
    trace = verified_set_block(at, block_size=k, draft_passes=drafts, acceptance=acceptance)
    step = price_step(shape, "bfloat16", H100, arm, rows=1, context_tokens=context)
    assert step.expected_s / arm.tokens_per_step == pytest.approx(price_method(trace, "bfloat16", H100).expected_s, rel=1e-9)


@pytest.mark.parametrize("model", ["llama-3.1-8b", "qwen3-30b-a3b"])
@pytest.mark.parametrize("rows", [2, 8, 24, 64])
def test_a_step_is_the_mean_over_all_mixtures_of_phases(model: str, rows: int) -> None:
    """Every number of opening rows priced by itself, weighted by its binomial probability: within 1 %."""
    shape, k, passes, context = KNOWN_SHAPES[model], 16, 5.0, 2000
    exact = 0.0
    for opened in range(rows + 1):
        groups = [
            PassCounts(rows=opened, query=2 * k, context=context - k, logits=k, kept=opened * k),
            PassCounts(rows=rows - opened, query=k, context=context, logits=k, kept=0),
        ]
        chance = comb(rows, opened) * passes**-opened * (1 - 1 / passes) ** (rows - opened)
        exact += chance * price_counts(shape, "bfloat16", [one for one in groups if one.rows], H100).expected_s
    arm = DecodeArm(block_size=k, passes_per_block=passes)
    found = price_step(shape, "bfloat16", H100, arm, rows=rows, context_tokens=context)
    assert found.expected_s == pytest.approx(exact, rel=0.01)
    assert found.low_s < found.expected_s < found.high_s


MASKED = ModelShape(name="masked", sliding_window=5, sliding_layers=1, **SIZES)


@pytest.mark.parametrize("causal", [True, False])
@given(query=st.integers(1, 20), context=st.integers(0, 20))
def test_attention_computes_the_pairs_of_the_mask(causal: bool, query: int, context: int) -> None:
    """A full layer and one with a window of 5: query i sees all before it and, where causal, nothing after it.

    The queries of a block all see one another; its sliding layer keeps the keys that the cache holds, its window less one.
    """
    counts = PassCounts(rows=2, query=query, context=context, logits=1, kept=0, causal=causal)
    (attention,) = (one for one in count_operations(MASKED, "bfloat16", counts) if one.name == "attention")
    at, keys = context + np.arange(query)[:, None], np.arange(context + query)[None, :]
    if causal:
        full, sliding = keys <= at, (keys <= at) & (keys > at - 5)
    else:
        full, sliding = keys + 0 * at >= 0, keys + 0 * at >= context - 4
    assert attention.flops == 2 * (full.sum() + sliding.sum()) * 4 * 4 * 2


def test_chunks_are_the_prompt() -> None:
    """Read in chunks, a prompt has the same pairs, products and cache as read at once; only weights are read again."""
    for name in ("llama-3.1-8b", "gemma-3-4b"):
        shape = KNOWN_SHAPES[name]
        whole = count_operations(shape, "bfloat16", _chunk(4096, 0))
        parts = [count_operations(shape, "bfloat16", _chunk(1024, start)) for start in range(0, 4096, 1024)]
        for one in ("qkv", "attention", "o", "ffn"):
            (alone,) = (operation.flops for operation in whole if operation.name == one)
            assert sum(o.flops for part in parts for o in part if o.name == one) == alone
    # 100,000 tokens: the causal half of the square. Computed whole, attention was 1.6 times all of it.
    long = count_operations(KNOWN_SHAPES["llama-3.1-8b"], "bfloat16", _chunk(100_000, 0))
    linear, attention = (sum(o.flops for o in long if (o.name == "attention") == is_it) for is_it in (False, True))
    assert attention == pytest.approx(2 * 2 * 32 * 4096 * 100_000 * 100_001 / 2)
    assert 1.55 < (linear + 2 * attention) / (linear + attention) < 1.7


def _chunk(tokens: int, context: int) -> PassCounts:
    return PassCounts(rows=1, query=tokens, context=context, logits=0, kept=tokens, causal=True)


def test_a_later_chunk_takes_the_cheaper_way_to_a_latent_cache() -> None:
    """DeepSeek-V3: few tokens attend in the latent space, many make K and V of the context again, once."""
    shape = KNOWN_SHAPES["deepseek-v3"]
    assert shape.mla is not None
    for tokens, context in ((4, 8000), (4096, 8000)):
        (found,) = (o.flops for o in count_operations(shape, "bfloat16", _chunk(tokens, context)) if o.name == "attention")
        pairs = 61 * (tokens * context + tokens * (tokens + 1) / 2)
        latent = 2 * pairs * 128 * (512 + 512 + 64)
        again = 2 * pairs * 128 * (192 + 128) + 2 * 61 * context * 512 * 128 * (128 + 128)
        assert found == pytest.approx(min(latent, again))
        assert (latent < again) == (tokens == 4)


def test_a_chunk_beside_rows_reads_the_weights_once() -> None:
    """Bound by memory, eight rows and a small chunk take little longer than the rows, and much less than both apart."""
    shape, at = KNOWN_SHAPES["llama-3.1-8b"], {"rows": 8, "context_tokens": 1000}
    rows = price_step(shape, "bfloat16", H100, NTP, **at)
    chunk = price_step(shape, "bfloat16", H100, NTP, rows=0, context_tokens=0, prefill_tokens=64)
    both = price_step(shape, "bfloat16", H100, NTP, **at, prefill_tokens=64)
    assert rows.expected_s < both.expected_s < 1.2 * rows.expected_s
    assert both.expected_s < 0.7 * (rows.expected_s + chunk.expected_s)


@settings(deadline=None, max_examples=30)
@given(
    st.sampled_from(["llama-3.1-8b", "gemma-3-4b", "qwen3-30b-a3b", "deepseek-v3"]),
    st.sampled_from([1, 8]),
    st.sampled_from([H100, CALIBRATED, replace(CALIBRATED, fixed_hidden=True)]),
    st.lists(st.tuples(st.integers(0, 200), st.integers(0, 50_000), st.integers(0, 4096), st.integers(0, 50_000)), min_size=2),
)
def test_arrays_are_their_entries(model: str, devices: int, ceilings: Ceilings, drawn: list[tuple[int, int, int, int]]) -> None:
    """A grid of steps has the price of each step alone, with and without rows, chunks and a split, on every rung."""
    cells = [cell for cell in drawn if cell[0] + cell[2] > 0]
    if not cells:
        return
    how, arm = Deployment(dtype="bfloat16", tensor_parallel=devices), DecodeArm(block_size=16, passes_per_block=5.0)
    names = ("rows", "context_tokens", "prefill_tokens", "prefill_context")
    arrays = dict(zip(names, np.array(cells, dtype=float).T, strict=True))
    grid = price_step(KNOWN_SHAPES[model], how, ceilings, arm, **arrays)
    for place, cell in enumerate(cells):
        one = price_step(KNOWN_SHAPES[model], how, ceilings, arm, **dict(zip(names, cell, strict=True)))
        for side in ("low_s", "expected_s", "high_s"):
            assert getattr(grid, side)[place] == pytest.approx(getattr(one, side), rel=1e-9)


@given(st.lists(st.integers(0, 5000), min_size=1, max_size=20))
def test_rates_are_interpolated_alike(tokens: list[int]) -> None:
    """Numbers one by one and an array of them, between, at and beyond the measured points."""
    points = ((1, 3e9), (4, 1e10), (16, 9e9), (300, 5e11))
    assert interpolate(points, np.array(tokens, dtype=float)) == pytest.approx([interpolate(points, m) for m in tokens])


def test_a_step_of_nothing_is_refused() -> None:
    """Neither rows nor a prompt, or fewer than none."""
    for counts in ({"rows": 0}, {"rows": -1}, {"rows": 1, "prefill_tokens": -5}):
        with pytest.raises(UserError, match="at least 0"):
            price_step(KNOWN_SHAPES["llama-250m"], "bfloat16", H100, NTP, context_tokens=0, **counts)


def test_activations_stay_on_the_chip_as_far_as_they_fit() -> None:
    """A cache of nothing moves what an unknown one does; a large one leaves weights and KV; the rest lies between."""
    counts = PassCounts(rows=4, query=16, context=100, logits=16, kept=0)
    by_hand = [(None, lambda o: o.bytes_), (0, lambda o: o.bytes_), (1e12, lambda o: o.weight_bytes + o.kv_bytes)]
    operations = count_operations(KNOWN_SHAPES["llama-250m"], "bfloat16", counts)
    for cache, expected in by_hand:
        assert [o.memory_bytes(cache) for o in operations] == [expected(o) for o in operations]
    (ffn,) = (o for o in operations if o.name == "ffn")
    layers = KNOWN_SHAPES["llama-250m"].layers
    assert ffn.memory_bytes(1000) == ffn.bytes_ - 1000 * layers  # a thousand bytes of every layer
