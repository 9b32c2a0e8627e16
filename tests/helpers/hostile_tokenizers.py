"""Tokenizers of model folders: patterns that never end, steps that grow a text, ids beyond all.

A tokenizer.json is a program of its own, with settings that its library dies of. Each change begins with a sound folder.
"""

from __future__ import annotations

import json
import re
import reprlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any

from tests.helpers.hostile_files import Plant

TOKENIZER, SETTINGS = "tokenizer.json", "tokenizer_config.json"
Tree = dict[str, Any]


def _replaced(pattern: str, content: str) -> Tree:
    return {"type": "Replace", "pattern": {"String": pattern}, "content": content}


def _sequence(kind: str, steps: list[Tree]) -> Tree:
    return {"type": "Sequence", kind: steps}


def _split(pattern: str, behavior: str = "Isolated") -> Tree:
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": behavior, "invert": False}


def _template(single: list[Tree], pair: Sequence[Tree] = (), special: Tree | None = None) -> Tree:
    return {"type": "TemplateProcessing", "single": single, "pair": [*pair], "special_tokens": special or {}}


def _begun(token: Tree) -> Tree:
    """A text begins with the special token x."""
    first, second = ({"Sequence": {"id": one, "type_id": 0}} for one in "AB")
    return _template([{"SpecialToken": {"id": "x", "type_id": 0}}, first], [first, second], {"x": {"id": "x", **token}})


def _nested(kind: str, step: str, depth: int) -> str:
    """Stands for steps within steps; written out as text, because no library would."""
    return f"@{kind}/{step}/{depth}@"


def long(text: str) -> str:
    """``@x*9@`` stands for nine of x: texts of many megabytes are made where they are written."""
    return re.sub(r"@([^@]{1,20})\*(\d+)@", lambda found: found[1] * int(found[2]), text)


def _written_out(found: re.Match[str]) -> str:
    kind, step, depth = found.groups()
    return f'{{"type": "Sequence", "{kind}": [' * int(depth) + f'{{"type": "{step}"}}' + "]}" * int(depth)


PATTERNS = (
    r"(\w+)+$",
    r"(a|aa)+$",
    r"(.*)*x",
    r"(?:(?:\w+\s?)+)+!$",
    r"(x+x+)+y",
    r"(?=(\w+))\1+$",
    r"((\w*)*)*$",
    r"(?<=a{1,1000})b",
    r"(\w{0,999}){0,999}$",
    r"(",
    r"\p{hstl}",
    r"(?R)",
    "(" * 5000 + "a" + ")" * 5000,
    "a{100000}{100000}",
    "",
    "\ud800",
    r"\G",
    r"(?i:ß)+" * 2000,
)
GROWN: tuple[Any, ...] = (
    _sequence("normalizers", [_replaced("e", "e" * 200)] * 8),
    _sequence("normalizers", [_replaced("", "x" * 1000)] * 6),
    _sequence("normalizers", [{"type": "Prepend", "prepend": "@x*1000000@"}] * 100),
    _replaced("e", "@x*20000000@"),
    _sequence("normalizers", [_replaced("e", "ee")] * 40),
    _sequence("normalizers", [{"type": "NFKD"}, _replaced("e", "\ufdfa" * 9)] * 20),
    {"type": "Precompiled", "precompiled_charsmap": "AAAA"},
    {"type": "Precompiled", "precompiled_charsmap": "/////wAAAAA="},
    {"type": "Replace", "pattern": {"Regex": r"(\w+)+$"}, "content": "x"},
    _nested("normalizers", "NFC", 100),
    _nested("normalizers", "NFC", 10_000),
    {"type": "hstl"},
    {"type": "Strip"},
    [],
    7,
    _sequence("normalizers", [{"type": "NFC"}] * 50_000),
)
DECODERS: tuple[Any, ...] = (
    _sequence("decoders", [_replaced("e", "e" * 200)] * 8),
    _sequence("decoders", [_replaced("a", "aa")] * 60),
    _replaced("", "@x*10000000@"),
    {"type": "Strip", "content": "a", "start": 2**63, "stop": 2**63},
    {"type": "Strip", "content": "a", "start": 2**32, "stop": 0},
    {"type": "WordPiece", "prefix": "", "cleanup": True},
    {"type": "CTC", "pad_token": "", "word_delimiter_token": "", "cleanup": True},
    {"type": "BPEDecoder", "suffix": "@x*10000000@"},
    {"type": "Metaspace", "replacement": "ab", "prepend_scheme": "always"},
    {"type": "Metaspace", "replacement": "", "prepend_scheme": "hstl"},
    _nested("decoders", "Fuse", 10_000),
    {"type": "ByteFallback"},
    {"type": "hstl"},
    _sequence("decoders", []),
)
PROCESSORS: tuple[Any, ...] = (
    _template([{"SpecialToken": {"id": "hstl", "type_id": 0}}]),
    _template([{"Sequence": {"id": "A", "type_id": 0}}] * 1000),
    _begun({"ids": [10**6] * 10**5, "tokens": ["x"] * 10**5}),
    _begun({"ids": [2**32 - 1], "tokens": ["x"]}),
    {"type": "BertProcessing", "sep": ["hstl", 2**32 - 1], "cls": ["hstl", 2**32 - 1]},
    {"type": "RobertaProcessing", "sep": ["", 0], "cls": ["", 0]},
    _nested("processors", "hstl", 3),
    {"type": "ByteLevel", "trim_offsets": 7},
)
LIMITS: tuple[tuple[str, Any], ...] = (
    ("truncation", {"max_length": 0, "stride": 0, "strategy": "LongestFirst", "direction": "Right"}),
    ("truncation", {"max_length": 4, "stride": 9, "strategy": "LongestFirst", "direction": "Right"}),
    ("truncation", {"max_length": 1, "stride": 0, "strategy": "OnlySecond", "direction": "Left"}),
    ("truncation", {"max_length": 1, "stride": 1, "strategy": "OnlyFirst", "direction": "Left"}),
    *(
        (
            "padding",
            {
                "strategy": {"Fixed": size},
                "direction": "Right",
                "pad_to_multiple_of": many,
                "pad_id": 0,
                "pad_type_id": 0,
                "pad_token": "x",
            },
        )
        for size, many in ((10**7, None), (10**9, None), (2**63, None), (8, 0), (8, 2**62), (0, 0))
    ),
    *(
        ("added_tokens", tokens)
        for tokens in (
            [{"id": 2**32 - 1, "content": "hstl"}],
            [{"id": -1, "content": "hstl"}],
            [{"id": 0, "content": ""}],
            [{"id": 0, "content": "\ud800"}],
            "x",
            [{"id": number, "content": f"h{number}"} for number in range(100_000)],
            [{"id": 7, "content": "@x*10000000@"}],
            [
                {
                    "id": 10**9,
                    "content": "e",
                    "single_word": False,
                    "lstrip": True,
                    "rstrip": True,
                    "normalized": True,
                    "special": True,
                }
            ],
        )
    ),
)


def edited(change: Callable[[Tree], object], name: str = TOKENIZER) -> Plant:
    def plant(folder: Path, chance: Random) -> None:
        tree = json.loads((folder / name).read_text())
        change(tree)
        (folder / name).write_text(long(re.sub(r'"@(\w+)/(\w+)/(\d+)@"', _written_out, json.dumps(tree))))

    return plant


def with_(key: str, value: Any) -> Callable[[Tree], object]:
    def change(tree: Tree) -> None:
        tree[key] = value

    return change


def _vocabulary(change: Callable[[Tree], object]) -> Plant:
    return edited(lambda tree: change(tree["model"]))


def _ids(value: int) -> Callable[[Tree], object]:
    def change(model: Tree) -> None:
        model["vocab"][next(iter(model["vocab"]))] = value

    return change


def _all_ids(model: Tree) -> None:
    model["vocab"] = dict.fromkeys(model["vocab"], 0)


def _surrogates(model: Tree) -> None:
    model["vocab"] = {f"{token}\ud800": number for token, number in model["vocab"].items()}


def tokenizers() -> Iterator[tuple[str, Plant]]:
    for pattern in PATTERNS:
        yield f"a pattern {pattern[:24]!r}", edited(with_("pre_tokenizer", _split(pattern)))
    for number, step in enumerate(GROWN):
        yield f"normalizer {number}: {reprlib.repr(step)[:60]}", edited(with_("normalizer", step))
    for number, step in enumerate(DECODERS):
        yield f"decoder {number}: {reprlib.repr(step)[:60]}", edited(with_("decoder", step))
    for number, step in enumerate(PROCESSORS):
        yield f"post-processor {number}: {reprlib.repr(step)[:60]}", edited(with_("post_processor", step))
    for number, (key, value) in enumerate(LIMITS):
        yield f"{key} {number} is {reprlib.repr(value)[:60]}", edited(with_(key, value))
    models: dict[str, Callable[[Tree], object]] = {
        "an id of 2^32 - 1": _ids(2**32 - 1),
        "an id of 10^9": _ids(10**9),
        "an id of -1": _ids(-1),
        "all ids are 0": _all_ids,
        "surrogates in all": _surrogates,
        "no vocabulary": with_("vocab", {}),
        "no merges": with_("merges", []),
        "merges of nothing": with_("merges", [["hstl", "hstl"]] * 9),
        "another type": with_("type", "WordLevel"),
        "a Unigram of NaN": lambda tree: tree.update(type="Unigram", vocab=[["a", float("nan")]], unk_id=9),
        "an empty Unigram": lambda tree: tree.update(type="Unigram", vocab=[], unk_id=0),
        "dropout": with_("dropout", 0.999),
        "an unknown token": with_("unk_token", "hstl"),
        "a prefix": with_("continuing_subword_prefix", "@x*1000000@"),
        "a cache": with_("cache_capacity", 2**62),
    }
    for what, change in models.items():
        yield f"the vocabulary: {what}", _vocabulary(change)
    patterns: tuple[Any, ...] = (
        {"type": "FixedLength", "length": 0},
        {"type": "Punctuation", "behavior": "hstl"},
        {"type": "CharDelimiterSplit", "delimiter": ""},
        _nested("pretokenizers", "Whitespace", 10_000),
        {"type": "ByteLevel", "use_regex": "x"},
    )
    for steps in patterns:
        yield f"pre-tokenizer {reprlib.repr(steps)[:40]}", edited(with_("pre_tokenizer", steps))
