"""A claim: bounds on what a run measures, and where in the run they are looked up. What a person says, as data.

A claim stands in a scenario, in a file of claims or on the command line (both harness.scenario.claim_text). Knows no
run and judges nothing: that is harness.analysis.verdict.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal, get_args

from pydantic import Field, field_validator, model_validator

from harness.config_file import Count, Frozen, Name, NonNegative, Text

MetricName = Literal[
    "wall_speedup", "request_speedup", "nfe_speedup", "wall_over_nfe", "tokens_per_s", "latency_p50_s",
    "latency_p90_s", "latency_p95_s", "latency_p99_s", "joules_per_token", "bandwidth_share",
    "prediction_error", "prediction_error_during_run", "accuracy_loss_points", "identical_to_ntp",
]  # fmt: skip
METRIC_NAMES: tuple[MetricName, ...] = get_args(MetricName)
Estimator = Literal["geometric_mean", "ratio_of_totals"]
ESTIMATORS: tuple[Estimator, ...] = get_args(Estimator)
BEST = "best"
"""The arm that the report quotes first: the fastest that keeps the accuracy (harness.analysis.results.Highlight)."""
SAME_ACCURACY_POINTS = 1.0
"""What "same accuracy" means where nobody says otherwise: at most this many percentage points lost. Our margin."""
CLOSE_TO_PASSES = 0.9
"""What "close to the pass reduction" means: wall speedup ÷ NFE speedup at least this. Our limit; the paper names none."""
THIS_PROCESS = "this process"
"""The scope of a claim that says nothing of other processes."""

Number = Annotated[float, Field(strict=True, allow_inf_nan=False)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """What a claim can be about. ``clock``: it rests on times. ``to_ntp``: it is a ratio to the time of NTP, so a slow
    baseline lifts it. ``averaged``: it is a mean of ratios, so there is a choice of estimator.
    """

    unit: str
    better: Literal["higher", "lower"]
    clock: bool = True
    to_ntp: bool = False
    averaged: bool = True


_LATENCY = Metric(unit="s", better="lower", averaged=False)
METRICS: dict[MetricName, Metric] = {
    "wall_speedup": Metric(unit="x", better="higher", to_ntp=True),
    "request_speedup": Metric(unit="x", better="higher", to_ntp=True),
    "nfe_speedup": Metric(unit="x", better="higher", clock=False),
    "wall_over_nfe": Metric(unit="x", better="higher", to_ntp=True),
    "tokens_per_s": Metric(unit="tokens/s", better="higher"),
    "latency_p50_s": _LATENCY,
    "latency_p90_s": _LATENCY,
    "latency_p95_s": _LATENCY,
    "latency_p99_s": _LATENCY,
    "joules_per_token": Metric(unit="J/token", better="lower"),
    "bandwidth_share": Metric(unit="of the read ceiling", better="higher"),
    "prediction_error": Metric(unit="predicted ÷ measured - 1", better="lower"),
    "prediction_error_during_run": Metric(unit="predicted ÷ measured - 1", better="lower"),
    "accuracy_loss_points": Metric(unit="percentage points", better="lower", clock=False, averaged=False),
    "identical_to_ntp": Metric(unit="of the prompts", better="higher", clock=False, averaged=False),
}
PREDICTION_ERRORS: tuple[MetricName, ...] = ("prediction_error", "prediction_error_during_run")
"""By what was known before the first sample (ex-ante), and by passes that were measured among the samples too."""


class Bound(Frozen):
    """A metric and the least or the most it may be. A prediction error has a ``max`` alone: it is held against both signs."""

    metric: MetricName
    min: Number | None = None
    max: Number | None = None
    estimator: Estimator = "geometric_mean"

    @model_validator(mode="after")
    def _can_be_held(self) -> Bound:
        if self.min is None and self.max is None:
            raise ValueError(f"{self.metric} has no bound; add min: or max:")
        if self.min is not None and self.max is not None and self.min > self.max:
            raise ValueError(f"{self.metric}: min {self.min:g} is above max {self.max:g}; nothing can meet both")
        if self.metric in PREDICTION_ERRORS and self.min is not None:
            raise ValueError(f"{self.metric} is how far off a prediction may be, whatever its sign; give max: alone")
        given = [bound for bound in (self.min, self.max) if bound is not None]
        if self.metric != "accuracy_loss_points" and min(given) <= 0:
            raise ValueError(f"{self.metric} is above 0 by nature, got {min(given):g}; give a bound above 0")
        if self.estimator != "geometric_mean" and not METRICS[self.metric].averaged:
            raise ValueError(f"{self.metric} is no mean of ratios; remove the estimator")
        return self

    @property
    def limits(self) -> tuple[float | None, float | None]:
        """The least and the most that the figure may be, in the metric's unit."""
        if self.metric in PREDICTION_ERRORS and self.max is not None:
            return -self.max, self.max
        return self.min, self.max

    @property
    def words(self) -> str:
        """``at least 3``, ``between 3 and 5``."""
        if self.metric in PREDICTION_ERRORS:
            return f"at most {self.max:g} either way"
        if self.min is not None and self.max is not None:
            return f"between {self.min:g} and {self.max:g}"
        return f"at least {self.min:g}" if self.min is not None else f"at most {self.max:g}"


class Where(Frozen):
    """The cell that is meant; what is left out matches everything, and no arm at all means the best one.

    ``arm`` is a label as the report writes it, or best; block_size and gamma name SBD arms by their values.
    ``prompt_tokens``: the context of a part with synthetic prompts.
    """

    part: Name | None = None
    model: Text | None = None
    batch: Count | None = None
    arm: Text | None = None
    block_size: Count | None = None
    gamma: NonNegative | None = None
    task: Text | None = None
    prompt_tokens: Count | None = None

    @model_validator(mode="after")
    def _one_way_to_name_the_arm(self) -> Where:
        if self.arm is not None and (self.block_size is not None or self.gamma is not None):
            raise ValueError("the arm is named twice; give either arm, or block_size and gamma")
        return self

    @property
    def best(self) -> bool:
        """Whether no arm is named."""
        return self.arm in (None, BEST) and self.block_size is None and self.gamma is None


class Claim(Frozen):
    """One claim: a bound on one metric, or ``all`` of several, or the accuracy alone.

    ``within_points``: and the accuracy is at most so many percentage points below that of NTP, prompt by prompt
    (non-inferiority; "same accuracy" is 1). ``source``: who says so, and where.
    ``scope``: ``this process`` claims times of the measured processes alone; without it a claim about time is about any
    process, and takes three of them (stats.FEWEST_PROCESSES).
    """

    name: Text | None = None
    source: Text | None = None
    metric: MetricName | None = None
    min: Number | None = None
    max: Number | None = None
    estimator: Estimator = "geometric_mean"
    all: tuple[Bound, ...] = ()
    where: Where = Where()
    within_points: NonNegative | None = None
    scope: Literal["this process"] | None = None

    @field_validator("within_points")
    @classmethod
    def _can_be_shown(cls, points: float | None) -> float | None:
        if points is not None and not 0 < points <= 100:
            raise ValueError(f"got {points:g}; a margin is above 0 and at most 100 percentage points (no sample can show 0)")
        return points

    @model_validator(mode="after")
    def _says_something(self) -> Claim:
        own = {"min": self.min, "max": self.max, "estimator": None if self.estimator == "geometric_mean" else self.estimator}
        if self.metric is None:
            stray = [key for key, value in own.items() if value is not None]
            if stray:
                raise ValueError(f"{stray[0]} is given without a metric; add metric: one of {', '.join(METRIC_NAMES)}")
        elif self.all:
            raise ValueError("metric and all are both given; put the metric's bound into all")
        if not self.bounds:
            raise ValueError("nothing is claimed; give metric with min: or max:, or all: [...], or within_points:")
        return self

    @property
    def bounds(self) -> tuple[Bound, ...]:
        """All that has to hold, the accuracy last."""
        found = list(self.all)
        if self.metric is not None:
            found.append(Bound(metric=self.metric, min=self.min, max=self.max, estimator=self.estimator))
        if self.within_points is not None:
            found.append(Bound(metric="accuracy_loss_points", max=self.within_points))
        return tuple(found)


Claims = tuple[Claim, ...]


def misplaced(claims: Claims, batches: dict[str, tuple[int, ...]]) -> list[tuple[str, Any, list[Any]]]:
    """Parts and batch sizes that claims name and a scenario does not have: (key, given, allowed). ``batches``: by part."""
    found: list[tuple[str, Any, list[Any]]] = []
    for where in (claim.where for claim in claims):
        if where.part is not None and where.part not in batches:
            found.append(("part", where.part, list(batches)))
            continue
        sizes = sorted({size for name, known in batches.items() if where.part in (None, name) for size in known})
        if where.batch is not None and where.batch not in sizes:
            found.append(("batch", where.batch, sizes))
    return found
