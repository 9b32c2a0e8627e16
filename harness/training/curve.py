"""The curve of an adapter while it is trained: held-out tokens per pass over masked tokens, and when it says to end.

Tokens per pass are counted without decoding. Quadratic self-speculation (harness.decoding.self_speculation) writes the model's
own greedy answer, which is known. What it drafts after a token depends on that answer alone. So one forward over a block after
every token tells how many drafts each pass would have right, and the passes follow. Axes: G tokens of the answer, k slots of a
block.

Measured, and saved in the end, are the averaged weights (TrainedAdapter.averaged). So the curve needs no falling learning rate,
and training can end at any of its points.
"""

from __future__ import annotations

import json
import math
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import geometric_mean
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import TrainerCallback

from harness.decoding.in_turn import InTurn
from harness.frozen import frozen
from harness.progress import Progress
from harness.training.adapter_module import TrainedAdapter
from harness.training.distillation import OwnAnswer, finished_lines
from harness.training.masked_blocks import masked_blocks
from harness.training.noising import SpecialIds
from harness.training.recipe import HeldOut, TrainRecipe

CURVE = "curve.jsonl"
FIRST_TOKENS = 1 << 15
"""Masked tokens below which a fresh adapter's curve has no points but that of no training."""


@dataclass
class Curve(TrainerCallback):
    """Averages the weights, measures the held-out figures at some steps and appends them to a file, one JSON object a line.
    Ends the training where the recipe's ``stop_gain`` says so, though not within the first walk over the answers.

    ``answers``: the held-out ones, none for no curve; ``walk_steps``: steps of a walk over those that are learnt.
    """

    recipe: TrainRecipe
    trained: TrainedAdapter
    answers: Sequence[OwnAnswer]
    ids: SpecialIds
    file: Path
    progress: Progress
    walk_steps: int

    def __post_init__(self) -> None:
        self._asked = self.recipe.held_out if self.answers else None

    def on_train_begin(self, args: Any, state: Any, control: Any, **known: Any) -> None:
        """Forget points that were measured after the checkpoint that training goes on from; measure what it begins with."""
        self.progress.start(["steps"] * (args.max_steps - state.global_step))
        self._points = [point for point in finished_lines(self.file) if point["step"] <= state.global_step]
        self._trained_s = self._points[-1]["trained_s"] if self._points else 0.0
        if self._asked is not None:
            self.file.write_text("".join(json.dumps(point) + "\n" for point in self._points), encoding="utf-8")
            if not self._points:
                self._measure(self._asked, state.global_step)
        self._since = time.monotonic()

    def on_step_end(self, args: Any, state: Any, control: Any, **known: Any) -> None:
        """Measure, where a point is due; training time goes on without it."""
        self.progress.advance("steps")
        self.trained.average(state.global_step)
        asked, charged = self._asked, int(self.trained.charged)
        if asked is None:
            return
        due = max(self._points[-1]["masked_tokens"], FIRST_TOKENS) * 2 ** (1 / asked.points_per_doubling)
        if charged < due and state.global_step < args.max_steps:
            return
        self._trained_s += time.monotonic() - self._since
        self._measure(asked, state.global_step)
        if self._flat(self._points):
            control.should_training_stop = control.should_save = True
        self._since = time.monotonic()

    def ended(self) -> bool:
        """Whether the curve in the file has ended its training."""
        return self._flat(finished_lines(self.file))

    def _flat(self, points: Sequence[dict[str, Any]]) -> bool:
        least = self._asked.stop_gain if self._asked is not None else None
        if least is None or not points or points[-1]["step"] < self.walk_steps:
            return False
        gain = doubling_gain(points)
        if gain is None or gain >= least:
            return False
        self.progress.note(f"the last doubling added {gain:.3f} tokens per pass, less than {least:g}: training ends")
        return True

    def _measure(self, asked: HeldOut, step: int) -> None:
        with self.trained.averaged():
            figures = held_out_figures(self.trained, self.answers, asked.block_size, self.ids, self.recipe.bf16, asked.copies)
        about = {"step": step, "masked_tokens": int(self.trained.charged), "trained_s": round(self._trained_s, 1)}
        self._points.append(about | asdict(figures))
        with self.file.open("a", encoding="utf-8") as lines:
            lines.write(json.dumps(self._points[-1]) + "\n")
        self.progress.note(f"step {step}: {figures.tokens_per_pass:.3f} tokens per pass on held-out prompts")


def doubling_gain(points: Sequence[dict[str, Any]]) -> float | None:
    """Tokens per pass that the last doubling of the masked tokens added; between points, a straight line over their logarithm.
    None where the curve does not reach back to half of its last tokens.
    """
    at = [math.log(max(point["masked_tokens"], 1)) for point in points]
    values = [float(point["tokens_per_pass"]) for point in points]
    half = at[-1] - math.log(2)
    return None if at[0] > half else values[-1] - float(np.interp(half, at, values))


def trained_tokens(adapter: Path) -> int:
    """Masked tokens that an adapter was charged for, by the curve in its folder; 0 without one."""
    points = finished_lines(adapter / CURVE)
    return int(points[-1]["masked_tokens"]) if points else 0


@frozen
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
    trained: TrainedAdapter, answers: Sequence[OwnAnswer], block_size: int, ids: SpecialIds, bf16: bool, copies: bool = False
) -> HeldOutFigures:
    """The figures of greedy ``answers`` of the model itself."""
    tokens, passes = Counter[str](), Counter[str]()
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
    """Tokens that each decode pass makes final. ``agreed``: right drafts in a row after every token of the answer, of which
    the prompt's pass writes the first; the first decode pass has no draft to check.
    """
    yield 1
    at = 1
    while at < tokens - 1:
        final = min(agreed[at] + 1, tokens - 1 - at)
        yield final
        at += final


def _right(
    trained: TrainedAdapter, answer: OwnAnswer, block_size: int, ids: SpecialIds, bf16: bool, copies: bool
) -> tuple[Tensor, Tensor]:
    """Whether each slot of a block of masks at every token is right, and whether there is such a token: (G, k) each."""
    starts = [[len(answer.prompt_ids) + place for place in range(len(answer.answer_ids))]]
    masked = torch.ones(1, len(starts[0]), block_size, dtype=torch.bool)
    made = masked_blocks([answer], starts, block_size, ids, masked).to(trained.mask_embedding.device)
    with torch.autocast(made.clean.device.type, torch.bfloat16, enabled=bf16):
        logits = trained.logits(made).view(*made.targets.shape[1:], -1)
        logits[..., ids.mask] = float("-inf")  # as in a decode
        in_turn = InTurn(trained.bigram, copies)
        if not in_turn:
            drafts = logits.argmax(dim=-1)
        else:  # after the token of every slot 0, which the next-token head has said
            texts = torch.nn.functional.pad(made.clean, (0, logits.shape[1])).repeat(logits.shape[0], 1)
            drafts = in_turn.drafts(logits, texts, made.starts[0], lambda scores, slot: scores.argmax(dim=-1))
    inside = made.starts[0][:, None] + torch.arange(block_size, device=drafts.device) < made.clean.shape[1]
    return drafts == made.targets[0], inside
