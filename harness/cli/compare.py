"""`sbd compare`: what changed from one run to another, for people and programs; it judges nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from statistics import geometric_mean
from typing import Annotated

from typer import Option

from harness.cli.output import AsJson, grid, json_text, lines_of, show
from harness.errors import UserError
from harness.formatting import ratio
from harness.record.identity import comma_separated
from harness.record.store import read_on_one_machine
from harness.regression.changes import OUTCOME_WORDS, Change, RunsCompared, compare_runs
from harness.regression.comparability import refuse_unlike, shared_prompts
from harness.regression.metrics import TIME, Moved, speedup_reasons

AllowOption = Annotated[
    list[str] | None,
    Option(
        "--allow",
        metavar="WHAT,...",
        help="what may differ although it makes runs unlike: hardware, versions, scenario, model, cases, prompts, "
        "record_version, or single keys as the refusal names them",
    ),
]


def compare_command(
    runs: list[Path], allow: AllowOption = None, whole: Annotated[bool, Option("--all")] = False, as_json: AsJson = False
) -> None:
    """Show what changed between runs and by how much; times need three processes a run to be called better or worse.

    Times have 95 % intervals over the same prompts. All figures shown are judged together (Holm): of runs of one code at most
    one in twenty shows a change. Refuses unlike runs.

    Args:
        runs (BASE NEW...): run directories; each is held against the first
        whole: show every figure, not only what changed
    """
    if len(runs) < 2:
        raise UserError(f"sbd compare {runs[0]}: one run is nothing to compare; give BASE and NEW, two run directories or more")
    base, *others = [read_on_one_machine(run) for run in runs]
    for path, record in zip(runs, (base, *others), strict=True):
        if record.unmeasured:
            raise UserError(f"{path}: {record.unmeasured}; give runs that have samples")
    compared = []
    for path, other in zip(runs[1:], others, strict=True):
        unlike = refuse_unlike(base, [other], comma_separated(allow or ()), (str(runs[0]), str(path)))
        compared.append(compare_runs(*shared_prompts(base, other), list(map(str, unlike)), len(others)))
    if as_json:
        print(json_text(list(map(asdict, compared))))
        return
    for path, changes in zip(runs[1:], compared, strict=True):
        show(render(changes, str(runs[0]), str(path), whole))


def render(compared: RunsCompared, base: str, new: str, whole: bool = False) -> str:
    """What changed, the counts of the rest, the geometric mean of the times, and the allowed differences.

    ``whole``: every figure, and the reasons for missing ones.
    """
    values = ("BASE", "NEW", "change (95 %)")
    rows = [
        [
            change.metric,
            change.subject,
            change.written(change.base),
            change.written(change.new),
            _movement(change),
            OUTCOME_WORDS[change.outcome],
        ]
        for change in compared.changes
        if whole or change.outcome in CHANGED
    ]
    parts = [lines_of(f"BASE {base}", f"NEW  {new}", "")]
    parts += [grid(("figure", "of", *values, "found"), rows, right=values, folds=("of",)), ""] if rows else []
    return "\n".join([*parts, lines_of(*_lines(compared, whole))])


CHANGED = ("worse", "better", "changed")


def _lines(compared: RunsCompared, whole: bool) -> Iterator[str]:
    """One of counts, of the figures that are not shown why those of them are open that are, and what else is to be known."""
    changes, outcomes = compared.changes, Counter(change.outcome for change in compared.changes)
    counts = ", ".join(f"{outcomes[outcome]} {words}" for outcome, words in OUTCOME_WORDS.items() if outcomes[outcome])
    hidden = "" if whole or outcomes.keys() <= set(CHANGED) else "; --all shows every figure"
    yield f"{len(changes)} figures: {counts}{hidden}"
    unclear = Counter(f"{change.reason}; {change.remedy}" for change in changes if change.outcome == "unclear")
    yield from (f"unclear, not significant ({count}): {line}" for line, count in unclear.items())
    times = [change.ratio.value for change in changes if change.metric == TIME and change.ratio.value]
    if times:  # as pyperf words it
        mean = geometric_mean(times)
        word = "slower" if mean > 1 else "faster"
        moved = "no change" if f"{mean:.2f}" == "1.00" else f"{ratio(max(mean, 1 / mean))} {word}"
        yield f"geometric mean of the time per token over {len(times)} arms: {moved}"
    speedups = [Moved(change.metric, change.cell, change.ratio.value) for change in changes]
    for at, why in speedup_reasons(speedups).items():
        if changes[at].outcome in (*CHANGED, "no_interval"):
            yield f"{changes[at].subject}: {why}"
    if whole:
        unknown = [change for change in changes if change.outcome == "unknown"]
        yield from (f"?: {change.metric} of {change.subject}: {change.reason}" for change in unknown)
        yield from (f"times, over the same prompts: {line}" for line in compared.remarks_on_times)
    yield from (f"only in one of them: {case_id}" for case_id in compared.one_sided)
    yield from (f"allowed to differ: {line}" for line in compared.unlike)


def _movement(change: Change) -> str:
    if change.kind != "timed" and change.base is not None and change.base == change.new:
        return ""
    if isinstance(change.base, str):
        return "other"
    moved, write = change.movement
    if moved.value is None:
        return "none"
    return f"{write(moved.value)} ({change.interval})" if change.interval else write(moved.value)
