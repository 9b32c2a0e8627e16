"""The sbd commands of a shell script, and what the program says to one that it cannot read."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import typer

from harness.cli import app
from harness.errors import EXIT_USER_ERROR


def commands(script: str) -> Iterator[tuple[str, ...]]:
    """The words of every sbd command in a shell script, those inside a quoted command (--base-cmd) included."""
    for whole in script.replace("\\\n", " ").splitlines():
        lexer = shlex.shlex(whole, posix=True, punctuation_chars=True)
        lexer.whitespace_split = True
        words, command = [*lexer, ";"], list[str]()
        for word in words:
            if re.fullmatch("[;&|()]+", word):
                if command and Path(command[0]).name == "sbd":
                    yield tuple(command[1:])
                command = []
            else:
                command.append(word)
        for option, value in pairwise(words):
            if option in ("--base-cmd", "--new-cmd"):
                yield from commands(value)


def refusal(words: tuple[str, ...]) -> str | None:
    """What the program says to a line that it cannot read, or None. What commands do is taken out of them: nothing is run."""
    root = typer.main.get_command(app)
    _hollow(root)
    try:
        root.main(list(words), prog_name="sbd", standalone_mode=False)
    except Exception as error:
        if getattr(error, "exit_code", None) != EXIT_USER_ERROR:
            raise
        return str(error)
    return None


def _hollow(command: Any) -> None:
    for name in getattr(command, "commands", ()):
        _hollow(command.get_command(None, name))
    if not hasattr(command, "commands"):
        command.callback = lambda **_: None
