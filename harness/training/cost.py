"""The modelled cost of a training recipe on one device, from its shape: floating-point operations, seconds and bytes.

The operations are the roofline's, for the doubled sequence [x ; x̂] of SBD training (arXiv 2509.04185, algorithm 1). Both
halves have their longest length, so the figures are upper bounds for shorter pairs. Nothing here was measured. Axes of the
formulas: P parameters, T = 2 x sequence_tokens x batch_size positions of a forward pass, S = 2 x sequence_tokens, V vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass

from harness.training.recipe import TrainRecipe
from harness.models import ModelShape
from harness.roofline.operations import forward_operations
from harness.roofline.speedup import describe_pass

UTILISATION = 0.4
"""Share of the peak rate that training is assumed to reach, shown beside every figure made from it. Published runs of dense
models report 0.3 to 0.6 (PaLM 0.46, arXiv 2204.02311, table 3), small models on one GPU less.
"""
STATE_BYTES = {"weights": 4, "gradients": 4, "adam": 8}
"""Per parameter: float32 weights, their gradients, and the two moments of Adam."""
# Bytes that autograd keeps of a position in one layer, by width: hidden, query heads, KV heads, intermediate, keys seen (the
# mask as numbers). Counted on the tensors that transformers' Qwen3 saves; norms are float32 even in mixed precision.
_KEPT_MIXED, _KEPT_FLOAT32 = (26, 14, 6, 8, 2), (24, 24, 8, 16, 4)
_LOGIT_BYTES = 2 + 4 + 4 + 4 + 2
"""Per logit: as the head gives it, as float32, its log-softmax, that one's gradient, and the gradient in the head's dtype."""


@dataclass(frozen=True, slots=True, kw_only=True)
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
        state_bytes=shape.params * sum(STATE_BYTES.values()),
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
