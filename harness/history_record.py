"""What a history keeps of one run: where and when it was measured, of which commit, and the figures derived from it.

The figures are a cache keyed by the run and the version of the formulas; the run stays where ``path`` says.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from harness.compare import compare
from harness.errors import RecordError
from harness.history_machine import machine_of, software_of
from harness.history_metrics import Figure, figures_of
from harness.record import Run


@dataclass(frozen=True, slots=True, kw_only=True)
class Revision:
    """What was measured. None: not known; ``has_changes`` is True where the checkout differed from the commit.

    ``committed_at``: when the commit was made, ISO 8601.
    """

    commit: str | None = None
    has_changes: bool | None = None
    branch: str | None = None
    committed_at: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryRecord:
    """One run. Times are ISO 8601 in UTC, which sort as text; ``samples`` counts all samples of the run when it was added."""

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
    figures: tuple[Figure, ...]
    added_at: str | None = None


def record_of(run: Run, path: str, revision: Revision) -> HistoryRecord:
    """Derive the figures of ``run``.

    Args:
        run: as read from its directory.
        path: that directory, absolute.
        revision: what the user or git says; what is None there is taken from the run's own record.

    Raises:
        RecordError: a time in the record cannot be read.
    """
    header, comparison, machine = run.header, compare(run), machine_of(run.header)
    return HistoryRecord(
        run_id=header.run_id,
        path=path,
        measured_at=utc(header.created_at, header.run_id),
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


def recorded_commit(run: Run) -> str | None:
    """The commit of the program that made ``run``, if it ran from a checkout."""
    commit = run.header.environment.get("commit")
    return commit if isinstance(commit, str) and commit else None


def _completed(given: Revision, run: Run) -> Revision:
    """The checkout's changes are those of the recorded commit: nothing is known of another one's."""
    recorded, changes = recorded_commit(run), run.header.environment.get("commit_has_changes")
    commit = given.commit or recorded
    if given.has_changes is None and commit == recorded and isinstance(changes, bool):
        given_changes: bool | None = changes
    else:
        given_changes = given.has_changes
    at = None if given.committed_at is None else utc(given.committed_at, f"commit {commit}")
    return Revision(commit=commit, has_changes=given_changes, branch=given.branch, committed_at=at)


def utc(time: str, whose: str) -> str:
    """An ISO 8601 time in UTC, to the second; one without a zone is taken as UTC.

    Raises:
        RecordError: it is not a time.
    """
    try:
        parsed = datetime.fromisoformat(time)
    except ValueError as error:
        raise RecordError(f"{whose}: {time!r} is not an ISO 8601 time") from error
    aware = parsed if parsed.tzinfo is not None else parsed.replace(tzinfo=UTC)
    return aware.astimezone(UTC).isoformat(timespec="seconds")
