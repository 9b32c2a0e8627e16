"""What every decoder hands over in the end: its passes, and what each of its rows wrote."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from harness.record.trace import ForwardPass, Generation, StopReason


class WrittenRow(Protocol):
    """A row that has ended."""

    @property
    def output(self) -> list[int]:
        """What it wrote, its stop included."""

    @property
    def stop_reason(self) -> StopReason:
        """Why it ended."""


def finished(rows: Sequence[WrittenRow], passes: Sequence[ForwardPass]) -> Generation:
    """The whole decode; the first pass is the prompts', whose own tokens are what it keeps."""
    return Generation(
        passes=tuple(passes),
        prompt_tokens=passes[0].kept_tokens,
        output_ids=tuple(tuple(row.output) for row in rows),
        stop_reasons=tuple(row.stop_reason for row in rows),
    )
