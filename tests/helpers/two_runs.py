"""Pairs of synthetic runs that differ in one known thing, stored where a command finds them, and a pretended launcher."""

from __future__ import annotations

import json
import random
import re
import shlex
import uuid
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from harness.record.schema import Run, Sample
from harness.record.store import EVENTS, HEADER, SAMPLES
from tests.helpers.sealed_lines import chained
from tests.helpers.synthetic_run import NTP, Arm, Part, build

SBD = Arm(label="SBD k=16 γ=0.1", gamma=0.1, passes_per_block=4)
MORE_PASSES = Arm(label="SBD k=16 γ=0.1", gamma=0.1, passes_per_block=8)
"""The same arm by every name, one that needs four passes more per block."""


def two_arms(**changes: Any) -> Run:
    """NTP beside one SBD arm."""
    given: dict[str, Any] = {"arms": (NTP, SBD), "prompts": 4} | changes
    return build(Part(**given))


def slower(run: Run, factor: float, method: str = "", process: int | None = None) -> Run:
    """All times of the arms whose case id holds ``method`` multiplied."""

    def one(sample: Sample) -> Sample:
        if method not in sample.case_id or process not in (None, sample.process) or sample.decode_s is None:
            return sample
        passes = sample.passes
        timed = {name: [factor * s for s in times] for name in ("forward_s", "sampler_s") if (times := getattr(passes, name))}
        return sample.model_copy(
            update={
                "decode_s": factor * sample.decode_s,
                "prefill_s": factor * (sample.prefill_s or 0.0),
                "passes": passes.model_copy(update=timed),
            }
        )

    return run.model_copy(update={"samples": [one(sample) for sample in run.samples]})


def in_processes(run: Run, *factors: float) -> Run:
    """The run taken in as many fresh processes, each of them slower by its factor."""
    samples = [
        sample.model_copy(update={"process": number})
        for number, factor in enumerate(factors)
        for sample in slower(run, factor).samples
    ]
    return run.model_copy(update={"samples": samples})


def at_commit(run: Run, commit: str, dirty: bool = False) -> Run:
    """The run of that commit of sbd."""
    environment = run.header.environment | {"commit": commit, "commit_has_changes": dirty}
    return run.model_copy(update={"header": run.header.model_copy(update={"environment": environment})})


def stored(run: Run, directory: Path) -> Path:
    """The run as a directory."""
    events: list[dict[str, Any]] = [{"outcome": outcome.model_dump(mode="json")} for outcome in run.outcomes]
    events += [{"session": session} for session in run.sessions]
    directory.mkdir(parents=True)
    header = run.header.model_dump_json().encode()
    (directory / HEADER).write_bytes(header)
    (directory / SAMPLES).write_bytes(b"".join(chained((sample.model_dump_json() for sample in run.samples), header)))
    (directory / EVENTS).write_bytes(b"".join(chained(map(json.dumps, events), header)))
    return directory


def begun_now(run: Run, days: int = 0) -> Run:
    """The run as another process would have taken it at this moment, or so many days from it."""
    begun = datetime.now(UTC) + timedelta(days=days)
    now = {"run_id": uuid.uuid4().hex, "created_at": begun.isoformat(timespec="seconds")}
    return run.model_copy(update={"header": run.header.model_copy(update=now)})


class PretendedLauncher:
    """A Launcher of harness.regression.gate.revisions whose commands are ``measure WHAT {out}``: it stores what
    ``measured[WHAT]`` gives.

    ``measured[WHAT]`` is called with how often WHAT was launched before; it may give an exit status instead of a run.
    """

    def __init__(self, **measured: Callable[[int], Run | int]) -> None:
        self.measured = measured
        self.launched: list[str] = []

    def __call__(self, command: str, stdout: Path, stderr: Path) -> int:
        """Pretend to run it."""
        match = re.fullmatch(r"measure (\w+) (.+)", command)
        assert match, command
        what, out = match[1], Path(shlex.split(match[2])[0])
        number = self.launched.count(what)
        self.launched.append(what)
        found = self.measured[what](number)
        stdout.write_text("")
        stderr.write_text("" if isinstance(found, Run) else "Loading\nValueError: the disk is on fire\n")
        if isinstance(found, int):
            return found
        stored(begun_now(found), out)
        return 0


def noisy(run: Run, seed: str, sd: float = 0.003, factor: float = 1.0, method: str = "") -> Callable[[int], Run]:
    """The run anew at each call, every process as a whole slower or faster by ``sd`` (log), ``method`` by ``factor`` too."""

    def measured(number: int) -> Run:
        luck = random.Random(f"{seed}/{number}").lognormvariate(0, sd)
        return slower(slower(run, luck), factor, method)

    return measured
