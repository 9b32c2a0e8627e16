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
from harness.meters.environment_host import Reading, host_readers, known, read
from harness.meters.window import Unreadable
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
_BUILD_SETTINGS = "Build settings"


def _torch() -> Any:
    """The module, if this process has loaded it."""
    return known(sys.modules.get("torch"), "torch is not loaded")


def _threads() -> Any:
    given = {name: os.environ[name] for name in THREAD_VARIABLES if name in os.environ}
    torch, why_not = read(_torch)
    if torch is None:
        return Reading({"torch": None, **given}, why_not)
    return {"torch": torch.get_num_threads(), "torch_interop": torch.get_num_interop_threads(), **given}


def _gpus() -> Reading:
    cuda = _torch().cuda
    if not cuda.is_available():
        raise Unreadable("torch sees no CUDA device")
    found = [_gpu(cuda.get_device_properties(index)) for index in range(cuda.device_count())]
    untold = [name for name, value in found[0].items() if value is None] if found else []
    return Reading(found, f"this torch does not tell {', '.join(untold)}" if untold else None)


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


def _build() -> Reading:
    """Versions, and what torch.__config__.show() says without compiler flags."""
    torch = _torch()
    shown = [line.strip(" -") for line in torch.__config__.show().splitlines()[1:]]
    build = {
        "cuda": torch.version.cuda,
        "cudnn": torch.backends.cudnn.version(),
        "git": torch.version.git_version,
        "config": "; ".join(line for line in shown if line and not line.startswith(_BUILD_SETTINGS)),
    }
    return Reading(build, None if torch.version.cuda else "this torch is built without CUDA")


def _precision() -> dict[str, object]:
    """Flags that let matrix products round more than their dtype does."""
    torch = _torch()
    matmul = torch.backends.cuda.matmul
    return {
        "float32_matmul": torch.get_float32_matmul_precision(),
        "tf32_matmul": matmul.allow_tf32,
        "tf32_cudnn": torch.backends.cudnn.allow_tf32,
        "bf16_reduced_reduction": matmul.allow_bf16_reduced_precision_reduction,
        "fp16_reduced_reduction": matmul.allow_fp16_reduced_precision_reduction,
    }


def _sdpa_enabled() -> dict[str, bool]:
    """The kernels of scaled_dot_product_attention that torch may choose from on a GPU."""
    cuda = _torch().backends.cuda
    return {
        "flash": cuda.flash_sdp_enabled(),
        "efficient": cuda.mem_efficient_sdp_enabled(),
        "cudnn": cuda.cudnn_sdp_enabled(),
        "math": cuda.math_sdp_enabled(),
    }


COMMIT = re.compile("[0-9a-f]{7,64}")


def ask_git(root: Path, *arguments: str) -> str:
    """One line or more that git prints about the checkout at ``root``.

    Raises:
        Unreadable: it does not answer, or refuses.
    """
    try:
        done = subprocess.run(["git", "-C", str(root), *arguments], capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Unreadable(f"git did not answer: {error}") from error
    if done.returncode:
        raise Unreadable(f"git: {done.stderr.strip().partition(chr(10))[0]}")
    return done.stdout.strip()


def committed_at(root: Path, commit: str) -> str | None:
    """When ``commit`` was made (ISO 8601), if the checkout at ``root`` has it."""
    if COMMIT.fullmatch(commit):
        with suppress(Unreadable):
            return ask_git(root, "show", "--no-patch", "--format=%cI", f"{commit}^{{commit}}") or None
    return None


def branch_at(root: Path, commit: str) -> str | None:
    """The branch that is checked out at ``root``, if it stands at ``commit``."""
    with suppress(Unreadable):
        if COMMIT.fullmatch(commit) and ask_git(root, "rev-parse", "HEAD").startswith(commit):
            return ask_git(root, "symbolic-ref", "--quiet", "--short", "HEAD")
    return None


PACKAGES = ("torch", "transformers", "numpy", "safetensors", "tokenizers", "triton", "nvidia-ml-py")
NVML_PACKAGE = "nvidia-ml-py"
DEPRECATED_NVML_PACKAGE = "pynvml"


def snapshot(proc: Path = Path("/proc"), cgroup: Path = Path("/sys/fs/cgroup"), sysfs: Path = Path("/sys")) -> Environment:
    """The environment now, as plain JSON values; sizes in bytes, times in seconds or clock ticks as named."""
    taken_at = datetime.now(UTC).isoformat(timespec="microseconds")
    readers: dict[str, Callable[[], Any]] = {
        "python": platform.python_version,
        "harness": lambda: __version__,
        "packages": _packages,
        "pynvml_from": _owner_of_pynvml,
        **host_readers(proc, cgroup, sysfs),
        "threads": _threads,
        "gpus": _gpus,
        "torch_build": _build,
        "precision": _precision,
        "sdpa_enabled": _sdpa_enabled,
        **gpu_readers(proc),
        "commit": lambda: _git("rev-parse", "HEAD"),
        "commit_has_changes": lambda: _dirty(_git),
        "repository": _repository,
    }
    readings = {name: read(reader) for name, reader in readers.items()}
    reasons = {name: reading.reason for name, reading in readings.items() if reading.reason is not None}
    values = {name: reading.value for name, reading in readings.items()}
    return cast(Environment, {"taken_at": taken_at, **values, "reasons": reasons})


def _version(package: str) -> str | None:
    with suppress(metadata.PackageNotFoundError):
        return metadata.version(package)
    return None


def _packages() -> Reading:
    versions = {name: version for name in PACKAGES if (version := _version(name)) is not None}
    missing = [name for name in PACKAGES if name not in versions]
    return Reading(versions, f"not installed: {', '.join(missing)}" if missing else None)


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
    return Reading(owners or None, warning)


def _repository() -> dict[str, object]:
    """Commit, its time (ISO 8601) and changes of the checkout that the program was called in."""
    ask = partial(ask_git, Path())
    commit, made = ask("show", "--no-patch", "--format=%H %cI", "HEAD").split()
    return {"commit": commit, "committed_at": made, "commit_has_changes": read(partial(_dirty, ask)).value}


def _dirty(ask: Callable[..., str]) -> bool:
    return bool(ask("status", "--porcelain", "--untracked-files=no"))


def _git(*arguments: str) -> str:
    """Ask git about the checkout this package runs from, if it is one."""
    root = Path(__file__).resolve().parents[2]
    if not (root / ".git").exists():
        raise Unreadable("the package is not running from a git checkout")
    return ask_git(root, *arguments)
