"""The figures of one cell by which two runs are compared and gated, which of them decide, and why a speedup moved.

Deterministic figures are counted per case. They must be equal, or within a declared tolerance, on any machine. Timed ones are
one number per process and cell (part, batch size, arm; all its tasks together). ``counted`` and ``timed`` read both from runs.

A speedup is NTP's time per token ÷ the arm's, so ln(NEW / BASE) of the speedup is that of NTP's time less that of the arm's.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from functools import partial
from typing import NamedTuple

from harness import formatting
from harness.analysis.answer import Derived
from harness.analysis.judge.judgement import Judgement, Kind
from harness.errors import UserError
from harness.frozen import frozen
from harness.record.schema import CaseHeader, Run
from harness.scenario.metrics import METRICS, Metric, names_of

SPEEDUP, TIME = "wall_speedup", "decode_s_per_token"
MOSTLY = 2 / 3
"""From this share of the change on, one of the two is called the reason."""


class Moved(NamedTuple):
    """How a figure moved: its metric, its cell (part, batch size, arm) and NEW ÷ BASE; None where that is not known."""

    metric: str
    cell: Mapping[str, str]
    ratio: float | None


def why_moved(ntp: float, own: float) -> str:
    """In words, from NEW ÷ BASE of the times per token of NTP and of the arm."""
    fell, by_ntp = own > ntp, abs(math.log(ntp))
    share = by_ntp / (by_ntp + abs(math.log(own))) if own != 1 or ntp != 1 else 0.5
    faster = "faster" if fell else "slower"
    slower = "slower" if fell else "faster"
    if share >= MOSTLY and (ntp < 1) == fell:
        reason = f"because NTP became {faster}"
    elif share <= 1 - MOSTLY and (own > 1) == fell:
        reason = f"because the arm itself became {slower}"
    else:
        reason = "through both"
    times = f"time per token of NTP {formatting.signed_percent(ntp - 1)}, of the arm {formatting.signed_percent(own - 1)}"
    return f"the speedup {'fell' if fell else 'rose'} {reason} ({times})"


def reason_of(arm: str, times: Mapping[str, float | None]) -> str | None:
    """Why the speedup of ``arm`` moved, from NEW ÷ BASE of the times per token by arm; None without its own and NTP's."""
    own = times.get(arm)
    ntp = next((ratio for label, ratio in times.items() if label.startswith("NTP") and ratio), None)
    return why_moved(ntp, own) if own and ntp else None


def speedup_reasons(moved: Sequence[Moved]) -> dict[int, str]:
    """Why each speedup among the figures moved, by its place; one without both times is left out."""
    times: dict[tuple[str | None, ...], dict[str, float | None]] = {}
    for figure in moved:
        if figure.metric == TIME:
            times.setdefault(_place(figure), {})[figure.cell["arm"]] = figure.ratio
    reasons = {
        at: reason_of(figure.cell["arm"], times.get(_place(figure), {}))
        for at, figure in enumerate(moved)
        if figure.metric == SPEEDUP and figure.ratio not in (None, 1)
    }
    return {at: reason for at, reason in reasons.items() if reason is not None}


def _place(figure: Moved) -> tuple[str | None, ...]:
    return tuple(figure.cell.get(key) for key in ("part", "batch_size", "task"))


TIMED = names_of(lambda metric: metric.gated == "timed")
MOST_TIMED_METRICS = 5
"""Most primary metrics of one gate: each one reduces the power of the others."""


@frozen
class CellMetric:
    """A figure of one cell. ``arm``: the last word of its cases' ids; ``task`` None: all tasks of the cell together."""

    name: str
    part: str
    batch_size: int
    arm: str
    label: str
    task: str | None = None

    @property
    def key(self) -> str:
        """``decode_s_per_token:reference/b1/ntp``: its name on the command line and in stored floors."""
        task = "" if self.task is None else f"/{self.task}"
        return f"{self.name}:{self.part}{task}/b{self.batch_size}/{self.arm}"

    @property
    def definition(self) -> Metric:
        """Direction, tolerance and basis."""
        return METRICS[self.name]

    @property
    def unit(self) -> str:
        """As in a gate's exports."""
        return self.definition.unit if self.definition.gate_unit is None else self.definition.gate_unit

    @property
    def subject(self) -> str:
        """For people."""
        task = "" if self.task is None else f", task {self.task}"
        return f"{self.label}, part {self.part}{task}, batch {self.batch_size}"

    @property
    def cell(self) -> dict[str, str]:
        """For programs, as in judgements."""
        task = {} if self.task is None else {"task": self.task}
        return {"part": self.part, "batch_size": str(self.batch_size), **task, "arm": self.label}

    @property
    def kind(self) -> Kind:
        """Timed, or counted."""
        return self.definition.gated or "deterministic"

    @property
    def judgement(self) -> partial[Judgement]:
        """What a gate answers about it, but for the outcome."""
        return partial(
            Judgement,
            subject=self.subject,
            metric=self.name,
            kind=self.kind,
            cell=self.cell,
            unit=self.unit,
            better=self.definition.better,
            basis=self.definition.basis,
        )


MARGIN = 0.02
"""Least margin of a timed metric: a slowdown of up to 2 % is permitted."""


@frozen
class TimedMetric(CellMetric):
    """One primary metric of a timed gate; the pairs are handed in under its ``key``.

    ``margin``  permitted slowdown, as a ratio: 0.02 is 2 %; max(MARGIN, noise floor), see ``gate.noise.margin``
    ``margin_source``  where the margin is from, in words

    Raises:
        UserError: a margin below 0 or not finite.
    """

    margin: float = MARGIN
    margin_source: str = "least margin of a timed metric"

    def __post_init__(self) -> None:
        if not (math.isfinite(self.margin) and self.margin >= 0):
            raise UserError(f"margin {self.margin} of {self.key}: give a ratio of at least 0, such as 0.02 for 2 %")

    @property
    def unit(self) -> str:
        """Of what is judged, the ratio NEW / BASE."""
        return "x"

    @property
    def sign(self) -> int:
        """+1 where a growing figure is a slowdown, -1 where a shrinking one is."""
        return 1 if self.definition.better == "lower" else -1


def check_timed(metrics: Sequence[TimedMetric]) -> None:
    """Refuse a set of timed metrics that no gate can judge.

    Raises:
        UserError: none, more than five, or two under one key.
    """
    keys = [metric.key for metric in metrics]
    if not 1 <= len(keys) <= MOST_TIMED_METRICS:
        raise UserError(
            f"{len(keys)} timed metrics ({', '.join(keys) or 'none'}); a gate takes 1 to {MOST_TIMED_METRICS}, for each more "
            "makes all the others less likely to be found slower: choose the primary ones, or run a second gate"
        )
    if twice := sorted({key for key in keys if keys.count(key) > 1}):
        raise UserError(f"the timed metrics {', '.join(twice)} are given twice; give each once")


def log_ratio(base: float, new: float) -> float:
    """d = log(NEW / BASE) of one pair of fresh processes, from their medians; NaN where a figure is no positive number.

    The gate answers NaN with a void judgement that names the pair, so a failed process is always reported.
    """
    positive = all(math.isfinite(figure) and figure > 0 for figure in (base, new))
    return math.log(new / base) if positive else math.nan


def metric_of(name: str, case: CaseHeader, *, by_task: bool = False) -> CellMetric:
    """The figure ``name`` of the cell of ``case``."""
    return CellMetric(
        name=name,
        part=case.part,
        batch_size=case.batch_size,
        arm=case.case_id.rpartition("/")[2],
        label=case.label,
        task=case.task if by_task else None,
    )


def timed_metrics(run: Run) -> tuple[CellMetric, ...]:
    """Every timed figure possible for these cases, in their order."""
    timed = [case for case in run.cases if case.timed and not case.is_check]
    return tuple(dict.fromkeys(metric_of(name, case) for case in timed for name in TIMED if _is_possible(name, case)))


def _is_possible(name: str, case: CaseHeader) -> bool:
    """NTP has no speedup, and only a server's requests have times of their own."""
    if name == "wall_speedup":
        return case.arm.method != "ntp"
    return case.execution == "served" or not METRICS[name].of_requests


def primary_metrics(run: Run, wanted: Sequence[str] = ()) -> tuple[CellMetric, ...]:
    """The timed figures that decide, at most five: those that ``wanted`` names, by name, key or pattern (``wall_*``).

    By default, part by part up to five: NTP's time per token, then time per token and wall speedup of the highlighted arm.
    Without a highlight the first SBD arm is used.

    Raises:
        UserError: ``wanted`` names none of the run's, or more than five.
    """
    every = timed_metrics(run)
    if not wanted:
        return _defaults(run, every)
    for pattern in wanted:
        if not any(_named(metric, pattern) for metric in every):
            known = ", ".join(metric.key for metric in every) or "none: nothing was timed"
            raise UserError(f"--metric {pattern}: no timed metric of this run is called so; it has {known}")
    chosen = tuple(metric for metric in every if any(_named(metric, pattern) for pattern in wanted))
    if len(chosen) > MOST_TIMED_METRICS:
        raise UserError(
            f"--metric {' --metric '.join(wanted)}: {len(chosen)} metrics, at most {MOST_TIMED_METRICS} are judged together; "
            f"name fewer: {', '.join(metric.key for metric in chosen)}"
        )
    return chosen


def _named(metric: CellMetric, pattern: str) -> bool:
    return fnmatchcase(metric.name, pattern) or fnmatchcase(metric.key, pattern)


def _defaults(run: Run, every: Sequence[CellMetric]) -> tuple[CellMetric, ...]:
    chosen, derived = list[CellMetric](), Derived(run, ())
    for part, batch_size in dict.fromkeys((metric.part, metric.batch_size) for metric in every):
        cases = [case for case in run.cases if (case.part, case.batch_size) == (part, batch_size) and not case.is_check]
        ntp = next((case for case in cases if case.arm.method == "ntp"), None)
        arm = _answering_arm(derived, cases)
        asked = (("decode_s_per_token", ntp), ("decode_s_per_token", arm), ("wall_speedup", arm))
        chosen += [metric_of(name, case) for name, case in asked if case is not None]
    return tuple(chosen[:MOST_TIMED_METRICS])


def _answering_arm(derived: Derived, cases: Sequence[CaseHeader]) -> CaseHeader | None:
    """The highlighted arm of the cell, by its label; else its first arm that is not NTP."""
    others = [case for case in cases if case.arm.method != "ntp"]
    if len({case.case_id.rpartition("/")[2] for case in others}) <= 1:
        return next(iter(others), None)
    place = (cases[0].part, cases[0].batch_size)
    label = next((arm.label for arm in derived.comparison.highlights if (arm.part, arm.batch_size) == place), None)
    return next((case for case in others if case.label == label), others[0])
