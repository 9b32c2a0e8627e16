"""`sbd train --recipe FILE --plan`: what the training will take, modelled, in words."""

from __future__ import annotations

from collections.abc import Sequence

from harness.engine.training.cost import UTILISATION, TrainingCost, training_cost
from harness.engine.training.recipe import TrainRecipe
from harness.errors import UserError
from harness.hardware.profile import HardwareProfile, load_profile
from harness.models import KNOWN_SHAPES, ModelShape
from harness.models.choice import HuggingFaceModel, shape_of
from harness.models.known import KNOWN_MODELS

DEVICES = ("h100-sxm", "a100-80-sxm", "l40s", "rtx-4090")
GIGA, HOUR_S = 1e9, 3600.0


def render_plan(recipe: TrainRecipe, hardware: Sequence[str] | None = None) -> str:
    """Operations, memory, and hours on each device.

    Raises:
        UserError and its kind: the model's shape is not known here, or a device is not.
    """
    shape = shape_of_recipe(recipe)
    cost = training_cost(recipe, shape)
    per_step = recipe.sequences_per_step
    lines = [
        f"{recipe.name}: modelled, not measured; upper bounds for pairs shorter than {recipe.sequence_tokens} tokens",
        f"model        {recipe.model}, {shape.params:,} parameters",
        f"steps        {recipe.steps:,} of {per_step} pairs ({recipe.batch_size} at a time), "
        f"{recipe.steps * per_step:,} in all",
        f"work         {cost.total_flops:.3g} FLOP = steps x batches a step x {cost.passes_worth} forward passes' worth x "
        f"{cost.forward_flops:.3g} FLOP of {cost.positions:,} positions",
        f"memory       {cost.memory_bytes / GIGA:.1f} GB = weights, gradients, Adam {cost.state_bytes / GIGA:.1f} + bfloat16 "
        f"copy {cost.copy_bytes / GIGA:.1f} + activations {cost.activation_bytes / GIGA:.1f} "
        f"+ logits {cost.logit_bytes / GIGA:.1f}",
    ]
    lines += [_on(load_profile(name), cost) for name in hardware or DEVICES]
    return "\n".join([*lines, f"time         FLOP / (bfloat16 peak x {UTILISATION:g}), an assumed utilisation"])


def shape_of_recipe(recipe: TrainRecipe) -> ModelShape:
    """Read off a folder, the hub's cache or the known models.

    Raises:
        UnknownModelError: a config that is none of a decoder-only transformer. UserError: none of them has it.
    """
    by_source = {known.source: name for name, known in KNOWN_MODELS.items()}
    if recipe.model in by_source:
        return KNOWN_SHAPES[by_source[recipe.model]]
    shape, reason = shape_of(HuggingFaceModel(huggingface=recipe.model, revision=recipe.revision))
    if shape is None:
        raise UserError(f"{recipe.model}: its shape is not known: {reason}; download it, or name one of {', '.join(by_source)}")
    return shape


def _on(profile: HardwareProfile, cost: TrainingCost) -> str:
    """One device in a line."""
    peak, there, price = (
        profile.peak_flops_per_s["bfloat16"].value, profile.memory_bytes.value, profile.price_usd_per_hour.value
    )  # fmt: skip
    if peak is None:
        return f"{profile.name:<12} no bfloat16 peak is known"
    hours = cost.seconds(peak) / HOUR_S
    fits = "" if there is None else f", {'fits' if cost.memory_bytes < there else 'does not fit'} into {there / GIGA:.0f} GB"
    paid = "" if price is None else f", {hours * price:.0f} USD at {price:.2f} an hour"
    return f"{profile.name:<12} {hours:.1f} h{fits}{paid}"

