"""Void is not slow: each rule breaks on its own reading, takes every time of its sample and nothing else."""

from __future__ import annotations

import pytest

from harness.analysis.answer import compare, to_json
from harness.analysis.judge.verdict import verdict
from harness.analysis.trust.health import Usual, broken_rules, usual_of, without_void_times
from harness.reporting.page import render
from harness.scenario.claim_text import read_claim
from harness.scenario.part import HealthLimits
from tests.helpers import synthetic_run as synthetic
from tests.helpers.synthetic_run import CLOCK, COMPILED, KERNEL, NEIGHBOUR, STOLEN, THROTTLED

USUAL = Usual(kernel_s=0.010, sm_clock_mhz=2000.0, logical_cores=2)


def run_with(**readings):
    """A run whose first timed sample of every arm was metered quietly, and whose second one carries ``readings``."""
    run = synthetic.build()
    quiet = {"kernel_before_s": 0.010, "kernel_after_s": 0.010, "steal_s": 0.0, "device_processes": 1.0, "sm_clock_mhz": 2000.0}

    def metered(sample):
        disturbed = sample.group == 1 and not sample.warmup
        return sample.model_copy(update={"meters": quiet | readings if disturbed else quiet})

    return synthetic.with_samples(run, (metered(s) for s in run.samples))


@pytest.mark.parametrize(
    ("readings", "rules"),
    [
        ({}, []),
        ({"kernel_before_s": 0.0102, "kernel_after_s": 0.0103}, []),
        ({"kernel_before_s": 0.0104}, [KERNEL]),
        ({"kernel_after_s": 0.0104}, [KERNEL]),
        ({"throttle_power_cap_s": 0.5}, []),
        ({"throttle_hw_thermal_s": 1e-9}, [THROTTLED]),
        ({"throttle_sw_thermal_s": 0.1, "device_processes": 2.0}, [THROTTLED, NEIGHBOUR]),
        ({"throttle_power_brake_s": 0.1}, [THROTTLED]),
        ({"device_processes": 1.0}, []),
        ({"sm_clock_mhz": 1801.0}, []),
        ({"sm_clock_mhz": 1799.0}, [CLOCK]),
        ({"sm_clock_mhz": 1799.0, "throttle_power_cap_s": 0.5}, []),
        ({"sm_clock_mhz": 1799.0, "throttle_hw_thermal_s": 0.5}, [THROTTLED, CLOCK]),
        ({"compiled_graphs": 0.0}, []),
        ({"compiled_graphs": 1.0}, [COMPILED]),
    ],
)
def test_each_rule_breaks_on_its_own_reading(readings, rules):
    """At 3 % of 10 ms and 90 % of 2000 MHz; a figure that was not read breaks nothing."""
    sample = synthetic.build().samples[-1].model_copy(update={"meters": readings})
    assert list(broken_rules(sample, USUAL, HealthLimits())) == rules


def test_stolen_time_is_a_share_of_all_cores():
    """Hand-worked: 1 % of 2 cores over 4 s is 0.08 s."""
    sample = synthetic.build().samples[-1].model_copy(update={"prefill_s": 1.0, "decode_s": 3.0})
    for steal_s, rules in ((0.08, []), (0.0801, [STOLEN])):
        assert list(broken_rules(sample.model_copy(update={"meters": {"steal_s": steal_s}}), USUAL, HealthLimits())) == rules


def test_limits_are_the_scenarios():
    """A shared machine may allow 50 %."""
    sample = synthetic.build().samples[-1].model_copy(update={"meters": {"kernel_after_s": 0.0149}})
    assert broken_rules(sample, USUAL, HealthLimits(kernel=0.5)) == ()
    assert broken_rules(sample, USUAL, HealthLimits(kernel=0.4)) == (KERNEL,)


def test_what_is_usual_is_the_median_so_a_few_disturbed_samples_do_not_move_it():
    """Seven quiet kernels and one of ten times the length."""
    samples = synthetic.build().samples[:4]
    kernels = [(0.010, 0.010), (0.011, 0.010), (0.010, 0.100), (0.009, 0.010)]
    metered = [
        sample.model_copy(update={"meters": {"kernel_before_s": before, "kernel_after_s": after}})
        for sample, (before, after) in zip(samples, kernels, strict=True)
    ]
    assert usual_of(metered, [], 2).kernel_s == 0.010
    assert usual_of(samples, samples, 2).kernel_s is None


def test_a_void_sample_loses_its_times_and_keeps_its_counts():
    """Speedups are computed as if it had not been timed; passes and answers stay."""
    quiet, disturbed = run_with(), run_with(kernel_after_s=0.020)
    kept, health = without_void_times(disturbed)
    void = [s for s in kept.samples if s.group == 1 and not s.warmup]
    assert void and all(s.decode_s is None and s.prefill_s is None and s.passes.forward_s is None for s in void)
    assert all(s.decode_s is not None for s in kept.samples if s.group != 1)
    [part] = health
    assert part.void == len(void) and part.reasons == {KERNEL: len(void)} and part.timed > part.void
    before, after = compare(quiet), compare(disturbed)
    for one, other in zip(before.cells[0].arms, after.cells[0].arms, strict=True):
        assert other.accuracy == one.accuracy and other.nfe_speedup.value == one.nfe_speedup.value
        assert other.tokens_per_s.value is not None and other.decode_s.value < one.decode_s.value
        if not one.is_ntp:
            assert other.wall_speedup.n == one.wall_speedup.n - 1
    assert not without_void_times(quiet)[1][0].void


def test_an_arm_is_held_against_its_own_best_clock():
    """SBD draws more power and runs at 1760 to 1820 MHz, NTP at 2000; one NTP sample ran at 1500.

    Against 90 % of the part's best, half of SBD were void, the slower half: what is left is faster than what was measured.
    """
    run = synthetic.build(arms=synthetic.ARMS[:2], prompts=20)

    def metered(sample):
        slow, sbd = sample.group / 20, "sbd" in sample.case_id
        clock = 1820 - 60 * slow if sbd else 1500 if sample.group == 4 and not sample.warmup else 2000
        factor = 2000 / clock
        return sample.model_copy(update={"meters": {"sm_clock_mhz": clock}, "decode_s": sample.decode_s * factor})

    run = synthetic.with_samples(run, (metered(one) for one in run.samples))
    ntp, sbd = compare(run).cells[0].arms
    assert (sbd.voids.timed, sbd.voids.void, sbd.voids.reasons) == (20, 0, {})
    assert (ntp.voids.timed, ntp.voids.void, ntp.voids.reasons) == (20, 1, {CLOCK: 1})
    every = [one for one in run.samples if "sbd" in one.case_id and not one.warmup]
    assert sbd.decode_s.value == pytest.approx(sum(one.decode_s for one in every))


def test_batch_sizes_have_their_own_clock_and_tasks_share_one():
    """Batch 4 runs at 1700 MHz throughout: no sample of it is disturbed. Of two tasks at batch 1 one was."""
    parts = [synthetic.Part(name="p", batch_size=size, tasks=("a", "b"), arms=synthetic.ARMS[:2]) for size in (1, 4)]
    run = synthetic.build(*parts)
    clock_of = {"p/a/b1": 2000.0, "p/b/b1": 1700.0, "p/a/b4": 1700.0, "p/b/b4": 1700.0}
    metered = [
        one.model_copy(update={"meters": {"sm_clock_mhz": clock_of[one.case_id.rpartition("/")[0]]}}) for one in run.samples
    ]
    [part] = without_void_times(synthetic.with_samples(run, metered))[1]
    void = {case_id: (of_case.void, of_case.timed) for case_id, of_case in part.cases.items()}
    assert void == {
        case_id: (8 if "/b/b1" in case_id else 0, 2 if "/b4" in case_id else 8) for case_id in {s.case_id for s in metered}
    }
    assert (part.void, part.timed) == (16, 40)


def test_voids_are_told_per_arm_in_json_page_and_verdict():
    """Two samples of one SBD arm were throttled, none of the others."""
    run = synthetic.build(jitter=0.05)
    run = synthetic.altered(
        run,
        lambda one: (
            {"meters": {"throttle_hw_thermal_s": 1.0}}
            if "g0.1" in one.case_id and one.group in (1, 2) and not one.warmup
            else {}
        ),
    )
    comparison = compare(run)
    said = f"SBD k=16 γ=0.1: 2 of 8 void ({THROTTLED}: 2)"
    arms = {arm["label"]: arm for arm in to_json(comparison)["cells"][0]["arms"]}
    assert arms["SBD k=16 γ=0.1"]["voids"] == {"timed": 8, "void": 2, "reasons": {THROTTLED: 2}}
    assert arms["NTP"]["voids"] == {"timed": 8, "void": 0, "reasons": {}}
    assert f"reference, batch 1, {said}" in render(run, comparison)
    [slow], [fast] = (
        verdict(comparison, [read_claim(f"3-5x at arm='SBD k=16 γ={gamma}'")], run.header).judgements for gamma in (0.1, 0.6)
    )
    assert said in slow.reason and "void" not in fast.reason
    assert "void" not in verdict(comparison, [read_claim("3-5x fewer passes at gamma=0.1")], run.header).judgements[0].reason
