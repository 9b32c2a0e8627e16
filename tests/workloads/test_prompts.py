"""A file of prompts: one JSON object per line, and lines end at a newline alone."""

from harness.engine.training.fine_tuning import read_pairs
from harness.workloads.prompts import read_prompts

SEPARATORS = "a\u2028b\u2029c\x85d"


def test_unicode_line_separators_are_text_of_a_prompt(tmp_path):
    """JSON allows them unescaped in a string; str.splitlines would cut the line, and every later number would be off."""
    prompts, pairs = tmp_path / "prompts.jsonl", tmp_path / "pairs.jsonl"
    prompts.write_text(f'{{"prompt": "{SEPARATORS}"}}\r\n\n{{"prompt": "second"}}\n', encoding="utf-8")
    pairs.write_text(f'{{"prompt": "{SEPARATORS}", "solution": "{SEPARATORS}"}}\n', encoding="utf-8")
    assert [prompt.prompt for prompt in read_prompts(prompts)] == [SEPARATORS, "second"]
    assert read_pairs(pairs) == [(SEPARATORS, SEPARATORS)]
