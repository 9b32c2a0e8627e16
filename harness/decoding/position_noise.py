"""One draw of chance for every position of the output, whoever asks: what a draft and its check have in common.

A token is the argmax of logits / temperature + noise of its position (Gumbel-max), so a draft is most often the very token
that the next-token head will draw wherever the two distributions are close, however flat they are. What is written is exact:
it is the next-token head's draw with the noise of its position, which is independent of all that stands before it; drafts
change only how soon it is drawn. Axes: B rows, n positions, V vocabulary, W positions held at a time.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from harness.decoding.request import DecodeRequest
from harness.decoding.sampling import likeliest_token, token_drawn, widened
from harness.decoding.uploading import upload


class PositionNoise:
    """The noise of the next ``width`` positions of every row. Offsets count from the first position that a row has not made
    final. At temperature 0 there is none, and a token is the likeliest.
    """

    def __init__(self, request: DecodeRequest, width: int) -> None:
        self._temperature = request.temperature
        self._generator = request.generator
        self._width = width
        self._starts = [0] * len(request.prompts)
        self._held: Tensor | None = None  # (B, W, V), offset 0 of a row at its start, the others behind it in a ring

    def draw(self, logits: Tensor, first: int | Sequence[int] | Tensor) -> Tensor:
        """The token of each of n positions in a row, (B, n), sampling.NO_TOKEN where there is none; ``first``: offset of the
        first of them, of all rows or of each.
        """
        if self._temperature == 0:
            return likeliest_token(logits)
        wide = widened(logits, self._temperature)
        if self._held is None:
            self._held = self._fresh(len(self._starts) * self._width, wide).view(-1, self._width, logits.shape[-1])
        offset = first if isinstance(first, int | Tensor) else upload(first, logits.device)
        starts = upload(self._starts, logits.device) + offset  # (B,)
        slots = (starts[:, None] + torch.arange(logits.shape[1], device=logits.device)) % self._width
        rows = torch.arange(slots.shape[0], device=logits.device)[:, None]
        return token_drawn(logits, (wide + self._held[rows, slots]).argmax(dim=-1))

    def advance(self, final_tokens: Sequence[int]) -> None:
        """So many more positions of each row are final; as many new ones come within reach."""
        if self._held is None or not any(final_tokens):
            return
        used = [
            (row, (start + i) % self._width)
            for row, (start, count) in enumerate(zip(self._starts, final_tokens, strict=True))
            for i in range(count)
        ]
        rows, slots = upload(used, self._held.device).unbind(dim=1)
        self._held[rows, slots] = self._fresh(len(used), self._held)
        self._starts = [start + count for start, count in zip(self._starts, final_tokens, strict=True)]

    def _fresh(self, positions: int, like: Tensor) -> Tensor:
        """(positions, V) standard Gumbel noise."""
        noise = like.new_empty(positions, like.shape[-1])
        return noise.exponential_(generator=self._generator).log_().neg_()
