"""The models besides the target that a case makes passes of: their shapes, by which these passes are called and priced."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from harness.errors import UserError
from harness.models import ModelShape
from harness.models.choice import ModelChoice, model_name, shape_of
from harness.roofline.methods.calls import with_layers
from harness.scenario.speculative_arms import draft_choice, stages


def draft_shapes(arm: Mapping[str, Any], target: ModelShape) -> tuple[ModelShape | None, ...]:
    """Of every stage of an arm's drafts, the best first; None for prompt lookup, which makes no pass.

    Raises:
        UserError: an exit that is not below the target's last layer, a draft model whose config is not here, or two models
            of one name.
    """
    found = tuple(_shape(stage, target) for stage in stages(arm))
    names = [one.name for one in found if one is not None]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise UserError(f"two drafts of one stack are called {twice}, so their passes could not be told apart; leave one out")
    return found


def draft_models(arm: Mapping[str, Any]) -> Iterator[ModelChoice]:
    """The models that draft for an arm, the best first."""
    yield from (choice for stage in stages(arm) if (choice := draft_choice(stage)) is not None)


def _shape(stage: Mapping[str, Any], target: ModelShape) -> ModelShape | None:
    choice = draft_choice(stage)
    if choice is not None:
        shape, reason = shape_of(choice)
        if shape is None:
            raise UserError(
                f"the draft model {model_name(choice)} is not here: {reason}; download it first, or give the folder it is in"
            )
        return shape
    layers = stage.get("exit_layers")
    if layers is not None and layers >= target.layers:
        raise UserError(
            f"exit_layers: {layers} of {target.name}, which has {target.layers}; allowed are 1 to {target.layers - 1}"
        )
    return None if layers is None else with_layers(target, layers)
