"""Speculative rivals of Set Block Decoding: on an unchanged model, drafted tokens are checked by the target in one pass.

They are prompt lookup, a draft model (universal: with other tokens), early exit (the target's own first layers), and a stack
of drafts. In the stack each draft checks the one below (HSD, arXiv 2510.19705). All of them write what next-token prediction
writes. ``stages`` reads a case's arm as a stack. ``draft_shapes`` gives the shapes of its draft models, which name and price
their passes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, Tag, ValidationInfo, model_validator

from harness.config_file import Count, Counts, Numbers, Share, Shares, StrictModel, Younger, folder_of, named_by_key
from harness.errors import UserError
from harness.models import ModelShape
from harness.models.choice import ModelChoice, RandomModel, model_name, shape_of
from harness.models.shape import with_layers
from harness.scenario.method import (
    AUTO,
    GREEDY,
    ArmKeys,
    ArmSettings,
    Method,
    ReplaySpec,
    Widths,
    confidence_bound,
    number,
    per_token,
)

LOOKUP_TOKENS, LOOKUP_NGRAM = 10, 2
"""transformers' defaults: num_output_tokens and max_matching_ngram_size of prompt lookup."""
DRAFT_TOKENS = 5
"""Tokens a draft model is asked for at a time: within the 3 to 7 of arXiv 2211.17192, table 2."""
DRAFT_CONFIDENCE = 0.7
"""Of every_arm's 200 prompts: 17 % fewer draft passes of 5 tokens, 31 % fewer of 8, with 11 and 14 % more of the target. Of
thresholds from 0.1 to 0.95 the best, within half a per cent, where a draft pass takes 0.3 to 0.5 of the target's; it took 0.4.
"""


def _in_a_file(given: Any, info: ValidationInfo) -> Any:
    return DRAFT_CONFIDENCE if given is None and folder_of(info) is not None else given


ByConfidence = Younger, BeforeValidator(_in_a_file), Field(validate_default=True)
"""DRAFT_CONFIDENCE where a scenario's file has no value. In a record it is left out by programs that made every draft."""


_KINDS = ("draft", "exit_layers", "max_ngram")
"""The key that says who drafts."""


class _Stage(StrictModel):
    draft_tokens: Count
    """Tokens that this stage drafts at a time, at most."""


class _ModelStage(_Stage):
    least_confidence: Annotated[Share | None, *ByConfidence] = None
    """Behind a draft of this confidence or less the stage above checks; 0 makes every draft. Left out: 0.7."""


class DraftStage(_ModelStage):
    """A draft model of the stack."""

    draft: ModelChoice
    """The model that drafts."""


class ExitStage(_ModelStage):
    """The target's first layers as a draft model of the stack."""

    exit_layers: Count
    """Layers of the target that draft, counted from the first."""


class LookupStage(_Stage):
    """Prompt lookup, at the bottom of the stack."""

    max_ngram: Count
    """Longest run of last tokens that is looked for."""


DraftingStage = Annotated[
    Annotated[DraftStage, Tag("draft")] | Annotated[ExitStage, Tag("exit_layers")] | Annotated[LookupStage, Tag("max_ngram")],
    named_by_key(
        *_KINDS,
        message="who drafts is missing; write one of {draft: {reference: draft}, draft_tokens: 5}, "
        "{exit_layers: 2, draft_tokens: 4}, {max_ngram: 2, draft_tokens: 4}",
    ),
]


class DraftingSettings(ArmSettings):
    """Of an arm whose drafts come from elsewhere: of a stack, or of one stage."""

    stack: tuple[DraftingStage, ...] = ()
    draft_tokens: int = 0
    draft: ModelChoice | None = None
    exit_layers: int | None = None
    max_ngram: int = LOOKUP_NGRAM

    @property
    def stages(self) -> tuple[DraftingStage, ...]:
        """Who drafts, the best first."""
        tokens, sure = self.draft_tokens, self.least_confidence
        if self.draft is not None:
            return (DraftStage(draft=self.draft, draft_tokens=tokens, least_confidence=sure),)
        if self.exit_layers is not None:
            return (ExitStage(exit_layers=self.exit_layers, draft_tokens=tokens, least_confidence=sure),)
        return self.stack or (LookupStage(max_ngram=self.max_ngram, draft_tokens=tokens),)


class _Rival(ArmKeys):
    """Shared keys."""

    settings = DraftingSettings
    axes = ("max_ngram", "draft", "exit_layers", "draft_tokens", "least_confidence", "temperature")
    lossless = True
    draft_tokens: Widths = (DRAFT_TOKENS,)
    """Tokens that are drafted at a time, at most; `auto`: as many as are fastest on this machine."""
    temperature: Numbers = (GREEDY,)
    """Sampling temperature; 0 takes the likeliest token."""


class PromptLookupArm(_Rival):
    """Drafts what followed the newest earlier place of the last ``max_ngram`` tokens, or fewer, in the prompt or the output."""

    method: Literal["prompt_lookup"]
    """Prompt lookup."""
    draft_tokens: Widths = (LOOKUP_TOKENS,)
    """Tokens that are copied at a time, at most; `auto`: as many as are fastest on this machine."""
    max_ngram: Counts = (LOOKUP_NGRAM,)
    """Longest run of last tokens that is looked for; shorter ones where it is not found."""


class _ModelDrafts(_Rival):
    least_confidence: Annotated[Shares | None, *ByConfidence] = None
    """Behind a draft of this confidence or less the target checks; 0 makes every draft. Left out: 0.7."""


class DraftModelArm(_ModelDrafts):
    """A smaller model drafts."""

    models = ("draft",)
    method: Literal["draft_model", "universal_draft"]
    """`draft_model`: the draft has the target's tokenizer; `universal_draft`: another, and tokens are translated."""
    draft: ModelChoice
    """The model that drafts."""

    @model_validator(mode="after")
    def _other_tokens_need_text(self) -> DraftModelArm:
        if self.method == "universal_draft" and isinstance(self.draft, RandomModel):
            raise ValueError("a random model has no tokenizer to translate with; use method: draft_model, or another draft")
        return self


class EarlyExitArm(_ModelDrafts):
    """The first ``exit_layers`` layers of the target draft, with its own final norm and LM head."""

    method: Literal["early_exit"]
    """Early exit."""
    exit_layers: Counts
    """Layers of the target that draft, counted from the first."""


class HierarchicalArm(ArmKeys):
    """A stack of drafts, the best first: each is checked by the one before it, and the first by the target."""

    axes = ("stack", "temperature")
    models = ("stack",)
    lossless = True
    settings = DraftingSettings
    method: Literal["hierarchical"]
    """A stack of drafts."""
    stack: tuple[DraftingStage, ...] = Field(min_length=1)
    """The drafts, the best first; at least two, and prompt lookup last if it is there."""
    temperature: Numbers = (GREEDY,)
    """Sampling temperature; 0 takes the likeliest token."""

    @model_validator(mode="after")
    def _makes_a_stack(self) -> HierarchicalArm:
        if len(self.stack) == 1:
            raise ValueError("a stack of one is no stack; use method: draft_model, early_exit or prompt_lookup, or add a stage")
        if any(isinstance(stage, LookupStage) for stage in self.stack[:-1]):
            raise ValueError("prompt lookup checks nothing, so nothing can stand below it; make it the last of the stack")
        return self


def stages(arm: ArmSettings) -> tuple[DraftingStage, ...]:
    """The drafters of an arm, the best first; empty for one of another method."""
    return arm.stages if isinstance(arm, DraftingSettings) else ()


def _names(arm: DraftingSettings, stage: DraftingStage) -> tuple[str, str]:
    """The stage in ids and in labels; ``auto`` before and after the choice of a width."""
    tokens = AUTO if arm.auto else stage.draft_tokens
    if isinstance(stage, LookupStage):
        words = "" if stage.max_ngram == LOOKUP_NGRAM else f" {stage.max_ngram}-grams"
        return f"prompt-lookup-g{stage.max_ngram}-n{tokens}", f"prompt lookup{words} n={tokens}"
    in_id, in_label = (f"{tokens}{confidence_bound(stage.least_confidence, prefix)}" for prefix in ("-c", " c>"))
    if isinstance(stage, ExitStage):
        return f"exit{stage.exit_layers}-n{in_id}", f"early exit layer {stage.exit_layers} n={in_label}"
    name = model_name(stage.draft).rpartition("/")[2]
    return f"draft-model-{re.sub(r'[^A-Za-z0-9_.-]+', '-', name)}-n{in_id}", f"draft model ({name}) n={in_label}"


def draft_shapes(arm: ArmSettings, target: ModelShape) -> tuple[ModelShape | None, ...]:
    """The shape of every stage of an arm's drafts, the best first; None for prompt lookup, which makes no pass.

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


def draft_models(arm: ArmSettings) -> Iterator[ModelChoice]:
    """The models that draft for an arm, the best first."""
    yield from (stage.draft for stage in stages(arm) if isinstance(stage, DraftStage))


def _shape(stage: DraftingStage, target: ModelShape) -> ModelShape | None:
    if isinstance(stage, DraftStage):
        shape, reason = shape_of(stage.draft)
        if shape is None:
            raise UserError(
                f"the draft model {model_name(stage.draft)} is not here: {reason}; download it first, or give the folder it is "
                "in"
            )
        return shape
    if isinstance(stage, LookupStage):
        return None
    if stage.exit_layers >= target.layers:
        raise UserError(
            f"exit_layers: {stage.exit_layers} of {target.name}, which has {target.layers}; allowed are 1 to "
            f"{target.layers - 1}"
        )
    return with_layers(target, stage.exit_layers)


def _rival(name: str, arm: type[ArmKeys], before: str = "") -> Method[DraftingSettings]:
    """``before``: what stands in front of the stack in ids and labels."""

    def checked(arm: DraftingSettings) -> int:
        return arm.stages[0].draft_tokens + 1

    def arm_id(arm: DraftingSettings, replay: ReplaySpec | None) -> str:
        who = "-on-".join(_names(arm, stage)[0] for stage in arm.stages)
        return f"{before and before + '-'}{who}-t{number(arm.temperature)}"

    def label(arm: DraftingSettings, replay: ReplaySpec | None) -> str:
        return f"{before and before + ' '}{' on '.join(_names(arm, stage)[1] for stage in arm.stages)}"

    return Method(
        name=name,
        arm=arm,
        decoder="harness.engine.decoders:draft_and_check",
        arm_id=arm_id,
        label=label,
        passes=lambda arm, prompt, new, passes_of: per_token(prompt, new - 1, ("verify", checked(arm), 1, 1)),
        rival=True,
    )


PROMPT_LOOKUP = _rival("prompt_lookup", PromptLookupArm)
DRAFT_MODEL = _rival("draft_model", DraftModelArm)
UNIVERSAL_DRAFT = _rival("universal_draft", DraftModelArm, before="universal")
EARLY_EXIT = _rival("early_exit", EarlyExitArm)
HIERARCHICAL = _rival("hierarchical", HierarchicalArm)
