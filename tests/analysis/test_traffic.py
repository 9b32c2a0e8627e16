"""Percent becomes bytes: the counter's reading times the recorded scale, beside the bytes modelled for the same window."""

from __future__ import annotations

import html

import pytest

from harness.analysis.answer import compare
from harness.record.store import read_run
from harness.reporting.page import render
from tests.helpers.environments import with_environment
from tests.helpers.pass_bytes import pass_bytes
from tests.helpers.synthetic_run import SHAPE, altered, build
from tests.helpers.two_runs import stored

WHY = "scale not taken"
NO_GPM = {"figures": ["dram_bandwidth_pct"], "reason": "no GPM"}


def event(copy_bytes_per_s_per_percent, taken_at="2026-11-20T09:00:00Z", theoretical=None, part="reference"):
    """A session's meters with one calibration."""
    return {
        "event": "meters",
        "part": part,
        "figures": {},
        "absent": [],
        "bandwidth_scale_reason": None,
        "bandwidth_scale": {
            "taken_at": taken_at,
            "counter": "NVML GPM metric 10",
            "copied": {"kernel": "copy", "bytes_": int(100 * copy_bytes_per_s_per_percent), "seconds": 2.0, "percent": 50.0},
            "interface": theoretical and {"clock_hz": 50 * theoretical, "bus_bits": 8, "source": "torch"},
        },
    }


def counted(run, percent, *events, only=None, started_at=None):
    """``run`` with this reading in every timed sample (or those of group ``only``), and these sessions."""
    samples = []
    for sample in run.samples:
        update = (
            {"meters": {"dram_bandwidth_pct": percent}}
            if only in (None, sample.group)
            else {"meter_reasons": {"dram_bandwidth_pct": "the window lasted 40.0 ms; GPM needs more than 100 ms"}}
        )
        if started_at is not None and sample.group == 0:
            update["started_at"] = started_at
        samples.append(sample.model_copy(update=update))
    return run.model_copy(update={"samples": samples, "sessions": list(events)})


def ntp_of(run):
    """The NTP arm over all tasks."""
    return next(arm for arm in compare(run).summary("reference", 1).arms if arm.is_ntp)


def test_percent_times_scale_is_bandwidth_and_its_bytes_stand_over_those_modelled():
    """Hand-worked: 30 % at 2 GB/s a percent is 60 GB/s; the ratio is that times the window over its passes' bytes."""
    run = counted(build(), 30.0, event(2e9))
    found = ntp_of(run)
    assert found.measured_bandwidth_bytes_per_s.value == pytest.approx(60e9)
    assert found.measured_bandwidth_bytes_per_s.n == 8 and found.measured_bandwidth_bytes_per_s.reason is None
    mine = [s for s in run.samples if s.case_id.endswith("/ntp") and not s.warmup]
    window_s = sum(s.prefill_s + s.decode_s for s in mine)
    modelled = sum(pass_bytes(SHAPE, "bfloat16", one) for s in mine for one in s.passes.passes())
    assert found.measured_over_modelled.value == pytest.approx(60e9 * window_s / modelled)
    assert found.modelled_bandwidth_bytes_per_s.value != found.measured_bandwidth_bytes_per_s.value


def test_longer_windows_weigh_more():
    """Counted bytes over seconds, not a mean of percentages: one window of eight reads 80 %, and is twice as long."""
    run = counted(build(), 20.0, event(1e9))
    value = ntp_of(
        altered(
            run,
            lambda s: (
                {"meters": {"dram_bandwidth_pct": 80.0}, "decode_s": 2 * s.decode_s, "prefill_s": 2 * s.prefill_s}
                if s.group == 7
                else {}
            ),
        )
    ).measured_bandwidth_bytes_per_s.value
    assert value == pytest.approx((7 * 20 + 2 * 80) / 9 * 1e9)


def test_a_disagreement_of_the_scales_goes_with_the_figure():
    """Shown beside it, in words; the figure itself stays the copy's."""
    found = ntp_of(counted(build(), 30.0, event(2e9, theoretical=3e9)))
    assert found.measured_bandwidth_bytes_per_s.value == pytest.approx(60e9)
    for quantity in (found.measured_bandwidth_bytes_per_s, found.measured_over_modelled):
        assert "3 GB/s (+50 %) by the memory clock and bus width" in quantity.reason
    scale = compare(counted(build(), 30.0, event(2e9, theoretical=3e9))).summary("reference", 1).counter_scale
    assert scale.bytes_per_s_per_percent.value == pytest.approx(2e9) and "disagree" in scale.disagreement
    assert scale.theoretical_bytes_per_s_per_percent.value == pytest.approx(3e9) and scale.theoretical_source == "torch"


def test_a_continued_run_uses_each_process_own_scale():
    """Of 8 samples one was taken before the second calibration: 1 x 30 x 2 + 7 x 30 x 4 GB/s over 8 equal windows."""
    events = [event(4e9, "2026-11-20T09:59:00+00:00"), event(2e9, "2026-11-20T08:00:00+00:00")]
    found = ntp_of(counted(build(), 30.0, *events, started_at="2026-11-20T09:58:59.999+00:00"))
    assert found.measured_bandwidth_bytes_per_s.value == pytest.approx((1 * 60e9 + 7 * 120e9) / 8)


def test_windows_that_were_not_read_are_counted_and_named():
    """The mean is over those that were; how many, and why not the rest, goes with the figure."""
    quantity = ntp_of(counted(build(), 30.0, event(2e9), only=3)).measured_bandwidth_bytes_per_s
    assert quantity.value == pytest.approx(60e9) and quantity.n == 1
    assert quantity.reason == "1 of 8 windows were read: the window lasted 40.0 ms; GPM needs more than 100 ms"


@pytest.mark.parametrize(
    ("events", "percent", "words"),
    [
        ([], None, "this run recorded no counter of memory bandwidth"),
        ([{"event": "meters", "part": "reference", "absent": [NO_GPM]}], None, "no GPM"),
        *(
            ([{"event": "meters", "part": "reference", "absent": damaged}], None, "this run recorded no counter")
            for damaged in (None, "x", [None], [{"figures": None, "reason": "x"}], [{"figures": ["dram_bandwidth_pct"]}])
        ),
        ([event(2e9, part="another")], 30.0, "what one percent is worth is not known"),
        ([{"event": "meters", "part": "reference", "bandwidth_scale": None, "bandwidth_scale_reason": WHY}], 30.0, WHY),
        ([event(2e9, "2027-01-01T00:00:00Z")], 30.0, "what one percent is worth is not known"),
    ],
)
def test_what_is_not_known_is_absent_with_its_reason(events, percent, words):
    """No counter, no scale, a scale of another part or of a later time: no bandwidth is made up, theory is no stand-in."""
    run = build().model_copy(update={"sessions": events}) if percent is None else counted(build(), percent, *events)
    found = ntp_of(run)
    for quantity in (found.measured_bandwidth_bytes_per_s, found.measured_over_modelled):
        assert quantity.value is None and words in quantity.reason


def test_the_scale_survives_the_run_directory(tmp_path):
    """Written by a session, read back, derived again."""
    run = counted(build(), 30.0, event(2e9))
    assert ntp_of(read_run(stored(run, tmp_path / "run"))).measured_bandwidth_bytes_per_s.value == pytest.approx(60e9)


def test_the_report_shows_the_counter_its_scale_and_the_doubt():
    """A column of its own beside the modelled one, the ratio, the scale in words, and where scales disagree a warning."""
    run = counted(build(), 30.0, event(2e9, theoretical=3e9))
    page = html.unescape(render(run, compare(run)))
    assert "GB/s, counter" in page and "Counter ÷ modelled" in page and "60.0" in page
    assert "One percent of NVML GPM metric 10 is 2.00 GB/s by a copy of known bytes in the measuring process" in page
    assert "and 3.00 GB/s by torch." in page
    assert page.count("3 GB/s (+50 %) by the memory clock and bus width") >= 2, "at the figure's note and with the scale"
    plain = build()
    page = html.unescape(render(plain, compare(plain)))
    assert "No memory traffic was counted: this run recorded no counter of memory bandwidth." in page
    assert "One percent of" not in page and "Counter ÷ modelled</th>" not in page, "no columns of nothing"


def test_a_warning_beside_a_fact_of_the_machine_is_shown():
    """A value that needs a word has it, not only one that is missing."""
    reasons = {"pynvml_from": "warning: the deprecated distribution"}
    run = with_environment(build(), pynvml_from=["pynvml"], reasons=reasons)
    assert "pynvml (warning: the deprecated distribution)" in html.unescape(render(run, compare(run)))
