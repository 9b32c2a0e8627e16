"""Shapes against published parameter counts and against the modules that transformers builds from the very same config."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import transformers
from pydantic import ValidationError
from transformers import DynamicCache

from harness.errors import UnknownModelError
from harness.models import KNOWN_MODELS, KNOWN_SHAPES, LatentAttention, MixtureOfExperts, ModelShape, shape_from_config

# Totals of the hub repositories (safetensors metadata; parameter counts in GGUF conversions and model cards agree). Qwen3's
# small models are counted without the copy of the tied head that their files hold. DeepSeek-V3: the main model, whose report
# says 671B; 14,848 of them are the routing biases of 58 layers.
PUBLISHED = {
    "llama-3.1-8b": 8_030_261_248,
    "llama-3.1-70b": 70_553_706_496,
    "llama-3.1-405b": 405_853_388_800,
    "llama-3.2-1b": 1_235_814_400,
    "llama-3.2-3b": 3_212_749_824,
    "smollm2-135m": 134_515_008,
    "qwen3-0.6b": 596_049_920,
    "qwen3-1.7b": 1_720_574_976,
    "qwen3-4b": 4_022_468_096,
    "qwen3-8b": 8_190_735_360,
    "qwen3-14b": 14_768_307_200,
    "qwen3-32b": 32_762_123_264,
    "qwen3-30b-a3b": 30_532_122_624,
    "qwen3-235b-a22b": 235_093_634_560,
    "mistral-7b": 7_241_732_096,
    "ministral-8b": 8_019_808_256,
    "mistral-small-24b": 23_572_403_200,
    "gemma-2-9b": 9_241_705_984,
    "deepseek-v3": 671_026_419_200,
}
# Gemma 3 is published with its vision tower and projector: (total, hidden width).
GEMMA3 = {"gemma-3-4b": 4_300_079_472, "gemma-3-12b": 12_187_325_040, "gemma-3-27b": 27_432_406_640}
# The same tensors under a name that transformers does not have.
STANDS_FOR = {"nemotron_labs_diffusion": "ministral3"}

TINY = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "vocab_size": 50,
    "max_position_embeddings": 64,
}
ROUTED = {
    "n_routed_experts": 8,
    "n_group": 2,
    "topk_group": 1,
    "n_shared_experts": 2,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 20,
    "first_k_dense_replace": 1,
}
LATENT = ROUTED | {"q_lora_rank": 6, "kv_lora_rank": 10, "qk_nope_head_dim": 12, "qk_rope_head_dim": 4, "v_head_dim": 14}
EXPERTS = {"num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 20}
VARIANTS: list[tuple[str, dict[str, Any]]] = [
    ("llama", {"attention_bias": True, "mlp_bias": True, "tie_word_embeddings": True}),
    ("mistral", {"sliding_window": 8}),
    ("mistral", {"sliding_window": None}),
    ("mistral", {}),
    ("ministral", {"sliding_window": 8, "layer_types": ["full_attention"] + ["sliding_attention"] * 3}),
    ("ministral3", {}),
    ("phi3", {"head_dim": None, "sliding_window": 8, "pad_token_id": 0}),
    ("qwen2", {"head_dim": None}),
    ("qwen2", {"head_dim": None, "use_sliding_window": True, "max_window_layers": 1}),
    ("qwen3", {"attention_bias": True}),
    ("qwen3", {"use_sliding_window": True, "sliding_window": 8, "max_window_layers": 3}),
    ("qwen3_moe", EXPERTS),
    ("qwen3_moe", EXPERTS | {"decoder_sparse_step": 2, "mlp_only_layers": [1]}),
    ("qwen3_moe", EXPERTS | {"mlp_only_layers": [0, 1, 2, 3]}),
    ("glm4_moe", ROUTED | {"use_qk_norm": True}),
    ("glm4_moe", ROUTED | {"attention_bias": True, "n_shared_experts": 1}),
    ("mixtral", {"num_local_experts": 6, "num_experts_per_tok": 2, "sliding_window": 8}),
    ("gemma", {}),
    ("gemma2", {"sliding_window": 8}),
    ("gemma3_text", {"sliding_window": 8, "num_hidden_layers": 7}),
    ("gemma3_text", {"attention_bias": True, "tie_word_embeddings": False}),
    ("deepseek_v3", LATENT),
    ("deepseek_v3", LATENT | {"q_lora_rank": None, "attention_bias": True}),
    ("deepseek_v3", LATENT | {"attention_bias": True}),
]


def built(config: dict[str, Any]) -> Any:
    """The causal LM that transformers builds from a config, without memory."""
    fields = {key: value for key, value in config.items() if key != "model_type"}
    with torch.device("meta"):
        return transformers.AutoModelForCausalLM.from_config(
            transformers.AutoConfig.for_model(STANDS_FOR.get(config["model_type"], config["model_type"]), **fields)
        )


def weights_of(module: Any) -> int:
    """Parameters, and the routing biases that transformers keeps as buffers."""
    biases = sum(buffer.numel() for name, buffer in module.named_buffers() if name.endswith("score_correction_bias"))
    return sum(parameter.numel() for parameter in module.parameters()) + biases


def test_every_known_model_is_checked() -> None:
    """No shape enters the table without a published figure, except the Nemotron family, which publishes none."""
    unpublished = {name for name in KNOWN_MODELS if name.startswith("nemotron-labs-diffusion")}
    assert set(KNOWN_MODELS) == set(PUBLISHED) | set(GEMMA3) | unpublished
    assert set(KNOWN_SHAPES) == set(KNOWN_MODELS) | {"llama-250m"}


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_parameter_counts(name: str) -> None:
    """To the last weight."""
    assert KNOWN_SHAPES[name].params == PUBLISHED[name]


@pytest.mark.parametrize("name", GEMMA3)
def test_published_counts_of_gemma_3_less_its_eyes(name: str) -> None:
    """The published total is the text model, a SigLIP tower that all three share, and a projector of 1152 x hidden."""
    # google/gemma-3-4b-it, vision_config: 27 layers of 1152, 16 heads, 4304 wide inside, 896 x 896 pixels in patches of 14.
    vision = transformers.SiglipVisionConfig(
        hidden_size=1152,
        intermediate_size=4304,
        num_hidden_layers=27,
        num_attention_heads=16,
        image_size=896,
        patch_size=14,
        vision_use_head=False,
    )
    with torch.device("meta"):
        tower = transformers.SiglipVisionModel(vision)
    shape = KNOWN_SHAPES[name]
    eyes = sum(parameter.numel() for parameter in tower.parameters()) + 1152 * shape.hidden + 1152
    assert shape.params + eyes == GEMMA3[name]


@pytest.mark.parametrize(("name", "billions"), [("qwen3-30b-a3b", 3.3), ("qwen3-235b-a22b", 22), ("deepseek-v3", 37)])
def test_published_activated_parameters(name: str, billions: float) -> None:
    """The model cards say 3.3B, 22B and 37B activated per token."""
    shape = KNOWN_SHAPES[name]
    assert shape.moe is not None
    unvisited = shape.moe.layers * (shape.moe.experts - shape.moe.experts_per_token) * shape.ffn_weights(shape.moe.intermediate)
    assert shape.params - unvisited == pytest.approx(billions * 1e9, rel=0.02)


@pytest.mark.parametrize("name", KNOWN_MODELS)
def test_known_shapes_are_the_modules_of_transformers(name: str) -> None:
    """Same parameters, and the same shape again when read off the config that transformers completed."""
    module = built(KNOWN_MODELS[name].config)
    assert weights_of(module) == KNOWN_SHAPES[name].params
    completed = {**module.config.to_dict(), "model_type": KNOWN_MODELS[name].config["model_type"]}
    assert shape_from_config(name, completed) == KNOWN_SHAPES[name]


@pytest.mark.parametrize(("family", "changes"), VARIANTS)
def test_configs_are_read_as_transformers_reads_them(family: str, changes: dict[str, Any]) -> None:
    """Biases, norms, experts, latents and windows of every family, from the config as given and as completed."""
    given = {key: value for key, value in (TINY | changes | {"model_type": family}).items() if value is not None}
    given |= {key: None for key in ("sliding_window", "q_lora_rank") if key in changes and changes[key] is None}
    module = built(given)
    shape = shape_from_config("tiny", given)
    assert weights_of(module) == shape.params
    assert shape_from_config("tiny", module.config.to_dict()) == shape
    # Which layers slide: as transformers' own cache lays them out.

    held = [getattr(layer, "sliding_window", None) for layer in DynamicCache(config=module.config).layers]
    windows = [window for window in held if window is not None]
    assert len(windows) == shape.sliding_layers
    assert set(windows) <= {shape.sliding_window}


def test_a_multimodal_config_is_read_for_its_text_model() -> None:
    """google/gemma-3-4b-it's config.json names five fields of its text model; the rest are defaults."""
    text = {
        "hidden_size": 2560,
        "intermediate_size": 10240,
        "model_type": "gemma3_text",
        "num_hidden_layers": 34,
        "rope_scaling": {"factor": 8.0, "rope_type": "linear"},
        "sliding_window": 1024,
    }
    whole = {"model_type": "gemma3", "text_config": text, "vision_config": {"hidden_size": 1152}}
    assert shape_from_config("gemma-3-4b", whole) == KNOWN_SHAPES["gemma-3-4b"]
    untied = {"model_type": "gemma3", "text_config": text, "tie_word_embeddings": False}
    assert not shape_from_config("untied", untied).tied_embeddings


@pytest.mark.parametrize("architecture", ["mamba2", "gpt_oss", None])
def test_an_unknown_architecture_is_refused(architecture: str | None) -> None:
    """Never a silent Llama: the message names what was found and what is known."""
    with pytest.raises(UnknownModelError, match=rf"no arithmetic for the architecture {architecture!r}.*known are llama, mis"):
        shape_from_config("some-model", TINY | {"model_type": architecture})


def test_a_missing_field_is_named() -> None:
    """A config without what its family needs is refused with the name of the field."""
    with pytest.raises(UnknownModelError, match=r"deepseek_v3 model lacks 'kv_lora_rank'"):
        shape_from_config(
            "cut", TINY | {key: value for key, value in LATENT.items() if key != "kv_lora_rank"} | {"model_type": "deepseek_v3"}
        )


def test_cached_elements_of_a_token() -> None:
    """Llama-3.1-8B: 2 x 8 heads x 128 elements in a layer. DeepSeek-V3: 512 + 64, as its report says."""
    assert KNOWN_SHAPES["llama-3.1-8b"].kv_width == 2 * 8 * 128
    assert KNOWN_SHAPES["deepseek-v3"].kv_width == 576


@pytest.mark.parametrize(
    "wrong",
    [
        {"sliding_window": 8},
        {"sliding_layers": 1},
        {"sliding_window": 8, "sliding_layers": 3},
        {"moe": MixtureOfExperts(experts=4, experts_per_token=5, intermediate=8, layers=1)},
        {"moe": MixtureOfExperts(experts=4, experts_per_token=2, intermediate=8, layers=3)},
    ],
)
def test_contradictory_shapes_are_refused(wrong: dict[str, Any]) -> None:
    """A window without layers, more sliding or routing layers than there are, more experts per token than experts."""
    with pytest.raises(ValidationError, match="of"):
        ModelShape(name="x", layers=2, hidden=8, intermediate=8, heads=2, kv_heads=2, head_dim=4, vocab=9, **wrong)


def test_a_shape_survives_its_record() -> None:
    """Nested parts come back from JSON as they were, and a record of before knows none of them."""
    shape = KNOWN_SHAPES["deepseek-v3"]
    assert ModelShape.model_validate_json(shape.model_dump_json()) == shape
    assert isinstance(shape.mla, LatentAttention)
    old = {"name": "x", "layers": 2, "hidden": 8, "intermediate": 8, "heads": 2, "kv_heads": 2, "head_dim": 4, "vocab": 9}
    assert ModelShape.model_validate(old).moe is None


YARN = {"rope_type": "yarn", "factor": 4.0}


@pytest.mark.parametrize(
    ("keys", "positions"),
    [
        ({}, 64),
        ({"rope_scaling": YARN}, 256),
        ({"rope_scaling": {"type": "yarn", "factor": 4.0}}, 256),
        ({"rope_scaling": YARN | {"original_max_position_embeddings": 64}}, 256),
        ({"rope_parameters": YARN | {"original_max_position_embeddings": 16, "factor": 4.0}}, 64),  # said already
        ({"rope_parameters": YARN | {"original_max_position_embeddings": 48}}, 192),
        ({"rope_scaling": YARN, "original_max_position_embeddings": 32}, 128),
        ({"rope_scaling": {"type": "linear", "factor": 2.0}}, 128),
        ({"rope_scaling": {"rope_type": "llama3", "factor": 32.0, "original_max_position_embeddings": 32}}, 64),
        ({"rope_scaling": {"rope_type": "longrope", "factor": 32.0, "original_max_position_embeddings": 32}}, 64),
    ],
)
def test_scaled_positions_count(keys: dict[str, Any], positions: int) -> None:
    """YaRN's length is its factor times the original one, whatever max_position_embeddings says; others say it there."""
    config = {
        "model_type": "qwen2",
        "num_hidden_layers": 1,
        "hidden_size": 8,
        "num_attention_heads": 2,
        "intermediate_size": 8,
        "vocab_size": 10,
        "max_position_embeddings": 64,
    }
    assert shape_from_config("m", config | keys).max_positions == positions
