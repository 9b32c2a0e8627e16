"""Measures two revisions in pairs on this machine, each time in a fresh process, in the random order of ``pair_order``.

Drift of the machine then affects both sides alike. Each command leaves a run directory in a work folder, and the same call
continues where it was stopped:

    gate.json                     the two commands and the seed of the order
    pair-01/base, pair-01/new     run directories, with what their commands printed beside them
    pair-01/base.json             written once the command has ended well: its run counts; says which of the pair it was
    rerun-01/...                  the pairs that confirm a suspicion
    void-pair-01-1/...            a pair that was taken again in its own place
    judgements.json               the answer; a folder that has it is finished
    .lock                         held by the one gate that measures here, and names it

Each command has its own process group, and nothing of it keeps running when this program is stopped or killed.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import math
import os
import secrets
import shlex
import socket
import time
from collections.abc import Collection, Mapping, Sequence
from itertools import count
from pathlib import Path
from statistics import fmean
from typing import Literal

from harness.errors import EXIT_TOOL_ERROR, EXIT_USER_ERROR, ProcessEndedError, RecordError, UserError
from harness.frozen import frozen
from harness.processes.kept import Launcher, launch
from harness.progress import Progress
from harness.record.regular_file import open_regular, read_regular, refused, write_whole
from harness.record.same import checkout_of
from harness.record.schema import Run
from harness.record.store import read_on_one_machine
from harness.regression.comparability import refuse_unlike, shared_prompts
from harness.regression.counted import counted
from harness.regression.gate.counts import CountedPair, judge_counted_pairs
from harness.regression.gate.procedure import PairOrder, PairStage
from harness.regression.metrics import CellMetric
from harness.regression.timed import log_ratios, processes_of

MOST_VOID_PAIRS = 3
"""Most pairs taken again because the machine's state left a metric without a time; later ones go to the gate as void."""


class CountChangedError(Exception):
    """A counted figure differs in a pair: the gate has failed, and measuring stops."""


class Pairs:
    """Yields the pairs of both stages in order; pairs without a time are taken again in their own place.

    ``base`` and ``new``: the first pair. ``counting``: keep the counts of every pair taken, those without times included.
    """

    def __init__(self, revisions: Revisions, allow: Collection[str], progress: Progress, counting: bool) -> None:
        self._revisions, self._allow, self._progress, self._counting = revisions, allow, progress, counting
        self._taken: dict[PairStage, int] = {"pair": 0, "rerun": 0}
        self._counted: dict[tuple[str, int], CountedPair] = {}
        progress.start(revisions.missing("pair", range(1, 2)))
        self.base, self.new = revisions.pair("pair", 1)

    @property
    def counted(self) -> tuple[CountedPair, ...]:
        """Every pair whose counts were seen."""
        return tuple(self._counted.values())

    def take(self, stage: PairStage, count: int, metrics: Sequence[CellMetric], why: str) -> dict[str, list[float]]:
        """d = log(NEW / BASE) of the next ``count`` pairs, by metric key; NaN where a metric has no time in a pair.

        Raises:
            UserError: a pair was measured under other circumstances than the first.
            CountChangedError: its counts differ.
        """
        first = self._taken[stage] + 1
        self._progress.note(why)
        self._progress.start(self._revisions.missing(stage, range(first, first + count)))
        rows = [self._pair(stage, number, metrics) for number in range(first, first + count)]
        self._taken[stage] += count
        return {metric.key: [row[metric.key] for row in rows] for metric in metrics}

    def count(self, name: str, base: Run, new: Run) -> None:
        """Keep the counts of this pair. Raises: CountChangedError."""
        left, right = shared_prompts(base, new)
        self._counted[name, self._revisions.taken_again] = CountedPair(name, counted(left), counted(right))
        if any(judged.state == "missed" for judged in judge_counted_pairs(self.counted, ())):
            self._progress.note(f"what is counted differs in {name}: the gate has failed")
            raise CountChangedError

    def _pair(self, stage: PairStage, number: int, metrics: Sequence[CellMetric]) -> dict[str, float]:
        """d of one pair by metric key; NaN where it is absent after repeats."""
        name = f"{stage} {number}"
        while True:
            base, new = self._revisions.pair(stage, number)
            refuse_unlike(self.base, [base, new], self._allow, ("the first pair", f"BASE of {name}", f"NEW of {name}"))
            if self._counting:
                self.count(name, base, new)
            of_base, of_new = processes_of(base), processes_of(new)
            ratios = {metric.key: log_ratios(metric, of_base, of_new) for metric in metrics}
            missing = [f"{key}: {reason}" for key, reason in ratios.items() if isinstance(reason, str)]
            if not missing or self._revisions.taken_again >= MOST_VOID_PAIRS:
                # the mean over processes where the scenario itself has several
                return {key: math.nan if isinstance(values, str) else fmean(values) for key, values in ratios.items()}
            self._progress.note(f"{name} is taken again: {'; '.join(missing)}")
            self._revisions.take_again(stage, number)


Side = Literal["base", "new"]
OUT = "{out}"
LAST_LINES = 8
COMMANDS, ANSWER, LOCK = "gate.json", "judgements.json", ".lock"
VERSION = 2
"""Of gate.json. 1 has no seed: BASE first in odd pairs, NEW first in even ones."""
NOT_FOUND = 127
"""Exit status of a shell that knows no such command."""


@frozen
class RevisionCommands:
    """A shell command per side; ``{out}`` in it is replaced by the run directory that it must leave.

    Raises:
        UserError: one has no ``{out}``.
    """

    base: str
    new: str

    def __post_init__(self) -> None:
        for side, command in (("base", self.base), ("new", self.new)):
            if OUT not in command:
                raise UserError(
                    f"--{side}-cmd {command!r}: has no {OUT}, so nobody knows where it leaves its run; write for example "
                    f"'cd ../{side} && sbd run gate --out {OUT} --no-report'"
                )


def default_work(commands: RevisionCommands) -> Path:
    """reports/gate-<digest of the commands>-<n>: the newest where it is unfinished, else the next."""
    digest = hashlib.sha256(f"{commands.base}\n{commands.new}".encode()).hexdigest()[:8]
    folders = (Path("reports") / f"gate-{digest}-{number}" for number in count(1))
    return next(folder for folder in folders if not (folder / ANSWER).exists())


class Revisions:
    """The work folder and the commands that fill it."""

    def __init__(
        self,
        commands: RevisionCommands,
        work: Path,
        progress: Progress,
        launcher: Launcher | None = None,
        seed: int | None = None,
    ) -> None:
        """Begin in ``work``, or continue there; ``seed`` of the order of a new gate, by default drawn.

        Raises:
            UserError: it holds a finished gate, or one of other commands, or another process measures there.
            StorageError: it cannot be written.
        """
        self._commands, self.work, self._progress = commands, work, progress
        self._launch = launcher or launch
        self._seen: dict[Side, tuple[str | None, Path]] = {}
        self._fresh: set[Side] = set()
        self._handed: dict[object, tuple[Side, Path]] = {}
        self.order = self._open(secrets.randbits(32) if seed is None else seed)

    def pair(self, stage: PairStage, number: int) -> tuple[Run, Run]:
        """The runs of BASE and of NEW of one pair, from 1, taken in its order. Existing runs are read, not repeated.

        Raises:
            ProcessEndedError: a command failed. UserError: it left no run, or its revision changed since the kept pairs.
        """
        order, folder = self._sides(stage, number), self._folder(stage, number)
        runs = {side: self._run(side, folder, place) for place, side in enumerate(order, start=1)}
        return runs["base"], runs["new"]

    def take_again(self, stage: PairStage, number: int) -> None:
        """Set a pair aside, so that it is measured anew in its own place and order."""
        folder = self._folder(stage, number)
        folder.rename(self.work / f"void-{folder.name}-{len([*self.work.glob(f'void-{folder.name}-*')]) + 1}")

    @property
    def taken_again(self) -> int:
        """How many pairs were set aside so far, in this call or an earlier one."""
        return len([*self.work.glob("void-*")])

    def missing(self, stage: PairStage, numbers: range) -> list[Side]:
        """The processes of these pairs that are still to be run, in their order."""
        return [
            side
            for number in numbers
            for side in self._sides(stage, number)
            if not _marker(self._folder(stage, number), side).exists()
        ]

    def finish(self, answer: Mapping[str, object]) -> None:
        """Write the answer to the work folder, which is then finished."""
        write_whole(self.work / ANSWER, json.dumps(answer, indent=1, ensure_ascii=False).encode())

    def _sides(self, stage: PairStage, number: int) -> tuple[Side, Side]:
        return ("base", "new") if self.order.base_first(stage, number) else ("new", "base")

    def _folder(self, stage: PairStage, number: int) -> Path:
        return self.work / f"{stage}-{number:02d}"

    def _open(self, seed: int) -> PairOrder:
        commands = {"base_cmd": self._commands.base, "new_cmd": self._commands.new}
        given = {"version": VERSION, **commands, "seed": seed}
        file = self.work / COMMANDS
        try:
            self.work.mkdir(parents=True, exist_ok=True)
            _lock(self.work / LOCK)
            if not file.exists():
                write_whole(file, json.dumps(given, indent=1).encode())
            begun = json.loads(read_regular(file, 2**20))
            known = begun["version"] in range(1, VERSION + 1)
            same, order = {name: begun[name] for name in commands} == commands, PairOrder(begun.get("seed"))
        except OSError as error:
            raise refused(self.work, error) from error
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise RecordError(f"{file}: cannot be read ({error!r}); give another --work") from error
        if not known:
            raise RecordError(f"{file}: format version {begun['version']} is not of this program; give another --work")
        if not same:
            raise UserError(f"{self.work}: was begun with other commands; give another --work, or the commands in {file}")
        if (self.work / ANSWER).exists():
            raise UserError(f"{self.work}: this gate is finished, its answer is in {self.work / ANSWER}; give another --work")
        return order

    def _run(self, side: Side, folder: Path, place: int) -> Run:
        kept = _marker(folder, side).exists()
        if not kept:
            self._execute(side, folder, place)
        run = self._read(side, folder / side)
        self._refuse_changed(side, run, folder / side, kept)
        return run

    def _execute(self, side: Side, folder: Path, place: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        out = folder / side
        _set_aside(out)
        command = getattr(self._commands, side).replace(OUT, shlex.quote(str(out.resolve())))
        stderr, started_s = folder / f"{side}.stderr", time.monotonic()
        status = self._launch(command, folder / f"{side}.stdout", stderr)
        if status != 0:
            raise _failure(side, command, status, stderr)
        self._read(side, out)
        done = {"command": command, "wall_s": time.monotonic() - started_s, "place": place}
        write_whole(_marker(folder, side), json.dumps(done, indent=1).encode())
        self._progress.advance(side)

    def _read(self, side: Side, out: Path) -> Run:
        """A run that is none of the other side's."""
        try:
            run = read_on_one_machine(out)
        except RecordError as error:
            if out.exists():
                raise
            raise UserError(
                f"--{side}-cmd ended well but left no run in {out}; it must write its run directory where {OUT} stands "
                f"(sbd run FILE --out {OUT})"
            ) from error
        if run.seal is not None and run.seal.state == "broken":
            raise UserError(
                f"--{side}-cmd left a record in {out} whose seal is broken ({run.seal.reason}); a gate compares records as "
                "their runs wrote them: measure again"
            )
        known = run.header.run_id, run.samples[0].model_dump_json() if run.samples else ""
        whose, first = self._handed.setdefault(known, (side, out))
        if whose != side:
            raise UserError(
                f"--{side}-cmd handed back the record of {whose.upper()} in {first} (run {run.header.run_id}) as {out}; each "
                f"command must measure its own revision and leave that run at {OUT}"
            )
        return run

    def _refuse_changed(self, side: Side, run: Run, out: Path, kept: bool) -> None:
        """Kept and new pairs must name the same commit: two states of one revision must not be mixed."""
        checkout = checkout_of(run.header.environment)
        commit = checkout.get("commit")
        before, where = self._seen.setdefault(side, (commit, out))
        if commit != before:
            raise UserError(
                f"{out}: {side.upper()} is at commit {commit}, in {where} it was at {before}; the pairs of one gate are of one "
                "commit: go back to it, or begin anew with another --work"
            )
        if not kept and side not in self._fresh:
            self._fresh.add(side)
            if where != out and checkout.get("commit_has_changes"):
                self._progress.note(f"{side.upper()} has uncommitted changes; they are taken to be those of the kept pairs")


def _lock(file: Path) -> None:
    """Lock out other processes for the life of this one; its children do not hold the lock.

    Raises:
        UserError: another process holds it.
    """
    descriptor = open_regular(file, os.O_RDWR | os.O_CREAT)
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError) as error:  # POSIX allows either
        with os.fdopen(descriptor, errors="replace") as locked:
            holder = locked.read(200).strip()
        raise UserError(
            f"{file.parent}: another gate measures here ({holder}); wait for it, end it, or give another --work"
        ) from error
    os.ftruncate(descriptor, 0)
    os.write(descriptor, f"process {os.getpid()} on {socket.gethostname()}\n".encode())


def _marker(folder: Path, side: Side) -> Path:
    return folder / f"{side}.json"


def _set_aside(out: Path) -> None:
    """An interrupted run is kept aside and not continued, because its process would not be a fresh one."""
    if out.exists():
        places = (out.with_name(f"{out.name}.interrupted-{number}") for number in count(1))
        out.rename(next(place for place in places if not place.exists()))


def _failure(side: Side, command: str, status: int, stderr: Path) -> ProcessEndedError:
    """An unknown command, or one that reports a user error, is a user error; others are not."""
    lines = read_regular(stderr, 2**22)[-4000:].decode(errors="replace").strip().splitlines()[-LAST_LINES:]
    last_words = "\n".join(f"  {line}" for line in lines) or "  (it printed nothing to stderr)"
    return ProcessEndedError(
        f"--{side}-cmd ended with exit status {status}: {command}\n{last_words}\nall of it is in {stderr}; mend it and give "
        "the same call again, what was measured is kept",
        EXIT_USER_ERROR if status in (NOT_FOUND, EXIT_USER_ERROR) else EXIT_TOOL_ERROR,
    )
