"""From the host to the device without waiting for it: a plain torch.tensor(values, device=...) waits for all work before it."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def upload(values: Any, device: torch.device, dtype: torch.dtype | None = None) -> Tensor:
    """``values`` (numbers, lists of them, or a tensor on the CPU) as a tensor on ``device``."""
    held = values if isinstance(values, Tensor) else torch.tensor(values, dtype=dtype)
    return held if device.type == "cpu" else page_locked(held, device).to(device, non_blocking=True)


def page_locked(held: Tensor, device: torch.device) -> Tensor:
    """A copy that the device can fetch by itself; torch keeps its memory until it has, whoever lets go of it before."""
    return held.pin_memory() if device.type == "cuda" else held
