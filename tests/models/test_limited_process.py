"""A tokenizer of somebody else hangs, grows, panics or breaks off in a process of its own, and each is told in words."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import tokenizers

from harness.errors import UnknownModelError
from harness.models import limited_process
from harness.models.choice import REFERENCE_DIR
from harness.models.config import read_object
from harness.models.limited_process import LimitedProcess, decode, encode, facts, load

OWN = json.loads((REFERENCE_DIR / "draft" / "tokenizer.json").read_text())
LONGER = {"type": "Replace", "pattern": {"String": "a"}, "content": "a" * 10}
SPLIT = {"type": "Split", "pattern": {"Regex": "(a+)+$"}, "behavior": "Isolated", "invert": False}
PIECES = {"single": [{"Sequence": {"id": "A", "type_id": 0}}] * 200_000}
HOSTILE: dict[str, dict[str, Any]] = {
    "a regular expression": {"pre_tokenizer": SPLIT},
    "growth": {"normalizer": {"type": "Sequence", "normalizers": [LONGER] * 12}},
    "a normalizer that panics": {"normalizer": {"type": "Precompiled", "precompiled_charsmap": "/////wAAAAA="}},
    "a template that repeats": {"post_processor": OWN["post_processor"] | PIECES},
    "a decoder that grows": {"decoder": {"type": "Sequence", "decoders": [LONGER] * 12}},
    "a decoder with an expression": {"decoder": LONGER | {"pattern": {"Regex": "(a+)+$"}}},
}


def process() -> LimitedProcess:
    """For calls on the tokenizer of this test."""
    return LimitedProcess("the tokenizer", "give another", 10_000_000)


@pytest.mark.parametrize("kind", HOSTILE)
def test_each_is_refused_in_words(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """None ends or harms this process."""
    monkeypatch.setattr(limited_process, "MOST_S", 2.0)
    called, text = process(), json.dumps(OWN | HOSTILE[kind])
    with pytest.raises(UnknownModelError, match=r"the tokenizer (takes|fails).*; give another"):
        called(facts, text)
        called(encode, "a" * 64 + "b", True)


def test_an_honest_tokenizer_gives_what_the_library_gives() -> None:
    """Ids, texts and facts; and all of the reference models' settings."""
    theirs, called = tokenizers.Tokenizer.from_str(json.dumps(OWN)), process()
    called(load, json.dumps(OWN))
    for text in ("", "Tom has 3 apples.", "é中\n"):
        ids = theirs.encode(text).ids
        assert called(encode, text, True) == ids and called(decode, ids) == theirs.decode(ids)
    assert called(facts, json.dumps(OWN))[2] == max(theirs.get_vocab().values())


def test_a_process_that_is_gone_is_told() -> None:
    """So is every later call."""
    called = process()
    for _ in range(2):
        with pytest.raises(UnknownModelError, match="breaks off; give another"):
            called(os._exit, 3)


@pytest.mark.parametrize(
    ("content", "words"),
    [(b" " * (2**24 + 1), "more than the"), (b"[" + b"[]," * 3_000_001, "more than 3,000,000"), (b'{"a": "\\ud800"}', "JSON")],
    ids=["size", "values", "surrogate"],
)
def test_settings_have_bounds(tmp_path: Path, content: bytes, words: str) -> None:
    """In bytes and in values, and they are text."""
    file = tmp_path / "config.json"
    file.write_bytes(content)
    with pytest.raises(UnknownModelError, match=words):
        read_object(file)
