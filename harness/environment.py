"""Which machine this is and in what state: what a reader needs to judge a time, or to repeat it.

Reads the system's own files and package metadata; imports no heavy module and measures nothing. What cannot be read is
None, with its reason under ``reasons``.
"""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

from harness import __version__

PACKAGES = ("torch", "transformers", "numpy", "safetensors", "tokenizers")
ISA_FLAGS = ("avx2", "avx512f", "avx512_bf16", "avx512_fp16", "amx_tile", "amx_bf16", "amx_int8", "asimd", "bf16", "sve")
NO_LIMIT = "no limit is set"

Reading = tuple[Any, str | None]


def snapshot(proc: Path = Path("/proc"), cgroup: Path = Path("/sys/fs/cgroup")) -> dict[str, Any]:
    """The environment now, as plain JSON values; sizes in bytes, times in seconds or clock ticks as named."""
    readers: dict[str, Callable[[], Reading]] = {
        "python": lambda: (platform.python_version(), None),
        "harness": lambda: (__version__, None),
        "packages": _packages,
        "pynvml_from": _owner_of_pynvml,
        "platform": lambda: (platform.platform(), None),
        "kernel": lambda: (platform.release(), None),
        "cpu_model": lambda: _cpu_field(proc, "model name"),
        "isa_flags": lambda: _isa_flags(proc),
        "hypervisor": lambda: _hypervisor(proc),
        "logical_cores": lambda: (os.cpu_count(), None),
        "affinity_cores": _affinity,
        "cgroup_cpus": lambda: _cgroup_cpus(cgroup),
        "threads": _threads,
        "memory_total_bytes": lambda: _meminfo(proc, "MemTotal"),
        "memory_available_bytes": lambda: _meminfo(proc, "MemAvailable"),
        "cgroup_memory_bytes": lambda: _cgroup_memory(cgroup),
        "load_average": lambda: (list(os.getloadavg()), None),
        "steal_ticks": lambda: _steal(proc),
        "gpus": _gpus,
        "commit": _commit,
        "commit_has_changes": _dirty,
    }
    found: dict[str, Any] = {"taken_at": datetime.now(UTC).isoformat(timespec="seconds")}
    reasons: dict[str, str] = {}
    for name, reader in readers.items():
        try:
            value, reason = reader()
        except (OSError, ValueError, AttributeError) as error:
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
    """Which distributions bring the module ``pynvml``: an old one of that name shadows nvidia-ml-py."""
    owners = metadata.packages_distributions().get("pynvml")
    return (sorted(set(owners)), None) if owners else (None, "no installed distribution has a module pynvml")


def _cpu_field(proc: Path, name: str) -> Reading:
    for line in (proc / "cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines():
        key, _, value = line.partition(":")
        if key.strip() == name:
            return value.strip(), None
    return None, f"/proc/cpuinfo has no {name!r}"


def _flags(proc: Path) -> set[str] | None:
    for name in ("flags", "Features"):
        value, _ = _cpu_field(proc, name)
        if value is not None:
            return set(value.split())
    return None


def _isa_flags(proc: Path) -> Reading:
    flags = _flags(proc)
    if flags is None:
        return None, "/proc/cpuinfo lists no flags"
    return [name for name in ISA_FLAGS if name in flags], None


def _hypervisor(proc: Path) -> Reading:
    flags = _flags(proc)
    return (None, "/proc/cpuinfo lists no flags") if flags is None else ("hypervisor" in flags, None)


def _affinity() -> Reading:
    if not hasattr(os, "sched_getaffinity"):
        return None, "this system tells no affinity"
    return len(os.sched_getaffinity(0)), None


def _cgroup_cpus(cgroup: Path) -> Reading:
    """CPUs' worth of time that the control group grants, as a float."""
    file = cgroup / "cpu.max"
    if not file.exists():
        return None, f"{file} does not exist"
    quota, period = file.read_text().split()[:2]
    return (None, NO_LIMIT) if quota == "max" else (int(quota) / int(period), None)


def _cgroup_memory(cgroup: Path) -> Reading:
    file = cgroup / "memory.max"
    if not file.exists():
        return None, f"{file} does not exist"
    limit = file.read_text().strip()
    return (None, NO_LIMIT) if limit == "max" else (int(limit), None)


def _meminfo(proc: Path, name: str) -> Reading:
    for line in (proc / "meminfo").read_text().splitlines():
        key, _, value = line.partition(":")
        if key == name:
            return 1024 * int(value.split()[0]), None
    return None, f"/proc/meminfo has no {name}"


def _steal(proc: Path) -> Reading:
    """Clock ticks that the hypervisor gave to others since boot: the eighth figure of the first line of /proc/stat."""
    fields = (proc / "stat").read_text().splitlines()[0].split()
    return (int(fields[8]), None) if len(fields) > 8 else (None, "/proc/stat counts no steal time")


def _threads() -> Reading:
    torch = sys.modules.get("torch")
    given = {name: os.environ[name] for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS") if name in os.environ}
    if torch is None:
        return {"torch": None, **given}, "torch is not loaded"
    return {"torch": torch.get_num_threads(), "torch_interop": torch.get_num_interop_threads(), **given}, None


def _gpus() -> Reading:
    torch = sys.modules.get("torch")
    if torch is None:
        return None, "torch is not loaded"
    if not torch.cuda.is_available():
        return None, "torch sees no CUDA device"
    properties = [torch.cuda.get_device_properties(index) for index in range(torch.cuda.device_count())]
    return [
        {"name": found.name, "memory_bytes": found.total_memory, "multiprocessors": found.multi_processor_count}
        for found in properties
    ], None


def _commit() -> Reading:
    return _git("rev-parse", "HEAD")


def _dirty() -> Reading:
    value, reason = _git("status", "--porcelain", "--untracked-files=no")
    return (None if value is None else bool(value)), reason


def _git(*arguments: str) -> Reading:
    """Ask git about the checkout this package runs from, if it is one."""
    root = Path(__file__).resolve().parent.parent
    if not (root / ".git").exists():
        return None, "the package is not running from a git checkout"
    try:
        done = subprocess.run(["git", "-C", str(root), *arguments], capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return None, f"git did not answer: {error}"
    return (done.stdout.strip(), None) if done.returncode == 0 else (None, f"git: {done.stderr.strip().partition(chr(10))[0]}")
