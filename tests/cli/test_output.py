"""How answers are laid out: broken at the terminal's width, tables that become lines, colours, and nothing of it in a pipe."""

from __future__ import annotations

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.cli.output import coloured, columns, fitted, grid, show
from tests.helpers.command import Terminal

HEADS = ("arm", "speedup", "what weakens it")
ROWS = [["SBD k=16 γ=0.003", "2.93x", "one process only " * 4], ["NTP", "1.00x", ""]]


@given(text=st.text(st.sampled_from("ab -:"), max_size=300), width=st.integers(40, 120))
def test_lines_fit_and_lose_no_word(text: str, width: int) -> None:
    """Every line is as narrow as asked; the letters stay, but for the blanks at a break and a command of CI."""
    found = fitted(text, width)
    assert all(len(line) <= width for line in found.split("\n"))
    assert found.replace(" ", "").replace("\n", "") == text.replace(" ", "")
    assert fitted(text, None) == text


def test_what_follows_is_indented_below_what_is_said() -> None:
    """By two more than the line, or below the text beside its name."""
    assert fitted("  one two three", 10).split("\n") == ["  one two", "    three"]
    assert fitted("reason  " + "word " * 12, 40).split("\n")[1].startswith(" " * 8 + "word")


def test_a_table_that_does_not_fit_becomes_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    """At 80 columns its sentences are folded; at 40 every row stands as lines, and no value is cut."""
    monkeypatch.setenv("COLUMNS", "80")
    table = grid(HEADS, ROWS, right=HEADS[1:2], folds=HEADS[2:]).splitlines()
    assert table[0].split() == ["arm", "speedup", "what", "weakens", "it"] and max(map(len, table)) <= 80
    monkeypatch.setenv("COLUMNS", "40")
    lines = grid(HEADS, ROWS, right=HEADS[1:2], folds=HEADS[2:]).splitlines()
    assert lines[0] == "SBD k=16 γ=0.003" and lines[1].split() == ["speedup", "2.93x"] and max(map(len, lines)) <= 40
    assert " ".join(" ".join(lines).split()).count("one process only") == 4
    assert lines[-2:] == ["NTP", "  speedup          1.00x"], "an empty value is left out"


def test_heads_of_several_words_take_several_lines_before_a_table_gives_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """12 + 2 + 6 columns hold the figures; the heads stand on two lines."""
    monkeypatch.setenv("COLUMNS", "40")
    heads = ("device", "memory in use", "cores per node", "price a day")
    lines = grid(heads, [["h100", "80", "16", "3.9"]]).splitlines()
    assert len(lines) == 4 and lines[-1].split() == ["h100", "80", "16", "3.9"]


@pytest.mark.parametrize(("said", "found"), [("60", 60), ("1", 40), ("0", None), ("-5", None), ("abc", None), ("9" * 30, None)])
def test_the_width_is_what_is_said_and_no_nonsense(monkeypatch: pytest.MonkeyPatch, said: str, found: int | None) -> None:
    """COLUMNS first; below 40 nothing can be laid out; a stream that is no terminal has no width."""
    monkeypatch.setenv("COLUMNS", said)
    assert columns(io.StringIO()) == found


def test_colours(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a verdict on a terminal; none for NO_COLOR, a dumb terminal, or a pipe."""
    for name in ("NO_COLOR", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    show("verdict: refuted (1 refuted)", terminal := Terminal())
    assert terminal.getvalue() == "verdict: \x1b[1;31mrefuted\x1b[0m (1 refuted)\n"
    show("verdict: refuted", pipe := io.StringIO())
    assert pipe.getvalue() == "verdict: refuted\n"
    monkeypatch.setenv("NO_COLOR", "1")
    assert not coloured(Terminal())
    monkeypatch.delenv("NO_COLOR")
    monkeypatch.setenv("TERM", "dumb")
    assert not coloured(Terminal())
