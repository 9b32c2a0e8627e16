"""A checkpoint is what its files say: its tensors are read, its tokenizer.json splits texts, odd prompts are told."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import tokenizers
import torch
import transformers
import yaml
from safetensors.torch import load_file, save_file

from harness.engine.loading import open_tokenizer
from harness.engine.text_tokenizer import TextTokenizer
from harness.errors import EXIT_USER_ERROR, MissingExtraError
from harness.models.choice import HuggingFaceModel
from tests.helpers.command import sbd
from tests.helpers.scenarios import change
from tests.helpers.tiny_model import tiny_config

SPECIALS = ["<s>", "</s>"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A tiny Llama with biases everywhere, and a byte-level tokenizer that splits every digit off."""
    torch.manual_seed(1)
    config = tiny_config(
        vocab_size=260, num_hidden_layers=2, attention_bias=True, mlp_bias=True, bos_token_id=0, eos_token_id=1
    )
    place = tmp_path / "model"
    transformers.LlamaForCausalLM(config).save_pretrained(place)
    alphabet = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    words = tokenizers.models.BPE({word: i for i, word in enumerate([*SPECIALS, *alphabet, "12"])}, [("1", "2")])
    tokenizer = tokenizers.Tokenizer(words)
    tokenizer.add_special_tokens(SPECIALS)
    digits, rest = tokenizers.pre_tokenizers.Digits(individual_digits=True), tokenizers.pre_tokenizers.ByteLevel(False)
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Sequence([digits, rest])
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    tokenizer.save(str(place / "tokenizer.json"))
    change(place / "tokenizer_config.json", bos_token="<s>", eos_token="</s>")
    return place


def run(monkeypatch: pytest.MonkeyPatch, folder: Path, command: str = "run", text: str = "hi 12") -> int:
    """`sbd run`, anew, or `sbd plan` with one prompt."""
    shutil.rmtree(folder.parent / "out", ignore_errors=True)
    (folder.parent / "p.jsonl").write_text(json.dumps({"prompt": text}))
    part = {
        "name": "p",
        "model": {"huggingface": str(folder)},
        "dtype": "float32",
        "timed": False,
        "arms": [{"method": "ntp"}],
        "baseline_check": 0,
        "workload": {"prompts_file": str(folder.parent / "p.jsonl"), "max_new_tokens": 2},
    }
    (folder.parent / "s.yaml").write_text(yaml.safe_dump({"version": 1, "name": "s", "parts": [part]}))
    out = ("--out", str(folder.parent / "out")) if command == "run" else ()
    with torch.set_grad_enabled(torch.is_grad_enabled()):
        return sbd(monkeypatch, command, str(folder.parent / "s.yaml"), *out)


def add(folder: Path, *names: str) -> None:
    """More tensors in the weights."""
    file = folder / "model.safetensors"
    save_file(load_file(file) | {name: torch.zeros(16) for name in names}, file, metadata={"format": "pt"})


def test_tensors_that_nothing_reads_are_refused_by_name(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Seven biases a layer without their keys, a layer too many, norms of another family; in one file or in several."""
    assert run(monkeypatch, folder) == 0
    for keys, first in (
        ({"attention_bias": None, "mlp_bias": None}, "14 tensors, model.layers.0.mlp.down_proj.bias"),
        ({"num_hidden_layers": 1}, "16 tensors, model.layers.1.input_layernorm.weight"),
    ):
        before = (folder / "config.json").read_text()
        change(folder / "config.json", **keys)
        assert run(monkeypatch, folder) == EXIT_USER_ERROR
        assert f"asks for, {first}" in capfd.readouterr().err
        (folder / "config.json").write_text(before)
    add(folder, "model.layers.1.self_attn.q_norm.weight")
    names = sorted(load_file(folder / "model.safetensors"))
    (folder / "model.safetensors").rename(folder / "one.safetensors")
    index = {"metadata": {}, "weight_map": dict.fromkeys(names, "one.safetensors")}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    assert run(monkeypatch, folder) == EXIT_USER_ERROR
    assert "1 tensors, model.layers.1.self_attn.q_norm.weight" in capfd.readouterr().err


def test_drafting_heads_and_buffers_may_be_there(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Multi-token prediction as DeepSeek and GLM name it, and Qwen; old buffers."""
    add(folder, "model.layers.2.eh_proj.weight", "model.layers.2.self_attn.q_proj.weight", "mtp.fc.weight")
    add(folder, *(f"model.layers.0.{name}" for name in ("self_attn.rotary_emb.inv_freq", "attn.masked_bias", "attn.bias")))
    assert run(monkeypatch, folder) == 0
    add(folder, "model.layers.3.mlp.up_proj.weight")
    assert run(monkeypatch, folder) == EXIT_USER_ERROR
    change(folder / "config.json", num_nextn_predict_layers=2)
    assert run(monkeypatch, folder) == 0


@pytest.mark.parametrize("kind", ["llama", "qwen2", "qwen3", "mistral", "gemma"])
def test_texts_are_split_as_the_file_says(folder: Path, kind: str) -> None:
    """Whatever class transformers has for the kind of model: it builds some anew, with a splitting rule of its own."""
    file = folder / "tokenizer.json"
    own = tokenizers.Tokenizer.from_file(str(file))
    change(folder / "config.json", model_type=kind, architectures=None)
    for rule in (own.pre_tokenizer, tokenizers.pre_tokenizers.ByteLevel(False)):  # digits apart, as Qwen's rule; or together
        own.pre_tokenizer = rule
        own.save(str(file))
        for name in (None, "Qwen2Tokenizer", "GPT2Tokenizer", "LlamaTokenizer"):
            change(folder / "tokenizer_config.json", tokenizer_class=name)
            found = open_tokenizer(HuggingFaceModel(huggingface=str(folder)))
            for text in ("12 and 2024", "it's 12", "  two  spaces"):
                assert found.encode_more(text) == own.encode(text).ids and found.decode(found.encode_more(text)) == text


def test_a_tokenizer_that_is_not_there_is_refused_by_the_plan_too(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """None at all, which transformers makes up for some models; a vocabulary of SentencePiece without what reads it."""
    (folder / "tokenizer.json").unlink()
    for command in ("plan", "run"):
        assert run(monkeypatch, folder, command) == EXIT_USER_ERROR
        assert f"{folder}: holds no tokenizer; put a tokenizer.json there" in capfd.readouterr().err
    (folder / "tokenizer.model").write_bytes(b"\n\x0e\n\x05<unk>\x15\x00\x00\x00\x00\x18\x02")
    monkeypatch.setattr("harness.models.decodable.find_spec", lambda name: None)
    for command in ("plan", "run"):
        assert run(monkeypatch, folder, command) == MissingExtraError("").exit_code
        assert f"{folder}/tokenizer.model: is a vocabulary of SentencePiece" in (said := capfd.readouterr().err)
        assert "pip install sentencepiece protobuf" in said and "tokenizer.json" in said and "safetensors" not in said
    (folder / "tokenizer.model").rename(folder / "spiece.model")
    with pytest.raises(MissingExtraError, match=r"spiece\.model"):
        open_tokenizer(HuggingFaceModel(huggingface=str(folder)))


def test_a_prompt_that_ends_with_the_stop_token_is_told(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """On the terminal and on the page, where the tokenizer ends every text. So is a text that begins twice."""
    file = folder / "tokenizer.json"
    own = tokenizers.Tokenizer.from_file(str(file))

    def adding(single: str) -> None:
        own.post_processor = tokenizers.processors.TemplateProcessing(single, None, [("<s>", 0), ("</s>", 1)])
        own.save(str(file))

    adding("<s> $A </s>")
    assert run(monkeypatch, folder) == 0
    page = (folder.parent / "out" / "report.html").read_text()
    for said in (capfd.readouterr().err, page.replace("&lt;", "<").replace("&gt;", ">")):
        assert "prompts end with </s>, which ends an answer" in said
    adding("<s> $A")
    assert run(monkeypatch, folder, text="<s>user: hi") == 0
    assert "part p: prompts begin with <s> twice" in capfd.readouterr().err
    assert run(monkeypatch, folder) == 0
    assert "prompts" not in capfd.readouterr().err


def test_what_ends_an_answer_is_the_generation_configs_too(folder: Path) -> None:
    """A template that writes no beginning of an answer leaves the end of the question as the last token."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    assert TextTokenizer(tokenizer).remark([5, 6]) is None and TextTokenizer(tokenizer).remark([5, 1]) is not None
    assert "'" not in str(TextTokenizer(tokenizer, ends={6}).remark([5, 6])).partition(",")[0]
    assert TextTokenizer(tokenizer).remark([7, 7, 8]) is None and "twice" in str(TextTokenizer(tokenizer).remark([0, 0, 8]))
