"""chat_template: auto is filled in from the model's own files when the scenario is read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from harness.errors import ScenarioError, UserError
from harness.runner.job import Job
from harness.scenario.loading import load_scenario, scenario_digest
from tests.helpers.gguf_files import write_gguf
from tests.helpers.scenarios import on_model, write

CONFIG = {
    "model_type": "llama",
    "num_hidden_layers": 1,
    "hidden_size": 64,
    "num_attention_heads": 4,
    "intermediate_size": 96,
    "vocab_size": 300,
    "max_position_embeddings": 512,
    "rms_norm_eps": 1e-5,
}


def written(folder: Path, model: dict[str, Any], **workload: Any) -> Path:
    """A scenario of one part in ``folder``."""
    work = {"tasks": ["word_problems"], "prompts": 2, "max_new_tokens": 8} | workload
    return write(folder, yaml.safe_dump(on_model(model, workload=work)))


def template_of(file: Path) -> object:
    """What the first part of the scenario says after reading."""
    return load_scenario(file).parts[0].workload.chat_template


@pytest.mark.parametrize(
    ("files", "has"),
    [
        ({}, False),
        ({"chat_template.jinja": "{{ messages }}"}, True),
        ({"tokenizer_config.json": json.dumps({"chat_template": "{{ messages }}"})}, True),
        ({"tokenizer_config.json": json.dumps({"chat_template": [{"name": "default", "template": "x"}]})}, True),
        ({"tokenizer_config.json": json.dumps({"chat_template": None})}, False),
        ({"tokenizer_config.json": json.dumps({"eos_token": "x"})}, False),
    ],
)
def test_a_folder_says_whether_it_has_one(tmp_path: Path, files: dict[str, str], has: bool) -> None:
    """Wherever checkpoints keep it; true and false stay as they are, and synthetic prompts never get one."""
    model = tmp_path / "m"
    model.mkdir()
    for name, text in ({"config.json": json.dumps(CONFIG)} | files).items():
        (model / name).write_text(text)
    named = {"huggingface": "./m"}
    assert template_of(written(tmp_path, named)) is has
    assert template_of(written(tmp_path, named, chat_template="auto")) is has
    assert template_of(written(tmp_path, named, chat_template=not has)) is not has
    random = {"synthetic": {"prompt_tokens": 4}, "tasks": None}
    assert template_of(written(tmp_path, named, **random)) is False
    filled, said = load_scenario(written(tmp_path, named)), load_scenario(written(tmp_path, named, chat_template=has))
    assert scenario_digest(filled.model_dump(mode="json")) == scenario_digest(said.model_dump(mode="json"))


@pytest.mark.parametrize("beside", [False, True])
def test_a_gguf_file_has_it_in_its_header(tmp_path: Path, beside: bool) -> None:
    """It counts unless another tokenizer lies beside the file and is read instead."""
    pytest.importorskip("gguf")
    write_gguf(tmp_path / "m.gguf")
    if beside:
        (tmp_path / "tokenizer.json").write_text("{}")
    assert template_of(written(tmp_path, {"huggingface": ".", "gguf_file": "m.gguf"})) is not beside


def test_models_of_the_program_have_none(tmp_path: Path) -> None:
    """So that runs of theirs, which were begun before, go on."""
    assert template_of(written(tmp_path, {"reference": "sbd"})) is False


def test_what_is_not_here_must_be_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A plan can be made, but a run would begin as one scenario and go on as another."""
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    file = written(tmp_path, {"huggingface": "org/name"})
    assert template_of(file) == "auto"
    with pytest.raises(UserError, match=r"org/name is not on this machine.*chat_template: true or false"):
        Job.of(file)
    assert Job.of(written(tmp_path, {"huggingface": "org/name"}, chat_template=False)).plan.cases


def test_other_words_are_refused(tmp_path: Path) -> None:
    """With the line."""
    with pytest.raises(ScenarioError, match=r"s.yaml:\d+: parts.0.workload.chat_template: .*'auto', True or False"):
        load_scenario(written(tmp_path, {"reference": "sbd"}, chat_template="none"))
