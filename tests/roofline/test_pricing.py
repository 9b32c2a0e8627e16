"""Operation counts against hand-worked layers and torch's own flop counter; prices against arithmetic and properties."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.errors import UnknownHardwareError, UserError
from harness.hardware.profile import load_profile
from harness.models import KNOWN_SHAPES, ModelShape
from harness.roofline.ceilings import Ceilings, ceilings_from_profile, fit_overlap
from harness.roofline.operation import describe_pass, interpolate
from harness.roofline.operations import forward_operations, sampler_operation
from harness.roofline.pricing import price_pass
from tests.helpers.pass_bytes import pass_bytes
from tests.helpers.priced_trace import price_trace
from tests.helpers.speedups import predict_speedup

TINY = ModelShape(name="tiny", layers=2, hidden=8, intermediate=12, heads=4, kv_heads=2, head_dim=2, vocab=10)
# 100 bytes/s and 1000 flop/s: seconds can be read off the counts.
PLAIN = Ceilings(
    rung="datasheet",
    device_name="toy",
    dtype="bfloat16",
    bandwidth_bytes_per_s=100.0,
    matrix_rates=((1, 1000.0),),
    overlap=None,
)


def ceilings(**changes: Any) -> Ceilings:
    """PLAIN with changes."""
    return replace(PLAIN, **changes)


def test_operations_of_a_hand_worked_pass():
    """Two rows, 3 queries on 5 cached keys, logits at 1 position, 1 + 3 tokens kept: every count worked out by hand."""
    forward_pass = describe_pass("decide", 2, 3, 5, logits=1)._replace(kept_tokens=(1, 3))
    found = {operation.name: operation for operation in forward_operations(TINY, "bfloat16", forward_pass)}
    # qkv: width 4*2 + 2*2*2 = 16; 6 lines; 2 layers.
    assert (found["qkv"].flops, found["qkv"].weight_bytes) == (2 * 2 * 6 * 8 * 16, 2 * 8 * 16 * 2)
    assert found["qkv"].activation_bytes == 2 * 6 * (8 + 16) * 2
    # attention: 8 keys a query, 4 heads of 2; the cache holds 5 tokens of 2 heads of 2, K and V, in 2 rows and 2 layers.
    assert (found["attention"].flops, found["attention"].kv_bytes) == (2 * 2 * (2 * 2 * 3 * 8 * 8), 2 * 2 * 2 * 5 * 4 * 2)
    assert found["kv_write"].bytes_ == 4 * 2 * 2 * 4 * 2
    assert (found["o"].flops, found["o"].weight_bytes) == (2 * 2 * 6 * 8 * 8, 2 * 8 * 8 * 2)
    assert (found["ffn"].flops, found["ffn"].weight_bytes) == (2 * 2 * 6 * 3 * 8 * 12, 2 * 3 * 8 * 12 * 2)
    assert found["ffn"].activation_bytes == 2 * 6 * (8 + 12 + 12 + 12 + 8) * 2
    assert (found["lm_head"].flops, found["lm_head"].weight_bytes) == (2 * 2 * 8 * 10, 8 * 10 * 2)
    assert (found["lm_head"].tokens, found["qkv"].tokens, found["attention"].tokens) == (2, 6, 3)
    sampler = sampler_operation(TINY, forward_pass)
    assert sampler is not None
    assert (sampler.logits, sampler.bytes_) == (20, 5 * 4 * 20)


def test_attention_goes_at_the_rate_of_the_queries_that_share_a_kv_head():
    """4 heads on 2 KV heads and 3 tokens a row make 6 queries a KV head; where no such rate is known, that of 3 lines holds."""
    forward_pass = describe_pass("decide", 2, 3, 5, logits=1)
    flops = 2 * 2 * (2 * 2 * 3 * 8 * 8)
    matrix = ((1, 1.0), (3, 30.0), (6, 60.0))
    for roof, rate in (
        (ceilings(matrix_rates=matrix), 30.0),
        (ceilings(matrix_rates=matrix, attention_rates=((2, 1.0), (6, 7.0), (8, 100.0))), 7.0),
    ):
        found = {cost.name: cost for cost in price_pass(TINY, "bfloat16", forward_pass, roof).operations}
        assert found["attention"].compute_s == pytest.approx(flops / rate)
        assert found["qkv"].compute_s == pytest.approx(found["qkv"].flops / 60.0)  # of 6 lines, as before


def test_of_a_latent_cache_one_key_serves_all_heads():
    """DeepSeek-V3's 128; in a prefill each has a key of its own."""
    for context, sharing in ((0, 1), (5, 128)):
        of_pass = forward_operations(KNOWN_SHAPES["deepseek-v3"], "bfloat16", describe_pass("decide", 1, 3, context, logits=1))
        assert [operation.sharing for operation in of_pass if operation.kind == "attention"] == [sharing]


def test_no_logits_means_no_head_and_no_sampler():
    """A pass that wants no logits reads no LM head."""
    forward_pass = describe_pass("prefill", 1, 4, 0, logits=0, kept=4)
    assert "lm_head" not in {operation.name for operation in forward_operations(TINY, "float32", forward_pass)}
    assert sampler_operation(TINY, forward_pass) is None
    assert price_pass(TINY, "float32", forward_pass, PLAIN).sampler is None


shapes = st.builds(
    ModelShape,
    name=st.just("drawn"),
    layers=st.integers(1, 3),
    hidden=st.integers(1, 32),
    intermediate=st.integers(1, 32),
    heads=st.integers(1, 4),
    kv_heads=st.integers(1, 4),
    head_dim=st.integers(1, 8),
    vocab=st.integers(1, 64),
    tied_embeddings=st.booleans(),
    qkv_bias=st.booleans(),
    qk_norm=st.booleans(),
    gated_ffn=st.booleans(),
)


@given(shapes, st.integers(1, 4), st.integers(1, 8), st.integers(0, 50))
def test_every_weight_is_read_once(shape: ModelShape, rows: int, query: int, context: int):
    """The weight bytes over all operations are the streamed parameters of the shape, whatever the pass."""
    operations = forward_operations(shape, "float32", describe_pass("decide", rows, query, context, logits=1))
    assert sum(operation.weight_bytes for operation in operations) == 4 * shape.streamed_params


@given(st.integers(1, 8), st.integers(1, 64), st.integers(0, 4096), st.sampled_from(["bfloat16", "float8"]))
def test_prices_grow_with_every_size(rows: int, query: int, context: int, dtype: str):
    """More rows, queries or context never cost less; and low <= expected <= high."""
    roof = ceilings_from_profile(load_profile("h200-sxm"), dtype)
    shape = KNOWN_SHAPES["llama-250m"]

    def price(rows: int, query: int, context: int) -> Any:
        return price_pass(shape, dtype, describe_pass("decide", rows, query, context, logits=query, kept=query), roof)

    base = price(rows, query, context)
    assert 0 < base.low_s <= base.expected_s <= base.high_s
    for larger in (price(rows + 1, query, context), price(rows, query + 1, context), price(rows, query, context + 1)):
        assert larger.bytes_ > base.bytes_ and larger.flops > base.flops
        assert larger.low_s >= base.low_s and larger.high_s >= base.high_s


def test_price_of_each_side():
    """Seconds are bytes over bandwidth and flops over rate; max, sum, and the mixture in between; stall stretches."""
    forward_pass = describe_pass("decide", 1, 4, 10, logits=4)
    ffn = next(
        o for o in price_pass(TINY, "bfloat16", forward_pass, ceilings(overlap=0.25, stall=2.0)).operations if o.name == "ffn"
    )
    memory_s, compute_s = ffn.bytes_ / 100, ffn.flops / 1000
    assert (ffn.memory_s, ffn.compute_s) == (memory_s, compute_s)
    assert ffn.low_s == max(memory_s, compute_s)
    assert ffn.expected_s == pytest.approx(2 * (max(memory_s, compute_s) + 0.75 * min(memory_s, compute_s)))
    assert ffn.high_s == pytest.approx(2 * (memory_s + compute_s))


def test_fixed_cost_is_added_or_hidden():
    """On a CPU and in graphs the fixed cost comes on top; of a host beside a GPU only the longer counts."""
    forward_pass = describe_pass("decide", 1, 1, 0, logits=1)
    bare = price_pass(TINY, "bfloat16", forward_pass, PLAIN)
    added = price_pass(TINY, "bfloat16", forward_pass, ceilings(fixed_s_per_pass=1.0, fixed_s_per_layer=2.0))
    assert added.fixed_s == 5.0
    assert added.forward_s == pytest.approx(bare.forward_s + 5.0)
    assert added.sampler_s == pytest.approx(bare.sampler_s)
    hidden = price_pass(TINY, "bfloat16", forward_pass, ceilings(fixed_s_per_pass=1e6, fixed_hidden=True))
    assert hidden.forward_s == 1e6
    small = price_pass(TINY, "bfloat16", forward_pass, ceilings(fixed_s_per_pass=1e-9, fixed_hidden=True))
    assert small.forward_s == bare.forward_s


def test_measured_sampler_replaces_its_bytes():
    """A measured time per logit prices the sampler; it is not part of the forward."""
    forward_pass = describe_pass("decide", 1, 2, 0, logits=2)
    price = price_pass(TINY, "bfloat16", forward_pass, ceilings(sampler_s_per_logit=3.0, overlap=0.5, stall=1.5))
    assert price.sampler_s == pytest.approx(2 * 10 * 3.0)
    assert price.bytes_ == pass_bytes(TINY, "bfloat16", forward_pass) == sum(o.bytes_ for o in price.operations)


def test_trace_is_the_sum_of_its_passes():
    """Prices, bytes and operations of a trace add up; an empty trace costs nothing."""
    passes = [describe_pass("prefill", 2, 9, 0, logits=0, kept=9)]
    passes += [describe_pass("decide", 2, 4, context, logits=4) for context in (9, 9, 13)]
    passes.append(describe_pass("decide", 2, 4, 13, logits=1))  # differs in its logits alone
    passes.append(describe_pass("decide", 2, 4, 13, logits=1, kept=4))
    trace = price_trace(TINY, "bfloat16", passes, PLAIN)
    single = [price_pass(TINY, "bfloat16", one, PLAIN) for one in passes]
    for side in ("low_s", "expected_s", "high_s", "forward_s", "bytes_", "flops", "sampler_s"):
        assert getattr(trace, side) == pytest.approx(sum(getattr(price, side) for price in single))
    heads = [o.flops for price in single for o in price.operations if o.name == "lm_head"]
    assert next(o.flops for o in trace.operations if o.name == "lm_head") == sum(heads)
    assert price_trace(TINY, "bfloat16", [], PLAIN).expected_s == 0


def test_wall_speedup_when_every_pass_costs_the_same():
    """With fixed cost alone every pass takes as long as any other, so wall and NFE speedup are one."""
    roof = ceilings(bandwidth_bytes_per_s=1e30, matrix_rates=((1, 1e30),), fixed_s_per_pass=1.0, sampler_s_per_logit=1e-30)
    found = predict_speedup(TINY, "bfloat16", roof, block_size=16, passes_per_block=4, batch=1, context_tokens=100)
    assert found.wall_speedup == pytest.approx(4)
    assert found.sbd_tokens_per_s == pytest.approx(4)


def test_wall_speedup_is_equation_16():
    """k * t(1) / (t(2k) + (l - 1) * t(k)) on separately priced passes, just below the NFE speedup on a GPU."""
    shape, roof = KNOWN_SHAPES["llama-3.1-8b"], ceilings_from_profile(load_profile("h100-sxm"), "bfloat16")
    found = predict_speedup(
        shape, "bfloat16", roof, block_size=16, passes_per_block=4, batch=2, context_tokens=1000, batching="lockstep"
    )
    one = price_pass(shape, "bfloat16", describe_pass("decide", 2, 1, 1000, logits=1, kept=1), roof).expected_s
    first = price_pass(shape, "bfloat16", describe_pass("commit+decide", 2, 32, 984, logits=16, kept=16), roof).expected_s
    later = price_pass(shape, "bfloat16", describe_pass("decide", 2, 16, 1000, logits=16), roof).expected_s
    assert found.wall_speedup == pytest.approx(16 * one / (first + 3 * later))
    assert 3.5 < found.wall_speedup < 4.001
    # Nobody measured the overlap: the printed figure lies within its band, not at its optimistic end.
    assert found.wall_speedup_overlapped > found.wall_speedup > found.wall_speedup_serial


def test_missing_peak_and_unknown_dtype_are_refused():
    """No float64 peak is invented, and a dtype that does not exist is named."""
    with pytest.raises(UnknownHardwareError, match=r"float64.*bfloat16"):
        ceilings_from_profile(load_profile("h100-sxm"), "float64")
    with pytest.raises(UnknownHardwareError, match="float8"):
        ceilings_from_profile(load_profile("a100-80-sxm"), "float8")
    with pytest.raises(UserError, match="int3"):
        pass_bytes(TINY, "int3", describe_pass("decide", 1, 1, 0, logits=1))


def test_interpolation_is_linear_in_log_log():
    """A power law is reproduced between its points, and the ends are held."""
    points = ((1, 3.0), (4, 12.0), (64, 192.0))
    assert [interpolate(points, m) for m in (1, 2, 4, 16, 64)] == pytest.approx([3, 6, 12, 48, 192])
    assert (interpolate(points, 0.5), interpolate(points, 1000)) == (3.0, 192.0)
    assert interpolate(((1, 7.0),), 99) == 7.0


@given(st.floats(0, 1), st.floats(1e9, 1e12), st.floats(1e10, 1e14))
def test_planted_overlap_is_found(overlap: float, bandwidth: float, rate: float):
    """Streaming times made with a known overlap give that overlap back."""
    tokens = (1, 2, 4, 8, 16, 32, 64)
    resident = tuple((m, rate * m**0.3) for m in tokens)
    streaming = []
    for m, flops_per_s in resident:
        sides = (1 / bandwidth, 2 * m / 2 / flops_per_s)
        streaming.append((m, max(sides) + (1 - overlap) * min(sides)))
    fit = fit_overlap(tuple(streaming), resident, bandwidth, 2)
    assert fit.stall == pytest.approx(1)
    assert fit.error < 1e-6
    if 1e-3 < (1 / bandwidth) / (2 / 2 / rate) < 1e3:  # else the shorter side is too short to tell
        assert fit.overlap == pytest.approx(overlap, abs=1e-6)


def test_planted_stall_is_found():
    """Times beyond even the sum give overlap 0 and the factor they were stretched by."""
    resident = tuple((m, 1e11 * m**0.5) for m in (1, 8, 64))
    streaming = tuple((m, 1.2 * (1 / 2e10 + m / rate)) for m, rate in resident)
    fit = fit_overlap(streaming, resident, 2e10, 2)
    assert (fit.overlap, fit.stall, fit.error) == (0.0, pytest.approx(1.2), pytest.approx(0, abs=1e-9))
