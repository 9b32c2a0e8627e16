"""A training recipe: which model becomes an SBD model, on what, with which settings; and its modelled cost on one device.

It is the one input of ``sbd train --recipe``. Loading touches no model, data, device or network; a mistake is refused with its
file, line and remedy.

The operations of the cost are the roofline's, for the doubled sequence [x ; x̂] of SBD training (arXiv 2509.04185, algorithm 1).
Both halves have their longest length, so the figures are upper bounds for shorter pairs. Nothing of them was measured. Axes: P
parameters, T = 2 x sequence_tokens x batch_size positions of a forward pass, S = 2 x sequence_tokens, V vocabulary.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, ValidationInfo, field_validator, model_validator

from harness.config_file import Count, CountOrZero, Flag, Name, NonNegative, Share, StrictModel, Text, folder_of, read_yaml
from harness.frozen import frozen
from harness.models import ModelShape
from harness.paths import data_dir
from harness.roofline.operation import describe_pass
from harness.roofline.operations import forward_operations
from harness.scenario.loading import shipped_file
from harness.workloads.spec import DatasetChoice, Workload


class Distillation(StrictModel):
    """The model answers prompts itself, and learns from its answers."""

    workload: Workload
    """The prompts; its `max_new_tokens` are the most that an answer has."""
    temperatures: Annotated[tuple[NonNegative, ...], Field(min_length=1)] = (0.0, 0.7)
    """Taken in turns by the batches of a task; 0 is greedy."""
    batch_size: Count = 64
    """Prompts that are answered together."""
    seed: CountOrZero = 1
    """Seed of the sampling."""


class AdapterSettings(StrictModel):
    """A gated adapter (harness.engine.gated_adapter) is trained, and the model itself stays as it is."""

    mask_token_id: CountOrZero | None = None
    """Token that stands for a mask; the model must never write it. Left out: the tokenizer's mask token."""
    start: Text | None = None
    """Folder of an adapter of the same model to go on from. Left out: a fresh one."""
    rank: Count = 32
    """Rank of the low-rank terms."""
    layers: Annotated[tuple[Text, ...], Field(min_length=1)] = (
        "q_proj",
        "k_proj",
        "v_proj",
        "o_proj",
        "gate_proj",
        "up_proj",
        "down_proj",
    )
    """Names of the adapted linear layers in every transformer layer."""
    block_sizes: tuple[Annotated[int, Field(strict=True, ge=2)], Annotated[int, Field(strict=True, le=64)]] = (2, 16)
    """The least and the most slots of a block; each batch draws one of them."""
    slots: Count = 128
    """Masked slots of each answer in a batch, in as many blocks as fit; they share its clean half."""
    partly_masked: Share = 0.25
    """Share of blocks whose slots are masked at a random rate; all others are masked whole."""
    slot_decay: Share = 1.0
    """Weight of a slot's loss, to the power of its place in the block."""
    bigram_rank: CountOrZero = 0
    """Rank of the term by which quadratic self-speculation draws a slot after the one before it; 0: none. Half of the
    blocks that are masked whole are trained with it.
    """

    @field_validator("block_sizes")
    @classmethod
    def _in_order(cls, sizes: tuple[int, int]) -> tuple[int, int]:
        if sizes[0] > sizes[1]:
            raise ValueError(f"got {list(sizes)}; write the least block size, then the most")
        return sizes


class HeldOut(StrictModel):
    """What the curve is measured on while the adapter is trained: tokens final per pass of quadratic self-speculation at
    temperature 0, which checks and drafts in every pass.
    """

    workload: Workload
    """Prompts; the model's greedy answers to them are made before training."""
    block_size: Annotated[int, Field(strict=True, ge=2)] = 8
    """Block size of the decode (the arm self_speculation in a scenario)."""
    copies: Flag = False
    """As `copies` of that arm."""
    points_per_doubling: Count = 2
    """Measurements while the masked tokens double; one more before the first step, one at the last."""
    stop_gain: NonNegative | None = None
    """Tokens per pass: training ends at the first point where the last doubling of the masked tokens added less, all answers
    having been read once. Left out: after `steps`.
    """
    seed: CountOrZero = 7
    """Seed of the prompts."""


class _Subject(StrictModel):
    """Which model is trained, and on what."""

    version: Literal[1]
    """Version of the format of this file; 1 is the only one."""
    name: Name
    """Name of the recipe."""
    model: Text
    """Hugging Face causal LM: hub id, folder, or a name of `sbd model list`."""
    revision: Text | None = None
    """Commit, branch or tag on the hub. Left out: main."""
    data: Text | None = None
    """JSONL file of {"prompt": ..., "solution": ...}. Exactly one of data, dataset and distill is given."""
    dataset: DatasetChoice | None = None
    """Dataset whose `answer` is the solution."""
    distill: Distillation | None = None
    """Prompts that the model answers itself."""
    adapter: AdapterSettings | None = None
    """Trains a gated adapter, and the model stays as it is. Left out: all weights are trained."""
    held_out: HeldOut | None = None
    """What the adapter's curve is measured on. Left out: no curve."""
    examples: Count | None = None
    """Rows of the dataset that are read, from the first. Left out: all."""
    sequence_tokens: Annotated[int, Field(strict=True, ge=2)]
    """Pairs that are longer, end of sequence included, are left out."""

    @field_validator("model", "data")
    @classmethod
    def _from_the_files_folder(cls, path: str | None, info: ValidationInfo) -> str | None:
        """A path that exists beside the recipe is meant from there; a model may also be a hub id."""
        base = folder_of(info)
        if path is None or base is None:
            return path
        local = Path(base, os.path.expanduser(path))
        if local.exists():
            return str(local.resolve())
        if info.field_name == "data" or path.startswith((".", "/", "~")):
            raise ValueError(f"there is no {local}; give a path that exists, from the folder of this file")
        return path

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if sum(source is not None for source in (self.data, self.dataset, self.distill)) != 1:
            raise ValueError("exactly one of data, dataset, distill is needed: what is trained on")
        if self.adapter is None and (self.distill is not None or self.held_out is not None):
            raise ValueError("distill and held_out are for a gated adapter; add adapter: {}, or remove them")
        if self.adapter is not None and self.distill is None:
            raise ValueError("adapter is trained on the model's own answers; add distill: {workload: ...}")
        if self.dataset is not None and self.dataset.answer is None:
            raise ValueError("dataset: answer is missing: it is the solution that is learnt")
        return self


class TrainingSettings(StrictModel):
    """How it is trained. An optimizer step reads ``accumulate`` batches, and its loss is the mean of theirs."""

    objective: Literal["sbd", "ntp"] = "sbd"
    """`sbd`: both losses of the paper's equation 14; `ntp`: the control."""
    steps: Count
    """Optimizer steps, the most where `stop_gain` ends them."""
    batch_size: Count
    """Sequences that a forward pass reads."""
    accumulate: Count = 1
    """Forward passes of an optimizer step."""
    learning_rate: NonNegative
    """Peak learning rate."""
    warmup_steps: CountOrZero = 200
    """Steps over which the learning rate rises."""
    weight_decay: NonNegative = 0.1
    """Weight decay of AdamW."""
    adam_beta2: NonNegative = 0.999
    """β2 of AdamW."""
    schedule: Text = "cosine"
    """Schedule of the learning rate, by its name in transformers."""
    seed: CountOrZero = 1
    """Seed of order and masks."""
    bf16: Flag = True
    """Whether to train in bfloat16 mixed precision."""
    checkpoint_activations: Flag = False
    """Keeps the inputs of the layers only, and computes the rest a second time in the backward pass."""
    save_steps: Count = 500
    """Steps between two checkpoints."""


class TrainRecipe(TrainingSettings, _Subject):
    """The whole file."""


def load_recipe(given: Path) -> TrainRecipe:
    """Read a recipe, or a shipped one by its bare name; paths in it are resolved against its folder.

    Raises:
        ScenarioError: with ``file:line: key: given, allowed, what to do`` per mistake.
    """
    file = given if given.exists() else shipped_file(given, data_dir("scenarios") / "train", "recipe")
    document = read_yaml(file, when_empty="write a training recipe (start from scenarios/train/qwen3_0_6b.yaml)")
    return document.value(TrainRecipe, {"base": file.parent.resolve()})


UTILISATION = 0.4
"""Share of the peak rate that training is assumed to reach, shown beside every figure made from it. Published runs of dense
models report 0.3 to 0.6 (PaLM 0.46, arXiv 2204.02311, table 3), small models on one GPU less.
"""
STATE_BYTES = 4 + 4 + 8
"""Per parameter: float32 weights, their gradients, and the two moments of Adam."""
# Bytes that autograd keeps of a position in one layer, by width: hidden, query heads, KV heads, intermediate, keys seen (the
# mask as numbers). Counted on the tensors that transformers' Qwen3 saves; norms are float32 even in mixed precision.
_KEPT_MIXED, _KEPT_FLOAT32 = (26, 14, 6, 8, 2), (24, 24, 8, 16, 4)
_LOGIT_BYTES = 2 + 4 + 4 + 4 + 2
"""Per logit: as the head gives it, as float32, its log-softmax, that one's gradient, and the gradient in the head's dtype."""


@frozen
class TrainingCost:
    """Modelled; ``*_bytes`` at the fullest moment, fragments and the framework's own memory not counted."""

    recipe: TrainRecipe
    forward_flops: float
    passes_worth: int
    positions: int
    state_bytes: int
    copy_bytes: int
    activation_bytes: int
    logit_bytes: int

    @property
    def step_flops(self) -> float:
        """Of one optimizer step: forward, backward (twice a forward) and, with checkpointing, one more forward."""
        return self.recipe.accumulate * self.passes_worth * self.forward_flops

    @property
    def total_flops(self) -> float:
        """Of all steps."""
        return self.recipe.steps * self.step_flops

    @property
    def memory_bytes(self) -> int:
        """State, bfloat16 copies of the weights, activations and logits."""
        return self.state_bytes + self.copy_bytes + self.activation_bytes + self.logit_bytes

    def seconds(self, peak_flops_per_s: float, utilisation: float = UTILISATION) -> float:
        """Operations over the assumed rate."""
        return self.total_flops / (peak_flops_per_s * utilisation)


def training_cost(recipe: TrainRecipe, shape: ModelShape) -> TrainingCost:
    """Price one recipe on a model of this shape.

    Raises:
        UserError: a dtype that the roofline does not know.
    """
    halves = 2 if recipe.objective == "sbd" else 1
    width = halves * recipe.sequence_tokens
    # Not causal: both halves attend through one mask over twice the sequence, which a dense kernel computes as a whole.
    whole = describe_pass("decide", recipe.batch_size, width, 0, logits=width, kept=width)
    dtype, checkpointed = "bfloat16" if recipe.bf16 else "float32", recipe.checkpoint_activations
    positions = recipe.batch_size * width
    return TrainingCost(
        recipe=recipe,
        forward_flops=sum(operation.flops for operation in forward_operations(shape, dtype, whole)),
        passes_worth=4 if checkpointed else 3,
        positions=positions,
        state_bytes=shape.params * STATE_BYTES,
        copy_bytes=2 * shape.params if recipe.bf16 else 0,
        activation_bytes=activation_bytes(shape, positions, width, mixed=recipe.bf16, checkpointed=checkpointed),
        logit_bytes=positions * shape.vocab * _LOGIT_BYTES,
    )


def activation_bytes(shape: ModelShape, positions: int, width: int, *, mixed: bool, checkpointed: bool) -> int:
    """What the layers keep for the backward pass of ``positions`` in sequences of ``width``. With checkpointing: their inputs
    (float32), and the rest of the one layer that is computed again.
    """
    per_width = _KEPT_MIXED if mixed else _KEPT_FLOAT32
    widths = (shape.hidden, shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim, shape.intermediate, width)
    layer = positions * sum(count * size for count, size in zip(per_width, widths, strict=True))
    return shape.layers * positions * shape.hidden * 4 + layer if checkpointed else shape.layers * layer
