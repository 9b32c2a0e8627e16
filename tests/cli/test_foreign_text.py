"""Text from outside (records, profiles, file names, errors) moves no cursor, orders no CI runner, makes no line of its own."""

from __future__ import annotations

import csv
import json
import pickle
import re
from dataclasses import fields, is_dataclass, replace
from io import StringIO
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from harness.analysis.answer import compare
from harness.analysis.judge.verdict import claims_for, verdict
from harness.capacity.acceptance import from_speedup
from harness.capacity.columns import csv_lines
from harness.capacity.plan import plan
from harness.capacity.question import Question, RowTokens
from harness.cli import capacity_table, doctor, hardware, history, judged
from harness.cli import compare as comparing
from harness.cli import plan as planning
from harness.cli.output import csv_text, json_text
from harness.cli.progress import TerminalProgress
from harness.errors import ProcessEndedError, ScenarioError, UserError
from harness.formatting import csv_cell, escaped_json, one_line
from harness.hardware.profile import HardwareProfile, load_profile
from harness.models import KNOWN_SHAPES
from harness.models.deployment import Deployment
from harness.regression.changes import compare_runs
from harness.reporting.evidence import as_csv
from harness.scenario.loading import load_scenario
from harness.scenario.plan import make_plan
from tests.helpers import synthetic_run as synthetic
from tests.helpers.command import Cli
from tests.helpers.synthetic_history import figure, record
from tests.helpers.synthetic_judgements import NASTY
from tests.helpers.two_runs import stored

MARK = "PLANTED"
PLANTS = [
    "\r",
    "\n",
    "\u2028",
    "\x85",
    "\x1b]0;",
    "\x9b31m",
    "\x7f",
    "\u202e",
    "\u2066",
    "\ud800",
    "::error::",
    "\n::error ::",
    "##[error]",
    "#\u202e#[group]",
    "##vso[task.complete]",
    "##teamcity[x]",
    "\t",
]
hostile = st.lists(st.sampled_from(PLANTS) | st.sampled_from(NASTY), min_size=1, max_size=5).map(
    lambda parts: f"{''.join(parts)}\n{MARK}\n::error::{MARK}"
)
OBEYED = re.compile(
    "[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]|^\\s*::|##[\\w.]*\\[", re.M
)
"""What a terminal or a CI runner obeys: workflow commands of GitHub at a line's start, those of others anywhere."""


def planted(value: Any, text: str, kept: frozenset[str] = frozenset()) -> Any:
    """``value`` with ``text`` behind every text in it, fields and keys by the names ``kept`` apart."""
    if isinstance(value, str):
        return value + text
    if isinstance(value, BaseModel):
        given = {name: getattr(value, name) for name in type(value).model_fields if name not in kept}
        return value.model_copy(update={name: planted(one, text, kept) for name, one in given.items()})
    if is_dataclass(value) and not isinstance(value, type):
        given = {one.name: getattr(value, one.name) for one in fields(value) if one.name not in kept}
        return replace(value, **{name: planted(one, text, kept) for name, one in given.items()})
    if isinstance(value, dict):
        return {key: one if key in kept else planted(one, text, kept) for key, one in value.items()}
    return type(value)(planted(one, text, kept) for one in value) if isinstance(value, list | tuple) else value


def assert_inert(written: str) -> None:
    """Nothing is obeyed; a line that is folded at the terminal's width may begin with what was planted."""
    assert not OBEYED.search(written), OBEYED.search(written)


GRADES = frozenset({"grade", "kind"})
HEADER = frozenset({"case_id", "part", "scenario", "scenario_digest", "tokenizer", "dtype", "device", "arm", "created_at"})
RUN = synthetic.build()
ASKED = Question(
    shape=KNOWN_SHAPES["llama-3.1-8b"],
    deployment=Deployment(dtype="bfloat16"),
    acceptance=from_speedup(16, 3.0),
    workload=RowTokens.of_request(3500, 1000),
    contexts=(1024,),
)


@settings(max_examples=20)
@given(text=hostile)
@example(text=f"\n::error::{'a-long-word-that-folds ' * 20}\n{MARK}")
def test_no_text_of_a_profile_is_obeyed(text: str) -> None:
    """In `hardware` as a list and alone, `capacity` and `train --plan`."""
    profile: HardwareProfile = planted(load_profile("h100-sxm"), text, GRADES)
    assert profile.notes is None or MARK in profile.notes
    for written in (hardware.render_one(profile), hardware.render_list([profile]), json_text(hardware.describe([profile]))):
        assert_inert(written)
    assert json.loads(json_text(hardware.describe([profile])))["hardware"][profile.name]["name"] == profile.name
    found = plan(ASKED, [profile])
    for written in (capacity_table.render(found), capacity_table.render_break_even(found), csv_text(csv_lines(found, True))):
        assert_inert(written)


@settings(max_examples=20)
@given(text=hostile)
def test_no_text_of_a_record_is_obeyed(text: str) -> None:
    """In `verify`, `compare` and `history`."""
    header = planted(RUN.header, text, HEADER)
    run = RUN.model_copy(update={"header": header})
    judgements = verdict(compare(run), claims_for(run.header, (), ()), run.header)
    assert_inert(judged.table(replace(judgements, title=text, runs=(text,)), 1))
    assert_inert(comparing.render(compare_runs(run, run, [text], 1), text, text))
    kept = record(1, figure(None), figure(2.0, arm=text, cell=text))
    kept = planted(kept, text, frozenset({"measured_at", "metric", "better"}))
    assert_inert(history.record_table(kept, 2))
    assert_inert(history.records_table([kept]))
    assert_inert(json_text(history.described(kept)))


@settings(max_examples=20)
@given(text=hostile)
def test_no_text_of_a_machine_or_plan_is_obeyed(text: str) -> None:
    """In `doctor`, `plan`, what `calibrate` shows, and the progress of a run."""
    estimate = planning.estimated(make_plan(load_scenario("quickstart")), lambda case: (None, f"{case.label}{text}"))
    assert_inert(planning.render(planted(estimate, text, frozenset({"bound"}))))
    absent = {"figure": "f", "unit": None, "source": None, "value": None, "reason": "r", "remedy": None}
    attention = {
        "model": "m",
        "dtype": "d",
        "context_tokens": 1,
        "query_tokens": 1,
        "masked": False,
        "backend": None,
        "reason": "r",
    }
    found = {
        "device": "cpu",
        "figures": [absent],
        "bandwidth_scale": None,
        "bandwidth_scale_reason": "r",
        "attention": [attention],
        "kernels": None,
        "kernels_reason": "r",
        "environment": {
            "cpu_model": "c",
            "logical_cores": 2,
            "gpus": None,
            "kernel": "k",
            "none": None,
            "reasons": {"none": "r"},
        },
    }
    written = doctor.render(planted(found, text))
    assert_inert(written)
    assert all(f"  {what}: {where} ({why})\n" in written for what, where, why in doctor.LISTENS)
    progress = TerminalProgress(terminal := StringIO())
    progress.note(text)
    progress.start([text])
    progress.advance(text)
    assert_inert(terminal.getvalue())


@given(text=hostile)
def test_no_text_of_an_error_is_obeyed(text: str) -> None:
    """A message has the line breaks of its author alone, and lasts over a process."""
    for error in (UserError(f"{text}: given"), ScenarioError("file:1: one", f"file:2: {text}"), ProcessEndedError("a", 2)):
        assert_inert(str(error))
        assert len(str(error).split("\n")) == len(error.args)
        assert str(pickle.loads(pickle.dumps(error))) == str(error)


def test_a_fault_and_its_traceback_are_inert(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """The message of a library too."""

    def fail(*_: object) -> None:
        raise ValueError("\x1b[31m\n::error::x ##[error]")

    monkeypatch.setattr(hardware, "load_profile", fail)
    assert cli("--debug hardware h100-sxm") == 5
    assert_inert(cli.err)


@given(text=hostile)
def test_json_keeps_every_value(text: str) -> None:
    """What a terminal or a CI runner obeys is written as an escape."""
    written = escaped_json(json.dumps({text: text}, ensure_ascii=False))
    assert not OBEYED.search(written) and json.loads(written) == {text: text}


@pytest.mark.parametrize("cell", ["=1+1", "+cmd|' /C calc'!A0", "-2+3", "@SUM(1)", "\t=1", "\r=1", "\n=1", " =1", "＝1", "-"])
def test_no_cell_is_a_formula(cell: str) -> None:
    """In the planner's CSV and in the downloads of a page; the head of a column as well."""
    assert str(csv_cell(cell)).startswith("'")
    written = as_csv(pd.DataFrame({cell: [cell, None], "n": [-1.5, 2.0], "text": ["-1.5", "plain"]}))
    (head, first, _) = csv.reader(StringIO(written))
    assert head[0][0] == first[0][0] == "'" and first[1:] == ["-1.5", "-1.5"]
    device = load_profile("h100-sxm")
    (line, *_) = csv.DictReader(StringIO(csv_text(csv_lines(plan(ASKED, [device.model_copy(update={"name": cell})])))))
    assert line["hardware"].startswith("'")


@given(text=st.text(st.characters(categories=["L", "M", "N", "Sm", "Zs"]), max_size=30))
def test_plain_text_stays(text: str) -> None:
    """Spaces included; a cut is marked."""
    assert one_line(text) == text and one_line("abcdef", 4) == "abc…"


def test_file_names_are_inert(cli: Cli, tmp_path: Path) -> None:
    """One that a command names, and one that it refuses."""
    folder = tmp_path / f"\x1b[2J\n{MARK}\n##[error]"
    stored(RUN, folder / "run")
    assert cli("gallery", str(folder)) == 0
    assert_inert(cli.out + cli.err)
    assert cli("verify", str(folder)) != 0
    assert_inert(cli.out + cli.err)
