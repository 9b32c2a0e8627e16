"""What a training adapter is worth on prompts that it does not see: tokens final per pass, counted without decoding.

Quadratic self-speculation (harness.decoding.self_speculation) writes the model's own greedy answer, which is known. What it
drafts behind a token depends on that answer alone. So one forward over a block behind every token tells how many drafts each
pass would have right, and the passes follow. Axes: G tokens of the answer, k slots of a block.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import geometric_mean

import torch
from torch import Tensor

from harness.decoding.in_turn import InTurn
from harness.training.adapter_module import TrainedAdapter
from harness.training.distillation import Answer
from harness.training.masked_blocks import MaskedBlocks, masked_blocks
from harness.training.noising import SpecialIds


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldOutFigures:
    """``tokens_per_pass``: geometric mean over tasks; ``by_task``: decode tokens over passes. ``right``: share of blocks whose
    slot is right, by its place; ``accepted``: passes by their number of right drafts.
    """

    tokens_per_pass: float
    by_task: dict[str, float]
    right: list[float]
    accepted: list[int]


@torch.no_grad()
def held_out_figures(
    trained: TrainedAdapter, answers: Sequence[Answer], block_size: int, ids: SpecialIds, bf16: bool, copies: bool = False
) -> HeldOutFigures:
    """The figures of greedy ``answers`` of the model itself."""
    tokens: defaultdict[str, int] = defaultdict(int)
    passes: defaultdict[str, int] = defaultdict(int)
    hits, blocks, accepted = torch.zeros(block_size), torch.zeros(block_size), [0] * block_size
    for answer in answers:
        if len(answer.answer_ids) < 2:
            continue
        right, charged = _right(trained, answer, block_size, ids, bf16, copies)
        hits += (right & charged).sum(dim=0).cpu()
        blocks += charged.sum(dim=0).cpu()
        agreed = (right[:, 1:] & charged[:, 1:]).cumprod(dim=1).sum(dim=1).tolist()
        task = answer.prompt.partition("/")[0]
        made = list(passes_of(agreed, len(answer.answer_ids)))
        tokens[task] += len(answer.answer_ids) - 1
        passes[task] += len(made)
        for count in made[1:]:
            accepted[count - 1] += 1
    by_task = {task: tokens[task] / passes[task] for task in tokens}
    return HeldOutFigures(
        tokens_per_pass=geometric_mean(by_task.values()),
        by_task=by_task,
        accepted=accepted,
        right=(hits / blocks.clamp(min=1)).tolist(),
    )


def passes_of(agreed: Sequence[int], tokens: int) -> Iterable[int]:
    """Tokens that each decode pass makes final. ``agreed``: right drafts in a row behind every token of the answer, of which
    the prompt's pass writes the first; the first decode pass has no draft to check.
    """
    yield 1
    at = 1
    while at < tokens - 1:
        final = min(agreed[at] + 1, tokens - 1 - at)
        yield final
        at += final


def _right(
    trained: TrainedAdapter, answer: Answer, block_size: int, ids: SpecialIds, bf16: bool, copies: bool
) -> tuple[Tensor, Tensor]:
    """Whether each slot of a block of masks at every token is right, and whether there is such a token: (G, k) each."""
    starts = [[len(answer.prompt_ids) + place for place in range(len(answer.answer_ids))]]
    masked = torch.ones(1, len(starts[0]), block_size, dtype=torch.bool)
    made = masked_blocks([answer], starts, block_size, ids, masked).to(trained.mask_embedding.device)
    with torch.autocast(made.clean.device.type, torch.bfloat16, enabled=bf16):
        logits = trained.logits(made).view(*made.targets.shape[1:], -1)
        logits[..., ids.mask] = float("-inf")  # as in a decode
        in_turn = InTurn(trained.bigram, copies)
        said = _in_turn(in_turn, logits, made) if in_turn else logits.argmax(dim=-1)
    inside = made.starts[0][:, None] + torch.arange(block_size, device=said.device) < made.clean.shape[1]
    return said == made.targets[0], inside


def _in_turn(in_turn: InTurn, logits: Tensor, made: MaskedBlocks) -> Tensor:
    """Drafts (G, k) behind the token of every slot 0, which the next-token head has said."""
    texts = torch.nn.functional.pad(made.clean, (0, logits.shape[1])).repeat(logits.shape[0], 1)
    return in_turn.drafts(logits, texts, made.starts[0], lambda scores, slot: scores.argmax(dim=-1))
