"""Was the machine fit to be timed? Rules that void a sample before any statistics: void is not slow.

A void sample keeps what was counted (passes, tokens, answers) and loses every time. Thresholds that depend on how quiet a
machine can be are the scenario's (HealthLimits); the others are facts about the hardware (measurement notes, section 5).
Reads records only.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from harness.record import Run, Sample
from harness.scenario_limits import HealthLimits

SLOWEST_CLOCK = 0.9
"""A GPU below this share of its fastest clock in the run was not warm, or held down."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Usual:
    """What the samples of one part have in common: median kernel time, fastest clock; None where nothing was read."""

    kernel_s: float | None
    sm_clock_mhz: float | None
    logical_cores: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PartHealth:
    """Of ``timed`` samples of a part, ``void`` were voided; ``reasons`` counts them by rule (one may break several)."""

    part: str
    timed: int
    void: int
    reasons: dict[str, int]


Rule = Callable[[Sample, Usual, HealthLimits], bool]


def kernel_times_s(samples: Iterable[Sample]) -> list[float]:
    """What the fixed calibration kernel took before and after each sample, where it was timed."""
    return [s.meters[name] for s in samples for name in ("kernel_before_s", "kernel_after_s") if name in s.meters]


def _kernel_moved(sample: Sample, usual: Usual, limits: HealthLimits) -> bool:
    return usual.kernel_s is not None and any(t > usual.kernel_s * (1 + limits.kernel) for t in kernel_times_s([sample]))


def _stolen(sample: Sample, usual: Usual, limits: HealthLimits) -> bool:
    window_s = (sample.prefill_s or 0.0) + (sample.decode_s or 0.0)
    cores = usual.logical_cores or 1
    return "steal_s" in sample.meters and sample.meters["steal_s"] > limits.steal * window_s * cores


def _throttled(sample: Sample, usual: Usual, limits: HealthLimits) -> bool:
    hard = ("throttle_sw_thermal_s", "throttle_hw_thermal_s", "throttle_power_brake_s")
    return any(sample.meters.get(name, 0.0) > 0 for name in hard)


def _neighbour(sample: Sample, usual: Usual, limits: HealthLimits) -> bool:
    return sample.meters.get("device_processes", 0.0) > 1


def _clock_low(sample: Sample, usual: Usual, limits: HealthLimits) -> bool:
    clock = sample.meters.get("sm_clock_mhz")
    return clock is not None and usual.sm_clock_mhz is not None and clock < SLOWEST_CLOCK * usual.sm_clock_mhz


def _compiled(sample: Sample, usual: Usual, limits: HealthLimits) -> bool:
    return sample.meters.get("compiled_graphs", 0.0) > 0


RULES: Mapping[str, Rule] = {
    "the calibration kernel took longer than usual": _kernel_moved,
    "the hypervisor gave the cores to others": _stolen,
    "the GPU was throttled": _throttled,
    "another process used the GPU": _neighbour,
    "the GPU's clock was below 90 % of its best": _clock_low,
    "a forward pass was compiled while the clock ran": _compiled,
}


def broken_rules(sample: Sample, usual: Usual, limits: HealthLimits) -> tuple[str, ...]:
    """The rules that a timed sample breaks, in words; none for a sample without readings."""
    return tuple(words for words, broken in RULES.items() if broken(sample, usual, limits))


def usual_of(samples: list[Sample], logical_cores: int | None) -> Usual:
    """What is usual among the timed samples of one part."""
    kernels = kernel_times_s(samples)
    clocks = [s.meters["sm_clock_mhz"] for s in samples if "sm_clock_mhz" in s.meters]
    return Usual(
        kernel_s=statistics.median(kernels) if kernels else None,
        sm_clock_mhz=max(clocks, default=None),
        logical_cores=logical_cores,
    )


def void_reasons(run: Run) -> tuple[tuple[str, ...], ...]:
    """Per sample of the run, in order, the rules that make its times void; none for a sample that was not timed."""
    part_of = {case.case_id: case.part for case in run.header.cases}
    by_part: dict[str, list[Sample]] = {}
    for sample in run.samples:
        if sample.case_id in part_of and sample.decode_s is not None:
            by_part.setdefault(part_of[sample.case_id], []).append(sample)
    limits, cores = _limits(run), run.header.environment.get("logical_cores")
    usual = {part: usual_of(samples, cores) for part, samples in by_part.items()}
    broken = {
        id(sample): broken_rules(sample, usual[part], limits.get(part, HealthLimits()))
        for part, samples in by_part.items() for sample in samples
    }  # fmt: skip
    return tuple(broken.get(id(sample), ()) for sample in run.samples)


def without_void_times(run: Run) -> tuple[Run, tuple[PartHealth, ...]]:
    """The run with the times of void samples taken off, and how many that were per part (warm-ups are not counted)."""
    part_of = {case.case_id: case.part for case in run.header.cases}
    judged = list(zip(run.samples, void_reasons(run), strict=True))
    by_part: dict[str, list[tuple[str, ...]]] = {}
    for sample, rules in judged:
        if sample.case_id in part_of and sample.decode_s is not None:
            counted = by_part.setdefault(part_of[sample.case_id], [])
            if not sample.warmup:
                counted.append(rules)
    kept = [_untimed(sample) if rules else sample for sample, rules in judged]
    health = tuple(_part_health(part, broken) for part, broken in by_part.items())
    return run.model_copy(update={"samples": kept}), health


def _part_health(part: str, broken: list[tuple[str, ...]]) -> PartHealth:
    reasons = Counter(words for rules in broken for words in rules)
    return PartHealth(part=part, timed=len(broken), void=sum(bool(rules) for rules in broken), reasons=dict(reasons))


def _limits(run: Run) -> dict[str, HealthLimits]:
    """The limits each part of the recorded scenario asked for."""
    parts = [part for part in run.header.scenario.get("parts", []) if isinstance(part, dict)]
    return {part["name"]: HealthLimits.model_validate(part["health"]) for part in parts if "health" in part}


def _untimed(sample: Sample) -> Sample:
    return sample.model_copy(update={"prefill_s": None, "decode_s": None, "passes": sample.packed_passes.untimed()})
