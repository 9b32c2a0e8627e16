"""What logits on a CPU say at every position, by the kernels of walk.cpp and in_turn.cpp.

Axes: B rows, n positions, V vocabulary, T tokens of a row.
"""

from __future__ import annotations

from collections.abc import Sequence
from ctypes import Structure, byref, c_float, c_int64, c_void_p
from typing import Any

import torch
from torch import Tensor

from harness.kernels.library import NAMES, library


def likeliest(logits: Tensor) -> Tensor:
    """The likeliest token of every position of (B, n, V) logits, (B, n), of equals the one of lowest id; -2 where a logit is
    NaN or infinite, or every token impossible.
    """
    tokens = torch.empty(logits.shape[:-1], dtype=torch.long)
    _walk(logits, 1.0, tokens, None, None, None)
    return tokens


def walk(logits: Tensor, temperature: float) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Tokens, entropy in nats, confidence and margin of (B, n, V) logits at a temperature, each (B, n)."""
    shape = logits.shape[:-1]
    confidence, margin = torch.empty(2, *shape, dtype=torch.float64)
    found = torch.empty(shape, dtype=torch.long), torch.empty(shape), confidence, margin
    _walk(logits, temperature, *found)
    return found


class _Bigram(Structure):
    _fields_ = [*((name, c_void_p) for name in ("before", "head", "down", "up")), ("hidden", c_int64), ("rank", c_int64)]


def drafts_in_turn(logits: Tensor, candidates: int, text: Tensor, newest: Tensor, nats: Sequence[float], bigram: Any) -> None:
    """InTurn.drafts of (B, n, V) logits with the likeliest token of every slot, into ``text`` (B, T) after ``newest`` (B,).

    ``nats``: of copies, by the tokens that are alike, or none; ``bigram``: or None.
    """
    rows, slots, vocab = logits.shape
    matrices = [getattr(bigram, name).to(logits.dtype).contiguous() for name in ("before", "head", "down", "up") if bigram]
    term = _Bigram(*(matrix.data_ptr() for matrix in matrices), *matrices[3].shape) if bigram else None
    call = getattr(library(), f"sbd_in_turn_{NAMES[logits.dtype]}")
    logits, newest = logits.contiguous(), newest.contiguous()
    call(
        c_void_p(logits.data_ptr()),
        *map(c_int64, (rows, slots, vocab, candidates)),
        c_void_p(text.data_ptr()),
        c_int64(text.shape[1]),
        c_void_p(newest.data_ptr()),
        (c_float * len(nats))(*nats) if nats else None,
        term and byref(term),
    )


def _walk(logits: Tensor, temperature: float, *found: Tensor | None) -> None:
    logits, vocab = logits.contiguous(), logits.shape[-1]
    addresses = (None if tensor is None else c_void_p(tensor.data_ptr()) for tensor in found)
    call = getattr(library(), f"sbd_walk_{NAMES[logits.dtype]}")
    call(c_void_p(logits.data_ptr()), c_int64(logits.numel() // vocab), c_int64(vocab), c_float(temperature), *addresses)
