"""A run too large to be shown sample by sample: the page adds up, says so, and loses nothing; a slow way would be noticed."""

from __future__ import annotations

import html
import re
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

import pytest

from harness.analysis.answer import compare
from harness.analysis.tally import tally
from harness.analysis.trust.integrity import Integrity
from harness.record.passes import PackedPasses, PassColumns
from harness.record.store import read_run
from harness.reporting import evidence, page
from harness.reporting.page import render
from tests.helpers import synthetic_run as synthetic
from tests.helpers.two_runs import stored

RUN = synthetic.build(tasks=("word_problems", "code"), prompts=3, repeats=2, calibration=synthetic.calibration())


def table_of_samples(text: str) -> list[list[str]]:
    """The rows of the raw numbers, head first."""
    table = text.partition('<table data-sorts="samples">')[2].partition("</table>")[0]
    rows = [re.findall(r"<t[hd][^>]*>([^<]*)", row) for row in table.split("<tr>")[1:]]
    return [[html.unescape(cell).strip() for cell in row] for row in rows]


def test_more_samples_than_a_page_holds_are_added_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """By case, process and state, warm-ups apart; counts and sums as added up here from the record."""
    monkeypatch.setattr(evidence, "MOST_ROWS", len(RUN.samples) - 1)
    text = render(RUN, compare(RUN))
    head, *rows = table_of_samples(text)
    found = [dict(zip(head, row, strict=True)) for row in rows]
    expected: dict[tuple[str, str], list[float]] = defaultdict(lambda: [0, 0, 0.0])
    label_of = {case.case_id: (case.task, case.label) for case in RUN.header.cases}
    for one in RUN.samples:
        sums = expected["|".join(label_of[one.case_id]), "warm-up, kept" if one.warmup else "kept"]
        sums[0] += 1
        sums[1] += sum(row.output_tokens for row in one.rows)
        sums[2] += one.decode_s
    numbers = ("Samples", "Output tokens", "Decode (s)")
    got = {(f"{row['Task']}|{row['Arm']}", row["State"]): [float(row[name]) for name in numbers] for row in found}
    assert got.keys() == expected.keys() and len(found) == len(expected) == 2 * len(RUN.header.cases)
    for key, (count, tokens, decode_s) in expected.items():
        assert got[key] == [count, tokens, pytest.approx(decode_s, rel=1e-5)]
    assert f"The run has {len(RUN.samples)} samples, more than a page can hold" in text and "Group" not in head
    monkeypatch.setattr(evidence, "MOST_ROWS", len(RUN.samples))
    text = render(RUN, compare(RUN))
    assert len(table_of_samples(text)) == len(RUN.samples) + 1 and "more than a page can hold" not in text


def test_arms_of_single_tasks_are_left_out_where_they_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a line that says how many they are and where they stand; the arms over all tasks stay."""
    whole = render(RUN, compare(RUN))
    monkeypatch.setattr(page, "MOST_BY_TASK", 5)
    text = render(RUN, compare(RUN))
    assert "Arms, task by task" in whole and "Not shown task by task" not in whole
    assert "Arms, task by task" not in text and "Not shown task by task: 6 arms of single tasks" in text
    assert all(html.escape(case.label) in text for case in RUN.header.cases)


def test_no_pass_is_spelt_out_to_derive_the_figures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Loading and comparing work on the packed columns: lists of a million passes would take the memory of the machine."""
    run = read_run(stored(RUN, tmp_path / "run"))

    def refuse(packed: PackedPasses) -> PassColumns:
        raise AssertionError("a sample's passes were spelt out")

    monkeypatch.setattr(PackedPasses, "spelt", refuse)
    assert replace(compare(run), integrity=Integrity()) == compare(RUN)
    assert tally.tally(run.header.cases[0], run.samples[-1], None).sums.passes > 0
