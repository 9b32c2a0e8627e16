"""Prompts from a file of JSON lines, or of one JSON array, and how to check an answer to one of them.

One object each: {"prompt": "...", "answer": "...", "check": "exact" | "contains" | "number" | "none", "pattern": "..."}.
Without an answer nothing is checked. In the place of the prompt may stand a conversation, in OpenAI's form (messages of role
and content) or in ShareGPT's (conversations of from and value). Its prompt is everything up to the last user turn; what was
written after that turn is left out, as are keys of other programs. A workload may name one more field, which says what
prompts are related. What a model wrote is never executed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from decimal import Decimal
from fractions import Fraction
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, ValidationError, model_validator

from harness.config_file import StrictModel, Text, read_text
from harness.errors import ScenarioError, first_mistake

MOST_ROWS = 100_000
Check = Literal["exact", "contains", "number", "none"]
_ROLES = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "human": "user",
    "assistant": "assistant",
    "gpt": "assistant",
}
"""Who says a turn, by the words of OpenAI and of ShareGPT."""
_ARRAY, _BETWEEN = re.compile(r"^(\s*)\[(.*)\]\s*$", re.DOTALL), re.compile(r"[\s,]*")
_MINUS = dict.fromkeys(map(ord, "\u2010\u2011\u2012\u2013\u2212\ufe63\uff0d"), "-")
_GAP = r"['\u2019\xa0\u2009\u202f]"
_NUMBER = re.compile(rf"(?:(?<![\w)])-)?(?:\d+|(?<![\w.])\.\d+)(?:(?:[-,.:/^*]|{_GAP}(?=\d{{3}}(?!\d))|[eE][-+]?)\d+)*")
"""A number, or a chain of them, such as a date; a minus after a word or a number is no sign."""
_IN_GROUPS = re.compile(rf"-?(?!0)\d{{1,3}}(?:(?:,|{_GAP})\d{{2,3}})*(?:,|{_GAP})\d{{3}}(?:\.\d+)?")


def _regex(pattern: str) -> str:
    try:
        groups = re.compile(pattern).groups
    except re.error as error:
        raise ValueError(f"{pattern!r} is not a regular expression: {error}") from error
    if groups > 1:
        raise ValueError(f"{pattern!r} has {groups} groups; bracket only what counts, and the rest with (?:...)")
    return pattern


Pattern = Annotated[Text, AfterValidator(_regex)]
"""A regular expression of at most one group: the last match of the group, or else of the whole, counts."""


class Prompt(StrictModel):
    """One line of the file."""

    prompt: Text
    """The text; of a conversation, for a model without a chat template, its turns with a blank line between them."""
    turns: tuple[dict[str, str], ...] = ()
    """Role and content of every turn of a conversation; filled in."""
    answer: str | None = None
    """The right answer. Left out: nothing is checked."""
    check: Check | None = None
    """How: exact, contains, number or none. Left out: exact with an answer, none without."""
    pattern: Pattern | None = None
    """Regular expression for the part of the output that is checked, its last match. Left out: all of it."""
    cluster: str | None = None
    """What the prompt shares with related ones, such as a document; filled in from the field that the workload names."""

    @model_validator(mode="after")
    def _answer_and_check_agree(self) -> Prompt:
        if self.answer is None and self.check not in {None, "none"}:
            raise ValueError(f'check {self.check!r} needs an "answer"; add one or write "check": "none"')
        if self.answer is not None and self.check == "number" and _last_number(self.answer) is None:
            raise ValueError(f"check 'number' needs a number as answer, got {self.answer[:200]!r}")
        if self.pattern is not None and (self.answer is None or self.check == "none"):
            raise ValueError('"pattern" picks what is checked, but nothing is: add an "answer", or remove it')
        return self

    def is_correct(self, output: str) -> bool | None:
        """Whether ``output`` answers the prompt; None if nothing can be checked.

        exact: the same text, white space around it aside; contains: the answer occurs in the output;
        number: the last number written has exactly the answer's value; dates and the like are compared as text.
        Output without a match of ``pattern`` is no answer.
        """
        if self.answer is None or self.check == "none":
            return None
        if self.pattern is not None:
            picked = last_match(self.pattern, output)
            if picked is None:
                return False
            output = picked
        if self.check == "number":
            return _last_number(output) == _last_number(self.answer)
        if self.check == "contains":
            return self.answer in output
        return output.strip() == self.answer.strip()


def read_prompts(file: Path, cluster: str | None = None) -> tuple[Prompt, ...]:
    """Read all prompts of a file; blank lines are skipped. ``cluster``: the field that says which are related.

    Raises:
        ScenarioError: the file cannot be read, holds no prompt, or has a bad line (named as ``file:line``), such as one
            without the field ``cluster``.
    """
    rows = islice(json_values(file, read_text(file, "prompts")), MOST_ROWS + 1)
    prompts = tuple(_read_row(f"{file}:{line}", row, cluster) for line, row in rows)
    if len(prompts) > MOST_ROWS:
        raise ScenarioError(f"{file}: holds more than {MOST_ROWS:,} prompts; give a file of those that are to be decoded")
    if not prompts:
        raise ScenarioError(f'{file}: holds no prompt; write at least one line such as {{"prompt": "2+2="}}')
    return prompts


def last_match(pattern: str, text: str) -> str | None:
    """What the group of the last match of ``pattern`` in ``text`` holds, or the whole match without a group; None: no match."""
    matches = list(re.finditer(pattern, text))
    return (matches[-1].group(matches[-1].re.groups) or "") if matches else None


def cluster_of(row: Mapping[str, object], field: str | None, where: str) -> str | None:
    """The cluster of ``row`` (a line of a file, a row of a dataset; ``where`` in messages); None where no field names one.

    Raises:
        ScenarioError: it has no such field, or one that is neither text nor a whole number.
    """
    if field is None:
        return None
    if isinstance(row.get(field), str | int):
        return str(row[field])
    what = f"has no field {field!r}"
    if field in row:
        what = f"{field!r} is {type(row[field]).__name__}, not text or a whole number"
    raise ScenarioError(f"{where}: {what}, and cluster: names it; give it in every row, or remove cluster: from the workload")


def json_values(file: Path, text: str, number: Callable[[str], Any] = float) -> Iterator[tuple[int, Any]]:
    """Each value of JSON lines or of one array, with the line (from 1) on which it begins. ``number``: of a text with a point.

    Raises:
        ScenarioError: it is no JSON.
    """
    text, at, end, line = _ARRAY.sub(r"\1 \2", text), 0, 0, 1
    while (begin := next(_BETWEEN.finditer(text, end)).end()) < len(text):
        line, at = line + text.count("\n", at, begin), begin
        try:
            row, end = json.JSONDecoder(parse_float=number).raw_decode(text, at)
        except (ValueError, RecursionError) as error:
            raise ScenarioError(f'{file}:{line}: not JSON: {error}; write one object per line: {{"prompt": "..."}}') from error
        yield line, row


def _read_row(where: str, row: Any, cluster: str | None) -> Prompt:
    try:
        if not isinstance(row, dict):
            return Prompt.model_validate(row)
        if "cluster" in row and cluster != "cluster":
            raise ScenarioError(f'{where}: "cluster" is read only where the workload says cluster: cluster; rename it')
        label = cluster_of(row, cluster, where)
        turns = None if "prompt" in row else row.get("messages", row.get("conversations"))
        kept = row if turns is None else _conversation(turns, where) | row
        own = {key: value for key, value in kept.items() if key in Prompt.model_fields or (turns is None and key != cluster)}
        return Prompt.model_validate(own | {"cluster": label})
    except ValidationError as error:
        raise ScenarioError(f"{where}: {first_mistake(error, 'the line')}") from error


def _conversation(said: Any, where: str) -> dict[str, object]:
    """The prompt and the turns of a conversation up to its last user turn. Raises ScenarioError."""
    turns, turn = list[dict[str, str]](), said
    try:
        for turn in said:
            text = turn.get("content", turn.get("value"))
            content = text if isinstance(text, str) else "".join(part["text"] for part in text)
            turns.append({"role": _ROLES[turn.get("role", turn.get("from"))], "content": content})
        del turns[max(at for at, one in enumerate(turns, start=1) if one["role"] == "user") :]
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ScenarioError(
            f"{where}: got {str(turn)[:200]}; a conversation is turns of text, one of them the user's, each by one of "
            f"{', '.join(_ROLES)}; mend it, or leave the row out"
        ) from error
    return {"turns": turns, "prompt": "\n\n".join(turn["content"] for turn in turns)}


def _last_number(text: str) -> Decimal | Fraction | str | None:
    """Its value, or itself where it has none, as a date; None: there is no number."""
    numbers = _NUMBER.findall(text.translate(_MINUS))
    if not numbers:
        return None
    last: str = numbers[-1]
    if _IN_GROUPS.fullmatch(last):
        last = re.sub(r"[^-.\d]", "", last)
    with suppress(ArithmeticError, ValueError):
        return Fraction(last) if "/" in last else Decimal(last)  # of an exponent, a Fraction makes all digits
    return last
