"""Reads the JSON files of a checkpoint, and a ModelShape from the config of a transformers model, given as a dict.

A family that is not listed is refused, because an unknown bias, norm or kind of layer would make the counts wrong. A hub
config leaves out what equals its class's default, so each family lists the defaults that matter.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import field
from pathlib import Path
from typing import Any, Literal

from pydantic import ConfigDict, TypeAdapter

from harness.errors import UnknownModelError
from harness.frozen import frozen
from harness.models.shape import MOST_LAYERS, LatentAttention, MixtureOfExperts, ModelShape

Config = dict[str, Any]
LARGEST_BYTES, LARGEST_TOKENIZER_BYTES = 2**24, 2**26
"""Of files beside the weights. The largest tokenizer.json in use has some 35 MB, an index 10 MB, a config 100 kB."""


def read_bounded(file: Path) -> bytes:
    """The contents of a file that is no weights. Raises UnknownModelError where it is too large to be one. OSError."""
    most = LARGEST_TOKENIZER_BYTES if file.name == "tokenizer.json" else LARGEST_BYTES
    with file.open("rb") as opened:
        data = opened.read(most + 1)
    if len(data) > most:
        raise UnknownModelError(f"{file}: has more than the {most:,} bytes allowed; give the checkpoint's own file")
    return data


def read_object(file: Path) -> Config:
    """A JSON object.

    Raises:
        UnknownModelError: the file is too large, or holds something else.
    """
    try:
        data = read_bounded(file)
        if data.count(b",") > 3_000_000:  # the largest tokenizer.json in use has two million
            raise ValueError("more than 3,000,000 values")
        value = json.loads(data.decode("utf-8-sig"))
        json.dumps(value, ensure_ascii=False).encode()  # half of a surrogate pair is no text
    except (OSError, ValueError, RecursionError) as error:
        raise UnknownModelError(f"{file}: cannot be read as JSON ({error}); download the checkpoint again") from error
    if not isinstance(value, dict):
        raise UnknownModelError(f"{file}: holds no JSON object; download the checkpoint again")
    return value


@contextmanager
def fitting(file: Path | str, what: str = "config of a decoder-only transformer") -> Iterator[None]:
    """For work on what was read from ``file``, which may hold anything under any key.

    Raises:
        UnknownModelError: what the work refuses, with the file; or a value has a type or size that no such model has.
    """
    try:
        yield
    except UnknownModelError as error:
        raise (error if str(error).startswith(str(file)) else UnknownModelError(f"{file}: {error}")) from error
    except (ValueError, TypeError, AttributeError, LookupError, ArithmeticError) as error:
        reason = str(error).partition("\n")[0]
        raise UnknownModelError(f"{file}: not the {what} ({reason}); give the files of a causal language model") from error


@frozen
class ModelType:
    """How the models of one model_type differ from a plain Llama, as transformers builds them: an entry of model_types.json.

    nemotron_labs_diffusion has the tensors of Ministral 3 under other names (NVIDIA-NeMo/Megatron-Bridge,
    nemotron_labs_diffusion_bridge.py).

    ``biases``     in the attention: "none", "qkv" (Q, K and V always), "configured" (all four where attention_bias says so),
                   "qkv_configured" (Q, K and V where it says so)
    ``sliding``    which layers slide where a window is set: "none", "all", "typed" (all), "pattern" (all but the last of every
                   sliding_window_pattern), "upper" (from max_window_layers up); ``layer_types`` in a config overrules the last
                   three, but not "all"
    ``qk_norm``    a norm over each head of Q and of K; "configured": where use_qk_norm says so
    ``defaults``   of the config's class, as far as hub configs rely on them
    """

    biases: Literal["none", "qkv", "configured", "qkv_configured"] = "none"
    sliding: Literal["none", "all", "typed", "pattern", "upper"] = "none"
    qk_norm: bool | Literal["configured"] = False
    norms_per_layer: int = 2
    moe: bool = False
    mla: bool = False
    defaults: Config = field(default_factory=dict)


MODEL_TYPES = TypeAdapter(dict[str, ModelType], config=ConfigDict(extra="forbid")).validate_json(
    Path(__file__).with_name("model_types.json").read_bytes()
)


def shape_from_config(name: str, config: Config) -> ModelShape:
    """The shape of the language model that ``config`` describes (``config.to_dict()``, or a config.json read).

    A multimodal config is read for its ``text_config``. Norms are RMS norms, positions rotary.

    Raises:
        UnknownModelError: the family is not one of MODEL_TYPES, or a field it needs is missing; the message names it.
    """
    if "text_config" in config:
        tied = {key: config[key] for key in ("tie_word_embeddings",) if key in config}  # the outer model owns the LM head
        config = {**config["text_config"], **tied}
    architecture = config.get("model_type")
    kind = MODEL_TYPES.get(architecture) if isinstance(architecture, str) else None
    if kind is None:
        raise UnknownModelError(
            f"{name}: no arithmetic for the architecture {architecture!r} (model_type in its config); "
            f"known are {', '.join(MODEL_TYPES)}; if it is one of these under another name, write a ModelShape's fields by hand"
        )
    try:
        return _read(name, str(architecture), kind, {**kind.defaults, **config})
    except KeyError as error:
        raise UnknownModelError(f"{name}: the config of this {architecture} model lacks {error}") from error


def _read(name: str, architecture: str, kind: ModelType, config: Config) -> ModelShape:
    heads, layers = config["num_attention_heads"], config["num_hidden_layers"]
    biased = bool(config.get("attention_bias", False))
    configured = kind.biases == "configured" and biased
    mla = LatentAttention(**{key: config[key] for key in LatentAttention.model_fields}) if kind.mla else None
    moe = _experts(config, layers, router_bias=architecture in ("deepseek_v3", "glm4_moe")) if kind.moe else None
    head_dim = config.get("head_dim") or config["hidden_size"] // heads
    window, sliding_layers = _sliding(kind, config, layers)
    return ModelShape(
        name=name,
        architecture=architecture,
        layers=layers,
        hidden=config["hidden_size"],
        intermediate=config["intermediate_size"],
        heads=heads,
        kv_heads=heads if mla else config.get("num_key_value_heads") or heads,
        head_dim=mla.qk_nope_head_dim + mla.qk_rope_head_dim if mla else head_dim,
        vocab=config["vocab_size"],
        tied_embeddings=bool(config.get("tie_word_embeddings", False)),
        qkv_bias=configured or kind.biases == "qkv" or (kind.biases == "qkv_configured" and biased),
        o_bias=configured,
        ffn_bias=architecture == "llama" and bool(config.get("mlp_bias", False)),
        qk_norm=bool(config.get("use_qk_norm", False)) if kind.qk_norm == "configured" else kind.qk_norm,
        norms_per_layer=kind.norms_per_layer,
        sliding_window=window,
        sliding_layers=sliding_layers,
        moe=moe,
        mla=mla,
        max_positions=config.get("max_position_embeddings") if kind.sliding == "pattern" else _positions(config),
    )


def rotary(config: Config) -> Iterator[Config]:
    """The settings of rotary positions, of every kind of layer where they differ, under both names they had."""
    for key in ("rope_parameters", "rope_scaling"):
        rope = config.get(key)
        if isinstance(rope, dict):
            yield from (settings for settings in (rope, *rope.values()) if isinstance(settings, dict))


def _positions(config: Config) -> int | None:
    """The longest context: max_position_embeddings, or as many of the original positions as scaling makes of them.

    Other kinds of scaling (llama3, longrope) come with max_position_embeddings of the longer context.
    """
    longest, first = config.get("max_position_embeddings") or 0, config.get("original_max_position_embeddings")
    for rope in rotary(config):
        if rope.get("rope_type", rope.get("type")) in ("yarn", "linear", "dynamic"):
            original = first or rope.get("original_max_position_embeddings") or longest
            longest = max(longest, int(original * rope["factor"]) if original <= longest else 0)
    return longest or None


def _sliding(kind: ModelType, config: Config, layers: int) -> tuple[int | None, int]:
    """The window and the number of layers that have one; (None, 0) where no layer has."""
    window = config.get("sliding_window")
    switched_off = "use_sliding_window" in kind.defaults and config.get("use_sliding_window") is False
    if window is None or kind.sliding == "none" or switched_off:  # other families do not know the switch
        return None, 0
    if config.get("layer_types") is not None and kind.sliding != "all":
        count = config["layer_types"].count("sliding_attention")
    elif kind.sliding == "pattern":
        count = layers - layers // config["sliding_window_pattern"]
    else:
        count = layers if kind.sliding in ("all", "typed") else max(0, layers - config["max_window_layers"])
    return (window, count) if count else (None, 0)


def _experts(config: Config, layers: int, *, router_bias: bool) -> MixtureOfExperts | None:
    """The routing part under the names of Qwen, Mixtral or DeepSeek; None where every layer is dense."""
    experts = config.get("num_experts") or config.get("num_local_experts") or config["n_routed_experts"]
    width = config.get("moe_intermediate_size") or config["intermediate_size"]  # Mixtral has no dense layers, so one width
    step, dense = config.get("decoder_sparse_step", 1), set(config.get("mlp_only_layers") or ())
    first = config.get("first_k_dense_replace", 0)
    routing = sum(
        layer >= first and layer not in dense and (layer + 1) % step == 0 for layer in range(min(layers, MOST_LAYERS))
    )
    if not routing:
        return None
    return MixtureOfExperts(
        experts=experts,
        experts_per_token=config["num_experts_per_tok"],
        intermediate=width,
        layers=routing,
        shared_intermediate=width * config.get("n_shared_experts", 0),
        router_bias=router_bias,
    )
