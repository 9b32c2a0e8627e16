"""A prompt of no tokens is refused by name, not decoded from padding."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.errors import ScenarioError
from harness.workloads.loader import prompt_items
from harness.workloads.spec import Workload


class Blind:
    """A tokenizer that sees letters only."""

    def encode(self, text: str) -> list[int]:
        """A token a letter."""
        return [ord(letter) for letter in text if letter.isalpha()]

    encode_chat = encode

    def decode(self, ids) -> str:
        """Letters."""
        return "".join(map(chr, ids))


def test_a_prompt_that_is_no_token_is_refused(tmp_path: Path) -> None:
    """Whatever stands in the file; the others are read."""
    file = tmp_path / "prompts.jsonl"
    file.write_text('{"prompt": "ab"}\n{"prompt": " "}\n')
    keys = {"prompts_file": str(file), "prompts": 2, "max_new_tokens": 4}
    workload = Workload.model_validate(keys, context={"base": tmp_path})
    [task] = workload.task_names
    with pytest.raises(ScenarioError, match=f"{task}/1: the tokenizer makes no token") as caught:
        prompt_items(workload, task, 1, Blind(), 300)
    assert caught.value.exit_code == 2
    one = workload.model_copy(update={"prompts": 1})
    assert [item.ids for item in prompt_items(one, task, 1, Blind(), 300)] == [(97, 98)]
