"""Speculative decoding in its plain form: a drafter proposes, the target checks token for token (arXiv 2211.17192, greedy).

In a round the drafter proposes up to n tokens after each row. One pass of the target over the newest token and the drafts says
what it would write after each of them. The longest prefix on which the two agree is final, and one token more, the target's
own. Exactly that prefix's KV is kept. Every row goes on by itself.

The output is that of next-token prediction: at temperature 0 token for token, above it in distribution. Every token that counts
is drawn from the target's own distribution after tokens that count; a draft counts where it equals the draw. That accepts less
often than the p/q rule of the paper and is exact for drafts of any kind. Axes: B rows, m answers of a pass, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence

from torch import Tensor

from harness.decoding.drafters import Drafter, before_any
from harness.decoding.request import (
    NOT_CHECKED,
    Decoder,
    DecodeRequest,
    EndingRow,
    causal_pass,
    finished,
    prefill,
    prefill_pass,
)
from harness.decoding.sampling import draw, usable
from harness.decoding.session import ModelSession
from harness.record.trace import ForwardPass


class DraftedRow(EndingRow):
    """The state of one batch row; the target holds the KV of all but the newest token."""

    def __init__(self, prompt: Sequence[int], request: DecodeRequest) -> None:
        super().__init__(request.stop, request.max_new_tokens)
        self._prompt = prompt

    @property
    def sequence(self) -> list[int]:
        """Its prompt and its output."""
        return [*self._prompt, *self.output]

    @property
    def worth_drafting(self) -> int:
        """Drafts that can become final: one fewer than the tokens that fit, for the target adds one of its own."""
        return 0 if self.ended else self.left - 1

    def up_to_a_stop(self, drafts: list[int]) -> list[int]:
        """The drafts less those after an id that stops: if that id is wrong, so is all after it."""
        return before_any(drafts, self._stop.token_ids, and_it=True)[: self.worth_drafting]


def decode_draft_and_check(session: ModelSession, request: DecodeRequest, drafter: Drafter) -> Decoder:
    """Yield every pass as it happens, the drafter's too; the generator's return value is the whole Generation."""
    suppressed = request.never_written()
    # A row may have its full length while another row's drafts make the pass wide.
    logits, lengths = prefill(session, request.prompts, request.device, room=request.max_new_tokens + drafter.tokens)
    first = session.read(draw(usable(logits[:, None], suppressed), request))
    rows = [DraftedRow(prompt, request) for prompt in request.prompts]
    for row, [token] in zip(rows, first, strict=True):
        row.write(token)
    passes = [prefill_pass(lengths, final_tokens=1)]
    yield passes[-1]
    drafter.begin(request.prompts, request.max_new_tokens)
    for made in _rounds(session, request, drafter, rows, suppressed):
        passes.append(made)
        yield made
    return finished(request, rows, passes)


def _rounds(
    session: ModelSession, request: DecodeRequest, drafter: Drafter, rows: Sequence[DraftedRow], suppressed: Tensor
) -> Generator[ForwardPass, None, None]:
    """Draft, and check in one pass of the target over the newest token and the drafts, until every row has ended."""
    while not all(row.ended for row in rows):
        wanted = [min(drafter.tokens, row.worth_drafting) for row in rows]
        proposed = yield from drafter.propose([row.sequence for row in rows], wanted)
        drafts = [row.up_to_a_stop(tokens) for row, tokens in zip(rows, proposed, strict=True)]
        answers = 1 + max(map(len, drafts))
        fed = [[] if row.ended else [row.output[-1], *tokens] for row, tokens in zip(rows, drafts, strict=True)]
        logits, made = causal_pass(session, fed, answers, request.device)
        said = session.read(draw(usable(logits, suppressed), request))
        checked = [
            NOT_CHECKED if row.ended else row.accept(tokens, verdicts[answers - 1 - len(tokens) :])
            for row, tokens, verdicts in zip(rows, drafts, said, strict=True)
        ]
        kept = [outcome.final for outcome in checked]
        made.keep(session, kept)
        decided = [outcome.final - outcome.agreed for outcome in checked]
        yield made.described("verify" if answers > 1 else "decide", kept, decided, kept)
