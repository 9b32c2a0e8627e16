"""Checkpoints of public block models, written to disk under their authors' tensor names with tiny random weights, are read into
transformers' own classes tensor by tensor, and none of the code they name is run.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import save_file

from harness.engine.loading import load_model
from harness.errors import UnknownModelError
from harness.models.block_families import FAMILIES, native_config
from harness.models.choice import REFERENCE_DIR, REMOTE_CODE, HuggingFaceModel
from tests.helpers.block_configs import config_of

VOCAB = 896  # as many as the tokenizer has
SIZES = {
    "vocab_size": VOCAB,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "max_window_layers": 2,
}
LLADA = {
    "embedding_size": VOCAB,
    "vocab_size": VOCAB,
    "d_model": 32,
    "n_heads": 4,
    "n_kv_heads": 4,
    "n_layers": 2,
    "mlp_hidden_size": 48,
    "max_sequence_length": 128,
}
EXPERTS = {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 16, "n_group": 2, "topk_group": 1}
HEAD = {"head_dim": 8}
# family: the config on disk, made small
SMALL: dict[str, dict[str, Any]] = {
    "nemotron": config_of("nemotron-3b") | SIZES | HEAD | {"mask_token_id": 39},
    "sdlm": config_of("sdlm-3b-d4") | SIZES | {"text_mask_token_id": 39},
    "sdar": config_of("sdar-8b") | SIZES | HEAD | {"mask_token_id": 39},
    "sdar_moe": config_of("sdar-30b-a3b") | SIZES | HEAD | EXPERTS | {"mask_token_id": 39},
    "fast_dllm_v2": config_of("fast-dllm-v2-7b") | SIZES | {"layer_types": ["full_attention"] * 2},
    "llada2": config_of("llada2-mini") | SIZES | HEAD | EXPERTS | {"pad_token_id": 0},
    "bd3lm": config_of("qwen3-0.6b-bd3lm") | SIZES | HEAD,
    "dream": config_of("dream-7b") | SIZES | {"mask_token_id": 39, "pad_token_id": 0},
    "llada": config_of("llada-8b") | LLADA | {"mask_token_id": 39, "pad_token_id": 0},
}


def theirs(family: str, ours: dict[str, Any]) -> dict[str, Any]:
    """Native tensors under the authors' names, from the sources of each family: the mapping read the other way round."""
    if family == "nemotron":
        return {re.sub(r"^model\.", "encoder.", name).replace("lm_head", "diffusion_head"): one for name, one in ours.items()}
    if family == "llada":
        names = {
            "self_attn.o_proj": "attn_out",
            "mlp.gate_proj": "ff_proj",
            "mlp.up_proj": "up_proj",
            "mlp.down_proj": "ff_out",
            "input_layernorm": "attn_norm",
            "post_attention_layernorm": "ff_norm",
            "self_attn.q_proj": "q_proj",
            "self_attn.k_proj": "k_proj",
            "self_attn.v_proj": "v_proj",
        }
        top = {"model.embed_tokens": "wte", "model.norm": "ln_f", "lm_head": "ff_out"}
        found = {}
        for name, one in ours.items():
            stem = name.removesuffix(".weight")
            if stem in top:
                found[f"model.transformer.{top[stem]}.weight"] = one
            else:
                _, _, layer, part = stem.split(".", 3)
                found[f"model.transformer.blocks.{layer}.{names[part]}.weight"] = one
        return found
    return llada2_names(ours) if family == "llada2" else ours


def llada2_names(ours: dict[str, Any]) -> dict[str, Any]:
    """One fused query_key_value, an expert after another."""
    found = {}
    for name, one in ours.items():
        name = name.replace("embed_tokens", "word_embeddings").replace("e_score_correction_bias", "expert_bias")
        name = name.replace("self_attn.o_proj", "attention.dense").replace("self_attn.q_norm", "attention.query_layernorm")
        name = name.replace("self_attn.k_norm", "attention.key_layernorm")
        if name.endswith(("k_proj.weight", "v_proj.weight")):
            continue
        if name.endswith("q_proj.weight"):
            stem = name.removesuffix("q_proj.weight")
            fused = torch.cat([ours[f"{stem}{kind}_proj.weight"] for kind in "qkv"])
            found[stem.replace("self_attn.", "attention.query_key_value.weight")] = fused
        elif name.endswith("experts.gate_up_proj"):
            for number, expert in enumerate(one):
                gate, up = expert.chunk(2)
                found[name.replace("gate_up_proj", f"{number}.gate_proj.weight")] = gate.contiguous()
                found[name.replace("gate_up_proj", f"{number}.up_proj.weight")] = up.contiguous()
        elif name.endswith("experts.down_proj"):
            for number, expert in enumerate(one):
                found[name.replace("down_proj", f"{number}.down_proj.weight")] = expert.contiguous()
        else:
            found[name] = one
    return found


def native_model(config: dict[str, Any], family: str) -> Any:
    """Random weights of the native class, the router's among them."""
    native = native_config(FAMILIES[family], config)
    torch.manual_seed(3)
    made = transformers.AutoConfig.for_model(native.pop("model_type"), **native)
    model = transformers.AutoModelForCausalLM.from_config(made).float().eval()
    with torch.no_grad():
        for one in [*model.parameters(), *(b for name, b in model.named_buffers() if name.endswith("correction_bias"))]:
            one.copy_(torch.randn_like(one) * 0.2)
    return model


def written(folder: Path, kind: str, shards: int = 1) -> Any:
    """A checkpoint of ``kind`` in ``folder``; returns the native model whose tensors it holds."""
    family, config = kind.removesuffix("_moe"), SMALL[kind]
    model = native_model(config, family)
    tied = {"lm_head.weight"} if config.get("tie_word_embeddings") else set()
    tensors = theirs(family, {name: one.contiguous() for name, one in model.state_dict().items() if name not in tied})
    folder.mkdir(exist_ok=True)
    names = sorted(tensors)
    files = {}
    for number in range(shards):
        file = "model.safetensors" if shards == 1 else f"model-{number + 1:05}-of-{shards:05}.safetensors"
        part = {name: tensors[name] for name in names[number::shards]}
        save_file(part, str(folder / file), metadata={"format": "pt"})
        files |= dict.fromkeys(part, file)
    if shards > 1:
        (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": files}))
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [5, 6]}))
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (folder / name).write_text((REFERENCE_DIR / "sbd" / name).read_text())
    return model


def loaded(folder: Path, **choice: Any) -> Any:
    """As a scenario loads it."""
    part = SimpleNamespace(
        model=HuggingFaceModel.model_validate({"huggingface": str(folder), **choice}, context={REMOTE_CODE: True}),
        device="cpu",
        dtype="float32",
        model_attention="sdpa",
        seed=1,
        needs_mask=False,
    )
    with torch.set_grad_enabled(torch.is_grad_enabled()):
        return load_model(part)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", SMALL)
def test_every_tensor_arrives(kind: str, tmp_path: Path) -> None:
    """Tensor by tensor, and so the same logits; every config names code of its own, of which no file exists."""
    model = written(tmp_path / kind, kind)
    found = loaded(tmp_path / kind)
    assert type(found.module) is type(model) and found.family is FAMILIES[kind.removesuffix("_moe")]
    state = found.module.state_dict()
    assert state.keys() == model.state_dict().keys()
    for name, one in model.state_dict().items():
        assert torch.equal(state[name], one), name
    tokens = torch.tensor([[1, 7, 3, 9, 22]])
    torch.testing.assert_close(found.module(tokens).logits, model(tokens).logits)
    assert {5, 6} <= found.stop_ids and found.shape.layers == 2
    count = sum(one.numel() for name, one in model.named_buffers() if name.endswith("correction_bias"))
    assert found.shape.params == model.num_parameters() + count


def test_a_checkpoint_in_several_files(tmp_path: Path) -> None:
    """Where the tensors are split by us, too."""
    for kind in ("llada2", "llada"):
        model = written(tmp_path / kind, kind, shards=3)
        assert torch.equal(loaded(tmp_path / kind).module.lm_head.weight, model.lm_head.weight)


def test_the_mask_token_is_the_scenarios_else_the_configs_else_the_tokenizers(tmp_path: Path) -> None:
    """Nemotron's config has one, bd3lm's has none and its tokenizer does, Fast-dLLM v2 falls behind its tokenizer's."""
    for kind in ("nemotron", "bd3lm"):
        written(tmp_path / kind, kind)
    of_tokenizer = transformers.AutoTokenizer.from_pretrained(REFERENCE_DIR / "sbd").mask_token_id
    assert loaded(tmp_path / "nemotron").mask_id == 39
    assert loaded(tmp_path / "bd3lm").mask_id == of_tokenizer != 39
    assert loaded(tmp_path / "bd3lm", mask_token_id=11).mask_id == 11


def test_a_tensor_under_another_name_is_not_made_up(tmp_path: Path) -> None:
    """A checkpoint whose tensors are not those of its family is refused, not filled with random weights."""
    written(tmp_path / "m", "llada")
    config = SMALL["llada"] | {"block_type": "sequential"}
    (tmp_path / "m" / "config.json").write_text(json.dumps(config))
    with pytest.raises(UnknownModelError, match="block_type: 'sequential'"):
        loaded(tmp_path / "m")
    written(tmp_path / "n", "sdar")
    for other, words in (
        ("nemotron", "beyond those that its config.json asks for, 4 tensors, model.layers.0.self_attn.k_norm"),
        ("fast_dllm_v2", "lacks 6 tensors, model.layers.0.self_attn.k_proj.bias"),
    ):
        (tmp_path / "n" / "config.json").write_text(json.dumps(SMALL[other]))
        with pytest.raises(UnknownModelError, match=words):
            loaded(tmp_path / "n")


def test_the_code_of_a_checkpoint_is_not_run(tmp_path: Path) -> None:
    """Even where it is granted: a family's native class is used, and the file that would tell is not read."""
    written(tmp_path / "m", "dream")
    for name in ("configuration_dream", "modeling_dream"):
        (tmp_path / "m" / f"{name}.py").write_text("raise SystemExit('the code of the checkpoint ran')\n")
    assert loaded(tmp_path / "m", trust_remote_code=True).family is FAMILIES["dream"]
