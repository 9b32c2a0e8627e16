"""Ways of attending, timed at the shapes of a decode: no mask, a boolean mask, packed heads, flex_attention.

A next-token pass has 1 query, a later pass of a block k; both see every key. The pass that commits a block and opens the next
one has 2k: the first k are causal, the others see all. Axes: B rows, H query heads, G KV heads, Q queries, C keys, D head
dimension. Knows no model and no file.
"""

from __future__ import annotations

import itertools
import statistics
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention.bias import causal_lower_right
from torch.nn.functional import scaled_dot_product_attention as sdpa

from harness.engine.captured_attention import OPTIONS, option_of
from harness.engine.kv_cache import Attending, ForwardKind, folded_attention
from harness.frozen import frozen, positional
from harness.meters.clock import Clock

ATTENTION_VERSION = 1
MASK = "SDPA, boolean mask"
CAPTURABLE = "used lengths, as captured"
FLEX = "flex_attention"
CAPTURED = {CAPTURABLE: None, FLEX: "flex"}
"""What the engine captures into graphs, with lengths in tensors; here without the graph, launches included."""
WARM_UP, SPANS, CALLS = 3, 9, 8
COLD_BYTES, MOST_COPIES = 2**28, 32
"""Keys and values rotate over so many bytes, as over a model's layers, because one pair would stay in the cache."""


@frozen
class AttentionTime:
    """Median seconds of one call, or None and the reason, with two comparisons to the boolean mask at the same place.

    ``over_mask``: ratio of the times. ``difference``: largest absolute difference of the outputs.
    """

    batch: int
    context: int
    queries: int
    way: str
    seconds: float | None = None
    over_mask: float | None = None
    difference: float | None = None
    reason: str | None = None


@positional
class ReadPlace:
    """``queries`` in each of ``batch`` rows after ``context`` committed tokens; the first ``causal`` are causal."""

    batch: int
    context: int
    queries: int
    causal: int

    @property
    def keys(self) -> int:
        """C: the context and the pass's own tokens."""
        return self.context + self.queries


Way = Callable[[Tensor, Tensor, Tensor], Tensor]


def places(cells: Sequence[tuple[int, int, int]]) -> list[ReadPlace]:
    """1, k and 2k queries at every (batch, context, k)."""
    return [
        ReadPlace(batch, context, queries, queries // 2 if queries == 2 * block else 0)
        for batch, context, block in cells
        for queries in (1, block, 2 * block)
    ]


def visible(place: ReadPlace, device: str) -> Tensor:
    """(Q, C) bool: the keys that each query may look at."""
    query = torch.arange(place.queries, device=device)[:, None]
    key = torch.arange(place.keys, device=device)[None, :]
    return (query >= place.causal) | (key <= place.context + query)


def compare_ways(
    device: str,
    dtype: torch.dtype,
    heads: tuple[int, int, int],
    cells: Sequence[tuple[int, int, int]],
    clock: Clock,
    deadline_s: float,
    now_s: Callable[[], float] = time.monotonic,
) -> list[AttentionTime]:
    """Time every way at every place until ``deadline_s`` by ``now_s``; the rest is listed with that reason.

    Flex_attention comes last, because it is compiled at every place.

    Args:
        heads: (H, G, D).
    """
    wanted = places(cells)
    ways = [(place, way) for place in wanted for way in (MASK, "SDPA, no mask", "SDPA, heads packed", CAPTURABLE)]
    times, mask_s = [], dict[ReadPlace, float | None]()
    for place, way in [*ways, *((place, FLEX) for place in wanted)]:
        blank = AttentionTime(batch=place.batch, context=place.context, queries=place.queries, way=way)
        if now_s() > deadline_s:
            times.append(replace(blank, reason="not run: the time was up"))
            continue
        try:
            timed = _timed(blank, place, device, dtype, heads, clock)
        except Exception as error:  # an attention missing on this device or build is a result
            timed = replace(blank, reason=f"{type(error).__name__}: {str(error).partition(chr(10))[0]}")
        if way == MASK:
            mask_s[place] = timed.seconds
        base_s = mask_s.get(place)
        times.append(replace(timed, over_mask=timed.seconds / base_s) if timed.seconds is not None and base_s else timed)
    order = {(place.batch, place.context, place.queries): index for index, place in enumerate(wanted)}
    return sorted(times, key=lambda one: order[one.batch, one.context, one.queries])


def _timed(
    blank: AttentionTime, place: ReadPlace, device: str, dtype: torch.dtype, heads: tuple[int, int, int], clock: Clock
) -> AttentionTime:
    attend = way_of(blank.way, place, device)
    if attend is None:
        return replace(blank, reason="packed queries share one mask row each, and the first k here are causal")
    torch.manual_seed(11)
    query_heads, kv_heads, width = heads
    queries = torch.randn(place.batch, query_heads, place.queries, width, device=device, dtype=dtype)
    # Layout as in the sessions: contiguous slots per row where they are read as captured, else per KV head.
    shape = (place.batch, place.keys, kv_heads, width)
    copies = min(MOST_COPIES, max(1, COLD_BYTES // (2 * dtype.itemsize * place.batch * kv_heads * place.keys * width)))
    drawn = [tuple(torch.randn(shape, device=device, dtype=dtype).transpose(1, 2) for _ in "kv") for _ in range(copies)]
    layers = drawn if blank.way in CAPTURED else [(keys.contiguous(), values.contiguous()) for keys, values in drawn]
    with torch.inference_mode(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="flex_attention called without")  # intended on a CPU
        masked = way_of(MASK, place, device)
        assert masked is not None
        apart = (attend(queries, *layers[0]).float() - masked(queries, *layers[0]).float()).abs().max().item()
        turn = itertools.cycle(layers)
        seconds = _median_s(lambda: attend(queries, *next(turn)), clock)
    return replace(blank, seconds=seconds, difference=apart)


def _median_s(call: Callable[[], Any], clock: Clock) -> float:
    for _ in range(WARM_UP):
        call()
    clock.synchronise()
    marks = []
    for _ in range(SPANS):
        start = clock.mark()
        for _ in range(CALLS):
            call()
        marks.append((start, clock.mark()))
    clock.synchronise()
    return statistics.median(clock.spans_s(marks)) / CALLS


def way_of(name: str, place: ReadPlace, device: str) -> Way | None:
    """The function of a name: (B, H, Q, D) queries, (B, G, C, D) keys and values; None where the place lacks it."""
    if name == MASK:
        mask = visible(place, device)
        return lambda q, k, v: sdpa(q, k, v, attn_mask=mask, enable_gqa=True)
    if name == "SDPA, heads packed":
        return None if place.causal else lambda q, k, v: folded_attention(q, k, v, mask=None, scaling=None)
    if name in CAPTURED:
        return _as_captured(place, device, CAPTURED[name])
    return _unmasked(place)


def _unmasked(place: ReadPlace) -> Way:
    """One call without a mask; with causal queries two calls, each over the keys it may see."""
    first, before = place.causal, place.context + place.causal
    if not first:
        return lambda q, k, v: sdpa(q, k, v, enable_gqa=True)

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        bias: Any = causal_lower_right(first, before)
        own = sdpa(q[:, :, :first], k[:, :, :before], v[:, :, :before], attn_mask=bias, enable_gqa=True)
        return torch.cat([own, sdpa(q[:, :, first:], k, v, enable_gqa=True)], dim=2)

    return attend


def _as_captured(place: ReadPlace, device: str, option: str | None) -> Way:
    """The attention of harness.engine.captured_attention over full buffers; ``option`` None: the engine's choice.

    The first call makes what an engine makes once per capture or forward, for all layers.
    """
    parts = ((place.causal, True), (place.queries - place.causal, False)) if place.causal else ((place.queries, False),)
    used = torch.full((len(parts), place.batch), place.keys, dtype=torch.int32, device=device)
    if place.causal:
        used[0] = place.context
    made: list[Attending] = []

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        if not made:
            name = option or option_of("sdpa", q.device, q.dtype, q.shape[3])
            fed = ForwardKind(parts, place.batch, q.shape[1], k.shape[1], place.keys, q.dtype, q.device)
            made.append(OPTIONS[name](fed).read(used))
        keys, values = (buffer.transpose(1, 2).flatten(0, 1) for buffer in (k, v))
        return made[0].attend(q, keys, values, None).transpose(1, 2)

    return attend
