"""The recipe of the reference model: one next-token base, then an SBD model and its next-token control in three stages each.

Both start from the same base weights and see the same examples in the same order for the same number of optimizer steps. They
differ in the loss and in the attention kernel that computes it (see trainer). The draft model is a small next-token model of
the same examples. What ships are the weights rounded to bfloat16; all published figures are those of the stored weights.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedTokenizerFast, set_seed

from harness.engine.checkpoint_files import opened
from harness.engine.checkpoints import open_checkpoint
from harness.engine.loading import said_by_transformers
from harness.training.noising import SpecialIds
from harness.training.reference_model import (
    DRAFT,
    MOSTLY_STORIES,
    REFERENCE,
    STORIES,
    VARIABLES,
    Mixture,
    Size,
    TaskExamples,
    build_model,
    build_tokenizer,
)
from harness.training.trainer import FLOAT32_ATTENTION, Objective, TrainingConfig, train
from harness.errors import UserError
from harness.record.regular_file import write_whole


@dataclass(frozen=True, slots=True, kw_only=True)
class Practice:
    """What one fine-tuning stage of the SBD model shares with its control's: everything but the objective. ``phases``: each
    mixture of tasks with its first batch.
    """

    steps: int
    learning_rate: float
    seed: int
    phases: tuple[tuple[int, Mixture], ...]


@dataclass(frozen=True, slots=True)
class TrainingStage:
    """One training run; ``starts_from``: the stage whose weights it continues from, None: random ones of this ``size``."""

    starts_from: str | None
    objective: Objective
    practice: Practice
    size: Size = REFERENCE
    schedule: str = "cosine"
    compile: bool = True


_BASE = Practice(steps=5000, learning_rate=1e-3, seed=1, phases=((0, STORIES),))
_FIRST = Practice(steps=7500, learning_rate=1e-3, seed=2, phases=((0, STORIES), (2752, VARIABLES)))
# The masked head, not the next-token head, still got rare sums wrong (25-25, 30-20) after the first and after the second.
_END = Practice(steps=1400, learning_rate=5e-4, seed=3, phases=((0, STORIES),))
_MORE = Practice(steps=6000, learning_rate=8e-4, seed=4, phases=((0, MOSTLY_STORIES),))
# A small model learns less from each example, and at a higher rate.
_SMALL = Practice(steps=1500, learning_rate=3e-3, seed=1, phases=((0, STORIES),))
STAGES: dict[str, TrainingStage] = {
    "base": TrainingStage(None, "ntp", _BASE, schedule="constant_with_warmup"),
    "sbd": TrainingStage("base", "sbd", _FIRST),
    "sbd_end": TrainingStage("sbd", "sbd", _END),
    "sbd_more": TrainingStage("sbd_end", "sbd", _MORE),
    "ntp_only": TrainingStage("base", "ntp", _FIRST),
    "ntp_only_end": TrainingStage("ntp_only", "ntp", _END),
    "ntp_only_more": TrainingStage("ntp_only_end", "ntp", _MORE),
    "draft": TrainingStage(None, "ntp", _SMALL, size=DRAFT, compile=False),  # compiling takes longer than it would save
}


def stage_config(name: str, output_dir: Path) -> TrainingConfig:
    """The Trainer's settings of one stage."""
    stage, practice = STAGES[name], STAGES[name].practice
    return TrainingConfig(
        output_dir=output_dir,
        objective=stage.objective,
        steps=practice.steps,
        learning_rate=practice.learning_rate,
        seed=practice.seed,
        schedule=stage.schedule,
        compile=stage.compile,
        warmup_steps=100 if stage.starts_from is None else 30,
        batch_size=32,
        adam_beta2=0.98,
        weight_decay=0.01,
        bf16=True,
        cpu=True,
        sampling="sequential",
        save_steps=250,
    )


def train_reference(stage: str, root: Path) -> Path:
    """Train one stage under ``root`` (resuming from its last checkpoint) and export it; returns the exported folder.

    Raises:
        UserError: no such stage exists, or the stage it starts from is not finished under ``root``.
    """
    if stage not in STAGES:
        raise UserError(f"no stage {stage!r}; the recipe has, in this order: {', '.join(STAGES)}")
    before = STAGES[stage].starts_from
    if before is not None and not (root / before / "export").is_dir():
        raise UserError(f"stage {stage} starts from {before}, which is not finished under {root}; train {before} there first")
    started = time.monotonic()
    config = stage_config(stage, root / stage)
    set_seed(config.seed)
    if before is None:
        tokenizer: Any = build_tokenizer()
        model: Any = build_model(tokenizer, STAGES[stage].size)
    else:
        export, how = str(root / before / "export"), {"dtype": torch.float32}
        with said_by_transformers(export), opened(export, None) as folder:
            model, tokenizer = open_checkpoint(str(folder), export, {}, None, how, {"trust_remote_code": False}, None)
    model.set_attn_implementation(FLOAT32_ATTENTION if config.objective == "sbd" else "eager")
    examples = TaskExamples(
        tokenizer, seed=config.seed, batch_size=config.batch_size, batches=config.steps, phases=STAGES[stage].practice.phases
    )
    ids = SpecialIds(pad=tokenizer.pad_token_id, eos=tokenizer.eos_token_id, mask=tokenizer.mask_token_id)
    train(config, model, examples, ids)
    return _export(stage, model, tokenizer, config, time.monotonic() - started)


def _export(stage: str, model: Any, tokenizer: PreTrainedTokenizerFast, config: TrainingConfig, seconds: float) -> Path:
    """Write weights and tokenizer; float32 where another stage starts from them, else bfloat16, which is what ships."""
    target = config.output_dir / "export"
    if all(other.starts_from != stage for other in STAGES.values()):
        model = model.to(torch.bfloat16)
    model.save_pretrained(target)
    tokenizer.save_pretrained(target)
    settings = config.model_dump(mode="json", exclude={"output_dir"}) | {"last_session_s": round(seconds, 1)}
    write_whole(target / "training.json", json.dumps(settings, indent=1).encode())
    last = max(config.output_dir.glob("checkpoint-*"), key=lambda p: int(p.name.split("-")[1]))
    write_whole(target / "trainer_state.json", (last / "trainer_state.json").read_bytes())
    return target
