"""Forwards compiled or captured while the clock ran: that takes seconds, so a window with one is no measurement of decoding."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from harness.meters.window import Figure


@dataclass(slots=True)
class Tally:
    """How many graphs were captured; torch keeps no count of them."""

    made: int = 0


CAPTURES = Tally()


class GraphMeter:
    """Counts graphs made by torch.compile (``counters``: torch._dynamo's own tally, or a fake of it) and captured ones."""

    figures: Mapping[str, Figure] = {
        "compiled_graphs": Figure(unit="graphs", source="torch._dynamo counters, and captures counted by the session")
    }

    def __init__(self, counters: Any = None) -> None:
        self._counters = counters
        self._before = 0

    def open(self) -> None:
        """Note how many there are."""
        self._before = self._made()

    def close(self) -> Mapping[str, float]:
        """How many came since."""
        return {"compiled_graphs": float(self._made() - self._before)}

    def _made(self) -> int:
        counters = torch._dynamo.utils.counters if self._counters is None else self._counters
        made: int = counters["stats"]["unique_graphs"]
        return made + CAPTURES.made
