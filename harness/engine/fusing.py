"""The sampler as few kernels: on a CPU inductor compiles it, once for every kind of call.

torch.compile checks some dozens of guards in every call. Behind a forward that has emptied the caches they cost more than the
work. Here the function and the shapes alone tell the kind, and its kernels are called directly.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.func import functionalize
from torch.fx.experimental.proxy_tensor import make_fx

from harness.decoding.request import Fuse
from harness.decoding.sampling import TorchFigures, sampler_of
from harness.meters.host import CAPTURES
from harness.scenario.scenario import Execution


def fuse_of(execution: Execution, device: str) -> Fuse | None:
    """How the sampler of a part runs. On a CPU it is compiled where the forwards are; on CUDA with Triton it is called as
    written, around one walk over the vocabulary. None: operation by operation, as the reference.
    """
    kind = device.partition(":")[0]
    if kind == "cpu":
        return CompiledWork() if execution == "compiled" else None
    return None if sampler_of(kind) is TorchFigures else called


def called(work: Callable[..., tuple[Tensor, ...]], *tensors: Tensor) -> Sequence[Tensor]:
    """A harness.decoding.request.Fuse that adds nothing."""
    return work(*tensors)


class CompiledWork:
    """A harness.decoding.request.Fuse for a CPU."""

    def __init__(self) -> None:
        self._made: dict[Any, Callable[[list[Tensor]], Sequence[Tensor]]] = {}

    def __call__(self, work: Callable[..., tuple[Tensor, ...]], *tensors: Tensor) -> Sequence[Tensor]:
        """What ``work`` returns for the ``tensors``; the first call of a kind compiles it, which takes seconds."""
        first = tensors[0]
        kind = (work, first.dtype, first.stride(), *[one.shape for one in tensors])
        call = self._made.get(kind)
        if call is None:
            call = self._made[kind] = compiled_work(work, tensors)
        return call(list(tensors))


@torch.no_grad()
def compiled_work(
    work: Callable[..., tuple[Tensor, ...]], tensors: Sequence[Tensor]
) -> Callable[[list[Tensor]], Sequence[Tensor]]:
    """Kernels for tensors of just these shapes, strides and types; anything else raises AssertionError."""
    from torch._inductor.compile_fx import compile_fx_inner  # torch's compiler takes a second to import
    from torch._inductor.decomposition import select_decomp_table

    graph = make_fx(functionalize(work), decomposition_table=select_decomp_table(), tracing_mode="fake")(*tensors)
    made: Any = compile_fx_inner(graph, list(tensors), is_inference=True)
    CAPTURES.made += 1
    call: Callable[[list[Tensor]], Sequence[Tensor]] = made.current_callable  # without inductor's wrapper for other callers
    return call
