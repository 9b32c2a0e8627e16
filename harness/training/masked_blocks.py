"""From a model's answers to the masked blocks that its gated adapter is trained on.

SBD training doubles a sequence (harness.training.noising). A gated adapter leaves the clean half as it is, so that half
is computed once and without gradient. Blocks see it and themselves alone; so one answer can carry many blocks, in any place and
overlapping, and only their slots are back-propagated. Axes: B answers, L clean tokens, G blocks of k slots, Q = G k.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import lru_cache

import torch
from torch import Tensor

from harness.frozen import frozen
from harness.training.distillation import OwnAnswer
from harness.training.noising import IGNORE, OrderedStream, SpecialIds
from harness.training.recipe import AdapterSettings


@frozen
class MaskedBlocks:
    """``clean`` (B, L), right-padded; ``starts`` (B, G): how many clean tokens a block sees, which is the place of its first
    slot; ``slots`` (B, G, k) what is fed; ``targets`` (B, G, k), IGNORE where nothing is charged. ``in_turn`` (B, G) bool:
    each slot of the block is told the one before it.
    """

    clean: Tensor
    starts: Tensor
    slots: Tensor
    targets: Tensor
    in_turn: Tensor

    def to(self, device: torch.device) -> MaskedBlocks:
        """The same on another device."""
        return MaskedBlocks(**{axis.name: getattr(self, axis.name).to(device) for axis in fields(self)})


def masked_blocks(
    answers: Sequence[OwnAnswer], starts: Sequence[Sequence[int]], block_size: int, ids: SpecialIds, masked: Tensor
) -> MaskedBlocks:
    """Blocks of every answer at ``starts``, as many for each; ``masked`` (B, G, k) bool, the others show their token.

    Slots after an answer that stopped are to say end-of-sequence; after one that was cut nothing is known.
    """
    texts = [[*answer.prompt_ids, *answer.answer_ids] for answer in answers]
    width = max(map(len, texts))
    clean = torch.tensor([[*text, *[ids.pad] * (width - len(text))] for text in texts])
    behind = [[ids.eos if answer.stopped else IGNORE] * block_size for answer in answers]
    tokens = torch.tensor(
        [
            [[*text[start : start + block_size], *after][:block_size] for start in own]
            for text, after, own in zip(texts, behind, starts, strict=True)
        ]
    )
    known = tokens != IGNORE
    return MaskedBlocks(
        clean=clean,
        starts=torch.tensor(starts),
        slots=tokens.masked_fill(masked | ~known, ids.mask),
        targets=tokens.masked_fill(~masked | ~known, IGNORE),
        in_turn=masked.all(dim=2) & (torch.arange(len(starts[0])) % 2 == 0),
    )


def drawn_blocks(answers: Sequence[OwnAnswer], settings: AdapterSettings, ids: SpecialIds, rng: random.Random) -> MaskedBlocks:
    """One block size for the batch; blocks start anywhere in the answers; most are masked whole."""
    size = rng.randint(*settings.block_sizes)
    count = max(1, settings.slots // size)
    starts = [
        [len(answer.prompt_ids) + rng.randrange(max(1, len(answer.answer_ids))) for _ in range(count)] for answer in answers
    ]
    rates = [[rng.random() if rng.random() < settings.partly_masked else 1.0 for _ in own] for own in starts]
    masked = torch.tensor([[[rng.random() < rate for _ in range(size)] for rate in own] for own in rates])
    return masked_blocks(answers, starts, size, ids, masked)


def who_sees(made: MaskedBlocks) -> tuple[Tensor, Tensor]:
    """Positions (B, Q) of the slots; what each sees, (B, Q, L + Q) bool: the clean tokens before its block, and its block."""
    (rows, count, size), device = made.slots.shape, made.slots.device
    positions = (made.starts[:, :, None] + torch.arange(size, device=device)).view(rows, count * size)
    first = made.starts.repeat_interleave(size, dim=1)
    of_clean = torch.arange(made.clean.shape[1], device=device) < first[:, :, None]
    block = torch.arange(count, device=device).repeat_interleave(size)
    own = (block[:, None] == block).expand(rows, -1, -1)
    return positions, torch.cat([of_clean, own], dim=2)


@dataclass
class AnswerStream(OrderedStream[OwnAnswer]):
    """A walk over the answers: each once, then all again in another order."""

    answers: Sequence[OwnAnswer]
    batch_size: int
    batches: int
    seed: int

    def example_at(self, place: int) -> OwnAnswer:
        """See OrderedStream."""
        walk, index = divmod(place, len(self.answers))
        return self.answers[_order(len(self.answers), f"{self.seed}/walk/{walk}")[index]]

    def order_of(self, example: OwnAnswer) -> tuple[int, int, str]:
        """By the tokens of the whole, then of the prompt."""
        prompt_tokens = len(example.prompt_ids)
        return prompt_tokens + len(example.answer_ids), prompt_tokens, example.prompt


@lru_cache(maxsize=2)
def _order(count: int, seed: str) -> list[int]:
    order = list(range(count))
    random.Random(seed).shuffle(order)
    return order


@dataclass
class BlockCollator:
    """Turns the answers of a batch into masked blocks. What is drawn follows the seed and the number of the batch. ``batches``:
    how many have been made, those of the run that is resumed among them.
    """

    settings: AdapterSettings
    ids: SpecialIds
    seed: int
    batches: int = 0

    def __call__(self, examples: Sequence[OwnAnswer]) -> dict[str, Tensor]:
        """The fields of MaskedBlocks."""
        rng = random.Random(f"{self.seed}/blocks/{self.batches}")
        self.batches += 1
        made = drawn_blocks(examples, self.settings, self.ids, rng)
        return {axis.name: getattr(made, axis.name) for axis in fields(made)}
