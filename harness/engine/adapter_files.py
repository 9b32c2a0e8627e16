"""A gated adapter as files in the format of PEFT, which others' tools read, and a mask embedding beside them.

adapter_config.json and adapter_model.safetensors are PEFT's. Only its plain LoRA of linear layers is read: a setting that
changes the arithmetic in another way is refused by name. Base weights stay untouched, so an adapter that was made for altered
ones (PiSSA, LoftQ) is refused too. mask_embedding.safetensors and bigram.safetensors are ours; PEFT does not open them. No
pickle is read.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import regex
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from harness.engine.gated_adapter import Adapter, LowRank
from harness.errors import UnknownModelError
from harness.models.choice import ADAPTER_CONFIG, ADAPTER_WEIGHTS, BIGRAM, MASK_EMBEDDING
from harness.models.config import read_object

OF_MODEL = "base_model.model."
"""PEFT's prefix of a module's name."""
MATRICES = {".lora_A.weight": "down", ".lora_B.weight": "up"}
READ = {"peft_type", "r", "lora_alpha", "use_rslora", "alpha_pattern", "target_modules", "exclude_modules", "init_lora_weights"}
HARMLESS = {
    "auto_mapping",
    "base_model_name_or_path",
    "eva_config",
    "inference_mode",
    "layers_pattern",
    "layers_to_transform",
    "lora_dropout",
    "megatron_core",
    "peft_version",
    "qalora_group_size",
    "rank_pattern",
    "revision",
    "runtime_config",
    "task_type",
}
"""Settings that say nothing about the arithmetic, or nothing that the tensors do not say themselves."""
OF_BASE_WEIGHTS_AS_THEY_ARE = (True, False, None, "gaussian", "orthogonal", "eva")
MATCH_S = 1.0


def read_adapter(folder: Path) -> Adapter:
    """The adapter in ``folder``, its tensors on the CPU.

    Raises:
        UnknownModelError: a file is missing or broken, or asks for what is not plain LoRA; the message names it.
    """
    file = folder / ADAPTER_CONFIG
    if not file.is_file():
        raise UnknownModelError(f"{folder}: holds no {ADAPTER_CONFIG}; give a folder that PEFT or sbd train has written")
    config = read_object(file)
    _refuse_other_arithmetic(file, config)
    factors: dict[str, dict[str, Tensor]] = {}
    for key, tensor in _tensors(folder / ADAPTER_WEIGHTS).items():
        ending = next((suffix for suffix in MATRICES if key.endswith(suffix)), None)
        if ending is None or not key.startswith(OF_MODEL) or tensor.ndim != 2 or not tensor.is_floating_point():
            raise UnknownModelError(
                f"{folder / ADAPTER_WEIGHTS}: {key} is no matrix of plain LoRA ({OF_MODEL}<module>.lora_A.weight and lora_B); "
                "only adapters of linear layers are read"
            )
        factors.setdefault(key[len(OF_MODEL) : -len(ending)], {})[MATRICES[ending]] = tensor
    terms = {module: _term(folder, config, module, found) for module, found in factors.items()}
    _refuse_strays(folder, config, terms)
    bigram = _bigram(folder / BIGRAM)
    mask_file = folder / MASK_EMBEDDING
    if not mask_file.is_file():
        return Adapter(terms, bigram=bigram)
    held = _tensors(mask_file)
    mask_id, embedding = held.get("mask_token_id"), held.get("mask_embedding")
    if mask_id is None or embedding is None or mask_id.numel() != 1 or mask_id.is_floating_point() or int(mask_id) < 0:
        raise UnknownModelError(f"{mask_file}: must hold mask_embedding and one mask_token_id; write the adapter again")
    return Adapter(terms, int(mask_id), embedding, bigram)


def _bigram(file: Path) -> LowRank | None:
    """The bigram term that ``file`` holds, None where there is no file."""
    if not file.is_file():
        return None
    held = _tensors(file)
    down, up = held.get("down"), held.get("up")
    if down is None or up is None or down.ndim != 2 or up.shape != down.shape[::-1] or not down.is_floating_point():
        raise UnknownModelError(f"{file}: must hold down (rank, width) and up (width, rank); write the adapter again")
    return LowRank(down, up.to(down), 1.0)


def write_adapter(folder: Path, adapter: Adapter, base: str) -> None:
    """Write ``adapter`` of the model ``base`` (a folder or a hub id) to ``folder``, which is made. Rank and scale of its first
    layer are those of all but the layers named with their own.
    """
    folder.mkdir(parents=True, exist_ok=True)
    ranks = {module: term.down.shape[0] for module, term in adapter.terms.items()}
    alphas = {module: term.scale * ranks[module] for module, term in adapter.terms.items()}
    rank, alpha = next(iter(ranks.values())), next(iter(alphas.values()))
    config = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": base,
        "inference_mode": True,
        "r": rank,
        "lora_alpha": alpha,
        "lora_dropout": 0.0,
        "bias": "none",
        "fan_in_fan_out": False,
        "use_rslora": False,
        "use_dora": False,
        "init_lora_weights": True,
        "modules_to_save": None,
        "target_modules": sorted(ranks),
        "rank_pattern": {module: own for module, own in ranks.items() if own != rank},
        "alpha_pattern": {module: own for module, own in alphas.items() if own != alpha},
    }
    (folder / ADAPTER_CONFIG).write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    tensors = {
        f"{OF_MODEL}{module}{ending}": getattr(term, name).contiguous()
        for module, term in adapter.terms.items()
        for ending, name in MATRICES.items()
    }
    save_file(tensors, folder / ADAPTER_WEIGHTS, metadata={"format": "pt"})
    if adapter.mask_embedding is not None and adapter.mask_id is not None:
        held = {"mask_embedding": adapter.mask_embedding.contiguous(), "mask_token_id": torch.tensor([adapter.mask_id])}
        save_file(held, folder / MASK_EMBEDDING)
    if adapter.bigram is not None:
        up = adapter.bigram.up * adapter.bigram.scale
        save_file({"down": adapter.bigram.down.contiguous(), "up": up.contiguous()}, folder / BIGRAM)


def _refuse_other_arithmetic(file: Path, config: Mapping[str, object]) -> None:
    """Raises UnknownModelError for a setting that plain LoRA has not."""
    if config.get("peft_type") != "LORA":
        raise UnknownModelError(f"{file}: peft_type is {config.get('peft_type')!r}; allowed is LORA: give such an adapter")
    for key, value in config.items():
        if key not in READ | HARMLESS and value and value != "none":
            raise UnknownModelError(f"{file}: {key} is {str(value)[:80]}, which is not plain LoRA; train it without that")
    if (init := config.get("init_lora_weights", True)) not in OF_BASE_WEIGHTS_AS_THEY_ARE:
        raise UnknownModelError(
            f"{file}: init_lora_weights is {str(init)[:80]}, so the base weights are altered; save it as plain LoRA "
            "(save_pretrained with path_initial_model_for_weight_conversion)"
        )


def _term(folder: Path, config: Mapping[str, object], module: str, found: Mapping[str, Tensor]) -> LowRank:
    """The term of one module."""
    if len(found) < len(MATRICES):
        raise UnknownModelError(f"{folder / ADAPTER_WEIGHTS}: {module} has one of lora_A and lora_B alone; write it again")
    rank = found["down"].shape[0]
    if not rank or found["up"].shape[1] != rank:
        raise UnknownModelError(
            f"{folder / ADAPTER_WEIGHTS}: lora_A and lora_B of {module} have ranks {rank} and {found['up'].shape[1]}; "
            "they must be one rank of at least 1: write the adapter again"
        )
    alpha = _alpha(folder / ADAPTER_CONFIG, config, module)
    return LowRank(scale=alpha / (rank**0.5 if config.get("use_rslora") else rank), **found)


def _alpha(file: Path, config: Mapping[str, object], module: str) -> float:
    """As PEFT finds it (utils.other.get_pattern_key): that of the first pattern that the name ends with, else lora_alpha. PEFT
    adapts no module that exclude_modules names, by a pattern for all of the name or by endings.
    """
    patterns: Any = config.get("alpha_pattern") or {}
    excluded: Any = config.get("exclude_modules") or ()
    alpha = config.get("lora_alpha", 8)
    try:
        alpha = next(
            (value for key, value in patterns.items() if regex.match(rf"(.*\.)?({key})$", module, timeout=MATCH_S)), alpha
        )
        named = excluded if isinstance(excluded, str) else rf"(.*\.)?({'|'.join(map(regex.escape, excluded))})"
        stray = regex.fullmatch(named, module, timeout=MATCH_S)
    except (regex.error, TimeoutError, AttributeError, TypeError) as error:
        raise UnknownModelError(
            f"{file}: exclude_modules or alpha_pattern cannot be matched ({error}); name modules"
        ) from error
    if stray:
        raise UnknownModelError(f"{file}: exclude_modules names {module}, which has tensors; give both files of one adapter")
    if isinstance(alpha, bool) or not isinstance(alpha, int | float) or not abs(alpha) < float("inf"):
        raise UnknownModelError(f"{file}: lora_alpha of {module} is {str(alpha)[:80]}; allowed is a number")
    return float(alpha)


def _refuse_strays(folder: Path, config: Mapping[str, object], terms: Mapping[str, LowRank]) -> None:
    """Where target_modules is a list, it and the tensors name the same modules; a pattern there is PEFT's own affair."""
    if not terms:
        raise UnknownModelError(f"{folder / ADAPTER_WEIGHTS}: holds no tensor; write the adapter again")
    targets = config.get("target_modules")
    if not isinstance(targets, list) or config.get("exclude_modules"):  # a target may have no module left
        return
    ends = [f".{target}" for target in targets]
    for what, missing in (
        ("its tensors are of", [module for module in terms if not f".{module}".endswith(tuple(ends))]),
        ("no tensor is of", [end[1:] for end in ends if not any(f".{module}".endswith(end) for module in terms)]),
    ):
        if missing:
            raise UnknownModelError(
                f"{folder / ADAPTER_CONFIG}: {what} {missing[0]}, otherwise than target_modules says; "
                "give both files of one adapter"
            )


def _tensors(file: Path) -> dict[str, Tensor]:
    """Raises UnknownModelError where ``file`` is missing or no whole safetensors file."""
    if not file.is_file():
        raise UnknownModelError(f"{file}: is not there (.bin files can run code and are never loaded); save it as safetensors")
    try:
        return load_file(file)
    except (SafetensorError, OSError, ValueError) as error:
        raise UnknownModelError(f"{file}: is no whole safetensors file ({str(error)[:200]}); write it again") from error
