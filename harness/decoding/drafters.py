"""A draft model: a smaller one, or the first layers of the target, writes greedily what it takes to come next.

It keeps a KV cache of its own, as transformers' ``generate(assistant_model=…)`` has it: before each proposal it goes back to
where its row agrees with what was really written, and reads what it missed. It may itself be sped up by another drafter
below it, whose tokens it checks as the target checks its own: a stack of drafts (HSD, arXiv 2510.19705). Such a model asks
for no more than it still lacks less one, for its pass adds one. Axes: B rows, m answers of a pass, V vocabulary.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Sequence

from torch import Tensor

from harness.decoding.causal_pass import causal_pass
from harness.decoding.drafter import Drafter, NoDrafts, Proposal, Sequences
from harness.decoding.sampling import likeliest_token, refuse_no_token, usable
from harness.decoding.session import ModelSession
from harness.record.trace import ForwardPass, Role

SLACK = 8
"""Tokens that a row may have to read at once because nobody asked for it a few times."""


class DraftModel:
    """Drafts up to ``tokens`` tokens, or up to and with the first of ``stops``, never one of ``never`` (s,).

    ``name``: what its passes are called in the trace. ``session``: a cache of its own.
    """

    def __init__(
        self,
        session: ModelSession,
        *,
        name: str,
        tokens: int,
        never: Tensor,
        stops: Collection[int],
        below: Drafter | None = None,
    ) -> None:
        self.tokens = tokens
        self._session, self._name, self._never = session, name, never
        self._stops = frozenset(stops)
        self._below = below or NoDrafts()
        self._held: list[list[int]] = []
        self._capacity = 0

    def begin(self, prompts: Sequences, max_new_tokens: int) -> None:
        """Make room. The prompts are read with the first token to draft behind, in a pass that NTP has no need of."""
        room = max_new_tokens + 2 * (self.tokens + self._below.tokens) + SLACK
        self._capacity = max(map(len, prompts)) + room
        self._session.reset(len(prompts), self._capacity)
        self._held = [[] for _ in prompts]
        self._below.begin(prompts, max_new_tokens)

    def propose(self, sequences: Sequences, wanted: Sequence[int]) -> Proposal:
        """One token a pass, or as many as a pass finds right of what the one below proposes."""
        self._go_back(sequences, wanted)
        made: list[list[int]] = [[] for _ in sequences]
        while any(lacks := [self._lacks(tokens, count) for tokens, count in zip(made, wanted, strict=True)]):
            rows = [[*row, *tokens] for row, tokens in zip(sequences, made, strict=True)]
            asked = [min(self._below.tokens, max(0, lack - 1)) for lack in lacks]
            drafts = yield from self._below.propose(rows, asked)
            fed = [
                [*row[len(held) :], *below] if lack else []
                for row, held, below, lack in zip(rows, self._held, drafts, lacks, strict=True)
            ]
            if max(map(len, self._held)) + max(map(len, fed)) > self._capacity:
                break  # so much was read anew that it does not fit: what is not drafted the target writes by itself
            gained, one = self._pass(fed, drafts)
            for tokens, more in zip(made, gained, strict=True):
                tokens += more
            yield one
        return made

    def _lacks(self, made: Sequence[int], wanted: int) -> int:
        """Tokens still to be drafted; none behind one that stops."""
        return 0 if made and made[-1] in self._stops else max(0, wanted - len(made))

    def _go_back(self, sequences: Sequences, wanted: Sequence[int]) -> None:
        """Forget what was not written after all; the newest token is always read anew, for its answer is wanted."""
        dropped = []
        for held, row, count in zip(self._held, sequences, wanted, strict=True):
            common = min(common_prefix(held, row), len(row) - 1) if count else len(held)
            dropped.append(len(held) - common)
            del held[common:]
        if any(dropped):
            self._session.drop(dropped)

    def _pass(self, fed: Sequences, drafts: Sequences) -> tuple[list[list[int]], ForwardPass]:
        """Feed what each row has not read yet and the drafts below; the tokens that each row gained, none where it waits.

        Raises:
            NoTokenError: the model's logits name no token.
        """
        checked = [tokens if row else [] for row, tokens in zip(fed, drafts, strict=True)]
        answers = 1 + max(map(len, checked))
        logits, made = causal_pass(self._session, fed, answers, self._never.device)
        said = self._session.read(likeliest_token(usable(logits, self._never)))
        gained, kept = [], []
        for held, row, tokens, verdicts in zip(self._held, fed, checked, said, strict=True):
            own = verdicts[answers - 1 - len(tokens) :]
            for token in own if row else ():
                refuse_no_token(token)
            agreed = common_prefix(tokens, own)
            read = row[: len(row) - len(tokens) + agreed]
            gained.append(self._up_to_a_stop(own[: agreed + 1]) if row else [])
            kept.append(len(read))
            held += read
        made.keep(self._session, kept)
        role: Role = "verify" if answers > 1 else "draft"
        return gained, made.described(role, kept, [len(tokens) for tokens in gained], model=self._name)

    def _up_to_a_stop(self, tokens: list[int]) -> list[int]:
        return tokens[: next((i + 1 for i, token in enumerate(tokens) if token in self._stops), len(tokens))]


def common_prefix(one: Sequence[int], other: Sequence[int]) -> int:
    """How many tokens the two lists begin with alike. Compares whole stretches: a row may be thousands of tokens long."""
    shorter = min(len(one), len(other))
    return bisect_left(range(shorter), True, key=lambda i: one[: i + 1] != other[: i + 1])
