"""`sbd doctor --model`: every family is recognised from its config alone, the scenario it prints can be run, and what is not
known is refused with what to add. The configs are typed from public sources (tests/data/block_configs/SOURCES.md).
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from harness.errors import UnknownModelError
from harness.models import KNOWN_SHAPES, shape_from_config
from harness.models.block_families import FAMILIES, misuse, native_config, recognised
from harness.models.choice import REFERENCE_DIR
from harness.models.decodable import read_model_facts
from harness.scenario.loading import load_scenario
from harness.scenario.plan import make_plan
from tests.helpers.block_configs import config_of
from tests.helpers.command import Cli

# file: family, native class, block size, mask token, what it was made from, parameters published or of the base (0: none known)
KNOWN: dict[str, tuple[str, str, int, int | None, str | None, float]] = {
    "nemotron-3b": ("nemotron", "ministral3", 32, 100, None, KNOWN_SHAPES["nemotron-labs-diffusion-3b"].params),
    "sdlm-3b-d4": ("sdlm", "qwen2", 4, 151666, "Qwen/Qwen2.5-3B", 3_085_938_688),
    "sdar-8b": ("sdar", "qwen3", 4, 151669, "Qwen/Qwen3-8B", 8_190_735_360),
    "sdar-30b-a3b": ("sdar", "qwen3_moe", 4, 151669, "Qwen/Qwen3-30B-A3B", 30_532_122_624),
    "fast-dllm-v2-7b": ("fast_dllm_v2", "qwen2", 32, 151665, "Qwen/Qwen2.5-7B-Instruct", 7_615_616_512),
    "llada2-mini": ("llada2", "glm4_moe", 32, 156895, None, 0),
    "qwen3-0.6b-bd3lm": ("bd3lm", "qwen3", 32, None, "Qwen/Qwen3-0.6B", 596_049_920),
    "dream-7b": ("dream", "qwen2", 32, 151666, "Qwen/Qwen2.5-7B-Instruct", 7_615_616_512),
    "llada-8b": ("llada", "llama", 32, 126336, None, 8_015_581_184),
}


def checkpoint(folder: Path, config: dict[str, Any], **files: dict[str, Any]) -> Path:
    """A folder with a config and other JSON files, and no weights."""
    folder.mkdir(exist_ok=True)
    for name, content in {"config": config, **files}.items():
        (folder / f"{name}.json").write_text(json.dumps(content))
    return folder


def test_there_is_a_config_for_every_family_that_can_be_recognised() -> None:
    """A family without one would be untested."""
    assert {name for name, family in FAMILIES.items() if family.natives} == {family for family, *_ in KNOWN.values()}


@pytest.mark.parametrize("name", KNOWN)
def test_each_family_is_recognised_from_its_config_alone(name: str, tmp_path: Path) -> None:
    """Family, native class, block size, mask token and base; the parameters are those published, or those of the base."""
    facts = read_model_facts(checkpoint(tmp_path / name, config_of(name)))
    family, native, size, mask, base, parameters = KNOWN[name]
    assert facts.kind == "block model" and facts.family is FAMILIES[family] and facts.native == native and facts.own_code
    assert (facts.block_size, facts.mask_id, facts.base) == (size, mask, base)
    assert not parameters or facts.shape.params == parameters


@pytest.mark.parametrize("name", KNOWN)
def test_the_native_class_has_as_many_parameters_as_the_shape(name: str) -> None:
    """What transformers builds from the translated config, without memory, is what is priced: at full size."""
    family = recognised(config_of(name))
    assert family is not None
    native = native_config(family, config_of(name))
    shape = shape_from_config(name, native)
    with torch.device("meta"):
        config = transformers.AutoConfig.for_model(native.pop("model_type"), **native)
        module = transformers.AutoModelForCausalLM.from_config(config)
    biases = sum(buffer.numel() for key, buffer in module.named_buffers() if key.endswith("score_correction_bias"))
    assert module.num_parameters() + biases == shape.params
    given, rotary = config_of(name), module.config.rope_parameters
    assert rotary["rope_theta"] == given.get("rope_theta", given.get("rope_parameters", {}).get("rope_theta"))
    assert module.config.rms_norm_eps == given["rms_norm_eps"]
    pairs = module.model.rotary_emb.inv_freq.numel()
    assert pairs == (shape.head_dim // 4 if name == "llada2-mini" else shape.head_dim // 2), "LLaDA2 rotates half of each head"


def test_a_published_parameter_count_of_another_llada() -> None:
    """dllm's documentation prints the config of a small LLaDA with the count of its own class: 124,327,616."""
    sizes = {"d_model": 448, "n_layers": 6, "n_heads": 7, "n_kv_heads": 7, "mlp_hidden_size": 768, "max_sequence_length": 1024}
    native = native_config(FAMILIES["llada"], config_of("llada-8b") | sizes)
    assert shape_from_config("llada-100m", native).params == 124_327_616


@pytest.mark.parametrize("name", KNOWN)
def test_the_printed_scenario_can_be_planned(cli: Cli, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What `sbd doctor --model` writes to the screen is a scenario file, comments and all; torch is not needed for it."""
    monkeypatch.setitem(sys.modules, "torch", None)
    folder = checkpoint(tmp_path / name, config_of(name))
    assert cli("doctor", "--model", str(folder), "--device", "cpu") == 0
    text = cli.out
    (tmp_path / "s.yaml").write_text(text)
    cases = make_plan(load_scenario(tmp_path / "s.yaml")).cases
    family = KNOWN[name][0]
    ours = [case for case in cases if case.arm.method == "block_diffusion"]
    assert ours[0].arm.values["family"] == family and ours[0].arm.block_size == KNOWN[name][2]
    assert ours[0].shape is not None and any(case.arm.method == "ntp" for case in cases)
    for case in cases:
        if case.part.name == "blocks" and case.arm.method != "generate":
            assert misuse(FAMILIES[family], case.arm.method) is None, "no arm that the weights are not trained for"
    assert f"family {family}" in text and max(map(len, text.splitlines())) < 200
    assert ("write mask_token_id" in text) == (KNOWN[name][3] is None)


def test_the_mask_token_is_that_of_the_tokenizer_where_the_config_has_none(tmp_path: Path) -> None:
    """In either of the places where it is written; without an id it stays unknown, with the reason."""
    config, added = config_of("qwen3-0.6b-bd3lm"), {"151669": {"content": "<|mask|>"}}
    named = {"mask_token": "<|mask|>"}
    one = checkpoint(tmp_path / "a", config, tokenizer_config=named | {"added_tokens_decoder": added})
    other = checkpoint(
        tmp_path / "b",
        config,
        special_tokens_map={"mask_token": {"content": "<|mask|>"}},
        tokenizer={"added_tokens": [{"id": 7, "content": "<x>"}, {"id": 151669, "content": "<|mask|>"}]},
    )
    none = checkpoint(tmp_path / "c", config, tokenizer_config=named)
    assert read_model_facts(one).mask_id == read_model_facts(other).mask_id == 151669
    assert read_model_facts(none).mask_id is None and "no id" in str(read_model_facts(none).mask_id_from)
    both = checkpoint(tmp_path / "d", config_of("sdar-8b") | {"mask_token_id": 5, "block_size": 8}, tokenizer_config=named)
    assert (read_model_facts(both).mask_id, read_model_facts(both).block_size) == (5, 8), "the config has the first word"


def test_our_own_checkpoints_and_plain_models(cli: Cli, tmp_path: Path) -> None:
    """The shipped reference model is an SBD checkpoint as far as a config tells; a plain Qwen3 is NTP only, and is told so."""
    ours = read_model_facts(REFERENCE_DIR / "sbd")
    assert (ours.kind, ours.native, ours.family) == ("sbd", "llama", None) and ours.mask_id is not None
    plain = config_of("sdar-8b") | {"model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"]}
    folder = checkpoint(tmp_path / "qwen", {key: value for key, value in plain.items() if key != "auto_map"})
    for path, words in ((REFERENCE_DIR / "sbd", "as sbd train leaves"), (folder, "NTP only")):
        assert cli("doctor", "--model", str(path), "--device", "cpu") == 0
        text = cli.out
        assert words in text and ("sbd train --help" in text) == (path is folder)
        (tmp_path / "s.yaml").write_text(text)
        methods = {case.arm.method for case in make_plan(load_scenario(tmp_path / "s.yaml")).cases} - {"generate"}
        assert methods == ({"ntp"} if path is folder else {"ntp", "sbd", "sbd_verified", "self_speculation"})


def test_the_facts_as_json(cli: Cli, tmp_path: Path) -> None:
    """Versioned, the scenario included, nulls where there is nothing."""
    found = cli.answer("doctor", "--model", str(checkpoint(tmp_path / "m", config_of("sdar-8b"))))
    assert found["version"] == 1 and found["family"] == "sdar" and found["block_size"] == 4 and not found["needs_own_code"]
    assert "method: block_diffusion" in found["scenario"] and "device: cuda" in found["scenario"]
    assert cli.answer("doctor", "--model", str(REFERENCE_DIR / "ntp_only"))["family"] is None


@pytest.mark.parametrize(
    ("config", "words"),
    [
        (
            {"model_type": "bd3lm", "architectures": ["BD3LM"]},
            ["'bd3lm'", "harness/models/block_families.json", "trust_remote_code"],
        ),
        ({"architectures": ["X"]}, ["model_type None"]),
        (config_of("llada-8b") | {"architectures": ["LLaDAMoEModelLM"]}, ["'llada'", "LLaDAMoEModelLM"]),
        (config_of("llada-8b") | {"include_qkv_bias": True}, ["does not fit the native class", "include_qkv_bias: True"]),
        (config_of("sdlm-3b-d4") | {"causal_attn": True}, ["causal_attn: True (must be False)"]),
        (config_of("llada2-mini") | {"use_bias": True}, ["use_bias: True"]),
        ({"model_type": "sdar"}, ["lacks"]),
        (config_of("sdar-8b") | {"model_type": "mistral", "sliding_window": 64}, ["windows of 64"]),
    ],
)
def test_what_is_not_known_is_refused_with_what_to_add(
    cli: Cli, config: dict[str, Any], words: list[str], tmp_path: Path
) -> None:
    """A mistake of the user's, exit code 2: the file, what stands there, what is known, what to write."""
    folder = checkpoint(tmp_path / "m", config)
    assert cli("doctor", "--model", str(folder)) == 2
    out, err = cli.out, cli.err
    assert out == "" and "Traceback" not in err and "config.json" in err and all(word in err for word in words), err


def test_a_folder_without_a_model(tmp_path: Path) -> None:
    """Nothing there, or something that is no JSON object."""
    (tmp_path / "config.json").write_text("[1]")
    for folder, words in ((tmp_path, "holds no JSON object"), (tmp_path / "none", "there is no")):
        with pytest.raises(UnknownModelError, match=words):
            read_model_facts(folder)


def test_a_plain_model_of_the_same_type_is_not_taken_for_a_family() -> None:
    """SDLM is a Qwen2 with a key more; Dream and LLaDA are told by their class."""
    config = config_of("sdlm-3b-d4")
    assert recognised(config) is FAMILIES["sdlm"]
    assert recognised({key: value for key, value in config.items() if key != "text_mask_token_id"}) is None
    assert recognised(config_of("dream-7b") | {"architectures": ["DreamForCausalLM"]}) is None


def test_arms_that_the_weights_are_not_trained_for_are_named() -> None:
    """NTP means something where clean tokens were trained; SBD where slots predict themselves over a causal cache."""
    allowed = {
        name: [method for method in ("ntp", "sbd", "sbd_verified", "block_diffusion") if misuse(family, method) is None]
        for name, family in FAMILIES.items()
    }
    assert allowed.pop("nemotron") == ["ntp", "sbd", "sbd_verified", "block_diffusion"]
    assert set(map(tuple, allowed.values())) == {("block_diffusion",)}
    assert "Qwen/Qwen3-8B" in str(misuse(FAMILIES["sdar"], "ntp")) and misuse(None, "sbd") is None
    assert "method: block_diffusion with family: llada" in str(misuse(FAMILIES["llada"], "sbd"))


def test_the_shape_of_a_family_is_known_to_a_plan(tmp_path: Path) -> None:
    """A scenario that names the folder is planned with the native shape, no weights there."""
    folder = checkpoint(tmp_path / "m", config_of("llada2-mini"))
    (tmp_path / "s.yaml").write_text(
        "version: 1\nname: s\nparts:\n- name: p\n  model: {huggingface: m}\n  dtype: bfloat16\n  arms:\n  - {method: ntp}\n"
        "  - {method: block_diffusion, family: llada2, block_size: 32, solver: threshold, tau: 0.9}\n"
        "  workload: {synthetic: {prompt_tokens: 8}, prompts: 1, max_new_tokens: 64}\n"
    )
    cases = make_plan(load_scenario(tmp_path / "s.yaml")).cases
    shape = cases[0].shape
    assert shape is not None and shape.moe is not None and shape.moe.experts == 256 and shape.moe.layers == 19
    assert 15e9 < shape.params < 17e9, "LLaDA2.0-mini is called a 16B model"
    shutil.rmtree(folder)
