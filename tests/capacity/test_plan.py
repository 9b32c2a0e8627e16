"""The planner: a case worked by hand, searches against brute force, and what more memory or a higher price must do."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any, get_type_hints

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter

from harness.capacity.acceptance import AssumedAcceptance, from_passes, from_speedup, from_table1
from harness.capacity.columns import plain
from harness.capacity.plan import plan
from harness.capacity.question import Goal, Question, RowTokens
from harness.capacity.replica import paying_ranges
from harness.capacity.results import BreakEven, DeploymentPlan, DevicePlan
from harness.capacity.wording import answer, pays_words
from harness.errors import UserError
from harness.hardware.links import link_called
from harness.hardware.profile import HardwareProfile, known_profiles, load_profile
from harness.models import KNOWN_SHAPES, ModelShape
from harness.models.deployment import WEIGHT_FORMATS, Deployment
from harness.roofline.ceilings import ceilings_from_profile
from tests.helpers.speedups import predict_speedup

BF16 = Deployment(dtype="bfloat16")
# 10 layers: 3e6 weights make Q, K and V (1000 x 3 x 10 x 100), 1e6 the output, 6e6 the FFN (3 x 1000 x 2000); LM head 1e7.
SHAPE = ModelShape(name="toy", layers=10, hidden=1000, intermediate=2000, heads=10, kv_heads=10, head_dim=100, vocab=10_000)
WORKLOAD = RowTokens(context_tokens=10_000, longest_tokens=10_000)
FOUR_PASSES = AssumedAcceptance(block_size=10, passes_per_block=4, source="by hand")


def device(**figures: float | None) -> HardwareProfile:
    """2 GB, 1 GB/s, arithmetic so fast that only bytes count, 360 W, 3.6 USD an hour: 1e-3 USD and 1e-4 kWh a second."""
    values = {
        "bandwidth_bytes_per_s": 1e9,
        "memory_bytes": 2e9,
        "cache_bytes": 1e6,
        "link_bytes_per_s": 1e13,
        "power_w": 360.0,
        "price_usd_per_hour": 3.6,
        "peak": 1e17,
        **figures,
    }
    peak = values.pop("peak")
    dtypes = ("bfloat16", "float16", "float8", "int8", "tf32", "float32")
    peaks = {dtype: _figure(peak) for dtype in dtypes}
    return HardwareProfile.model_validate(
        {"name": "round", "kind": "gpu", "match_names": ["round"], "peak_flops_per_s": peaks}
        | {name: _figure(value) for name, value in values.items()}
    )


def _figure(value: float | None) -> dict[str, Any]:
    return {"value": value, "source": "typed here", "date": "2026-11-09", **({} if value is None else {"grade": "U"})}


def question(**changes: Any) -> Question:
    """What is asked of the toy, with ``changes``."""
    # On the datasheet rung, whose prices are worked out by hand here.
    asked: dict[str, Any] = {
        "shape": SHAPE,
        "deployment": BF16,
        "acceptance": FOUR_PASSES,
        "workload": WORKLOAD,
        "goal": Goal(batch=2),
        "rung": "datasheet",
    }
    return Question(**{**asked, **changes})


def planned(profile: HardwareProfile, **changes: Any) -> DevicePlan:
    """The plan of one device."""
    (found,) = plan(question(**changes), [profile]).devices
    return found


def test_memory_by_hand() -> None:
    """Weights, a row of each arm, and the rows that fit into 90 % of 2 GB."""
    found = planned(device())
    # 10 layers x 1e7 weights, 21 norms of 1000, embedding and LM head of 1e7 each: 120,021,000 x 2 bytes.
    assert found.ntp.memory.weight_bytes == found.sbd.memory.weight_bytes == 240_042_000
    assert found.ntp.memory.budget_bytes == pytest.approx(1.8e9)
    # A token's cache is 10 layers x 2 x 10 heads x 100 x 2 bytes = 40,000; SBD holds two blocks (20 tokens) more.
    assert found.ntp.memory.kv_bytes_per_row == 10_000 * 40_000
    assert found.sbd.memory.kv_bytes_per_row == 10_020 * 40_000
    # Logits 10,000 x (2 + 4 bytes) for 1 token or 10; activations (2 x 1000 + 3 x 2000) x 2 bytes for 1 token or 20.
    assert found.ntp.memory.workspace_bytes_per_row == 60_000 + 16_000
    assert found.sbd.memory.workspace_bytes_per_row == 600_000 + 20 * 16_000
    # (1,800,000,000 - 240,042,000) / 400,076,000 = 3.90 and / 401,720,000 = 3.88.
    assert found.ntp.memory.largest_batch == found.sbd.memory.largest_batch == 3
    assert found.sbd.memory.total_bytes(3) <= found.sbd.memory.budget_bytes < found.sbd.memory.total_bytes(4)


# Bytes of a pass, all of which take a nanosecond each: weights read 10 x 1e7 + LM head 1e7 (x 2) + norms 42,000 = 220,042,000;
# a line of a layer's matrices moves 768,000 (QKV 80,000, attention 80,000, output 40,000, FFN 160,000, elementwise 408,000); a
# line of logits 222,000 (LM head 22,000, sampler 5 x 4 x 10,000); a token kept 40,000; the cache of a row 40,000 a token.
# Activations of up to 40 lines fit the cache of 1 MB (FFN 640,000 a layer), and so do the logits of 20 (800,000).
#   NTP    220,042,000 + 2 rows x (10,000 x 40,000 + 40,000)                                                    = 1,020,122,000
#   first  220,042,000 + 2 x ( 9,990 x 40,000 + 10 x 40,000)                                                     = 1,020,042,000
#   later  220,042,000 + 2 x  10,000 x 40,000                                                                    = 1,020,042,000
NTP_S = 1.020122 / 2  # seconds per token, both rows together
SBD_S = (1.020042 + 3 * 1.020042) / 20  # 4 passes for 10 tokens in each of 2 rows, whoever opens a block: 0.2040084
# Prefill of 9,950 tokens, alone: 220,042,000 + 9,950 x (768,000 + 40,000), less 1 MB on the chip for each of 10 x (4 products
# and attention, 6 elementwise steps) = 8,159,642,000 bytes.
PREFILL_S = 8.159642


@pytest.mark.parametrize("prefill_s", [0.0, PREFILL_S])
def test_speed_and_cost_by_hand(prefill_s: float) -> None:
    """Tokens per second, GPUs, USD and kWh of both arms; with a prompt its prefill is in all of them. Half of the arithmetic,
    which overlaps with nothing that was measured, adds less than 1e-5.
    """
    workload = RowTokens.of_request(9950, 100) if prefill_s else replace(WORKLOAD, output_tokens=100)
    assert workload.context_tokens == 10_000
    found = planned(device(), workload=workload, goal=Goal(batch=2, requests_per_s=3.0))
    for arm, token_s, gpus in ((found.ntp, NTP_S, 178 if prefill_s else 154), (found.sbd, SBD_S, 86 if prefill_s else 62)):
        assert arm.batch == 2 and arm.tensor_parallel == 1 and arm.reason is None
        # While a row writes its 100 tokens, the other row's prompt is read once.
        assert arm.tokens_per_s_per_user.expected == pytest.approx(1 / (2 * token_s + prefill_s / 100), rel=1e-5)
        assert arm.decode_tokens_per_s_per_user.expected == pytest.approx(0.5 / token_s)
        assert (arm.first_token_s.expected if arm.first_token_s else 0.0) == pytest.approx(prefill_s, rel=1e-5)
        whole_s = token_s + prefill_s / 100  # every 100 tokens a prompt
        assert arm.tokens_per_s_per_gpu.expected == pytest.approx(1 / whole_s, rel=1e-5)
        assert arm.usd_per_million_tokens.expected == pytest.approx(1e6 * whole_s * 1e-3, rel=1e-5)
        assert arm.kwh_per_million_tokens.expected == pytest.approx(1e6 * whole_s * 1e-4)
        # 300 tokens/s: 300 x 0.510061 = 153.0 and 300 x 0.2040084 = 61.2; with prefill 177.5 and 85.7.
        assert arm.gpus == gpus
    assert found.wall_speedup.expected == pytest.approx(NTP_S / SBD_S, rel=1e-5)


def test_a_band_runs_from_serial_to_overlapped() -> None:
    """With arithmetic as slow as memory the ends differ, and they are those of the scalar prediction."""
    profile = device(peak=1e11)
    found = planned(profile)
    one = _scalar(profile, SHAPE, FOUR_PASSES, 2, 10_000)
    firsts, sides = one.first_passes, ("low_s", "expected_s", "high_s")
    block_s = {side: firsts * getattr(one.first, side) + (4 - firsts) * getattr(one.later, side) for side in sides}
    speed, usd = found.sbd.tokens_per_s_per_user, found.sbd.usd_per_million_tokens
    assert (speed.low, speed.high) == pytest.approx((10 / block_s["high_s"], 10 / block_s["low_s"]), rel=1e-12)
    middle_s = (block_s["low_s"] + block_s["high_s"]) / 2  # of an overlap that nobody measured
    assert 1.1 * speed.low < speed.high and speed.expected == pytest.approx(10 / middle_s)
    assert usd.low < usd.expected < usd.high
    assert found.ntp.tokens_per_s_per_user.low == pytest.approx(1 / one.ntp.high_s)
    assert found.wall_speedup.low == pytest.approx(min(one.wall_speedup_serial, one.wall_speedup_overlapped))


def test_the_smallest_split_that_fits() -> None:
    """Batch 4 needs a fifth more than one device has, and half of that on each of two; a given split is taken as it is."""
    found = planned(device(), goal=Goal(batch=4))
    assert found.ntp.tensor_parallel == 2 and found.sbd.tensor_parallel == 2
    full = planned(device(), goal=Goal(batch=3))
    assert full.sbd.tensor_parallel == 1 and full.sbd.batch == 3  # exactly what fits
    one = planned(device(), goal=Goal(batch=4), degrees=(1,))
    assert one.ntp.batch is None and "batch 4 needs 1.84 GB on each of 1, 1.8 are usable; 3 such rows fit" in str(
        one.ntp.reason
    )
    no_link = planned(device(link_bytes_per_s=None), goal=Goal(batch=4))
    assert no_link.sbd.reason.endswith(
        "what joins 2 of round is not known (typed here); name it: --link nvlink3, nvlink4, nvlink5, xgmi, pcie3, pcie4, "
        "pcie5, or the GB/s that a device sends in one direction"
    )
    named = planned(device(link_bytes_per_s=None), goal=Goal(batch=4), link=link_called("25"))
    assert named.sbd.tensor_parallel == 2 and named.sbd.reason is None
    assert no_link.sbd.tokens_per_s_per_gpu is None and no_link.wall_speedup is None


def test_of_splits_that_reach_a_speed_the_one_with_most_per_gpu() -> None:
    """2.3 tokens/s per user: one device does it with 2 rows, 2 do it with more rows per GPU."""
    goal = Goal(tokens_per_s_per_user=2.3)
    one, two = (planned(device(), goal=goal, degrees=(degree,)).sbd for degree in (1, 2))
    assert two.tokens_per_s_per_gpu.expected > one.tokens_per_s_per_gpu.expected
    assert planned(device(), goal=goal).sbd == two


def test_what_a_check_refuses_is_decoded_again() -> None:
    """At the same passes a block, 8 of 16 tokens a check decode at about half the speed: a check has more logits, and a row
    less room for them. The same tokens a pass cost more than in SBD, whose blocks are whole.
    """
    found = {}
    for speedup, per_check in ((4.0, None), (2.0, 8.0), (2.0, None)):
        acceptance = from_speedup(16, speedup, per_check)
        shape = KNOWN_SHAPES["llama-3.1-8b"]
        found[speedup, per_check] = planned(load_profile("h100-sxm"), shape=shape, acceptance=acceptance, goal=Goal(batch=8))
    whole, half, slow = (one.wall_speedup.expected for one in found.values())
    assert half == pytest.approx(whole / 2, rel=0.02) and half < whole / 2 and half < slow
    rows = {key: one.sbd.memory.largest_batch for key, one in found.items()}
    assert rows[2.0, 8.0] < rows[2.0, None] == rows[4.0, None]


def _scalar(profile: HardwareProfile, shape: ModelShape, acceptance: AssumedAcceptance, batch: int, context: int) -> Any:
    return predict_speedup(
        shape,
        BF16,
        ceilings_from_profile(profile, "bfloat16"),
        block_size=acceptance.block_size,
        passes_per_block=acceptance.passes_at(batch),
        batch=batch,
        context_tokens=context,
        batching=acceptance.batching,
    )


@settings(deadline=None, max_examples=25)
@given(
    st.sampled_from(["llama-3.1-8b", "qwen3-30b-a3b", "gemma-3-4b"]),
    st.sampled_from(["h20", "h100-sxm", "l4", "b200-sxm"]),
    st.sampled_from([4, 16, 32]),
    st.floats(1.2, 3.9),
    st.floats(1, 1.5),
    st.sampled_from([0, 1000, 5000, 40_000]),
)
def test_break_even_is_that_of_every_batch_alone(
    name: str, hardware: str, k: int, speedup: float, slower: float, context: int
) -> None:
    """Each batch from 1 to 60 priced by itself, in lockstep batches that take up to half as many passes again."""
    passes = k / speedup
    acceptance = AssumedAcceptance(
        block_size=k,
        passes_per_block=passes,
        source="drawn",
        batching="lockstep",
        slowest_row=((8, passes), (60, min(passes * slower, k))),
    )
    shape, profile = KNOWN_SHAPES[name], load_profile(hardware)
    profile = profile.model_copy(update={"memory_bytes": device(memory_bytes=1e13).memory_bytes})
    workload = RowTokens(context_tokens=context, longest_tokens=context)
    found = planned(profile, shape=shape, acceptance=acceptance, workload=workload)
    (breaks,) = found.break_even
    speedups = {batch: _scalar(profile, shape, acceptance, batch, context).wall_speedup for batch in range(1, 61)}
    paying = {batch for first, last in breaks.pays for batch in range(first, last + 1)}
    assert breaks.searched_batch == 60
    assert paying == {batch for batch, value in speedups.items() if value > 1}
    if breaks.last_batch is not None:
        assert speedups[breaks.last_batch] > 1 >= speedups[breaks.last_batch + 1]
        assert breaks.tokens_per_pass == breaks.last_batch * k


def test_break_even_of_ragged_batches_is_searched_far() -> None:
    """Without passes by batch thousands of batches are searched; the last that pays and the next one, each alone."""
    acceptance, profile, shape = from_speedup(16, 3), load_profile("h200-sxm"), KNOWN_SHAPES["llama-3.1-8b"]
    workload = RowTokens(context_tokens=4096, longest_tokens=4096)
    found = planned(profile, shape=shape, acceptance=acceptance, workload=workload)
    (breaks,) = found.break_even
    last = breaks.last_batch
    assert breaks.searched_batch == 8192 and breaks.pays == ((1, last),)
    around = [_scalar(profile, shape, acceptance, batch, 4096).wall_speedup for batch in (last, last + 1)]
    assert around[0] > 1 >= around[1]


def test_paying_ranges_may_be_several() -> None:
    """Runs of speedups above 1, those that touch an end among them; exactly 1 does not pay."""
    assert paying_ranges(np.array([1.1, 1.2, 0.9, 1.0, 1.3])) == ((1, 2), (5, 5))
    assert paying_ranges(np.array([1.0, 0.5])) == () and paying_ranges(np.array([2.0])) == ((1, 1),)


@pytest.mark.parametrize("hardware", ["l4", "h20", "h100-sxm"])
def test_the_batch_of_a_speed_is_the_one_that_serves_most(hardware: str) -> None:
    """Brute force over all batches that fit, each alone: the most tokens per second among those fast enough, in each arm."""
    shape, acceptance, target = KNOWN_SHAPES["llama-3.2-1b"], from_speedup(16, 3), 60.0
    profile, workload = load_profile(hardware), RowTokens(context_tokens=16_384, longest_tokens=16_384)
    goal = Goal(tokens_per_s_per_user=target)
    found = planned(profile, shape=shape, acceptance=acceptance, workload=workload, goal=goal, degrees=(1,))
    for arm, figure in ((found.ntp, "ntp_tokens_per_s"), (found.sbd, "sbd_tokens_per_s")):
        fits = range(1, arm.memory.largest_batch + 1)
        speeds = {b: getattr(_scalar(profile, shape, acceptance, b, 16_384), figure) for b in fits}
        best = max(speed for b, speed in speeds.items() if speed / b >= target)
        assert arm.batch is not None and speeds[arm.batch] == pytest.approx(best, rel=1e-8)
        assert arm.tokens_per_s_per_user.expected >= target * (1 - 1e-8)


def test_a_speed_out_of_reach_says_what_is_possible() -> None:
    """No batch is fast enough: the fastest is named, and no figure is made up."""
    found = planned(device(), goal=Goal(tokens_per_s_per_user=1000))
    assert found.sbd.batch is None and "tokens/s per user (batch 1) on 1 device" in str(found.sbd.reason)
    assert found.sbd.gpus is None and found.sbd.usd_per_million_tokens is None and found.break_even[0].reason is None


def test_without_a_goal_the_batch_with_most_tokens_per_second() -> None:
    """Bound by memory that is the largest that fits, in both arms."""
    found = planned(device(), goal=Goal())
    assert found.ntp.batch == 3 and found.sbd.batch == 3


sizes = st.floats(1e9, 4e9)


@settings(deadline=None, max_examples=40)
@given(sizes, sizes, st.floats(0, 0.9), st.floats(0, 0.9))
def test_more_memory_never_fits_less(one: float, other: float, reserve: float, less: float) -> None:
    """Neither does a smaller reserve; the split never grows and the largest batch never shrinks."""
    poor = planned(device(memory_bytes=min(one, other)), memory_reserve=max(reserve, less), goal=Goal(batch=1))
    rich = planned(device(memory_bytes=max(one, other)), memory_reserve=min(reserve, less), goal=Goal(batch=1))
    for scarce, ample in ((poor.ntp, rich.ntp), (poor.sbd, rich.sbd)):
        if scarce.batch is None or scarce.tensor_parallel is None or scarce.memory is None:
            continue
        assert ample.tensor_parallel <= scarce.tensor_parallel
        if ample.tensor_parallel == scarce.tensor_parallel:
            assert ample.memory.largest_batch >= scarce.memory.largest_batch


@settings(deadline=None, max_examples=20)
@given(st.floats(0.01, 1e3), st.floats(0.01, 1e3), st.floats(1, 1e4), st.floats(1, 1e4))
def test_a_higher_price_is_never_cheaper(price: float, other: float, power: float, stronger: float) -> None:
    """Nor is more power less energy; speeds do not depend on either."""
    cheap = planned(device(price_usd_per_hour=min(price, other), power_w=min(power, stronger))).sbd
    dear = planned(device(price_usd_per_hour=max(price, other), power_w=max(power, stronger))).sbd
    assert cheap.usd_per_million_tokens.expected <= dear.usd_per_million_tokens.expected
    assert cheap.kwh_per_million_tokens.expected <= dear.kwh_per_million_tokens.expected
    assert cheap.tokens_per_s_per_gpu == dear.tokens_per_s_per_gpu


def test_a_mixture_fits_by_all_experts_and_streams_the_visited() -> None:
    """Qwen3-30B-A3B: 61 GB must fit, yet one token reads so little of it that NTP is far faster than reading all would be."""
    shape = KNOWN_SHAPES["qwen3-30b-a3b"]
    asked = question(
        shape=shape,
        acceptance=from_speedup(16, 3),
        workload=RowTokens(context_tokens=0, longest_tokens=1),
        goal=Goal(batch=1),
        degrees=(1,),
    )
    fits, too_small = plan(asked, [load_profile("h100-sxm"), load_profile("l40s")]).devices
    assert fits.ntp.memory.weight_bytes == 2 * shape.params > 61e9
    assert too_small.ntp.batch is None and "61.1 GB" in str(too_small.ntp.reason)
    reading_all_per_s = 3350e9 / (2 * shape.params)
    reading_active_per_s = 3350e9 / (2 * 3.3e9)  # activated per token, as the model card says
    assert 5 * reading_all_per_s < fits.ntp.tokens_per_s_per_user.expected < 1.2 * reading_active_per_s
    assert fits.break_even[0].pays[0][0] > 1  # alone a block visits more experts than the passes it saves
    dense = KNOWN_SHAPES["llama-3.1-8b"]
    found = planned(load_profile("h100-sxm"), shape=dense, acceptance=from_speedup(16, 3), goal=Goal(batch=1))
    assert found.break_even[0].pays[0][0] == 1


def test_what_a_format_saves_is_what_fits() -> None:
    """In 4 bits with a scale for 128 the 8B model's linear layers take 0.52 bytes a weight; an 8-bit cache takes half."""
    shape = KNOWN_SHAPES["llama-3.1-8b"]
    small = Deployment(dtype="bfloat16", weights=WEIGHT_FORMATS["int4-g128"], kv_dtype="float8")
    linear = shape.layers * (shape.attention_params + shape.ffn_params)
    found, plain = (planned(load_profile("l4"), shape=shape, deployment=d, goal=Goal(batch=1)).ntp for d in (small, BF16))
    expected = linear * (0.5 + 2.5 / 128) + (shape.params - linear) * 2
    assert found.memory.weight_bytes == pytest.approx(expected, rel=1e-12)
    assert 2 * found.memory.kv_bytes_per_row == plain.memory.kv_bytes_per_row


def test_every_profile_is_planned_or_has_its_reason() -> None:
    """No device is dropped or guessed: each missing figure is named with the profile's own words for it."""
    found = plan(question(shape=KNOWN_SHAPES["llama-3.1-8b"]), list(known_profiles().values()))
    assert [one.hardware for one in found.devices] == list(known_profiles())
    for one in found.devices:
        profile = known_profiles()[one.hardware]
        needed = (profile.peak_flops_per_s["bfloat16"], profile.bandwidth_bytes_per_s, profile.memory_bytes)
        missing = [figure for figure in needed if figure.value is None]
        assert (one.reason is not None) == bool(missing) == (one.ntp is None and one.sbd is None)
        assert all(figure.source in str(one.reason) for figure in missing)
        if one.sbd and one.sbd.batch is not None:
            unpriced = profile.price_usd_per_hour.value is None
            assert (one.sbd.usd_per_million_tokens is None) == unpriced == (one.sbd.usd_reason is not None)
            assert not unpriced or profile.price_usd_per_hour.source in str(one.sbd.usd_reason)
    assert {one.reason is None for one in found.devices} == {True, False}, "both kinds are among the shipped ones"


def test_a_device_without_a_power_figure() -> None:
    """There is no energy, but a reason."""
    arm = planned(device(power_w=None)).sbd
    assert arm.kwh_per_million_tokens is None and arm.kwh_reason == "power not known: typed here"


def test_a_plan_survives_json() -> None:
    """Read back each figure is the same value, with absent figures, reasons and ranges among them."""
    asked = question(shape=KNOWN_SHAPES["qwen3-30b-a3b"], contexts=(1024, 131_072), acceptance=from_speedup(16, 3))
    found = plan(asked, [load_profile(name) for name in ("m4", "l4", "h20", "h100-sxm")])
    read = json.loads(json.dumps(plain(found), allow_nan=False))
    assert next(iter(read)) == "version" and len(read["devices"]) == len(found.devices)
    types = get_type_hints(DeploymentPlan)
    for device, kept in zip(found.devices, read["devices"], strict=True):
        assert TypeAdapter(tuple[BreakEven, ...]).validate_python(kept["break_even"]) == device.break_even
        for row, figures in ((device.ntp, kept["ntp"]), (device.sbd, kept["sbd"])):
            assert (row is None) == (figures is None)
            for name, value in (figures or {}).items():
                assert TypeAdapter(types[name]).validate_python(value) == getattr(row, name), name


def test_acceptance_from_each_source() -> None:
    """Table 1's cell as published (GSM8K of Qwen-3 at high γ: 2.86 tokens per pass), a recorded run's mean."""
    assert from_table1(16, "qwen-3-8b/gsm8k/high").nfe_speedup == pytest.approx(2.86)
    assert from_passes(16, [4, 5, 6, 9], "here").passes_per_block == 6
    assert from_speedup(16, 3).passes_at(500) == pytest.approx(16 / 3)


def test_passes_by_batch_are_those_given_and_no_more() -> None:
    """Given batches exactly, log-log between them, and nothing is planned or searched beyond the last."""
    lockstep = FOUR_PASSES.in_lockstep([(4, 6.0), (16, 9.0)])
    assert [lockstep.passes_at(b) for b in (1, 4, 8, 16)] == pytest.approx([4, 6, 54**0.5, 9])  # 8 is halfway in log
    assert list(lockstep.passes_at(np.array([1.0, 16.0]))) == pytest.approx([4, 9])
    found = planned(device(), acceptance=lockstep, goal=Goal(batch=2))
    assert found.break_even[0].searched_batch == 16 and found.sbd.passes_per_block == pytest.approx(24**0.5)
    with pytest.raises(UserError, match="given up to batch 16, not for 17"):
        question(acceptance=lockstep, goal=Goal(batch=17))


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: from_table1(16, "llama-3.1-8b/GSM8K/medium"), "LEVEL"),
        (lambda: from_table1(8, "llama-3.1-8b/GSM8K/low"), "block size 16, not 8"),
        (lambda: FOUR_PASSES.in_lockstep([(8, 3.0)]), "1=4, 8=3"),
        (lambda: FOUR_PASSES.in_lockstep([(1, 4.0)]), "must rise from 2"),
        (lambda: FOUR_PASSES.in_lockstep([(8, 11.0)]), "at most the block size 10"),
        (lambda: Goal(requests_per_s=0), "more than 0"),
        (lambda: RowTokens(context_tokens=-1, longest_tokens=0), "at least 0"),
        (lambda: question(memory_reserve=1), "from 0 to below 1"),
        (lambda: question(matrix_dtype="int4"), "allowed are bfloat16"),
        (lambda: question(contexts=(-5,)), "context of -5"),
    ],
)
def test_mistakes_say_what_is_allowed(make: Any, words: str) -> None:
    """Each refusal names what was given and what is possible."""
    with pytest.raises(UserError, match=words):
        make()


def test_the_answer_counts_what_the_plan_holds() -> None:
    """One sentence: devices with a plan, where SBD pays, and the cheapest where a price is known."""
    acceptance, names = from_speedup(16, 3), ("m4", "h20", "h200-sxm", "rtx-4090")
    asked = question(
        shape=KNOWN_SHAPES["llama-3.1-8b"],
        acceptance=acceptance,
        goal=Goal(batch=8),
        workload=RowTokens(context_tokens=4096, longest_tokens=4096),
    )
    found = plan(asked, [load_profile(name) for name in names])
    breaks = {one.hardware: one.break_even[0] for one in found.devices if one.break_even}
    words = answer(found)
    assert "possible with SBD on 3 of 4 devices, with more tokens/s per GPU than NTP on 2;" in words
    ends = f"{breaks['h20'].last_batch} (h20) to {breaks['h200-sxm'].last_batch} (h200-sxm)"
    assert f"SBD stops paying after batch {ends}; on 1 it pays at every batch that fits" in words
    assert "cheapest with SBD where a price is known: rtx-4090" in words
    assert "no plan with SBD on any of 1 devices" in answer(plan(asked, [load_profile("m4")]))


@pytest.mark.parametrize(
    ("pays", "largest", "words"),
    [
        (((1, 47),), 100, "1..47 of 100"),
        (((1, 8192),), 100, "all 100"),
        (((6, 592),), 91, "6..91 of 91"),
        ((), 7, "none of 7"),
        (((1, 3), (9, 9), (50, 60)), 40, "1..3, 9 of 40"),
        (((5, 9),), 3, "none of 3"),
        (((1, 8192),), 9000, "1..8,192 (all searched) of 9,000"),
    ],
)
def test_where_it_pays_in_words(pays: tuple[tuple[int, int], ...], largest: int, words: str) -> None:
    """Only batches that fit are spoken of."""
    found = BreakEven(context_tokens=1, reason=None, searched_batch=8192, largest_batch=largest, pays=pays)
    assert pays_words(found) == words
