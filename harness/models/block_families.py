"""The public families of models that decode in blocks, as data; the family of a config.json, and the same model as a config of
the transformers class that its tensors fit.

An entry says how a checkpoint is recognised from its config, what its tensors fit and how it is driven. It also has the
authors' decoding rule. A new family is an entry in block_families.json, with the keys of BlockModelFamily.
docs/public_models.md names the source of each fact, and what could not be checked. No tensor is touched here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from pathlib import Path
from typing import Literal

from pydantic import ConfigDict, TypeAdapter

from harness.errors import UnknownModelError
from harness.frozen import frozen
from harness.models.config import Config

Layout = Literal["blocks", "window", "canvas"]
Commit = Literal["own_pass", "merged"]


@frozen
class BlockProtocol:
    """A protocol for decoding in blocks of k slots. The defaults are those of block diffusion (BD3-LM, arXiv 2503.09573).

    ``layout``      blocks: one block after another over a KV cache. window: k slots opened anew after every pass, the last
                    token fed twice, once for its KV and once as the window's first (SDLM). canvas: no KV cache, every pass
                    feeds the prompt and all slots of the answer, and only those of the current block may be decided
    ``committed``   what the tokens whose KV is kept saw of their own block: causal, or block (all of it); None: no cache
    ``borders``     where blocks begin: right after the prompt (answer), or at multiples of k from the first token, so that
                    the first block holds the prompt's last tokens too (sequence)
    ``prediction``  whether position i predicts its own token, or the one after it (shifted)
    ``commit``      a pass of its own writes the KV of a full block, or the first pass of the next block does (merged)
    ``first_slot``  drafted like every other, or committed: taken from the logits after the last committed token
    ``sub_block``   slots of a block are decided in runs of so many, from left to right; None: all at once
    ``last_block``  whole: masks after the length limit are fed; cut: they are not (where blocks begin after the prompt)
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
        """Whether the next block's first pass can commit: not where that block begins with the commit's logits."""
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
            return [f"a window of {block_size} slots opened anew after every pass", "causal KV, kept in the same pass", slots]
        begins = {"answer": "begins right after the prompt", "sequence": f"begins at multiples of {block_size} tokens"}
        sees = {"causal": "causal KV", "block": "KV of a block whose tokens saw all of it"}[self.committed or "block"]
        how = {"own_pass": "written by a pass of its own", "merged": "written by the next block's first pass"}
        sentences = [
            f"blocks of {block_size}; a block {begins[self.borders]}",
            f"{sees}, {how[self.commit or 'own_pass']}",
            slots,
        ]
        if self.first_slot == "committed":
            sentences.append("a block's first slot comes from the pass that wrote the KV before it")
        if self.sub_block:
            sentences.append(f"slots are decided in runs of {self.sub_block}, from left to right")
        return sentences


@frozen
class BlockModelFamily:
    """One family.

    ``natives``     by model_type of its config: the model_type of the transformers class that its tensors fit
    ``marks``       keys that its config must have besides, where the model_type is also that of ordinary models
    ``classes``     architectures of its config, where the model_type alone does not tell
    ``block_key``, ``mask_key``  keys of the config that hold the block size and the mask token
    ``block_size``, ``mask_id``  where the config does not say; mask_id None: the tokenizer must
    ``solver``      the published rule, with the knobs of its published code
    ``keys``        what its config calls the native config's keys, where the names differ
    ``constants``   keys of the native config that its own leaves to its class
    ``must_be``     values without which the tensors do not fit (a key that is absent fits)
    ``renames``     regular expressions from its tensors' names to the native ones, of one group at most
    ``fused_qkv``   tensor names hold a fused query_key_value, which is split
    ``is_ntp``      the weights are a next-token predictor too, so that NTP on them means something
    ``made_from``   the model_type of the next-token predictors that its checkpoints were made from; None: not known
    """

    name: str
    members: str
    protocol: BlockProtocol
    natives: Mapping[str, str]
    solver: str
    knobs: Mapping[str, int | float]
    source: str
    block_size: int
    marks: tuple[str, ...] = ()
    classes: tuple[str, ...] = ()
    block_key: str = "block_size"
    mask_key: str = "mask_token_id"
    mask_id: int | None = None
    keys: Mapping[str, str] = field(default_factory=dict)
    constants: Mapping[str, object] = field(default_factory=dict)
    must_be: Mapping[str, object] = field(default_factory=dict)
    renames: Mapping[str, str] = field(default_factory=dict)
    fused_qkv: bool = False
    is_ntp: bool = False
    made_from: Literal["qwen2", "qwen3"] | None = None
    note: str = ""

    @property
    def bases(self) -> Mapping[tuple[int, int], str]:
        """(hidden, layers) of a checkpoint to the next-token predictor it was made from."""
        return _BASES.get(self.made_from, {})


_BASES: dict[str | None, dict[tuple[int, int], str]] = {
    "qwen2": {
        (1536, 28): "Qwen/Qwen2.5-1.5B-Instruct",
        (2048, 36): "Qwen/Qwen2.5-3B",
        (3584, 28): "Qwen/Qwen2.5-7B-Instruct",
        (5120, 64): "Qwen/Qwen2.5-32B",
    },
    "qwen3": {
        (1024, 28): "Qwen/Qwen3-0.6B",
        (2048, 28): "Qwen/Qwen3-1.7B",
        (2560, 36): "Qwen/Qwen3-4B",
        (4096, 36): "Qwen/Qwen3-8B",
        (2048, 48): "Qwen/Qwen3-30B-A3B",
    },
}
FAMILIES = TypeAdapter(dict[str, BlockModelFamily], config=ConfigDict(extra="forbid")).validate_json(
    Path(__file__).with_suffix(".json").read_bytes()
)


def same_config(name: str, other: str) -> bool:
    """Whether a checkpoint recognised as one family may be decoded as the other: a config does not tell these two apart."""
    return name == other or {name, other} == {"bd3lm", "mdlm"}


def misuse(family: BlockModelFamily | None, method: str) -> str | None:
    """Why an arm of ``method`` cannot run on a model of ``family``, with what to do; None where it can.

    A method that the weights were not trained for gives meaningless text, and its speedup means nothing.
    """
    next_token = method in ("ntp", "generate")
    if family is None or method == "block_diffusion" or (family.is_ntp if next_token else family.protocol.is_set_block):
        return None
    if next_token:
        bases = ", ".join(dict.fromkeys(family.bases.values())) or "a next-token predictor of about its size"
        todo = f"give the ntp arm a part of its own with the model it was made from ({bases}), and name it as baseline"
    else:
        todo = f"use method: block_diffusion with family: {family.name}"
    return f"a {family.name} checkpoint is not trained for method: {method}; {todo}"


_NOT_NATIVE = {"auto_map", "architectures", "model_type"}


def recognised(config: Config) -> BlockModelFamily | None:
    """The family of a config; None for any other model."""
    kind, classes = config.get("model_type"), set(config.get("architectures") or ())
    for family in FAMILIES.values():
        fits = not family.classes or not classes or classes & set(family.classes)
        if kind in family.natives and fits and all(config.get(key) is not None for key in family.marks):
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
