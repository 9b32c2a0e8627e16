"""A claim as data: bounds on what a run measures, and the part of the run that they apply to.

Claims come from a scenario, a file of claims or the command line (harness.scenario.claim_text). harness.analysis.judge.verdict
judges them.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, get_args

from pydantic import AfterValidator, Field, field_validator, model_validator

from harness.config_file import Count, Flag, Name, NonNegative, StrictModel, Text, YoungerMany
from harness.scenario.metrics import METRICS, Metric, names_of

METRIC_NAMES = names_of(lambda metric: metric.claimed)


def _known(name: str) -> str:
    if name not in METRIC_NAMES:
        raise ValueError(f"got {name!r}; allowed: {', '.join(METRIC_NAMES)}")
    return name


MetricName = Annotated[str, AfterValidator(_known), Field(json_schema_extra={"enum": list(METRIC_NAMES)})]
Estimator = Literal["geometric_mean", "ratio_of_totals"]
ESTIMATORS: tuple[Estimator, ...] = get_args(Estimator)
THIS_PROCESS = "this process"
"""The scope of a claim that does not cover other processes."""

Number = Annotated[float, Field(strict=True, allow_inf_nan=False)]


class Bound(StrictModel):
    """A metric and the least or the most it may be. A prediction error has a ``max`` alone, which bounds both signs."""

    metric: MetricName
    """The figure that is bounded; the manual has the table of metrics."""
    min: Number | None = None
    """Least value, in the metric's unit. Left out: no least one."""
    max: Number | None = None
    """Largest value, in the metric's unit. Left out: no largest one."""
    estimator: Estimator = "geometric_mean"
    """How prompts become one figure: the mean of their ratios, or the ratio of their total times."""

    @model_validator(mode="after")
    def _can_be_held(self) -> Bound:
        if self.min is None and self.max is None:
            raise ValueError(f"{self.metric} has no bound; add min: or max:")
        if self.min is not None and self.max is not None and self.min > self.max:
            raise ValueError(f"{self.metric}: min {self.min:g} is above max {self.max:g}; nothing can meet both")
        if self.definition.either_way and self.min is not None:
            raise ValueError(f"{self.metric} is how far off a prediction may be, whatever its sign; give max: alone")
        given = [bound for bound in (self.min, self.max) if bound is not None]
        if self.metric != "accuracy_loss_points" and min(given) <= 0:
            raise ValueError(f"{self.metric} is above 0 by nature, got {min(given):g}; give a bound above 0")
        if self.estimator != "geometric_mean" and not self.definition.averaged:
            raise ValueError(f"{self.metric} is no mean of ratios; remove the estimator")
        return self

    @property
    def definition(self) -> Metric:
        """Unit, direction and what else holds for its figure."""
        return METRICS[self.metric]

    @property
    def limits(self) -> tuple[float | None, float | None]:
        """The bounds of the figure, in the metric's unit."""
        if self.definition.either_way and self.max is not None:
            return -self.max, self.max
        return self.min, self.max

    @property
    def words(self) -> str:
        """``at least 3``, ``between 3 and 5``."""
        if self.definition.either_way:
            return f"at most {self.max:g} either way"
        if self.min is not None and self.max is not None:
            return f"between {self.min:g} and {self.max:g}"
        return f"at least {self.min:g}" if self.min is not None else f"at most {self.max:g}"


class Where(StrictModel):
    """The cell of a claim; an absent key matches everything, and no arm means the best one."""

    part: Name | None = None
    """Name of a part."""
    model: Text | None = None
    """Name of a model, as the report writes it."""
    batch: Count | None = None
    """Batch size."""
    arm: Text | None = None
    """Label of an arm as the report writes it, or `best`. None, without block_size and gamma: the best one."""
    block_size: Count | None = None
    """Block size of the SBD arm that is meant."""
    gamma: NonNegative | None = None
    """γ in nats of the SBD arm that is meant."""
    task: Text | None = None
    """Name of a task."""
    prompt_tokens: Count | None = None
    """Context of a part with synthetic prompts, in tokens."""

    @model_validator(mode="after")
    def _one_way_to_name_the_arm(self) -> Where:
        if self.arm is not None and (self.block_size is not None or self.gamma is not None):
            raise ValueError("the arm is named twice; give either arm, or block_size and gamma")
        return self

    @property
    def best(self) -> bool:
        """Whether the arm is the one that the report quotes first: the fastest that keeps the accuracy (results.Highlight)."""
        return self.arm in (None, "best") and self.block_size is None and self.gamma is None


class Claim(StrictModel):
    """One claim: a bound on one metric, or ``all`` of several, or the accuracy alone."""

    name: Text | None = None
    """Name in tables. Left out: its own words."""
    source: Text | None = None
    """Who says so, and where."""
    metric: MetricName | None = None
    """The figure that is bounded. Left out: `all`, or the accuracy alone."""
    min: Number | None = None
    """Least value, in the metric's unit. Left out: no least one."""
    max: Number | None = None
    """Largest value, in the metric's unit. Left out: no largest one."""
    estimator: Estimator = "geometric_mean"
    """How prompts become one figure: the mean of their ratios, or the ratio of their total times."""
    all: tuple[Bound, ...] = ()
    """Bounds that hold together."""
    where: Where = Where()
    """The cell that is claimed about; everything where it is left out."""
    within_points: NonNegative | None = None
    """The accuracy is also at most so many percentage points below that of NTP, prompt by prompt (non-inferiority)."""
    scope: Literal["this process"] | None = None
    """`this process`: times of the measured processes alone. Left out: of any process, which needs three."""
    primary: Annotated[Flag, YoungerMany] = False
    """The claim that the scenario is about: it keeps its level beside the others. One at most; after a run it means nothing."""

    @field_validator("within_points")
    @classmethod
    def _can_be_shown(cls, points: float | None) -> float | None:
        if points is not None and not 0 < points <= 100:
            raise ValueError(f"got {points:g}; a margin is above 0 and at most 100 percentage points (no sample can show 0)")
        return points

    @model_validator(mode="after")
    def _says_something(self) -> Claim:
        stray = list(self.model_dump(include={"min", "max", "estimator"}, exclude_defaults=True))
        if self.metric is None and stray:
            raise ValueError(f"{stray[0]} is given without a metric; add metric: one of {', '.join(METRIC_NAMES)}")
        if self.metric is not None and self.all:
            raise ValueError("metric and all are both given; put the metric's bound into all")
        if not self.bounds:
            raise ValueError("nothing is claimed; give metric with min: or max:, or all: [...], or within_points:")
        return self

    @property
    def bounds(self) -> tuple[Bound, ...]:
        """All bounds of the claim, the accuracy last."""
        found = list(self.all)
        if self.metric is not None:
            found.append(Bound(metric=self.metric, min=self.min, max=self.max, estimator=self.estimator))
        if self.within_points is not None:
            found.append(Bound(metric="accuracy_loss_points", max=self.within_points))
        return tuple(found)


Claims = tuple[Claim, ...]


def misplaced(claims: Claims, batches: dict[str, tuple[int, ...]]) -> list[tuple[str, Any, list[Any]]]:
    """Parts and batch sizes in claims that a scenario does not have: (key, given, allowed). ``batches``: by part."""
    found: list[tuple[str, Any, list[Any]]] = []
    for where in (claim.where for claim in claims):
        if where.part is not None and where.part not in batches:
            found.append(("part", where.part, list(batches)))
            continue
        sizes = sorted({size for name, known in batches.items() if where.part in (None, name) for size in known})
        if where.batch is not None and where.batch not in sizes:
            found.append(("batch", where.batch, sizes))
    return found
