"""Two machines under one name have two fingerprints; a record without the facts that tell them apart is still compared."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.meters.environment_host import host_readers
from harness.record.same import crowded, machine_of
from harness.record.schema import Run
from harness.regression.comparability import unlike
from harness.regression.history.series import read_lines
from harness.regression.history.store import History, Wanted
from tests.helpers import synthetic_history as history
from tests.helpers import synthetic_run as synthetic
from tests.helpers.environments import with_environment

ARM = (
    "processor\t: {n}\nFeatures\t: fp asimd sve\nCPU implementer\t: 0x41\nCPU variant\t: 0x1\n"
    "CPU part\t: {part}\nCPU revision\t: 1\n\n"
)
POWER = (
    "processor\t: 0\ncpu\t\t: POWER9, altivec supported\nrevision\t: 2.2 (pvr 004e 1202)\n\n"
    "model\t\t: 8335-GTH\nmachine\t\t: PowerNV\n"
)
S390 = (
    "vendor_id       : IBM/S390\nfeatures\t: esan3 zarch\nprocessor 0: version = FF,  identification = 133EC8,  machine = {n}\n"
)
RISCV = "processor\t: 0\nhart\t\t: 0\nisa\t\t: rv64imafdc\nuarch\t\t: {n}\nmvendorid\t: 0x489\n"
X86 = (
    "vendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 143\nmodel name\t: Xeon Processor\nstepping\t: 8\nflags\t\t: avx2\n"
)


def facts(folder: Path, cpuinfo: str, gib: float = 15.6, cache: str = "32M", board: str = "Board") -> dict[str, Any]:
    """What is read of a machine with these files."""
    proc, sysfs = folder / "proc", folder / "sys"
    files = {
        proc / "cpuinfo": cpuinfo,
        proc / "meminfo": f"MemTotal:  {round(gib * 2**20)} kB\nMemAvailable: 1 kB\n",
        proc / "device-tree/model": f"{board}\0",
        **{
            sysfs / f"devices/system/cpu/cpu0/cache/index3/{name}": text
            for name, text in (("level", "3\n"), ("size", f"{cache}\n"), ("type", "Unified\n"), ("shared_cpu_list", "0\n"))
        },
    }
    for file, text in files.items():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    readers = host_readers(proc, folder / "cgroup", sysfs)
    names = ("cpu_model", "cpu_id", "caches", "memory_about", "product", "isa_flags")
    return {name: readers[name]()[0] for name in names}


def run_on(**environment: Any) -> Run:
    """A run on this machine."""
    return with_environment(synthetic.build(), **environment)


def arm(part: str) -> str:
    """Two cores of one kind."""
    return "".join(ARM.format(n=n, part=part) for n in range(2))


@pytest.mark.parametrize(
    ("one", "other", "besides"),
    [
        (arm("0xd40"), arm("0xd4f"), {}),
        (arm("0xd05"), ARM.format(n=0, part="0xd05") + ARM.format(n=1, part="0xd0b"), {}),
        (POWER, POWER.replace("POWER9", "POWER10"), {}),
        (S390.format(n=2964), S390.format(n=3931), {}),
        (RISCV.format(n="sifive,u74-mc"), RISCV.format(n="thead,c910"), {}),
        (X86, X86.replace("143", "207"), {}),
        (X86, X86, {"cache": "64M"}),
        (X86, X86, {"gib": 31.2}),
        (arm("0xd40"), arm("0xd40"), {"board": "Other board"}),
    ],
)
def test_machines_that_differ_have_two_fingerprints(tmp_path: Path, one: str, other: str, besides: dict[str, Any]) -> None:
    """And are unlike to gate and compare, which name the fact."""
    first, again = (run_on(**facts(tmp_path / name, one)) for name in ("one", "again"))
    second = run_on(**facts(tmp_path / "other", other, **besides))
    identities = [machine_of(run.header).fingerprint for run in (first, second, again)]
    assert identities[0] == identities[2] != identities[1] and unlike(first, again) == ()
    assert [found.key for found in unlike(first, second)] and all(found.group == "hardware" for found in unlike(first, second))


def test_what_a_kernel_keeps_for_itself_makes_no_other_machine(tmp_path: Path) -> None:
    """16 GiB of memory are 15.3 to one kernel and 15.6 to another."""
    found = {facts(tmp_path / str(gib), X86, gib=gib)["memory_about"] for gib in (15.3, 15.6, 16.0)}
    assert found == {"16 GiB"}


def test_a_record_without_the_facts_is_compared_and_joins_the_one_machine_that_it_may_be(tmp_path: Path) -> None:
    """With two such machines it is a line of its own."""
    new, old = run_on(**facts(tmp_path / "new", arm("0xd40"))), run_on(cpu_model=None, isa_flags=["asimd", "sve"])
    assert unlike(old, new) == () == unlike(new, old)
    short, whole = (machine_of(run.header).fingerprint for run in (old, new))
    assert whole.startswith(f"{short}-") and "0xd40" in machine_of(new.header).words
    with History(str(tmp_path / "h.sqlite")) as kept:
        for number, fingerprint in enumerate((short, whole)):
            kept.add(replace(history.record(number, history.figure(2.0)), fingerprint=fingerprint))
        with kept.reading() as connection:
            [series] = read_lines(connection, Wanted(), ["wall_speedup"]).series
        assert len(series.points) == 2 and series.line.fingerprint == whole
        kept.add(replace(history.record(2, history.figure(2.0)), fingerprint=f"{short}-another"))
        with kept.reading() as connection:
            assert len(read_lines(connection, Wanted(), ["wall_speedup"]).series) == 3


@pytest.mark.parametrize(
    ("environment", "threads", "words"),
    [
        ({"threads": {"torch": 2}, "cgroup_cpus": 0.5}, None, "2 threads share a quota of 0.5 CPUs"),
        ({"threads": {"torch": 8}, "cgroup_cpus": 2.5}, None, "threads: 2"),
        ({"threads": {"torch": 8}, "cgroup_cpus": 2.0}, 2, None),
        ({"threads": {"torch": 2}, "cgroup_cpus": 1.0}, 4, "4 threads"),
        ({"threads": {"torch": 8}, "cgroup_cpus": None}, None, None),
        ({}, None, None),
    ],
)
def test_threads_beyond_a_quota_are_said(environment: dict[str, Any], threads: int | None, words: str | None) -> None:
    """With the remedy; where they fit, or nothing is known, nothing."""
    found = crowded(environment, threads)
    assert (words in found and "threads: " in found) if words else found == ""
