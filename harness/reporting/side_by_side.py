"""Writes several runs onto one page: their differences, what changed and by how much, each run's verdict, the trend.

It puts values of harness.regression.side_by_side into words, tables and drawings and computes no statistic. Every number has
its place in the JSON form of the same comparison.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from itertools import product
from pathlib import Path

from harness.record.regular_file import write_whole
from harness.regression.changes import OUTCOME_WORDS, Change, Outcome
from harness.regression.history.trend import Trend
from harness.regression.side_by_side import Against, SideBySide, to_json
from harness.reporting.assets import fill_template
from harness.reporting.cells import Entry, Marks, Notes, PageTable, Pointers, Row, between, shown
from harness.reporting.columns import ARMS
from harness.reporting.figures_changes import changes_figure, speedups_figure
from harness.reporting.svg import Drawing, placed
from harness.reporting.trend import trend_figure
from harness.scenario.metrics import METRICS
from harness.stats.quantity import Quantity

FIGURES = [one for one in ARMS.columns if one.head in ("NFE speedup", "Wall speedup", "Request speedup", "Accuracy")]
"""Of an arm, for every run."""


def changes_table(found: Sequence[tuple[Change, str]], heading: str, letter: str) -> PageTable | None:
    """Changes with their place, a section per metric, reasons for open ones below; None without changes."""
    notes = Notes()
    sections: dict[str, list[Row]] = {}
    for change, key in found:
        definition = METRICS[change.metric]
        why = None  # of a change without an answer, and what would give one
        if change.outcome == "unknown":
            why = change.reason or "not known in one of the runs"
        elif change.outcome in ("unclear", "no_interval"):
            why = "; ".join(filter(None, (change.reason, change.remedy)))
        movement, write = change.movement
        moved = shown(movement, write, f"{key}/{'ratio' if change.difference is None else 'difference'}", change.interval)
        if movement.value is None:
            moved = Entry(text="other" if change.base is not None and change.base != change.new else "none")
        name = f"{change.metric}: {definition.what}{f', in {change.unit}' if change.unit else ''}"
        sections.setdefault(name, []).append(
            {
                "Figure": Entry(text=change.subject),
                "A": _value(change, change.base, f"{key}/base"),
                letter: _value(change, change.new, f"{key}/new"),
                "Change": moved,
                "Found": Entry(text=OUTCOME_WORDS[change.outcome], note=notes.number(why) if why else None),
            }
        )
    marks: Marks = ("measured",) if heading == "Timed" else ("counted",)
    return notes.table(heading, list(sections.items()), {"Change": marks})


def _value(change: Change, value: float | str | None, key: str) -> Entry:
    if value is None or isinstance(value, str):
        return Entry(text=change.written(value))
    return Entry(text=change.written(value), raw=value, key=key)


def arms_table(found: SideBySide) -> PageTable | None:
    """NFE, wall and request speedup and accuracy of every shared arm, run by run; None where no arm is shared."""
    pointers = [Pointers(side.comparison) for side in found.sides]
    letters = [side.letter for side in found.sides]
    rows: list[Row] = []
    for arm in found.arms:
        rows.append({"Arm": Entry(text=arm.label, small=f"{arm.part}, batch {arm.batch_size}")})
        for column, (number, result) in product(FIGURES, enumerate(arm.results)):
            head = f"{column.head} {letters[number]}"
            rows[-1][head] = Entry(text="none")
            if result is not None:
                value: Quantity = getattr(result, column.of)
                key = f"/runs/{number}/comparison{pointers[number].of(value)}"
                rows[-1][head] = shown(value, column.write, key, between(value, column.write))
    marks: dict[str, Marks] = {f"{one.head} {letter}": one.marks for one in FIGURES for letter in letters}
    return Notes().table("Arms, run by run", [("", rows)], marks)


GRAVEST: tuple[Outcome, ...] = ("worse", "changed", "better", "unclear", "no_interval", "unknown", "same")
MOST_TRENDS = 12


def write_side_by_side(found: SideBySide, page: Path, trend: Trend | None = None) -> Path:
    """Write the page, and its values as JSON beside it.

    Raises:
        StorageError: the disk refuses.
    """
    text = json.dumps(to_json(found), indent=1, ensure_ascii=False, allow_nan=False)
    write_whole(page.with_suffix(".json"), text.encode())
    write_whole(page, render(found, trend).encode())
    return page


def render(found: SideBySide, trend: Trend | None = None) -> str:
    """The page as one HTML document, without a script."""
    letters = [side.letter for side in found.sides]
    return fill_template(
        "side_by_side.html.j2",
        letters=letters,
        sides=found.sides,
        against=[_against(one, number) for number, one in enumerate(found.against)],
        speedups=_only(speedups_figure(found.arms, letters), "speedups"),
        arms=arms_table(found),
        trends=_trends(trend, found) if trend else None,
        version=found.version,
    )


def _against(one: Against, number: int) -> dict[str, object]:
    """One run against the first: what differs between them, and what changed."""
    changes = [(change, f"/against/{number}/compared/changes/{place}") for place, change in enumerate(one.compared.changes)]
    changes.sort(key=lambda found: GRAVEST.index(found[0].outcome))
    timed = [found for found in changes if found[0].kind == "timed"]
    counted = [found for found in changes if found[0].kind != "timed"]
    same = [found for found in counted if found[0].outcome == "same"]
    said = []
    for words, numbered in (("timed figures", timed), ("counted ones", counted)):
        outcomes = Counter(change.outcome for change, _ in numbered)
        of_each = ", ".join(f"{outcomes[outcome]} {OUTCOME_WORDS[outcome]}" for outcome in GRAVEST if outcomes[outcome])
        said += [f"of {len(numbered)} {words}, {of_each}"] if numbered else []
    headed = ((timed, "Timed"), ([found for found in counted if found[0].outcome != "same"], "Counted"))
    return {
        "letter": one.letter,
        "said": "; ".join(said) or "no figure is in both runs",
        "unlike": one.unlike,
        "one_sided": one.compared.one_sided,
        "drawing": _only(changes_figure(one), f"changes-{one.letter}"),
        "tables": [table for found, heading in headed if (table := changes_table(found, heading, one.letter))],
        "same": changes_table(same, "Counted, and the same in both", one.letter),
        "remarks": _remarks(one),
    }


def _only(drawing: Drawing | None, name: str) -> Drawing | None:
    return placed([drawing], name)[0] if drawing else None


def _remarks(one: Against) -> tuple[str, ...]:
    """What the intervals cover, and why some figures have none."""
    timed = one.compared.times
    remarks = [f"Times are over the same prompts: {line}." for line in one.compared.remarks_on_times]
    if any(ratio.these_processes_only for ratio in timed):
        remarks.append(
            "An interval of one or two processes is about these alone: another process of the same code may differ by more. "
            "Take runs in three processes or more, or let sbd gate measure both in turn."
        )
    if timed:
        remarks.append(
            "One interval in twenty leaves out the truth. Better and worse are said of all figures together: runs of one code "
            "show any on one page of twenty at most. A machine that changes between two runs looks like a change of the code: "
            "what is to be decided is decided by sbd gate, which measures both in turn."
        )
    return tuple(remarks)


def _trends(trend: Trend, found: SideBySide) -> list[Drawing]:
    """The series with a point of one of the runs, those with changes first; short series too, which say so."""
    ids = {side.header.run_id for side in found.sides}
    mine = [
        one
        for one in trend.judged
        if len(one.series.points) > 1 and any(ids & set(point.run_ids) for point in one.series.points)
    ]
    mine.sort(key=lambda one: not one.changes)
    return placed(map(trend_figure, mine[:MOST_TRENDS]), "trend")
