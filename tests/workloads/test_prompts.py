"""A file of prompts: one JSON object per line, and lines end at a newline alone."""

import pytest

from harness.engine.training.fine_tuning import read_pairs
from harness.errors import ScenarioError
from harness.workloads.loader import PromptItem, refuse_too_long
from harness.workloads.prompts import read_prompts

SEPARATORS = "a\u2028b\u2029c\x85d"


def test_unicode_line_separators_are_text_of_a_prompt(tmp_path):
    """JSON allows them unescaped in a string; str.splitlines would cut the line, and every later number would be off."""
    prompts, pairs = tmp_path / "prompts.jsonl", tmp_path / "pairs.jsonl"
    prompts.write_text(f'{{"prompt": "{SEPARATORS}"}}\r\n\n{{"prompt": "second"}}\n', encoding="utf-8")
    pairs.write_text(f'{{"prompt": "{SEPARATORS}", "solution": "{SEPARATORS}"}}\n', encoding="utf-8")
    assert [prompt.prompt for prompt in read_prompts(prompts)] == [SEPARATORS, "second"]
    assert read_pairs(pairs) == [(SEPARATORS, SEPARATORS)]


def test_a_prompt_that_is_too_long_is_refused_by_its_length() -> None:
    """With its answer it may have as many tokens as the model has positions, and not one more."""
    items = (PromptItem(prompt_id="short", ids=(1,)), PromptItem(prompt_id="long", ids=(1,) * 12))
    refuse_too_long(items, 4, 16)
    refuse_too_long(items, 10**6, None)
    with pytest.raises(ScenarioError, match="long: 12 prompt \\+ 5 new tokens; the model has 16 positions"):
        refuse_too_long(items, 5, 16)
