"""sbd with one fault, once, at a decode or a write chosen beforehand: what a run over a cluster must survive.

    SBD_PLANTED='{"fault": "worker", "at": 7, "mark": "/tmp/trial/mark"}' \\
      python -m benchmarks.planted.faults run FILE --on ray --out DIR

worker   the process that decodes is killed (kill -9), at its ``at``-th decode
raylet   the Ray process of its node is
driver   the process that keeps the record is
oom      torch says that memory ran out
hang     the decode does not end
enospc   the disk is full in the middle of the ``at``-th line of the record
none     nothing breaks

``mark`` is a file that is made where the fault happens; while it is there, no other one does. With ``"engine": "pretended"``
the decodes are arithmetic on prompt and seed instead of a model's, so that a process of a node starts in a second.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import repeat
from pathlib import Path
from typing import Any

from harness.errors import DoesNotFitError
from harness.models.choice import shape_of
from harness.record import journal
from harness.record.decode import Decoded
from harness.record.trace import ForwardPass, Generation
from harness.runner.cluster import ray_cluster
from harness.runner.job import machine_here
from harness.runner.protocols import Machine
from harness.scenario.part import Part
from harness.scenario.plan import Case

FAULTS = ("worker", "raylet", "driver", "oom", "hang", "enospc")
VARIABLE = "SBD_PLANTED"
FOR_EVER_S = 3600
NOT_STRUCK = ("none", "enospc")
"""Faults that no engine has a part in."""


class PretendedEngine:
    """Writes what a digest of prompt, seed and arm says, one token a pass; knows no model."""

    tokenizer = None
    meters: dict[str, Any] | None = None

    def __init__(self, part: Part) -> None:
        shape, _ = shape_of(part.model)
        assert shape is not None
        self.shape = shape

    def fingerprint(self, part: Part) -> dict[str, Any]:
        """That it is none."""
        return {"pretended": True}

    def measure_passes(self, block_sizes: Sequence[int], beside: Sequence[Any] = ()) -> list[Decoded]:
        """Nothing."""
        return []

    def decode(self, case: Case, prompts: Sequence[tuple[int, ...]], seed: int) -> Decoded:
        """The same for the same, everywhere."""
        count, rows = case.workload.max_new_tokens, len(prompts)
        digests = [hashlib.sha256(repr((prompt, seed, case.case_id)).encode()).digest() for prompt in prompts]
        ones, before = (1,) * rows, [0] + [len(prompts[0]) + i for i in range(count)]
        passes = tuple(
            ForwardPass(
                role="decide" if i else "prefill",
                query_tokens=ones,
                context_tokens=(before[i],) * rows,
                logit_tokens=ones,
                kept_tokens=ones,
                decided_tokens=ones,
                final_tokens=ones,
                active=(True,) * rows,
                padded_query=1,
                padded_context=before[i],
            )
            for i in range(count)
        )
        return Decoded(
            generation=Generation(
                passes=passes,
                prompt_tokens=tuple(map(len, prompts)),
                output_ids=tuple(tuple(digest[i % 32] % self.shape.vocab for i in range(count)) for digest in digests),
                stop_reasons=tuple(repeat("length", rows)),
            ),
            prefill_s=0.0,
            decode_s=0.0,
            forward_s=None,
            sampler_s=None,
            readings=None,
        )


def pretended_machine() -> Machine:
    """One that knows no torch."""
    return Machine(
        open_engine=PretendedEngine,
        calibrate=lambda part, shape, progress, known: None,
        free_bytes=lambda part: None,
        profile=lambda scenario: (None, "a pretended machine"),
        execution=lambda part: "eager",
        shape=lambda part: PretendedEngine(part).shape,
    )


class PlantedEngine:
    """A real engine, of whose decodes one ends otherwise."""

    def __init__(self, engine: Any, spec: dict[str, Any]) -> None:
        self._engine = engine
        self._spec = spec
        self._decodes = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def decode(self, *arguments: Any) -> Any:
        """The fault comes after the work: what was decoded is done, and not kept yet."""
        self._decodes += 1
        if self._decodes < self._spec["at"] or not first_to(self._spec["mark"]):
            return self._engine.decode(*arguments)
        if self._spec["fault"] == "oom":
            if isinstance(self._engine, PretendedEngine):
                raise DoesNotFitError("out of memory on cpu: planted")
            return self._out_of_memory(*arguments)
        decoded = self._engine.decode(*arguments)
        self._strike()
        return decoded

    def _out_of_memory(self, *arguments: Any) -> Any:
        """As torch does it, under the engine's own hands."""
        import torch

        def full(*_: Any) -> Any:
            raise torch.OutOfMemoryError("planted: tried to allocate 1.00 TiB")

        whole, self._engine._timed = self._engine._timed, full
        try:
            return self._engine.decode(*arguments)
        finally:
            self._engine._timed = whole

    def _strike(self) -> None:
        victims = {"worker": os.getpid(), "raylet": os.getppid(), "driver": self._spec["driver"]}
        if self._spec["fault"] in victims:
            os.kill(victims[self._spec["fault"]], signal.SIGKILL)
        time.sleep(FOR_EVER_S)


def first_to(mark: str) -> bool:
    """Whether nobody was here before."""
    try:
        os.close(os.open(mark, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
    except FileExistsError:
        return False
    return True


def machine(spec: dict[str, Any]) -> Machine:
    """A node's own, with engines that are planted with the fault."""
    real = pretended_machine() if spec.get("engine") == "pretended" else machine_here()
    if spec["fault"] in NOT_STRUCK:
        return real
    return replace(real, open_engine=lambda part: PlantedEngine(real.open_engine(part), spec))


class FullDisk:
    """The module os as the journal sees it: in the middle of the chosen line there is no room left."""

    def __init__(self, spec: dict[str, Any]) -> None:
        self._spec = spec
        self._lines = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    def write(self, descriptor: int, data: Any) -> int:
        """Half of it is written, then nothing goes."""
        self._lines += 1
        if self._lines != self._spec["at"] or not first_to(self._spec["mark"]):
            return os.write(descriptor, data)
        os.write(descriptor, data[: len(data) // 2])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def plant(spec: dict[str, Any]) -> None:
    """Into this process, which is to play `sbd run --on ray`."""
    if spec["fault"] == "enospc":
        vars(journal)["os"] = FullDisk(spec)
    real = ray_cluster.RayCluster
    here: Callable[[], Machine] = partial(machine, spec | {"driver": os.getpid()})
    vars(ray_cluster)["RayCluster"] = partial(real, machine=here)


if __name__ == "__main__":
    # By its own name, so that a node finds what it is sent; the fault is in the module that has it.
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
    from benchmarks.planted import faults
    from harness.cli import main

    faults.plant(json.loads(os.environ[VARIABLE]))
    main()
