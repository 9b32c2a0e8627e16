"""How commands that judge end: what is refused before they start, what lands where, and with which exit code."""

from __future__ import annotations

import json
import os
import re
import stat
import threading
import unicodedata
from pathlib import Path
from typing import Any

import pytest
import typer
from hypothesis import example, given
from typer.testing import CliRunner

from harness.analysis.judge.judgement import GRAVEST_FIRST, Judgements, State
from harness.cli.judged import InconclusiveOption, JsonOption, ToOption, finish, table
from harness.errors import StorageError, UserError
from harness.reporting.exports.formats import FORMATS, export
from tests.helpers import synthetic_judgements as synthetic
from tests.helpers.begun_runs import full_disk
from tests.helpers.synthetic_judgements import answer, of

REFUTED = of(
    answer("met", metric="nfe_speedup"),
    answer("inconclusive", metric="latency_p50_s", remedy="22 more prompts"),
    answer("missed"),
)


def judge(judgements: Judgements, line: str = "") -> tuple[Any, bool]:
    """A command that ends as verify and gate do, and whether it came to measure."""
    app, started = typer.Typer(), []

    @app.command()
    def command(as_json: JsonOption = False, inconclusive: InconclusiveOption = "report", to: ToOption = None) -> None:
        started.append(True)
        finish(judgements, as_json, inconclusive, to)

    return CliRunner().invoke(app, line.split()), bool(started)


def lines(result: Any) -> list[str]:
    """What was printed."""
    return result.stdout.splitlines()


def test_the_table_says_the_worst_first_and_the_verdict_last(monkeypatch: pytest.MonkeyPatch) -> None:
    """Word, metric, where, value with interval and unit, bound and reason in a row; what would decide it beneath."""
    monkeypatch.setenv("COLUMNS", "140")
    result, _ = judge(REFUTED)
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in lines(result) if line.startswith("│")]
    words = [row[0] for row in rows[1:] if row[0]]
    assert words == ["refuted", "inconclusive", "confirmed"]
    first = rows[1]
    assert first[1] == "wall_speedup" and first[3] == "2.400x [2.100, 2.700]" and first[4] == "at least 3"
    assert "SBD k=16" in first[2] and "interval" in " ".join(row[5] for row in rows[1:3])
    subject = "SBD k=16 γ=0.35, part bandwidth, batch 1"
    assert lines(result)[-2] == f"to decide latency_p50_s of {subject}: 22 more prompts"
    assert lines(result)[-1] == "verdict: refuted (1 refuted, 1 inconclusive, 1 confirmed; exit code 1): sbd verify"


def test_nothing_judged_is_said() -> None:
    """An empty answer is void in the table as in the exit code."""
    result, _ = judge(of())
    assert lines(result) == ["verdict: void (nothing was judged; exit code 4): sbd verify"] and result.exit_code == 4


@given(found=synthetic.judgements)
@example(found=of(answer("void", subject="x", reason="::error::a-long-word-that-wraps " * 9)))
def test_the_table_takes_any_text(found: Judgements) -> None:
    """No text moves the cursor, reverses a line, or becomes a command for the runner whose log this is."""
    written = table(found, 1)
    assert not {letter for letter in written if unicodedata.category(letter) in ("Cc", "Cs") or letter == "\u202e"} - {"\n"}
    assert not [line for line in written.split("\n") if re.match(r"\s*::", line) or "##[" in line]
    assert written.split("\n")[-1].startswith("verdict: ")


@pytest.mark.parametrize("state", GRAVEST_FIRST)
@pytest.mark.parametrize("policy", ["report", "pass", "fail"])
def test_exit_codes(state: State, policy: str) -> None:
    """As the judgements ask for, and the table says the same; only an inconclusive one can be turned."""
    result, _ = judge(of(answer(state)), f"--inconclusive {policy}")
    turned = {"report": 3, "pass": 0, "fail": 1}[policy]
    assert result.exit_code == {"met": 0, "missed": 1, "void": 4, "inconclusive": turned}[state]
    assert f"exit code {result.exit_code})" in lines(result)[-1]


def test_files_are_written_although_the_verdict_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every format in its file, the table still on stdout, and the job's summary untouched unless it is named."""
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "summary"))
    result, _ = judge(REFUTED, " ".join(f"--to {name}={tmp_path}/{name}" for name in FORMATS))
    assert result.exit_code == 1 and lines(result)[-1].startswith("verdict: refuted")
    assert {file.name: file.read_text(encoding="utf-8") for file in tmp_path.iterdir()} == {
        name: export(REFUTED, name) for name in FORMATS
    }


def test_standard_output_takes_one_format() -> None:
    """Alone, so that it can be piped; but annotations stand below the table, where the runner finds them."""
    assert judge(REFUTED, "--to markdown=-")[0].stdout == export(REFUTED, "markdown")
    assert json.loads(judge(REFUTED, "--json")[0].stdout) == json.loads(export(REFUTED, "json"))
    both = judge(REFUTED, "--to github=-")[0].stdout
    assert both == table(REFUTED, 1) + "\n" + export(REFUTED, "github")


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("--to sarif=x", ["'sarif'", *FORMATS]),
        ("--to junit", ["junit=FILE", "junit=-"]),
        ("--to junit=", ["junit=FILE"]),
        ("--to junit=no/such/report.xml", ["mkdir -p", "no/such"]),
        ("--to junit=.", ["is a folder"]),
        ("--to junit=a --to markdown=./a", ["given twice"]),
        ("--to json=- --to markdown=-", ["standard output"]),
        ("--json --to github=-", ["standard output"]),
        ("--to github=- --json", ["standard output"]),
    ],
)
def test_what_cannot_be_written_is_refused_before_the_measurement(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str, words: list[str]
) -> None:
    """The mistake is said before an hour of measuring, with what is allowed, and nothing is left behind."""
    monkeypatch.chdir(tmp_path)
    result, started = judge(REFUTED, line)
    assert isinstance(result.exception, UserError) and not started and not list(tmp_path.iterdir())
    assert all(word in str(result.exception) for word in words), result.exception


def test_a_file_without_permission_is_refused_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As root nothing is forbidden, so the answer of the system is put in its mouth."""
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    result, started = judge(REFUTED, f"--to junit={tmp_path}/a.xml")
    assert isinstance(result.exception, UserError) and "permissions" in str(result.exception) and not started


def test_a_full_disk_costs_one_file_and_no_verdict(tmp_path: Path) -> None:
    """The table is printed, the other files are there, and the error names the file; no regression is claimed (exit code 5)."""
    result, _ = judge(REFUTED, f"--to markdown=/dev/full --to junit={tmp_path}/a.xml")
    assert isinstance(result.exception, StorageError) and result.exception.exit_code == 5
    assert "/dev/full" in str(result.exception) and "No space left" in str(result.exception)
    assert lines(result)[-1].startswith("verdict: refuted") and (tmp_path / "a.xml").read_text() == export(REFUTED, "junit")


def test_an_old_file_stays_whole_until_the_new_one_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A write that fails half way leaves what was there."""
    file = tmp_path / "a.xml"
    file.write_text("of yesterday")
    monkeypatch.setattr(os, "fsync", full_disk)
    result, _ = judge(REFUTED, f"--to junit={file}")
    assert isinstance(result.exception, StorageError) and file.read_text() == "of yesterday"


def test_links_are_refused_and_pipes_stay_pipes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A link's file is not touched; a named pipe and a descriptor of the shell get the text, if somebody reads it."""
    (tmp_path / "link").symlink_to("file")
    (tmp_path / "file").write_text("mine")
    result, _ = judge(REFUTED, f"--to junit={tmp_path}/link")
    assert isinstance(result.exception, UserError) and "symbolic link" in str(result.exception)
    os.mkfifo(tmp_path / "pipe")
    read_end, write_end = os.pipe()
    got: list[str] = []
    reader = threading.Thread(target=lambda: got.append((tmp_path / "pipe").read_text()), daemon=True)
    reader.start()
    judge(REFUTED, f"--to bencher={tmp_path}/pipe --to github=/dev/fd/{write_end}")
    reader.join(timeout=10)
    os.close(write_end)
    with os.fdopen(read_end) as descriptor:
        assert descriptor.read() == export(REFUTED, "github")
    assert (tmp_path / "link").is_symlink() and (tmp_path / "file").read_text() == "mine"
    assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode) and got == [export(REFUTED, "bencher")]
    monkeypatch.setattr("harness.cli.judged.READER_WAITS", 1)
    result, _ = judge(REFUTED, f"--to junit={tmp_path}/pipe")
    assert isinstance(result.exception, StorageError)


def test_help_lists_every_format() -> None:
    """The help of --to cannot import the formats (it must be quick), so it is held against them here."""
    result, _ = judge(REFUTED, "--help")
    listed = " ".join(re.sub("[│ ]+", " ", result.stdout).split())
    assert f"FORMAT is {', '.join(list(FORMATS)[:-1])} or {list(FORMATS)[-1]}" in listed
