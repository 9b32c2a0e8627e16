"""Where the small records of every version lie, and one of them with a value changed."""

from __future__ import annotations

import copy
import json
from functools import reduce
from pathlib import Path
from typing import Any

from harness.record.journal import whole_lines
from harness.record.seal import unlinked
from harness.record.store import HEADER, JOURNALS
from tests.helpers import DATA
from tests.helpers.sealed_lines import chained

RECORDS = DATA / "records"
NUMBERS = {"@infinite@": "1e400", "@long@": "9" * 4200, "@nan@": "NaN"}
"""Stand for these, which no dumper writes so."""
Lines = dict[str, list[Any]]
"""The lines of every file of a record, without their hashes; the header is one."""


def small_record(version: int) -> Lines:
    """The record of a version."""
    folder = RECORDS / f"v{version}"
    lines = {name: [json.loads(unlinked(line)) for line in whole_lines(folder / name)] for name in JOURNALS}
    return {HEADER: [json.loads((folder / HEADER).read_bytes())], **lines}


def changed_record(folder: Path, lines: Lines, place: tuple[str | int, ...], value: Any) -> Path:
    """The record with one value changed, by file, line (from 0) and keys; written to ``folder``, chained but not sealed."""
    altered: Any = copy.deepcopy(lines)
    reduce(lambda tree, key: tree[key], place[:-1], altered)[place[-1]] = value
    texts = {name: "\n".join(json.dumps(line) for line in found) for name, found in altered.items()}
    for word, number in NUMBERS.items():
        texts = {name: text.replace(f'"{word}"', number) for name, text in texts.items()}
    header = texts[HEADER].encode()
    try:
        files = {name: b"".join(chained(texts[name].split("\n"), header)) for name in JOURNALS}
    except (ValueError, KeyError, TypeError):  # the version of the header is what was changed
        files = {name: texts[name].encode() for name in JOURNALS}
    folder.mkdir(exist_ok=True)
    for name, data in {HEADER: header, **files}.items():
        (folder / name).write_bytes(data)
    return folder
