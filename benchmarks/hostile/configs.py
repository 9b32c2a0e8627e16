"""Model folders whose config.json is hostile, read by the commands that load no model."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

from benchmarks.hostile.cases import REFUSED, Case, Place
from benchmarks.hostile.world import TINY, World, at, written
from tests.helpers.fuzzed_files import JSON_TEXTS, damage, mutate

COUNT = 200
NAMES = (
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "vocab_size",
    "max_position_embeddings",
    "rope_theta",
    "model_type",
    "architectures",
    "tie_word_embeddings",
)
VALUES: tuple[Any, ...] = (-1, 0, 10**30, 1e308, "1", None, [], True)
KNOWN = (
    "llama",
    "qwen3_moe",
    "deepseek_v3",
    "gemma3_text",
    "mixtral",
    "glm4_moe",
    "sdar",
    "llada2_moe",
    "dream",
    "x" * 5000,
    "\x1b[31m",
)


def case(world: World, number: int, chance: Random) -> Case:
    """Texts, single values, files that are no regular ones, then changes at random."""
    listed: list[tuple[str, Any]] = [(f"text {text[:20]!r}", text) for text in JSON_TEXTS]
    listed += [
        (f"{name} is {value!r}", at(world.config, name, value)) for name in NAMES if name in world.config for value in VALUES
    ]
    listed += [(f"model_type {kind[:20]!r}", world.config | {"model_type": kind}) for kind in KNOWN]
    listed += [(what, what) for what in ("a pipe", "a device", "a folder", "a link to itself", "a link to a device")]
    what, content = listed[number] if number < len(listed) else ("changed", None)
    if content is None:
        content = (
            mutate(chance, world.config)
            if chance.random() < 0.8
            else damage(chance, b'{"model_type": "llama", "hidden_size": 64}')
        )
    return Case(f"config.json: {what}", partial(_priced, content, number))


def _priced(content: Any, number: int, place: Place) -> None:
    special: dict[str, Callable[[Path], None]] = {
        "a pipe": os.mkfifo,
        "a folder": os.mkdir,
        "a link to itself": lambda path: os.symlink(path, path),
        "a device": lambda path: os.symlink("/dev/zero", path),
        "a link to a device": lambda path: os.symlink("/dev/urandom", path),
    }
    file = place.here / "model" / "config.json"
    if isinstance(content, str) and content in special:
        file.parent.mkdir()
        special[content](file)
    else:
        written(place, "model/config.json", content)
    irregular, exits = isinstance(content, str), frozenset({0, 2})
    if number % 3 == 0:
        place.sbd("roofline", "--model", "model", "--hardware", "h100-sxm", exits=REFUSED if irregular else exits)
    elif number % 3 == 1:
        place.sbd("capacity", "--model", "model", "--hardware", "h100-sxm", "--nfe-speedup", "3", "--batch", "8", exits=exits)
    else:
        file = written(place, "s.yaml", at(TINY, "parts.0.model", {"huggingface": "./model"}))
        place.sbd("plan", file, exits=exits)
