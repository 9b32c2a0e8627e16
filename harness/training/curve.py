"""The curve of an adapter while it is trained: held-out tokens per pass over masked tokens, and when it says to end.

Measured, and saved in the end, are the averaged weights (TrainedAdapter.averaged). So the curve needs no falling learning rate,
and training can end at any of its points.
"""

from __future__ import annotations

import json
import math
import time
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from transformers import TrainerCallback

from harness.training.adapter_module import TrainedAdapter
from harness.training.distillation import Answer
from harness.training.held_out import held_out_figures
from harness.training.noising import SpecialIds
from harness.training.recipe import HeldOut, TrainRecipe
from harness.progress import Progress

CURVE = "curve.jsonl"
FIRST_TOKENS = 1 << 15
"""Masked tokens below which a fresh adapter's curve has no points but that of no training."""


class Curve(TrainerCallback):
    """Averages the weights, measures the held-out figures at some steps and appends them to a file, one JSON object a line.
    Ends the training where the recipe's ``stop_gain`` says so, though not within the first walk over the answers.
    """

    def __init__(
        self,
        recipe: TrainRecipe,
        trained: TrainedAdapter,
        answers: Sequence[Answer],
        ids: SpecialIds,
        file: Path,
        progress: Progress,
        walk_steps: int,
    ) -> None:
        """``answers``: the held-out ones, none for no curve; ``walk_steps``: steps of a walk over those that are learnt."""
        self._asked = recipe.held_out if answers else None
        self._bf16, self._trained, self._answers, self._ids = recipe.bf16, trained, answers, ids
        self.file, self._progress, self._walk_steps = file, progress, walk_steps
        self._points: list[dict[str, Any]] = []
        self._trained_s = 0.0
        self._since = time.monotonic()

    def on_train_begin(self, args: Any, state: Any, control: Any, **known: Any) -> None:
        """Forget points that were measured behind the checkpoint that training goes on from; measure what it begins with."""
        self._progress.start(["steps"] * (args.max_steps - state.global_step))
        self._points = [point for point in curve_points(self.file) if point["step"] <= state.global_step]
        self._trained_s = self._points[-1]["trained_s"] if self._points else 0.0
        if self._asked is not None:
            self.file.write_text("".join(json.dumps(point) + "\n" for point in self._points), encoding="utf-8")
            if not self._points:
                self._measure(self._asked, state.global_step)
        self._since = time.monotonic()

    def on_step_end(self, args: Any, state: Any, control: Any, **known: Any) -> None:
        """Measure, where a point is due; training time goes on without it."""
        self._progress.advance("steps")
        self._trained.average(state.global_step)
        asked, charged = self._asked, int(self._trained.charged)
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
        return self._flat(curve_points(self.file))

    def _flat(self, points: Sequence[dict[str, Any]]) -> bool:
        least = self._asked.stop_gain if self._asked is not None else None
        if least is None or not points or points[-1]["step"] < self._walk_steps:
            return False
        gain = doubling_gain(points)
        if gain is None or gain >= least:
            return False
        self._progress.note(f"the last doubling added {gain:.3f} tokens per pass, less than {least:g}: training ends")
        return True

    def _measure(self, asked: HeldOut, step: int) -> None:
        with self._trained.averaged():
            figures = held_out_figures(self._trained, self._answers, asked.block_size, self._ids, self._bf16, asked.copies)
        about = {"step": step, "masked_tokens": int(self._trained.charged), "trained_s": round(self._trained_s, 1)}
        self._points.append(about | asdict(figures))
        with self.file.open("a", encoding="utf-8") as lines:
            lines.write(json.dumps(self._points[-1]) + "\n")
        self._progress.note(f"step {step}: {figures.tokens_per_pass:.3f} tokens per pass on held-out prompts")


def doubling_gain(points: Sequence[dict[str, Any]]) -> float | None:
    """Tokens per pass that the last doubling of the masked tokens added; between points, a straight line over their logarithm.
    None where the curve does not reach back to half of its last tokens.
    """
    at = [math.log(max(point["masked_tokens"], 1)) for point in points]
    half = at[-1] - math.log(2)
    if at[0] > half:
        return None
    values = [float(point["tokens_per_pass"]) for point in points]
    right = bisect_right(at, half)
    share = (half - at[right - 1]) / (at[right] - at[right - 1])
    return values[-1] - values[right - 1] - share * (values[right] - values[right - 1])


def trained_tokens(adapter: Path) -> int:
    """Masked tokens that an adapter was charged for, by the curve in its folder; 0 without one."""
    points = curve_points(adapter / CURVE)
    return int(points[-1]["masked_tokens"]) if points else 0


def curve_points(file: Path) -> list[dict[str, Any]]:
    """The whole lines of a curve's file, oldest first; none where there is no file."""
    return [json.loads(line) for line in file.read_text(encoding="utf-8").split("\n")[:-1]] if file.exists() else []
