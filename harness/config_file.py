"""The base of every value a user writes (StrictModel), and YAML read safely with the line of every key.

A value is frozen, and an unknown key is refused by name with the nearest known one. The number types refuse silent conversions
("3", true and 3.0 are not whole numbers). The lines let a message point at what the user wrote. A key that is an axis of the
plan takes one value or a list of distinct values.
"""

from __future__ import annotations

import difflib
import json
import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from operator import not_
from pathlib import Path
from typing import Annotated, Any, TypeVar

import yaml
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    StringConstraints,
    TypeAdapter,
    ValidationError,
    ValidationInfo,
    model_validator,
)
from pydantic_core import ErrorDetails, PydanticCustomError

from harness.errors import LONGEST_SHOWN, SbdError, ScenarioError, in_words
from harness.frozen import positional

T = TypeVar("T")
Count = Annotated[int, Field(strict=True, ge=1)]
CountOrZero = Annotated[int, Field(strict=True, ge=0)]
NonNegative = Annotated[float, Field(strict=True, ge=0, allow_inf_nan=False)]
Share = Annotated[float, Field(strict=True, ge=0, le=1, allow_inf_nan=False)]
Flag = Annotated[bool, Field(strict=True)]
Text = Annotated[str, StringConstraints(min_length=1)]
# Names end up in case ids, file names and URLs.
Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$", max_length=64)]


class StrictModel(BaseModel):
    """A frozen value without unknown keys or infinite figures. The text below a field is its description in the JSON schema."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, use_attribute_docstrings=True)

    @model_validator(mode="before")
    @classmethod
    def _refuse_unknown_keys(cls, data: Any) -> Any:
        """Name the key and the nearest allowed one; pydantic's own message knows neither."""
        if not isinstance(data, Mapping):
            return data
        allowed = list(cls.model_fields)
        for key in data:
            if key not in allowed:
                near = difflib.get_close_matches(str(key), allowed, n=1)
                hint = f"did you mean {near[0]!r}?" if near else "remove it"
                raise PydanticCustomError(
                    "unknown_key",
                    "unknown key {key}; allowed here: {allowed}; {hint}",
                    {"key": str(key), "allowed": ", ".join(allowed), "hint": hint},
                )
        return data


Younger = Field(exclude_if=lambda value: value is None)
"""Of a key that came after version 1 of its format: left out where it is None, so that digests of older files do not change."""
YoungerMany = Field(exclude_if=not_)
"""The same of a flag or a collection: left out where it is false or empty."""


def folder_of(info: ValidationInfo) -> Path | None:
    """The folder of the file that is read; None for a recorded value, whose files are not looked up again."""
    base: Path | None = (info.context or {}).get("base")
    return base


def named_by_key(*kinds: str, message: str, error_type: str = "unknown_key") -> Discriminator:
    """A discriminator for a union whose members have one key each: the first of ``kinds`` present."""

    def kind_of(value: Any) -> str | None:
        keys = type(value).model_fields if isinstance(value, StrictModel) else value
        return next((kind for kind in kinds if isinstance(keys, Mapping) and kind in keys), None)

    return Discriminator(kind_of, custom_error_type=error_type, custom_error_message=message)


MOST_VALUES = 100_000
MOST_BYTES = 4 << 20
MOST_TEXT = 64 << 20
MOST_PARSED = 400 << 20
COSTS = {b",": 40, b"[": 80, b"{": 180, b'"': 38}
"""Bytes of memory that the value or text at such a sign takes, at most, once it is parsed."""
LONGEST_NUMBER = 300
"""Characters of a number; no figure has as many."""
DEEPEST = 100
_TAG = "tag:yaml.org,2002:"
_ALIKE = {"true", "false", ".inf", ".nan"}
_NUMBERS_OF_1_2: tuple[tuple[re.Pattern[str], Callable[[str], Any]], ...] = (
    (re.compile(r"[-+]?[0-9]+"), int),
    (re.compile(r"0o[0-7]+"), lambda text: int(text[2:], 8)),
    (re.compile(r"0x[0-9a-fA-F]+"), lambda text: int(text, 16)),
    (re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?"), float),
)
"""Every spelling of a finite number in YAML 1.2. Source: its core schema, https://yaml.org/spec/1.2.2/#1032-tag-resolution."""


@positional
class YamlDocument:
    """One parsed file: ``data`` is plain Python, ``root`` the node tree that knows the lines. ``refusal``: of what it holds."""

    file: Path
    data: Any
    root: yaml.Node
    refusal: type[SbdError]

    def value(self, kind: type[T], context: dict[str, object] | None = None) -> T:
        """The value of that kind that the file holds; ``context``: for its validators.

        Raises:
            ``refusal``: it holds none; ``file:line: key: given, allowed, what to do`` per mistake.
        """
        try:
            return TypeAdapter(kind).validate_python(self.data, context=context)
        except ValidationError as error:
            raise self.refusal(*self.describe(error)) from error

    def line_of(self, location: Sequence[str | int]) -> int:
        """Line (from 1) of the innermost key of ``location`` that the file has; missing parts are skipped."""
        return [self.root.start_mark.line, *(line for _, line in self._found(location))][-1] + 1

    def describe(self, error: ValidationError) -> list[str]:
        """Every error of pydantic as ``file:line: where.the.key: what was given, what is allowed, what to do``."""
        every = error.errors(include_url=False)
        # A list whose items were all refused is also reported as empty: report only what the user can correct.
        wanted = [details for details in every if details["type"] != "too_short" or not details["input"]]
        return [self._describe_one(details) for details in wanted or every]

    def _describe_one(self, details: ErrorDetails) -> str:
        location = [*details["loc"], *([details["ctx"]["key"]] if "key" in details.get("ctx", {}) else [])]
        parts = [part for part, _ in self._found(location)]  # pydantic also names the branches of its unions
        if details["type"] == "missing" and parts[-1:] != location[-1:]:
            parts.append(location[-1])
        return f"{self.file}:{self.line_of(location)}: {'.'.join(map(str, parts)) or 'the file'}: {in_words(details)}"

    def _found(self, location: Sequence[str | int]) -> Iterator[tuple[str | int, int]]:
        """The parts of ``location`` that are in the file, with their lines (from 0)."""
        node = self.root
        for part in location:
            child = _child(node, part)
            if child is not None:
                node, line = child
                yield part, line


class _YamlLoader(yaml.SafeLoader):
    """Refuses what is deep, long, tagged, twice, or another value to PyYAML (YAML 1.1) than to a reader; joins surrogate pairs.

    The work of PyYAML grows with the square of the depth, so deep files seem to hang. JSON writes a character beyond U+FFFF as
    a surrogate pair, which YAML reads as two characters.
    """

    composed = 0
    """Values that were written so far."""
    values = 0.0
    """The same with what aliases stand for: infinite where one of them is inside itself."""

    def __init__(self, stream: str) -> None:
        super().__init__(stream)
        self._sizes: dict[int, float] = {}  # values of every whole node, by its id

    def fetch_flow_collection_start(self, TokenClass: Any) -> None:
        if self.flow_level >= DEEPEST:
            raise _refused(f"more than {DEEPEST} lists inside each other; nest less deeply", self.get_mark())
        super().fetch_flow_collection_start(TokenClass)

    def compose_node(self, parent: Any, index: Any) -> yaml.Node | None:
        event, self.composed, before = self.peek_event(), self.composed + 1, self.values  # type: ignore[no-untyped-call]
        if self.composed > MOST_VALUES:
            raise _refused(f"more than {MOST_VALUES:,} values; write fewer", event.start_mark)
        if getattr(event, "tag", None) is not None:
            raise _refused(f"the tag {event.tag[:LONGEST_SHOWN]} is not read here; remove it", event.start_mark)
        node: yaml.Node | None = super().compose_node(parent, index)
        self.values += self._sizes.get(id(node), math.inf) if isinstance(event, yaml.AliasEvent) else 1
        self._sizes[id(node)] = self.values - before
        if parent is None and self.values > MOST_VALUES:
            raise _refused(f"its aliases stand for more than {MOST_VALUES:,} values; write out what is meant", event.start_mark)
        return node

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        """Refuse a key given twice, where YAML silently keeps the later one, and a key that is no text."""
        node: yaml.MappingNode = super().compose_mapping_node(anchor)
        first: dict[str, int] = {}
        for key, _ in node.value:
            if key.tag not in {f"{_TAG}str", f"{_TAG}merge"}:
                raise _refused("a key here is no text; put it in quotes, or remove it", key.start_mark)
            if key.value in first:
                words = f"{key.value}: the key is given twice, first on line {first[key.value]}; keep one"
                raise _refused(words, key.start_mark)
            first[key.value] = key.start_mark.line + 1
        return node

    def compose_scalar_node(self, anchor: Any) -> yaml.ScalarNode:
        plain = self.peek_event().implicit[0]  # type: ignore[no-untyped-call]
        node: yaml.ScalarNode = super().compose_scalar_node(anchor)
        try:
            node.value = node.value.encode("utf-16", "surrogatepass").decode("utf-16")
        except UnicodeDecodeError as error:
            raise _refused("half of a surrogate pair (\\ud800 to \\udfff) is no character", node.start_mark) from error
        if plain and node.tag.removeprefix(_TAG) not in {"null", "merge"}:
            self._read_one_way(node)
        return node

    def _read_one_way(self, node: yaml.ScalarNode) -> None:
        """Read 1e3 as the number it is, and refuse 010 (8, or 10), 1:30 (90, or text), yes (true, or text) and such."""
        text, kind = node.value, node.tag.removeprefix(_TAG)
        reads = next((reads for spelling, reads in _NUMBERS_OF_1_2 if spelling.fullmatch(text)), None)
        if len(text) > LONGEST_NUMBER and (reads or kind != "str"):
            raise _refused(f"a number of {len(text):,} characters; write at most {LONGEST_NUMBER}", node.start_mark)
        old = self.construct_object(node) if kind in {"int", "float", "bool"} else text
        new = reads(text) if reads else old if text.lower().lstrip("+-") in _ALIKE else text
        if kind == "str" and reads is float:
            node.tag = f"{_TAG}float"
        elif repr(old) != repr(new) or kind not in {"str", "int", "float", "bool"}:
            written = " or ".join(dict.fromkeys(map(_spelt, (old, new))))
            raise _refused(f"{text} is not the same in YAML 1.1 and 1.2; write {written}", node.start_mark)


class _Refused(yaml.MarkedYAMLError):
    """Valid YAML that is not read here."""


def _refused(problem: str, mark: Any) -> _Refused:
    return _Refused(problem=problem, problem_mark=mark)


def _spelt(value: Any) -> str:
    """A text, number or flag as every reader of YAML reads it."""
    return re.sub(r"^(-?\d+)e", r"\1.0e", json.dumps(value, ensure_ascii=False))


def read_text(file: Path, what: str, refusal: type[SbdError] = ScenarioError, most_bytes: int = MOST_TEXT) -> str:
    """The text of a file in UTF-8. Raises ``refusal`` as read_bytes, or where its values, as JSON, would not fit the memory."""
    data = read_bytes(file, what, refusal, most_bytes)
    if (needed := needed_bytes(data)) > MOST_PARSED:
        raise refusal(f"{file}:1: its values would need {needed >> 20} MiB of {MOST_PARSED >> 20}; split the file")
    try:
        return data.decode()
    except ValueError as error:
        raise refusal(f"{file}:1: cannot read the {what}: it is not UTF-8 text; give the path of a readable file") from error


def read_bytes(file: Path, what: str, refusal: type[SbdError], most_bytes: int) -> bytes:
    """The contents of a regular file; ``what`` it is, in messages. Raises ``refusal``: it is none, or has more bytes."""
    try:
        if file.exists() and not file.is_file():  # a pipe would be waited for, a device never ends
            raise OSError(0, "it is no regular file")
        with file.open("rb") as opened:
            data = opened.read(most_bytes + 1)
        if len(data) > most_bytes:
            raise OSError(0, f"it has more than {most_bytes:,} bytes; split it")
        return data
    except (OSError, ValueError) as error:
        why = f"cannot read the {what}: {getattr(error, 'strerror', None) or error}"
        raise refusal(f"{file}:1: {why}; give the path of a readable file") from error


def needed_bytes(text: bytes) -> int:
    """Of memory, for the values of a JSON text, at most; the letters of its texts come on top."""
    return sum(text.count(sign) * cost for sign, cost in COSTS.items())


def read_yaml(
    file: Path, refusal: type[SbdError] = ScenarioError, when_empty: str = "write a scenario (start from `sbd schema`)"
) -> YamlDocument:
    """Read one YAML document.

    Raises:
        ``refusal``: the file cannot be read, is not YAML, is empty, or names a key twice; the message has file and line.
    """
    return parse_yaml(read_text(file, "file", refusal, MOST_BYTES), file, refusal, when_empty)


def parse_yaml(text: str, file: Path, refusal: type[SbdError] = ScenarioError, when_empty: str = "write it") -> YamlDocument:
    """Read YAML that is here already; ``file`` stands for it in messages. Raises as read_yaml does."""
    try:
        root = yaml.compose(text, Loader=_YamlLoader)
        if root is None:
            raise refusal(f"{file}:1: the file is empty; {when_empty}")
        # Merging changes nodes, so a text with a merge key is read again.
        data = yaml.load(text, Loader=_YamlLoader) if "<<" in text else _YamlLoader("").construct_document(root)
        return YamlDocument(file=file, data=data, root=root, refusal=refusal)
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        mark = getattr(error, "problem_mark", None)
        line = mark.line + 1 if mark else 1
        problem = getattr(error, "problem", None) or str(error).partition("\n")[0]
        if isinstance(error, _Refused):
            raise refusal(f"{file}:{line}: {problem}") from error
        raise refusal(f"{file}:{line}: not valid YAML: {problem}; check indentation, colons and quotes") from error


def _child(node: yaml.Node, part: str | int) -> tuple[yaml.Node, int] | None:
    """The node below ``node`` under a key or index, with the line (from 0) where its key or item starts."""
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if key.value == str(part):
                return value, key.start_mark.line
    if isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
        return node.value[part], node.value[part].start_mark.line
    return None


def as_list(value: Any) -> Any:
    """One value as a list of one."""
    return value if isinstance(value, list | tuple) else (value,)


def distinct(values: tuple[T, ...]) -> tuple[T, ...]:
    """The values, none of them twice.

    Raises:
        ValueError: a value is given twice.
    """
    repeated = sorted(str(value) for value, count in Counter(values).items() if count > 1)
    if repeated:
        raise ValueError(f"{', '.join(repeated)} given twice; name each value once")
    return values


def one_or_several(kind: Any) -> tuple[Any, ...]:
    """What makes a tuple of ``kind`` an axis: one value or a list of distinct ones."""
    return Field(min_length=1), BeforeValidator(as_list, json_schema_input_type=kind | list[kind]), AfterValidator(distinct)


Counts = Annotated[tuple[Count, ...], *one_or_several(Count)]
Numbers = Annotated[tuple[NonNegative, ...], *one_or_several(NonNegative)]
Shares = Annotated[tuple[Share, ...], *one_or_several(Share)]
