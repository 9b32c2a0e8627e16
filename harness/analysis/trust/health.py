"""Rules that void the times of a sample before any statistics, because the machine was not fit for timing.

A void sample keeps its counts (passes, tokens, answers) and loses every time. Where the ways of counting a server's passes
disagree, timed or not, it loses its passes too. The scenario sets the thresholds that depend on
how quiet a machine can be (HealthLimits); the others are facts about the hardware.

A rule that drops slow samples makes the rest look faster: voids of an arm raise its speedup, voids of NTP lower it. So slowness
that an arm itself causes must stay. An arm that draws more power runs at a lower clock. It is therefore compared with its own
best clock, and a clock limited by the board's power cap is not void. Voids are reported per arm, so that readers see a
one-sided loss.
"""

from __future__ import annotations

import json
import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, field
from statistics import fmean

from harness.frozen import frozen
from harness.record.bounds import arrived_together
from harness.record.schema import NO_PASSES, REQUEST_S, TOGETHER, UNTOLD, CaseHeader, Run, Sample
from harness.scenario.part import HealthLimits

CLOCKLESS = {
    "pieces of its answers came together": (
        "connect to the server itself: a proxy, gzip or Nagle's algorithm holds pieces of the stream back"
    ),
    "its stream has fewer pieces than tokens": (
        "time every token, those of reasoning too, each in a piece of its own (a newer tool, a stream interval of 1)"
    ),
    "a step of its clock is more than 1 % of its decode": (
        "have longer answers decoded, or measure with a finer clock, whose times are not rounded"
    ),
}
"""Rules by which the clock does not tell the time of decoding, with what to do. The whole request keeps its time."""
QUIET = "run it again on a quiet machine"
MOST_TOGETHER = 0.2
"""Share of an answer's gaps without a time, where an arm has half of it: a busy client reads some pieces late, 8 % of all."""
COARSEST_CLOCK, FINE_S = 0.01, 1e-5
"""Share of a decode that a step of its clock may be, and a step that is none. Five different times show a step."""
MOST_UNTOLD = 0.1
"""Share of tokens; a token that ends no letter has no piece of its own."""
SET_BY_S, SLEWED = 0.05, 1e-3
"""A wall clock that ran off the monotonic one by more than both was set, or the machine slept; NTP slews by 5e-4."""
SLOWEST_CLOCK = 0.9
"""A GPU below this share of its arm's fastest clock was not warm, or was slowed by something other than the arm."""

WAYS = "served_ways_disagree"
UNCOUNTED = "the ways of counting a server's passes disagree"
STREAM = "start the server with --stream-interval 1 (vLLM, SGLang), so that each pass sends its tokens by themselves"


@frozen
class Usual:
    """The median kernel time of a part's samples, and the fastest clock of an arm's; None where nothing was read.

    ``together``: the mean over an arm's answers of harness.record.bounds.arrived_together. ``step_s``: of the
    arm's clock, the largest time in whole microseconds of which all its times are multiples; 0: too few to tell.
    """

    kernel_s: float | None
    sm_clock_mhz: float | None
    logical_cores: int | None
    together: float = 0.0
    step_s: float = 0.0


@frozen
class Voids:
    """Of ``timed`` samples, ``void`` were voided; ``reasons`` counts them by rule (one may break several)."""

    timed: int
    void: int
    reasons: dict[str, int]

    @property
    def words(self) -> str:
        """``3 of 40 void (the GPU was throttled: 3)``."""
        said = "; ".join(f"{rule}: {count}" for rule, count in self.reasons.items())
        return f"{self.void} of {self.timed} void" + (f" ({said})" if said else "")


@frozen
class PartHealth(Voids):
    """Voids of a part, and of each of its cases by case id."""

    part: str
    cases: dict[str, Voids] = field(default_factory=dict)


def kernel_times_s(samples: Iterable[Sample]) -> list[float]:
    """Times of the fixed calibration kernel before and after each sample, where it was timed."""
    return [s.meters[name] for s in samples for name in ("kernel_before_s", "kernel_after_s") if name in s.meters]


def broken_rules(sample: Sample, usual: Usual, limits: HealthLimits) -> tuple[str, ...]:
    """The rules that a timed sample breaks, in words; none for a sample without readings."""
    read = defaultdict(float, sample.meters)
    window_s = (sample.prefill_s or 0.0) + (sample.decode_s or 0.0)
    slow_kernel_s = math.inf if usual.kernel_s is None else usual.kernel_s * (1 + limits.kernel)
    clock_mhz, slow_clock_mhz = sample.meters.get("sm_clock_mhz", math.inf), SLOWEST_CLOCK * (usual.sm_clock_mhz or 0.0)
    power_capped = read["throttle_power_cap_s"] > 0  # the power that this very work draws lowers the clock
    (begun, ended), span_s = sample.moments_s, sample.clock_span_s  # older records do not tell
    off_s = 0.0 if ended is None or span_s is None else abs(ended - begun - span_s)
    thermal = ("throttle_sw_thermal_s", "throttle_hw_thermal_s", "throttle_power_brake_s")
    broken = {
        "the calibration kernel took longer than usual": any(time_s > slow_kernel_s for time_s in kernel_times_s([sample])),
        "the hypervisor gave the cores to others": read["steal_s"] > limits.steal * window_s * (usual.logical_cores or 1),
        "the GPU was throttled": any(read[name] > 0 for name in thermal),
        "another process used the GPU": read["device_processes"] > 1,
        "the GPU's clock was below 90 % of the arm's best": not power_capped and clock_mhz < slow_clock_mhz,
        "a forward pass was compiled while the clock ran": read["compiled_graphs"] > 0,
        "the wall clock was set, or the machine slept, while the sample was taken": off_s > SET_BY_S + SLEWED * (span_s or 0.0),
        UNCOUNTED: read[WAYS] > 0,
        "another client used the server": read["served_foreign_requests"] > 0,
        "the server reused a prompt from its cache": read["served_cached_tokens"] > 0,
        "the server put a request off for lack of memory": read["served_preempted"] > 0,
    }
    held = min(_together(sample), 2 * usual.together) > MOST_TOGETHER
    coarse = FINE_S < usual.step_s > COARSEST_CLOCK * (sample.decode_s or math.inf)
    broken |= zip(CLOCKLESS, (held, read[UNTOLD] > 1 + MOST_UNTOLD * sample.rows[0].output_tokens, coarse), strict=True)
    return tuple(rule for rule, applies in broken.items() if applies)


def _together(sample: Sample) -> float:
    """The mean of arrived_together over its answers; 0 without any of several pieces."""
    streams = [arrived_together(row.times.gaps_s) for row in sample.rows if row.times and row.times.gaps_s]
    return sample.meters.get(TOGETHER, fmean(streams or [0.0]))


def usual_of(part: Iterable[Sample], arm: Sequence[Sample], logical_cores: int | None) -> Usual:
    """The usual values among the timed samples of one part, and of one of its arms at one batch size."""
    kernels = kernel_times_s(part)
    clocks = [s.meters["sm_clock_mhz"] for s in arm if "sm_clock_mhz" in s.meters]
    times = {
        round(1e6 * seconds) for one in arm for seconds in (one.prefill_s, one.decode_s) if seconds and math.isfinite(seconds)
    }
    return Usual(
        kernel_s=statistics.median(kernels) if kernels else None,
        sm_clock_mhz=max(clocks, default=None),
        logical_cores=logical_cores,
        together=fmean(map(_together, arm)) if arm else 0.0,
        step_s=math.gcd(*times) / 1e6 if len(times) > 4 else 0.0,
    )


def void_reasons(run: Run) -> tuple[tuple[str, ...], ...]:
    """Per sample of the run, in order, the rules that make its times void; none for a sample that was not timed."""
    arm_of = {case.case_id: (case.part, case.batch_size, arm_values(case)) for case in run.cases}
    by_part: dict[str, list[Sample]] = {}
    by_arm: dict[tuple[str, int, str], list[Sample]] = {}
    for sample in run.samples:
        if sample.case_id in arm_of and (sample.decode_s is not None or sample.meters.get(WAYS)):
            arm = arm_of[sample.case_id]
            by_part.setdefault(arm[0], []).append(sample)
            by_arm.setdefault(arm, []).append(sample)
    cores = run.header.environment.get("logical_cores")
    broken = {}
    for arm, samples in by_arm.items():
        limits = HealthLimits.model_validate(run.header.written(arm[0]).health)
        usual = usual_of(by_part[arm[0]], samples, cores)
        broken.update({id(sample): broken_rules(sample, usual, limits) for sample in samples})
    return tuple(broken.get(id(sample), ()) for sample in run.samples)


def arm_values(case: CaseHeader) -> str:
    """Values that the cases of one arm share, as text: all but the task."""
    return json.dumps(case.arm.values, sort_keys=True, default=str)


def without_void_times(run: Run) -> tuple[Run, tuple[PartHealth, ...]]:
    """The run without the times of void samples, and their number per part (warm-ups are not counted)."""
    part_of = {case.case_id: case.part for case in run.cases}
    judged = list(zip(run.samples, void_reasons(run), strict=True))
    by_part: dict[str, dict[str, list[Voids]]] = {}
    for sample, rules in judged:
        if sample.case_id in part_of and sample.decode_s is not None:
            counted = by_part.setdefault(part_of[sample.case_id], {})
            if not sample.warmup:
                one = Voids(timed=1, void=int(bool(rules)), reasons=dict.fromkeys(rules, 1))
                counted.setdefault(sample.case_id, []).append(one)
    kept = [_untimed(sample, rules) if rules else sample for sample, rules in judged]
    of_cases = {part: {case_id: together(every) for case_id, every in cases.items()} for part, cases in by_part.items()}
    health = [PartHealth(part=part, cases=cases, **asdict(together(cases.values()))) for part, cases in of_cases.items()]
    return run.model_copy(update={"samples": kept}), tuple(health)


def _untimed(sample: Sample, rules: Sequence[str]) -> Sample:
    uncounted = UNCOUNTED in rules
    passes = None if uncounted or sample.packed_passes is None else sample.packed_passes.untimed()
    reasons = sample.meter_reasons | ({NO_PASSES: UNCOUNTED} if uncounted else {})
    whole = {} if {*rules} - {*CLOCKLESS} else {REQUEST_S: (sample.prefill_s or 0.0) + (sample.decode_s or 0.0)}
    times = {"prefill_s": None, "decode_s": None, "passes": passes}
    return sample.model_copy(update=times | {"meters": whole | sample.meters, "meter_reasons": reasons})


def together(voids: Iterable[Voids]) -> Voids:
    """The voids of several cases as one."""
    every, reasons = list(voids), Counter[str]()
    for one in every:
        reasons.update(one.reasons)
    return Voids(timed=sum(one.timed for one in every), void=sum(one.void for one in every), reasons=dict(reasons))
