"""The sampler on a GPU: one walk over the vocabulary in the logits' own type, in Triton; imported only where Triton exists.

A tile of the vocabulary is loaded once and stays in registers. It yields its maximum m and the lowest id that has it. S is its
sum of exp(x - m), T that of (x - m) exp(x - m). A second kernel merges the tiles of a position, so that a single row uses the
whole GPU. The entropy is H = log S - T / S; no term is negative. Nothing waits for the device, and no shape decides what Python
does, so both can be captured. Axes: B rows, n positions, V vocabulary.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from harness.decoding.session import NO_TOKEN

TILE = 4096
"""Logits of one program: at 256 threads 16 each, which fit in registers. 128k tokens are 32 programs a position; in a smaller
vocabulary one program takes several positions.
"""
WARPS = 8
MERGED = 64
"""Tiles that one program merges."""
kernel = triton.jit(do_not_specialize=range(10))
"""One compile of a kernel serves every size and address. Else Triton compiles anew where a number is 1, or where a number or an
address is a multiple of 16 or is no longer; it also sums in another order then.
"""


def walk(logits: Tensor, temperature: float, second: bool, block: int = TILE) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Tokens, entropy, confidence and margin of (B, n, V) logits, each (B, n); without ``second`` the margin is uninitialised.
    Sums are in float32, for float64 logits in float64. ``block``: logits of one program, a power of two.
    """
    logits = logits if logits.stride(-1) == 1 else logits.contiguous()
    rows, positions, vocabulary = logits.shape
    tile = min(block, triton.next_power_of_2(vocabulary))
    tiles, several = triton.cdiv(vocabulary, tile), block // tile
    of_merge = triton.next_power_of_2(tiles)
    merged = max(1, (MERGED if block == TILE else block) // of_merge)
    wide = torch.float64 if logits.dtype == torch.float64 else torch.float32
    device, count = logits.device, rows * positions
    partial = torch.empty(4, count, tiles, dtype=wide, device=device)
    best = torch.empty(count, tiles, dtype=torch.int32, device=device)
    tokens = torch.empty(rows, positions, dtype=torch.long, device=device)
    entropy = torch.empty(rows, positions, dtype=wide, device=device)
    confidence, margin = torch.empty(2, rows, positions, dtype=torch.float64, device=device)
    _tile[(triton.cdiv(count, several), tiles)](
        logits,
        partial,
        best,
        logits.stride(0),
        logits.stride(1),
        partial.stride(0),
        count,
        positions,
        vocabulary,
        temperature,
        SECOND=second,
        SEVERAL=several,
        TILE=tile,
        num_warps=WARPS,
    )
    _merge[(triton.cdiv(count, merged),)](
        partial,
        best,
        tokens,
        entropy,
        confidence,
        margin,
        partial.stride(0),
        count,
        tiles,
        temperature,
        NO_TOKEN=NO_TOKEN,
        SECOND=second,
        SEVERAL=merged,
        TILES=of_merge,
        num_warps=1,
    )
    return tokens, entropy, confidence, margin


@kernel
def _tile(
    logits,
    partial,
    best,
    row_stride,
    position_stride,
    figures,
    count,
    positions,
    vocabulary,
    temperature,
    SECOND: tl.constexpr,
    SEVERAL: tl.constexpr,
    TILE: tl.constexpr,
):
    """One tile of several positions: its maximum, S, T and runner-up into ``partial``, the maximum's id into ``best``."""
    position = tl.program_id(0).to(tl.int64) * SEVERAL + tl.arange(0, SEVERAL)
    tile = tl.program_id(1)
    ids = tile * TILE + tl.arange(0, TILE)[None, :]
    there = position < count
    starts = position // positions * row_stride + position % positions * position_stride
    x = tl.load(logits + starts[:, None] + ids, mask=there[:, None] & (ids < vocabulary), other=float("-inf"))
    x = x.to(partial.dtype.element_ty)
    x = tl.where(x != x, float("inf"), x)  # NaN and infinity alike name no token, and no maximum may lose them
    highest = tl.max(x, axis=1)
    token = tl.min(tl.where(x == highest[:, None], ids, vocabulary), axis=1)
    below = tl.where(x > float("-inf"), (x - highest[:, None]) / temperature, float("-inf"))
    powers = tl.exp(below)
    at = position * tl.num_programs(1) + tile
    tl.store(best + at, token, mask=there)
    tl.store(partial + at, highest, mask=there)
    tl.store(partial + figures + at, tl.sum(powers, axis=1), mask=there)
    tl.store(partial + 2 * figures + at, tl.sum(tl.where(powers > 0, powers * below, 0.0), axis=1), mask=there)
    if SECOND:
        runner_up = tl.max(tl.where(ids == token[:, None], float("-inf"), x), axis=1)
        tl.store(partial + 3 * figures + at, runner_up, mask=there)


@kernel
def _merge(
    partial,
    best,
    tokens,
    entropy,
    confidence,
    margin,
    figures,
    count,
    tiles,
    temperature,
    NO_TOKEN: tl.constexpr,
    SECOND: tl.constexpr,
    SEVERAL: tl.constexpr,
    TILES: tl.constexpr,
):
    """The figures of several positions from those of their tiles."""
    position = tl.program_id(0).to(tl.int64) * SEVERAL + tl.arange(0, SEVERAL)
    tile = tl.arange(0, TILES)[None, :]
    there = position < count
    at, inside = position[:, None] * tiles + tile, there[:, None] & (tile < tiles)
    of_tile = tl.load(partial + at, mask=inside, other=float("-inf"))
    ids = tl.load(best + at, mask=inside, other=2147483647)
    highest = tl.max(of_tile, axis=1)
    token = tl.min(tl.where(of_tile == highest[:, None], ids, 2147483647), axis=1)
    named = (highest > float("-inf")) & (highest < float("inf"))
    shift = tl.where(of_tile > float("-inf"), (of_tile - highest[:, None]) / temperature, float("-inf"))
    weight = tl.where(shift > float("-inf"), tl.exp(shift), 0.0)
    sums = tl.load(partial + figures + at, mask=inside, other=0.0)
    products = tl.load(partial + 2 * figures + at, mask=inside, other=0.0)
    total = tl.sum(tl.where(weight > 0, weight * sums, 0.0), axis=1)
    spread = tl.sum(tl.where(weight > 0, weight * (products + sums * shift), 0.0), axis=1)
    largest = 1.0 / total.to(tl.float64)
    tl.store(tokens + position, tl.where(named, token, NO_TOKEN).to(tl.int64), mask=there)
    tl.store(entropy + position, tl.where(named, tl.log(total) - spread / total, float("nan")), mask=there)
    tl.store(confidence + position, tl.where(named, largest, float("nan")), mask=there)
    if SECOND:
        seconds = tl.load(partial + 3 * figures + at, mask=inside, other=float("-inf"))
        runner_up = tl.max(tl.where(ids == token[:, None], seconds, of_tile), axis=1)
        power = tl.where(runner_up > float("-inf"), tl.exp((runner_up - highest) / temperature), 0.0)
        tl.store(margin + position, tl.where(named, largest - power.to(tl.float64) * largest, float("nan")), mask=there)
