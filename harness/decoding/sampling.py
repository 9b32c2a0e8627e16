"""Pure functions on logits: from what the model says to a token and its entropy, with the noise of each output position.

A token is the argmax of logits / temperature + noise of its position (Gumbel-max). A draft and its check use the same noise.
Where the two distributions are close, however flat, a draft is therefore most often the token that the next-token head draws.
The output is exact: it is the next-token head's draw with the noise of its position. That noise is independent of all that
stands before it; drafts change only how soon the token is drawn. Axes: B rows, n positions, V vocabulary, W positions held at a
time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from importlib.util import find_spec

import torch
from torch import Tensor

from harness.decoding.request import DecodeRequest
from harness.decoding.session import NO_TOKEN, upload
from harness.kernels.walk import likeliest as likeliest_by_kernel
from harness.kernels.walk import walk as walk_by_kernel

LEAST_LOG_P = -1e4
"""Stands for log 0 in sums of p log p: its probability is 0 in every float type, and 0 times it is 0, not NaN."""


class TorchFigures:
    """What (B, n, V) logits say at every position, figure by figure. All but ``tokens`` are of the distribution that entropies
    are taken of: that at temperature 1 for greedy decoding. They are NaN where a position names no token.

    This is the reference: torch operations, some walks over the vocabulary for each figure.
    """

    def __init__(self, logits: Tensor, temperature: float) -> None:
        self._logits, self._temperature = logits, temperature

    @property
    def tokens(self) -> Tensor:
        """(B, n): the likeliest token, of equals the one of lowest id; NO_TOKEN where a position names none. Torch's maximum is
        the first of equals, and carries every NaN and infinity.
        """
        highest, tokens = self._logits.max(dim=-1)
        return torch.where(highest.abs() < torch.inf, tokens, NO_TOKEN)

    @property
    def entropy(self) -> Tensor:
        """(B, n), in nats."""
        return entropy(self._logits, self._temperature)

    @property
    def confidence(self) -> Tensor:
        """(B, n), float64: the largest probability."""
        return likeliest(self._logits, self._temperature, 1)[..., 0]

    @property
    def margin(self) -> Tensor:
        """(B, n), float64: the largest probability less the next, if a next exists."""
        if self._logits.shape[-1] == 1:
            return self.confidence
        first, second = likeliest(self._logits, self._temperature, 2).unbind(dim=-1)
        return first - second


class FusedFigures(TorchFigures):
    """In one walk over the vocabulary: all are computed when the first is asked for; on a GPU the runner-up, which costs more,
    only with the margin.
    """

    def __init__(self, logits: Tensor, temperature: float) -> None:
        super().__init__(logits, temperature or 1.0)
        self._walked: tuple[Tensor, Tensor, Tensor, Tensor] | None = None
        self._has_second = False

    @property
    def tokens(self) -> Tensor:
        """See TorchFigures."""
        return self._walk()[0]

    @property
    def entropy(self) -> Tensor:
        """See TorchFigures."""
        return self._walk()[1]

    @property
    def confidence(self) -> Tensor:
        """See TorchFigures."""
        return self._walk()[2]

    @property
    def margin(self) -> Tensor:
        """See TorchFigures."""
        return self._walk(second=True)[3]

    def _walk(self, second: bool = False) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        from harness.decoding.fused_walk import walk  # Triton is no dependency where there is no GPU

        if self._walked is None or second > self._has_second:
            self._walked, self._has_second = walk(self._logits, self._temperature, second), second
        return self._walked


class NativeFigures(FusedFigures):
    """On a CPU, by the kernels: tokens alone take half of the walk."""

    @property
    def tokens(self) -> Tensor:
        """See TorchFigures."""
        return self._walked[0] if self._walked is not None else likeliest_by_kernel(self._logits)

    def _walk(self, second: bool = False) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        if self._walked is None:
            self._walked = walk_by_kernel(self._logits, self._temperature)
        return self._walked


FiguresOf = Callable[[Tensor, float], TorchFigures]
"""Figures of (B, n, V) usable logits at a temperature."""


@cache
def sampler_of(kind: str) -> FiguresOf:
    """The sampler of a ``kind`` of device, cpu or cuda: on CUDA one walk over the vocabulary, where Triton is installed."""
    return TorchFigures if kind != "cuda" or find_spec("triton") is None else FusedFigures


def figures_of(logits: Tensor, temperature: float, reader: FiguresOf | None = None) -> TorchFigures:
    """What usable logits (B, n, V) say, as the ``reader`` reads them; None: their device's own."""
    return (reader or sampler_of(logits.device.type))(logits, temperature)


def usable(logits: Tensor, suppressed_ids: Tensor) -> Tensor:
    """Logits (B, n, V) as the other functions here want them: ``suppressed_ids`` (s,) impossible. Changes them in place.

    The mask token, above all, is never an answer.
    """
    return logits.index_fill_(-1, suppressed_ids, float("-inf"))


def widened(logits: Tensor, temperature: float = 0.0) -> Tensor:
    """In float32 or better, over the temperature unless it is 0."""
    wide = logits if logits.dtype == torch.float64 else logits.float()
    return wide if temperature == 0 else wide / temperature


def draw(logits: Tensor, request: DecodeRequest) -> Tensor:
    """The token of each position, (B, n): the argmax at temperature 0, else a sample of softmax(logits / temperature). NO_TOKEN
    where a position names none.
    """
    if request.temperature == 0:
        return figures_of(logits, 0.0, request.figures).tokens
    wide = widened(logits, request.temperature)
    # Gumbel-max: one pass over the vocabulary, no normalisation, and exact.
    noise = torch.empty_like(wide).exponential_(generator=request.generator).log_().neg_()
    return token_drawn(logits, (wide + noise).argmax(dim=-1))


def token_drawn(logits: Tensor, tokens: Tensor) -> Tensor:
    """The ``tokens`` (B, n), each the argmax of its logits (B, n, V) and some noise; NO_TOKEN where they name none."""
    highest = logits.gather(-1, tokens[..., None])[..., 0]
    return torch.where(highest.abs() < torch.inf, tokens, NO_TOKEN)


def entropy(logits: Tensor, temperature: float) -> Tensor:
    """Entropy of each position's distribution in nats, (B, n): at temperature 0 that at temperature 1, else that of
    softmax(logits / temperature).
    """
    log_p = torch.log_softmax(widened(logits, temperature), dim=-1).clamp_(min=LEAST_LOG_P)
    nats: Tensor = -torch.linalg.vecdot(log_p.exp(), log_p)  # three times as fast as torch.special.entr
    return nats


def likeliest(logits: Tensor, temperature: float, count: int) -> Tensor:
    """The ``count`` largest probabilities of each position, largest first, (B, n, count) in float64; at temperature 0 those at
    temperature 1, as the entropy.
    """
    scaled = widened(logits, temperature)
    highest = scaled.amax(dim=-1, keepdim=True) if count == 1 else scaled.topk(count, dim=-1).values
    # Relative to the largest: a log-sum-exp of large logits is rounded where probabilities are not.
    total = (scaled - highest[..., :1]).exp_().sum(dim=-1, keepdim=True)
    return (highest - highest[..., :1]).exp().double() / total.double()


class PositionNoise:
    """The noise of the next ``width`` positions of every row. Offsets count from the first position that is not final. At
    temperature 0 the noise is absent, and a token is the likeliest.
    """

    def __init__(self, request: DecodeRequest, width: int) -> None:
        self._request, self._width = request, width
        self._starts = [0] * len(request.prompts)
        self._held: Tensor | None = None  # (B, W, V), offset 0 of a row at its start, the others after it in a ring

    def draw(self, logits: Tensor, first: int | Sequence[int] | Tensor) -> Tensor:
        """The token of each of n positions in a row, (B, n), NO_TOKEN where one names none. ``first``: offset of the first of
        them, of all rows or of each.
        """
        if self._request.temperature == 0:
            return figures_of(logits, 0.0, self._request.figures).tokens
        wide = widened(logits, self._request.temperature)
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
        return noise.exponential_(generator=self._request.generator).log_().neg_()
