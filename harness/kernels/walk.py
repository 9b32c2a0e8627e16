"""What logits on a CPU say at every position, by the kernel of walk.cpp. Axes: B rows, n positions, V vocabulary."""

from __future__ import annotations

from ctypes import c_float, c_int64, c_void_p

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


def _walk(logits: Tensor, temperature: float, *found: Tensor | None) -> None:
    logits, vocab = logits.contiguous(), logits.shape[-1]
    addresses = (None if one is None else c_void_p(one.data_ptr()) for one in found)
    call = getattr(library(), f"sbd_walk_{NAMES[logits.dtype]}")
    call(c_void_p(logits.data_ptr()), c_int64(logits.numel() // vocab), c_int64(vocab), c_float(temperature), *addresses)
