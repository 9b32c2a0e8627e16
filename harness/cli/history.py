"""`sbd history`: keeps the figures of runs, lists and shows them, and finds where they changed.

It prints tables for people and records as plain data.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from itertools import groupby
from pathlib import Path
from typing import Annotated

from typer import Exit, Option, Typer

from harness import formatting
from harness.analysis.answer import COMPARISON_VERSION, Derived
from harness.cli import documented
from harness.cli.output import Amount, AsJson, Number, give, grid, lines_of, show
from harness.errors import EXIT_REGRESSION, RecordError, UserError
from harness.formatting import one_line
from harness.meters.environment import branch_at, committed_at
from harness.record.same import checkout_of
from harness.record.schema import Run
from harness.record.store import read_run
from harness.regression.history.database import default_database
from harness.regression.history.series import UNDATED
from harness.regression.history.store import Added, History, HistoryRecord, Revision, Wanted, known_metrics, record_of, utc
from harness.regression.history.trend import (
    NO_RUN,
    Judged,
    Trend,
    cause,
    change_words,
    figure_words,
    finding,
    line_words,
    metric_words,
    remarks,
    sparkline,
    to_json,
    trend,
)
from harness.scenario.metrics import METRICS

history_app = Typer(
    no_args_is_help=True,
    help="Keep the figures of runs, and find where they changed.",
    add_completion=False,
    rich_markup_mode=None,
)

Database = Annotated[
    str | None,
    Option(
        "--db",
        envvar="SBD_HISTORY",
        metavar="FILE|URL",
        show_default=False,
        help="a file, or postgresql://USER@HOST/DATABASE where several machines write; default: a file of this user's own",
    ),
]
Scenario = Annotated[str | None, Option(help="only runs of this scenario: its name, or how its digest begins")]
Branch = Annotated[str | None, Option(help="only runs of this branch")]
Fingerprint = Annotated[str | None, Option(help="only runs of this machine: how its fingerprint begins")]


def open_history(where: str | None) -> History:
    """The requested database, or this user's own file."""
    return History(where or str(default_database()))


def history_of(run: Run, where: str) -> Trend:
    """All series of the run's scenario; a page of runs keeps those with a point of one of them."""
    with open_history(where) as database:
        return trend(database, Wanted(run.header.scenario_digest), known_metrics([]))


@history_app.command("add", short_help="keep the figures of runs")
@documented
def add_command(
    runs: list[Path], commit: str | None = None, branch: str | None = None, committed_at: str | None = None, db: Database = None
) -> None:
    """Keep the figures of runs. The same run again changes nothing, unless it holds more samples or the formulas are newer.

    The figures are derived from the run where it lies: keep its directory, `sbd history rebuild` derives them again.

    Args:
        runs (RUN...): run directories
        commit: the commit that was measured; default: that of the repository where sbd run was called
        branch: its branch; default: the one checked out here, if it stands there
        committed_at (TIME): when it was made, ISO 8601; default: as git has it here
    """
    try:
        if committed_at is not None:
            utc(committed_at, "--committed-at")
    except RecordError as error:
        raise UserError(f"{error}; give one such as 2026-11-20T10:00:00+01:00") from error
    with open_history(db) as history:
        for path in runs:
            derived = Derived(read_run(path), ())
            given = Revision(commit=commit, branch=branch, committed_at=committed_at)
            if (why := derived.integrity.void) is not None:
                raise UserError(f"{path}: {why}; the history keeps none of it. Give the record as the run wrote it")
            whole = path.absolute()  # for a later `rebuild` from anywhere
            directory = whole if whole.is_dir() else whole.parent
            record = record_of(
                derived, str(directory), _asked_git(given, checkout_of(derived.run.header.environment).get("commit"))
            )
            show(one_line(f"{history.add(record):9}  {record.run_id}  {path}{'' if record.measured_at else UNDATED}"))
        show(one_line(f"history    {history.place}"))


def _asked_git(given: Revision, recorded: str | None) -> Revision:
    """Complete the user's revision from the checkout here."""
    commit, here = given.commit or recorded, Path.cwd()
    if not isinstance(commit, str) or not commit:
        return given
    return replace(
        given, branch=given.branch or branch_at(here, commit), committed_at=given.committed_at or committed_at(here, commit)
    )


@history_app.command("list", short_help="the runs that are kept")
@documented
def list_command(
    limit: Number = 20,
    scenario: Scenario = None,
    branch: Branch = None,
    fingerprint: Fingerprint = None,
    as_json: AsJson = False,
    db: Database = None,
) -> None:
    """List the newest runs.

    Args:
        limit: so many of the newest
    """

    with open_history(db) as history:
        records = history.records(Wanted(scenario, branch, fingerprint), limit)
        give(as_json, lambda: [described(record) for record in records], lambda: records_table(records))


@history_app.command("show", short_help="one run with its figures")
@documented
def show_command(run_id: str, as_json: AsJson = False, db: Database = None) -> None:
    """Show what is kept of one run.

    Args:
        run_id (ID): a run id, or how it begins
    """

    with open_history(db) as history:
        record = history.record(run_id)
        runs = len(history.records(Wanted(record.scenario_digest)))
        give(as_json, lambda: described(record), lambda: record_table(record, runs))


@history_app.command("rebuild", short_help="derive the figures again")
def rebuild_command(
    scenario: Scenario = None, branch: Branch = None, fingerprint: Fingerprint = None, db: Database = None
) -> None:
    """Derive the figures of older formulas again, from the runs where they lie."""
    with open_history(db) as history:
        records = history.records(Wanted(scenario, branch, fingerprint))
        outdated = [record for record in records if record.comparison_version < COMPARISON_VERSION]
        for record in outdated:
            show(one_line(f"{_derived_again(history, record):9}  {record.run_id}  {record.path}"))
        show(one_line(f"history    {history.place}: {len(outdated)} of {len(records)} runs had figures of older formulas"))


def _derived_again(history: History, old: HistoryRecord) -> Added | str:
    """Derive a run again; a run that no longer exists keeps its figures."""
    try:
        derived = Derived(read_run(Path(old.path)), ())
    except RecordError:
        return "gone"
    return history.add(record_of(derived, old.path, old.revision)) if derived.run.header.run_id == old.run_id else "gone"


@history_app.command("trend", short_help="where the figures changed")
@documented
def trend_command(
    metric: list[str] | None = None,
    cell: str = "*",
    scenario: Scenario = None,
    branch: Branch = None,
    fingerprint: Fingerprint = None,
    last: Number = 200,
    min_change_pct: Amount = 1.0,
    outdated: bool = False,
    alarm: Annotated[int | None, Option(min=1)] = None,
    html: Path | None = None,
    as_json: AsJson = False,
    db: Database = None,
) -> None:
    """Find where figures changed: between which commits, by how much, and whether for the better.

    A series is one figure of one machine, scenario, branch, cell and arm; runs of one commit count as one, their median.
    A level is at least five commits long; a slow drift is shown as one. If nothing changed in any series, one look in 500 shows
    a change all the same. Noise that a commit shares with the one before is allowed for.

    Args:
        metric: a figure to follow (may be given again); default: speedups, time per token, prediction error
        cell: only cells (part/task/b<batch size>) that match this pattern
        last: only so many of the newest commits of each series
        min_change_pct: smaller changes are left out; give the noise floor where it is larger
        outdated: use figures of older formulas too
        alarm (N): exit with 1 if a change for the worse began, or a drift went on, in the newest N commits
        html (FILE): write the trend page
    """
    metrics = known_metrics(metric or [])
    gc.disable()  # a quarter of a large trend's time went into its search for cycles
    try:
        with open_history(db) as history:
            found = trend(history, Wanted(scenario, branch, fingerprint), metrics, cell, min_change_pct / 100, last, outdated)
    finally:
        gc.enable()
    give(as_json, lambda: to_json(found), lambda: trend_table(found), indent=None)
    if html is not None:
        from harness.reporting.trend import write_trend

        page = write_trend(found, html)
        if not as_json:
            show(one_line(f"page       {page}"))
    if alarm is not None and found.newly_worse(alarm):
        raise Exit(EXIT_REGRESSION)


RECORD_JSON_VERSION = 1


def described(record: HistoryRecord) -> dict[str, object]:
    """A record as plain JSON values."""
    return {"version": RECORD_JSON_VERSION} | asdict(record)


def records_table(records: Sequence[HistoryRecord]) -> str:
    """One line per run, the newest first."""
    if not records:
        return NO_RUN
    heads = ("run", "measured (UTC)", "scenario", "commit", "branch", "fingerprint", "machine")
    rows = [
        [
            record.run_id[:10],
            record.measured_at[:19].replace("T", " ") or "?",
            f"{record.scenario_name} [{record.scenario_digest[:8]}]",
            _commit(record),
            record.revision.branch or "?",
            record.fingerprint,
            record.machine,
        ]
        for record in records
    ]
    return grid(heads, rows)


def record_table(record: HistoryRecord, runs: int) -> str:
    """One run: its facts, then a line per figure. ``runs``: of its scenario, in this history."""
    facts = {
        "run": record.run_id,
        "path": record.path,
        "measured": record.measured_at or "?",
        "added": record.added_at or "?",
        "scenario": f"{record.scenario_name} [{record.scenario_digest}], {runs} runs here",
        "commit": _commit(record, whole=True),
        "committed": record.revision.committed_at or "?",
        "branch": record.revision.branch or "?",
        "machine": f"{record.machine} [{record.fingerprint}]",
        "software": ", ".join(f"{name} {version}" for name, version in record.software.items()) or "?",
        "versions": f"record {record.record_version}, formulas {record.comparison_version}; {record.samples} samples",
    }
    rows = []
    for figure in record.figures:
        interval = "" if figure.low is None and figure.high is None else f"{_end(figure.low)}..{_end(figure.high)}"
        unit = f"{figure.unit}: {figure.reason}" if figure.reason else figure.unit
        rows.append([figure.cell, figure.arm, figure.metric, _end(figure.value), interval, str(figure.n), unit])
    right = ("value", "95 % interval", "n")
    table = grid(("cell", "arm", "figure", *right, "unit"), rows, right=right, folds=("unit",))
    return "\n".join([lines_of(*(f"{name:9} {text}" for name, text in facts.items())), "", table])


def trend_table(found: Trend) -> str:
    """Every series of two commits or more as a sparkline, by line of commits, then the changes; omissions last."""
    parts = []
    for line, group in groupby(found.judged, key=lambda judged: judged.series.line):
        judged_series = list(group)
        drawn = [_drawn(judged) for judged in judged_series if len(judged.series.points) > 1]
        if drawn:
            parts += [lines_of(f"{line_words(line)}:"), grid(DRAWN, drawn, right=DRAWN[3:], folds=DRAWN[:2]), ""]
        changes = [change for judged in judged_series for change in _changes(found, judged)]
        parts += [lines_of(*changes), ""] if changes else []
    return "\n".join([*parts, lines_of(finding(found), *remarks(found))])


DRAWN = ("cell, arm", "figure", "commits, oldest first", "newest", "since the first")


def _drawn(judged: Judged) -> list[str]:
    series, metric = judged.series, judged.series.metric
    first, newest = float(series.values[0]), float(series.values[-1])
    if METRICS[metric].scale == "difference":
        moved = formatting.points(newest - first)
    else:
        moved = formatting.signed_percent(newest / first - 1) if first else "?"
    return [f"{series.cell}, {series.arm}", metric_words(metric), sparkline(series.values), figure_words(metric, newest), moved]


def _changes(found: Trend, judged: Judged) -> Iterator[str]:
    series = judged.series
    for change in judged.changes:
        words = [change_words(judged, change), cause(found, judged, change)]
        yield f"  {series.cell}, {series.arm}, {metric_words(series.metric)}: {'; '.join(filter(None, words))}"


def _commit(record: HistoryRecord, whole: bool = False) -> str:
    revision = record.revision
    if revision.commit is None:
        return "?"
    return f"{revision.commit if whole else revision.commit[:10]}{'+changes' if revision.has_changes else ''}"


def _end(value: float | None) -> str:
    return "?" if value is None else f"{value:.6g}"
