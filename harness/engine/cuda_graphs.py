"""The static session with every kind of decode pass captured once as a CUDA graph and replayed.

A replay spares the host its kernel launches. It takes neither shapes nor addresses from the host. What changes from pass to
pass (tokens, positions, numbers of committed tokens) is copied into fixed tensors, without waiting for the device. Prompts are
not captured: they come in many widths and are read once. Explicit visibility is not captured: packed attention cannot express
it. Axes: B rows, Q tokens of a forward, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor
from transformers import PreTrainedModel

from harness.decoding.session import Segment, page_locked, upload
from harness.engine import flash_attention
from harness.engine.attention_masks import validity, wanted_logits
from harness.engine.captured_attention import OPTIONS, option_of
from harness.engine.gated_adapter import adapted_columns, adapter_on
from harness.engine.kv_cache import ForwardKind, UsedKv
from harness.engine.static_session import StaticSession, head_dim_of
from harness.frozen import positional
from harness.meters.host import CAPTURES
from harness.roofline.storage import slots_allocated

WARM_UPS = 3
Work = Callable[[], Tensor]


class Capture:
    """Takes work on fixed tensors; returns a callable that repeats the work and writes the same result. This one, for devices
    without CUDA graphs, calls the work itself, with the same bookkeeping.
    """

    def __call__(self, work: Work) -> Work:
        """Capture; what is returned runs on the stream that is current when it is called."""
        CAPTURES.made += 1
        held: list[Tensor] = []

        def again() -> Tensor:
            out = work()
            if not held:
                held.append(torch.empty_like(out))
            return held[0].copy_(out)

        return again

    def release(self) -> None:
        """Called when all captures so far have been dropped; nothing is held."""


by_calling_again = Capture()


class CudaGraphs(Capture):
    """Captures share one memory pool: what one returned is overwritten when any of them runs again. ``cuda`` may be a fake.
    Warm-ups and captures run on one side stream, so the stream's first-use setup is done before a capture. What other threads
    ask of the GPU meanwhile does not end it.

    cuBLAS's workspace belongs to a stream, and torch frees it whenever anything clears the workspaces, as compiled generate()
    does. A graph would go on writing there (pytorch#192061). So each capture allocates one of its own, in its pool.
    ``clear_workspaces``: torch's own where None.
    """

    def __init__(self, cuda: Any = torch.cuda, clear_workspaces: Callable[[], None] | None = None) -> None:
        self._cuda = cuda
        self._clear_workspaces = clear_workspaces or torch._C._cuda_clearCublasWorkspaces
        self._aside: Any = None
        self._pool: Any = None

    def __call__(self, work: Work) -> Work:
        """See Capture."""
        cuda = self._cuda
        self._aside = self._aside or cuda.Stream()
        self._pool = self._pool or cuda.graph_pool_handle()
        self._aside.wait_stream(cuda.current_stream())
        with cuda.stream(self._aside):  # lazy initialisations must not be captured
            for _ in range(WARM_UPS):
                work()
        cuda.current_stream().wait_stream(self._aside)
        graph = cuda.CUDAGraph()
        self._clear_workspaces()
        with cuda.graph(graph, pool=self._pool, stream=self._aside, capture_error_mode="thread_local"):
            out = work()
        self._clear_workspaces()  # the pool keeps the memory
        CAPTURES.made += 1
        return partial(_replayed, graph, out, work)

    def release(self) -> None:
        """The pool ends with the last of its graphs; torch asserts that no later capture names it again."""
        self._pool = None


def _replayed(graph: Any, out: Tensor, work: Work) -> Tensor:
    """Replay. A graph knows addresses alone, so ``work`` is held with it: what it reads must not be freed before the graph."""
    graph.replay()
    return out


PassKind = tuple[tuple[int, str, int, int], ...]
"""(tokens, visibility, wanted logits, adapted tokens) of every segment of a call; each kind has its graph."""


@positional
class Captured:
    """One kind of forward: the tensors it reads, and the replay that returns its logits.

    ``fed``     (B, 2Q) int64: tokens, then positions
    ``places``  (B, segments, 3) int32: where in the packed buffers a row's first token goes, the step to the next (0: padding,
                all to the last slot of the row), and how many slots of its row the segment sees, see CapturedAttention
    """

    fed: Tensor
    places: Tensor
    replay: Callable[[], Tensor]


class GraphedSession(StaticSession):
    """A ModelSession, exchangeable with its parent. ``forward``: the model's own, or compiled. ``attention``: a name of
    harness.engine.captured_attention, or sdpa.

    Graphs are made anew where a batch needs other buffers, see harness.roofline.storage. The next pass overwrites the logits.

    Raises:
        ScenarioError: attention in half precision needs another torch or a newer GPU.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        capture: Capture,
        forward: Callable[..., Any] | None = None,
        ranks: int = 1,
        attention: str = "sdpa",
    ) -> None:
        self._attention = option_of(attention, model.device, model.dtype, head_dim_of(model.config))
        if self._attention == "flash":
            flash_attention.refuse_what_lacks_it(model.device)
        super().__init__(model, ranks=ranks)
        self._capture = capture
        self._captured_forward = forward or model
        self._graphs: dict[PassKind, Captured] = {}

    def _release(self) -> None:
        """Drop the graphs with the buffers that they were captured with."""
        self._graphs.clear()
        self._capture.release()
        super()._release()

    def _allocate(self, layers: int, rows: int, heads: int, slots: int, width: int) -> None:
        """Buffers that are cut evenly, (B, C, G, D) underneath: a row is one run, as packed attention wants it."""
        length = slots_allocated(rows, heads, slots)
        super()._allocate(layers, rows, length, heads, width)
        self._keys, self._values = ([buffer.transpose(1, 2) for buffer in held] for held in (self._keys, self._values))

    @torch.no_grad()
    def forward(self, segments: Sequence[Segment]) -> Tensor:
        """Run one forward pass; (B, m, V) logits of the wanted tokens, m their number."""
        fed = validity(segments)
        if not all(self._lengths) or any(s.seen is not None or _padded_within(s) for s in segments):
            return super().forward(segments)
        self._fed, self._query = fed, sum(s.tokens.shape[1] for s in segments)
        kind = tuple((s.tokens.shape[1], s.visibility, s.logits, s.adapted) for s in segments)
        places = page_locked(self._places(segments), self._model.device)
        held = self._graphs.get(kind)
        if held is None:
            held = self._graphs[kind] = self._captured(segments, places)
        else:
            _inputs(segments, out=held.fed)
            held.places.copy_(places, non_blocking=True)
        return held.replay()

    def _places(self, segments: Sequence[Segment]) -> Tensor:
        """See Captured: the host knows all of it, so the device need not work it out in every pass."""
        length, seen, places = self._keys[0].shape[2], self._lengths, []
        for segment in segments:
            width, causal = _part(segment)
            real = [True] * len(seen) if segment.valid is None else segment.valid[:, 0].tolist()
            first = [row * length + (seen[row] if is_real else length - 1) for row, is_real in enumerate(real)]
            after = [before + width * is_real for before, is_real in zip(seen, real, strict=True)]
            places.append(zip(first, real, seen if causal else after, strict=True))
            seen = after
        return torch.tensor([*zip(*places, strict=True)], dtype=torch.int32)

    def _captured(self, segments: Sequence[Segment], places: Tensor) -> Captured:
        """Capture this kind of forward, on the inputs of this one."""
        device = self._model.device
        fed, places = (tensor.to(device, copy=True, non_blocking=True) for tensor in (_inputs(segments), places))
        tokens, positions = fed.chunk(2, dim=1)
        wanted, columns = wanted_logits(segments, device), adapted_columns(segments)
        rows, groups, length, _ = self._keys[0].shape
        keys, values = ([buffer.transpose(1, 2).flatten(0, 1) for buffer in held] for held in (self._keys, self._values))
        parts = tuple(map(_part, segments))
        of_token = upload([(part, own) for part, (width, _) in enumerate(parts) for own in range(width)], device)
        heads = cast(Any, self._model.config).num_attention_heads // self._ranks
        attention = OPTIONS[self._attention](ForwardKind(parts, rows, heads, groups, length, self._model.dtype, device))
        # A graph does not hold its session: a session that is dropped takes its graphs along.
        model, forward, placeholder = self._model, self._captured_forward, self._placeholder

        def work() -> Tensor:
            first, step, _ = places[:, of_token[:, 0]].unbind(-1)
            of_kv, reading = (first + step * of_token[:, 1]).flatten(), attention.read(places[..., 2].T)
            layout = UsedKv(keys=keys, values=values, places=of_kv, reading=reading)
            with adapter_on(model, columns):
                out = forward(
                    input_ids=tokens,
                    position_ids=positions,
                    attention_mask=placeholder,
                    use_cache=False,
                    logits_to_keep=wanted,
                    layout=layout,
                )
            logits: Tensor = out.logits
            return logits

        return Captured(fed, places, self._capture(work))


def _inputs(segments: Sequence[Segment], out: Tensor | None = None) -> Tensor:
    """(B, 2Q): the tokens of all segments, then their positions, in one copy."""
    return torch.cat([*(s.tokens for s in segments), *(s.positions for s in segments)], dim=1, out=out)


def _part(segment: Segment) -> tuple[int, bool]:
    """Its width, and whether it is causal within itself: a causal token alone sees what a bidirectional one does."""
    width = segment.tokens.shape[1]
    return width, width > 1 and segment.visibility == "causal"


def _padded_within(segment: Segment) -> bool:
    """Whether some row has both tokens and padding in the segment."""
    return segment.valid is not None and bool((segment.valid != segment.valid[:, :1]).any())
