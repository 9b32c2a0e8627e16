"""The decoder and the rule: loaded when a run decodes."""

from collections.abc import Sequence

from torch import Tensor

from harness.decoding.drafters import Drafter, Proposal, Sequences
from harness.decoding.request import Decoder
from harness.decoding.solvers import BlockView
from harness.decoding.speculative import decode_draft_and_check
from harness.engine.decoders import Decoding
from my_method import RepetitionSettings


class Repetition(Drafter):
    """Drafts without a pass of its own."""

    def __init__(self, tokens: int) -> None:
        self.tokens = tokens

    def propose(self, sequences: Sequences, wanted: Sequence[int]) -> Proposal:
        """The newest token of each row, again and again."""
        yield from ()
        return [[row[-1]] * min(self.tokens, most) for row, most in zip(sequences, wanted, strict=True)]


def decode(asked: Decoding[RepetitionSettings]) -> Decoder:
    """Draft, and let the model check."""
    return decode_draft_and_check(asked.session, asked.request, Repetition(asked.arm.draft_tokens))


def leftmost(view: BlockView, *, tokens: int) -> Tensor:
    """The first so many masked slots of every row, (B, k) bool."""
    return view.masked & (view.masked.cumsum(dim=-1) <= tokens)
