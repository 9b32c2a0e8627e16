"""Derives from a run what a history keeps of it."""

from __future__ import annotations

from harness.analysis.comparison import compare
from harness.record.machine import machine_of, software_of
from harness.record.schema import Run
from harness.regression.history.history_figures import figures_of
from harness.regression.history.history_record import HistoryRecord, Revision, utc


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
