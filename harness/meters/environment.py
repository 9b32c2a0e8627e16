"""Which machine this is and in what state: what a reader needs to judge a time, or to repeat it.

Reads package metadata, the system's own files (environment_host), a torch that is loaded (environment_torch) and NVIDIA's
driver (environment_gpu); loads no heavy module and measures nothing. What cannot be read is None, with its reason under
``reasons``; a value that needs a warning has it there too.
"""

from __future__ import annotations

import platform
from collections.abc import Callable
from datetime import UTC, datetime
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

from harness import __version__
from harness.meters.environment_git import ask_git
from harness.meters.environment_gpu import gpu_readers
from harness.meters.environment_host import Reading, host_readers
from harness.meters.environment_torch import torch_readers

PACKAGES = ("torch", "transformers", "numpy", "safetensors", "tokenizers", "triton", "nvidia-ml-py")
NVML_PACKAGE = "nvidia-ml-py"
DEPRECATED_NVML_PACKAGE = "pynvml"


def snapshot(
    proc: Path = Path("/proc"), cgroup: Path = Path("/sys/fs/cgroup"), sysfs: Path = Path("/sys"), nvml: Any = None
) -> dict[str, Any]:
    """The environment now, as plain JSON values; sizes in bytes, times in seconds or clock ticks as named.

    ``nvml``: a fake of the module pynvml.
    """
    readers: dict[str, Callable[[], Reading]] = {
        "python": lambda: (platform.python_version(), None),
        "harness": lambda: (__version__, None),
        "packages": _packages,
        "pynvml_from": _owner_of_pynvml,
        **host_readers(proc, cgroup, sysfs),
        **torch_readers(),
        **gpu_readers(proc, nvml),
        "commit": _commit,
        "commit_has_changes": _dirty,
    }
    found: dict[str, Any] = {"taken_at": datetime.now(UTC).isoformat(timespec="seconds")}
    reasons: dict[str, str] = {}
    for name, reader in readers.items():
        try:
            value, reason = reader()
        except (OSError, ValueError, AttributeError, RuntimeError) as error:
            value, reason = None, f"cannot be read: {error}"
        found[name] = value
        if reason is not None:
            reasons[name] = reason
    return {**found, "reasons": reasons}


def _packages() -> Reading:
    versions = {}
    for name in PACKAGES:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    missing = [name for name in PACKAGES if name not in versions]
    return versions, f"not installed: {', '.join(missing)}" if missing else None


@cache
def _owner_of_pynvml() -> Reading:
    """Which distributions bring the module ``pynvml``, and a warning where it is not NVIDIA's own alone."""
    owners = sorted(set(metadata.packages_distributions().get("pynvml", ())))
    try:
        deprecated = metadata.version(DEPRECATED_NVML_PACKAGE)
    except metadata.PackageNotFoundError:
        deprecated = None
    return owners or None, _warning_of_pynvml(owners, deprecated)


def _warning_of_pynvml(owners: list[str], deprecated: str | None) -> str | None:
    """What to do unless NVIDIA's distribution alone owns the module; ``deprecated``: the other one's version, if it is here."""
    if deprecated is not None:
        return (
            f"warning: the deprecated distribution pynvml {deprecated} is installed and may stand in the way of NVIDIA's own; "
            f"pip uninstall pynvml, then pip install --force-reinstall {NVML_PACKAGE}"
        )
    if not owners:
        return f"no installed distribution has a module pynvml; pip install {NVML_PACKAGE}"
    if owners != [NVML_PACKAGE]:
        return f"warning: the module pynvml comes from {', '.join(owners)}; pip install --force-reinstall {NVML_PACKAGE}"
    return None


def _commit() -> Reading:
    return _git("rev-parse", "HEAD")


def _dirty() -> Reading:
    value, reason = _git("status", "--porcelain", "--untracked-files=no")
    return (None if value is None else bool(value)), reason


def _git(*arguments: str) -> Reading:
    """Ask git about the checkout this package runs from, if it is one."""
    root = Path(__file__).resolve().parents[2]
    if not (root / ".git").exists():
        return None, "the package is not running from a git checkout"
    return ask_git(root, *arguments)
