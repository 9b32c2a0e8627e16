"""The figures that claims are made about, against the constants that were put in."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from harness.analysis.answer import compare
from harness.analysis.figures.predictions import predictions
from harness.analysis.results import ArmResult
from harness.analysis.tally.pass_values import DURING_RUN
from harness.record.schema import Run, Sample
from harness.stats.quantity import exact
from tests.helpers import synthetic_run as synthetic
from tests.helpers.environments import with_cases


def sbd(run: Run) -> ArmResult:
    """The arm with 4 passes per block of 16: 16 passes for 64 tokens in 0.182 + 0.051 s."""
    return compare(run).cells[0].arms[1]


DECODE_S = 13 * 0.014 + 3 * 0.017


def test_rates_of_the_arm_itself() -> None:
    """64 tokens in 16 passes and 0.233 s, by either estimator, for every prompt is the same."""
    figures = sbd(synthetic.build()).figures
    assert [figures["nfe_speedup"].value, figures["nfe_speedup_totals"].value] == pytest.approx([4, 4], rel=1e-12)
    assert figures["tokens_per_s"].value == pytest.approx(64 / DECODE_S, rel=1e-12)
    assert figures["wall_over_nfe"].value == pytest.approx(64 * 0.011 / DECODE_S / 4, rel=1e-12)
    assert figures["latency_p50_s"].value == pytest.approx(0.02 + DECODE_S)


def test_both_estimators_weigh_prompts_as_they_say() -> None:
    """A prompt that is n times slower: the geometric mean takes its root, the ratio of totals its share, by hand."""
    run = synthetic.build(prompts=6)
    figures = sbd(synthetic.altered(run, lambda s: {"decode_s": s.decode_s * (32 if s.group == 0 else 1)})).figures
    assert figures["tokens_per_s"].value == pytest.approx(64 / DECODE_S / 32 ** (1 / 6), rel=1e-9)
    assert figures["tokens_per_s_totals"].value == pytest.approx(6 * 64 / (DECODE_S * (5 + 32)), rel=1e-9)


def test_repeats_of_a_prompt_are_one_observation() -> None:
    """Three repeats of eight prompts are eight."""
    arm = sbd(synthetic.build(repeats=3, jitter=0.05))
    names = ("nfe_speedup", "tokens_per_s", "tokens_per_s_totals", "wall_over_nfe", "latency_p50_s", "accuracy_loss_points")
    assert {name: arm.figures[name].n for name in names} == dict.fromkeys(names, 8)
    assert (arm.accuracy.n, arm.correct, arm.samples) == (8, 7, 24)


def metered(run: Run, joules: float, device: str = "cpu", stretch: float = 50.0) -> Run:
    """Every decode with an energy reading, stretched to outlast the counter's window."""
    name = "cpu_energy_j" if device == "cpu" else "energy_j"
    run = synthetic.altered(run, lambda s: {"meters": {name: joules}, "decode_s": s.decode_s * stretch})
    return with_cases(run, lambda case: {"device": device})


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_energy_per_new_token(device: str) -> None:
    """130 J over a decode of 65 new tokens, prefill's own included, are 2 J each, long or short."""
    for stretch in (1.0, 50.0):
        found = sbd(metered(synthetic.build(), 130.0, device, stretch)).figures["joules_per_token"]
        assert found.value == pytest.approx(2)
    none = sbd(synthetic.build()).figures["joules_per_token"]
    assert none.value is None and "no energy" in str(none.reason)


def uneven(run: Run, device: str, short: int = 2) -> Run:
    """Decodes of so many prompts take 2 s and 200 J, of the others 20 s and 650 J."""
    name = "cpu_energy_j" if device == "cpu" else "energy_j"

    def read(one: Sample) -> dict[str, Any]:
        joules, window_s = (200.0 + one.group, 2.0) if one.group < short else (650.0 + one.group, 20.0)
        return {"meters": {name: joules}, "decode_s": window_s - (one.prefill_s or 0.0)}

    return with_cases(synthetic.altered(run, read), lambda case: {"device": device})


def test_energy_is_of_all_decodes_and_the_counter_s_steps_widen_it() -> None:
    """By hand: 2 x 200.5 J and 6 x 654.5 J for 8 x 65 tokens; with 5 s and more alone it was 10.07. A GPU's steps of 0.1 s are
    5 % of a window of 2 s and 0.5 % of 20 s, a CPU's are a hundredth of that.
    """
    joules = 2 * 200.5 + 6 * 654.5
    steps = (0.05 * 2 * 200.5 + 0.005 * 6 * 654.5) / joules
    gpu, cpu = (sbd(uneven(synthetic.build(), device)).figures["joules_per_token"] for device in ("cuda", "cpu"))
    assert gpu.value == cpu.value == pytest.approx(joules / 520)
    assert (gpu.low / (1 - steps), gpu.high / (1 + steps)) == pytest.approx(
        (cpu.low / (1 - steps / 100), cpu.high / (1 + steps / 100))
    )
    assert gpu.low < 0.997 * cpu.low and "counter's steps" in str(gpu.method)


def test_a_counter_that_stood_still_gives_no_figure_and_one_that_hardly_moved_a_wide_interval() -> None:
    """Without a reading in one decode there is no figure: the others are not all. Windows of 0.12 s leave five sixths open."""
    run = uneven(synthetic.build(), "cuda")
    stood = synthetic.altered(run, lambda one: {"meters": {"energy_j": 0.0 if one.group == 0 else 650.0}})
    found = sbd(stood).figures["joules_per_token"]
    assert found.value is None and "did not move in 1 of 8 decodes" in str(found.reason)
    coarse = synthetic.altered(run, lambda one: {"prefill_s": 0.01, "decode_s": 0.11})
    short = sbd(coarse).figures["joules_per_token"]
    assert short.value == pytest.approx((2 * 200.5 + 6 * 654.5) / 520)
    assert short.low < short.value / 6 and short.high > short.value * 11 / 6


def test_share_of_the_read_ceiling() -> None:
    """Modelled bytes of the decode over its forwards' time and the calibrated rate; without one, its reason."""
    run = synthetic.build(calibration=synthetic.calibration())
    arm = sbd(run)
    assert arm.figures["bandwidth_share_totals"].value == pytest.approx(arm.ceiling_share.value, rel=1e-9)
    assert arm.figures["bandwidth_share"].value == pytest.approx(arm.ceiling_share.value, rel=1e-9), "all prompts are alike"
    none = sbd(synthetic.build()).figures["bandwidth_share"]
    assert none.value is None and none.reason == sbd(synthetic.build()).ceiling_share.reason


def test_a_decode_of_zero_seconds_is_predicted() -> None:
    """Outputs that end with their first token have no decode pass: the prediction is 0, and it has no interval."""
    tally: Any = SimpleNamespace(decode_s=0.0, sums=SimpleNamespace(timed=True, priced_s={DURING_RUN: (0.0,) * 3}))
    (found,) = predictions((DURING_RUN,), (), (tally,), exact(1.0))
    assert (found.decode_s.low, found.decode_s.value, found.decode_s.high) == (None, 0.0, None)
