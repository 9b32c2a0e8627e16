"""Flash attention over packed runs of keys: one call of the kernel is the attention of a captured forward.

The module calls the operator beneath torch.nn.attention.varlen. varlen_attn itself takes neither shared KV heads nor used
lengths in torch 2.11; the operator has taken both since 2.5. The kernel reads each run's used length from where the run begins
(``block_info.h``), so runs may overlap.

Every part, piece and own token is a run of the call. A long buffer is cut into pieces that run side by side, because flash
attention splits only where the query is one token. The pieces' results are merged by log-sum-exp. Query heads that share a KV
head are folded into the query, so that each KV head is read once. Tokens of a causal part attend together to all that was
committed before it, as the pieces' queries. What they see of each other is a run for each token.

Axes: B rows, Q query tokens, H query heads, G KV heads, D head dimension, K packed keys, N runs. T queries of all runs, in a
captured forward T = B * Q * H / G folded ones. P copies of the queries: one a piece, one more for what causal tokens see of
each other.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from itertools import accumulate
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor

from harness.decoding.session import upload
from harness.engine.kv_cache import ForwardKind
from harness.errors import ScenarioError
from harness.frozen import positional
from harness.roofline.storage import pieces_of

OPERATOR = "aten::_flash_attention_forward"
TAKES = ("query", "key", "value", "cum_seq_q", "cum_seq_k", "max_q", "max_k", "dropout_p", "is_causal", "return_debug_mask")
NAMED = ("scale", "seqused_k")
GIVES = ("output", "softmax_logsumexp")
LEAST_CAPABILITY = (8, 0)
MOST_HEAD_DIM, HEAD_DIM_STEP = 256, 8


@positional
class Runs:
    """Runs of packed queries, each over a run of packed keys; int32.

    ``asked``   (N+1,): where the queries of each run begin, and where all end; ``widest``: the most of one run
    ``starts``  (N+1,): where the keys of each run begin; the last entry is the end of all
    ``used``    (N,): keys of each run; ``longest`` at most
    ``empty``   (T,) bool: queries of runs without keys; None where each run has some
    """

    asked: Tensor
    starts: Tensor
    used: Tensor
    widest: int
    longest: int
    empty: Tensor | None


def takes_flash(device: torch.device, dtype: torch.dtype, head_dim: int) -> bool:
    """Whether the operator takes such tensors: half precision on a GPU, heads of up to 256 in steps of 8. ROCm's names used
    lengths and refuses them.
    """
    in_half, on_gpu = dtype in (torch.float16, torch.bfloat16), device.type == "cuda" and torch.version.hip is None
    return on_gpu and in_half and head_dim <= MOST_HEAD_DIM and head_dim % HEAD_DIM_STEP == 0


def refuse_what_lacks_it(device: torch.device, schema: Any = None, cuda: Any = torch.cuda) -> None:
    """Check torch and the GPU before anything is decoded. ``schema``: of the operator, by default that of the installed torch;
    it and ``cuda`` may be fakes.

    Raises:
        ScenarioError: the operator is not the one that ``attend`` calls, or the GPU is older than its kernels.
    """
    found = torch.ops.aten._flash_attention_forward.default._schema if schema is None else schema
    arguments = {argument.name: argument for argument in found.arguments}
    first, gives = tuple(arguments)[: len(TAKES)], tuple([result.name for result in found.returns])
    unnamed = [name for name in arguments if name not in (*TAKES, *NAMED) and not arguments[name].has_default_value()]
    if first != TAKES or not arguments.keys() >= set(NAMED) or unnamed or gives[: len(GIVES)] != GIVES:
        raise ScenarioError(
            f"torch {torch.__version__} has another {OPERATOR} than the one that graphs in half precision call: {found}; "
            "install torch 2.11 to 2.13, or use dtype: float32 or execution: eager"
        )
    if device.type == "cuda" and (capability := cuda.get_device_capability(device)) < LEAST_CAPABILITY:
        raise ScenarioError(
            f"graphs in half precision use flash attention, which wants compute capability 8.0; {device} has "
            f"{'.'.join(map(str, capability))}; use dtype: float32 or execution: eager"
        )


def attend(query: Tensor, keys: Tensor, values: Tensor, runs: Runs, scaling: float | None) -> tuple[Tensor, Tensor]:
    """Queries (T, H, D) of all runs over the keys and values (K, G, D) of each run. Returns an output like the queries, and the
    log-sum-exp (H, T) in float32. Of a run without keys, flash attention 2 says +inf; its output there may be NaN.
    """
    out, lse, *_ = torch.ops.aten._flash_attention_forward(
        query,
        keys,
        values,
        runs.asked,
        runs.starts,
        runs.widest,
        runs.longest,
        0.0,
        False,
        False,
        scale=scaling,
        seqused_k=runs.used,
    )
    return out, lse


class FlashRuns:
    """A harness.engine.kv_cache.CapturedAttention."""

    def __init__(self, fed: ForwardKind) -> None:
        count = pieces_of(fed.rows * fed.groups, fed.slots)
        own = any(causal for _, causal in fed.parts)
        self._fed, self._copies, self._own = fed, count + own, own
        end = _Run(0, 0, fed.rows * fed.slots, 0, 0, 0, 0)  # where keys begin has one entry more than there are runs
        runs = [*_pieces(fed, count), *(_own(fed) if own else ()), end]
        columns = upload([*zip(*runs, strict=True)], fed.device, torch.int32)
        _, whose, self._base, self._furthest, before, least, most = columns
        self._whose, self._before, self._least, self._most = whose.long(), before[:-1], least[:-1], most[:-1]
        queries = [run.queries for run in runs[:-1]]
        self._longest, self._widest = max(run.most for run in runs), max(queries)
        self._asked = upload([*accumulate(queries, initial=0)], fed.device, torch.int32)
        of_query = [number for number, count in enumerate(queries) for _ in range(count)]
        self._run_of_query = upload(of_query, fed.device, torch.long) if self._copies > 1 else None

    def read(self, used: Tensor) -> FlashReading:
        """See CapturedAttention."""
        seen = used.flatten()[self._whose]
        keys = (seen[:-1] - self._before).clamp(self._least, self._most)
        runs = Runs(
            asked=self._asked,
            starts=self._base + torch.minimum(seen, self._furthest) if self._own else self._base,
            used=keys,
            widest=self._widest,
            longest=self._longest,
            # With a single copy each run sees something: a token is committed, or it sees itself.
            empty=None if self._run_of_query is None else (keys == 0)[self._run_of_query],
        )
        return FlashReading(runs, self._copies, self._fed.shared)


@positional
class FlashReading:
    """A harness.engine.kv_cache.Attending: the runs of one forward over ``copies`` of its queries."""

    runs: Runs
    copies: int
    shared: int

    def attend(self, query: Tensor, keys: Tensor, values: Tensor, scaling: float | None) -> Tensor:
        """See Attending."""
        rows, heads, tokens, size = query.shape
        groups = keys.shape[1]
        folded = query.transpose(1, 2).reshape(rows, tokens, groups, self.shared, size).transpose(2, 3)
        packed = folded.expand(self.copies, -1, -1, -1, -1, -1) if self.copies > 1 else folded
        out, lse = attend(packed.reshape(-1, groups, size), keys, values, self.runs, scaling)
        if self.runs.empty is None:
            out = out.view(-1, self.shared, groups, size).transpose(1, 2)
        else:
            out = torch.ops.sbd.merge(out, lse, self.runs.empty, self.copies, self.shared)
        return out.to(query.dtype).reshape(rows, tokens, heads, size)


def merge(outs: Tensor, lses: Tensor, empty: Tensor, copies: int, shared: int) -> Tensor:
    """Softmax over a union from softmaxes over its parts: (T, G, D) outputs of all copies, their (G, T) log-sum-exps in
    float32, and (T,) bool which of them had no keys. Returns (tokens, G, shared, D).

    out = Σ exp(lse_p - lse) out_p with lse = log Σ exp(lse_p): the parts' weights are a softmax of their log-sum-exps. What
    had no keys weighs nothing, and is 0 where nothing else is there. The reference of harness.engine.fused_merge.
    """
    weights = lses.masked_fill(empty, torch.finfo(lses.dtype).min).view(lses.shape[0], copies, -1).softmax(dim=1)
    parts = outs.masked_fill(empty[:, None, None], 0.0).view(copies, -1, *outs.shape[1:])
    found = (weights.permute(1, 2, 0)[..., None] * parts).sum(dim=0)
    return found.view(-1, shared, *found.shape[1:]).transpose(1, 2)


def _merged(outs: Tensor, *given: Any) -> Tensor:
    """In the outputs' own type and contiguous: what every form of the operation gives."""
    return merge(outs, *given).to(outs.dtype, memory_format=torch.contiguous_format)


def _fused(*given: Any) -> Tensor:
    """Where Triton is, one launch; six of every layer in torch's operations."""
    from harness.engine import fused_merge

    return fused_merge.merge(*given)


_LIBRARY: Any = cast(Any, torch.library.Library)("sbd", "FRAGMENT")  # carries no types
_LIBRARY.define("merge(Tensor outs, Tensor lses, Tensor empty, SymInt copies, SymInt shared) -> Tensor")
_LIBRARY.impl("merge", _merged, "CompositeExplicitAutograd")
if find_spec("triton"):
    _LIBRARY.impl("merge", _fused, "CUDA")
torch.library.register_fake("sbd::merge", _merged, lib=_LIBRARY)


class _Run(NamedTuple):
    """A run before the used lengths are known. With u used slots of ``whose`` it begins at slot base + min(u, furthest). It has
    u - before keys, ``least`` to ``most``.
    """

    queries: int
    whose: int
    base: int
    furthest: int
    before: int
    least: int
    most: int


def _pieces(fed: ForwardKind, count: int) -> Iterator[_Run]:
    """All parts over every piece of their row's buffer: the used slots that lie in it."""
    length = fed.slots // count
    for before in range(0, fed.slots, length):
        for row in range(fed.rows):
            for part, (width, _) in enumerate(fed.parts):
                yield _Run(width * fed.shared, part * fed.rows + row, row * fed.slots + before, 0, before, 0, length)


def _own(fed: ForwardKind) -> Iterator[_Run]:
    """The tokens of causal parts, each over those of its part up to itself; for other parts, runs without keys.

    The own slots begin after the used ones. Padding may have no room there; its result is unused, but it must not read after
    the buffer.
    """
    for row in range(fed.rows):
        for part, (width, causal) in enumerate(fed.parts):
            whose, base = part * fed.rows + row, row * fed.slots
            if causal:
                yield from (_Run(fed.shared, whose, base, fed.slots - width, 0, seen, seen) for seen in range(1, width + 1))
            else:
                yield _Run(width * fed.shared, whose, base, 0, 0, 0, 0)
