"""Every format by the name that ``--to`` knows it by."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass

from harness.judgement import Judgements, to_json


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """``write`` turns judgements into the text of a file; ``readers`` says who reads it."""

    write: Callable[[Judgements], str]
    readers: str


def json_text(judgements: Judgements) -> str:
    """The versioned JSON form of harness.judgement."""
    return json.dumps(to_json(judgements), indent=1, ensure_ascii=False) + "\n"


FORMATS: dict[str, Format] = {
    "json": Format(write=json_text, readers="programs; versioned, complete"),
}
