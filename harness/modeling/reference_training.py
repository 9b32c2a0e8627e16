"""The recipe of the reference model: one next-token base, then an SBD model and its next-token control in two stages each.

Both start from the same base weights and see the same examples in the same order for the same number of optimizer steps;
the loss differs, and the attention kernel that computes it (see training_attention). What ships are the weights rounded to
bfloat16, and all published figures are those of the stored weights.
"""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path
from typing import Any, Literal

import torch
from transformers import AutoTokenizer, LlamaForCausalLM, PreTrainedTokenizerFast, set_seed

from harness.errors import UserError
from harness.modeling import training_attention
from harness.modeling.reference_model import (
    STORIES,
    VARIABLES,
    Mixture,
    TaskExamples,
    build_model,
    build_tokenizer,
    special_ids,
)
from harness.modeling.training import Objective, TrainingConfig, train

Stage = Literal["base", "sbd", "sbd_end", "ntp_only", "ntp_only_end"]
STARTS_FROM: dict[Stage, Stage | None] = {
    "base": None, "sbd": "base", "sbd_end": "sbd", "ntp_only": "base", "ntp_only_end": "ntp_only",
}  # fmt: skip
SBD_STAGES: tuple[Stage, ...] = ("sbd", "sbd_end")
# First batch of each mixture of tasks.
_STORIES = ((0, STORIES),)
_FINE_TUNING = ((0, STORIES), (2752, VARIABLES))
PHASES: dict[Stage, tuple[tuple[int, Mixture], ...]] = {
    "base": _STORIES, "sbd": _FINE_TUNING, "ntp_only": _FINE_TUNING, "sbd_end": _STORIES, "ntp_only_end": _STORIES,
}  # fmt: skip


def stage_config(stage: Stage, output_dir: Path) -> TrainingConfig:
    """The settings of one stage; each stage of the SBD model differs from its control's in the objective alone."""
    everywhere = {
        "output_dir": output_dir, "batch_size": 32, "adam_beta2": 0.98, "weight_decay": 0.01,
        "bf16": True, "cpu": True, "compile": True, "sampling": "sequential", "save_steps": 250,
    }  # fmt: skip
    if stage == "base":
        return TrainingConfig(
            objective="ntp", steps=5000, learning_rate=1e-3, warmup_steps=100, schedule="constant_with_warmup", seed=1,
            **everywhere,
        )  # fmt: skip
    objective: Objective = "sbd" if stage in SBD_STAGES else "ntp"
    # The masked head still got rare sums wrong (25-25, 30-20) after the first fine-tuning, so a second, shorter one follows.
    steps, rate, seed = (1400, 5e-4, 3) if stage.endswith("_end") else (7500, 1e-3, 2)
    return TrainingConfig(
        objective=objective, steps=steps, learning_rate=rate, warmup_steps=30, schedule="cosine", seed=seed, **everywhere
    )


def train_stage(stage: Stage, root: Path) -> Path:
    """Train one stage under ``root`` (resuming from its last checkpoint) and export it; returns the exported folder.

    Every stage but the first needs the finished one it starts from under the same ``root``.
    """
    started = time.monotonic()
    config = stage_config(stage, root / stage)
    set_seed(config.seed)
    before = STARTS_FROM[stage]
    if before is None:
        tokenizer: Any = build_tokenizer(seed=1)
        model: Any = build_model(tokenizer)
    else:
        tokenizer = AutoTokenizer.from_pretrained(root / before / "export")
        model = LlamaForCausalLM.from_pretrained(root / before / "export", dtype=torch.float32)
    model.set_attn_implementation(training_attention.register() if config.objective == "sbd" else "eager")
    examples = TaskExamples(
        tokenizer, seed=config.seed, batch_size=config.batch_size, batches=config.steps, phases=PHASES[stage]
    )
    resume = any(config.output_dir.glob("checkpoint-*"))
    train(config, model, examples, special_ids(tokenizer), resume=resume)
    return _export(stage, model, tokenizer, config, time.monotonic() - started)


def _export(
    stage: Stage, model: Any, tokenizer: PreTrainedTokenizerFast, config: TrainingConfig, seconds: float
) -> Path:
    """Write weights and tokenizer; float32 where another stage starts from them, else bfloat16, which is what ships."""
    target = config.output_dir / "export"
    model.config.use_cache = True  # the Trainer switches it off, and generate() would then read every prompt anew
    if stage not in STARTS_FROM.values():
        model = model.to(torch.bfloat16)
    model.save_pretrained(target)
    tokenizer.save_pretrained(target)
    settings = config.model_dump(mode="json", exclude={"output_dir"}) | {"last_session_s": round(seconds, 1)}
    (target / "training.json").write_text(json.dumps(settings, indent=1))
    last = max(config.output_dir.glob("checkpoint-*"), key=lambda p: int(p.name.split("-")[1]))
    shutil.copy(last / "trainer_state.json", target / "trainer_state.json")
    return target


def train_reference(stage: str, root: Path) -> Path:
    """``train_stage`` for a name somebody typed.

    Raises:
        UserError: there is no such stage, or the stage it starts from is not finished under ``root``.
    """
    known = {str(name): name for name in STARTS_FROM}
    if stage not in known:
        raise UserError(f"no stage {stage!r}; the recipe has, in this order: {', '.join(known)}")
    before = STARTS_FROM[known[stage]]
    if before is not None and not (root / before / "export").is_dir():
        raise UserError(f"stage {stage} starts from {before}, which is not finished under {root}; train {before} there first")
    return train_stage(known[stage], root)
