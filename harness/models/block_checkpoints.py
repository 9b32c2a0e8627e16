"""The family of a config.json, and the same model as a config of the transformers class that its tensors fit.

Reads dicts that were read from a config; touches no file, network or tensor.
"""

from __future__ import annotations

from typing import Any

from harness.errors import UnknownModelError
from harness.models.block_families import FAMILIES, BlockModelFamily

Config = dict[str, Any]
_NOT_NATIVE = {"auto_map", "architectures", "model_type"}


def recognised(config: Config) -> BlockModelFamily | None:
    """The family of a config; None for any other model."""
    kind, classes = config.get("model_type"), set(config.get("architectures") or ())
    for family in FAMILIES.values():
        told = not family.classes or not classes or classes & set(family.classes)
        if kind in family.natives and told and all(config.get(key) is not None for key in family.marks):
            return family
    return None


def native_config(family: BlockModelFamily, config: Config) -> Config:
    """The config of the native class, its model_type and keys, whatever class the checkpoint names.

    Raises:
        UnknownModelError: the tensors do not fit, or the config lacks what is needed.
    """
    wrong = [
        f"{key}: {config[key]!r} (must be {value!r})"
        for key, value in family.must_be.items()
        if config.get(key) not in (None, value)
    ]
    if wrong:
        raise UnknownModelError(f"this {family.name} checkpoint does not fit the native class: {', '.join(wrong)}")
    theirs = set(family.keys.values())
    native = {key: value for key, value in config.items() if key not in _NOT_NATIVE | theirs}
    native |= {ours: config[key] for ours, key in family.keys.items() if config.get(key) is not None}
    native = {**family.constants, **native, "model_type": family.natives[config["model_type"]]}
    if native["model_type"] == "glm4_moe":  # rotary positions on a part of each head, in the form that the class reads
        theta, part = float(native.get("rope_theta", 10_000.0)), native["partial_rotary_factor"]
        native["rope_parameters"] = {"rope_type": "default", "rope_theta": theta, "partial_rotary_factor": part}
    if "sliding_window" in native and not native.get("use_sliding_window") and native["model_type"].startswith("qwen"):
        native["use_sliding_window"] = False
    return native


def block_size(family: BlockModelFamily, config: Config) -> tuple[int, str]:
    """The block size with where it comes from."""
    if isinstance(config.get(family.block_key), int):
        return config[family.block_key], f"{family.block_key} in config.json"
    return family.block_size, f"the family's own ({family.source})"


def mask_id(family: BlockModelFamily | None, config: Config, of_tokenizer: int | None) -> tuple[int | None, str]:
    """The mask token with where it comes from: the config, else the tokenizer, else what the family's code has."""
    key = family.mask_key if family else "mask_token_id"
    if isinstance(config.get(key), int):
        return config[key], f"{key} in config.json"
    if of_tokenizer is not None:
        return of_tokenizer, "the tokenizer's mask token"
    if family and family.mask_id is not None:
        return family.mask_id, f"the family's own ({family.source})"
    return None, "neither config.json nor the tokenizer names one"
