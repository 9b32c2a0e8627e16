"""What a history keeps of one run: its place, time, machine and commit, and its figures with unit, interval and reason.

The figures are a cache keyed by the run and the version of the formulas; the run itself stays at ``path``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime

from harness.analysis.answer import Derived
from harness.analysis.results import ArmResult, Cell, Comparison
from harness.errors import RecordError, UserError
from harness.frozen import frozen
from harness.record.same import checkout_of, machine_of, software_of
from harness.record.schema import Run
from harness.scenario.metrics import METRICS, Better, names_of
from harness.stats.quantity import Quantity, absent

TRACKED = names_of(lambda metric: metric.tracked)
DEFAULT_METRICS = names_of(lambda metric: metric.by_default)
OF_REQUESTS = names_of(lambda metric: metric.of_requests and metric.tracked)
ONE_BY_DEFINITION = ("wall_speedup", "nfe_speedup")


@frozen
class TrackedFigure:
    """One figure of one arm in one cell, ``value`` None with its ``reason``. ``cell``: part/task/b<batch size>."""

    cell: str
    arm: str
    metric: str
    value: float | None
    low: float | None
    high: float | None
    n: int
    unit: str
    better: Better
    reason: str | None


def known_metrics(names: Sequence[str]) -> tuple[str, ...]:
    """The metrics meant by ``names``; a name without its rung means all rungs, no name the default ones.

    Raises:
        UserError: there is no such metric.
    """
    meant: list[str] = []
    for name in names:
        named = [metric for metric in TRACKED if metric == name or metric.startswith(f"{name}.")]
        if not named:
            raise UserError(f"--metric {name}: is not followed; known are {', '.join(TRACKED)}")
        meant += named
    return tuple(dict.fromkeys(meant)) or DEFAULT_METRICS


@frozen
class Revision:
    """The measured revision. None: not known; ``has_changes`` is True where the checkout differed from the commit.

    ``committed_at``: when the commit was made, ISO 8601.
    """

    commit: str | None = None
    has_changes: bool | None = None
    branch: str | None = None
    committed_at: str | None = None


@frozen
class HistoryRecord:
    """One run. Times are ISO 8601 in UTC, which sort as text; ``samples`` counts all samples of the run when it was added.

    ``measured_at`` is empty where the files of an imported run have no time: the order is then that of importing.
    """

    run_id: str
    path: str
    measured_at: str
    revision: Revision
    fingerprint: str
    machine: str
    software: dict[str, str]
    scenario_name: str
    scenario_digest: str
    record_version: int
    comparison_version: int
    samples: int
    figures: tuple[TrackedFigure, ...]
    added_at: str | None = None


def utc(time: str, whose: str) -> str:
    """An ISO 8601 time in UTC, to the second; one without a zone is taken as UTC.

    Raises:
        RecordError: it is not a time.
    """
    try:
        parsed = datetime.fromisoformat(time)
        aware = parsed if parsed.tzinfo is not None else parsed.replace(tzinfo=UTC)
        return aware.astimezone(UTC).isoformat(timespec="seconds")
    except (ValueError, OverflowError) as error:
        raise RecordError(f"{whose}: {time!r} is not an ISO 8601 time") from error


def figures_of(comparison: Comparison) -> tuple[TrackedFigure, ...]:
    """Every followed figure, cell by cell, without those that hold for NTP by definition."""
    return tuple(figure for cell in comparison.cells for arm in cell.arms for figure in _of_arm(cell, arm))


def _of_arm(cell: Cell, arm: ArmResult) -> Iterator[TrackedFigure]:
    """Its cell is named ``reference/word_problems/b1``, or ``reference/all/b1`` over several tasks."""
    for name, quantity in _quantities(arm).items():
        if arm.is_ntp and name in ONE_BY_DEFINITION:
            continue
        metric = METRICS[name]
        yield TrackedFigure(
            cell=f"{cell.part}/{cell.task or 'all'}/b{cell.batch_size}",
            arm=arm.label,
            metric=name,
            value=quantity.value,
            low=quantity.low,
            high=quantity.high,
            n=quantity.n,
            unit=metric.unit,
            better=metric.better,
            reason=quantity.reason,
        )


def _quantities(arm: ArmResult) -> dict[str, Quantity]:
    found = {
        "wall_speedup": arm.wall_speedup,
        "nfe_speedup": arm.nfe_speedup,
        "time_per_token_s": reciprocal(arm.tokens_per_s),
        "tokens_per_s": arm.tokens_per_s,
        "ceiling_share": arm.ceiling_share,
        "accuracy": arm.accuracy,
        "accuracy_difference": arm.accuracy_difference,
    }
    found |= {name: arm.figures[name] for name in OF_REQUESTS if name in arm.figures}
    for one in arm.predictions:
        found[f"decode_error.{one.price}"] = one.decode_error
        if not arm.is_ntp:
            found[f"wall_speedup_error.{one.price}"] = one.wall_speedup_error
    return found


def reciprocal(rate: Quantity) -> Quantity:
    """Seconds per token from tokens per second, with its interval inverted."""
    if not rate.value:
        return absent(rate.reason or "no tokens were decoded", rate.n)
    low, high = (None if end is None or end == 0 else 1 / end for end in (rate.high, rate.low))
    return replace(rate, value=1 / rate.value, low=low, high=high)


def record_of(derived: Derived, path: str, revision: Revision) -> HistoryRecord:
    """The figures of a run, which was read from the directory ``path`` (absolute).

    ``revision``: from the user or git; the run's own record fills in what is None there.

    Raises:
        RecordError: a time in the record cannot be read.
    """
    run, comparison = derived.run, derived.comparison
    header, machine = run.header, machine_of(run.header)
    return HistoryRecord(
        run_id=header.run_id,
        path=path,
        measured_at="" if header.imported and "measured_at" in header.imported.lacks else utc(header.created_at, header.run_id),
        revision=_completed(revision, run),
        fingerprint=machine.fingerprint,
        machine=machine.words,
        software=software_of(header),
        scenario_name=header.scenario_name,
        scenario_digest=header.scenario_digest,
        record_version=header.record_version,
        comparison_version=comparison.version,
        samples=len(run.samples),
        figures=figures_of(comparison),
    )


def _completed(given: Revision, run: Run) -> Revision:
    """The revision, completed by the record (no commit: not run from a checkout). Changes are of the recorded commit only."""
    environment = checkout_of(run.header.environment)
    named, changes = environment.get("commit"), environment.get("commit_has_changes")
    recorded = named if isinstance(named, str) and named else None
    commit = given.commit or recorded
    known = given.has_changes is None and commit == recorded and isinstance(changes, bool)
    made = given.committed_at or (environment.get("committed_at") if commit == recorded else None)
    at = None if made is None else utc(str(made), f"commit {commit}")
    return Revision(commit=commit, has_changes=changes if known else given.has_changes, branch=given.branch, committed_at=at)
