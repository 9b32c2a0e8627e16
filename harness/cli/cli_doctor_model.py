"""What `sbd doctor --model` prints: a scenario that fits the checkpoint, and what is known of it as comments above."""

from __future__ import annotations

import json
import textwrap
from pathlib import Path
from typing import Any

from harness.models.checkpoint_facts import ModelFacts, read_model_facts
from harness.scenario.suggest import ANY_NTP_MODEL, scenario_text

MODEL_VERSION = 1


def print_model(folder: Path, device: str | None, as_json: bool) -> None:
    """Say what the checkpoint is; nothing of it is loaded.

    Raises:
        UnknownModelError: it is of no known family; the message says what to add.
    """
    facts = read_model_facts(folder)
    text = scenario_text(facts, device or "cuda")
    print(json.dumps(to_json(facts, text), indent=1, ensure_ascii=False) if as_json else f"{render(facts)}\n{text}", end="")
    if as_json:
        print()


def to_json(facts: ModelFacts, scenario: str) -> dict[str, Any]:
    """The facts as plain values."""
    family = facts.family
    return {
        "version": MODEL_VERSION, "folder": str(facts.folder), "kind": facts.kind, "model_type": facts.model_type,
        "native_model_type": facts.native, "own_code": facts.own_code, "needs_own_code": False,
        "family": family.name if family else None, "members": family.members if family else None,
        "block_size": facts.block_size, "block_size_from": facts.block_size_from,
        "mask_token_id": facts.mask_id, "mask_token_id_from": facts.mask_id_from,
        "protocol": _protocol(facts), "is_ntp": family.is_ntp if family else True, "made_from": facts.base,
        "parameters": facts.shape.params, "note": (family.note or None) if family else None,
        "source": family.source if family else None, "scenario": scenario,
    }  # fmt: skip


def render(facts: ModelFacts) -> str:
    """The facts as comments of a YAML file."""
    lines = [*_what_it_is(facts), *_how_it_decodes(facts), *_how_it_loads(facts)]
    if facts.family and not facts.family.is_ntp:
        base = facts.base or f"a model of your choice: write it for {ANY_NTP_MODEL}"
        lines.append(f"baseline: NTP on {base}, in a part of its own; these weights are no next-token predictor")
    if facts.mask_id is None and facts.kind == "block model":
        lines.append(f"mask token: unknown, {facts.mask_id_from}; write mask_token_id into the model below")
    if facts.family and facts.family.note:
        lines.append(f"note: {facts.family.note}")
    return "\n".join(line for said in lines for line in textwrap.wrap(said, 118, initial_indent="# ", subsequent_indent="#   "))


def _what_it_is(facts: ModelFacts) -> list[str]:
    size = f"{facts.shape.layers} layers, {facts.shape.params:,} parameters"
    said = [f"{facts.folder}: model_type {facts.model_type}, {size}"]
    if facts.family:
        return [*said, f"a block model of family {facts.family.name}: {facts.family.members}"]
    if facts.kind == "ntp":
        return [*said, "NTP only: a next-token predictor without a mask token; SBD needs fine-tuning, see sbd train --help"]
    return [
        *said,
        f"an ordinary {facts.model_type} with a mask token ({facts.mask_id}), as sbd train leaves an SBD checkpoint; a config "
        "does not say whether it was trained with it, its accuracy in blocks will",
    ]


def _how_it_decodes(facts: ModelFacts) -> list[str]:
    said = [f"decoding: {line}" for line in _protocol(facts)]
    if facts.block_size is not None:
        said.append(f"block size: {facts.block_size}, {facts.block_size_from}")
    if facts.mask_id is not None:
        said.append(f"mask token: {facts.mask_id}, {facts.mask_id_from}")
    return said


def _how_it_loads(facts: ModelFacts) -> list[str]:
    own = "the code it brings is not run" if facts.own_code else "it brings no code"
    return [f"loads into transformers' own {facts.native} class under our masks; {own}; tried on tiny random weights only"
            if facts.family else f"loads into transformers' own {facts.native} class; {own}"]  # fmt: skip


def _protocol(facts: ModelFacts) -> list[str]:
    if facts.family is None or facts.block_size is None:
        return []
    return facts.family.protocol.in_words(facts.block_size)
