"""An engine whose model is split over ranks: rank 0 belongs to the runner, the others follow its orders."""

from __future__ import annotations

import os
import signal
import time
import traceback
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NoReturn, TextIO

import torch

from harness.engine.engine import LocalEngine, open_engine
from harness.engine.rank_group import LOST_S, RankGroup, RankOrder, is_lost, joined
from harness.errors import EXIT_TOOL_ERROR, InvariantError, SbdError, ScenarioError, UserError
from harness.formatting import each_line
from harness.models.digests import model_digests
from harness.record.decode import Decoded
from harness.scenario.part import Beside, Part
from harness.scenario.plan import Case

GRACE_S = 20.0
"""How long a rank that failed waits for rank 0 to report it."""


@dataclass
class SplitEngine:
    """Rank 0's engine; every other rank has one too, and makes the same calls at the same time."""

    _engine: LocalEngine
    _group: RankGroup

    def __post_init__(self) -> None:
        self.shape, self.tokenizer, self.meters = self._engine.shape, self._engine.tokenizer, self._engine.meters

    def fingerprint(self, part: Part) -> dict[str, object]:
        """As the engine's, for this rank's share of the heads; with the ranks and the backend of the split."""
        backend = "nccl" if part.device.startswith("cuda") else "gloo"
        ranks = {"processes": self._group.ranks.world, "backend": backend}
        return self._engine.fingerprint(part) | {"tensor_parallel": ranks}

    def measure_passes(self, block_sizes: Sequence[int], beside: Sequence[tuple[Beside, int]]) -> list[Decoded]:
        """As the engine's, by all ranks."""
        order = RankOrder("measure_passes", (tuple(block_sizes), tuple(beside)))
        return self._group.lead(order, lambda: self._engine.measure_passes(block_sizes, beside))

    def decode(self, case: Case, prompts: Sequence[tuple[int, ...]], seed: int) -> Decoded:
        """As the engine's, by all ranks."""
        order = RankOrder("decode", (case, tuple(prompts), seed))
        return self._group.lead(order, lambda: self._engine.decode(case, prompts, seed))


def open_split_engine(part: Part) -> SplitEngine:
    """Have every rank load its share of a part's model.

    Raises:
        ScenarioError: this process is not one of so many, or there are fewer GPUs.
        UnknownModelError, DoesNotFitError: as open_engine.
        UserError: a machine has other files of the model.
    """
    group = joined()
    if group is None or group.ranks.world != part.tensor_parallel:
        here = "one process" if group is None else f"{group.ranks.world} processes"
        raise ScenarioError(
            f"part {part.name}: tensor_parallel is {part.tensor_parallel}, but this is {here}; start it with `sbd run`, or "
            f"with torchrun --nproc-per-node {part.tensor_parallel} -m harness run"
        )
    refuse_too_few_gpus(part, torch.cuda.device_count())
    engine = group.lead(RankOrder("open", (part,)), lambda: _open_share(part, group))
    return SplitEngine(engine, group)


def _open_share(part: Part, group: RankGroup) -> LocalEngine:
    """This rank's share, of the same files on every machine: the first rank of each digests them."""
    found = model_digests(part.model, part.seed, part.dtype) if group.ranks.local == 0 else {}
    refuse_other_files(part, group.told({name: digest for name, (digest, _) in found.items()}))
    return open_engine(part, group)


def refuse_other_files(part: Part, told: Sequence[dict[str, str | None]]) -> None:
    """``told``: the digests of the model's files by rank; empty where a rank tells nothing.

    Raises:
        UserError: they differ from those of rank 0.
    """
    for rank, found in enumerate(told):
        other = [name for name in found if None not in (found[name], told[0][name]) and found[name] != told[0][name]]
        if other:
            raise UserError(
                f"part {part.name}: the machine of rank {rank} has other files of the model than that of rank 0 "
                f"({', '.join(other)}); give every machine the same files, and a model of the hub its revision"
            )


def dismiss() -> None:
    """Let the ranks that follow end, if any.

    Raises:
        ProcessEndedError: see RankGroup.dismiss.
    """
    group = joined()
    if group is not None:
        group.dismiss()


def refuse_too_few_gpus(part: Part, count: int) -> None:
    """Raises ScenarioError where a part wants more GPUs than the ``count`` that a machine has for its processes."""
    wanted = int(os.environ.get("LOCAL_WORLD_SIZE", part.tensor_parallel))
    if part.device.startswith("cuda") and count < wanted:
        raise ScenarioError(
            f"part {part.name}: tensor_parallel is {part.tensor_parallel}, and every process needs a GPU of its own, but torch "
            f"sees {count} here; ask for fewer, or for device: cpu"
        )


def follow() -> None:
    """Do what rank 0 says until it says no more. Writes nothing; prints nothing unless rank 0 does not know the error. Does not
    return after an error: the parent process ends all ranks when one of them fails.
    """
    says = _silenced()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # rank 0 answers it, between two orders
    group = joined()
    if group is None:
        raise InvariantError("a process that follows must be one of several")
    try:
        engine: Any = None
        while (order := group.next_order()) is not None:
            if order.method == "open":
                engine = None  # before the next one comes
                engine = _open_share(order.arguments[0], group)
            else:
                getattr(engine, order.method)(*order.arguments)
    except Exception as error:
        _end(group, error, says)
    torch.distributed.destroy_process_group()


def _end(group: RankGroup, error: Exception, says: TextIO) -> NoReturn:
    """Most often rank 0 has met the same error and reports it, and this process is ended while it waits for that."""
    if is_lost(error):
        time.sleep(LOST_S)  # rank 0 has gone, or another one that has said why
        os._exit(EXIT_TOOL_ERROR)
    known = isinstance(error, SbdError)
    word = f"rank {group.ranks.rank} of {group.ranks.world}: {error if known else traceback.format_exc()}"
    with suppress(RuntimeError):  # the store may have gone with rank 0
        group.leave_word(word)
    time.sleep(GRACE_S)
    print(each_line(word), file=says, flush=True)
    os._exit(error.exit_code if isinstance(error, SbdError) else EXIT_TOOL_ERROR)


def _silenced() -> TextIO:
    """Discard all output of this process; returns its former stderr."""
    kept = os.fdopen(os.dup(2), "w")
    with open(os.devnull, "wb") as nowhere:
        os.dup2(nowhere.fileno(), 1)
        os.dup2(nowhere.fileno(), 2)
    return kept
