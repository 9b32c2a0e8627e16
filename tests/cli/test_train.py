"""`sbd train` on a small model from end to end, and what it says to a mistake."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

transformers = pytest.importorskip("transformers")
pytest.importorskip("accelerate")

from harness.training.reference import train_tokenizer
from tests.helpers.command import Cli, sbd_process
from tests.helpers.tiny_model import tiny_config


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("", "give either --reference STAGE, or --model with --data"),
        ("--model x", "needs --data"),
        ("--reference nothing", "in this order: base, sbd, sbd_end, sbd_more, ntp_only, ntp_only_end, ntp_only_more"),
        ("--reference sbd", "starts from base, which is not finished"),
        ("--model x --data nothing.jsonl", "cannot read the training data"),
    ],
)
def test_mistakes_are_explained(cli: Cli, arguments: str, words: str, tmp_path: Path) -> None:
    """Exit code 2 and a message with what to do; no traceback."""
    assert words in " ".join(cli.refusal(f"train --out {tmp_path} {arguments}").split())


@pytest.mark.long
def test_a_causal_lm_becomes_an_sbd_model(tmp_path):
    """A tiny Llama and a file of pairs go in; weights in safetensors and a tokenizer with a mask token come out."""
    tokenizer = train_tokenizer(["two and two is four", "three and one is four"] * 20, 300)
    config = tiny_config(vocab_size=len(tokenizer))
    source, data, out = tmp_path / "source", tmp_path / "pairs.jsonl", tmp_path / "out"
    transformers.LlamaForCausalLM(config).save_pretrained(source)
    tokenizer.save_pretrained(source)
    data.write_text("".join(json.dumps({"prompt": f"{n} and 1 is ", "solution": str(n + 1)}) + "\n" for n in range(40)))
    done = sbd_process(
        "train", "--out", str(out), "--model", str(source), "--data", str(data), "--steps", "3", "--cpu", "--no-bf16"
    )
    assert done.returncode == 0, done.stderr
    assert (out / "model.safetensors").is_file()
    assert transformers.AutoTokenizer.from_pretrained(out).mask_token_id is not None


def test_eval_shows_its_help_without_lm_eval(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it does and what to install, with exit code 0; any other call is a mistake without the package."""
    monkeypatch.setitem(sys.modules, "lm_eval", None)
    shown = cli.output("eval --help")
    assert "LM Evaluation Harness" in shown and "pip install 'sbd-bench[eval]'" in shown
    assert "sbd eval needs lm_eval" in cli.refusal("eval --tasks gsm8k")
