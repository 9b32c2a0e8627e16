"""SHA-256 digests of the files that a model is loaded from; no weight is kept in memory, no network, no torch.

A file is read once in a process while its size, time and inode stay the same; the files of a sharded model are read at once.
0.5 GB in one file took 0.95 s on a busy 2-core Xeon. The weights are about to be read for loading anyway.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from glob import escape
from pathlib import Path

from harness.models.choice import ADAPTER_CONFIG, RandomModel, StoredModel, gguf_of, model_folder, model_name

FILES = {
    "weights": ("*.safetensors", "*.gguf", "*.safetensors.index.json"),
    "tokenizer": (
        "tokenizer*",
        "special_tokens_map.json",
        "added_tokens.json",
        "vocab*",
        "merges.txt",
        "*.model",
        "chat_template*",
    ),
    "config": ("config.json", "generation_config.json", "*.py"),
}
"""The files of a folder behind each digest; ``config`` holds what stops an answer and code of the checkpoint too. The files of
an adapter belong to the weights.
"""
OF_ADAPTER = (ADAPTER_CONFIG, "*.safetensors")

Known = tuple[str | None, str | None]
"""A digest, or None and why."""


def model_digests(choice: StoredModel | RandomModel, seed: int, dtype: str) -> dict[str, Known]:
    """Digests by the names of FILES; those of random weights are of what they are drawn by: shape, ``seed``,
    ``dtype``, and the files of the adapter whose ranks they take.
    """
    adapter_files = [] if choice.adapter is None else _matching(Path(choice.adapter), OF_ADAPTER)
    if isinstance(choice, RandomModel):
        how = [choice.model_dump(mode="json", exclude={"adapter"}), seed, dtype, *map(file_digest, adapter_files)]
        drawn = json.dumps(how, sort_keys=True)
        no_file = None, "random weights have no such file"
        return dict.fromkeys(FILES, no_file) | {"weights": (hashlib.sha256(drawn.encode()).hexdigest(), None)}
    folder = model_folder(choice)
    if folder is None:
        return dict.fromkeys(FILES, (None, f"{model_name(choice)} is not on this machine"))
    files: dict[str, tuple[str, ...]] = dict(FILES)
    if (gguf := gguf_of(choice)) is not None:  # it holds all three
        whole = (escape(gguf),)
        files = {"weights": whole, "tokenizer": (*FILES["tokenizer"], *whole), "config": whole}
    return {name: _of_files(folder, files[name], adapter_files if name == "weights" else []) for name in FILES}


def _matching(folder: Path, patterns: Sequence[str]) -> list[Path]:
    return sorted({file for pattern in patterns for file in folder.glob(pattern) if file.is_file()})


def _of_files(folder: Path, patterns: Sequence[str], more: Sequence[Path]) -> Known:
    """Over names and contents, in the order of the names; ``more`` files after those of the folder."""
    try:
        files = [*_matching(folder, patterns), *more]
        with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:  # hashing releases the interpreter's lock
            lines = "".join(
                f"{file.name}\0{digest}\n" for file, digest in zip(files, pool.map(file_digest, files), strict=True)
            )
    except OSError as error:
        return None, f"cannot be read: {error}"
    if not files:
        return None, f"{folder.name} has none of {', '.join(patterns)}"
    return hashlib.sha256(lines.encode()).hexdigest(), None


def file_digest(file: Path) -> str:
    """Of one file's contents. Raises OSError where it cannot be read."""
    state = file.stat()
    return _read(file.resolve(), state.st_size, state.st_mtime_ns, state.st_ino)


@cache
def _read(file: Path, size: int, mtime_ns: int, inode: int) -> str:
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()
