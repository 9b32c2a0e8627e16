"""Void is not slow: each rule breaks on its own reading, takes every time of its sample and nothing else."""

from __future__ import annotations

import pytest

from harness.compare import compare
from harness.health import RULES, Usual, broken_rules, usual_of, without_void_times
from harness.reporting.page import render
from harness.scenario_limits import HealthLimits
from tests import synthetic_run as synthetic

USUAL = Usual(kernel_s=0.010, sm_clock_mhz=2000.0, logical_cores=2)
KERNEL, STOLEN, THROTTLED, NEIGHBOUR, CLOCK, COMPILED = RULES


def run_with(**readings):
    """A run whose first timed sample of every arm was metered quietly, and whose second one carries ``readings``."""
    run = synthetic.build(synthetic.Part())
    quiet = {"kernel_before_s": 0.010, "kernel_after_s": 0.010, "steal_s": 0.0, "device_processes": 1.0, "sm_clock_mhz": 2000.0}

    def metered(sample):
        disturbed = sample.group == 1 and not sample.warmup
        return sample.model_copy(update={"meters": quiet | readings if disturbed else quiet})

    return run.model_copy(update={"samples": [metered(s) for s in run.samples]})


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
        ({"compiled_graphs": 0.0}, []),
        ({"compiled_graphs": 1.0}, [COMPILED]),
    ],
)
def test_each_rule_breaks_on_its_own_reading(readings, rules):
    """At 3 % of 10 ms and 90 % of 2000 MHz; a figure that was not read breaks nothing."""
    sample = synthetic.build(synthetic.Part()).samples[-1].model_copy(update={"meters": readings})
    assert list(broken_rules(sample, USUAL, HealthLimits())) == rules


def test_stolen_time_is_a_share_of_all_cores():
    """Hand-worked: 1 % of 2 cores over 4 s is 0.08 s."""
    sample = synthetic.build(synthetic.Part()).samples[-1].model_copy(update={"prefill_s": 1.0, "decode_s": 3.0})
    for steal_s, rules in ((0.08, []), (0.0801, [STOLEN])):
        assert list(broken_rules(sample.model_copy(update={"meters": {"steal_s": steal_s}}), USUAL, HealthLimits())) == rules


def test_limits_are_the_scenarios():
    """A shared machine may allow 50 %."""
    sample = synthetic.build(synthetic.Part()).samples[-1].model_copy(update={"meters": {"kernel_after_s": 0.0149}})
    assert broken_rules(sample, USUAL, HealthLimits(kernel=0.5)) == ()
    assert broken_rules(sample, USUAL, HealthLimits(kernel=0.4)) == (KERNEL,)


def test_what_is_usual_is_the_median_so_a_few_disturbed_samples_do_not_move_it():
    """Seven quiet kernels and one of ten times the length."""
    samples = synthetic.build(synthetic.Part()).samples[:4]
    kernels = [(0.010, 0.010), (0.011, 0.010), (0.010, 0.100), (0.009, 0.010)]
    metered = [
        sample.model_copy(update={"meters": {"kernel_before_s": before, "kernel_after_s": after}})
        for sample, (before, after) in zip(samples, kernels, strict=True)
    ]
    assert usual_of(metered, 2).kernel_s == 0.010
    assert usual_of(samples, 2).kernel_s is None


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


def test_the_page_says_how_many_samples_are_void_and_why():
    """In the part's remarks; a healthy run says nothing."""
    disturbed = run_with(device_processes=3.0)
    page = render(disturbed, compare(disturbed))
    assert "timed samples are void" in page and NEIGHBOUR in page
    assert "are void" not in render(run_with(), compare(run_with()))
