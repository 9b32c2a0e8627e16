"""GGUF files are loaded as the numbers that they hold, and their tokenizer writes the ids of the original."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
import yaml

from harness.engine.loading import LoadedModel, load_model, open_tokenizer
from harness.errors import EXIT_USER_ERROR, MissingExtraError, UnknownModelError
from harness.models.choice import REFERENCE_DIR
from harness.models.gguf_header import gguf_config
from harness.scenario.part import Part
from harness.scenario.scenario import Scenario
from tests.helpers.command import sbd
from tests.helpers.gguf_files import vocabulary, write_gguf
from tests.helpers.scenarios import on_model


def scenario(folder: Path, **more: Any) -> dict[str, Any]:
    """NTP on a GGUF file, in float32."""
    return on_model({"huggingface": str(folder), "gguf_file": "tiny.gguf"}, **more)


def part_of(folder: Path, **more: Any) -> Part:
    """The only part of the scenario."""
    return Scenario.model_validate(scenario(folder, **more)).parts[0]


def load(folder: Path, **more: Any) -> LoadedModel:
    """The model as a run loads it."""
    with torch.set_grad_enabled(torch.is_grad_enabled()):
        return load_model(part_of(folder, **more))


def test_logits_are_those_of_the_tensors_that_were_written(tmp_path: Path) -> None:
    """Every weight as numpy de-quantises it, in its place; so every logit, to the last bit. bfloat16 rounds them once."""
    tensors = {name: torch.from_numpy(one) for name, one in write_gguf(tmp_path / "tiny.gguf").items()}
    config = gguf_config(tmp_path / "tiny.gguf")
    reference = transformers.LlamaForCausalLM(transformers.AutoConfig.for_model(**config)).eval()
    reference.load_state_dict(tensors | {"lm_head.weight": tensors["model.embed_tokens.weight"]})
    reference.set_attn_implementation("sdpa")
    ids = torch.arange(40)[None] * 5
    found = load(tmp_path)
    with torch.no_grad():
        assert torch.equal(found.module(ids).logits, reference(ids).logits)
    assert found.shape.params == sum(one.numel() for one in tensors.values()) == found.module.num_parameters()
    for name, one in load(tmp_path, dtype="bfloat16").module.named_parameters():
        assert torch.equal(one, tensors[name].to(torch.bfloat16)), name


def test_the_config_is_that_of_transformers(tmp_path: Path) -> None:
    """Its own reading of the same file, but for what names the model."""
    write_gguf(tmp_path / "tiny.gguf")
    theirs = transformers.AutoConfig.from_pretrained(tmp_path, gguf_file="tiny.gguf").to_dict()
    ours = transformers.AutoConfig.for_model(**gguf_config(tmp_path / "tiny.gguf")).to_dict()
    assert {key for key in ours if ours[key] != theirs.get(key)} == {"_name_or_path"}


def test_the_tokenizer_is_the_original_one(tmp_path: Path) -> None:
    """Digits are split off first: two spaces before a number stay one token. The chat template is there. The end of text ends
    an answer too, as in llama.cpp.
    """
    write_gguf(tmp_path / "tiny.gguf")
    found, words = load(tmp_path), vocabulary()
    assert found.tokenizer is not None and found.stop_ids == {0, 2}
    assert [words[one] for one in found.tokenizer.encode("a  12")] == ["a", "ĠĠ", "1", "2"]
    chat = found.tokenizer.encode_chat("hi")
    assert [words[one] for one in chat] == [
        "<|im_start|>",
        *"user",
        "Ċ",
        *"hi",
        "<|im_end|>",
        "Ċ",
        "<|im_start|>",
        *"assistant",
        "Ċ",
    ]
    assert sorted(found.tokenizer.vocabulary.values()) == list(range(len(words)))


def test_a_tokenizer_of_its_own_goes_first(tmp_path: Path) -> None:
    """Where it is not known how the file's vocabulary splits texts, there must be one beside the file."""
    write_gguf(tmp_path / "tiny.gguf", splits="exotic")
    with pytest.raises(UnknownModelError, match=r"'pre': 'exotic'.*tokenizer\.json beside it"):
        load(tmp_path)
    (tmp_path / "tokenizer.json").write_text((REFERENCE_DIR / "sbd" / "tokenizer.json").read_text())
    with pytest.raises(UnknownModelError, match="embeddings"):  # it is checked as any other
        load(tmp_path)
    write_gguf(tmp_path / "tiny.gguf")
    (tmp_path / "tokenizer.json").unlink()
    own = load(tmp_path).tokenizer
    assert own is not None
    own._tokenizer.save_pretrained(tmp_path)
    write_gguf(tmp_path / "tiny.gguf", splits="exotic")
    again = load(tmp_path).tokenizer
    assert again is not None and again.encode("a  12") == own.encode("a  12")


def test_a_broken_file_ends_a_run_before_it_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Exit 2 with the file named; without the package the message says what to install."""
    write_gguf(tmp_path / "tiny.gguf")
    (tmp_path / "s.yaml").write_text(yaml.safe_dump(scenario(tmp_path)))
    run = ("run", str(tmp_path / "s.yaml"), "--out", str(tmp_path / "out"), "--no-report")
    with torch.set_grad_enabled(torch.is_grad_enabled()):
        assert sbd(monkeypatch, *run) == 0
    capfd.readouterr()
    (tmp_path / "tiny.gguf").write_bytes((tmp_path / "tiny.gguf").read_bytes()[:-64])
    for command in (("plan", str(tmp_path / "s.yaml")), (*run[:3], str(tmp_path / "new"), "--no-report")):
        assert sbd(monkeypatch, *command) == EXIT_USER_ERROR
        assert "tiny.gguf: is no whole GGUF file" in capfd.readouterr().err
    assert not (tmp_path / "new").exists()
    write_gguf(tmp_path / "tiny.gguf")
    monkeypatch.setattr("harness.engine.checkpoints.find_spec", lambda name: None if name == "gguf" else True)
    with pytest.raises(MissingExtraError, match=r"needs gguf; pip install 'sbd-bench\[gguf\]'"):
        load(tmp_path)


def changed(keys: dict[str, Any]) -> Callable[[Any], None]:
    """What adds these keys to a file, of whatever type their values are."""
    kinds = {bool: "add_bool", int: "add_uint32", str: "add_string"}

    def change(writer: Any) -> None:
        for name, value in keys.items():
            getattr(writer, kinds[type(value)])(name, value)

    return change


@pytest.mark.parametrize(
    ("keys", "ends"),
    [({}, {0, 2}), ({"tokenizer.ggml.eot_token_id": 7}, {0, 2, 7}), ({"tokenizer.ggml.eom_token_id": 9}, {0, 2, 9})],
)
def test_an_answer_ends_where_llama_cpp_ends_it(tmp_path: Path, keys: dict[str, int], ends: set[int]) -> None:
    """At the end of a turn or a message by its key, and at what is known by its text; with another tokenizer beside it, too."""
    write_gguf(tmp_path / "tiny.gguf", change=changed(keys))
    found = load(tmp_path)
    assert found.stop_ids == ends and found.tokenizer is not None
    found.tokenizer._tokenizer.save_pretrained(tmp_path)
    assert load(tmp_path).stop_ids == ends
    assert found.tokenizer.remark([8, *ends]) is not None


def test_a_begin_token_stands_where_llama_cpp_puts_it(tmp_path: Path) -> None:
    """Before texts of a vocabulary split as Llama 3's, whose whole words go before merges, too; not where a key says no."""
    for told, begins in ((None, True), (True, True), (False, False)):
        keys = {} if told is None else {"tokenizer.ggml.add_bos_token": told}
        write_gguf(tmp_path / "tiny.gguf", splits="llama-bpe", adds=None, change=changed(keys), word="abc")
        text = load(tmp_path).tokenizer
        words = ["<|im_start|>"] * begins + ["abc"]
        assert text is not None and [vocabulary("abc")[one] for one in text.encode("abc")] == words
    write_gguf(tmp_path / "tiny.gguf", word="abc")
    text = load(tmp_path).tokenizer
    assert text is not None and [vocabulary("abc")[one] for one in text.encode("abc")] == [*"abc"]


def test_a_server_of_such_a_file_gets_its_ids(tmp_path: Path) -> None:
    """The tokenizer alone is the one that comes with the weights."""
    write_gguf(tmp_path / "tiny.gguf")
    alone, whole = open_tokenizer(part_of(tmp_path).model), load(tmp_path).tokenizer
    assert whole is not None and alone.encode("a  12") == whole.encode("a  12")
