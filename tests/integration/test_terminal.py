"""Commands on a real terminal of 60, 80 and 120 columns: what a person sees, drawn by a terminal emulator."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.helpers.terminal import Seen, on_terminal, shown

RUN = "reports/quickstart"
COMMANDS = {
    "plan": (["plan", "every_arm"], 0),
    "plan --all": (["plan", "quickstart", "--all"], 0),
    "gate": (["gate", RUN, RUN], 3),
    "gate --deterministic-only": (["gate", RUN, RUN, "--deterministic-only"], 0),
    "gate --all": (["gate", RUN, RUN, "--all"], 3),
    "gate, unlike": (["gate", RUN, "reports/real_model"], 2),
    "compare": (["compare", RUN, RUN], 0),
    "compare --all": (["compare", RUN, RUN, "--all"], 0),
    "verify": (["verify", RUN], 1),
    "capacity": (["capacity", "--model", "llama-3.1-8b", "--table1", "llama-3.1-8b/GSM8K/low", "--batch", "8"], 0),
    "roofline": (
        [
            "roofline",
            "--model",
            "llama-3.1-8b",
            "--hardware",
            "h100-sxm",
            "--nfe-speedup",
            "3",
            "--batch",
            "8",
            "--context",
            "4096",
        ],
        0,
    ),
    "roofline --paper": (["roofline", "--paper"], 0),
    "roofline --methods": (["roofline", "--methods", "--batch", "16"], 0),
    "doctor": (["doctor", "--device", "cpu"], 0),
    "hardware": (["hardware"], 0),
}
"""Arguments and exit code."""
WIDTHS = (60, *(pytest.param(width, marks=pytest.mark.full) for width in (80, 120)))
SCENARIO = """\
version: 1
name: small
parts:
  - name: one
    model: {reference: sbd}
    dtype: float32
    session: plain
    execution: eager
    timed: false
    arms:
      - {method: ntp}
      - {method: sbd, block_size: 16, gamma: 0.003}
    workload: {tasks: [word_problems, short_trace], prompts: 2, max_new_tokens: 24}
"""


@pytest.fixture
def own(tmp_path: Path) -> dict[str, str]:
    """A user with no calibration, no profile and no history."""
    return {"XDG_CACHE_HOME": str(tmp_path / "cache"), "XDG_DATA_HOME": str(tmp_path / "data")}


def _whole(seen: Seen) -> None:
    """No line is wider than the terminal, so that the terminal breaks none; no escape sequence is left on the screen."""
    assert not seen.broken, seen.broken[:3]
    assert all(len(line) <= seen.columns for line in seen.lines)
    assert not [line for line in seen.lines if "\x1b" in line or re.search(r"\[\d*[mK]", line)]
    assert "Traceback" not in "\n".join(seen.lines)


@pytest.mark.parametrize("columns", WIDTHS)
@pytest.mark.parametrize("name", COMMANDS)
def test_no_line_is_wider_than_the_terminal(own: dict[str, str], name: str, columns: int) -> None:
    """And the command ends as it does elsewhere."""
    arguments, code = COMMANDS[name]
    seen = on_terminal(arguments, columns, variables=own)
    assert seen.code == code, seen.lines
    _whole(seen)


@pytest.mark.long
@pytest.mark.parametrize("columns", WIDTHS)
def test_the_history_fits_too(own: dict[str, str], columns: int, tmp_path: Path) -> None:
    """Adding, listing, showing and the trend of one run."""
    for arguments in (["add", RUN], ["list"], ["trend"]):
        seen = on_terminal(["history", *arguments, "--db", str(tmp_path / "h.sqlite")], columns, variables=own)
        assert seen.code == 0, seen.lines
        _whole(seen)


@pytest.mark.long
@pytest.mark.parametrize("columns", WIDTHS)
def test_a_run_leaves_one_line_of_progress_and_its_answer(own: dict[str, str], columns: int, tmp_path: Path) -> None:
    """The bar is drawn in one place, nothing of transformers' is seen, and the last lines are the answer."""
    (tmp_path / "small.yaml").write_text(SCENARIO, encoding="utf-8")
    seen = on_terminal(["run", "small.yaml", "--out", "out"], columns, tmp_path, own)
    assert seen.code == 0, seen.lines
    _whole(seen)
    text = "\n".join(seen.lines)
    assert "Loading weights" not in text and "it/s" not in text and "Warning" not in text
    assert "Loading weights" not in seen.written.decode()
    drawn = [line for line in seen.lines if re.match(r"\[#*-*\] \d+/\d+ samples", line)]
    assert len(drawn) == 1 and drawn[0].startswith("[################] ")
    totals = set(re.findall(r"\d+/(\d+) samples", seen.written.decode()))
    assert len(totals) == 1, "the total never changes"
    labels = [line.split()[0] for line in seen.lines if re.match(r"[a-z]+ {2,}\S", line)]
    assert labels[-1] == "report" and {"answer", "passes", "claims", "next", "record"} <= set(labels)
    assert "answer  SBD k=16 γ=0.003" in text or "answer  one, batch 1" in text


def test_colours_are_for_terminals_that_want_them(own: dict[str, str]) -> None:
    """The verdict is coloured; not with NO_COLOR, and not where TERM is dumb."""
    arguments = ["gate", RUN, RUN, "--deterministic-only"]
    assert b"\x1b[1;32munchanged\x1b[0m" in on_terminal(arguments, 80, variables=own).written
    for plain in ({"NO_COLOR": "1"}, {"TERM": "dumb"}):
        assert b"\x1b" not in on_terminal(arguments, 80, variables=own | plain).written


def test_the_test_sees_a_line_that_is_too_wide() -> None:
    """What a terminal breaks, and what a shorter line leaves of a longer one, are both seen."""
    assert Seen(0, 10, (), b"x" * 11 + b"\r\n").broken == ["x" * 11]
    assert shown(b"a long line\rshort\r\n", 80) == ("shortg line",)
    assert shown(b"a long line\r\x1b[Kshort\r\n", 80) == ("short",)
