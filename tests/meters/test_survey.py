"""The survey behind `sbd calibrate`, on machines with planted times: every rate by hand, and nothing left out in silence."""

from __future__ import annotations

from typing import Any

import pytest

from harness.analysis.tally.prices import Ladder, ladder
from harness.hardware.figures import MeasuredCurve, MeasuredFigure, MeasuredPoint
from harness.hardware.local_profile import local_profile
from harness.hardware.profile import HardwareProfile
from harness.meters.calibration import ATTENTION_QUERIES, measure
from harness.meters.survey import TOKENS, buffer_sizes
from harness.meters.torch_bench import Kernel
from harness.progress import Progress
from harness.roofline.ceilings import ceilings_from_calibration, ceilings_from_measured
from tests.helpers import synthetic_run as synthetic
from tests.helpers.fake_bench import GIB, MODEL, FakeBench
from tests.helpers.surveyed import MIB, SurveyedBench, surveyed


class SlowBench(SurveyedBench):
    """Nothing disturbs it, and a product of m tokens takes m hundredths of a second for m (m + 1) GFLOP."""

    def resident_linear(self, tokens: int) -> tuple[Kernel, int]:
        return self._kernel(tokens / 100), tokens * (tokens + 1) * 10**9

    def seconds(self, kernel: Kernel, repeats: int, warm_up: bool = True) -> list[float]:
        return [self.planned[kernel]] * repeats


class Counting(Progress):
    """Counts what is announced, taken and left out."""

    def __init__(self) -> None:
        self.missing = 0

    def start(self, case_ids: Any) -> None:
        self.missing = len(case_ids)

    def advance(self, case_id: str) -> None:
        self.missing -= 1

    def skip(self, case_id: str) -> None:
        self.missing -= 1


def test_planted_rates_come_back() -> None:
    """20 GB/s read, 10 GB/s copied, 1e11 * sqrt(m) FLOP/s, for every size; a disturbed run in five changes none of them."""
    found = surveyed()
    assert dict(found.read_bytes_per_s.known) == pytest.approx({4**n * 4 * MIB: 20e9 for n in range(6)})
    assert dict(found.copy_bytes_per_s.known) == pytest.approx({4**n * 4 * MIB: 10e9 for n in range(6)})
    assert dict(found.matrix_flops_per_s["bfloat16"].known) == pytest.approx({m: 1e11 * m**0.5 for m in TOKENS})
    reached = {m: 4e10 * m**0.25 for m in ATTENTION_QUERIES}
    assert dict(found.attention_flops_per_s["bfloat16"].known) == pytest.approx(reached)
    assert TOKENS == (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096)
    assert (found.fixed_s_per_pass.value, found.fixed_s_per_layer.value) == (pytest.approx(0.001), pytest.approx(0.0002))
    assert found.sampler_s_per_logit.value == pytest.approx(1e-9)
    for curve in (found.read_bytes_per_s, found.copy_bytes_per_s, *found.matrix_flops_per_s.values()):
        assert curve.grade == "R" and "Fake 9000" in curve.source and curve.date == found.measured_at


def test_matrix_rates_that_take_too_long_are_listed_with_the_reason() -> None:
    """By hand: m = 1 to 16 take 0.27 + 0.28 + 0.32 + 0.40 + 0.80 = 2.07 s of 3 s; m = 32 would take 5 x 0.32 = 1.6 s."""
    points = surveyed(SlowBench(), budget_s=3.0).matrix_flops_per_s["bfloat16"].points
    assert [point.at for point in points] == list(TOKENS)
    assert [point.value for point in points[:5]] == pytest.approx([1e11 * (m + 1) for m in (1, 2, 4, 8, 16)])
    assert [point.value for point in points[5:]] == [None] * 8
    assert points[5].reason == "skipped: about 1.6 s expected, 0.9 s left of 3 s"
    assert points[6].reason == "skipped: about 3.2 s expected, 0.9 s left of 3 s"


def test_a_budget_of_nothing_still_measures_the_first_point() -> None:
    """Without one time nothing can be projected, so m = 1 is always measured."""
    points = surveyed(SlowBench(), budget_s=0.0).matrix_flops_per_s["bfloat16"].points
    assert [point.value is None for point in points] == [False] + [True] * 12


def test_buffers_go_beyond_the_cache_as_far_as_memory_allows() -> None:
    """A cache of 2 GiB asks for 16 GiB; with 6 GiB free the reads end at 4 GiB and the copies, which need two, at 1 GiB."""
    assert buffer_sizes(None) == buffer_sizes(GIB) == tuple(4 * MIB * 4**n for n in range(6))
    assert buffer_sizes(2 * GIB)[-1] == 16 * GIB
    bench = SurveyedBench(free=6 * GIB, cache=2 * GIB)
    found = surveyed(bench)
    assert found.read_bytes_per_s.known[-1][0] == 4 * GIB
    assert found.copy_bytes_per_s.known[-1][0] == GIB
    assert found.read_bytes_per_s.points[-1].reason == "20.00 GiB must be free for it, 6.00 GiB are"
    assert max(bench.reserved) == 4 * GIB
    is_memory, why = found.read_is_memory
    assert not is_memory and why.startswith("20.0 GB/s read at 4,096 MiB, 2.0 times the last-level cache: less than 4 times")


@pytest.mark.parametrize("bench", [SurveyedBench(), SurveyedBench(free=GIB), SlowBench()])
def test_every_step_that_was_announced_is_taken_or_skipped(bench: SurveyedBench) -> None:
    """Otherwise the time left would never reach zero."""
    progress = Counting()
    surveyed(bench, budget_s=3.0, progress=progress)
    assert progress.missing == 0


def test_its_ceilings_price_like_those_of_a_calibration() -> None:
    """Two routes to the same machine: rates, overlap (planted: 0.4) and fixed cost agree with a part's own calibration."""
    profile = local_profile(surveyed())
    ours = ceilings_from_measured(profile, "bfloat16")
    theirs = ceilings_from_calibration(measure(FakeBench(), "bfloat16", MODEL), "bfloat16")
    assert ours.rung == theirs.rung == "calibrated"
    assert ours.overlap == pytest.approx(theirs.overlap) == pytest.approx(0.4)
    assert ours.stall == pytest.approx(theirs.stall)
    for name in ("bandwidth_bytes_per_s", "fixed_s_per_pass", "fixed_s_per_layer", "sampler_s_per_logit", "fixed_hidden"):
        assert getattr(ours, name) == pytest.approx(getattr(theirs, name))
    assert ours.matrix_flops_per_s(16) == pytest.approx(theirs.matrix_flops_per_s(16))
    assert ours.matrix_flops_per_s(4096) == pytest.approx(6.4e12)
    assert profile.measured is not None and "128.0 times the last-level cache" in profile.measured.read_is_memory[1]
    assert ours.share_claimable


def test_an_unknown_cache_claims_no_share() -> None:
    """Where the system tells no cache, a read rate cannot be told memory from cache."""
    measured = surveyed(SurveyedBench(cache=None))
    assert not ceilings_from_measured(local_profile(measured), "bfloat16").share_claimable
    assert "cannot be told memory from cache" in measured.read_is_memory[1]


@pytest.mark.parametrize(
    ("kind", "fields", "words"),
    [
        (MeasuredFigure, {"value": 1.0, "source": "s", "grade": "V", "date": "d"}, "Input should be 'R'"),
        (MeasuredPoint, {"at": 1, "value": None}, "a reason why it has none"),
        (MeasuredPoint, {"at": 1, "value": 2.0, "reason": "skipped"}, "a reason why it has none"),
        (
            MeasuredCurve,
            {"points": [{"at": 2, "value": 1.0}, {"at": 1, "value": 1.0}], "source": "s", "grade": "R", "date": "d"},
            "sort them by size",
        ),
        (MeasuredCurve, {"points": [{"at": 1, "value": 1.0}], "grade": "R", "date": "d"}, "source"),
    ],
)
def test_a_measured_section_is_checked(kind: Any, fields: dict[str, Any], words: str) -> None:
    """No other grade than R, no point without value or reason, no curve out of order or without a source."""
    with pytest.raises(ValueError, match=words):
        kind.model_validate(fields)


def test_published_figures_and_measured_ones_stand_apart() -> None:
    """On a device that a published profile describes its figures are taken over; elsewhere they are null with the reason."""
    known = SurveyedBench(memory=143771 * MIB, processors=132)
    known.device_name, known.device = "NVIDIA H200", "cuda"
    profile = local_profile(surveyed(known))
    assert profile.bandwidth_bytes_per_s.value == 4.8e12 and profile.peak_flops_per_s["bfloat16"].value == 989.4e12
    assert profile.measured is not None and profile.measured.largest_read == (4 * GIB, pytest.approx(20e9))
    assert (profile.name, profile.kind) == ("local-nvidia-h200", "gpu")
    assert profile.notes is not None and "h200-sxm" in profile.notes
    known.processors = 100
    assert local_profile(surveyed(known)).bandwidth_bytes_per_s.value is None
    unknown: HardwareProfile = local_profile(surveyed())
    for figure in (unknown.bandwidth_bytes_per_s, *unknown.peak_flops_per_s.values()):
        assert figure.value is None and "no published profile describes" in figure.source
    assert unknown.memory_bytes.value == 64 * GIB and unknown.memory_bytes.grade == "R"


def test_a_run_without_a_calibration_is_priced_on_its_profile() -> None:
    """The rung is called calibrated; a share of the read rate is claimed only of a model four times larger than the cache."""
    held = synthetic.build(synthetic.Part())
    case = held.header.cases[0]

    def rungs(bench: SurveyedBench) -> Ladder:
        hardware = local_profile(surveyed(bench)).model_dump(mode="json")
        header = held.header.model_copy(update={"calibration": None, "hardware": hardware})
        return ladder(held.model_copy(update={"header": header}), case)

    weights = case.model.streamed_params * 2
    large = rungs(SurveyedBench(cache=weights // 5))
    assert large.ceilings["calibrated"].bandwidth_bytes_per_s == pytest.approx(20e9)
    assert (large.read_ceiling.value, large.read_ceiling.method) == (pytest.approx(20e9), "calibrated read rate")
    assert set(large.reasons) == {"datasheet", "shape-calibrated", "shape-calibrated-ex-ante"}
    assert "no peak" in large.reasons["datasheet"]
    small = rungs(SurveyedBench(cache=weights // 3))
    assert small.read_ceiling.value is None and "too large for its cache" in (small.read_ceiling.reason or "")
