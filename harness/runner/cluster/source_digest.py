"""Which program this is, to the byte: nodes of a cluster must run the very code that sends them work."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[2]
SUFFIXES = {".py", ".yaml", ".csv"}


@cache
def source_digest(package: Path = PACKAGE) -> str:
    """First 12 hex digits of SHA-256 over the names and contents of the package's modules and tables."""
    digest = hashlib.sha256()
    for file in sorted(package.rglob("*")):
        if file.suffix in SUFFIXES and "__pycache__" not in file.parts and "_data" not in file.parts:
            digest.update(f"{file.relative_to(package).as_posix()}\0".encode())
            digest.update(hashlib.sha256(file.read_bytes()).digest())
    return digest.hexdigest()[:12]
