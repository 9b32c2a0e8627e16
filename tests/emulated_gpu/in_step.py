"""Two engines in step: the second one decodes by the logits and the sampler's figures of the first, and computes its own beside
them.

Both then decide the same where rounding would decide, so answers and passes must be equal to the last token. The logits must be
equal but for rounding. How much that is, is measured: by how much the second one's own differ from those of wider numbers.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from harness.decoding.sampling import TorchFigures, sampler_of
from harness.decoding.session import Segment
from harness.scenario.plan import Case
from tests.helpers.graphed_methods import answers

MOST_ROUNDING = {"mean": 2.0, "largest": 4.0}
"""Of the errors of the first one's logits, times the same of the second one's in the same decode."""
OF_FIGURES = 1e-5
"""Of entropies, probabilities and their differences, computed of the same logits."""


class InStep:
    """Sessions that are fed alike. ``say`` makes of the segments and everyone's logits those that the decoder gets."""

    def __init__(self, sessions: Sequence[Any], say: Callable[..., Tensor]) -> None:
        self._sessions, self._say = sessions, say

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sessions[0], name)

    def reset(self, rows: int, capacity: int) -> None:
        for one in self._sessions:
            one.reset(rows, capacity)

    def forward(self, segments: Sequence[Segment]) -> Tensor:
        return self._say(segments, *[one.forward(segments) for one in self._sessions])

    def keep(self, tokens: Sequence[int]) -> None:
        for one in self._sessions:
            one.keep(tokens)

    def drop(self, tokens: Sequence[int]) -> None:
        for one in self._sessions:
            one.drop(tokens)


class Figures:
    """A sampler's figures. ``say`` makes of a figure's name and value what the decoder gets."""

    def __init__(self, of: TorchFigures, say: Callable[[str, Tensor], Tensor]) -> None:
        self._of, self._say = of, say

    def __getattr__(self, name: str) -> Tensor:
        return self._say(name, getattr(self._of, name))


class Comparison:
    """Of one decode after another. ``told``: what the first engine computed and the second one has not yet, with what it was
    computed of. ``errors``: of each logit vector that is read, the first one's and the second one's, over its norm.
    """

    def __init__(self) -> None:
        self.told: list[tuple[Any, Tensor]] = []
        self.errors: list[Tensor] = []
        self.parted = ""

    def first(self, engine: Any) -> None:
        """Listen to an engine."""

        def forward(segments: Sequence[Segment], logits: Tensor) -> Tensor:
            return self._tell(_fed(segments), logits)

        _through(engine, lambda open_session, module: InStep([open_session(module)], forward), self._tell)

    def second(self, engine: Any) -> None:
        """Tell an engine what the first one said. Once it asks for something else, it goes on by its own."""

        def forward(segments: Sequence[Segment], own: Tensor, wide: Tensor) -> Tensor:
            logits = self._told(_fed(segments), own)
            if not self.parted:
                self.errors.append(_errors(segments, [logits, own], wide))
            return logits

        def figure(name: str, own: Tensor) -> Tensor:
            told = self._told(name, own)
            if not torch.allclose(told.double(), own.double(), rtol=0, atol=OF_FIGURES, equal_nan=True):
                self.parted = self.parted or f"other figures: {name} {told.tolist()}, not {own.tolist()}"
            return told

        def opened(open_session: Callable[[Any], Any], module: Any) -> InStep:
            wider = torch.float64 if module.dtype == torch.float32 else torch.float32
            return InStep([open_session(module), open_session(copy.deepcopy(module).to(wider))], forward)

        _through(engine, opened, figure)

    def found(self, one: Any, other: Any) -> str:
        """What is wrong in a decode, or nothing; forgets it."""
        wrong = [self.parted or ("other answers" if self.told or _seen(one) != _seen(other) else "")]
        errors = torch.cat(self.errors, dim=1)
        for name, of in (("mean", errors.mean(dim=1)), ("largest", errors.amax(dim=1))):
            first, rounding = of.tolist()
            if not first <= MOST_ROUNDING[name] * rounding:  # so is NaN
                wrong.append(f"other logits: the {name} error is {first:.1e}, that of rounding {rounding:.1e}")
        self.told, self.errors, self.parted = [], [], ""
        return "; ".join(filter(None, wrong))

    def _tell(self, of: Any, value: Tensor) -> Tensor:
        self.told.append((of, value.to("cpu", copy=True)))
        return value

    def _told(self, of: Any, own: Tensor) -> Tensor:
        asked, value = self.told.pop(0) if self.told else (None, own)
        if not self.parted and asked != of:
            self.parted = f"other passes from pass {len(self.errors)} on"
        return own if self.parted else value


def _through(engine: Any, opened: Callable[..., Any], say: Callable[[str, Tensor], Tensor]) -> None:
    """Sessions that an engine has, or will open for its draft models, are ``opened``; ``say`` is told its sampler's figures."""
    drafts = engine._drafts
    open_session, drafts.open_session = drafts.open_session, lambda module: opened(open_session, module)
    engine._session = drafts.open_session(engine._model.module)
    engine._figures = lambda logits, temperature: Figures(sampler_of(logits.device.type)(logits, temperature), say)


def in_step(first: dict[str, Case], second: dict[str, Case], batches: Sequence[Any]) -> Iterator[tuple[str, int, Any, str]]:
    """(arm, batch, Generation, what is wrong) of every decode."""
    both = Comparison()
    decodes = [answers(first, batches, both.first), answers(second, batches, both.second)]
    for (name, number, one), (_, _, other) in zip(*decodes, strict=True):
        yield name, number, one, both.found(one, other)


def _seen(generation: Any) -> Any:
    return generation.output_ids, generation.stop_reasons, [tuple(one) for one in generation.passes]


def _fed(segments: Sequence[Segment]) -> Any:
    """Segments in plain values."""
    tensors = [(one.tokens, one.positions, one.valid, one.seen) for one in segments]
    others = [(one.visibility, one.logits, one.read, one.adapted) for one in segments]
    return [[None if each is None else each.tolist() for each in of_one] for of_one in tensors], others


def _errors(segments: Sequence[Segment], logits: Sequence[Tensor], wide: Tensor) -> Tensor:
    """(len(logits), n): norms of the differences to ``wide`` over its norm, of every position that is real and read."""
    read = torch.cat([_read(one, wide.shape[0]) for one in segments], dim=1)
    wanted = wide[read].double()
    return torch.stack([(one[read].double() - wanted).norm(dim=-1) for one in logits]) / wanted.norm(dim=-1)


def _read(segment: Segment, rows: int) -> Tensor:
    """(B, logits) bool."""
    real = torch.ones(rows, segment.tokens.shape[1], dtype=torch.bool) if segment.valid is None else segment.valid
    of_row = torch.ones(rows, dtype=torch.bool) if segment.read is None else torch.tensor(segment.read)
    return real[:, real.shape[1] - segment.logits :] & of_row[:, None]
