"""A model folder runs no code, calls no network, and where it is broken that is said by file name."""

from __future__ import annotations

import json
import shutil
import socket
import struct
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
import yaml

from harness.engine.checkpoint_files import refuse_cut_checkpoint
from harness.engine.loading import load_model
from harness.engine.text_tokenizer import TextTokenizer
from harness.errors import EXIT_USER_ERROR, UnknownModelError, UserError
from harness.models.choice import REFERENCE_DIR, REMOTE_CODE
from harness.scenario.scenario import Scenario
from tests.helpers.command import sbd
from tests.helpers.scenarios import change, on_model

REFERENCE = REFERENCE_DIR / "draft"
KERNEL = "canary/kernel:run"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A whole model, in a process that may not open a connection."""

    def refuse(*_: Any) -> None:
        raise AssertionError("the network was asked")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    return Path(shutil.copytree(REFERENCE, tmp_path / "model"))


def scenario(folder: Path, **model: Any) -> dict[str, Any]:
    """One arm on the model."""
    return on_model({"huggingface": str(folder), **model})


def load(folder: Path, granted: bool = False, **model: Any) -> Any:
    """The model as a run loads it."""
    read = Scenario.model_validate(scenario(folder, **model), context={REMOTE_CODE: granted})
    with torch.set_grad_enabled(torch.is_grad_enabled()):
        return load_model(read.parts[0])


def plant(folder: Path) -> Path:
    """Code of every kind that a folder can hold; returns the file that says that it ran."""
    mark = folder / "ran"
    canary = f"with open({str(mark)!r}, 'a') as file: file.write(__name__)\n"
    (folder / "canary.py").write_text(
        f"{canary}from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast\n"
        "class Config(LlamaConfig): model_type = 'canary'\n"
        "class Model(LlamaForCausalLM): config_class = Config\n"
        "class Tokenizer(PreTrainedTokenizerFast): pass\n"
    )
    (folder / "custom_generate").mkdir()
    (folder / "custom_generate" / "generate.py").write_text(f"{canary}def generate(*_, **__): ...\n")
    (folder / "pytorch_model.bin").write_bytes(b"cos\nsystem\n(S'touch " + str(mark).encode() + b"'\ntR.")
    (folder / "adapter_config.json").write_text('{"base_model_name_or_path": "canary/base"}')
    names = {"AutoConfig": "canary.Config", "AutoModelForCausalLM": "canary.Model", "AutoTokenizer": ["canary.Tokenizer"] * 2}
    chosen = {"auto_map": names, "custom_generate": str(folder), "custom_pipelines": {"text-generation": {"impl": "canary.x"}}}
    named = ("_attn_implementation", "attn_implementation", "_attn_implementation_internal", "experts_implementation")
    kernels = dict.fromkeys((*named, "_experts_implementation"), KERNEL)
    overridden = {"attribute_map": {"use_cache": "_attn_implementation"}, "sub_configs": {"x": 1}, "to_dict": "x"}
    files = {
        "transformers_weights": "pytorch_model.bin",
        "extra_files": ["../x"],
        "use_kernels": True,
        "kernel_config": {"a": KERNEL},
    }
    change(
        folder / "config.json", **chosen, **kernels, **overridden, **files, fusion_config={"x": 1}, name_or_path="canary/other"
    )
    change(folder / "generation_config.json", **chosen, compile_config=None, trust_remote_code=True)
    change(
        folder / "tokenizer_config.json",
        auto_map=names,
        tokenizer_class="CanaryTokenizer",
        name_or_path="canary/other",
        tokenizer_file="/etc/passwd",
        fix_mistral_regex=True,
        trust_remote_code=True,
    )
    return mark


def test_no_code_of_a_folder_runs_and_nobody_is_asked(folder: Path) -> None:
    """Every key and file by which transformers finds code; the weights and the tokenizer are read as ever."""
    plain, mark = load(folder), plant(folder)
    found = load(folder)
    assert not mark.exists() and "canary" not in str(found.module.config) and found.module.config._attn_implementation == "sdpa"
    assert type(found.module) is type(plain.module) and found.tokenizer.digest == plain.tokenizer.digest
    for name, one in plain.module.state_dict().items():
        assert torch.equal(one, found.module.state_dict()[name])


def test_code_runs_where_scenario_and_command_line_grant_it(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither alone suffices; so the canary of the test above would have been heard."""
    mark = plant(folder)
    change(
        folder / "config.json", model_type="llama", **dict.fromkeys(("transformers_weights", "attribute_map", "sub_configs"))
    )
    with pytest.raises(UnknownModelError, match="add --trust-remote-code"):
        load(folder, trust_remote_code=True)
    monkeypatch.setattr("transformers.dynamic_module_utils.HF_MODULES_CACHE", str(folder.parent / "modules"))
    load(folder, granted=True)
    assert not mark.exists()
    with pytest.raises((UnknownModelError, AssertionError)):  # its kernel is nowhere to be had
        load(folder, granted=True, trust_remote_code=True)
    assert "canary" in mark.read_text()


def test_the_command_line_says_what_to_type(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Exit 2 before anything begins; with the option the run goes on. A plan opens no model."""
    file = tmp_path / "s.yaml"
    file.write_text(yaml.safe_dump(scenario(folder, trust_remote_code=True)))
    out = tmp_path / "out"
    assert sbd(monkeypatch, "run", str(file), "--out", str(out), "--no-report") == EXIT_USER_ERROR
    assert "--trust-remote-code" in capfd.readouterr().err and not out.exists()
    assert sbd(monkeypatch, "plan", str(file)) == 0
    with torch.set_grad_enabled(torch.is_grad_enabled()):
        assert sbd(monkeypatch, "run", str(file), "--out", str(out), "--no-report", "--trust-remote-code") == 0


HEADER = {"w": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}


def safetensors(header: Any, body: bytes = bytes(8), size: int | None = None) -> bytes:
    """A file with this header."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if size is None else size) + text + body


OVERLAP = {"a": HEADER["w"], "b": {"dtype": "F32", "shape": [2], "data_offsets": [4, 12]}}
BROKEN_FILES: dict[str, tuple[str, bytes, str]] = {
    "empty weights": ("model.safetensors", b"", "model.safetensors: is no whole"),
    "a header of 8 EiB": ("model.safetensors", safetensors(HEADER, size=2**63 - 1), "model.safetensors: is no whole"),
    "a header without end": ("model.safetensors", safetensors(b'{"w": '), "model.safetensors: is no whole"),
    "offsets beyond the end": ("model.safetensors", safetensors(HEADER, bytes(4)), "model.safetensors: is no whole"),
    "overlaps": ("model.safetensors", safetensors(OVERLAP, bytes(12)), "model.safetensors: is no whole"),
    "a dtype of its own": ("model.safetensors", safetensors({"w": HEADER["w"] | {"dtype": "X9"}}), "is no whole"),
    "weights as integers": ("model.safetensors", safetensors({"a.weight": HEADER["w"] | {"dtype": "I32"}}), "of type I32"),
    "other tensors": ("model.safetensors", safetensors(HEADER), "layers, but its weights are 1 tensors"),
    "config no JSON": ("config.json", b"{", "config.json: cannot be read as JSON"),
    "config too deep": ("config.json", b"[" * 200_000, "config.json: cannot be read as JSON"),
    "config a list": ("config.json", b"[]", "config.json: holds no JSON object"),
    "tokenizer no JSON": ("tokenizer.json", b"\xff\xfe", "tokenizer.json: is no tokenizer"),
    "tokenizer of nothing": ("tokenizer.json", b"{}", "tokenizer.json: is no tokenizer"),
    "tokenizer of wrong types": ("tokenizer.json", b'{"model": {"vocab": 3}}', "tokenizer.json: is no tokenizer"),
    "settings of the tokenizer": ("tokenizer_config.json", b"3", "tokenizer_config.json: holds no JSON object"),
    "generation settings": ("generation_config.json", b"null", "generation_config.json: holds no JSON object"),
}


@pytest.mark.parametrize("kind", BROKEN_FILES)
def test_a_broken_file_is_named(folder: Path, kind: str) -> None:
    """Each is the user's mistake, found before transformers reads it."""
    name, content, message = BROKEN_FILES[kind]
    (folder / name).write_bytes(content)
    with pytest.raises(UnknownModelError, match=message):
        load(folder)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"vocab_size": 40}, r"tokenizer.json: the token .* but the model has 40 embeddings"),
        ({"num_hidden_layers": 60_000}, "layers, but its weights are"),
        ({"vocab_size": 2_000_000}, r"config.json describes 256,[0-9,]{7} weights, but its files have 970,048 bytes"),
        ({"intermediate_size": 1_000_000}, r"config.json describes [0-9,]+ weights, but its files"),
        ({"quantization_config": {"quant_method": "canary"}}, "config.json: quantization_config"),
        ({"hidden_size": "many"}, "cannot load"),
        ({"num_attention_heads": 0}, "cannot load"),
        ({"model_type": "rwkv", "text_config": json.loads((REFERENCE / "config.json").read_text())}, "has no text_config"),
    ],
)
def test_a_config_that_fits_nothing_is_refused(folder: Path, keys: dict[str, Any], message: str) -> None:
    """Sizes of the wrong type or beyond the files, code of a quantiser, a family inside another one."""
    change(folder / "config.json", **keys)
    with pytest.raises(UnknownModelError, match=message):
        load(folder)


def test_an_index_stays_in_its_folder(folder: Path, tmp_path: Path) -> None:
    """Shards elsewhere, missing ones, tensors that a shard lacks; a pickle is never a shard."""
    (folder / "model.safetensors").rename(folder / "one.safetensors")
    index = folder / "model.safetensors.index.json"
    for file, message in (
        ("../model.safetensors", "files of the same folder"),
        ("two.safetensors", "which is not there"),
        ("pytorch_model.bin", "files of the same folder"),
        ("one.safetensors", "looks for w in"),
        (7, "files of the same folder"),
    ):
        index.write_text(json.dumps({"weight_map": {"w": file}}))
        with pytest.raises(UnknownModelError, match=message):
            load(folder)
    index.unlink()
    (folder / "pytorch_model.bin").write_bytes(b"")
    with pytest.raises(UnknownModelError, match="never loaded"):
        load(folder)


TEMPLATES = {
    "loops": "{% for i in range(99999) %}" * 3 + "{% endfor %}" * 3,
    "one long number": "{{ 10 ** (10 ** 9) }}",
    "memory": "{{ 'a' * 10 ** 11 }}",
    "a word of its own": "{{ raise_exception('no') }}",
    "no jinja": "{% if %}",
    "100 MB": "{% for i in range(9999) %}{{ 'a' * 9999 }}{% endfor %}",
    "half of a pair": "{{ '\\ud800' }}",
}


@pytest.mark.parametrize("kind", TEMPLATES)
def test_a_chat_template_has_limits(folder: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """The user's mistake, by file name."""
    monkeypatch.setattr("harness.models.limited_process.MOST_S", 1.0)
    (folder / "chat_template.jinja").write_text(TEMPLATES[kind])
    with pytest.raises(UserError, match=r"model/chat_template.jinja: the chat template (takes|needs|fails)"):
        load(folder).tokenizer.encode_chat("hi")


def test_a_chat_template_gives_what_transformers_gives(folder: Path) -> None:
    """Ids of a prompt, and text that ends where the answer begins or goes on."""
    (folder / "chat_template.jinja").write_text(
        "{{ bos_token }}{% for one in messages %}[{{ one.role }}] {{ one.content }}{{ eos_token }}{% endfor %}"
        "{% if add_generation_prompt %}[assistant]{% endif %}"
    )
    theirs = transformers.AutoTokenizer.from_pretrained(folder)
    ours = TextTokenizer(theirs)
    asked = [{"role": "user", "content": "Tom has 3 apples."}]
    assert ours.encode_chat("Tom has 3 apples.") == theirs.apply_chat_template(
        asked, add_generation_prompt=True, return_dict=False
    )
    for answer in (True, False):
        assert ours.chat_text(asked, answer=answer) == theirs.apply_chat_template(
            asked, tokenize=False, add_generation_prompt=answer, continue_final_message=not answer
        )


@pytest.mark.parametrize(
    ("template", "rendered"),
    [
        (
            "{% for m in messages %}<|{{ m.role }}|>{{ m.content | trim }}<|end|>\n{% endfor %}"
            "{% if add_generation_prompt %}<|assistant|>\n{% endif %}",
            "<|user|>Tom has 3 apples.<|end|>\n<|assistant|>\nHe",
        ),
        ("{% for m in messages %}[INST] {{ m.content }} [/INST]{% endfor %}", "[INST] Tom has 3 apples. [/INST]"),
    ],
)
def test_a_prompt_that_is_rendered_already_stays_as_it_is(folder: Path, template: str, rendered: str) -> None:
    """By the marks behind a message; other prompts, of one letter too, are put in, and turns are put in one by one."""
    (folder / "chat_template.jinja").write_text(template)
    theirs = transformers.AutoTokenizer.from_pretrained(folder)
    ours = TextTokenizer(theirs)
    assert ours.encode_chat(rendered) == ours.encode(rendered)
    turns = [{"role": "system", "content": "Be short."}, {"role": "user", "content": "x"}]
    for text, messages in (("s", [{"role": "user", "content": "s"}]), ("ignored", turns)):
        told = theirs.apply_chat_template(messages, add_generation_prompt=True, return_dict=False)
        assert ours.encode_chat(text, turns if messages is turns else ()) == told


def test_training_does_not_go_on_from_a_cut_checkpoint(tmp_path: Path) -> None:
    """Weights, state and optimizer; a whole one passes."""
    last = tmp_path / "checkpoint-20"
    refuse_cut_checkpoint(tmp_path)
    shutil.copytree(REFERENCE, last)
    (last / "trainer_state.json").write_text("{}")
    torch.save({"step": 1}, last / "optimizer.pt")
    refuse_cut_checkpoint(tmp_path)
    for name in ("model.safetensors", "trainer_state.json", "optimizer.pt"):
        whole = (last / name).read_bytes()
        (last / name).write_bytes(whole[: len(whole) // 2])
        with pytest.raises(UnknownModelError, match=rf"{name}.*remove that folder"):
            refuse_cut_checkpoint(tmp_path)
        (last / name).write_bytes(whole)
