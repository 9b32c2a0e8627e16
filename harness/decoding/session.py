"""The protocol of the one model call that every decoder uses, and uploads to the device without a wait.

A session holds a batch of rows and their committed KV. ``forward`` feeds segments and returns logits; nothing it fed stays
until ``keep`` says so. A plain torch.tensor(values, device=...) waits for all work before it; ``upload`` does not. Axes: B
rows, n tokens of a segment, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import torch
from torch import Tensor

from harness.errors import NoTokenError

Visibility = Literal["causal", "bidirectional", "explicit"]


@dataclass(slots=True, kw_only=True)
class Segment:
    """A run of tokens, the same width for every row. A token sees the committed context of its row and every earlier segment of
    the call. Of its own segment it sees the tokens up to itself (causal), all (bidirectional) or those that ``seen`` names
    (explicit).

    A session keeps no segment, so a decoder may feed the same one again with other tensors. Making one takes 10 to 20 us after
    a forward that has emptied the caches.

    ``tokens``     (B, n) ids
    ``positions``  (B, n) position of each token in its row
    ``logits``     number of last tokens of the segment whose logits are wanted (0 for none)
    ``valid``      (B, n) bool on the CPU, False on padding, which nothing sees; None without padding
    ``read``       rows whose logits are read, None for all; the results of the others are not used
    ``seen``       (n, n) bool on the CPU, explicit segments only: True where the token of the row sees that of the column
    ``adapted``    number of last tokens of the segment that the model's gated adapter acts on, if it has one; by default all of
                   a bidirectional segment, none of others

    Raises:
        ValueError: ``seen`` is missing, or not asked for.
    """

    tokens: Tensor
    positions: Tensor
    visibility: Visibility
    logits: int
    valid: Tensor | None = None
    read: Sequence[bool] | None = None
    seen: Tensor | None = None
    adapted: int = -1

    def __post_init__(self) -> None:
        if self.adapted < 0:
            self.adapted = self.tokens.shape[1] if self.visibility == "bidirectional" else 0
        if (self.visibility == "explicit") != (self.seen is not None):
            raise ValueError(f"a segment of {self.visibility} visibility: seen is for explicit segments, which must bring it")


class ModelSession(Protocol):
    """One model, one batch of rows, one KV cache. All arms use the same object."""

    @property
    def context_tokens(self) -> tuple[int, ...]:
        """Committed KV entries of each row, padding not counted."""

    @property
    def context_width(self) -> int:
        """Cache slots that a forward reads per row, padding and holes included."""

    def reset(self, rows: int, capacity: int) -> None:
        """Forget everything and make room for ``rows`` rows that hold ``capacity`` tokens each, the ones being fed included."""

    def forward(self, segments: Sequence[Segment]) -> Tensor:
        """Run one forward pass over all segments.

        Returns:
            (B, m, V) logits of the wanted tokens of all segments in order (m may be 0).
        """

    def keep(self, tokens: Sequence[int]) -> None:
        """Commit, per row, the KV of the first so many tokens of the last forward; drop the rest of it."""

    def drop(self, tokens: Sequence[int]) -> None:
        """Forget, per row, the newest so many committed tokens: a draft model's own that were not written."""

    def read(self, tokens: Tensor) -> list[list[int]]:
        """What the sampler made of the last forward's logits, (B, n), on the host: the one readback of a pass."""


def upload(values: Any, device: torch.device, dtype: torch.dtype | None = None) -> Tensor:
    """``values`` (numbers, lists of them, or a tensor on the CPU) as a tensor on ``device``."""
    held = values if isinstance(values, Tensor) else torch.tensor(values, dtype=dtype)
    return held if device.type == "cpu" else page_locked(held, device).to(device, non_blocking=True)


def page_locked(held: Tensor, device: torch.device) -> Tensor:
    """A copy that the device can fetch by itself; torch keeps its memory until the device has fetched it."""
    return held.pin_memory() if device.type == "cuda" else held


NO_TOKEN = -2
"""Drawn where the logits name no token: one of them is NaN or infinite, or every token is impossible."""
NO_NUMBERS = (
    "the logits of a pass name no token: one is NaN or infinite, or the mask token is all there is; look for such numbers in "
    "the weights, try dtype: float32, and check mask_token_id"
)


def refuse_no_token(token: int) -> None:
    """Told every token that a row is about to take.

    Raises:
        NoTokenError: it is NO_TOKEN.
    """
    if token == NO_TOKEN:
        raise NoTokenError(NO_NUMBERS)
