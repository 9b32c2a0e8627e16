"""Runs a command of sbd in this process and says what no user is to meet: a traceback, a hang, a file where none belongs."""

from __future__ import annotations

import contextlib
import io
import os
import signal
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any

import typer

from harness.cli import app
from harness.errors import InvariantError, SbdError

LONGEST_CPU_S = 30
"""A hang has no end, so a slow machine is given time: at 5 s one that takes three times as long was taken for a hang."""
LONGEST_WALL_S = 120
"""For a wait that takes no time of the processor, on a machine that others use too."""
CHANGING = {
    *("os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.symlink", "os.link", "os.truncate", "os.chmod", "os.utime"),
    "shutil.rmtree",
}
_watching: list[tuple[Path, list[str]]] = []


class TookTooLong(BaseException):
    """The command has had all the time it may take; no ``except Exception`` is to keep it."""


@dataclass(frozen=True)
class Fault:
    """What went wrong: ``kind`` is the same for all that share one cause."""

    kind: str
    details: str


def fault_of(what: Sequence[str] | Callable[[], object], may_write: Path) -> Fault | None:
    """Run ``sbd what``, or call it; None where it ended as it may end, and changed nothing outside ``may_write``."""
    written: list[str] = []
    try:
        with _watched(may_write, written), _limited(), contextlib.ExitStack() as streams, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # on a terminal a warning is one, here pytest makes it an error
            for redirect in (contextlib.redirect_stdout, contextlib.redirect_stderr):
                streams.enter_context(redirect(io.TextIOWrapper(io.BytesIO(), encoding="utf-8", errors="strict")))
            if callable(what):
                what()
            else:
                _command().main(list(what), prog_name="sbd", standalone_mode=False)
    except InvariantError as error:
        return Fault(f"InvariantError {str(error)[:60]}", "".join(traceback.format_exception(error)))
    except SbdError as error:
        if not str(error).strip() or len(str(error)) > 20_000:
            return Fault(f"unreadable {type(error).__name__}", str(error)[:2000])
    except SystemExit:
        pass
    except TookTooLong as error:
        return Fault(f"hang {_own_frame(error)}", "".join(traceback.format_exception(error)[-12:]))
    except Exception as error:
        if type(error).__module__.partition(".")[0] in {"click", "typer"}:  # an exit code, or a refusal of its own
            return None
        return Fault(f"{type(error).__name__} {_own_frame(error)}", "".join(traceback.format_exception(error)[-14:])[-3000:])
    return Fault(f"wrote {written[0]}", "\n".join(written)) if written else None


@cache
def _command() -> Any:
    return typer.main.get_command(app)


def _own_frame(error: BaseException) -> str:
    """The innermost line of ours that the error passed through."""
    frames = [one for one in traceback.extract_tb(error.__traceback__) if f"{os.sep}harness{os.sep}" in one.filename]
    return f"{Path(frames[-1].filename).name}:{frames[-1].name}: {frames[-1].line}" if frames else "outside"


@contextlib.contextmanager
def _watched(may_write: Path, written: list[str]) -> Iterator[None]:
    _watching.append((may_write.resolve(), written))
    try:
        yield
    finally:
        _watching.pop()


def changed_paths(event: str, arguments: tuple[Any, ...]) -> Iterator[str]:
    """Whole paths of what an audited operation writes, makes, moves or removes."""
    paths: Sequence[Any] = ()
    if event == "open":
        path, mode, flags = arguments
        writes = flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT) if isinstance(flags, int) else "w" in (mode or "")
        paths = [path] if writes else []
    elif event in CHANGING:
        paths = arguments[1:] if event in {"os.symlink", "os.link"} else arguments
    for path in paths:
        if isinstance(path, str | bytes | os.PathLike):
            with contextlib.suppress(OSError):  # the working folder is gone
                yield os.path.abspath(os.fsdecode(path))


def _hook(event: str, arguments: tuple[Any, ...]) -> None:
    if not _watching:
        return
    allowed, written = _watching[-1]
    for path in map(Path, changed_paths(event, arguments)):
        if not (path.is_relative_to(allowed) or "__pycache__" in path.parts or path == Path(os.devnull)):
            written.append(f"{event} {path}")


sys.addaudithook(_hook)  # stays for the life of the process; asleep unless a command is watched


@contextlib.contextmanager
def _limited() -> Iterator[None]:
    def stop(number: int, frame: FrameType | None) -> None:
        raise TookTooLong(f"more than {LONGEST_CPU_S} s of processor time, or {LONGEST_WALL_S} s by the clock")

    before = {number: signal.signal(number, stop) for number in (signal.SIGVTALRM, signal.SIGALRM)}
    signal.setitimer(signal.ITIMER_VIRTUAL, LONGEST_CPU_S)
    signal.setitimer(signal.ITIMER_REAL, LONGEST_WALL_S)
    try:
        yield
    finally:
        for timer in (signal.ITIMER_VIRTUAL, signal.ITIMER_REAL):
            signal.setitimer(timer, 0)
        for number, handler in before.items():
            signal.signal(number, handler)
