"""`sbd compare`: what changed from one run to another, for people and programs. Information: it judges nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from harness.regression.changes import Change
    from harness.regression.run_comparison import RunsCompared

AllowOption = Annotated[
    list[str] | None,
    typer.Option(
        "--allow", metavar="WHAT,...",
        help="what may differ although it makes runs unlike: hardware, versions, scenario, model, cases, prompts, "
        "record_version, or single keys as the refusal names them",
    ),
]  # fmt: skip
SHORT_HASH = 12


def compare_command(
    runs: Annotated[list[Path], typer.Argument(metavar="BASE NEW...", help="run directories; each is held against the first")],
    allow: AllowOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="print JSON")] = False,
) -> None:
    """Show what changed between runs and by how much; times need three processes a run to be called better or worse.

    Times have 95 % intervals over the same prompts. All figures shown are judged together (Holm): of runs of one code at most
    one in twenty shows a change. Refuses unlike runs.
    """
    from harness.errors import UserError
    from harness.record.store import read_on_one_machine
    from harness.regression.comparability import refuse_unlike, shared_prompts
    from harness.regression.run_comparison import compare_runs, runs_json

    if len(runs) < 2:
        raise UserError(f"sbd compare {runs[0]}: one run is nothing to compare; give BASE and NEW, two run directories or more")
    base, *others = [read_on_one_machine(run) for run in runs]
    found = []
    for path, other in zip(runs[1:], others, strict=True):
        unlike = refuse_unlike(base, [other], words(allow), (str(runs[0]), str(path)))
        found.append(compare_runs(*shared_prompts(base, other), [str(one) for one in unlike], len(others)))
    if as_json:
        print(json.dumps([runs_json(one) for one in found], indent=1, ensure_ascii=False))
        return
    for path, one in zip(runs[1:], found, strict=True):
        print(render(one, str(runs[0]), str(path)))


def words(given: list[str] | None) -> list[str]:
    """``--allow hardware,versions --allow model`` as three words."""
    return [word.strip() for text in given or () for word in text.split(",") if word.strip()]


def render(compared: RunsCompared, base: str, new: str) -> str:
    """A table of the figures that both runs have, the reasons of those that one lacks, and what was allowed to differ."""
    from io import StringIO

    from rich.console import Console
    from rich.table import Table

    from harness.regression.changes import OUTCOME_WORDS

    text = StringIO()
    console = Console(file=text, width=200, highlight=False, markup=False)
    console.print(f"BASE {base}\nNEW  {new}\n", soft_wrap=True)
    table = Table("figure", "of", "BASE", "NEW", "change (95 %)", "found", box=None, pad_edge=False)
    for column in table.columns[2:5]:
        column.justify = "right"
    for one in compared.changes:
        values = _shown(one, one.base), _shown(one, one.new), _changed(one)
        table.add_row(one.metric, one.subject, *values, OUTCOME_WORDS[one.outcome])
    console.print(table)
    for one in compared.changes:
        if one.outcome == "unknown":
            console.print(f"?: {one.metric} of {one.subject}: {one.reason}", soft_wrap=True)
    for line in dict.fromkeys(f"{one.reason}; {one.remedy}" for one in compared.changes if one.outcome == "unclear"):
        console.print(f"unclear: {line}", soft_wrap=True)
    known = [one.ratio for one in compared.changes if one.kind == "timed" and one.base is not None]
    for line in dict.fromkeys(line for ratio in known for line in (ratio.method, ratio.reason) if line):
        console.print(f"times, over the same prompts: {line}", soft_wrap=True)
    for case_id in compared.one_sided:
        console.print(f"only in one of them: {case_id}", soft_wrap=True)
    for line in compared.unlike:
        console.print(f"allowed to differ: {line}", soft_wrap=True)
    return "\n".join(line.rstrip() for line in text.getvalue().splitlines()) + "\n"


def _shown(change: Change, value: float | str | None) -> str:
    from harness.formatting import count, ratio, seconds

    if value is None:
        return "?"
    if isinstance(value, str):
        return value[:SHORT_HASH]
    if change.unit.startswith("s"):
        return seconds(value)
    return ratio(value) if change.unit == "x" else f"{value:.4g}" if "/" in change.unit else count(value)


def _changed(change: Change) -> str:
    from harness.formatting import points, signed_percent

    if change.kind != "timed" and change.base is not None and change.base == change.new:
        return ""
    if isinstance(change.base, str):
        return "other"
    one, zero = (change.ratio, 1.0) if change.difference is None else (change.difference, 0.0)
    write = signed_percent if change.difference is None else points
    if one.value is None:
        return "?"
    if one.low is None or one.high is None:
        return write(one.value - zero)
    return f"{write(one.value - zero)} ({write(one.low - zero)} to {write(one.high - zero)})"
