"""A scenario that fits a checkpoint, ready to be saved: its arms, its baseline, its mask token. Plain YAML text."""

from __future__ import annotations

import re

import yaml

from harness.models.decodable import DTYPE, ModelFacts

NEW_TOKENS, PROMPTS = 128, 16
USUAL_BLOCK = 16
ANY_NTP_MODEL = "org/next-token-predictor-of-about-this-size"


def scenario_text(facts: ModelFacts, device: str) -> str:
    """The scenario file. The baseline is NTP on the same weights if they predict next tokens, else on their base model."""
    name = re.sub(r"[^A-Za-z0-9_.-]+", "-", facts.folder.name).strip("-.")[:60] or "checkpoint"
    model: dict[str, object] = {"huggingface": str(facts.folder)}
    if facts.mask_id is not None:
        model["mask_token_id"] = facts.mask_id
    arms = _arms(facts)
    alone = facts.family is None or facts.family.is_ntp
    ntp: list[dict[str, object]] = [{"method": "ntp"}]
    ours = _part("blocks", model, ntp + arms if alone else arms, facts, device)
    base = _part("ntp", {"huggingface": facts.base or ANY_NTP_MODEL}, ntp, facts, device)
    parts = [ours] if alone else [base, ours | {"baseline": "ntp"}]
    scenario = {
        "version": 1,
        "name": name,
        "question": "How much faster than NTP is this model, and is it still right?",
        "parts": parts,
    }
    return yaml.safe_dump(scenario, sort_keys=False, default_flow_style=None, width=128, allow_unicode=True)


def _part(
    name: str, model: dict[str, object], arms: list[dict[str, object]], facts: ModelFacts, device: str
) -> dict[str, object]:
    return {
        "name": name,
        "model": model,
        "device": device,
        "dtype": DTYPE,
        "execution": "auto",
        "arms": arms,
        "batch_sizes": [1],
        "workload": {
            "tasks": ["word_problems"],
            "split": "test",
            "prompts": PROMPTS,
            "max_new_tokens": NEW_TOKENS,
            "chat_template": facts.chat,
        },
        "seed": 1,
    }


def _arms(facts: ModelFacts) -> list[dict[str, object]]:
    """All arms that the weights are trained for, except NTP."""
    if facts.kind == "ntp":
        return []
    if facts.family is None:
        return _set_block(USUAL_BLOCK)
    size = facts.block_size or facts.family.block_size
    knobs = dict(facts.family.knobs) | ({"steps": size} if "steps" in facts.family.knobs else {})  # at most a slot a pass
    named: dict[str, object] = {
        "method": "block_diffusion",
        "family": facts.family.name,
        "block_size": size,
        "solver": facts.family.solver,
    }
    arms = [named | knobs]
    if facts.family.protocol.may_merge:
        arms.append(named | knobs | {"commit": "merged"})
    return arms + (_set_block(min(size, USUAL_BLOCK)) if facts.family.protocol.is_set_block else [])


def _set_block(size: int) -> list[dict[str, object]]:
    return [
        {"method": "sbd", "block_size": size, "gamma": [0.1, 0.35]},
        {"method": "sbd_verified", "block_size": size, "gamma": [0.35, 2.0]},
        {"method": "self_speculation", "form": "linear", "block_size": size},
    ]
