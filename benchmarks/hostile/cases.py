"""What a case is, and a child process in which one command of it runs."""

from __future__ import annotations

import contextlib
import io
import os
import resource
import select
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.helpers.watched_command import changed_paths

COUNTERS = ("lost", "tracebacks", "hangs", "wrong_verdicts", "code_run", "injected", "untold", "memory")
DOCUMENTED = frozenset({0, 1, 2, 3, 4, 5, 130, 141})
REFUSED = frozenset({2})
UNREADABLE = frozenset({2, 5})
LIMIT_S, MODEL_LIMIT_S = 30.0, 90.0
MEMORY_BYTES = 6 << 30
ALLOWED_GB = 1.0
"""Resident memory that the handling of a case may take."""
SECRET = "a file of the user, hstl-secret\n"
"""Contents of the file ``mine.txt`` beside every case's folder: never changed, never copied."""
LOOPBACK = ("127.0.0.1", b"127.0.0.1")
_watched: list[tuple[str, int, frozenset[int]]] = []


@dataclass(frozen=True, kw_only=True)
class Ended:
    """How a command ended; ``code`` is negative where a signal ended it.

    ``peak_gb``: the largest resident memory of its process, or of one that it waited for. A forked child begins with what its
    parent holds, the imported libraries, which an interpreter of its own would hold too.
    """

    code: int
    out: str
    err: str
    hung: bool
    peak_gb: float = 0.0


@dataclass
class Place:
    """The folder of one case: commands run in ``here``; ``mine`` and ``canary`` lie outside it.

    ``ports``: of the loopback, which commands are asked to reach. ``peak_gb``: the largest of its commands.
    """

    root: Path
    findings: list[tuple[str, str]] = field(default_factory=list)
    ports: frozenset[int] = frozenset()
    peak_gb: float = 0.0

    def __post_init__(self) -> None:
        self.here, self.mine, self.canary = self.root / "here", self.root / "mine.txt", self.root / "canary"
        (self.here / "home").mkdir(parents=True)
        self.mine.write_text(SECRET)

    def found(self, counter: str, text: str) -> None:
        """One failure of this case."""
        assert counter in COUNTERS
        self.findings.append((counter, text.replace(f"{self.root}/", "")))

    def sbd(
        self,
        *arguments: str | Path,
        exits: frozenset[int] = DOCUMENTED,
        names: str = "",
        setup: Callable[[], object] | None = None,
        variables: Mapping[str, str] | None = None,
        encoding: str = "utf-8",
        limit_s: float = LIMIT_S,
        kill_after_s: float | None = None,
    ) -> Ended:
        """Run a command in a child and judge what holds for every one.

        ``exits``: codes that fit. ``names``: text that a refusal (2 or 5) contains. ``setup``: called in the child before.
        ``kill_after_s``: SIGKILL at that time; then nothing is judged.
        """
        words = [str(one) for one in arguments]
        given = {"HOME": str(self.here / "home"), "TMPDIR": str(self.here), "COLUMNS": "120"} | dict(variables or {})
        ended = self._forked(words, given, encoding, setup, kill_after_s or limit_s)
        self.peak_gb = max(self.peak_gb, ended.peak_gb)
        if kill_after_s is None:
            self.judge(f"sbd {' '.join(words)}"[:300], ended, exits, names)
        return ended

    def judge(self, command: str, ended: Ended, exits: frozenset[int], names: str = "") -> None:
        """What holds for every command, into the findings."""
        said = ended.err.strip().splitlines()[-1][:300] if ended.err.strip() else ""
        if ended.hung:
            self.found("hangs", command)
        elif "Traceback (most recent" in ended.out + ended.err or "a fault in sbd" in ended.err or ended.code not in DOCUMENTED:
            self.found("tracebacks", f"{command}: {ended.code}: {said}")
        elif "No such option" in ended.err:
            self.found("untold", f"{command}: the benchmark's own call is wrong: {said}")
        elif ended.code not in exits:
            self.found("untold", f"{command}: ended with {ended.code}, fitting are {sorted(exits)}: {said}")
        elif names and ended.code in UNREADABLE and names not in " ".join(ended.err.split()):
            self.found("untold", f"{command}: the refusal does not say {names!r}: {said}")
        for line in (self.root / "watch").read_text(errors="replace").splitlines()[:1]:
            self.found("code_run" if line.startswith("socket") else "lost", f"{command}: {line}")

    def close(self) -> None:
        """Judge what holds at the end of every case."""
        if self.canary.exists():
            self.found("code_run", f"the canary is there: {self.canary.read_text(errors='replace')[:80]!r}")
        if self.mine.is_symlink() or not self.mine.is_file() or self.mine.read_text() != SECRET:
            self.found("lost", "the user's file was changed")

    def _forked(
        self, words: list[str], variables: dict[str, str], encoding: str, setup: Callable[[], object] | None, limit_s: float
    ) -> Ended:
        pipes = [os.pipe() for _ in range(2)]  # a limit on the size of files is not one on what is said
        child = os.fork()
        if child == 0:
            code = 70
            try:
                os.setsid()
                watch = os.open(self.root / "watch", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
                for descriptor, (reading, writing) in enumerate(pipes, start=1):
                    os.dup2(writing, descriptor)
                    os.close(reading)
                    os.close(writing)
                os.environ.update(variables)
                tempfile.tempdir = None  # else the parent's
                os.chdir(self.here)
                resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
                _watched.append((str(self.root.resolve() / "here"), watch, self.ports))
                code = _command(words, encoding, setup)
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(code)
        for _, writing in pipes:
            os.close(writing)
        said = {reading: bytearray() for reading, _ in pipes}
        status, hung, peak_gb = waited(child, limit_s, said)
        out, err = (bytes(one).decode(errors="replace") for one in said.values())
        return Ended(code=os.waitstatus_to_exitcode(status), out=out, err=err, hung=hung, peak_gb=peak_gb)


@dataclass(frozen=True)
class Case:
    """``what`` is wrong, in a line, and what is done about it."""

    what: str
    act: Callable[[Place], object]


def waited(child: int, limit_s: float, said: dict[int, bytearray]) -> tuple[int, bool, float]:
    """The status of the child, whether it had to be ended, and its peak memory in GB; no process of its session stays.

    Reads and closes ``said``.
    """
    end, hung = time.monotonic() + limit_s, False
    while not (found := os.wait4(child, os.WNOHANG))[0]:
        if time.monotonic() > end and not hung:
            hung = True
            os.kill(child, signal.SIGKILL)
        _heard(said, 0.02)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child, signal.SIGKILL)
    while _heard(said, 0):
        pass
    for one in said:
        os.close(one)
    return found[1], hung, found[2].ru_maxrss * 1024 / 1e9


def _heard(said: dict[int, bytearray], longest_s: float) -> bool:
    """Whether the child said something more; waits that long for it, also where its streams are closed."""
    ready = select.select(list(said), [], [], longest_s)[0]
    more = {one: os.read(one, 1 << 16) for one in ready}
    for one, data in more.items():
        said[one] += data
    if ready and not any(more.values()):
        time.sleep(longest_s)
    return any(more.values())


def _command(words: list[str], encoding: str, setup: Callable[[], object] | None) -> int:
    """As the installed script and the end of the interpreter do it."""
    from harness.cli import main

    sys.argv = ["sbd", *words]
    warnings.simplefilter("default")  # as a user has it, whatever a test turns into errors
    sys.stdin = open(os.devnull)  # noqa: SIM115
    if setup is not None:
        setup()
    sys.stdout = sys.__stdout__ = _text(1, encoding, "strict")  # type: ignore[misc]
    sys.stderr = sys.__stderr__ = _text(2, encoding, "backslashreplace")  # type: ignore[misc]
    try:
        main()
        code: Any = 0
    except SystemExit as end:
        code = end.code
        if isinstance(code, str):
            code = 1
    except BaseException:
        traceback.print_exc()
        code = 1
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None:
                stream.flush()
        except (OSError, ValueError):
            code = 120  # as the interpreter ends then
    return int(code or 0)


def _text(descriptor: int, encoding: str, errors: str) -> Any:
    """The stream of a descriptor; None where it is closed, as the interpreter begins."""
    try:
        os.fstat(descriptor)
    except OSError:
        return None
    file = io.BufferedWriter(io.FileIO(descriptor, "w", closefd=False))
    return io.TextIOWrapper(file, encoding=encoding, errors=errors, line_buffering=descriptor == 2)


def _hook(event: str, arguments: tuple[Any, ...]) -> None:
    """Tell of connections, and of writes outside the case's folder."""
    if not _watched:
        return
    if event in {"socket.connect", "socket.getaddrinfo"}:
        address = arguments[1] if event == "socket.connect" else arguments[:2]
        allowed = isinstance(address, str) or (address[0] in LOOPBACK and address[1] in _watched[-1][2])
        if not allowed:
            os.write(_watched[-1][1], f"{event} {arguments[1:]!r}\n".encode())
        return
    for path in changed_paths(event, arguments):
        if not _may_write(path, _watched[-1][0]):
            os.write(_watched[-1][1], f"{event} {path}\n".encode(errors="replace"))


def _may_write(path: str, here: str) -> bool:
    """Inside the case's folder, the cache of bytecode, or what the system gives for that."""
    return path.startswith((here, "/dev/", "/proc/")) or "__pycache__" in path


def watch() -> None:
    """Install the watch in this process and its children; asleep but in a command's child."""
    sys.addaudithook(_hook)


@contextlib.contextmanager
def judged(case: Case, root: Path) -> Iterator[Place]:
    """The place of a case, with its findings complete at the end; a case that breaks is a fault of the benchmark."""
    place, before = Place(root), _waited_for_gb()
    case.act(place)
    place.close()
    after = _waited_for_gb()
    place.peak_gb = max(place.peak_gb, after if after > before else 0.0)
    if place.peak_gb > ALLOWED_GB:
        place.found("memory", f"{place.peak_gb:.2f} GB")
    yield place


def _waited_for_gb() -> float:
    """The largest of all children of this process so far, interpreters of their own among them."""
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024 / 1e9
