"""A file of prompts: one JSON object per line, and lines end at a newline alone."""

import pytest

from harness.errors import ScenarioError, UnknownModelError
from harness.training.fine_tuning import read_pairs
from harness.workloads.loader import PromptItem, refuse_unfit
from harness.workloads.prompts import Prompt, read_prompts

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
    refuse_unfit(items, 4, 16, 9)
    refuse_unfit(items, 10**6, None, 9)
    with pytest.raises(ScenarioError, match="long: 12 prompt \\+ 5 new tokens; the model has 16 positions"):
        refuse_unfit(items, 5, 16, 9)


def test_an_id_that_the_model_has_no_embedding_for_is_refused() -> None:
    """What a tokenizer.json of another model's post-processor adds; torch would end with an IndexError."""
    items = (PromptItem(prompt_id="own", ids=(1, 8)), PromptItem(prompt_id="foreign", ids=(1, 4_294_967_295)))
    refuse_unfit(items[:1], 4, 16, 9)
    with pytest.raises(UnknownModelError, match=r"foreign: .* writes the id 4294967295, .* 0 to 8; give"):
        refuse_unfit(items, 4, 16, 9)


@pytest.mark.parametrize(
    ("answer", "output", "is_correct"),
    [
        # Digit by digit, whatever the size: floats would take these for equal.
        ("9007199254740993", "It is 9007199254740992", False),
        ("7" * 4999 + "1", "7" * 5000, False),
        ("7" * 5000, "7" * 5000 + ".0", True),
        ("0.1", "0.1000000000000000055", False),
        ("1e400", "1e401", False),
        ("1e400", "10.0E+399", True),
        ("3", "1e3", False),
        # Exponents that would fill the memory if they were written out.
        ("7e999999999999999999", "5", False),
        ("7e99999999999999999999", "7/3", False),
        # How a number is written does not matter.
        ("1234567", "so $1,234,567.00.", True),
        ("1234567", "1\N{NARROW NO-BREAK SPACE}234\N{NO-BREAK SPACE}567", True),
        ("0.5", "p = .5", True),
        ("0.5", "2/4", True),
        ("50", "+50 %", True),
        ("-5", "x = \N{MINUS SIGN}5", True),
        ("-5", "\N{FULLWIDTH HYPHEN-MINUS}\N{FULLWIDTH DIGIT FIVE}", True),
        ("0", "-0.0", True),
        # A minus between two numbers is no sign, and a chain of numbers is not its last one.
        ("2031-07-15", "2030-06-15", False),
        ("2031-07-15", "on 2031-07-15.", True),
        ("30", "at 12:30", False),
        ("3", "10^3", False),
        ("23", "1,23", False),
        ("123", "0,123", False),
        ("2/3", "1/3", False),
        ("2", "between 1 and 2...", True),
        ("1", "not a number", False),
    ],
)
def test_numbers_are_compared_exactly_and_whole(answer: str, output: str, is_correct: bool) -> None:
    """Half of these were graded otherwise while the last digits were compared as floats."""
    assert Prompt(prompt="?", answer=answer, check="number").is_correct(output) is is_correct


@pytest.mark.parametrize("answer", ["nan", "Infinity", "none"])
def test_an_answer_that_is_no_number_is_refused(answer: str) -> None:
    """No output could be right."""
    with pytest.raises(ValueError, match="needs a number as answer"):
        Prompt(prompt="?", answer=answer, check="number")
