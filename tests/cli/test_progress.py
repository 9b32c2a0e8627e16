"""The live line of a run: cut at any width, one total, time left with the models still to be opened, bars of long steps."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator

import pytest

from harness.cli.progress import TerminalProgress
from harness.progress import tell_share
from tests.helpers.command import Terminal

LONG = {"a/x": "SBD k=16 confidence order γ=0.003, word_problems, batch 16, and a name that no terminal holds " * 2}


@pytest.fixture(params=[60, 80, 120])
def width(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """Columns of the terminal."""
    monkeypatch.setenv("COLUMNS", str(request.param))
    return int(request.param)


def ticking(*seconds: float) -> Iterator[float]:
    """A clock with these readings, then the last one for ever."""
    yield from seconds
    while True:
        yield seconds[-1]


def test_the_line_is_cut_and_a_note_takes_its_place(width: int) -> None:
    """Never wider than the terminal less one; a note erases it first."""
    clock = ticking(0.0, 1.0, 2.0)
    progress = TerminalProgress(terminal := Terminal(), clock=lambda: next(clock))
    progress.start(["a/x"] * 2, names=LONG)
    progress.advance("a/x")
    progress.note("a note")
    progress.advance("a/x")
    drawn = re.findall(r"\r\x1b\[K([^\r\n]+)", terminal.getvalue())
    lines = [line for line in drawn if line.startswith("[")]
    assert len(lines) == 2 and all(len(line) == width - 1 and line.endswith("…") for line in lines)
    assert "\r\x1b[Ka note\n" in terminal.getvalue()
    assert lines[1].startswith("[################] 2/2 samples")


def test_the_total_is_the_runs_and_never_changes() -> None:
    """10 planned: 4 are there, 4 are missing, 2 of which come later; one that is not needed counts as done, and is told."""
    clock = ticking(*map(float, range(0, 200, 20)))
    progress = TerminalProgress(pipe := io.StringIO(), clock=lambda: next(clock))
    progress.start(["a/x", "a/x", "a/x"], ["a/x", "a/x"], planned=10)
    progress.advance("a/x")
    progress.skip("a/x")
    progress.advance("a/x")
    lines = pipe.getvalue().splitlines()
    assert lines[0] == "5 of 10 samples to take, 2 of them in later processes"
    assert lines[1].startswith("6/10 samples, time left") and lines[2].startswith("8/10 samples (1 not needed), ")


def test_time_left_has_the_models_still_to_be_opened() -> None:
    """By hand: the first of 4 samples took 31 s, the others 1 s, so opening took 30 s; one more model and 4 samples: 34 s."""
    clock = ticking(0.0, 31.0, 32.0, 33.0, 34.0)
    progress = TerminalProgress(terminal := Terminal(), clock=lambda: next(clock))
    progress.start(["a/x"] * 4, ["a/x"] * 4, starts=2)
    for _ in range(4):
        progress.advance("a/x")
    assert "4/8 samples, about 34 s left" in terminal.getvalue()


def test_a_first_sample_that_compiles_says_nothing_of_the_next() -> None:
    """By hand: 3 samples of a/x at 2 s, 1 of a/y at 60 s. Left are 5 of a/y at a/x's 2 s, and 2 of b/z at the known 7 s."""
    clock = ticking(0.0, 2.0, 4.0, 6.0, 66.0)
    progress = TerminalProgress(terminal := Terminal(), clock=lambda: next(clock))
    progress.start(["a/x"] * 3 + ["a/y"] * 6 + ["b/z"] * 2, known_s={"b/z": 7.0})
    for case_id in ["a/x"] * 3 + ["a/y"]:
        progress.advance(case_id)
    assert "4/11 samples, about 24 s left" in terminal.getvalue()


def test_a_long_step_has_a_bar_and_leaves_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its share is told from within; the bar is drawn at once, and erased for the line with its time. A pipe has a line."""
    monkeypatch.setattr("harness.cli.progress.REDRAWN_EVERY_S", 0.001)
    progress = TerminalProgress(terminal := Terminal())
    with progress.step("loading the model"):
        tell_share(0.5)
        while "[########--------] loading the model" not in terminal.getvalue():
            pass
    assert re.search(r"\r\x1b\[Kloading the model: \d\.\d s\n$", terminal.getvalue())
    tell_share(0.9)  # nobody listens any more
    progress = TerminalProgress(pipe := io.StringIO())
    with progress.step("calibrating", 15.0):
        pass
    assert pipe.getvalue() == "calibrating (about 15 s)\n"
