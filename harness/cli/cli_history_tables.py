"""How `sbd history` prints: tables for people; a record as plain data."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness.regression.history.history_record import HistoryRecord
    from harness.regression.history.trend import Trend

RECORD_JSON_VERSION = 1


def described(record: HistoryRecord) -> dict[str, Any]:
    """A record as plain JSON values."""
    return {"version": RECORD_JSON_VERSION} | asdict(record)


def records_table(records: Sequence[HistoryRecord]) -> str:
    """One line a run, the newest first."""
    from rich.table import Table

    from harness.cli.hardware import printed

    if not records:
        return "no run is kept that was asked for; `sbd history add RUN` keeps one"
    shown = Table(box=None, pad_edge=False)
    for head in ("run", "measured (UTC)", "scenario", "commit", "branch", "fingerprint", "machine"):
        shown.add_column(head, no_wrap=True)
    for one in records:
        shown.add_row(
            one.run_id[:10], one.measured_at[:19].replace("T", " "), f"{one.scenario_name} [{one.scenario_digest[:8]}]",
            _commit(one), one.revision.branch or "?", one.fingerprint, one.machine,
        )  # fmt: skip
    return printed(shown, at_least=128)


def record_table(record: HistoryRecord) -> str:
    """One run: what is known of it, then a line a figure."""
    from rich.table import Table

    from harness.cli.hardware import printed

    facts = {
        "run": record.run_id, "path": record.path, "measured": record.measured_at, "added": record.added_at or "?",
        "scenario": f"{record.scenario_name} [{record.scenario_digest}]", "commit": _commit(record, whole=True),
        "committed": record.revision.committed_at or "?", "branch": record.revision.branch or "?",
        "machine": f"{record.machine} [{record.fingerprint}]",
        "software": ", ".join(f"{name} {version}" for name, version in record.software.items()) or "?",
        "versions": f"record {record.record_version}, formulas {record.comparison_version}; {record.samples} samples",
    }  # fmt: skip
    shown = Table(box=None, pad_edge=False)
    for head in ("cell", "arm", "figure"):
        shown.add_column(head, no_wrap=True)
    for head in ("value", "95 % interval", "n"):
        shown.add_column(head, justify="right", no_wrap=True)
    shown.add_column("unit")
    for one in record.figures:
        interval = "" if one.low is None and one.high is None else f"{_end(one.low)}..{_end(one.high)}"
        unit = f"{one.unit}: {one.reason}" if one.reason else one.unit
        shown.add_row(one.cell, one.arm, one.metric, _end(one.value), interval, str(one.n), unit)
    return "\n".join([*(f"{name:9} {text}" for name, text in facts.items()), "", printed(shown, at_least=128)])


def trend_table(found: Trend) -> str:
    """The changes, line of commits by line of commits; what was left out last."""
    from itertools import groupby

    from harness.regression.history.wording import change_words, finding, line_words, metric_words, remarks

    lines = []
    for line, group in groupby(found.found, key=lambda one: one[0].series.line):
        lines.append(f"{line_words(line)}:")
        lines += [
            f"  {one.series.cell}, {one.series.arm}, {metric_words(one.series.metric)}: {change_words(one, change)}"
            for one, change in group
        ]
    return "\n".join([*lines, finding(found), *remarks(found)])


def _commit(record: HistoryRecord, whole: bool = False) -> str:
    revision = record.revision
    if revision.commit is None:
        return "?"
    return f"{revision.commit if whole else revision.commit[:10]}{'+changes' if revision.has_changes else ''}"


def _end(value: float | None) -> str:
    return "?" if value is None else f"{value:.6g}"
