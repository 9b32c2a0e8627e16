"""`sbd compare`: what changed from one run to another, for people and programs; it judges nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from statistics import geometric_mean
from typing import Annotated

import typer

from harness.cli.output import grid, json_text, lines_of, show
from harness.errors import UserError
from harness.formatting import count, points, ratio, seconds, signed_percent
from harness.record.store import read_on_one_machine
from harness.regression.changes import OUTCOME_WORDS, Change
from harness.regression.comparability import refuse_unlike, shared_prompts
from harness.regression.side_by_side import RunsCompared, compare_runs
from harness.regression.reasons import Moved, speedup_reasons

AllowOption = Annotated[
    list[str] | None,
    typer.Option(
        "--allow",
        metavar="WHAT,...",
        help="what may differ although it makes runs unlike: hardware, versions, scenario, model, cases, prompts, "
        "record_version, or single keys as the refusal names them",
    ),
]
SHORT_HASH = 12


def compare_command(
    runs: Annotated[list[Path], typer.Argument(metavar="BASE NEW...", help="run directories; each is held against the first")],
    allow: AllowOption = None,
    whole: Annotated[bool, typer.Option("--all", help="show every figure, not only what changed")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="print JSON")] = False,
) -> None:
    """Show what changed between runs and by how much; times need three processes a run to be called better or worse.

    Times have 95 % intervals over the same prompts. All figures shown are judged together (Holm): of runs of one code at most
    one in twenty shows a change. Refuses unlike runs.
    """
    if len(runs) < 2:
        raise UserError(f"sbd compare {runs[0]}: one run is nothing to compare; give BASE and NEW, two run directories or more")
    base, *others = [read_on_one_machine(run) for run in runs]
    for path, record in zip(runs, (base, *others), strict=True):
        if record.unmeasured:
            raise UserError(f"{path}: {record.unmeasured}; give runs that have samples")
    found = []
    for path, other in zip(runs[1:], others, strict=True):
        unlike = refuse_unlike(base, [other], words(allow), (str(runs[0]), str(path)))
        found.append(compare_runs(*shared_prompts(base, other), [str(one) for one in unlike], len(others)))
    if as_json:
        print(json_text([asdict(one) for one in found]))
        return
    for path, one in zip(runs[1:], found, strict=True):
        show(render(one, str(runs[0]), str(path), whole))


def words(given: list[str] | None) -> list[str]:
    """``--allow hardware,versions --allow model`` as three words."""
    return [word.strip() for text in given or () for word in text.split(",") if word.strip()]


def render(compared: RunsCompared, base: str, new: str, whole: bool = False) -> str:
    """What changed, the counts of the rest, the geometric mean of the times, and the allowed differences.

    ``whole``: every figure, and the reasons for missing ones.
    """
    values = ("BASE", "NEW", "change (95 %)")
    rows = [
        [one.metric, one.subject, _shown(one, one.base), _shown(one, one.new), _changed(one), OUTCOME_WORDS[one.outcome]]
        for one in compared.changes
        if whole or one.outcome in CHANGED
    ]
    parts = [lines_of(f"BASE {base}", f"NEW  {new}", "")]
    parts += [grid(("figure", "of", *values, "found"), rows, right=values, folds=("of",)), ""] if rows else []
    lines = [*_counts(compared, whole), *_mean_of_times(compared), *_speedups(compared), *(_reasons(compared) if whole else ())]
    lines += [f"only in one of them: {case_id}" for case_id in compared.one_sided]
    lines += [f"allowed to differ: {line}" for line in compared.unlike]
    return "\n".join([*parts, lines_of(*lines)])


CHANGED = ("worse", "better", "changed")


def _counts(compared: RunsCompared, whole: bool) -> Iterator[str]:
    """One line of counts; of the figures that are not shown, why those of them are open that are."""
    found = Counter(one.outcome for one in compared.changes)
    said = ", ".join(f"{found[outcome]} {words}" for outcome, words in OUTCOME_WORDS.items() if found[outcome])
    shown = sum(one.outcome in CHANGED for one in compared.changes)
    hidden = "" if whole or shown == len(compared.changes) else "; --all shows every figure"
    yield f"{len(compared.changes)} figures: {said}{hidden}"
    open_ = [f"{one.reason}; {one.remedy}" for one in compared.changes if one.outcome == "unclear"]
    yield from (f"unclear, not significant ({count}): {line}" for line, count in Counter(open_).items())


def _mean_of_times(compared: RunsCompared) -> Iterator[str]:
    """The geometric mean of NEW / BASE over the arms' times per token, as pyperf words it."""
    ratios = [one.ratio.value for one in compared.changes if one.metric == "decode_s_per_token" and one.ratio.value]
    if ratios:
        mean = geometric_mean(ratios)
        word = "slower" if mean > 1 else "faster"
        said = "no change" if f"{mean:.2f}" == "1.00" else f"{ratio(max(mean, 1 / mean))} {word}"
        yield f"geometric mean of the time per token over {len(ratios)} arms: {said}"


def _speedups(compared: RunsCompared) -> Iterator[str]:
    """Why speedups that changed did, each reason with its arm."""
    moved = [Moved(metric=one.metric, cell=one.cell, ratio=one.ratio.value) for one in compared.changes]
    for at, why in speedup_reasons(moved).items():
        if compared.changes[at].outcome in (*CHANGED, "no_interval"):
            yield f"{compared.changes[at].subject}: {why}"


def _reasons(compared: RunsCompared) -> Iterator[str]:
    yield from (f"?: {one.metric} of {one.subject}: {one.reason}" for one in compared.changes if one.outcome == "unknown")
    known = [one.ratio for one in compared.changes if one.kind == "timed" and one.base is not None]
    said = [line for found in known for line in (found.method, found.reason) if line]
    yield from (f"times, over the same prompts: {line}" for line in dict.fromkeys(said))


def _shown(change: Change, value: float | str | None) -> str:
    if value is None:
        return "?"
    if isinstance(value, str):
        return value[:SHORT_HASH]
    if change.unit.startswith("s"):
        return seconds(value)
    return ratio(value) if change.unit == "x" else f"{value:.4g}" if "/" in change.unit else count(value)


def _changed(change: Change) -> str:
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
