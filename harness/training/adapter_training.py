"""`sbd train` with ``adapter:``: distil the model's answers, train a gated adapter on them, measure its curve, write it.

Everything goes on where an interruption left it: answers after the last batch, training after the last checkpoint, the curve
after its last point.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import Trainer, set_seed

from harness.engine.adapter_files import write_adapter
from harness.engine.loading import OpenedModel, device_here, keep_what_is_freed, open_stored
from harness.errors import UserError
from harness.models.choice import HuggingFaceModel, PretrainedModel, StoredModel
from harness.models.digests import model_digests
from harness.models.pretrained import PRETRAINED
from harness.progress import Progress
from harness.training.adapter_module import TrainedAdapter
from harness.training.curve import CURVE, Curve, trained_tokens
from harness.training.distillation import OwnAnswer, distil
from harness.training.fine_tuning import special_ids
from harness.training.masked_blocks import AnswerStream, BlockCollator
from harness.training.recipe import Distillation, TrainRecipe
from harness.training.trainer import TrainingConfig, run_trainer

ADAPTER, ANSWERS, HELD_OUT = "adapter", "answers.jsonl", "held_out.jsonl"


def train_adapter(recipe: TrainRecipe, config: TrainingConfig, progress: Progress) -> Path:
    """Train the adapter of a recipe below ``config.output_dir``; returns its folder.

    Raises:
        UnknownModelError: the model cannot be loaded, has no such layers, or no mask token is known.
        UserError: no answer is short enough, or files there are of another recipe.
    """
    assert recipe.adapter is not None and recipe.distill is not None, "the recipe's validator asks for both"
    set_seed(recipe.seed)
    keep_what_is_freed()
    choice, out = choice_of(recipe), config.output_dir
    held = open_stored(choice, "bfloat16" if recipe.bf16 else "float32", "sdpa")
    held.module.to("cpu" if config.cpu else device_here()).eval()
    ids = special_ids(recipe.model, held.module, held.tokenizer, recipe.adapter.mask_token_id)
    about = {"model": {name: digest for name, (digest, _) in model_digests(choice, 0, "").items()}, "mask": ids.mask}
    with torch.no_grad():
        answers = distil(held, recipe.distill, about, out / ANSWERS, progress)
        unseen = _held_out_answers(recipe, held, about, out, progress)
    fitting = [answer for answer in answers if len(answer.prompt_ids) + len(answer.answer_ids) <= recipe.sequence_tokens]
    if not fitting:
        raise UserError(f"no answer has at most {recipe.sequence_tokens} tokens with its prompt; raise sequence_tokens")
    progress.note(f"{len(fitting)} of {len(answers)} answers have at most {recipe.sequence_tokens} tokens with their prompt")
    with torch.enable_grad():
        trained = TrainedAdapter(held.module, recipe.adapter, ids.mask)
        if recipe.adapter.start is not None:
            trained.charged += trained_tokens(Path(recipe.adapter.start))
        stream = AnswerStream(fitting, recipe.batch_size, recipe.steps * recipe.accumulate, recipe.seed)
        walk_steps = -(-len(fitting) // (recipe.batch_size * recipe.accumulate))
        curve = Curve(recipe, trained, unseen, ids, out / CURVE, progress, walk_steps)
        if curve.ended() and (out / ADAPTER / CURVE).exists():
            return out / ADAPTER
        run_trainer(config, trained, stream, BlockCollator(recipe.adapter, ids, recipe.seed), Trainer, [curve])
    with trained.averaged():
        write_adapter(out / ADAPTER, trained.adapter(), recipe.model)
    if curve.file.exists():
        shutil.copyfile(curve.file, out / ADAPTER / CURVE)
    return out / ADAPTER


def choice_of(recipe: TrainRecipe) -> StoredModel:
    """The recipe's model as a scenario would name it."""
    if recipe.model in PRETRAINED:
        return PretrainedModel(pretrained=recipe.model)
    return HuggingFaceModel(huggingface=recipe.model, revision=recipe.revision)


def _held_out_answers(
    recipe: TrainRecipe, held: OpenedModel, about: dict[str, Any], out: Path, progress: Progress
) -> Sequence[OwnAnswer]:
    if recipe.held_out is None:
        return ()
    greedy = Distillation(workload=recipe.held_out.workload, temperatures=(0.0,), seed=recipe.held_out.seed)
    return distil(held, greedy, about, out / HELD_OUT, progress)
