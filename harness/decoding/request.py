"""What a decoder is asked to do, when a row stops, and what a decoder returns: its passes, and the output of each row.

Stops are in token ids, because decoders know no tokenizer. The prompt pass is the same work for every arm: causal and
left-padded, it keeps the prompt and returns the logits of its last token. What an arm does beyond it, drafting included, is a
pass of its own in decode time. Padding stands before the tokens of a shorter row, so the wanted answers are the last ones of
every row. Axes: B rows, w tokens of the widest row, m answers wanted, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Any

import torch
from torch import Tensor

from harness.decoding.session import ModelSession, Segment, refuse_no_token, upload
from harness.frozen import frozen, positional
from harness.record.trace import ForwardPass, Generation, Role, StopReason

Decoder = Generator[ForwardPass, None, Generation]
"""Yields every pass in counts as it happens, the prompt's first, and returns what was written."""


@frozen
class StopRule:
    """A row stops at the first of ``token_ids``, or where ``ends_text`` says that its ids complete a stop string."""

    token_ids: frozenset[int] = frozenset()
    ends_text: Callable[[Sequence[int]], bool] | None = None

    def stops_at(self, output: Sequence[int], start: int) -> int | None:
        """Index of the first stop at or after ``start`` in a row's known output, or None."""
        if self.ends_text is None and self.token_ids.isdisjoint(output[start:]):
            return None
        for index in range(start, len(output)):
            if output[index] in self.token_ids:
                return index
            if self.ends_text is not None and self.ends_text(output[: index + 1]):
                return index
        return None

    def ending(self, output: Sequence[int], most: int) -> StopReason | None:
        """Why a row that may write ``most`` tokens ends at its newest one, or None."""
        if self.stops_at(output, len(output) - 1) is not None:
            return "stop"
        return "length" if len(output) == most else None


@positional
class Checked:
    """``final``: tokens that one check made final, as many as there are slots whose KV stays; ``agreed``: of these, how many
    had been drafted.
    """

    final: int
    agreed: int


NOT_CHECKED = Checked(final=0, agreed=0)


class EndingRow:
    """What every batch row has, in plain integers: what it has written, its end, and why it ended."""

    def __init__(self, stop: StopRule, max_new_tokens: int) -> None:
        self._stop = stop
        self._max_new_tokens = max_new_tokens
        self._reason: StopReason | None = None
        self.output: list[int] = []

    @property
    def ended(self) -> bool:
        """True once the stop, or the last token that fits, is final."""
        return self._reason is not None

    @property
    def stop_reason(self) -> StopReason:
        """Why the row ended."""
        assert self._reason is not None, "asked for the stop reason of a row that has not ended"
        return self._reason

    @property
    def left(self) -> int:
        """Tokens that the row may still write."""
        return self._max_new_tokens - len(self.output)

    def write(self, token: int) -> None:
        """A token is final.

        Raises:
            NoTokenError: it is none.
        """
        refuse_no_token(token)
        self.output.append(token)
        self._reason = self._stop.ending(self.output, self._max_new_tokens)

    def accept(self, drafts: Sequence[int], verdicts: Sequence[int]) -> Checked:
        """Take what the checking model says after the newest token and after every draft, as far as what it was fed was
        right. What it says after a right token is final, whether drafted or not; a draft that differs ends it.
        """
        final = agreed = 0
        for index, token in enumerate(verdicts):
            self.write(token)
            final += 1
            right = index < len(drafts) and drafts[index] == token
            agreed += right
            if self.ended or not right:
                break
        return Checked(final, agreed)


NEVER = StopRule()


@frozen
class DecodeRequest:
    """One batch of prompts. ``suppressed_ids`` can never be emitted (the mask token among them); ``figures``: a
    harness.decoding.sampling.FiguresOf that reads logits, None for their device's own.
    """

    prompts: tuple[tuple[int, ...], ...]
    max_new_tokens: int
    stop: StopRule
    suppressed_ids: tuple[int, ...]
    temperature: float
    generator: torch.Generator
    device: torch.device
    figures: Callable[[Tensor, float], Any] | None = None

    def never_written(self, *also: int) -> Tensor:
        """(s,) ids that no token may have: the suppressed ones, and those given (the mask)."""
        return torch.tensor(sorted({*self.suppressed_ids, *also}), dtype=torch.long, device=self.device)


def finished(request: DecodeRequest, rows: Sequence[EndingRow], passes: Sequence[ForwardPass]) -> Generation:
    """The whole decode, once every row has ended."""
    return Generation(
        passes=tuple(passes),
        prompt_tokens=tuple(map(len, request.prompts)),
        output_ids=tuple(tuple(row.output) for row in rows),
        stop_reasons=tuple(row.stop_reason for row in rows),
    )


def prefill(
    session: ModelSession, prompts: Sequence[Sequence[int]], device: torch.device, room: int
) -> tuple[Tensor, tuple[int, ...]]:
    """Feed the prompts, with ``room`` tokens after the longest; returns the (B, V) logits after each and their lengths."""
    lengths = tuple(map(len, prompts))
    width = max(lengths)
    session.reset(len(prompts), width + room)
    logits = session.forward([padded_segment(prompts, lengths, device, logits=1)])
    session.keep([width] * len(prompts))
    return logits[:, -1], lengths


def left_padded(rows: Sequence[Sequence[int]], width: int | None = None) -> tuple[Tensor, Tensor]:
    """(B, w) ids with padding before the shorter rows; and bool, True on what is a row's own. Both on the CPU."""
    width = width or max(map(len, rows))
    ids = [[0] * (width - len(row)) + list(row) for row in rows]
    return torch.tensor(ids), torch.tensor([[False] * (width - len(row)) + [True] * len(row) for row in rows])


def padded_segment(
    rows: Sequence[Sequence[int]], ends: Sequence[int], device: torch.device, logits: int, width: int | None = None
) -> Segment:
    """A causal segment of rows that end right before the positions ``ends``, as wide as the widest or as ``width`` says."""
    ids, real = left_padded(rows, width)
    tokens, positions = upload(torch.stack([ids, positions_to(ends, ids.shape[1])]), device)
    valid = None if bool(real.all()) else real
    return Segment(tokens=tokens, positions=positions, visibility="causal", logits=logits, valid=valid)


def positions_to(ends: Sequence[int], width: int) -> Tensor:
    """(B, width) on the CPU: consecutive positions that end right before ``ends``; 0 on padding."""
    return (torch.tensor(ends)[:, None] - width + torch.arange(width)).clamp(min=0)


def prefill_pass(lengths: tuple[int, ...], final_tokens: int) -> ForwardPass:
    """The trace entry of a prompt pass that made ``final_tokens`` output tokens final in every row."""
    final = (final_tokens,) * len(lengths)
    return MadePass(lengths, max(lengths), 1, (0,) * len(lengths), 0).described("prefill", lengths, final, final)


@positional
class MadePass:
    """A pass that was made. ``fed``: real tokens of each row, 0 in a row that only waits; ``columns``: what the tensors hold of
    each; ``answers``: m; ``context`` and ``width`` are those of the session before it.
    """

    fed: tuple[int, ...]
    columns: int
    answers: int
    context: tuple[int, ...]
    width: int

    def keep(self, session: ModelSession, kept: Sequence[int]) -> None:
        """Commit the first ``kept`` of each row's own tokens, which stand after its padding."""
        session.keep([count and self.columns - fed + count for fed, count in zip(self.fed, kept, strict=True)])

    def described(
        self,
        role: Role,
        kept: Sequence[int],
        decided: Sequence[int],
        final: Sequence[int] | None = None,
        active: tuple[bool, ...] | None = None,
        model: str | None = None,
    ) -> ForwardPass:
        """Its trace entry; what a draft model decides is never final. ``active``: by default the rows that feed anything."""
        rows = len(self.fed)
        return ForwardPass(
            role=role,
            query_tokens=self.fed,
            context_tokens=self.context,
            logit_tokens=(self.answers,) * rows,
            kept_tokens=tuple(kept),
            decided_tokens=tuple(decided),
            final_tokens=tuple(final or (0,) * rows),
            active=active or tuple(map(bool, self.fed)),
            padded_query=self.columns,
            padded_context=self.width,
            model=model,
        )


def make_pass(session: ModelSession, segments: Sequence[Segment], fed: Sequence[int]) -> tuple[Tensor, MadePass]:
    """Feed the segments; their (B, m, V) logits, and what was made. Nothing is kept yet."""
    columns, answers = sum(segment.tokens.shape[1] for segment in segments), sum(segment.logits for segment in segments)
    made = MadePass(tuple(fed), columns, answers, session.context_tokens, session.context_width)
    return session.forward(segments), made


def causal_pass(
    session: ModelSession, rows: Sequence[Sequence[int]], answers: int, device: torch.device
) -> tuple[Tensor, MadePass]:
    """Feed the tokens of each row after its context; logits (B, m, V) of its last ``answers`` tokens, with padding in rows
    that have fewer. Nothing is kept yet.
    """
    fed = tuple(map(len, rows))
    ends = [*map(sum, zip(session.context_tokens, fed, strict=True))]
    return make_pass(session, [padded_segment(rows, ends, device, answers)], fed)
