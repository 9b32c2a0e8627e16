"""`sbd train`: make any Hugging Face causal LM an SBD model (paper, algorithm 1 and eq. 14) on the Hugging Face Trainer.

The Trainer brings DDP/FSDP, mixed precision, checkpoints, resume and logging; this module brings the batch and the loss.
``objective: ntp`` trains the control of the comparison: same initialisation, data order and optimizer steps, without the masked
half.

Mixed-precision training on a CPU attends with the fused kernel in float32. Its bfloat16 backward pass took 166 of the 574 ms of
a step of the reference model on one core, its float32 one 41. Plain ("eager") attention costs about the same; compiled with the
doubled sequence it crashed in generated code (torch 2.13).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

import torch
from torch import Tensor, nn
from transformers import (
    AttentionInterface,
    AttentionMaskInterface,
    PreTrainedModel,
    Trainer,
    TrainerCallback,
    TrainingArguments,
)
from transformers.masking_utils import sdpa_mask

from harness.config_file import Count, Flag, NonNegative
from harness.engine.attention_masks import attention_input
from harness.engine.checkpoint_files import refuse_cut_checkpoint
from harness.engine.kv_cache import refuse_options
from harness.training.noising import IGNORE, Example, SpecialIds, clean_batch, doubled_batch
from harness.training.recipe import TrainingSettings


class TrainingConfig(TrainingSettings):
    """All settings of a training run apart from model and data."""

    output_dir: Path
    learning_rate: NonNegative = 3e-4
    bf16: Flag = False
    cpu: Flag = False
    compile: Flag = False
    sampling: Literal["random", "sequential"] = "random"
    log_steps: Count = 50


@dataclass
class Collator:
    """Turns examples into the batch of one objective. Block sizes and masks follow ``seed``, the number of the batch and its
    first example. ``batches``: how many have been made, those of the run that is resumed among them.
    """

    config: TrainingConfig
    ids: SpecialIds
    batches: int = 0

    def __call__(self, examples: Sequence[Example]) -> dict[str, Tensor]:
        """Build one batch; see harness.training.noising for shapes."""
        if self.config.objective == "ntp":
            return clean_batch(examples, self.ids)
        # By number, so that an example meets other masks in every epoch, and a resumed run draws what an unbroken one does; by
        # content too, so that processes which train together draw apart.
        content = hash((self.config.seed, self.batches, *examples[0]["input_ids"]))
        self.batches += 1
        generator = torch.Generator().manual_seed(content & (2**63 - 1))
        return doubled_batch(examples, self.ids, generator)


class CountingCollator(Protocol):
    """Makes a batch of examples. ``batches``: how many have been made, those of the run that is resumed among them."""

    batches: int

    def __call__(self, examples: Sequence[Any]) -> dict[str, Tensor]:
        """The model's input by name."""


@dataclass
class CountsBatches(TrainerCallback):
    """Tells the collator which batch the first one of this process is: a resumed run skips those of the steps before."""

    collator: CountingCollator

    def on_train_begin(self, args: Any, state: Any, control: Any, **known: Any) -> None:
        """An epoch's last step reads what is left of its batches, fewer where ``accumulate`` does not divide them."""
        epoch = len(known["train_dataloader"])
        epochs, steps = divmod(state.global_step, -(-epoch // args.gradient_accumulation_steps))
        self.collator.batches = epochs * epoch + steps * args.gradient_accumulation_steps


def objective_loss(logits: Tensor, labels: Tensor, noisy_labels: Tensor) -> tuple[Tensor, Tensor]:
    """Equation 14's two sums, each divided by the number of next-token targets.

    Args:
        logits: (B, L+N, V) over [x ; x̂].
        labels: (B, L) next-token targets of x, IGNORE where nothing is charged.
        noisy_labels: (B, N) own-position targets of x̂, IGNORE where it is not masked.

    Returns:
        Next-token loss and masked-token loss in nats per next-token target (the masked one is 0 where x̂ is absent).
    """
    charged = torch.cat([labels, noisy_labels], dim=1)
    each = nn.functional.cross_entropy(
        logits.flatten(0, 1).float(), charged.flatten(), ignore_index=IGNORE, reduction="none"
    ).view_as(charged)
    targets = (labels != IGNORE).sum()
    clean = labels.shape[1]
    return each[:, :clean].sum() / targets, each[:, clean:].sum() / targets


class SbdTrainer(Trainer):
    """The Trainer with eq. 14 as its loss; logs both terms."""

    def compute_loss(
        self,
        model: nn.Module,
        inputs: dict[str, Any],
        return_outputs: bool = False,
        num_items_in_batch: Tensor | int | None = None,
    ) -> Any:
        """One forward over [x ; x̂] and the sum of the two terms."""
        unwrapped = self.accelerator.unwrap_model(model)
        mask = attention_input(inputs["visible"], unwrapped.config._attn_implementation, unwrapped.dtype)
        out = model(input_ids=inputs["input_ids"], position_ids=inputs["position_ids"], attention_mask=mask, use_cache=False)
        next_token, masked = objective_loss(out.logits, inputs["labels"], inputs["noisy_labels"])
        if self.state.global_step % self.args.logging_steps == 0:
            self.log({"next_token_loss": next_token.item(), "masked_loss": masked.item()})
        loss = next_token + masked
        return (loss, out) if return_outputs else loss


def run_trainer(
    config: TrainingConfig,
    model: nn.Module,
    dataset: torch.utils.data.Dataset[Any],
    collator: CountingCollator,
    trainer_type: type[Trainer],
    callbacks: Sequence[TrainerCallback] = (),
) -> Trainer:
    """Train ``model`` in place, with checkpoints under ``config.output_dir``; goes on from the last one there.

    Raises:
        UnknownModelError: that one is cut.
    """
    refuse_cut_checkpoint(config.output_dir)
    arguments = TrainingArguments(
        output_dir=str(config.output_dir),
        max_steps=config.steps,
        per_device_train_batch_size=config.batch_size,
        gradient_accumulation_steps=config.accumulate,
        lr_scheduler_type=config.schedule,
        data_seed=config.seed,
        train_sampling_strategy=config.sampling,
        use_cpu=config.cpu or not torch.cuda.is_available(),
        save_total_limit=2,
        logging_steps=config.log_steps,
        report_to="none",
        remove_unused_columns=False,
        dataloader_pin_memory=False,
        disable_tqdm=True,
        **config.model_dump(
            include={"learning_rate", "warmup_steps", "weight_decay", "adam_beta2", "seed", "bf16", "save_steps"}
        ),
    )
    trainer = trainer_type(
        model=model,
        args=arguments,
        train_dataset=dataset,
        data_collator=collator,
        callbacks=[CountsBatches(collator), *callbacks],
    )
    # The Trainer would count targets by its own rule and leave it to the loss to divide by them; ours divides by its batch's.
    trainer.model_accepts_loss_kwargs = False
    trainer.train(resume_from_checkpoint=any(config.output_dir.glob("checkpoint-*")))
    return trainer


def train(config: TrainingConfig, model: PreTrainedModel, dataset: torch.utils.data.Dataset[Example], ids: SpecialIds) -> None:
    """Train all weights of ``model`` by equation 14; see run_trainer."""
    if config.checkpoint_activations:
        # The older name goes in transformers 6, the newer one came in 5.x.
        enable: Any = getattr(model, "activation_checkpointing_enable", None) or model.gradient_checkpointing_enable
        enable()
    if config.compile:
        model.compile(dynamic=True)  # batches differ in width; in place, so that checkpoints stay the module's own
    run_trainer(config, model, dataset, Collator(config, ids), SbdTrainer).save_model()
    model.config.use_cache = True  # the Trainer switches it off, and generate() would then read every prompt anew


FLOAT32_ATTENTION = "sdpa_float32"
"""The name of ``attend`` as an attention implementation of transformers."""


def attend(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, **options: Any
) -> tuple[Tensor, None]:
    """transformers' attention interface: (B, H, Q, D) in, (B, Q, H, D) out, in the dtype of ``query``. Without a mask: causal,
    and then transformers has given no keys before the queries. Options are refused as in decoding.
    """
    refuse_options(options)
    groups = query.shape[1] // key.shape[1]
    key, value = key.repeat_interleave(groups, dim=1), value.repeat_interleave(groups, dim=1)
    with torch.autocast(query.device.type, enabled=False):
        out = nn.functional.scaled_dot_product_attention(
            query.float(),
            key.float(),
            value.float(),
            attn_mask=attention_mask,
            scale=options.get("scaling"),
            is_causal=attention_mask is None,
        )
    return out.to(query.dtype).transpose(1, 2).contiguous(), None


AttentionInterface.register(FLOAT32_ATTENTION, attend)
AttentionMaskInterface.register(FLOAT32_ATTENTION, sdpa_mask)
