"""Published models, so that a plan or a prediction needs no download: the part of their configs that the arithmetic uses."""

from __future__ import annotations

import difflib
import json
import re
from pathlib import Path

from harness.frozen import frozen
from harness.models.config import Config, shape_from_config
from harness.models.shape import ModelShape


@frozen
class KnownModel:
    """``config`` is an excerpt of the config.json of the hub repository ``source``; ``note`` names the exceptions."""

    source: str
    config: Config
    note: str = ""


KNOWN_MODELS: dict[str, KnownModel] = {
    name: KnownModel(**entry) for name, entry in json.loads(Path(__file__).with_suffix(".json").read_text("utf-8")).items()
}

# Published nowhere: a small Llama for runs on a CPU, larger than its cache in bfloat16.
_LLAMA_250M = ModelShape(
    name="llama-250m",
    layers=16,
    hidden=1024,
    intermediate=3584,
    heads=16,
    kv_heads=4,
    head_dim=64,
    vocab=32_000,
    tied_embeddings=True,
    max_positions=4096,
)

KNOWN_SHAPES: dict[str, ModelShape] = {
    **{name: shape_from_config(name, model.config) for name, model in KNOWN_MODELS.items()},
    _LLAMA_250M.name: _LLAMA_250M,
}

_TUNED = re.compile(r"(-instruct|-it|-base|-chat|-hf)+(-\d{4})?$")


def known_name(written: str) -> tuple[str | None, str]:
    """The name of a known shape as people write it: in capitals, by its repository on the hub, or by that of a tuned one. None,
    with the nearest names in words, where none is meant.
    """
    by_alias = {alias: name for name, known in KNOWN_MODELS.items() for alias in _aliases(known.source)}
    by_alias |= {name.lower(): name for name in KNOWN_SHAPES}
    near = difflib.get_close_matches(_aliases(written)[1], KNOWN_SHAPES, n=2)
    hint = f" (did you mean {' or '.join(near)}?)" if near else ""
    return next((by_alias[alias] for alias in _aliases(written) if alias in by_alias), None), hint


def _aliases(repository: str) -> list[str]:
    """How a repository is called: with and without its owner, and without what was tuned."""
    whole = repository.lower()
    short = whole.rpartition("/")[2]
    return [whole, short, _TUNED.sub("", short)]
