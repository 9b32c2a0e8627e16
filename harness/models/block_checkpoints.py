"""Which family a config.json belongs to, and the same model as a config of the transformers class that its tensors fit.

Reads dicts that were read from a config; touches no file, network or tensor.

How a public model that decodes in blocks is driven: which tokens a pass feeds, what they see, when KV is kept, which slots
may be decided. Plain values; harness.decoding.block_diffusion is the decoder they steer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, get_args

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


def misfit(family: BlockModelFamily, config: Config) -> str | None:
    """Why the tensors of this checkpoint do not fit the native class; None where they do."""
    wrong = [
        f"{key}: {config[key]!r} (must be {value!r})"
        for key, value in family.must_be.items()
        if config.get(key) is not None and config[key] != value
    ]
    return ", ".join(wrong) or None


def native_config(family: BlockModelFamily, config: Config) -> Config:
    """The config of the native class: its model_type and keys; ours to load with, whatever class the checkpoint names.

    Raises:
        UnknownModelError: the tensors do not fit, or the config lacks what is needed.
    """
    wrong = misfit(family, config)
    if wrong:
        raise UnknownModelError(f"this {family.name} checkpoint does not fit the native class: {wrong}")
    theirs = set(family.keys.values())
    native = {key: value for key, value in config.items() if key not in _NOT_NATIVE | theirs}
    native |= {ours: config[key] for ours, key in family.keys.items() if config.get(key) is not None}
    native = {**family.constants, **native, "model_type": family.natives[config["model_type"]]}
    if native["model_type"] == "glm4_moe":
        native |= _partial_rotary(native)
    if "sliding_window" in native and not native.get("use_sliding_window") and native["model_type"].startswith("qwen"):
        native |= {"use_sliding_window": False}
    return native


def block_size(family: BlockModelFamily, config: Config) -> tuple[int, str]:
    """The block size with where it comes from."""
    if isinstance(config.get(family.block_key), int):
        return config[family.block_key], f"{family.block_key} in config.json"
    return family.block_size, f"the family's own ({family.source})"


def mask_id(family: BlockModelFamily, config: Config, of_tokenizer: int | None) -> tuple[int | None, str]:
    """The mask token with where it comes from: the config, else the tokenizer, else what the family's code has."""
    if isinstance(config.get(family.mask_key), int):
        return config[family.mask_key], f"{family.mask_key} in config.json"
    if of_tokenizer is not None:
        return of_tokenizer, "the tokenizer's mask token"
    if family.mask_id is not None:
        return family.mask_id, f"the family's own ({family.source})"
    return None, "neither config.json nor the tokenizer names one"


def _partial_rotary(native: Config) -> Config:
    """Rotary positions on a part of each head, said the one way that the class reads."""
    theta, part = native.get("rope_theta", 10_000.0), native["partial_rotary_factor"]
    return {"rope_parameters": {"rope_type": "default", "rope_theta": float(theta), "partial_rotary_factor": part}}


Layout = Literal["blocks", "window", "canvas"]
Commit = Literal["own_pass", "merged"]
COMMITS: tuple[Commit, ...] = get_args(Commit)


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockProtocol:
    """One way of decoding in blocks of k slots. The defaults are those of block diffusion (BD3-LM, arXiv 2503.09573).

    ``layout``      blocks: one block after another over a KV cache. window: k slots opened anew behind every pass, the last
                    token fed twice, once for its KV and once as the window's first (SDLM). canvas: no KV cache, every pass
                    feeds the prompt and all slots of the answer, and only those of the current block may be decided
    ``committed``   what the tokens whose KV is kept saw of their own block: causal, or block (all of it); None: no cache
    ``borders``     where blocks begin: right behind the prompt (answer), or at multiples of k from the first token of the
                    sequence, so that the first block holds the prompt's last tokens too (sequence)
    ``prediction``  whether position i predicts its own token, or the one behind it (shifted)
    ``commit``      a pass of its own writes the KV of a full block, or the first pass of the next block does (merged)
    ``first_slot``  drafted like every other, or committed: taken from the logits behind the last committed token
    ``sub_block``   slots of a block are decided in runs of so many, from left to right; None: all at once
    ``last_block``  whole: masks behind the length limit are fed; cut: they are not (where blocks begin behind the prompt)
    """

    layout: Layout = "blocks"
    committed: Literal["causal", "block"] | None = "block"
    borders: Literal["answer", "sequence"] = "answer"
    prediction: Literal["own", "shifted"] = "own"
    commit: Commit | None = "own_pass"
    first_slot: Literal["drafted", "committed"] = "drafted"
    sub_block: int | None = None
    last_block: Literal["whole", "cut"] = "whole"

    @property
    def may_merge(self) -> bool:
        """Whether committing can wait for the next block's first pass: not where that block begins with what it says."""
        return self.layout == "blocks" and self.first_slot == "drafted"

    @property
    def is_set_block(self) -> bool:
        """Whether the model is used as SBD uses one (arXiv 2509.04185): causal KV, every slot predicts its own token."""
        return self.layout == "blocks" and self.committed == "causal" and self.prediction == "own"

    def in_words(self, block_size: int) -> list[str]:
        """The protocol as short sentences."""
        slots = {"own": "slot i predicts token i", "shifted": "position i predicts token i + 1"}[self.prediction]
        if self.layout == "canvas":
            return [f"no KV cache: every pass feeds prompt and answer, decided in blocks of {block_size}", slots]
        if self.layout == "window":
            return [f"a window of {block_size} slots opened anew behind every pass", "causal KV, kept in the same pass", slots]
        begins = {"answer": "begins right behind the prompt", "sequence": f"begins at multiples of {block_size} tokens"}
        sees = {"causal": "causal KV", "block": "KV of a block whose tokens saw all of it"}[self.committed or "block"]
        how = {"own_pass": "written by a pass of its own", "merged": "written by the next block's first pass"}
        said = [f"blocks of {block_size}; a block {begins[self.borders]}", f"{sees}, {how[self.commit or 'own_pass']}", slots]
        if self.first_slot == "committed":
            said.append("a block's first slot comes from the pass that wrote the KV before it")
        if self.sub_block:
            said.append(f"slots are decided in runs of {self.sub_block}, from left to right")
        return said
