"""How NTP stood beside the engines of others, for runs that ask none: a sentence by machine, weights, dtype and threads."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from harness.errors import StorageError
from harness.formatting import one_line
from harness.paths import cache_dir
from harness.record.regular_file import write_whole
from harness.record.same import LATER_FACTS

LONGEST = 300
"""Characters of a sentence."""


def _file(identity: Mapping[str, object], dtype: str, threads: int | None) -> Path:
    facts = [identity.get(name) for name in ("weights", "cpu", "gpus", *LATER_FACTS)]
    return cache_dir() / f"engines-{hashlib.sha256(repr((facts, dtype, threads)).encode()).hexdigest()[:16]}.txt"


def keep(identity: Mapping[str, object], dtype: str, threads: int | None, words: str) -> None:
    """Keep ``words`` for the parts of such an identity event in place of older ones; a disk that refuses keeps nothing."""
    file = _file(identity, dtype, threads)
    with suppress(OSError, StorageError):
        file.parent.mkdir(parents=True, exist_ok=True)
        write_whole(file, words.encode())


def kept(identity: Mapping[str, object], dtype: str, threads: int | None) -> str | None:
    """The words that were kept for such parts; None: there are none."""
    with suppress(OSError, UnicodeDecodeError), _file(identity, dtype, threads).open(encoding="utf-8") as file:
        return one_line(file.read(LONGEST))
    return None
