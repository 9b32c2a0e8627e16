"""The first layers of a model as a model: they share its weights, its final norm and its LM head.

What LayerSkip (arXiv 2404.16710) drafts with. A model that was not trained to exit there drafts badly and loses nothing else.
"""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import nn
from transformers import PreTrainedModel

from harness.errors import ScenarioError

SHARED = ("embed_tokens", "norm", "rotary_emb")


def first_layers(model: PreTrainedModel, count: int) -> PreTrainedModel:
    """A view of ``model`` that runs ``count`` of its layers; its cache holds the KV of those.

    Raises:
        ScenarioError: a model that is not built like those of the Llama family.
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
