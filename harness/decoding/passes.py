"""The prompt pass, the same work for every arm; padding of rows of different lengths; and what the trace says of a pass.

The prompt pass is causal and left-padded; it keeps the prompt and returns the logits of its last token. What an arm does beyond
it, drafting included, is a pass of its own in decode time. Padding stands before the tokens of a shorter row, so the wanted
answers are the last ones of every row. Axes: B rows, w tokens of the widest row, m answers wanted, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from harness.decoding.session import ModelSession, Segment, upload
from harness.record.trace import ForwardPass, Role


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


@dataclass(frozen=True, slots=True)
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
    columns, answers = sum(one.tokens.shape[1] for one in segments), sum(one.logits for one in segments)
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
