"""The prompt pass, the same work for every arm, and causal passes with another number of tokens in every batch row.

The prompt pass is causal and left-padded; it keeps the prompt and returns the logits of its last token. What an arm does beyond
it, drafting included, is a pass of its own in decode time. In a causal pass padding stands before the tokens of a shorter row,
so the wanted answers are the last ones of every row. Axes: B rows, w tokens of the widest row, m answers wanted, V vocabulary.
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
    """Feed the prompts, with ``room`` tokens behind the longest; returns the (B, V) logits after each and their lengths."""
    lengths = tuple(len(p) for p in prompts)
    tokens, real = left_padded(prompts, device)
    width = tokens.shape[1]
    positions = upload((real.cumsum(dim=1) - 1).clamp(min=0), device)
    valid = None if min(lengths) == width else real
    session.reset(len(prompts), width + room)
    logits = session.forward([Segment(tokens=tokens, positions=positions, visibility="causal", logits=1, valid=valid)])
    session.keep([width] * len(prompts))
    return logits[:, -1], lengths


def left_padded(prompts: Sequence[Sequence[int]], device: torch.device) -> tuple[Tensor, Tensor]:
    """(B, W) ids with padding before the shorter prompts; and bool, on the CPU, True on what is a prompt's own."""
    width = max(map(len, prompts))
    ids = [[0] * (width - len(p)) + list(p) for p in prompts]
    real = [[False] * (width - len(p)) + [True] * len(p) for p in prompts]
    return upload(ids, device), torch.tensor(real)


def prefill_pass(lengths: tuple[int, ...], final_tokens: int) -> ForwardPass:
    """The trace entry of a prompt pass that made ``final_tokens`` output tokens final in every row."""
    rows = len(lengths)
    return ForwardPass(
        role="prefill",
        query_tokens=lengths,
        context_tokens=(0,) * rows,
        logit_tokens=(1,) * rows,
        kept_tokens=lengths,
        decided_tokens=(final_tokens,) * rows,
        final_tokens=(final_tokens,) * rows,
        active=(True,) * rows,
        padded_query=max(lengths),
        padded_context=0,
    )


@dataclass(frozen=True, slots=True)
class CausalPass:
    """A pass that was made. ``fed``: tokens of each row, 0 in a row that only waits; ``answers``: m; ``context`` and ``width``
    are those of the session before it.
    """

    fed: tuple[int, ...]
    answers: int
    context: tuple[int, ...]
    width: int

    @property
    def widest(self) -> int:
        """Tokens of the longest row, to which the others are padded."""
        return max(self.fed)

    def keep(self, session: ModelSession, kept: Sequence[int]) -> None:
        """Commit the first ``kept`` of each row's own tokens."""
        session.keep([count and self.widest - fed + count for fed, count in zip(self.fed, kept, strict=True)])

    def described(
        self,
        role: Role,
        kept: Sequence[int],
        decided: Sequence[int],
        final: Sequence[int] | None = None,
        model: str | None = None,
    ) -> ForwardPass:
        """Its trace entry; what a draft model decides is never final."""
        return ForwardPass(
            role=role, query_tokens=self.fed, context_tokens=self.context, logit_tokens=(self.answers,) * len(self.fed),
            kept_tokens=tuple(kept), decided_tokens=tuple(decided), final_tokens=tuple(final or (0,) * len(self.fed)),
            active=tuple(map(bool, self.fed)), padded_query=self.widest, padded_context=self.width, model=model,
        )  # fmt: skip


def causal_pass(
    session: ModelSession, rows: Sequence[Sequence[int]], answers: int, device: torch.device
) -> tuple[Tensor, CausalPass]:
    """Feed the tokens of each row behind its context; logits (B, m, V) of its last ``answers`` tokens, with padding in rows
    that have fewer. Nothing is kept yet.
    """
    context, fed = session.context_tokens, tuple(map(len, rows))
    width = max(fed)
    table = [[0] * (width - len(row)) + list(row) for row in rows]
    places = [[max(0, end - width + i) for i in range(width)] for end in map(sum, zip(context, fed, strict=True))]
    tokens, positions = upload([table, places], device)
    even = min(fed) == width
    segment = Segment(
        tokens=tokens, positions=positions, visibility="causal", logits=answers,
        valid=None if even else torch.tensor([[i >= width - count for i in range(width)] for count in fed]),
    )  # fmt: skip
    made = CausalPass(fed=fed, answers=answers, context=context, width=session.context_width)
    return session.forward([segment]), made
