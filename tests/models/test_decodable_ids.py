"""Masks that no decode can use and stops that no answer can reach: refused by plan, run and training, with one message."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from harness.engine.loading import load_model
from harness.errors import EXIT_USER_ERROR, UnknownModelError
from harness.models.choice import REFERENCE_DIR
from harness.models.decodable import refuse_ids
from harness.scenario.scenario import Scenario
from tests.helpers.command import sbd_process
from tests.helpers.scenarios import change, write

ROWS = 896
SCENARIO = """\
version: 1
name: ids
parts:
  - name: one
    model: MODEL
    dtype: float32
    timed: false
    arms: [{method: ntp}, {method: sbd, block_size: 4, gamma: 0.5}]
    workload: {tasks: [record_to_json], prompts: 1, max_new_tokens: 4}
"""


def changed(folder: Path, tokenizer: dict[str, Any], **ends: Any) -> Path:
    """The reference model, its tokenizer's settings and its ends changed; None removes a setting."""
    shutil.copytree(REFERENCE_DIR / "sbd", folder)
    change(folder / "tokenizer_config.json", **tokenizer)
    change(folder / "generation_config.json", **ends)
    return folder


CASES: dict[str, tuple[dict[str, Any], dict[str, Any], str, str]] = {
    "the tokenizer's own end": ({"mask_token": "<eos>"}, {}, "", r"mask token is 1, answers end with \[1\]"),
    "one of several ends": ({}, {"eos_token_id": [1, 3]}, "", r"mask token is 3, answers end with \[1, 3\]"),
    "an end that is named": ({}, {}, ", mask_token_id: 1", r"mask token is 1, answers end with \[1\]"),
    "behind the last row": ({}, {}, f", mask_token_id: {ROWS}", f"mask token is {ROWS}, .*the embeddings have {ROWS} rows"),
    "none at all": ({"mask_token": None}, {}, "", "mask token is not known"),
    "an end that is a text": ({}, {"eos_token_id": ""}, "", r"eos_token_id is '', a token's number or a list of them"),
    "an end in a list in a list": ({}, {"eos_token_id": [[1]]}, "", r"unhashable"),
    "ends behind the last row": ({"eos_token": None}, {"eos_token_id": 9999}, "", r"answers end with \[9999\]"),
}


@pytest.mark.parametrize("case", CASES)
def test_plan_and_run_refuse_before_anything_is_measured(case: str, tmp_path: Path) -> None:
    """The plan by the files alone; a run records nothing."""
    tokenizer, ends, named, words = CASES[case]
    model = f"{{huggingface: {changed(tmp_path / 'm', tokenizer, **ends)}{named}}}"
    file = write(tmp_path, SCENARIO.replace("MODEL", model))
    for command in (("plan", str(file)), ("run", str(file), "--out", str(tmp_path / "out"))):
        done = sbd_process(*command)
        assert done.returncode == EXIT_USER_ERROR
        assert re.search(words, " ".join(done.stderr.split())), done.stderr
    assert not (tmp_path / "out").exists()


def test_loading_refuses_what_the_files_alone_do_not_tell(tmp_path: Path) -> None:
    """An end that the tokenizer adds to those of the generation config; no weight is changed or decoded with."""
    folder = changed(tmp_path / "m", {"mask_token": None})
    (folder / "special_tokens_map.json").unlink(missing_ok=True)
    text = SCENARIO.replace("MODEL", f"{{huggingface: {folder}}}")
    [part] = Scenario.model_validate(yaml.safe_load(text), context={"base": tmp_path}).parts
    with pytest.raises(UnknownModelError, match="mask token is not known"):
        load_model(part)
    assert load_model(part.model_copy(update={"arms": part.arms[:1]})).mask_id is None, "next-token prediction needs none"


def test_training_refuses_before_it_answers_anything(tmp_path: Path) -> None:
    """Both kinds of training: a gated adapter, and all weights."""
    work = {"instructions": {"split": "train", "domains": ["lists"]}, "prompts": 2, "max_new_tokens": 4}
    recipe = {
        "version": 1,
        "name": "ids",
        "model": str(changed(tmp_path / "m", {})),
        "distill": {"workload": work},
        "adapter": {"mask_token_id": ROWS},
        "sequence_tokens": 64,
        "steps": 1,
        "batch_size": 1,
        "learning_rate": 0.01,
    }
    file, pairs = tmp_path / "r.yaml", tmp_path / "pairs.jsonl"
    file.write_text(json.dumps(recipe))
    pairs.write_text('{"prompt": "a", "solution": "b"}\n')
    whole = changed(tmp_path / "w", {"mask_token": "<eos>"})
    for options, words in (
        (("--recipe", str(file)), f"mask token is {ROWS}"),
        (("--model", str(whole), "--data", str(pairs)), "mask token is 1,"),
    ):
        done = sbd_process("train", *options, "--out", str(tmp_path / "out"), "--cpu")
        assert done.returncode == EXIT_USER_ERROR and words in " ".join(done.stderr.split()), done.stderr
        assert not (tmp_path / "out").exists()


def test_a_mask_without_a_token_and_an_arm_without_a_mask_are_fine() -> None:
    """Rows of padding, the begin token, an end beside others that are none; a negative id is never a row."""
    refuse_ids("m", ROWS - 1, {1}, ROWS)
    refuse_ids("m", 0, {1, ROWS + 5}, ROWS)
    refuse_ids("m", 0, {-1}, ROWS)
    refuse_ids("m", None, {1}, ROWS, needs_mask=False)
    for mask_id in (-1, ROWS, 1, None):
        with pytest.raises(UnknownModelError):
            refuse_ids("m", mask_id, {1}, ROWS)
