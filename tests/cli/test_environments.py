"""Odd environments: whatever streams, folders and variables a command is started with, it ends as its answer says, in words.

One process of the system for each, of a command that costs little.
"""

from __future__ import annotations

import codecs
import json
import os
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from harness.cli.streams import ESCAPED, escaped
from tests.helpers import ROOT
from tests.helpers.odd_streams import closed, removed, unread

LONG = "n" * 300
FULL = Path("/dev/full")


def start(*arguments: str, **options: object) -> subprocess.CompletedProcess[bytes]:
    """Runs sbd; a variable of None is unset. No traceback and no fault of ours, whatever it is."""
    given: dict[str, object] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "cwd": ROOT} | options
    variables = {**os.environ, "PYTHONPATH": str(ROOT)} | dict(given.pop("env", {}))  # type: ignore[call-overload]
    given["env"] = {name: value for name, value in variables.items() if value is not None}
    ended = subprocess.run([sys.executable, "-m", "harness", *arguments], **given)  # type: ignore[call-overload]
    said = (ended.stderr or b"").decode() + (ended.stdout or b"").decode()
    assert "Traceback" not in said and "fault in sbd" not in said and "Exception ignored" not in said, said
    return ended  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("arguments", "before", "code"),
    [
        ("plan nosuch", partial(unread, 2), 2),
        ("plan nosuch", partial(unread, 1, 2), 2),
        ("plan nosuch", partial(closed, 2), 2),
        ("plan --help", partial(unread, 1, 2), 141),
        ("hardware", partial(unread, 1), 141),
        ("plan quickstart", partial(unread, 1), 141),
        ("verify reports/quickstart", partial(unread, 1), 141),
        ("hardware", partial(closed, 0, 1, 2), 0),
        ("history list", removed, 2),
    ],
)
def test_the_exit_code_is_the_same_whoever_listens(arguments: str, before: Callable[[], None], code: int) -> None:
    """A message that nobody can read leaves the code of the mistake; `sbd verify RUN | head` does not end with 1, a verdict."""
    assert start(*arguments.split(), preexec_fn=before).returncode == code


@pytest.mark.skipif(not FULL.exists(), reason="this system has no device that is always full")
@pytest.mark.parametrize("arguments", ["--version", "hardware"])
def test_output_that_cannot_be_written_is_no_verdict(arguments: str) -> None:
    """A full disk behind `>`: 5, with the remedy."""
    with FULL.open("wb") as full:
        ended = start(*arguments.split(), stdout=full)
    assert ended.returncode == 5 and b"standard output cannot be written (No space left" in ended.stderr


def test_letters_that_the_output_lacks_are_escaped() -> None:
    """JSON stays the same JSON in ASCII, letters of one byte included; a table is still printed."""
    ended, whole = (start("schema", env={"PYTHONIOENCODING": name, "PYTHONUTF8": "0"}) for name in ("ascii", "utf-8"))
    assert ended.returncode == whole.returncode == 0 and ended.stdout.isascii() and not whole.stdout.isascii()
    assert json.loads(ended.stdout) == json.loads(whole.stdout)
    codecs.register_error(ESCAPED, escaped)
    assert json.loads(b'"%s"' % "5 µs γ 😀".encode("ascii", ESCAPED)) == "5 µs γ 😀"


@pytest.mark.parametrize(
    ("variables", "arguments", "code"),
    [
        ({"XDG_DATA_HOME": f"/tmp/{LONG}"}, "hardware", 2),
        ({"XDG_DATA_HOME": "/proc/nosuch"}, "noise --show", 0),
        (
            {"HOME": None, "XDG_DATA_HOME": None, "TMPDIR": "/nosuch", "TZ": "x/:", "TERM": "\x1b", "COLUMNS": "-1"},
            "hardware",
            0,
        ),
        ({"COLUMNS": "1" + 30 * "0", "TERM": "dumb", "RANK": "x", "PATH": ""}, "hardware", 0),
        ({}, f"plan {LONG}", 2),
        ({}, f"verify {LONG}", 5),
        ({}, "history list --db sqlite:///a%00b", 2),
        ({}, "history list --db ~nosuchuser/x", 2),
        ({"SBD_HISTORY": "postgresql://u@h:abc/x"}, "history list", 2),
    ],
)
def test_odd_variables_and_names_are_told_or_endured(variables: dict[str, str], arguments: str, code: int) -> None:
    """A name that the system refuses is named in the message."""
    assert start(*arguments.split(), env=variables).returncode == code
