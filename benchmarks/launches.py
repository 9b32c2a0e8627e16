"""Kernel launches and host waits of one decode pass of Llama-3.1-8B in graphs, counted on a machine without a GPU.

Decoder, session and attention are the engine's own, on the meta device: every tensor has its shape and no numbers. One row
behind 512 tokens, bfloat16, blocks of 16. An operation on the device that computes or copies counts as one launch; a view or an
allocation, told by the storage of what it returns, as none. Of a compiled layer every piece counts that is left when inductor
has fused for a CPU: a fused loop nest, or a call of a kernel that it does not write itself.

What this cannot tell: an operation may launch several kernels (a sort, a split matrix product), and for a GPU inductor fuses by
other rules, mostly more: a norm's sum and what is made of it are two pieces here, one kernel there.

The host waits for the device where numbers come back from it, and where numbers in ordinary memory go to it, unless
non_blocking says otherwise.

    python -m benchmarks.launches
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable, Generator, Hashable, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch._inductor import config as inductor
from torch._inductor import ir
from torch._inductor.scheduler import BaseSchedulerNode, NopKernelSchedulerNode
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map
from transformers import LlamaConfig, LlamaForCausalLM

from benchmarks.results_file import write_results
from harness.decoding.acceptance import SolverAcceptance
from harness.decoding.next_token import decode_next_token
from harness.decoding.request import NEVER, DecodeRequest
from harness.decoding.session import Segment
from harness.decoding.set_block import decode_set_block
from harness.decoding.solvers import entropy_bounded
from harness.engine.compiling import with_compiled_layers
from harness.engine.cuda_graphs import GraphedSession
from harness.models import KNOWN_SHAPES, ModelShape
from harness.record.trace import ForwardPass, Generation

DEVICE = torch.device("meta")
PROMPT_TOKENS, NEW_TOKENS, BLOCK_SIZE, PASSES_OF_A_BLOCK = 512, 64, 16, 4
TOKEN, MASK_ID = 1, 2
NAMES = {"decide": "decide", "commit+decide": "commit"}
LAUNCH, WAIT = "launch", "wait"
ALLOCATIONS = ("aten::empty", "aten::new_empty")


class Counted(TorchDispatchMode):
    """``counts``: launches and waits of everything that ran under it, and whatever else is put there."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[Hashable] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run one operation and count it if the device takes part."""
        out = func(*args, **(kwargs or {}))
        given, made = _tensors((args, kwargs)), _tensors(out)
        if any(one.device == DEVICE for one in (*given, *made)):
            self.counts[LAUNCH] += computes(func, given, made)
            uploads = any(one.device != DEVICE and one.ndim for one in given)
            self.counts[WAIT] += uploads and not _argument(func, args, kwargs or {}, "non_blocking")
        return out


def computes(func: Any, given: Sequence[Tensor], made: Sequence[Tensor]) -> bool:
    """Whether an operation writes to what it was given, or returns memory that is neither that nor left as it was allocated."""
    if any(one.alias_info is not None and one.alias_info.is_write for one in func._schema.arguments):
        return True
    held = {one.untyped_storage()._cdata for one in given}
    fresh = [one for one in made if one.untyped_storage()._cdata not in held]
    return bool(fresh) and not func._schema.name.startswith(ALLOCATIONS)


class Uploads(TorchFunctionMode):
    """Counts the tensors that are made of Python's numbers on the device: below this, the meta device hides their copy."""

    def __init__(self, counts: Counter[Hashable]) -> None:
        super().__init__()
        self._counts = counts

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run and count."""
        out = func(*args, **(kwargs or {}))
        if func in (torch.tensor, torch.as_tensor) and out.device == DEVICE:
            self._counts.update((LAUNCH, WAIT))
        return out


class CountedGraphs:
    """A harness.engine.cuda_graphs.Capture: a replay runs nothing and counts what was counted when it was captured."""

    def __init__(self, counts: Counter[Hashable]) -> None:
        self._counts = counts

    def __call__(self, work: Callable[[], Tensor]) -> Callable[[], Tensor]:
        """See Capture."""
        before = self._counts.copy()
        out = work()
        inside = self._counts - before

        def replay() -> Tensor:
            self._counts.update(inside)
            return out

        return replay

    def release(self) -> None:
        """Nothing is held."""


class CountedLayers:
    """Stands for torch.compile: notes under which key a layer was called, and what one needs to count its pieces later."""

    def __init__(self, counts: Counter[Hashable]) -> None:
        self._counts = counts
        self._made: dict[Hashable, tuple[Callable[..., Any], tuple[Any, ...]]] = {}

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """What is returned computes nothing."""

        def call(*arguments: Any) -> Tensor:
            hidden: Tensor = arguments[1]
            self._made.setdefault(hidden.shape, (function, arguments))
            self._counts[hidden.shape] += 1
            return hidden

        return call

    def pieces(self) -> dict[Hashable, int]:
        """Of one layer, by key."""
        return {key: pieces_of(*made) for key, made in self._made.items()}


class _Fused(Exception):
    """Inductor has fused: no code needs to be made of it."""


def pieces_of(function: Callable[..., Any], arguments: tuple[Any, ...]) -> int:
    """What inductor makes of a function on a CPU: kernels that it writes, and calls of kernels that it does not."""
    apart = scheduled_of(function, arguments)
    return sum(not isinstance(one, NopKernelSchedulerNode) and not isinstance(one.node, ir.MultiOutput) for one in apart)


def scheduled_of(function: Callable[..., Any], arguments: tuple[Any, ...]) -> list[BaseSchedulerNode]:
    """Inductor's schedule when it has fused. Two halves that are joined are written as one kernel, as they are for a GPU.

    ``arguments``: tensors, modules and dataclasses of them, on any device; of their numbers none is looked at.
    """
    scheduled: list[BaseSchedulerNode] = []

    def stop(nodes: list[BaseSchedulerNode]) -> None:
        scheduled.extend(nodes)
        raise _Fused

    torch.compiler.reset()
    settings = {"_post_fusion_custom_pass": stop, "force_pointwise_cat": True, "fx_graph_cache": False}
    with torch.no_grad(), inductor.patch(settings):
        try:
            torch.compile(function, dynamic=False)(*on_cpu(arguments))
        except Exception as error:  # torch wraps it, and not in the same way in every version
            if not scheduled:
                raise error
    torch.compiler.reset()
    return scheduled


def on_cpu(value: Any) -> Any:
    """The same with tensors of any numbers in ordinary memory, as laid out as they were."""
    if isinstance(value, Tensor):
        return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype)
    if isinstance(value, nn.Module):
        return copy.deepcopy(value).to_empty(device="cpu")
    if is_dataclass(value) and not isinstance(value, type):
        return replace(value, **{one.name: on_cpu(getattr(value, one.name)) for one in fields(value)})
    if isinstance(value, dict | list | tuple):
        return tree_map(on_cpu, value)
    return value


class ScriptedSession(GraphedSession):
    """The engine's session. What it would read back from the device it makes up: of a block, the next quarter is decided."""

    def __init__(self, counted: Counted, model: Any, forward: Any) -> None:
        super().__init__(model, CountedGraphs(counted.counts), forward, attention="flash")
        self._tally, self._turn = counted.counts, 0

    def forward(self, segments: Sequence[Segment]) -> Tensor:
        """As the engine's, but for the prompt's pass, which nobody counts: its logits are made up too."""
        if any(self._lengths):
            return super().forward(segments)
        rows = segments[0].tokens.shape[0]
        return torch.empty(rows, segments[0].logits, self._model.config.vocab_size, dtype=self._model.dtype, device=DEVICE)

    def read(self, tokens: Tensor) -> list[list[int]]:
        """(B, n), n 1 or a block's size."""
        self._tally[WAIT] += 1
        rows, width = tokens.shape
        turn, self._turn = self._turn, (self._turn + 1) % PASSES_OF_A_BLOCK
        quarter = [TOKEN if slot * PASSES_OF_A_BLOCK // width == turn else -1 for slot in range(width)]
        return [[TOKEN] if width == 1 else quarter] * rows


@dataclass(frozen=True, slots=True)
class PassCount:
    """Of one pass, its sampler included."""

    launches: int
    waits: int


def count_passes(shape: ModelShape, compiled: bool) -> dict[str, PassCount]:
    """The passes ``ntp``, ``decide`` and ``commit`` as they are replayed; layers as they are, or each ``compiled``."""
    counted = Counted()
    layers = CountedLayers(counted.counts)
    model = llama(shape)
    forward = with_compiled_layers(model, layers) if compiled else model
    ntp = _passes(counted, decode_next_token(ScriptedSession(counted, model, forward), _request()))
    acceptance = SolverAcceptance(entropy_bounded, gamma=0.1)
    blocks = decode_set_block(
        ScriptedSession(counted, model, forward), _request(), block_size=BLOCK_SIZE, mask_id=MASK_ID, acceptance=acceptance
    )
    found = {"ntp": ntp["decide"]} | {NAMES[role]: counts for role, counts in _passes(counted, blocks).items()}
    pieces = layers.pieces()
    return {
        name: PassCount(counts[LAUNCH] + sum(pieces[key] * counts[key] for key in pieces), counts[WAIT])
        for name, counts in found.items()
    }


def _passes(counted: Counted, decoder: Generator[ForwardPass, None, Generation]) -> dict[str, Counter[Hashable]]:
    """By role, what the last pass of it took: by then it is replayed."""
    found = {}
    with counted, Uploads(counted.counts), torch.no_grad():
        before = counted.counts.copy()
        for one in decoder:
            found[one.role] = counted.counts - before
            before = counted.counts.copy()
    return {role: counts for role, counts in found.items() if role != "prefill"}


def llama(shape: ModelShape) -> LlamaForCausalLM:
    """A model of the Llama architecture on the meta device."""
    config = LlamaConfig(
        vocab_size=shape.vocab, hidden_size=shape.hidden, intermediate_size=shape.intermediate, num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads, num_key_value_heads=shape.kv_heads, head_dim=shape.head_dim,
    )  # fmt: skip
    with DEVICE:
        return LlamaForCausalLM(config).to(torch.bfloat16).eval()


def _request() -> DecodeRequest:
    return DecodeRequest(
        prompts=((TOKEN,) * PROMPT_TOKENS,), max_new_tokens=NEW_TOKENS, stop=NEVER, suppressed_ids=(MASK_ID,), temperature=0.0,
        generator=torch.Generator(), device=DEVICE,
    )  # fmt: skip


def _tensors(values: Any) -> list[Tensor]:
    return [one for one in tree_leaves(values) if isinstance(one, Tensor)]


def _argument(func: Any, args: Sequence[Any], kwargs: dict[str, Any], name: str) -> Any:
    """An argument by name, wherever it stands; None where it is not given."""
    names = [one.name for one in func._schema.arguments]
    return kwargs.get(name, dict(zip(names, args, strict=False)).get(name))


def figures_of(compiled: dict[str, PassCount], captured: dict[str, PassCount]) -> dict[str, float]:
    """Launches of a pass with compiled layers by its name, and captured as it is; the most waits of an arm's passes."""
    waits = {name: max(compiled[name].waits, captured[name].waits) for name in compiled}
    return {
        **{name: one.launches for name, one in compiled.items()},
        **{f"{name}_not_compiled": one.launches for name, one in captured.items()},
        "ntp_host_syncs": waits["ntp"],
        "sbd_host_syncs": max(waits["decide"], waits["commit"]),
    }


def main() -> None:
    """Count, print, write."""
    shape = KNOWN_SHAPES["llama-3.1-8b"]
    figures = figures_of(count_passes(shape, compiled=True), count_passes(shape, compiled=False))
    for name, value in figures.items():
        print(f"{name} | {value}")
    print(write_results("launches", figures))


if __name__ == "__main__":
    main()
