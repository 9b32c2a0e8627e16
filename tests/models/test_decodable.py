"""Models that no session decodes exactly are refused by their config; what transformers computes says which those are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from harness.engine.loading import load_model
from harness.errors import UnknownModelError, UserError
from harness.models import shape_from_config
from harness.models.choice import HuggingFaceModel, RandomModel
from harness.models.decodable import refuse_undecodable, why_undecodable
from harness.runner.protocols import Machine
from harness.runner.runner import run
from harness.scenario.loading import load_scenario
from harness.scenario.part import Part
from harness.scenario.plan import make_plan

WINDOW, POSITIONS = 5, 8
SIZES = {
    "vocab_size": 40,
    "hidden_size": 32,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "initializer_range": 0.5,
}
EXPERTS = {"num_experts": 4, "num_local_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16}
QWEN = {"use_sliding_window": True, "max_window_layers": 1}
FULL, TYPED = ["full_attention"] * 2, ["full_attention", "sliding_attention"]
LATENT = {
    "n_routed_experts": 4,
    "n_group": 1,
    "topk_group": 1,
    "first_k_dense_replace": 1,
    "num_key_value_heads": 4,
    "q_lora_rank": None,
    "kv_lora_rank": 8,
    "qk_rope_head_dim": 4,
    "qk_nope_head_dim": 4,
    "v_head_dim": 8,
    **EXPERTS,
}
WITH_WINDOWS = {
    "mistral": ("mistral", {}),
    "mistral, layers said to be full": ("mistral", {"layer_types": FULL}),
    "mixtral": ("mixtral", EXPERTS),
    "phi3": ("phi3", {}),
    "ministral3": ("ministral3", {}),
    "qwen3_moe": ("qwen3_moe", EXPERTS | {"use_sliding_window": True}),
    "qwen3_moe, windows off": ("qwen3_moe", EXPERTS | {"use_sliding_window": False}),
    "ministral": ("ministral", {}),
    "ministral, layers full": ("ministral", {"layer_types": FULL}),
    "qwen2": ("qwen2", QWEN),
    "qwen3, windows off": ("qwen3", {**QWEN, "use_sliding_window": False}),
    "qwen3, windows above the last layer": ("qwen3", {**QWEN, "max_window_layers": 2}),
    "qwen3, one layer": ("qwen3", {"use_sliding_window": True, "layer_types": TYPED}),
}


def config_of(kind: str, **more: Any) -> Any:
    """A transformers config of two small layers."""
    return transformers.AutoConfig.for_model(kind, **{**SIZES, **more})


def logits_of(config: Any, length: int) -> Any:
    """What a random model of this config, always the same, says behind the last of so many tokens."""
    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
    with torch.no_grad():
        return model(torch.arange(1, length + 1)[None]).logits[0, -1]


def reason(config: Any, dtype: str = "float32") -> str | None:
    """Why the sessions cannot decode it, by what is written into a config.json."""
    held = config.to_dict()
    return why_undecodable(held, shape_from_config("x", held), dtype)


@pytest.mark.parametrize(("kind", "more"), WITH_WINDOWS.values(), ids=WITH_WINDOWS)
def test_windows_are_refused_where_transformers_has_some(kind: str, more: dict[str, Any]) -> None:
    """And only there: behind twelve tokens a window of five changes what the model says, or it has none."""
    slides = config_of(kind, sliding_window=WINDOW, **more)
    none = 64 if kind == "ministral" else None  # which builds its mask for windows, used or not
    plain = config_of(kind, **{**more, "sliding_window": none, "use_sliding_window": False, "layer_types": FULL})
    has_some = not torch.allclose(logits_of(slides, 12), logits_of(plain, 12), atol=1e-5)
    assert (reason(slides) is not None) == has_some
    assert reason(plain) is None


@pytest.mark.parametrize("kind", ["mistral", "phi3", "ministral3"])
def test_a_copy_without_windows_is_the_same_model_within_them(kind: str) -> None:
    """As the refusal says: the last of five tokens sees all five either way."""
    slides, plain = config_of(kind, sliding_window=WINDOW), config_of(kind, sliding_window=None)
    assert torch.equal(logits_of(slides, WINDOW), logits_of(plain, WINDOW))
    assert '"sliding_window": null' in (reason(slides) or "") and reason(plain) is None


def rope(kind: str, **more: Any) -> dict[str, Any]:
    """Settings of rotary positions under the name that hub configs have."""
    return {"rope_scaling": {"rope_type": kind, **more}, "rope_theta": 10_000.0}


SHORT, LONG = [1.0, 1.5, 2.0, 2.5], [4.0, 5.0, 6.0, 7.0]
DYNAMIC = ("llama", rope("dynamic", factor=4.0) | {"max_position_embeddings": POSITIONS})
LONGROPE = ("phi3", rope("longrope", short_factor=SHORT, long_factor=LONG) | {"original_max_position_embeddings": POSITIONS})


def rotated(config: Any, furthest: int) -> Any:
    """The model's rotation of position 2 where the call's largest position is ``furthest``."""
    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    return model.model.rotary_emb(torch.zeros(1, 2, 32), torch.tensor([[2, furthest]]))[0][0, 0]


@pytest.mark.parametrize(("kind", "more"), [DYNAMIC, LONGROPE], ids=["dynamic", "longrope"])
def test_positions_that_move_with_the_longest_row_are_refused(kind: str, more: dict[str, Any]) -> None:
    """A longer neighbour, or a mask behind the answer, changes what an early position means."""
    config = config_of(kind, **more)
    assert not torch.equal(rotated(config, 3), rotated(config, 2 * POSITIONS))
    assert "rotary positions" in (reason(config) or "")
    assert "rotary positions" in (why_undecodable({**SIZES, **more}, shape_from_config("x", config.to_dict()), "float32") or "")


def test_copies_whose_positions_stay_are_the_same_models_within_them() -> None:
    """As the refusals say; and factors that never move are no reason to refuse."""
    plain = config_of("llama", max_position_embeddings=POSITIONS)
    assert torch.equal(logits_of(config_of(DYNAMIC[0], **DYNAMIC[1]), POSITIONS), logits_of(plain, POSITIONS))
    one_list = LONGROPE[1] | rope("longrope", short_factor=SHORT, long_factor=SHORT)
    one, two = config_of("phi3", **one_list), config_of("phi3", **LONGROPE[1])
    assert torch.equal(logits_of(two, POSITIONS), logits_of(one, POSITIONS))
    assert torch.equal(rotated(one, 3), rotated(one, 2 * POSITIONS))
    linear = config_of("llama", **rope("linear", factor=2.0))
    assert reason(plain) is None and reason(one) is None and reason(linear) is None


def test_experts_in_float64_are_refused() -> None:
    """Where transformers' grouped products fail; a model without experts has float64."""
    config = config_of("qwen3_moe", **EXPERTS)
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float64)
    with pytest.raises(RuntimeError, match="Double"):
        model(torch.tensor([[1, 2, 3]]))
    assert "float64" in (reason(config, "float64") or "") and reason(config, "float32") is None
    assert reason(config_of("llama"), "float64") is None


def folder_of(kind: str, folder: Path, more: dict[str, Any]) -> Path:
    """A checkpoint of which there is nothing but the config.json."""
    config_of(kind, **more).save_pretrained(folder)
    return folder


def refused(folder: Path, arms: list[dict[str, Any]], model: dict[str, Any], dtype: str) -> str:
    """What `sbd plan` and `sbd run` say of a scenario, of which nothing is taken; no machine, so nothing is loaded."""
    file = folder / "s.yaml"
    part = {
        "name": "p",
        "model": model,
        "dtype": dtype,
        "arms": arms,
        "workload": {"tasks": ["word_problems"], "prompts": 2, "max_new_tokens": 4},
    }
    file.write_text(json.dumps({"version": 1, "name": "s", "parts": [part]}))

    def never(*_: Any) -> Any:
        raise AssertionError("something was loaded")

    machine = Machine(open_engine=never, calibrate=never, free_bytes=never, profile=never, execution=never, shape=never)
    with pytest.raises(UserError) as caught:
        run(file, folder / "out", machine=machine)
    assert caught.value.exit_code == 2 and not (folder / "out" / "samples.jsonl").exists()
    with pytest.raises(UserError) as planned:
        make_plan(load_scenario(str(file)))
    assert str(planned.value) == str(caught.value)
    return str(caught.value)


REFUSED = {
    "windows": ("mistral", {"sliding_window": WINDOW}, "float32", "sliding windows of 5 tokens in 2 of 2 layers"),
    "dynamic": (*DYNAMIC, "float32", "dynamic rotary positions"),
    "longrope": (*LONGROPE, "float32", "longrope rotary positions"),
    "latent": ("deepseek_v3", LATENT, "float32", "latent attention (MLA)"),
    "float64": ("mixtral", EXPERTS, "float64", "experts"),
}


@pytest.mark.parametrize(("kind", "more", "dtype", "words"), REFUSED.values(), ids=REFUSED)
def test_a_run_ends_before_anything_is_loaded(kind: str, more: dict[str, Any], dtype: str, words: str, tmp_path: Path) -> None:
    """Exit code 2 by the config alone, of the model itself and of one that drafts."""
    folder = folder_of(kind, tmp_path / "model", more)
    message = refused(tmp_path, [{"method": "ntp"}], {"huggingface": str(folder)}, dtype)
    assert words in message
    drafting = [{"method": "ntp"}, {"method": "draft_model", "draft": {"huggingface": str(folder)}, "draft_tokens": 2}]
    assert str(folder) in refused(tmp_path, drafting, {"reference": "sbd"}, dtype)


def test_loading_asks_again(tmp_path: Path) -> None:
    """What comes from the hub has its config only then; still no weight is read, for none of the model's is here."""
    from safetensors.torch import save_file

    folder = folder_of("mistral", tmp_path, {"sliding_window": WINDOW})
    save_file({"unused": torch.zeros(1)}, folder / "model.safetensors")
    part = Part.model_construct(
        model=HuggingFaceModel(huggingface=str(folder)), device="cpu", dtype="float32", model_attention="sdpa", seed=1
    )
    with torch.set_grad_enabled(torch.is_grad_enabled()), pytest.raises(UnknownModelError, match="sliding windows"):
        load_model(part)


def test_random_weights_are_asked_too() -> None:
    """A shape has no config, and tells its windows and its latent itself."""
    for name in ("mistral-7b", "deepseek-v3"):
        with pytest.raises(UnknownModelError, match=name):
            refuse_undecodable(RandomModel(random=name), "bfloat16")
    refuse_undecodable(RandomModel(random="llama-250m"), "float64")
