"""The recipe of the reference model: one next-token base, then an SBD model and its next-token control.

Both fine-tunings start from the same base weights and see the same examples in the same order for the same number of
optimizer steps; only the loss differs. What ships are the weights rounded to bfloat16, and all published figures are
those of the stored weights.
"""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path
from typing import Literal

import torch
from transformers import AutoTokenizer, LlamaForCausalLM, PreTrainedTokenizerFast, set_seed

from harness.modeling.reference import TaskExamples, build_model, build_tokenizer, special_ids
from harness.modeling.training import TrainingConfig, train

Stage = Literal["base", "ntp_only", "sbd"]
BASE_STEPS, FINE_TUNING_STEPS = 1500, 2000
BATCH_SIZE = 64
EXAMPLES = 128_000


def stage_config(stage: Stage, output_dir: Path) -> TrainingConfig:
    """The settings of one stage; the two fine-tunings differ in the objective alone."""
    if stage == "base":
        return TrainingConfig(
            output_dir=output_dir, objective="ntp", steps=BASE_STEPS, batch_size=BATCH_SIZE, learning_rate=2e-3,
            warmup_steps=100, schedule="constant_with_warmup", seed=1, bf16=True, cpu=True,
            compile=True, save_steps=250,
        )  # fmt: skip
    return TrainingConfig(
        output_dir=output_dir, objective="sbd" if stage == "sbd" else "ntp", steps=FINE_TUNING_STEPS,
        batch_size=BATCH_SIZE, learning_rate=1.5e-3, warmup_steps=50, schedule="cosine", seed=2, bf16=True, cpu=True,
        compile=True, save_steps=250,
    )  # fmt: skip


def train_stage(stage: Stage, root: Path) -> Path:
    """Train one stage under ``root`` (resuming from its last checkpoint) and export it; returns the exported folder.

    The fine-tuning stages need the finished base under the same ``root``.
    """
    started = time.monotonic()
    config = stage_config(stage, root / stage)
    set_seed(config.seed)
    base = root / "base" / "export"
    if stage == "base":
        tokenizer = build_tokenizer(seed=1)
        model = build_model(tokenizer)
    else:
        tokenizer = AutoTokenizer.from_pretrained(base)
        model = LlamaForCausalLM.from_pretrained(base, dtype=torch.float32)
    examples = TaskExamples(tokenizer, seed=config.seed, length=EXAMPLES)
    resume = any(config.output_dir.glob("checkpoint-*"))
    train(config, model, examples, special_ids(tokenizer), resume=resume)
    return _export(model, tokenizer, config, time.monotonic() - started)


def _export(model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast, config: TrainingConfig, seconds: float) -> Path:
    """Write weights and tokenizer. The base stays in float32 for fine-tuning; the others are stored in bfloat16."""
    target = config.output_dir / "export"
    if config.output_dir.name != "base":
        model = model.to(torch.bfloat16)
    model.save_pretrained(target)
    tokenizer.save_pretrained(target)
    settings = config.model_dump(mode="json") | {"last_session_s": round(seconds, 1)}
    (target / "training.json").write_text(json.dumps(settings, indent=1))
    last = max(config.output_dir.glob("checkpoint-*"), key=lambda p: int(p.name.split("-")[1]))
    shutil.copy(last / "trainer_state.json", target / "trainer_state.json")
    return target
