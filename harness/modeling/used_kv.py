"""Attention over the used part of fixed buffers, with shapes that never change: what a captured forward is made of.

How much of each row is used stands in tensors, so a graph captured once serves every context length. No mask is made. A
part that is causal within itself is taken as all that was committed before it and its own block, merged by log-sum-exp;
query heads that share a KV head are folded into the query, so that each KV head is read once; and a long buffer is cut
into pieces that run side by side, merged the same way (flash attention splits only where the query is one token).
Axes: B rows, n query tokens of a part, Q of all parts, H query heads, G KV heads, D head dimension, C slots, S pieces.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from harness.modeling import flash_attention
from harness.modeling.kv_buffers import KvLayout
from harness.roofline.kv_slots import pieces_of


@dataclass(frozen=True, slots=True)
class Sequences:
    """Runs of packed keys, all of ``longest``: run i begins at ``starts[i]`` (the last entry is the end of all) and has
    ``used[i]`` keys in use; int32, (N+1,) and (N,). ``empty`` (N,) bool: of which run none is; None where each has some.
    """

    starts: Tensor
    used: Tensor
    longest: int
    empty: Tensor | None = None


@dataclass(frozen=True, slots=True)
class UsedPart:
    """A run of ``width`` query tokens: the buffers' pieces with what it sees of them and, where it is causal within itself,
    its ``own`` keys apart. Made once per forward, for all layers.
    """

    width: int
    pieces: Sequences
    own: Sequences | None


def used_part(width: int, causal: bool, used: Tensor, groups: int, slots: int) -> UsedPart:
    """``used`` (B,) int32: the slots that the run sees from the start of its row's buffer, with the run itself where it is
    bidirectional, without it where it is ``causal``.
    """
    rows, device = used.shape[0], used.device
    count = pieces_of(rows * groups, slots)
    length = slots // count
    before = torch.arange(0, slots, length, dtype=torch.int32, device=device)
    of_piece = (used[:, None] - before).clamp(0, length).flatten()
    pieces = Sequences(
        starts=torch.arange(0, rows * slots + 1, length, dtype=torch.int32, device=device),
        used=of_piece,
        longest=length,
        empty=of_piece == 0 if count > 1 else None,  # in one piece a row sees a committed token or itself
    )
    own = None
    if causal:
        starts = torch.arange(0, rows * width + 1, width, dtype=torch.int32, device=device)
        own = Sequences(starts=starts, used=torch.full((rows,), width, dtype=torch.int32, device=device), longest=width)
    return UsedPart(width=width, pieces=pieces, own=own)


@dataclass(slots=True)
class UsedKv(KvLayout):
    """``keys``, ``values``: one (B, C, G, D) buffer per layer; ``slots`` (B, Q): where every fed token's KV goes."""

    keys: list[Tensor]
    values: list[Tensor]
    slots: Tensor
    parts: tuple[UsedPart, ...]

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, scaling: float | None) -> Tensor:
        """Write the fed KV to its slots, then attend part by part; query (B, H, Q, D), result (B, Q, H, D)."""
        keys, values = self.keys[layer], self.values[layer]
        rows = torch.arange(query.shape[0], device=query.device)[:, None]
        fresh = key.transpose(1, 2), value.transpose(1, 2)
        keys[rows, self.slots], values[rows, self.slots] = fresh
        outs, start = [], 0
        for part in self.parts:
            span = slice(start, start + part.width)
            asked = query[:, :, span].transpose(1, 2)
            out, lse = used_attention(asked, keys, values, part.pieces, scaling)
            if part.own is not None:
                own, own_lse = packed_attention(
                    asked, fresh[0][:, span].flatten(0, 1), fresh[1][:, span].flatten(0, 1), part.own, True, scaling
                )
                out, lse = merge(torch.stack([out, own]), torch.stack([lse, own_lse]))
            outs.append(out)
            start += part.width
        return torch.cat(outs, dim=1).to(query.dtype)


def used_attention(
    query: Tensor, keys: Tensor, values: Tensor, pieces: Sequences, scaling: float | None
) -> tuple[Tensor, Tensor]:
    """Every query (B, n, H, D) over what is used of its row: output (B, n, H, D), log-sum-exp (B, n, H).

    A row with no used slot gets output 0 and log-sum-exp -inf.
    """
    rows, width, heads, size = query.shape
    groups = keys.shape[2]
    shared, count = heads // groups, pieces.used.shape[0] // rows
    folded = query.reshape(rows, width, groups, shared, size).transpose(2, 3).reshape(rows, 1, width * shared, groups, size)
    folded = folded.expand(-1, count, -1, -1, -1).flatten(0, 1)
    out, lse = packed_attention(folded, keys.flatten(0, 1), values.flatten(0, 1), pieces, False, scaling)
    out = out.reshape(rows, count, width, shared, groups, size).transpose(3, 4)
    lse = lse.reshape(rows, count, width, shared, groups).transpose(3, 4)
    out, lse = merge(out.transpose(0, 1), lse.transpose(0, 1)) if count > 1 else (out[:, 0], lse[:, 0])
    return out.reshape(query.shape), lse.reshape(rows, width, heads)


def merge(outs: Tensor, lses: Tensor) -> tuple[Tensor, Tensor]:
    """Softmax over a union from softmaxes over its parts: (P, ..., D) outputs and (P, ...) log-sum-exps, in float32 or better.

    out = Σ exp(lse_p - lse) out_p with lse = log Σ exp(lse_p); a part with nothing in it (-inf) weighs nothing.
    """
    whole = lses.logsumexp(dim=0)
    weights = (lses - whole.clamp(min=torch.finfo(lses.dtype).min)).exp()
    return (weights[..., None] * outs).sum(dim=0), whole


def packed_attention(
    query: Tensor, keys: Tensor, values: Tensor, runs: Sequences, causal: bool, scaling: float | None
) -> tuple[Tensor, Tensor]:
    """Queries (N, n, H, D) of run i over the used ones of its packed keys (T, G, D).

    Causal: the last query sees all of them, each earlier one fewer by one. Output (N, n, H, D), log-sum-exp (N, n, H); flash
    attention's kernel in half precision on a GPU, plain arithmetic elsewhere, run by run.
    """
    if flash_attention.takes_flash(query.device, query.dtype, query.shape[-1]):
        return _flash(query, keys, values, runs, causal, scaling)
    wide = torch.promote_types(query.dtype, torch.float32)
    many, width, _, size = query.shape
    of_run = (many, runs.longest, *keys.shape[1:])
    place = torch.arange(runs.longest, device=query.device)
    seen = place < runs.used[:, None, None]  # (N, 1, T / N)
    if causal:
        last = torch.arange(width, device=query.device)[:, None] + runs.used[:, None, None] - width
        seen = seen & (place <= last)
    asked = query.to(wide).reshape(many, width, keys.shape[1], -1, size)  # the heads that share a KV head beside one another
    scores = torch.einsum("ingsd,itgd->ingst", asked, keys.reshape(of_run).to(wide))
    scores = scores * (size**-0.5 if scaling is None else scaling)
    scores = scores.masked_fill(~seen[:, :, None, None], float("-inf"))
    lse = scores.logsumexp(dim=-1)
    weights = (scores - lse.clamp(min=torch.finfo(wide).min)[..., None]).exp()
    out = torch.einsum("ingst,itgd->ingsd", weights, values.reshape(of_run).to(wide))
    return out.flatten(2, 3), lse.flatten(2, 3)


def _flash(
    query: Tensor, keys: Tensor, values: Tensor, runs: Sequences, causal: bool, scaling: float | None
) -> tuple[Tensor, Tensor]:
    """See harness.modeling.flash_attention; in float32, as the parts of a softmax are merged."""
    out, lse = flash_attention.attend(query, keys, values, runs.starts, runs.used, runs.longest, causal, scaling)
    if runs.empty is None:
        return out.float(), lse
    # Flash attention says +inf of a run without keys, which would outweigh all others; what it leaves as output may be NaN.
    nothing = runs.empty[:, None, None]
    return out.float().masked_fill(nothing[..., None], 0.0), lse.masked_fill(nothing, float("-inf"))
