"""A trend over what was put into a history: which runs stand in one line and in which order, which commits are named."""

from __future__ import annotations

import html
import json
import re
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness.regression.history.derive import HistoryRecord, Revision
from harness.regression.history.store import History, Wanted
from harness.regression.history.trend import Trend, improves, to_json, trend
from harness.regression.history.wording import change_words, remarks
from harness.reporting.trend import render, write_trend
from harness.stats.change_points import LevelChange
from tests.helpers.synthetic_history import ARM, START, commit, figure, record, records_of, stepped


def trend_of(tmp_path: Path, records: list[HistoryRecord], metrics: tuple[str, ...] = ("wall_speedup",), **asked: Any) -> Trend:
    """The trend over a fresh history of ``records``."""
    file = tmp_path / "h.sqlite"
    file.unlink(missing_ok=True)
    with History(str(file)) as history:
        for one in records:
            history.add(one)
        return trend(history, asked.pop("wanted", Wanted()), metrics, **asked)


def test_the_commits_of_a_change_are_named_and_what_else_changed(tmp_path: Path) -> None:
    """A step down of a speedup is for the worse; torch changed with it, and that is said."""
    records = records_of(stepped(np.random.default_rng(1), factor=0.95, noise=0.002))
    records = [replace(one, software={"torch": "2.13.0" if i < 40 else "2.14.0"}) for i, one in enumerate(records)]
    found = trend_of(tmp_path, records)
    ((judged, change),) = found.found
    assert (change.last_old.commit, change.first_new.commit, change.direction) == (commit(39), commit(40), "worse")
    assert change.change.before == pytest.approx(3, rel=0.002) and change.change.size == pytest.approx(-0.05, abs=0.002)
    assert change.also_changed == {"torch": ("2.13.0", "2.14.0")}
    assert (judged.series.arm, to_json(found)["series"][0]["unit"], found.tested, found.runs) == (ARM, "x", 1, 80)
    assert found.newly_worse(40) == [(judged, change)] and found.newly_worse(39) == []
    data = json.loads(json.dumps(to_json(found), allow_nan=False))
    (plain,) = data["series"][0]["changes"]
    assert data["version"] == 2 and (plain["index"], plain["first_new"]["commit"]) == (40, commit(40))


def test_the_order_is_that_of_the_commits_not_of_the_measurements(tmp_path: Path) -> None:
    """Measured from the newest to the oldest: the step is up all the same, and no order is remarked on."""
    records = records_of([3.0] * 10 + [3.3] * 10)
    later = [replace(one, measured_at=(START + timedelta(days=99 - i)).isoformat()) for i, one in enumerate(records)]
    found = trend_of(tmp_path, later)
    ((_, change),) = found.found
    assert (change.direction, change.first_new.commit) == ("better", commit(10)) and "order" not in " ".join(remarks(found))


def test_runs_of_one_commit_are_one_point_their_median(tmp_path: Path) -> None:
    """Three runs of a commit, one of them wild; a run with changes in its checkout, or without a commit, stands alone."""
    day = record(0).measured_at
    clean = Revision(commit=commit(0), has_changes=False, branch="main", committed_at=day)
    made = [record(i, figure(value), measured_at=day, revision=clean) for i, value in enumerate((3.0, 9.0, 3.2))]
    made.append(record(3, figure(5.0), measured_at=day, revision=replace(clean, has_changes=True)))
    made += [record(i, figure(6.0), revision=Revision(branch="main")) for i in (4, 5)]
    (series,) = (one.series for one in trend_of(tmp_path, made).judged)
    assert sorted(series.values) == [3.2, 5.0, 6.0, 6.0]
    assert [point.label for point in series.points][2:] == ["run 0000000400", "run 0000000500"]
    assert {point.label for point in series.points[:2]} == {commit(0)[:10], f"{commit(0)[:10]}+changes"}


def test_unlike_runs_never_stand_in_one_line(tmp_path: Path) -> None:
    """Two machines, two scenarios, two branches, a branch that is not known: five lines, no step between them."""
    lines: list[dict[str, Any]] = [
        {},
        {"fingerprint": "f" * 12},
        {"scenario_digest": "e" * 64},
        {"revision": Revision(commit=commit(1), branch="feature")},
        {"revision": Revision(commit=commit(1))},
    ]
    made = []
    for line, other in enumerate(lines):
        for i in range(8):
            one = record(100 * line + i, figure(3.0 + line))
            revision = replace(other.get("revision", one.revision), commit=one.revision.commit)
            made.append(replace(one, **(other | {"revision": revision})))
    found = trend_of(tmp_path, made)
    assert sorted(one.series.values for one in found.judged) == [(3.0 + line,) * 8 for line in range(5)]
    assert not found.found and found.tested == 0
    assert found.judged[0].reason == "8 commits, and two levels need 10"
    assert len(trend_of(tmp_path, made, wanted=Wanted(branch="feature")).judged) == 1


def test_cells_metrics_and_the_newest_commits_are_chosen(tmp_path: Path) -> None:
    """A pattern of cells; absent values are no points; a step before the newest commits is not looked for."""
    others = (figure(2.0, cell="reference/all/b8"), figure(None, "accuracy"), figure(0.5, "ceiling_share"))
    made = [record(i, figure(3.0 if i < 10 else 4.0), *others) for i in range(20)]
    assert len(trend_of(tmp_path, made).judged) == 2 and len(trend_of(tmp_path, made).found) == 1
    assert [one.series.values[0] for one in trend_of(tmp_path, made, cell="*/b8").judged] == [2.0]
    assert trend_of(tmp_path, made, ("accuracy",)).judged == ()
    newest = trend_of(tmp_path, made, last=10, cell="*/b1")
    assert newest.found == [] and newest.judged[0].series.values == (4.0,) * 10


def test_figures_of_older_formulas_are_left_out_and_counted(tmp_path: Path) -> None:
    """A change of formula would look like a change of speed."""
    made = records_of([3.0] * 12 + [4.0] * 12)
    made = [replace(one, comparison_version=one.comparison_version - (i < 12)) for i, one in enumerate(made)]
    found = trend_of(tmp_path, made)
    assert (found.outdated, found.found, len(found.judged[0].series.values)) == (12, [], 12)
    assert len(trend_of(tmp_path, made, outdated=True).found) == 1


@pytest.mark.parametrize(
    ("before", "after", "better", "expected"),
    [
        (3, 4, "higher", True),
        (3, 4, "lower", False),
        (4, 3, "lower", True),
        (-0.2, 0.1, "nearer_zero", True),
        (0.1, -0.2, "nearer_zero", False),
    ],
)
def test_which_way_is_better(before: float, after: float, better: Any, expected: bool) -> None:
    """By the metric; a prediction error is better the nearer it is to 0, from either side."""
    assert improves(LevelChange(index=1, before=before, after=after, size=after - before, p=0.01), better) is expected


def test_a_prediction_error_is_followed_in_points(tmp_path: Path) -> None:
    """From 10 % too slow to 2 % too fast: a difference of 12 points, for the better."""
    ((_, change),) = trend_of(
        tmp_path, records_of([0.10] * 12 + [-0.02] * 12, "wall_speedup_error.calibrated"), ("wall_speedup_error.calibrated",)
    ).found
    assert change.direction == "better" and change.change.size == pytest.approx(-0.12)


def drifting(end: int, commits: int = 60) -> list[HistoryRecord]:
    """A speedup that falls from 3 to 2.7 between commits 20 and ``end``, at 0.3 % noise."""
    fallen = np.clip((np.arange(commits) - 20) / (end - 20), 0, 1)
    values = (3 - 0.3 * fallen) * np.exp(np.random.default_rng(5).normal(0, 0.003, commits))
    return records_of([float(value) for value in values])


def test_a_drift_is_told_as_one_everywhere(tmp_path: Path) -> None:
    """In words, as JSON and on the page: one drift with the commits at its ends, not several steps."""
    found = trend_of(tmp_path, drifting(end=50))
    ((judged, told),) = found.found
    assert told.change.kind == "drift" and told.direction == "worse"
    said = change_words(judged, told)
    assert said.startswith("worse: a drift, not a step: 3.0") and told.change.size == pytest.approx(-0.1, abs=0.005)
    assert told.last_old.label in said and told.reached.label in said and "the newest" not in said
    (change,) = to_json(found)["series"][0]["changes"]
    assert (change["kind"], change["reached"]["commit"]) == ("drift", commit(change["end"]))
    assert change["index"] == pytest.approx(20, abs=5) and change["end"] == pytest.approx(50, abs=5)
    page = html.unescape(render(found))
    assert said in page and f"{told.last_old.label}..{told.reached.label}" in page


def test_a_drift_alarms_for_as_long_as_it_goes_on(tmp_path: Path) -> None:
    """It began long ago; while the newest commits are still on the slope it is news, ten commits after its end no more."""
    going_on, over = trend_of(tmp_path, drifting(end=59)), trend_of(tmp_path, drifting(end=40))
    assert len(going_on.newly_worse(5)) == 1 and len(over.found) == 1 and over.newly_worse(5) == []
    assert "drift" in going_on.found[0][1].change.kind


def test_series_looked_at_together_share_one_level(tmp_path: Path) -> None:
    """A step that just stands alone is not told among thirty steady series; one look is one chance of a false change."""
    values = stepped(np.random.default_rng(16), commits=40, step=20, factor=1.015, noise=0.009)
    alone = trend_of(tmp_path, records_of(values))
    steady = [figure(3.0, arm=f"steady {i}") for i in range(30)]
    together = trend_of(tmp_path, [replace(one, figures=(*one.figures, *steady)) for one in records_of(values)])
    assert (alone.level, together.level) == pytest.approx((0.002, 0.002 / 31))
    p = alone.found[0][1].change.p
    assert 0.002 / 31 < p <= 0.002 and together.found == []
    assert to_json(together)["level"] == together.level and to_json(alone)["series"][0]["correlation"] < 0.5


HOSTILE = '<script>alert("x")</script>'


def test_the_page_names_the_commits_and_escapes_everything(tmp_path: Path) -> None:
    """Self-contained; the drawing's title and the table say what was found; a hostile name stays text."""
    made = [
        record(
            i,
            figure(3.0 if i < 12 else 2.7, arm=HOSTILE),
            figure(3.0, arm="steady"),
            figure(3.0, arm=f"short {i > 5}"),
            machine=HOSTILE,
            scenario_name=HOSTILE,
        )
        for i in range(24)
    ]
    found = trend_of(tmp_path, made)
    page = render(found)
    said = f"worse: 3.00x to 2.70x (-10.0\u00a0%), after {commit(11)[:10]} and by {commit(12)[:10]}"
    assert "<script" not in page and "http" not in page.replace("http-equiv", "")
    titles = [html.unescape(title) for title in re.findall(r'<svg [^>]*aria-label="([^"]*)"', page)]
    assert len(titles) == found.tested == 3 and said in titles[0] and "no change of level" in titles[1]
    assert f"{commit(11)[:10]}..{commit(12)[:10]}" in page  # beside the line in the drawing
    table = html.unescape(page[page.index("<table>") :])
    assert said in table and table.count("<tr>") == 1 + len(found.judged) == 5
    assert "1 change in 3 series of 24 runs" in page and "1 series are too short" in page
    ids = re.findall(r'\bid="([^"]+)"', page)
    assert len(ids) == len(set(ids))
    assert write_trend(found, tmp_path / "trend.html").read_text() == page


def test_a_page_without_any_run(tmp_path: Path) -> None:
    """Says so, and what to do."""
    page = render(trend_of(tmp_path, []))
    assert "no run is kept that was asked for" in page and "sbd history add" in page
