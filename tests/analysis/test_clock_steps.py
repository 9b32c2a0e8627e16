"""A wall clock that is set takes the times of the one sample that it was set in; durations are of the monotonic clock."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from harness.analysis.trust.cross_checks import contradictions
from harness.analysis.trust.health import void_reasons
from harness.record.schema import Run
from tests.helpers import synthetic_run as synthetic

SPAN_S = 10.0
BEGUN = datetime(2026, 11, 20, 10, tzinfo=UTC)


def clocked(*steps: tuple[float, float], booted: int | None = None) -> Run:
    """A run whose samples take 10 s each. ``steps``: (after so many true seconds, by how much the wall clock is set).

    ``booted``: from this sample on the monotonic clock began anew.
    """
    run, samples = synthetic.build(), []

    def wall(true_s: float) -> str:
        return (BEGUN + timedelta(seconds=true_s + sum(by for at, by in steps if at <= true_s))).isoformat()

    for number, sample in enumerate(run.samples):
        start_s = SPAN_S * number
        up_s = start_s if booted is None or number < booted else start_s - SPAN_S * booted
        samples.append(
            sample.model_copy(
                update={
                    "started_at": wall(start_s),
                    "ended_at": wall(start_s + SPAN_S - 1),
                    "started_clock_s": up_s + 100,
                    "ended_clock_s": up_s + SPAN_S + 99,
                }
            )
        )
    return synthetic.with_samples(run, samples)


@pytest.mark.parametrize(
    ("at_s", "by", "voided"), [*((25.0, by, 1) for by in (-0.6, 0.6, -3600.0, 3600.0)), (19.5, -30.0, 0), (19.5, 30.0, 0)]
)
def test_a_step_within_a_decode_voids_that_sample_and_no_record(at_s: float, by: float, voided: int) -> None:
    """Set by NTP back or on, or on by the time that the machine slept; between samples no decode is under way."""
    run = clocked((at_s, by))
    assert not {words for words in contradictions(run) if "began" in words or "longer" in words}
    told = [rule for rules in void_reasons(run) for rule in rules if "the wall clock was set, or the machine slept" in rule]
    assert len(told) == voided


def test_a_boot_between_samples_is_no_contradiction() -> None:
    """The monotonic clock begins anew, the wall clock goes on."""
    assert not {words for words in contradictions(clocked(booted=3)) if "began" in words}


def test_what_both_clocks_deny_contradicts_the_record() -> None:
    """A sample put before its predecessor, and a decode longer than both clocks tell."""
    run = clocked()
    swapped = synthetic.with_samples(run, [run.samples[3], *run.samples[:3], *run.samples[4:]])
    assert "it began before the sample before it ended" in contradictions(swapped)
    longer = [run.samples[0].model_copy(update={"decode_s": 2 * SPAN_S}), *run.samples[1:]]
    found = contradictions(synthetic.with_samples(run, longer))
    assert "prompt and decode took longer than there is between its begin and its end" in found
