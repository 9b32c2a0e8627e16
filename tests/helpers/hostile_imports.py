"""Result files of other tools with one thing wrong: sizes, nesting, times of zero, and keys with a value of another kind.

They begin as the files of tests/data/imports, which the tools wrote. ``HOSTILE`` is a list for each tool.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

from tests.helpers import ROOT
from tests.helpers.hostile_files import FILLINGS, REFUSED, Hostile, Plant, repeated

IMPORTS = ROOT / "tests" / "data" / "imports"
MARK, HERE = "hstl7", b'"HERE"'
PLAIN, FAST = "plain", "fast"
"""The two files of a case, by their names without an end; FAST is the one that is changed."""


@dataclass(frozen=True)
class Tool:
    """Where its two files lie, and the keys of one request whose text or list a case replaces."""

    name: str
    plain: str
    fast: str
    text: tuple[Any, ...]
    gaps: tuple[Any, ...]

    @property
    def file(self) -> str:
        """The name of the changed file in a case."""
        return FAST + Path(self.fast).suffix


TOOLS = (
    Tool("vllm", "vllm-plain-1.json", "vllm-ngram-1.json", ("model_id",), ("itls",)),
    Tool(
        "aiperf",
        "aiperf-plain.jsonl",
        "aiperf-ngram.jsonl",
        (0, "metadata", "worker_id"),
        (0, "metrics", "inter_chunk_latency", "value"),
    ),
    Tool(
        "guidellm",
        "guidellm-plain.json",
        "guidellm-ngram.json",
        ("metadata", "guidellm_version"),
        ("benchmarks", 0, "requests"),
    ),
    Tool("sglang", "sglang-plain.jsonl", "sglang-ngram.jsonl", (0, "backend"), (0, "itls")),
)


def tree_of(file: Path) -> Any:
    """The file as data: a list of its lines where it has several values."""
    text = file.read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()] if file.suffix == ".jsonl" else json.loads(text)


def text_of(tree: Any, suffix: str) -> bytes:
    """The bytes of such a file."""
    lines = tree if suffix == ".jsonl" and isinstance(tree, list) else [tree]
    return "".join(f"{json.dumps(line)}\n" for line in lines).encode()


def _put(tree: Any, way: tuple[Any, ...], value: Any) -> None:
    for one in way[:-1]:
        tree = tree[one]
    tree[way[-1]] = value


def _changed(tool: Tool, change: Callable[[Any], object]) -> Plant:
    def plant(folder: Path, chance: Random) -> None:
        tree = tree_of(IMPORTS / tool.fast)
        change(tree)
        (folder / tool.file).write_bytes(text_of(tree, Path(tool.fast).suffix))

    return plant


def _filled(tool: Tool, way: tuple[Any, ...], head: bytes, piece: bytes, size: int, tail: bytes) -> Plant:
    """A value of about ``size`` bytes in the place of a key."""

    def plant(folder: Path, chance: Random) -> None:
        tree = tree_of(IMPORTS / tool.fast)
        _put(tree, way, "HERE")
        before, _, after = text_of(tree, Path(tool.fast).suffix).partition(HERE)
        repeated(folder / tool.file, before + head, piece, size, tail + after)

    return plant


def _leaves(of: type, value: Any, tree: Any) -> None:
    """Every value of that very type is this one."""
    for key, one in list(tree.items() if isinstance(tree, dict) else enumerate(tree)):
        if isinstance(one, dict | list):
            _leaves(of, value, one)
        elif type(one) is of:
            tree[key] = value


def _lists(change: Callable[[list[Any]], object], tree: Any) -> None:
    """Every list of the tree changed, the inner ones first."""
    for value in tree.values() if isinstance(tree, dict) else tree:
        if isinstance(value, dict | list):
            _lists(change, value)
    if isinstance(tree, list):
        change(tree)


def _more(times: int, tree: Any) -> None:
    """So many times the requests; of a tool with one object a run, in each of its lists."""
    if isinstance(tree, list):
        tree *= times
    else:
        _lists(lambda one: one.__imul__(times) if len(one) > 1 else None, tree)


def _lines(tool: Tool, piece: bytes, size: int, sound: bool) -> Plant:
    """Lines without end, behind a sound file or none."""

    def plant(folder: Path, chance: Random) -> None:
        head = text_of(tree_of(IMPORTS / tool.fast), Path(tool.fast).suffix) if sound else b""
        repeated(folder / tool.file, head, piece, size)

    return plant


def _of(tool: Tool) -> Iterator[Hostile]:
    one = partial(Hostile, names=tool.file)
    trees: dict[str, Callable[[Any], object]] = {
        "all times are zero": partial(_leaves, float, 0.0),
        "all times are equal": partial(_leaves, float, 0.25),
        "no list holds anything": partial(_lists, list.clear),
        "every list lacks its last": partial(_lists, lambda found: found and found.pop()),
        "every list is twice as long": partial(_more, 2),
        "every list holds its first": partial(_lists, _only_first),
        "every list is in reverse": partial(_lists, list.reverse),
        **{f"all texts are {text[:12]!r}": partial(_leaves, str, text) for text in TEXTS},
        **{f"all counts are {value!r}": partial(_leaves, int, value) for value in COUNTS},
    }
    for what, change in trees.items():
        yield one(f"{tool.name}: {what}", _changed(tool, change))
    yield one(f"{tool.name}: a few thousand requests", _changed(tool, partial(_more, 300)))
    for where, way in (("a text", tool.text), ("gaps", tool.gaps), ("an unknown key", (*tool.text[:-1], "unknown"))):
        for what, (head, piece, size, tail) in VALUES.items():
            yield one(f"{tool.name}: {where}: {what}", _filled(tool, way, head, piece, size, tail))
    for what, piece, size in (
        ("empty objects", b"{}\n", 3_000_000),
        ("empty lines", b"\n", 5_000_000),
        ("nulls", b"null\n", 5_000_000),
        ("texts", b'"hstl7"\n', 1_000_000),
    ):
        for sound in (True, False):
            fits = frozenset({0, 2}) if what == "empty lines" and sound else REFUSED
            text = f"{tool.name}: a million lines of {what}{' behind a sound file' if sound else ''}"
            yield one(text, _lines(tool, piece, size, sound), exits=fits)


def _only_first(found: list[Any]) -> None:
    del found[1:]


TEXTS = ("", "\ud800", "\x1b[31mhstl7\n::error::hstl7", "x" * 100_000, "\x00", "../../outside", "</script><hstl7>", "9" * 400)
COUNTS = (-1, 0, 10**7, 2**63, 10**30, 1.5, "7", None, True)
VALUES = FILLINGS | {
    "10 million empty lists": (b"[", b"[],", 30_000_000, b"[]]"),
    "80 open lists": (b"[" * 80, b" ", 1, b"]" * 80),
    "a text of 20 MB": (b'"', b"x", 20_000_000, b'"'),
    "a number beyond all": (b"1e999", b" ", 1, b""),
    "a million zeros": (b"[", b"0,", 2_000_000, b"0]"),
    "a million empty objects": (b"[", b"{},", 3_000_000, b"{}]"),
    "the same key twice": (b'0, "hstl7": 1, "hstl7": ', b" ", 1, b"2"),
}
HUGE = {
    "80 million empty lists": (b"[", b"[],", 240_000_000, b"[]]"),
    "a text of 240 MB": (b'"', b"x", 240_000_000, b'"'),
    "100 million zeros": (b"[", b"0,", 200_000_000, b"0]"),
}
"""As VALUES, as large as a file may be."""
HOSTILE: dict[str, list[Hostile]] = {tool.name: list(_of(tool)) for tool in TOOLS}
LARGEST: list[tuple[Tool, Hostile]] = [
    (tool, Hostile(f"{tool.name}: {what}", _filled(tool, (*tool.text[:-1], "unknown"), *filling), names=tool.file))
    for what, filling in HUGE.items()
    for tool in TOOLS
]
