"""The host's processor, cache and memory, as the system tells them."""

from __future__ import annotations

import os
import platform
from pathlib import Path

_UNITS = {"K": 2**10, "M": 2**20, "G": 2**30}


def cpu_name() -> str:
    """The processor's own name where the system tells it, else its architecture."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as lines:
            named = next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), None)
    except OSError:
        named = None
    return named or platform.processor() or platform.machine()


def available_host_bytes() -> int:
    """Memory that new allocations can take without swapping; 0 where the system does not tell."""
    found = _meminfo("MemAvailable")
    if found is not None:
        return found
    try:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError, AttributeError):
        return 0


def total_host_bytes() -> int | None:
    """Memory of the machine; None where the system does not tell."""
    return _meminfo("MemTotal")


def last_level_cache_bytes(folder: Path = Path("/sys/devices/system/cpu/cpu0/cache")) -> int | None:
    """The largest cache that the first core sees (a virtual machine may report its host's); None where none is told."""
    found = []
    for file in folder.glob("index*/size"):
        try:
            text = file.read_text(encoding="utf-8").strip()
            found.append(int(text[:-1]) * _UNITS[text[-1]] if text[-1:] in _UNITS else int(text))
        except (OSError, ValueError):
            continue
    return max(found, default=None)


def _meminfo(name: str) -> int | None:
    try:
        with open("/proc/meminfo", encoding="utf-8") as lines:
            return next((int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{name}:")), None)
    except OSError:
        return None
