"""The public families of models that decode in blocks, as data; the family of a config.json, and the same model as a config of
the transformers class that its tensors fit.

An entry says how a checkpoint is recognised from its config, what its tensors fit and how it is driven. It also has the
authors' decoding rule. A new family is an entry in FAMILIES. docs/public_models.md names the source of each fact, and what
could not be checked. Reads dicts that were read from a config; touches no file, network or tensor.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any, Literal

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
    ``bases``       (hidden, layers) of a checkpoint to the next-token predictor it was made from
    """

    name: str
    members: str
    protocol: BlockProtocol
    natives: Mapping[str, str]
    solver: str
    knobs: Mapping[str, float]
    source: str
    block_size: int
    marks: tuple[str, ...] = ()
    classes: tuple[str, ...] = ()
    block_key: str = "block_size"
    mask_key: str = "mask_token_id"
    mask_id: int | None = None
    keys: Mapping[str, str] = field(default_factory=dict)
    constants: Mapping[str, Any] = field(default_factory=dict)
    must_be: Mapping[str, Any] = field(default_factory=dict)
    renames: Mapping[str, str] = field(default_factory=dict)
    fused_qkv: bool = False
    is_ntp: bool = False
    bases: Mapping[tuple[int, int], str] = field(default_factory=dict)
    note: str = ""


_QWEN2 = {
    (1536, 28): "Qwen/Qwen2.5-1.5B-Instruct",
    (2048, 36): "Qwen/Qwen2.5-3B",
    (3584, 28): "Qwen/Qwen2.5-7B-Instruct",
    (5120, 64): "Qwen/Qwen2.5-32B",
}
_QWEN3 = {
    (1024, 28): "Qwen/Qwen3-0.6B",
    (2048, 28): "Qwen/Qwen3-1.7B",
    (2560, 36): "Qwen/Qwen3-4B",
    (4096, 36): "Qwen/Qwen3-8B",
    (2048, 48): "Qwen/Qwen3-30B-A3B",
}
_A2D = {"a2d-qwen3": "qwen3", "a2d-qwen2": "qwen2", "a2d-llama": "llama"}
_LLADA_BLOCK = {
    "q_proj": "self_attn.q_proj",
    "k_proj": "self_attn.k_proj",
    "v_proj": "self_attn.v_proj",
    "attn_out": "self_attn.o_proj",
    "ff_proj": "mlp.gate_proj",
    "up_proj": "mlp.up_proj",
    "ff_out": "mlp.down_proj",
    "attn_norm": "input_layernorm",
    "ff_norm": "post_attention_layernorm",
}
_CANVAS = BlockProtocol(layout="canvas", committed=None, commit=None)

_ALL = (
    BlockModelFamily(
        name="nemotron",
        members="nvidia/Nemotron-Labs-Diffusion-{3B,8B,14B}",
        protocol=BlockProtocol(committed="causal", first_slot="committed"),
        natives={"nemotron_labs_diffusion": "ministral3"},
        block_size=32,
        mask_id=100,
        solver="threshold",
        knobs={"tau": 0.9},
        is_ntp=True,
        renames={r"^encoder\.": "model.", r"^diffusion_head\.": "lm_head."},
        source="NVIDIA-NeMo/Megatron-Bridge nemotron_labs_diffusion_bridge.py; ZHZisZZ/dllm nemotron_diffusion/sampler.py",
        note="trained with SBD's own mask, so that sbd, sbd_verified and self_speculation run on it too",
    ),
    BlockModelFamily(
        name="sdlm",
        members="OpenGVLab/SDLM-{3B-D4,3B-D8,32B-D4}",
        protocol=BlockProtocol(layout="window", committed="causal", prediction="shifted", commit="merged"),
        natives={"qwen2": "qwen2"},
        marks=("text_mask_token_id",),
        mask_key="text_mask_token_id",
        must_be={"causal_attn": False},
        block_size=4,
        solver="longest_prefix",
        knobs={"tau": 0.9},
        bases=_QWEN2,
        source="OpenGVLab/SDLM sdlm_generator.py, attn_mask_utils.py, preprocess_sdlm.py",
        note="its training has no loss on clean tokens, so that NTP on it is untrained, though its code offers it",
    ),
    BlockModelFamily(
        name="sdar",
        members="JetLM/SDAR-*, Gen-Verse/TraDo-*",
        protocol=BlockProtocol(borders="sequence"),
        natives={"sdar": "qwen3", "sdar_moe": "qwen3_moe"},
        block_size=4,
        mask_id=151669,
        solver="low_confidence_dynamic",
        knobs={"tau": 0.85, "steps": 4},
        bases=_QWEN3,
        source="JetAstra/SDAR generate.py; SGLang dllm/config.py (block size, mask)",
    ),
    BlockModelFamily(
        name="fast_dllm_v2",
        members="Efficient-Large-Model/Fast_dLLM_v2_{1.5B,7B}",
        protocol=BlockProtocol(borders="sequence", prediction="shifted", first_slot="committed", sub_block=8),
        natives={"Fast_dLLM_Qwen": "qwen2"},
        block_key="bd_size",
        block_size=32,
        mask_id=151665,
        solver="threshold_strict",
        knobs={"tau": 0.95},
        bases=_QWEN2,
        source="NVlabs Fast-dLLM v2 generation_functions.py, as kept in kookhh0827/Fast-dLLM",
    ),
    BlockModelFamily(
        name="llada2",
        members="inclusionAI/LLaDA2.0-{mini,flash}, LLaDA2.1-*",
        protocol=BlockProtocol(borders="sequence"),
        natives={"llada2_moe": "glm4_moe"},
        block_size=32,
        mask_id=156895,
        solver="low_confidence_dynamic",
        knobs={"tau": 0.95, "steps": 32},
        keys={"n_routed_experts": "num_experts", "n_shared_experts": "num_shared_experts"},
        constants={"use_qk_norm": True, "partial_rotary_factor": 0.5},
        must_be={
            "use_bias": False,
            "use_qkv_bias": False,
            "score_function": "sigmoid",
            "norm_topk_prob": True,
            "use_sliding_window": False,
        },
        renames={
            r"^model\.word_embeddings\.": "model.embed_tokens.",
            r"\.attention\.dense\.": ".self_attn.o_proj.",
            r"\.attention\.query_layernorm\.": ".self_attn.q_norm.",
            r"\.attention\.key_layernorm\.": ".self_attn.k_norm.",
            r"\.attention\.": ".self_attn.",
            r"\.mlp\.gate\.expert_bias$": ".mlp.gate.e_score_correction_bias",
        },
        fused_qkv=True,
        source="ZHZisZZ/dllm llada2/sampler.py; LLaDA2 modeling as kept in public copies; SGLang dllm/config.py",
        note="LLaDA2.1's second stage, which edits tokens already written, is not built: this is its first stage",
    ),
    BlockModelFamily(
        name="bd3lm",
        members="dllm-hub/Qwen3-0.6B-diffusion-bd3lm-v0.1 and other block models of dllm",
        protocol=BlockProtocol(last_block="cut"),
        natives=_A2D,
        block_size=32,
        solver="uniform",
        knobs={"steps": 32},
        bases=_QWEN3,
        source="ZHZisZZ/dllm core/samplers/bd3lm.py, pipelines/a2d",
        note="dllm's whole-sequence checkpoints (-mdlm-) have the same config: for those say family: mdlm",
    ),
    BlockModelFamily(
        name="dream",
        members="Dream-org/Dream-v0-{Base,Instruct}-7B, apple/DiffuCoder-7B-*",
        protocol=BlockProtocol(layout="canvas", committed=None, commit=None, prediction="shifted"),
        natives={"Dream": "qwen2"},
        classes=("DreamModel",),
        mask_id=151666,
        block_size=32,
        solver="top_k",
        knobs={"tokens": 1},
        bases=_QWEN2,
        source="Dream generation_utils.py as kept in public copies (maskgit_plus); Fast-dLLM dream/",
        note="its own schedule of tokens per pass is not built; with a block as long as the answer any slot may come first",
    ),
    BlockModelFamily(
        name="llada",
        members="GSAI-ML/LLaDA-8B-{Base,Instruct}, LLaDA-1.5",
        protocol=_CANVAS,
        natives={"llada": "llama"},
        classes=("LLaDAModelLM",),
        mask_id=126336,
        block_size=32,
        solver="uniform",
        knobs={"steps": 32},
        keys={
            "hidden_size": "d_model",
            "num_attention_heads": "n_heads",
            "num_key_value_heads": "n_kv_heads",
            "num_hidden_layers": "n_layers",
            "intermediate_size": "mlp_hidden_size",
            "tie_word_embeddings": "weight_tying",
            "max_position_embeddings": "max_sequence_length",
            "vocab_size": "embedding_size",
        },
        must_be={
            "block_type": "llama",
            "include_bias": False,
            "include_qkv_bias": False,
            "attention_layer_norm": False,
            "layer_norm_type": "rms",
            "rope": True,
            "alibi": False,
            "scale_logits": False,
            "input_emb_norm": False,
            "activation_type": "silu",
        },
        renames={
            r"^model\.transformer\.wte\.": "model.embed_tokens.",
            r"^model\.transformer\.ln_f\.": "model.norm.",
            r"^model\.transformer\.ff_out\.": "lm_head.",
            **{
                rf"^model\.transformer\.blocks\.(\d+)\.{theirs}\.": rf"model.layers.\1.{native}."
                for theirs, native in _LLADA_BLOCK.items()
            },
        },
        source="ML-GSAI/LLaDA generate.py; LLaDA configuration and tensor names as kept in public copies",
    ),
    BlockModelFamily(
        name="mdlm",
        members="dllm-hub/*-mdlm-* (whole-sequence models of dllm)",
        protocol=_CANVAS,
        natives={},
        block_size=128,
        solver="uniform",
        knobs={"steps": 128},
        bases=_QWEN3,
        source="ZHZisZZ/dllm core/samplers/mdlm.py",
        note="not told apart from bd3lm by a config; never recognised, only named",
    ),
)
FAMILIES: dict[str, BlockModelFamily] = {family.name: family for family in _ALL}


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
