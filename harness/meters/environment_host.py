"""The host: processor, cache, memory, what of them this process may use, and what others use meanwhile. Reads the system's
files only.
"""

from __future__ import annotations

import math
import os
import platform
import re
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from harness.meters.window import Unreadable

ISA_FLAGS = ("avx2", "avx512f", "avx512_bf16", "avx512_fp16", "amx_tile", "amx_bf16", "amx_int8", "asimd", "bf16", "sve")
NO_LIMIT = "no limit is set"
_V1_UNLIMITED = 1 << 62
"""Version 1 of control groups writes no limit as the largest number of whole pages."""

T = TypeVar("T")


class Reading(NamedTuple):
    """A value and, where it is None or needs a comment, why."""

    value: Any
    reason: str | None


def read(reader: Callable[[], Any]) -> Reading:
    """What a reader of a fact gives: a value, or a Reading where it needs a comment. It raises what keeps it from its value."""
    try:
        value = reader()
    except Unreadable as why:
        return Reading(None, str(why))
    except (OSError, ValueError, AttributeError, RuntimeError) as error:
        return Reading(None, f"cannot be read: {error}")
    return value if isinstance(value, Reading) else Reading(value, None)


def known(value: T | None, why_not: str) -> T:
    """The value; raises Unreadable where it is None or empty."""
    if not value:
        raise Unreadable(why_not)
    return value


def host_readers(proc: Path, cgroup: Path, sysfs: Path) -> dict[str, Callable[[], Any]]:
    """What reads each fact, by name; sizes in bytes, times in seconds or clock ticks as named."""
    return {
        "platform": platform.platform,
        "kernel": platform.release,
        "cpu_model": lambda: known(field_of(proc / "cpuinfo", "model name"), "/proc/cpuinfo has no 'model name'"),
        "isa_flags": lambda: _isa_flags(proc),
        "hypervisor": lambda: "hypervisor" in _flags(proc),
        "logical_cores": os.cpu_count,
        "cpu_id": lambda: _cpu_id(proc),
        "caches": lambda: _contents(sysfs.glob("devices/system/cpu/cpu0/cache/index*/[lts][eyi]*")),
        "memory_about": lambda: _memory_about(proc),
        "product": lambda: _contents(
            [*map((sysfs / "class/dmi/id").joinpath, ("product_name", "sys_vendor")), proc / "device-tree/model"]
        ),
        "smt": lambda: _smt(sysfs),
        "governor": lambda: _governor(sysfs),
        "numa_nodes": lambda: _numa_nodes(sysfs),
        "affinity_cores": lambda: len(_affinity()),
        "affinity": lambda: _as_runs(_affinity()),
        "cgroup_cpus": lambda: _cgroup_cpus(proc, cgroup),
        "memory_total_bytes": lambda: _meminfo(proc, "MemTotal"),
        "memory_available_bytes": lambda: _meminfo(proc, "MemAvailable"),
        "cgroup_memory_bytes": lambda: _cgroup_memory(proc, cgroup),
        "load_average": lambda: list(os.getloadavg()),
        "steal_ticks": lambda: steal_ticks(proc),
    }


def field_of(file: Path, name: str) -> str | None:
    """The value of the first line ``name: value``; None without one."""
    for line in file.read_text(encoding="utf-8", errors="replace").splitlines():
        key, _, value = line.partition(":")
        if key.strip() == name:
            return value.strip()
    return None


def _flags(proc: Path) -> list[str]:
    """The processor's flags, which Arm calls features."""
    values = (field_of(proc / "cpuinfo", name) for name in ("flags", "Features"))
    return known(next(filter(None, values), None), "/proc/cpuinfo lists no flags").split()


def _isa_flags(proc: Path) -> list[str]:
    flags = _flags(proc)
    return [name for name in ISA_FLAGS if name in flags]


CPU_ID = re.compile(
    r"^(?:processor \d+:.*?)?(vendor_id|cpu (?:family|implementer|variant|part|revision|model)|model|stepping|cpu|revision|"
    r"platform|machine|isa|uarch|mvendorid|marchid|mimpid)\s*[:=]\s*(.*?)\s*$",
    re.IGNORECASE | re.MULTILINE,
)
"""Fields of /proc/cpuinfo on x86, Arm, POWER, s390x and RISC-V that tell processors apart."""


def _cpu_id(proc: Path) -> str:
    """What the cores say of their kind besides a name, which Arm has not; each value once."""
    found = dict.fromkeys(CPU_ID.findall((proc / "cpuinfo").read_text(errors="replace")))
    return known(", ".join(map(" ".join, found)), "/proc/cpuinfo tells none")


def _contents(files: Iterable[Path]) -> str:
    """What the files say, in the order of their names."""
    return known(" ".join(file.read_text().strip("\0\n ") for file in sorted(files) if file.exists()), "the system tells none")


def _memory_about(proc: Path) -> str:
    """Memory in steps of a fifth, because kernels keep different parts of it for themselves."""
    return f"{2 ** (round(4 * math.log2(_meminfo(proc, 'MemTotal') / 2**30)) / 4):.3g} GiB"


def _smt(sysfs: Path) -> bool:
    """Whether two hardware threads share a core: then half the logical cores add little."""
    active = sysfs / "devices/system/cpu/smt/active"
    if not active.exists():
        raise Unreadable(f"{active} does not exist")
    return active.read_text().strip() == "1"


def _governor(sysfs: Path) -> str:
    """The frequency governors in use, each once."""
    files = sysfs.glob("devices/system/cpu/cpu[0-9]*/cpufreq/scaling_governor")
    names = ", ".join(sorted({file.read_text().strip() for file in files}))
    return known(names, "no cpufreq governor is shown: the hypervisor or the firmware sets the clock")


def _numa_nodes(sysfs: Path) -> dict[str, str]:
    """The cores of every memory node."""
    folder = sysfs / "devices/system/node"
    nodes = {file.parent.name: file.read_text().strip() for file in sorted(folder.glob("node[0-9]*/cpulist"))}
    return known(nodes, f"{folder} lists no node")


def _affinity() -> set[int]:
    """The cores that this process may run on."""
    if not hasattr(os, "sched_getaffinity"):
        raise Unreadable("this system tells no affinity")
    return os.sched_getaffinity(0)


def _as_runs(cores: set[int]) -> str:
    """As the kernel writes such lists: ``0-3,8``."""
    runs = [[core for _, core in run] for _, run in groupby(enumerate(sorted(cores)), lambda pair: pair[1] - pair[0])]
    return ",".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)


def _own_groups(proc: Path, cgroup: Path, controller: str) -> list[Path]:
    """This process's control group and all above it, of version 2 and of version 1's ``controller``: each may set a limit."""
    found = [(cgroup, ""), (cgroup / controller, "")]
    listed = proc / "self/cgroup"
    for line in listed.read_text().splitlines() if listed.exists() else ():
        _, controllers, path = line.split(":", 2)
        if controllers in ("", controller) or controller in controllers.split(","):
            found.append((cgroup / controller if controllers else cgroup, path.strip("/")))
    folders = [root / folder for root, path in found for folder in (Path(path), *Path(path).parents)]
    return list(dict.fromkeys(folders))


def _cgroup_cpus(proc: Path, cgroup: Path) -> float:
    """CPUs' worth of time that the control groups grant, as a float: the tightest quota counts."""
    quotas, seen = [], False
    for folder in _own_groups(proc, cgroup, "cpu"):
        both, quota, period = folder / "cpu.max", folder / "cpu.cfs_quota_us", folder / "cpu.cfs_period_us"
        if both.exists():
            seen, words = True, both.read_text().split()[:2]
        elif quota.exists() and period.exists():
            seen, words = True, [quota.read_text().strip(), period.read_text().strip()]
        else:
            continue
        if words[0] not in ("max", "-1"):
            quotas.append(int(words[0]) / int(words[1]))
    if quotas:
        return min(quotas)
    raise Unreadable(NO_LIMIT if seen else f"{cgroup} shows no CPU quota")


def _cgroup_memory(proc: Path, cgroup: Path) -> int:
    """Bytes that the control groups grant: the tightest limit counts."""
    groups = _own_groups(proc, cgroup, "memory")
    files = [folder / name for folder in groups for name in ("memory.max", "memory.limit_in_bytes")]
    limits = [file.read_text().strip() for file in files if file.exists()]
    sizes = [int(limit) for limit in limits if limit != "max" and int(limit) < _V1_UNLIMITED]
    if sizes:
        return min(sizes)
    raise Unreadable(NO_LIMIT if limits else f"{cgroup} shows no memory limit")


def _meminfo(proc: Path, name: str) -> int:
    return 1024 * int(known(field_of(proc / "meminfo", name), f"/proc/meminfo has no {name}").split()[0])


def steal_ticks(proc: Path) -> int:
    """Clock ticks that the hypervisor gave to others since boot: the eighth figure of the first line of /proc/stat."""
    fields = (proc / "stat").read_text().splitlines()[0].split()
    if len(fields) <= 8:
        raise Unreadable("/proc/stat counts no steal time")
    return int(fields[8])


PROC = Path("/proc")
_UNITS = {"K": 2**10, "M": 2**20, "G": 2**30}


def cpu_name() -> str:
    """The processor's own name where the system tells it, else its architecture."""
    with suppress(OSError, Unreadable):
        return field_of(PROC / "cpuinfo", "model name") or _cpu_id(PROC)
    return platform.processor() or platform.machine()


def available_host_bytes() -> int:
    """Memory that new allocations can take without swapping; 0 where the system does not tell."""
    found = _meminfo_bytes("MemAvailable")
    if found is not None:
        return found
    try:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError, AttributeError):
        return 0


def total_host_bytes() -> int | None:
    """Memory of the machine; None where the system does not tell."""
    return _meminfo_bytes("MemTotal")


def last_level_cache_bytes() -> int | None:
    """The largest cache that the first core sees (a virtual machine may report its host's); None where none is told."""
    found = []
    for file in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size"):
        try:
            text = file.read_text(encoding="utf-8").strip()
            found.append(int(text[:-1]) * _UNITS[text[-1]] if text[-1:] in _UNITS else int(text))
        except (OSError, ValueError):
            continue
    return max(found, default=None)


def _meminfo_bytes(name: str) -> int | None:
    with suppress(OSError, Unreadable):
        return _meminfo(PROC, name)
    return None


MOST_CORES = 0.25
"""More than that of one core, and what was measured beside it is not kept."""
LEAST_S = 1.0
"""Shorter than that, the ticks of /proc/stat say nothing."""
IDLE = (3, 4)
"""Places of idle and iowait in the first line of /proc/stat (proc(5)); the guest times are within user and nice."""
COUNTED_TICKS = 8


def busy_s() -> float | None:
    """Seconds that all cores have worked since boot, with those that the hypervisor gave to others (steal)."""
    with suppress(OSError, ValueError):
        ticks = [int(count) for count in Path("/proc/stat").read_text(encoding="ascii").split("\n", 1)[0].split()[1:]]
        return sum(count for at, count in enumerate(ticks[:COUNTED_TICKS]) if at not in IDLE) / os.sysconf("SC_CLK_TCK")
    return None


def own_s() -> float:
    """Seconds of processor time of this process and of its children that have ended."""
    return sum(os.times()[:4])


class OtherLoad:
    """Begun when it is made; ``cores`` and ``words`` are about the time since then. The readings are replaceable for tests."""

    def __init__(
        self,
        busy: Callable[[], float | None] = busy_s,
        own: Callable[[], float] = own_s,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._busy, self._own, self._clock = busy, own, clock
        self._begun = busy(), own(), clock()

    @property
    def cores(self) -> float | None:
        """Cores that others used on average; None where it is not known."""
        busy, own, at_s = self._begun
        now, wall_s = self._busy(), self._clock() - at_s
        if busy is None or now is None or wall_s < LEAST_S:
            return None
        return max(0.0, (now - busy) - (self._own() - own)) / wall_s

    @property
    def words(self) -> str | None:
        """Why what was measured is not to be kept; None where it may be."""
        cores = self.cores
        if cores is None or cores <= MOST_CORES:
            return None
        return f"other programs used {cores:.1f} cores meanwhile (at most {MOST_CORES:g} are let pass)"
