"""Adapters in PEFT's format: what peft writes is read to the same logits, what we write peft reads, other kinds are refused."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from safetensors.torch import load_file, save_file

from harness.engine.adapter_files import read_adapter, write_adapter
from harness.engine.checkpoint_files import read_object
from harness.engine.gated_adapter import GatedLinear, LowRank, adapter_on, attach
from harness.engine.loading import load_model
from harness.errors import EXIT_USER_ERROR, UnknownModelError
from harness.models.choice import REFERENCE_DIR, ReferenceModel, model_name
from harness.models.digests import model_digests
from harness.scenario.scenario import Scenario
from tests.helpers.adapters import random_adapter
from tests.helpers.scenarios import on_model
from tests.helpers.written_by_peft import IDS, base_model, logits_by_peft, write_by_peft

DATA = Path(__file__).parents[1] / "data" / "peft_adapter"
LINEAR = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]


def logits_of(folder, model=None):
    """With the adapter in ``folder`` on every token."""
    model = base_model() if model is None else model
    attach(model, read_adapter(folder))
    with torch.no_grad(), adapter_on(model, ((0, IDS.shape[1]),)):
        return model(input_ids=IDS).logits


def test_an_adapter_that_peft_wrote():
    """Rank-stabilised, by a regular expression, with ranks and alphas of their own; gated off it is the base."""
    model, expected = base_model(DATA / "base.safetensors"), load_file(DATA / "logits.safetensors")["logits"]
    with torch.no_grad():
        base = model(input_ids=IDS).logits
    assert (logits_of(DATA, model) - expected).abs().max() < 1e-5 and (base - expected).abs().max() > 1
    with torch.no_grad():
        assert torch.equal(model(input_ids=IDS).logits, base)


@pytest.mark.filterwarnings("ignore::Warning")
@pytest.mark.parametrize(
    "config",
    [
        {"r": 4, "lora_alpha": 8, "target_modules": "all-linear"},
        {"r": 3, "lora_alpha": 8, "use_rslora": True, "target_modules": LINEAR, "lora_dropout": 0.1},
        {"r": 2, "target_modules": r".*layers\.1.*(up|o)_proj", "alpha_pattern": {r"layers\.\d+\.mlp.*": 3}},
        {"r": 2, "target_modules": ["q_proj"], "layers_to_transform": [1], "rank_pattern": {"^model.layers.1.*": 5}},
    ],
)
def test_peft_here_and_we_agree(tmp_path, config):
    """With the installed peft: what it writes, and what we write of that again."""
    pytest.importorskip("peft")
    expected = write_by_peft(tmp_path / "theirs", **config)
    assert (logits_of(tmp_path / "theirs") - expected).abs().max() < 1e-5
    write_adapter(tmp_path / "ours", read_adapter(tmp_path / "theirs"), "org/base")
    assert (logits_by_peft(tmp_path / "ours") - expected).abs().max() < 1e-5


@pytest.mark.filterwarnings("ignore::Warning")
def test_peft_reads_an_adapter_with_a_mask_embedding(tmp_path):
    """The embedding is in a file of its own, which peft passes over."""
    pytest.importorskip("peft")
    write_adapter(tmp_path, random_adapter(base_model(), mask_id=5), "org/base")
    bare = tmp_path / "bare"
    write_adapter(bare, random_adapter(base_model()), "org/base")
    assert torch.equal(logits_by_peft(tmp_path), logits_by_peft(bare))
    assert (logits_of(bare) - logits_by_peft(bare)).abs().max() < 1e-5 < (logits_of(tmp_path) - logits_of(bare)).abs().max()


def test_what_is_written_is_read(tmp_path):
    """Every matrix, scale and the mask; ranks that differ."""
    adapter = replace(random_adapter(base_model(), mask_id=4, rank=2), bigram=LowRank(torch.rand(3, 8), torch.rand(8, 3), 2.0))
    wide = random_adapter(base_model(), rank=3).terms
    adapter.terms["model.layers.1.mlp.up_proj"] = wide["model.layers.1.mlp.up_proj"]
    write_adapter(tmp_path, adapter, "org/base")
    found = read_adapter(tmp_path)
    assert torch.equal(found.bigram.down, adapter.bigram.down) and torch.equal(found.bigram.up, adapter.bigram.up * 2)
    assert found.mask_id == 4 and torch.equal(found.mask_embedding, adapter.mask_embedding)
    assert found.terms.keys() == adapter.terms.keys()
    for name, term in adapter.terms.items():
        assert torch.equal(found.terms[name].down, term.down) and torch.equal(found.terms[name].up, term.up)
        assert found.terms[name].scale == pytest.approx(term.scale)
    config = json.loads((tmp_path / "adapter_config.json").read_text())
    assert (config["peft_type"], config["r"], config["base_model_name_or_path"]) == ("LORA", 2, "org/base")
    assert list(config["rank_pattern"].values()) == [3]


def changed(tmp_path, **config):
    """The stored adapter with other settings."""
    folder = Path(shutil.copytree(DATA, tmp_path / "adapter"))
    file = folder / "adapter_config.json"
    file.write_text(json.dumps(read_object(file) | config))
    return folder


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"peft_type": "IA3"}, "peft_type is 'IA3'; allowed is LORA"),
        ({"use_dora": True}, "use_dora is True"),
        ({"bias": "lora_only"}, "bias is lora_only"),
        ({"lora_bias": True}, "lora_bias is True"),
        ({"modules_to_save": ["lm_head"]}, r"modules_to_save is \['lm_head'\]"),
        ({"fan_in_fan_out": True}, "fan_in_fan_out"),
        ({"trainable_token_indices": [3]}, "trainable_token_indices"),
        ({"target_parameters": ["a"]}, "target_parameters"),
        ({"a_setting_of_tomorrow": 1}, "a_setting_of_tomorrow is 1, which is not plain LoRA"),
        ({"init_lora_weights": "pissa"}, "init_lora_weights is pissa, so the base weights are altered"),
        ({"target_modules": ["up_proj"]}, "its tensors are of model.layers.0.mlp.down_proj, otherwise than target_modules"),
        ({"target_modules": ["q_proj", "v_proj", "gate_proj", "down_proj", "k_proj"]}, "no tensor is of k_proj"),
        ({"lora_alpha": "many"}, "lora_alpha of .* is many; allowed is a number"),
        ({"alpha_pattern": {"(": 3}}, "alpha_pattern cannot be matched"),
        ({"alpha_pattern": {"(a|.|..)*[A-Z]": 3}}, r"alpha_pattern cannot be matched \(regex timed out\)"),
        ({"exclude_modules": ["lm_head", "down_proj"]}, "exclude_modules names model.layers.0.mlp.down_proj, which has"),
        ({"exclude_modules": r".*layers\.1\..*"}, r"exclude_modules names model.layers.1.*, which has tensors"),
        ({"exclude_modules": "("}, "exclude_modules or alpha_pattern cannot be matched"),
        ({"exclude_modules": 3}, "exclude_modules or alpha_pattern cannot be matched"),
    ],
)
def test_what_is_not_plain_lora_is_refused_by_name(tmp_path, config, words, monkeypatch):
    """Whatever its truth value says that it changes something; with the file."""
    monkeypatch.setattr("harness.engine.adapter_files.MATCH_S", 0.05)
    with pytest.raises(UnknownModelError, match=words) as raised:
        read_adapter(changed(tmp_path, **config))
    assert "adapter_config.json: " in str(raised.value) and raised.value.exit_code == EXIT_USER_ERROR


def test_what_is_excluded_is_not_missed(tmp_path):
    """PEFT leaves the modules out that exclude_modules names: endings of names, or a pattern for all of a name."""
    targets = {"target_modules": ["q_proj", "v_proj", "gate_proj", "down_proj", "k_proj"]}
    for number, excluded in enumerate((["k_proj"], r".*\.k_proj", ["proj", "layers.9.mlp.down_proj"])):
        folder = changed(tmp_path / str(number), exclude_modules=excluded, **targets)
        assert read_adapter(folder).terms.keys() == read_adapter(DATA).terms.keys()


def cut(file):
    """Half of it."""
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def kept(file, keep):
    """Only the tensors that ``keep`` says."""
    save_file({name: one for name, one in load_file(file).items() if keep(name)}, file)


@pytest.mark.parametrize(
    ("name", "break_it", "words"),
    [
        ("adapter_config.json", Path.unlink, "holds no adapter_config.json"),
        ("adapter_config.json", cut, "adapter_config.json: cannot be read as JSON"),
        ("adapter_model.safetensors", Path.unlink, "adapter_model.safetensors: is not there"),
        ("adapter_model.safetensors", cut, "adapter_model.safetensors: is no whole safetensors file"),
        ("adapter_model.safetensors", lambda file: kept(file, lambda name: False), "holds no tensor"),
        ("adapter_model.safetensors", lambda file: kept(file, lambda name: "lora_B" in name), "has one of lora_A and lora_B"),
        ("adapter_model.safetensors", lambda file: save_file({"x": torch.zeros(2, 2)}, file), "x is no matrix of plain LoRA"),
        ("mask_embedding.safetensors", lambda file: file.write_bytes(b""), "mask_embedding.safetensors: is no whole"),
        ("mask_embedding.safetensors", lambda file: save_file({"x": torch.zeros(2)}, file), "must hold mask_embedding"),
        ("bigram.safetensors", lambda file: save_file({"down": torch.zeros(2, 16)}, file), "must hold down"),
    ],
)
def test_a_broken_folder_is_named(tmp_path, name, break_it, words):
    """Every file, missing, cut or with something else in it."""
    folder = Path(shutil.copytree(DATA, tmp_path / "adapter"))
    break_it(folder / name)
    with pytest.raises(UnknownModelError, match=words):
        read_adapter(folder)


@cache
def draft_model():
    """The smallest model that ships."""
    return transformers.LlamaForCausalLM.from_pretrained(REFERENCE_DIR / "draft")


OF_PROBLEMS = {"tasks": ["word_problems"], "split": "test"}


def scenario(adapter, model=None, prompts=OF_PROBLEMS):
    """Two arms on the model with an adapter, by the session of its own choice."""
    arms = [{"method": "ntp"}, {"method": "sbd", "block_size": 4, "gamma": 0.1}]
    workload = prompts | {"prompts": 1, "max_new_tokens": 2}
    return on_model((model or {"reference": "draft"}) | {"adapter": adapter}, session="static", arms=arms, workload=workload)


def test_an_adapter_in_a_scenario(tmp_path):
    """Relative to the file; in the model's name and in the digest of its weights; loaded with its mask token."""
    write_adapter(tmp_path / "mine", random_adapter(draft_model(), mask_id=3), "draft")
    part = Scenario.model_validate(scenario("mine"), context={"base": tmp_path}).parts[0]
    assert part.model.adapter == str(tmp_path / "mine") and model_name(part.model) == "reference draft with mine"
    plain = ReferenceModel(reference="draft")
    assert "adapter" not in plain.model_dump() and part.model.model_dump()["adapter"] == part.model.adapter
    of_plain, of_adapted = (model_digests(one, 0, "float32") for one in (plain, part.model))
    assert {name for name in of_plain if of_plain[name] != of_adapted[name]} == {"weights"}
    with torch.set_grad_enabled(torch.is_grad_enabled()):
        loaded = load_model(part)
    assert loaded.mask_id == 3 and loaded.module.gate_of_adapter.columns == ()
    write_adapter(tmp_path / "mine", random_adapter(draft_model(), mask_id=3, seed=6), "draft")
    assert model_digests(part.model, 0, "float32")["weights"] != of_adapted["weights"]


TINY = {"name": "tiny", "layers": 2, "hidden": 32, "intermediate": 64, "heads": 2, "kv_heads": 1, "head_dim": 16, "vocab": 64}


def test_random_weights_take_random_terms_of_an_adapters_ranks(tmp_path):
    """Of a model of any width: each layer so named gets a term of that rank, the mask an embedding, the drafts a bigram term;
    they act on masked blocks, and causal tokens are what they are without. Known by the adapter's files, wherever they lie.
    """
    of_draft = random_adapter(draft_model(), mask_id=3, rank=5)
    width = draft_model().config.hidden_size
    bigram = LowRank(torch.zeros(6, width), torch.zeros(width, 6), 1.0)
    terms = {name: term for name, term in of_draft.terms.items() if name.endswith(("q_proj", "down_proj"))}
    write_adapter(tmp_path / "theirs", replace(of_draft, terms=terms, bigram=bigram), "draft")
    shutil.copytree(tmp_path / "theirs", tmp_path / "moved")
    given = {"random": TINY}, {"synthetic": {"prompt_tokens": 9}}
    part, moved = (
        Scenario.model_validate(scenario(name, *given), context={"base": tmp_path}).parts[0] for name in ("theirs", "moved")
    )
    assert model_name(part.model) == "random tiny with theirs"
    plain = part.model_copy(update={"model": part.model.model_copy(update={"adapter": None})})
    of_plain, of_adapted, of_moved = (model_digests(one.model, 0, "float32")["weights"] for one in (plain, part, moved))
    assert of_plain != of_adapted == of_moved
    with torch.set_grad_enabled(torch.is_grad_enabled()):
        loaded, base = load_model(part).module, load_model(plain).module
    adapted = {name: module for name, module in loaded.named_modules() if isinstance(module, GatedLinear)}
    assert len(adapted) == 2 * TINY["layers"]
    assert all(one.down.shape == (5, one.in_features) and one.up.shape == (one.out_features, 5) for one in adapted.values())
    assert loaded.bigram_of_adapter.down.shape == (6, 32)
    ids = torch.arange(7)[None]
    with torch.no_grad():
        assert torch.equal(loaded(input_ids=ids).logits, base(input_ids=ids).logits)
        with adapter_on(loaded, ((0, 7),)):
            assert not torch.allclose(loaded(input_ids=ids).logits, base(input_ids=ids).logits)


def test_an_adapter_of_another_model_is_told_with_its_folder(tmp_path):
    """As it is loaded; and a folder that is none before that, by the scenario."""
    part = Scenario.model_validate(scenario(str(DATA)), context={"base": tmp_path}).parts[0]
    with (
        torch.set_grad_enabled(torch.is_grad_enabled()),
        pytest.raises(UnknownModelError, match="peft_adapter: its matrices of"),
    ):
        load_model(part)
    with pytest.raises(ValueError, match=r"no adapter at 'nowhere': there is no .*nowhere/adapter_config.json"):
        Scenario.model_validate(scenario("nowhere"), context={"base": tmp_path})
