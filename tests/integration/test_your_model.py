"""The pages about a model of one's own as a reader follows them: files and commands, in their order, on a tiny model."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers import ROOT
from tests.helpers.command_lines import JUDGES, files_of, sbd_lines
from tests.helpers.tiny_model import tiny_config

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
pytest.importorskip("accelerate")

SMALLER = {
    "steps: 10000": "steps: 3",
    "rank: 32": "rank: 2",
    "bigram_rank: 256": "bigram_rank: 2",
    "slots: 192": "slots: 16",
    "block_size: 6": "block_size: 4",
    "bfloat16": "float32",
    "processes: 3": "processes: 1",
    "prompts: 20, max_new_tokens: 96": "prompts: 2, max_new_tokens: 12",
    "max_new_tokens: 80": "max_new_tokens: 6, prompts: 6",
    "max_new_tokens: 96": "max_new_tokens: 12, prompts: 2",
    "execution: auto": "execution: eager",
}
"""What a tiny model on one core takes seconds with."""


def write_model(folder: Path) -> None:
    """A Llama of random weights with a tokenizer that has no mask token."""
    from harness.training.reference import train_tokenizer

    tokenizer = train_tokenizer(["Name three birds of the coast and say where they nest"] * 20, 300)
    tokenizer.mask_token = None  # as of most models
    torch.manual_seed(1)
    config = tiny_config(
        vocab_size=len(tokenizer),
        num_hidden_layers=2,
        max_position_embeddings=512,
        tie_word_embeddings=True,
        eos_token_id=tokenizer.eos_token_id,
        initializer_range=0.6,
    )
    transformers.LlamaForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def follow(page: str, folder: Path) -> int:
    """Write the page's files and run its commands; each succeeds, or says with its exit code what a tiny run can show."""
    files, lines = files_of(page), sbd_lines(page)
    write_model(folder / "my-model")
    for name, count in (("prompts.jsonl", 12), ("unseen.jsonl", 6)):
        rows = [{"prompt": f"Name {n} birds of {name}"} for n in range(count)]
        (folder / name).write_text("".join(json.dumps(row) + "\n" for row in rows))
    for name, content in files.items():
        for long, short in SMALLER.items():
            content = content.replace(long, short)
        (folder / name).write_text(content)
    environment = os.environ | {"PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": ""}
    for words in lines:
        command = [sys.executable, "-m", "harness", *words]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, env=environment)
        assert done.returncode in JUDGES.get(words[0], {0}), f"{words}: {done.stdout[-500:]}{done.stderr[-1500:]}"
        assert "Traceback" not in done.stderr
    return len(files) + len(lines)


@pytest.mark.long
def test_the_page_about_an_adapter_is_followed(tmp_path: Path) -> None:
    """From the model to an adapter and a verdict; every answer is the model's own."""
    assert follow("docs/your_model.md", tmp_path) == 7
    assert (tmp_path / "adapter-run" / "adapter" / "bigram.safetensors").is_file()
    report = json.loads((tmp_path / "my-run" / "report.json").read_text())
    identical = {arm["label"]: arm["identical_to_ntp"]["value"] for arm in report["cells"][0]["arms"] if not arm["is_ntp"]}
    assert set(identical.values()) == {1.0} and len(identical) == 4


@pytest.mark.long
def test_the_tutorial_about_a_model_is_followed(tmp_path: Path) -> None:
    """What needs no training, and what SBD would be worth: the first arm's answers are checked, the second one is replayed."""
    assert follow("docs/tutorial/my_model.md", tmp_path) == 5
    report = json.loads((tmp_path / "my-run" / "report.json").read_text())
    arms = {arm["label"]: arm for cell in report["cells"] for arm in cell["arms"]}
    assert arms["prompt lookup n=4"]["identical_to_ntp"]["value"] == 1.0
    # a block of 16 slots takes 5 or 6 passes, and 12 of them are asked for
    assert 12 / 6 <= arms["SBD k=16 replayed 3x"]["nfe_speedup"]["value"] <= 12 / 5
