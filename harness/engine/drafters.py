"""The drafters of an arm: loads the draft models that a scenario's stages name, with sessions of their own.

Draft models run like their target: same device, dtype, kind of session and execution. An early exit runs the first layers of
the target and shares its weights, final norm and LM head (LayerSkip, arXiv 2404.16710). A model that was not trained to exit
there drafts badly and loses nothing else. Drafts of a model with another tokenizer are translated through the text. Special
tokens have no text and are not translated, except the draft model's stop, which becomes the target's.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import nn
from transformers import PreTrainedModel

from harness.decoding.drafters import Drafter, DraftModel, PromptLookup, TranslatedDrafts
from harness.decoding.request import DecodeRequest
from harness.decoding.session import ModelSession
from harness.engine.loading import LoadedModel
from harness.engine.text_tokenizer import TextTokenizer
from harness.errors import ScenarioError
from harness.models import ModelShape
from harness.models.choice import ModelChoice, model_name
from harness.scenario.plan import Case
from harness.scenario.speculative_arms import DraftStage, ExitStage, LookupStage, draft_shapes, stages


@dataclass
class TextTranslation:
    """A harness.decoding.drafters.Translation. ``draft_stops``: ids at which the draft model stops. ``stop``: the target's id
    for them, None where it stops at several or at none.
    """

    target: TextTokenizer
    draft: TextTokenizer
    draft_stops: Collection[int]
    stop: int | None

    def to_draft(self, sequence: Sequence[int]) -> list[int]:
        """The text in the draft model's tokens, with what its tokenizer puts before a text."""
        return self.draft.encode(self.target.decode(sequence))

    def to_target(self, output: Sequence[int], before: Sequence[int], drafted: Sequence[int]) -> list[int]:
        """The new text in the target's tokens; nothing where the drafts end within a letter. If the target's tokenizer
        reproduces the row's output, the new text is cut as its continuation; else by itself.
        """
        stops = drafted[-1] in self.draft_stops
        old, new = self.draft.decode(before), self.draft.decode([*before, *drafted])
        if not new.startswith(old):
            return []
        written, added = self.target.decode(output), new[len(old) :]
        whole = self.target.encode_more(written + added)
        continues = whole[: len(output)] == list(output)
        tokens = whole[len(output) :] if continues else self.target.encode_more(added)
        return tokens + ([self.stop] if stops and self.stop is not None else [])


SHARED = ("embed_tokens", "norm", "rotary_emb")


def first_layers(model: PreTrainedModel, count: int) -> PreTrainedModel:
    """A view of ``model`` that runs ``count`` of its layers; its cache holds the KV of those.

    Raises:
        ScenarioError: the model is not built like those of the Llama family.
    """
    inner: Any = getattr(model, "model", None)
    if inner is None or not all(hasattr(inner, name) for name in (*SHARED, "layers")) or not hasattr(model, "lm_head"):
        raise ScenarioError(
            f"early exit: {type(model).__name__} does not have its layers where models of the Llama family have them; "
            "leave early_exit out for this model"
        )
    config = copy.deepcopy(model.config)
    config.num_hidden_layers = count
    if getattr(config, "layer_types", None):
        config.layer_types = config.layer_types[:count]
    build: Any = type(model)
    with torch.device("meta"):
        view: Any = build(config)
    for name in SHARED:
        setattr(view.model, name, getattr(inner, name))
    view.model.layers = nn.ModuleList(list(inner.layers)[:count])
    view.lm_head = model.lm_head
    shared: PreTrainedModel = view.eval()
    return shared


@dataclass
class DraftModels:
    """The models of a part besides its target; each is loaded when a case first asks for it and then kept."""

    target: LoadedModel
    load: Callable[[ModelChoice], LoadedModel]
    open_session: Callable[[Any], ModelSession]
    _held: dict[str, tuple[LoadedModel, ModelSession]] = field(default_factory=dict)

    def of(self, stage: DraftStage | ExitStage) -> tuple[LoadedModel, ModelSession]:
        """The model of a stage that has one, and its session.

        Raises:
            UnknownModelError, DoesNotFitError: as harness.engine.loading.load_model.
            ScenarioError: the model has no early exit.
        """
        key = repr(stage.draft if isinstance(stage, DraftStage) else stage.exit_layers)
        if key not in self._held:
            if isinstance(stage, DraftStage):
                model = self.load(stage.draft)
            else:
                model = replace(self.target, module=first_layers(self.target.module, stage.exit_layers))
            self._held[key] = model, self.open_session(model.module)
        return self._held[key]


def drafter_of(
    case: Case, target: LoadedModel, models: DraftModels, request: DecodeRequest, beside: Callable[[ModelSession], ModelSession]
) -> Drafter:
    """The drafter of a case with stages; the lowest stage is made first. ``beside`` puts a draft model's session beside the
    target's, so that their passes are metered together.

    Raises:
        ScenarioError: a draft model has other tokens than the target, or a model has no tokenizer to translate with.
        UnknownModelError, DoesNotFitError: a draft model that cannot be loaded.
    """
    shapes = draft_shapes(case.arm, case.shape or target.shape)
    universal = case.arm.method == "universal_draft"
    drafter: Drafter | None = None
    for stage, shape in reversed(list(zip(stages(case.arm), shapes, strict=True))):
        if isinstance(stage, LookupStage):
            drafter = PromptLookup(stage.draft_tokens, stage.max_ngram, request.suppressed_ids, request.stop.token_ids)
            continue
        assert shape is not None, "every stage but prompt lookup has a model"
        model, session = models.of(stage)
        if not universal:
            _refuse_other_tokens(case, target, model, shape)
            # Rows of its LM head beyond the target's tokens are padding.
            own = [i for i in request.suppressed_ids if i < model.shape.vocab]
            never, stops = [*own, *range(target.shape.vocab, model.shape.vocab)], request.stop.token_ids
        else:
            never = [] if model.mask_id is None else [model.mask_id]
            stops = model.stop_ids if request.stop.token_ids else frozenset()  # it stops nowhere if the target does not
        drafter = DraftModel(
            beside(session),
            name=shape.name,
            tokens=stage.draft_tokens,
            below=drafter,
            stops=stops,
            least_confidence=stage.least_confidence or 0.0,
            never=torch.tensor(never, dtype=torch.long, device=request.device),
            figures=request.figures,
        )
    assert drafter is not None, f"{case.case_id} has no stage"
    return TranslatedDrafts(drafter, _translation(case, target, models, request)) if universal else drafter


def _translation(case: Case, target: LoadedModel, models: DraftModels, request: DecodeRequest) -> TextTranslation:
    (stage,) = stages(case.arm)
    assert isinstance(stage, DraftStage)
    model, _ = models.of(stage)
    if target.tokenizer is None or model.tokenizer is None:
        raise ScenarioError(f"{case.case_id}: drafts are translated by way of text, but one of the models has no tokenizer")
    stops = sorted(request.stop.token_ids)
    return TextTranslation(target.tokenizer, model.tokenizer, model.stop_ids, stops[0] if len(stops) == 1 else None)


def _refuse_other_tokens(case: Case, target: LoadedModel, draft: LoadedModel, shape: ModelShape) -> None:
    """A token id must mean the same to both."""
    if target.tokenizer is None or draft.tokenizer is None:
        same = target.tokenizer is draft.tokenizer and target.shape.vocab == draft.shape.vocab
    else:
        same = target.tokenizer.vocabulary == draft.tokenizer.vocabulary
    if not same:
        choice = model_name(case.part.model)
        raise ScenarioError(
            f"{case.case_id}: the draft model {shape.name} has other tokens than {choice}; use method: universal_draft, which "
            "translates them, or a draft model with the same tokenizer"
        )
