"""FreeDave (arXiv 2510.00294): several steps of one-token-a-pass masked decoding in one pass, with the same output.

A pass feeds the block and guesses at its next states side by side. Each guess has one token more, from the slots that the last
pass was surest of. What the masked head says of a state is its next step. If that is the next guess, the guess is right and its
own distributions are already there. So a pass advances by every right guess and by one token more.

The reference is this model's masked head unmasking its likeliest slot pass by pass (the solver top_k with one token), not
next-token prediction. The first pass of a block also commits the block before it, as in harness.decoding.set_block. Every row
of a batch goes on by itself. Axes: B rows, k slots of a block, d states fed at once, V vocabulary.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence

import torch
from torch import Tensor

from harness.decoding.open_blocks import BlockRow
from harness.decoding.request import Decoder, DecodeRequest, StopRule, finished, make_pass, prefill, prefill_pass
from harness.decoding.sampling import usable
from harness.decoding.session import ModelSession, Segment, upload
from harness.decoding.solvers import BlockView
from harness.frozen import positional
from harness.record.trace import ForwardPass, Role


@positional
class Seen:
    """What a pass says of one state: ``order`` of its slots, the likeliest masked one first, and the token of every slot."""

    order: Sequence[int]
    tokens: Sequence[int]


class NestedRow:
    """The state of one batch row. ``block``: the open one. ``states``: that one to be fed, then guesses, each with one slot
    more; empty once the row has ended. ``finished``: the block before, to be committed with the first pass of the open one,
    else empty.
    """

    states: list[BlockRow]
    finished: list[int]
    _guesses: list[tuple[int, int]]

    def __init__(self, stop: StopRule, max_new_tokens: int, block_size: int, mask_id: int, most_states: int) -> None:
        self.size = block_size
        self._most_states = most_states
        self.block = BlockRow(stop, max_new_tokens, block_size, mask_id)
        self._open()

    def advance(self, seen: Sequence[Seen]) -> tuple[int, int]:
        """Advance by the right guesses and one step more; returns how many tokens became known, and how many final."""
        before, steps = len(self.block.output), [(state.order[0], state.tokens[state.order[0]]) for state in seen]
        right = 0
        while right < len(self._guesses) and self._guesses[right] == steps[right]:
            right += 1
        self.block = _step(self.states[right], *steps[right])
        self.finished = []
        if self.block.deciding:
            self._guess(seen[right])
        else:
            self._open()
        return right + 1, len(self.block.output) - before

    def _open(self) -> None:
        """Begin the next block, without guesses; a row that has ended feeds nothing more."""
        slots = self.block.slots
        if not self.block.ended:
            self.finished = slots if self.block.open_block() else []
        self.states, self._guesses = ([] if self.block.ended else [self.block]), []

    def _guess(self, seen: Seen) -> None:
        """Nested guesses from the step before: the slots that were likeliest after the one just taken."""
        self.states, self._guesses = [self.block], []
        for slot in seen.order[1:]:
            if len(self.states) == self._most_states:
                break
            if self.states[-1].masked[slot]:
                further = _step(self.states[-1], slot, seen.tokens[slot])
                if not further.deciding:
                    break
                self.states.append(further)
                self._guesses.append((slot, seen.tokens[slot]))


def _step(block: BlockRow, slot: int, token: int) -> BlockRow:
    """The block with one slot more decided; ``block`` is unchanged."""
    further = copy.copy(block)
    further.slots, further.masked, further.output = list(block.slots), list(block.masked), list(block.output)
    further.decide([token if at == slot else -1 for at in range(len(block.slots))])
    return further


def decode_nested_drafts(
    session: ModelSession, request: DecodeRequest, *, block_size: int, mask_id: int, draft_steps: int
) -> Decoder:
    """Feed up to ``draft_steps`` states a pass. Yield every pass as it happens; the return value is the whole Generation.

    Raises:
        ValueError: the temperature is not 0.
    """
    if request.temperature != 0:
        raise ValueError(f"nested drafts at temperature {request.temperature:g}: they are exact at temperature 0 only")
    room = (-(-request.max_new_tokens // block_size) + draft_steps) * block_size
    _, lengths = prefill(session, request.prompts, request.device, room)
    suppressed = request.never_written(mask_id)
    rows = [NestedRow(request.stop, request.max_new_tokens, block_size, mask_id, draft_steps) for _ in lengths]
    passes = [prefill_pass(lengths, final_tokens=0)]
    yield passes[-1]
    while not all(row.block.ended for row in rows):
        passes.append(_pass(session, request, rows, suppressed))
        yield passes[-1]
    return finished(request, [row.block for row in rows], passes)


def _pass(session: ModelSession, request: DecodeRequest, rows: list[NestedRow], suppressed: Tensor) -> ForwardPass:
    """One forward pass over the states of all rows; rows with a finished block commit it in this pass."""
    segments = _segments(rows, session.context_tokens, request.device)
    commits = [len(row.finished) for row in rows]
    role: Role = "commit+decide" if any(commits) else "decide"
    if any(len(row.states) > 1 for row in rows):
        role = "verify+draft"
    fed = [commit + row.size * len(row.states) for commit, row in zip(commits, rows, strict=True)]
    logits, made = make_pass(session, segments, fed)
    said = session.read(_sample(usable(logits, suppressed), rows, request))
    session.keep(commits)
    decided, final = zip(*(_advance(row, tokens) for row, tokens in zip(rows, said, strict=True)), strict=True)
    return made.described(role, commits, decided, final)


def _segments(rows: Sequence[NestedRow], context: Sequence[int], device: torch.device) -> list[Segment]:
    """The finished blocks, padding in rows that have none; then the states of each row's open block side by side."""
    size, count = rows[0].size, max(len(row.states) for row in rows)
    slots, starts = torch.arange(size, device=device), upload(context, device)[:, None]
    segments = []
    if any(row.finished for row in rows):
        finished = [row.finished or [0] * size for row in rows]
        segments.append(
            Segment(
                tokens=upload(finished, device),
                positions=starts + slots,
                visibility="causal",
                logits=0,
                valid=_valid([bool(row.finished) for row in rows], size),
            )
        )
        starts = starts + upload([[len(row.finished)] for row in rows], device)
    fed = [[slot for state in row.states for slot in state.slots] + [0] * size * (count - len(row.states)) for row in rows]
    of_state = torch.arange(count).repeat_interleave(size)
    segments.append(
        Segment(
            tokens=upload(fed, device),
            positions=starts + slots.repeat(count),
            logits=size * count,
            visibility="bidirectional" if count == 1 else "explicit",
            valid=_valid([state < len(row.states) for row in rows for state in range(count)], size, len(rows)),
            seen=None if count == 1 else of_state[:, None] == of_state,
            adapted=size * count,
        )
    )
    return segments


def _valid(fed: Sequence[bool], size: int, rows: int | None = None) -> Tensor | None:
    """(B, n) bool from one flag for every ``size`` tokens; None where nothing is padding."""
    return None if all(fed) else torch.tensor(fed).repeat_interleave(size).view(rows or len(fed), -1)


def _sample(logits: Tensor, rows: Sequence[NestedRow], request: DecodeRequest) -> Tensor:
    """(B, 2dk): of every state its slots, the likeliest masked one first, and the likeliest token of every slot."""
    size, count = rows[0].size, logits.shape[1] // rows[0].size
    nothing = [False] * size
    asked = [
        masked for row in rows for masked in (*(state.masked for state in row.states), *[nothing] * (count - len(row.states)))
    ]
    masked = upload(asked, logits.device)  # (B d, k)
    states = logits.reshape(-1, size, logits.shape[-1])
    view = BlockView(states, masked, request.temperature, request.figures)
    confidence = view.confidence.masked_fill(~masked, -1)
    order = confidence.sort(dim=-1, descending=True, stable=True).indices
    return torch.stack([order, view.tokens], dim=1).view(len(rows), -1)


def _advance(row: NestedRow, said: Sequence[int]) -> tuple[int, int]:
    """How many tokens of the row became known, and how many final."""
    if row.block.ended:
        return 0, 0
    size = row.size
    return row.advance(
        [
            Seen(order=said[at : at + size], tokens=said[at + size : at + 2 * size])
            for at in range(0, 2 * size * len(row.states), 2 * size)
        ]
    )
