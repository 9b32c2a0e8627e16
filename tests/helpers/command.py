"""The command line called in this process, or in one of its own."""

from __future__ import annotations

import csv
import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from harness import cli
from tests.helpers import ROOT


def sbd(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    """Run the command in this process; returns its exit code."""
    monkeypatch.setattr(sys, "argv", ["sbd", *arguments])
    with pytest.raises(SystemExit) as stopped:
        cli.main()
    code = stopped.value.code
    return code if isinstance(code, int) else 0


class Cli:
    """Runs a command in this process; ``out`` and ``err`` are what it printed.

    The first argument is a line as it is typed, split at blanks; what may hold blanks follows as arguments of its own.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self._monkeypatch, self._capsys = monkeypatch, capsys
        self.out = self.err = ""

    def __call__(self, line: str, *arguments: str) -> int:
        """Its exit code."""
        code = sbd(self._monkeypatch, *line.split(), *arguments)
        self.out, self.err = self._capsys.readouterr()
        return code

    def output(self, *arguments: str, code: int = 0) -> str:
        """What it prints; nothing on stderr."""
        assert self(*arguments) == code and self.err == "", self.err
        return self.out

    def answer(self, *arguments: str) -> Any:
        """Its JSON."""
        assert self(*arguments, "--json") == 0, self.err
        return json.loads(self.out)

    def refusal(self, *arguments: str, code: int = 2) -> str:
        """What it says on stderr, without a traceback and with stdout empty."""
        assert self(*arguments) == code and self.out == "" and "Traceback" not in self.err
        return self.err

    def rows(self, line: str) -> list[dict[str, str]]:
        """Its CSV, a dictionary a line."""
        return list(csv.DictReader(io.StringIO(self.output(f"{line} --csv"))))


class Terminal(io.StringIO):
    """A stream that says it is a terminal, without a descriptor."""

    def isatty(self) -> bool:
        """It is."""
        return True


def fake_runner(monkeypatch: pytest.MonkeyPatch, outcome: BaseException | Path) -> None:
    """Put a runner in place that returns or raises, so that no model is loaded."""

    def run(job: object, out: Path | None, progress: object, spawn: object) -> Path:
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    monkeypatch.setattr("harness.cli.run.run", run)


def sbd_process(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command in a process of its own, as a user would."""
    command = [sys.executable, "-m", "harness", *arguments]
    # Python's variables alone: readline, where something imports it, sets COLUMNS behind os.environ.
    return subprocess.run(command, env=dict(os.environ), capture_output=True, text=True, check=False, cwd=ROOT)
