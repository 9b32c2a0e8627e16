"""The machine and its state: what a reader needs to judge a time, or to repeat it.

Reads package metadata, git, the system's own files (environment_host), NVIDIA's driver (environment_gpu) and torch. Loads no
heavy module, asks a torch that is loaded, changes nothing and measures nothing. What cannot be read is None, with its reason
under ``reasons``; a value that needs a warning has it there too.
"""

from __future__ import annotations

import os
import platform
import re
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from functools import cache, partial
from importlib import metadata
from pathlib import Path
from typing import Any, cast

from harness import __version__
from harness.meters.environment_gpu import gpu_readers
from harness.meters.environment_host import Reading, host_readers
from harness.record.written import Environment

THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "OMP_PROC_BIND",
    "OMP_PLACES",
    "OMP_WAIT_POLICY",
    "GOMP_CPU_AFFINITY",
    "GOMP_SPINCOUNT",
    "MKL_NUM_THREADS",
    "KMP_AFFINITY",
    "KMP_BLOCKTIME",
    "ONEDNN_MAX_CPU_ISA",
    "ONEDNN_DEFAULT_FPMATH_MODE",
)
NOT_LOADED = "torch is not loaded"
_BUILD_SETTINGS = "Build settings"


def torch_readers() -> dict[str, Callable[[], Reading]]:
    """What reads each fact, by name."""
    torch = sys.modules.get("torch")
    asked: dict[str, Callable[[Any], Reading]] = {
        "gpus": _gpus,
        "torch_build": _build,
        "precision": _precision,
        "sdpa_enabled": _sdpa_enabled,
    }
    if torch is None:
        asked = dict.fromkeys(asked, lambda torch: (None, NOT_LOADED))
    return {name: partial(read, torch) for name, read in {"threads": _threads, **asked}.items()}


def _threads(torch: Any) -> Reading:
    given = {name: os.environ[name] for name in THREAD_VARIABLES if name in os.environ}
    if torch is None:
        return {"torch": None, **given}, NOT_LOADED
    return {"torch": torch.get_num_threads(), "torch_interop": torch.get_num_interop_threads(), **given}, None


def _gpus(torch: Any) -> Reading:
    if not torch.cuda.is_available():
        return None, "torch sees no CUDA device"
    found = [_gpu(torch.cuda.get_device_properties(index)) for index in range(torch.cuda.device_count())]
    untold = [name for name, value in found[0].items() if value is None] if found else []
    return found, f"this torch does not tell {', '.join(untold)}" if untold else None


def _gpu(properties: Any) -> dict[str, object]:
    """What this torch does not tell is None."""
    uuid, major = getattr(properties, "uuid", None), getattr(properties, "major", None)
    return {
        "name": properties.name,
        "uuid": None if uuid is None else str(uuid),
        "memory_bytes": properties.total_memory,
        "multiprocessors": properties.multi_processor_count,
        "compute_capability": None if major is None else f"{major}.{properties.minor}",
        "cache_bytes": getattr(properties, "L2_cache_size", None),
        "memory_bus_bits": getattr(properties, "memory_bus_width", None),
        "memory_clock_khz": getattr(properties, "memory_clock_rate", None),
    }


def _build(torch: Any) -> Reading:
    """Versions, and what torch.__config__.show() says without compiler flags."""
    shown = [line.strip(" -") for line in torch.__config__.show().splitlines()[1:]]
    reason = None if torch.version.cuda else "this torch is built without CUDA"
    return {
        "cuda": torch.version.cuda,
        "cudnn": torch.backends.cudnn.version(),
        "git": torch.version.git_version,
        "config": "; ".join(line for line in shown if line and not line.startswith(_BUILD_SETTINGS)),
    }, reason


def _precision(torch: Any) -> Reading:
    """Flags that let matrix products round more than their dtype does."""
    matmul = torch.backends.cuda.matmul
    return {
        "float32_matmul": torch.get_float32_matmul_precision(),
        "tf32_matmul": matmul.allow_tf32,
        "tf32_cudnn": torch.backends.cudnn.allow_tf32,
        "bf16_reduced_reduction": matmul.allow_bf16_reduced_precision_reduction,
        "fp16_reduced_reduction": matmul.allow_fp16_reduced_precision_reduction,
    }, None


def _sdpa_enabled(torch: Any) -> Reading:
    """The kernels of scaled_dot_product_attention that torch may choose from on a GPU."""
    cuda = torch.backends.cuda
    return {
        "flash": cuda.flash_sdp_enabled(),
        "efficient": cuda.mem_efficient_sdp_enabled(),
        "cudnn": cuda.cudnn_sdp_enabled(),
        "math": cuda.math_sdp_enabled(),
    }, None


COMMIT = re.compile("[0-9a-f]{7,64}")


def ask_git(root: Path, *arguments: str) -> Reading:
    """One line or more that git prints about the checkout at ``root``, or why it does not."""
    try:
        done = subprocess.run(["git", "-C", str(root), *arguments], capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return None, f"git did not answer: {error}"
    return (done.stdout.strip(), None) if done.returncode == 0 else (None, f"git: {done.stderr.strip().partition(chr(10))[0]}")


def committed_at(root: Path, commit: str) -> str | None:
    """When ``commit`` was made (ISO 8601), if the checkout at ``root`` has it."""
    if COMMIT.fullmatch(commit) is None:
        return None
    time, _ = ask_git(root, "show", "--no-patch", "--format=%cI", f"{commit}^{{commit}}")
    return time or None


def branch_at(root: Path, commit: str) -> str | None:
    """The branch that is checked out at ``root``, if it stands at ``commit``."""
    head, _ = ask_git(root, "rev-parse", "HEAD")
    branch, _ = ask_git(root, "symbolic-ref", "--quiet", "--short", "HEAD")
    return branch if head is not None and COMMIT.fullmatch(commit) and head.startswith(commit) else None


PACKAGES = ("torch", "transformers", "numpy", "safetensors", "tokenizers", "triton", "nvidia-ml-py")
NVML_PACKAGE = "nvidia-ml-py"
DEPRECATED_NVML_PACKAGE = "pynvml"


def snapshot(proc: Path = Path("/proc"), cgroup: Path = Path("/sys/fs/cgroup"), sysfs: Path = Path("/sys")) -> Environment:
    """The environment now, as plain JSON values; sizes in bytes, times in seconds or clock ticks as named."""
    readers: dict[str, Callable[[], Reading]] = {
        "python": lambda: (platform.python_version(), None),
        "harness": lambda: (__version__, None),
        "packages": _packages,
        "pynvml_from": _owner_of_pynvml,
        **host_readers(proc, cgroup, sysfs),
        **torch_readers(),
        **gpu_readers(proc),
        "commit": lambda: _git("rev-parse", "HEAD"),
        "commit_has_changes": lambda: _dirty(_git),
        "repository": _repository,
    }
    found: dict[str, object] = {"taken_at": datetime.now(UTC).isoformat(timespec="microseconds")}
    reasons: dict[str, str] = {}
    for name, reader in readers.items():
        try:
            value, reason = reader()
        except (OSError, ValueError, AttributeError, RuntimeError) as error:
            value, reason = None, f"cannot be read: {error}"
        found[name] = value
        if reason is not None:
            reasons[name] = reason
    return cast(Environment, found | {"reasons": reasons})


def _version(package: str) -> str | None:
    with suppress(metadata.PackageNotFoundError):
        return metadata.version(package)
    return None


def _packages() -> Reading:
    versions = {name: version for name in PACKAGES if (version := _version(name)) is not None}
    missing = [name for name in PACKAGES if name not in versions]
    return versions, f"not installed: {', '.join(missing)}" if missing else None


@cache
def _owner_of_pynvml() -> Reading:
    """Which distributions bring the module ``pynvml``, and what to do unless NVIDIA's own alone does."""
    owners = sorted(set(metadata.packages_distributions().get("pynvml", ())))
    warning = None
    if (deprecated := _version(DEPRECATED_NVML_PACKAGE)) is not None:
        warning = (
            f"warning: the deprecated distribution pynvml {deprecated} is installed and may stand in the way of NVIDIA's own; "
            f"pip uninstall pynvml, then pip install --force-reinstall {NVML_PACKAGE}"
        )
    elif not owners:
        warning = f"no installed distribution has a module pynvml; pip install {NVML_PACKAGE}"
    elif owners != [NVML_PACKAGE]:
        warning = f"warning: the module pynvml comes from {', '.join(owners)}; pip install --force-reinstall {NVML_PACKAGE}"
    return owners or None, warning


def _repository() -> Reading:
    """Commit, its time (ISO 8601) and changes of the checkout that the program was called in."""
    told, reason = ask_git(Path(), "show", "--no-patch", "--format=%H %cI", "HEAD")
    if told is None:
        return None, reason
    commit, made = told.split()
    return {"commit": commit, "committed_at": made, "commit_has_changes": _dirty(partial(ask_git, Path()))[0]}, None


def _dirty(ask: Callable[..., Reading]) -> Reading:
    value, reason = ask("status", "--porcelain", "--untracked-files=no")
    return (None if value is None else bool(value)), reason


def _git(*arguments: str) -> Reading:
    """Ask git about the checkout this package runs from, if it is one."""
    root = Path(__file__).resolve().parents[2]
    if not (root / ".git").exists():
        return None, "the package is not running from a git checkout"
    return ask_git(root, *arguments)
