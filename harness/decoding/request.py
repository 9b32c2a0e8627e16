"""What a decoder is asked to do, the same for every arm."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from harness.decoding.stopping import StopRule


class Fuse(Protocol):
    """Runs pure functions of tensors as few kernels, by whatever means the device has. A kind of call is made ready when it is
    first met, which may take seconds; kinds are told apart by the function and by the shapes.
    """

    def __call__(self, work: Callable[..., tuple[Tensor, ...]], *tensors: Tensor) -> Sequence[Tensor]:
        """What ``work`` returns for the ``tensors``; good until the next call of this kind."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodeRequest:
    """One batch of prompts. ``suppressed_ids`` can never be emitted (the mask token among them); ``fuse``: runs the sampler at
    temperature 0, None for operation by operation.
    """

    prompts: tuple[tuple[int, ...], ...]
    max_new_tokens: int
    stop: StopRule
    suppressed_ids: tuple[int, ...]
    temperature: float
    generator: torch.Generator
    device: torch.device
    fuse: Fuse | None = None

    def never_written(self, *also: int) -> Tensor:
        """(s,) ids that no token may have: the suppressed ones, and those given (the mask)."""
        return torch.tensor(sorted({*self.suppressed_ids, *also}), dtype=torch.long, device=self.device)
