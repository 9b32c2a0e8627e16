"""Kernels and host waits of one decode pass of Llama-3.1-8B in graphs.

Decoder, session and attention are the engine's own. One row after 512 tokens, bfloat16, blocks of 16.

On a GPU the nodes of the captured graphs are counted, as CUDA has them: kernels, copies and fills. An emulated GPU is enough
(tests/emulated_gpu), because what is launched does not depend on what a kernel computes.

Anywhere, operations are counted on the meta device: every tensor has its shape and no numbers. An operation on the device that
computes or copies counts as one; a view or an allocation, told by the storage of what it returns, as none. An operation may be
several kernels (a sort, a split matrix product). The host waits for the device where numbers come back from it, and where
numbers in ordinary memory go to it, unless non_blocking says otherwise.

    python -m benchmarks.launches
    build/gpu-emulated/bin/python tests/emulated_gpu/on_gpu.py -m benchmarks.launches
"""

from __future__ import annotations

import ctypes
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from contextlib import ExitStack
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from transformers import AutoModelForCausalLM, LlamaConfig

from benchmarks.results_file import write_results
from harness.decoding.acceptance import SolverAcceptance
from harness.decoding.next_token import decode_next_token
from harness.decoding.request import NEVER, Decoder, DecodeRequest
from harness.decoding.session import Segment
from harness.decoding.set_block import decode_set_block
from harness.decoding.solvers import entropy_bounded
from harness.engine.compiling import with_compiled_layers
from harness.engine.cuda_graphs import Capture, CudaGraphs, GraphedSession
from harness.models import KNOWN_SHAPES, ModelShape

META, CUDA = torch.device("meta"), torch.device("cuda")
PROMPT_TOKENS, NEW_TOKENS, BLOCK_SIZE, PASSES_OF_A_BLOCK = 512, 64, 16, 4
TOKEN, MASK_ID = 1, 2
NAMES = {"decide": "decide", "commit+decide": "commit"}
LAUNCH, NODE, WAIT = "launch", "node", "wait"
NO_GPU = "nodes are counted where torch finds a GPU; an emulated one is enough: make test-gpu-emulated makes its environment"
ALLOCATIONS = ("aten::empty", "aten::new_empty")


class Counted(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch gives it no types
    """``counts``: launches and waits of everything that ran under it, and whatever else is put there."""

    def __init__(self, device: torch.device = META) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # nor here
        self.device = device
        self.counts: Counter[Hashable] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run one operation and count it if the device takes part."""
        out = func(*args, **(kwargs or {}))
        given, made = _tensors((args, kwargs)), _tensors(out)
        if any(one.device.type == self.device.type for one in (*given, *made)):
            self.counts[LAUNCH] += computes(func, given, made)
            uploads = any(one.device.type != self.device.type and one.ndim for one in given)
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

    def __init__(self, counted: Counted) -> None:
        super().__init__()
        self._counted = counted

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run and count."""
        out = func(*args, **(kwargs or {}))
        if func in (torch.tensor, torch.as_tensor) and out.device == META == self._counted.device:
            self._counted.counts.update((LAUNCH, WAIT))
        return out


class CountedGraphs(Capture):
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


class KeptGraphs:
    """torch.cuda, but its graphs can be asked for their nodes."""

    def __init__(self) -> None:
        self.newest: Any = None

    def __getattr__(self, name: str) -> Any:
        """All else is torch's."""
        return getattr(torch.cuda, name)

    def CUDAGraph(self) -> Any:
        """A graph that is kept beside what is made of it to be launched."""
        self.newest = torch.cuda.CUDAGraph(keep_graph=True)
        return self.newest


def nodes_of(graph: Any) -> int:
    """Nodes of a torch.cuda.CUDAGraph(keep_graph=True), by CUDA's driver."""
    count = ctypes.c_size_t()
    answer = ctypes.CDLL("libcuda.so.1").cuGraphGetNodes(ctypes.c_void_p(graph.raw_cuda_graph()), None, ctypes.byref(count))
    if answer:
        raise RuntimeError(f"cuGraphGetNodes answered {answer}")
    return count.value


class CountedCudaGraphs(CudaGraphs):
    """CUDA graphs whose replays count their nodes."""

    def __init__(self, counts: Counter[Hashable]) -> None:
        self._kept, self._counts = KeptGraphs(), counts
        super().__init__(self._kept)

    def __call__(self, work: Callable[[], Tensor]) -> Callable[[], Tensor]:
        """See Capture."""
        replay = super().__call__(work)
        nodes = nodes_of(self._kept.newest)

        def counted() -> Tensor:
            self._counts[NODE] += nodes
            return replay()

        return counted


class ScriptedSession(GraphedSession):
    """The engine's session. What it would read back from the device it makes up: of a block, the next quarter is decided."""

    def __init__(self, counted: Counted, model: Any, forward: Any) -> None:
        of_device: Callable[[Counter[Hashable]], Capture] = CountedGraphs if counted.device == META else CountedCudaGraphs
        super().__init__(model, of_device(counted.counts), forward, attention="flash")
        self._tally, self._turn = counted.counts, 0

    def forward(self, segments: Sequence[Segment]) -> Tensor:
        """As the engine's, but for the prompt's pass, which nobody counts: its logits are made up too."""
        if any(self._lengths):
            return super().forward(segments)
        rows, model = segments[0].tokens.shape[0], self._model
        return torch.empty(rows, segments[0].logits, model.config.vocab_size, dtype=model.dtype, device=model.device)

    def read(self, tokens: Tensor) -> list[list[int]]:
        """(B, n), n 1 or a block's size."""
        self._tally[WAIT] += 1
        rows, width = tokens.shape
        turn, self._turn = self._turn, (self._turn + 1) % PASSES_OF_A_BLOCK
        quarter = [TOKEN if slot * PASSES_OF_A_BLOCK // width == turn else -1 for slot in range(width)]
        return [[TOKEN] if width == 1 else quarter] * rows


def count_passes(shape: ModelShape, compiled: bool = False, device: torch.device = META) -> dict[str, Counter[Hashable]]:
    """What the passes ``ntp``, ``decide`` and ``commit`` take as they are replayed: nodes of graphs on a GPU, elsewhere
    launches with those of the sampler, and waits. The model as it is, or ``compiled``.
    """
    counted = Counted(device)
    model = llama(shape, device)
    forward = with_compiled_layers(model) if compiled else model
    ntp = _passes(counted, decode_next_token(ScriptedSession(counted, model, forward), _request(device)))
    acceptance = SolverAcceptance(entropy_bounded, gamma=0.1)
    session = ScriptedSession(counted, model, forward)
    blocks = decode_set_block(session, _request(device), block_size=BLOCK_SIZE, mask_id=MASK_ID, acceptance=acceptance)
    return {"ntp": ntp["decide"]} | {NAMES[role]: counts for role, counts in _passes(counted, blocks).items()}


def _passes(counted: Counted, decoder: Decoder) -> dict[str, Counter[Hashable]]:
    """By role, what the last pass of it took: by then it is replayed. On a GPU operations go uncounted: torch.compile does
    nothing under a mode that sees them.
    """
    found, before = {}, counted.counts.copy()
    with torch.no_grad(), ExitStack() as seen:
        if counted.device == META:
            seen.enter_context(counted)
            seen.enter_context(Uploads(counted))
        for one in decoder:
            found[one.role] = counted.counts - before
            before = counted.counts.copy()
    return {role: counts for role, counts in found.items() if role != "prefill"}


def llama(shape: ModelShape, device: torch.device) -> Any:
    """A model of the Llama architecture, its weights whatever they are."""
    config = LlamaConfig(
        vocab_size=shape.vocab,
        hidden_size=shape.hidden,
        intermediate_size=shape.intermediate,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads,
        head_dim=shape.head_dim,
    )
    auto: Any = AutoModelForCausalLM
    with device:
        return auto.from_config(config, dtype=torch.bfloat16).eval()


def _request(device: torch.device) -> DecodeRequest:
    return DecodeRequest(
        prompts=((TOKEN,) * PROMPT_TOKENS,),
        max_new_tokens=NEW_TOKENS,
        stop=NEVER,
        suppressed_ids=(MASK_ID,),
        temperature=0.0,
        generator=torch.Generator(),
        device=device,
    )


def _tensors(values: Any) -> list[Tensor]:
    return [one for one in tree_leaves(values) if isinstance(one, Tensor)]


def _argument(func: Any, args: Sequence[Any], kwargs: dict[str, Any], name: str) -> Any:
    """An argument by name, wherever it stands; None where it is not given."""
    names = [one.name for one in func._schema.arguments]
    return kwargs.get(name, dict(zip(names, args, strict=False)).get(name))


def figures_of(shape: ModelShape) -> tuple[dict[str, float | None], dict[str, str]]:
    """Nodes of a pass by its name, compiled and captured as it is; its operations; the most waits of an arm's passes. And, by
    name, why a figure is not known.
    """
    operations = count_passes(shape)
    figures: dict[str, float | None] = {}
    for compiled, ending in ((True, ""), (False, "_not_compiled")):
        nodes = count_passes(shape, compiled, CUDA) if torch.cuda.is_available() else {}
        figures |= {f"{name}{ending}": nodes[name][NODE] if nodes else None for name in operations}
    reasons = {name: NO_GPU for name, value in figures.items() if value is None}
    figures |= {f"{name}_operations": one[LAUNCH] for name, one in operations.items()}
    waits = {name: one[WAIT] for name, one in operations.items()}
    return figures | {"ntp_host_syncs": waits["ntp"], "sbd_host_syncs": max(waits["decide"], waits["commit"])}, reasons


def main() -> None:
    """Count, print, write."""
    figures, reasons = figures_of(KNOWN_SHAPES["llama-3.1-8b"])
    for name, value in figures.items():
        print(f"{name} | {reasons[name] if value is None else value}")
    print(write_results("launches", figures, reasons=reasons))


if __name__ == "__main__":
    main()
