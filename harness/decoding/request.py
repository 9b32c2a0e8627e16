"""What a decoder is asked to do, the same for every arm."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from harness.decoding.stopping import StopRule


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodeRequest:
    """One batch of prompts. ``suppressed_ids`` can never be emitted (the mask token among them)."""

    prompts: tuple[tuple[int, ...], ...]
    max_new_tokens: int
    stop: StopRule
    suppressed_ids: tuple[int, ...]
    temperature: float
    generator: torch.Generator
    device: torch.device

    def never_written(self, *also: int) -> Tensor:
        """(s,) ids that no token may have: the suppressed ones, and those given (the mask)."""
        return torch.tensor(sorted({*self.suppressed_ids, *also}), dtype=torch.long, device=self.device)
