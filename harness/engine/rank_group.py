"""The processes that share one model: where they meet, what rank 0 tells the others, and on what all must agree.

torch.distributed carries what the model exchanges: by gloo between CPUs, by NCCL between GPUs. What the processes say to each
other goes by gloo, which lets a process wait without work.

transformers splits the model by tensor parallelism: every rank keeps its share of the weights. Heads, inner widths and the
vocabulary are split as the model's own plan says (Megatron-LM, arXiv 1909.08053, section 3). Every rank computes the same
hidden states and, gathered, the same logits.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from datetime import timedelta
from functools import cache
from typing import Any, TypeVar

import torch
import torch.distributed as dist
import transformers
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from transformers import PreTrainedModel

from harness.errors import STATUS_AGAIN, CaseError, InvariantError, ProcessEndedError, UnknownModelError, UserError
from harness.frozen import positional
from harness.scenario.ranks import Ranks, ranks_here

PATIENCE = timedelta(hours=2)
"""Loading a large model takes tens of minutes, and disks differ in speed."""
LOST_S = 60.0
"""How long a rank that lost another one waits to be ended by its parent process, so that only one message appears."""
LAST_WORDS = "last words"
T = TypeVar("T")


@positional
class RankOrder:
    """A method of the engine that all ranks call with the same arguments; ``open``: of harness.engine.engine."""

    method: str
    arguments: tuple[Any, ...] = ()


class RankGroup:
    """This process among those of ``ranks``; made by ``joined``."""

    def __init__(self, ranks: Ranks) -> None:
        self.ranks = ranks
        backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
        dist.init_process_group(
            backend, init_method=ranks.rendezvous, rank=ranks.rank, world_size=ranks.world, timeout=PATIENCE
        )
        self._talk = dist.new_group(backend="gloo", timeout=PATIENCE)
        self._amid: RankOrder | None = None

    def barrier(self) -> None:
        """Wait for all other ranks; their work on a GPU may still be running."""
        dist.barrier(group=self._talk)

    def read(self, tokens: Tensor) -> list[list[int]]:
        """``tokens`` (B, n) on the host, compared with those of rank 0.

        Every rank decides for itself, from gathered logits that have the same bits everywhere. Ranks that decide differently
        would feed different tokens from then on, or wait for each other for ever.

        Raises:
            InvariantError: they are not the same.
        """
        first = tokens.clone()
        dist.broadcast(first, src=0)
        if self.ranks.leads:
            return tokens.tolist()
        mine: list[list[int]]
        mine, of_first = torch.stack([tokens, first]).tolist()
        if mine != of_first:
            raise InvariantError(f"rank {self.ranks.rank} decided {mine} where rank 0 decided {of_first}")
        return mine

    def lead(self, order: RankOrder, call: Callable[[], T]) -> T:
        """Have every rank make the same call: send the order, then call.

        Raises:
            ProcessEndedError: the others did not finish the order before, or one of them ended in this one.
        """
        self._tell(order)
        try:
            result = call()
        except CaseError:
            raise  # for the record; the others may be anywhere in this order
        except RuntimeError as error:
            raise self._lost(error) from error
        self._amid = None
        return result

    def next_order(self) -> RankOrder | None:
        """The next order of rank 0; None at the end."""
        heard: list[RankOrder | None] = [None]
        dist.broadcast_object_list(heard, src=0, group=self._talk)
        return heard[0]

    def dismiss(self) -> None:
        """Let the others end.

        Raises:
            ProcessEndedError: they did not finish the last order.
        """
        self._tell(None)
        dist.destroy_process_group()

    def told(self, mine: Any) -> list[Any]:
        """What every rank has to tell, by rank."""
        found: list[Any] = [None] * self.ranks.world
        dist.all_gather_object(found, mine, group=self._talk)
        return found

    def leave_word(self, message: str) -> None:
        """Leave ``message`` before this process ends, for ranks that lose their connection to it."""
        _store().set(LAST_WORDS, message)

    def _tell(self, order: RankOrder | None) -> None:
        """Send the order, if the others finished the one before."""
        if self._amid is not None:
            raise ProcessEndedError(
                f"{self._amid.method} did not come to its end in all {self.ranks.world} processes of the split model, so they "
                "end here; finished samples are kept, and the same command goes on without the case that failed",
                STATUS_AGAIN,
            )
        dist.broadcast_object_list([order], src=0, group=self._talk)
        self._amid = order

    def _lost(self, error: RuntimeError) -> Exception:
        """The cause of a RuntimeError during an order: another process that ended, or a fault of this one."""
        if _store().check([LAST_WORDS]):
            time.sleep(LOST_S)
            return ProcessEndedError(_store().get(LAST_WORDS).decode())
        if is_lost(error):
            return ProcessEndedError(
                f"another process of the split model ended without a word ({str(error).partition(chr(10))[0]}); finished "
                "samples are kept, and the same command goes on"
            )
        return error


def is_lost(error: Exception) -> bool:
    """Whether torch.distributed reports another process as gone; gloo has no exception of its own for it."""
    return isinstance(error, dist.DistError) or (isinstance(error, RuntimeError) and "onnection" in str(error))


def _store() -> Any:
    return dist.distributed_c10d._get_default_store()


@cache
def joined() -> RankGroup | None:
    """This process's group, entered when first asked for; None where it is alone."""
    ranks = ranks_here()
    return None if ranks is None else RankGroup(ranks)


def keep_in_step(clock: Any, sessions: Iterable[Any], group: RankGroup) -> None:
    """Have the clock's synchronisation wait for the device, then for the other ranks. Tokens that a session reads must be those
    of rank 0, see RankGroup.read. The marks of single passes wait for nobody: collectives keep the ranks together.
    """
    of_device = clock.synchronise

    def synchronise() -> None:
        of_device()
        group.barrier()

    clock.synchronise = synchronise
    for session in sessions:
        session.read = group.read


OLDEST = (5, 23)
"""The transformers version that this was written for; before 5.21 it split models differently."""


def refuse_older_transformers() -> None:
    """Raises UserError where the functions that split a model are missing or different."""
    if tuple(map(int, transformers.__version__.split(".")[:2])) < OLDEST:
        raise UserError(
            f"tensor_parallel needs transformers {'.'.join(map(str, OLDEST))} or newer, this is {transformers.__version__}; "
            "pip install -U transformers"
        )


def loading_options(group: RankGroup, device: str) -> dict[str, object]:
    """The options of ``from_pretrained`` by which a rank reads its own share of a checkpoint. Empty where transformers cannot
    do that: it goes by the accelerator that is present, so not for a model on the CPU beside a GPU.
    """
    from transformers.distributed.configuration_utils import DistributedConfig

    accelerator: Any = torch.accelerator.current_accelerator()
    if torch.device(device).type != ("cpu" if accelerator is None else accelerator.type):
        return {}
    return {"distributed_config": DistributedConfig(tp_size=group.ranks.world)}


def split(module: PreTrainedModel, name: str, device: str, group: RankGroup) -> None:
    """Keep this rank's share of a model that every rank has whole, the same weights everywhere, on the CPU or on ``device``.

    Raises:
        UnknownModelError: transformers has no plan to split it.
    """
    from transformers.distributed.configuration_utils import DistributedConfig
    from transformers.distributed.tensor_parallel import apply_tensor_parallelism

    if not module.tp_plan:
        raise UnknownModelError(
            f"{name}: transformers has no plan how to split {type(module).__name__}; use tensor_parallel: 1, or a model with a "
            "tp_plan (Llama, Qwen2, Qwen3 and others)"
        )
    untyped: Any = module
    head = untyped.get_output_embeddings()
    if head is not None and untyped.get_input_embeddings().weight is head.weight:
        head.weight = nn.Parameter(head.weight.detach(), requires_grad=False)  # else it would go by one name only
    plan, _, _ = module._resolve_parallel_plans(DistributedConfig(tp_size=group.ranks.world))
    mesh = init_device_mesh(torch.device(device).type, (group.ranks.world,), mesh_dim_names=("tp",))
    apply_tensor_parallelism(module, mesh, plan)
    module.tie_weights()
