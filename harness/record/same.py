"""What a run was measured with: the facts of a machine and the versions on it, by their keys in a run's environment.

Three ask for them, each by the lists here: the processes of a run (harness.record.identity), two runs
(harness.regression.comparability) and the runs of a history, whose machine is a key. Runs of one key may share one line of a
trend, and two kinds of machine never enter one statistic. The key holds hardware only. Versions of software are kept beside a
run, and named where a change coincides with theirs.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple, cast

from harness.frozen import frozen
from harness.record.schema import RunHeader
from harness.record.written import Checkout, Environment

OF_KIND = ("cpu_model", "logical_cores", "affinity_cores", "cgroup_cpus", "isa_flags", "hypervisor")
"""Two kinds of machine differ in one of them; flags count because hypervisors give several processors one name."""
LATER_FACTS = ("cpu_id", "caches", "memory_about", "product")
"""What tells two kinds of one name apart. Older records lack them, and what one record lacks is no difference."""
OF_SETUP = ("smt", "governor", "threads")
"""How one machine may be set up in several ways; two runs of the same kind must agree in them too."""
OF_GPU = ("name", "memory_bytes", "multiprocessors")
SETUP_OF_GPU = ("power_limit_w", "ecc", "mig")
SOFTWARE = ("python", "harness", "kernel", "nvidia_driver", "cuda_driver")
LIBRARIES = ("torch", "transformers")
"""The packages that every process computes with."""
COMPILERS = ("triton",)
"""Packages that only two runs are compared by."""


@frozen
class MachineIdentity:
    """``fingerprint``: 12 hexadecimal digits over the facts and, after a hyphen, 12 over those that older records lack.
    ``words``: for a reader, not unique.
    """

    fingerprint: str
    words: str


def facts_of(values: Mapping[str, object], names: Iterable[str]) -> dict[str, object]:
    """The value under each name; None where it is not known."""
    return {name: values.get(name) for name in names}


def machine_of(header: RunHeader) -> MachineIdentity:
    """The machine of a run: its processor, and its GPUs where a case ran on one. That of an imported run has the name that its
    importer gave; unnamed ones are never taken for the same.
    """
    environment = header.environment
    if header.imported is not None:
        words = environment.get("machine")
        named = f"run {header.run_id}" if words is None else f"machine {words}"
        return MachineIdentity(fingerprint=_digest(named), words="a machine that no file names" if words is None else words)
    devices = {case.device.partition(":")[0] for case in header.cases if case.device is not None}
    gpus = [facts_of(gpu, OF_GPU) for gpu in environment.get("gpus") or []] if devices - {"cpu"} else []
    facts = facts_of(environment, OF_KIND) | {"gpus": gpus, "devices": sorted(devices)}
    written = json.dumps(facts, sort_keys=True, ensure_ascii=True, default=str)
    later = [*facts_of(environment, LATER_FACTS).values()]
    more = f"-{_digest(repr(later))}" if any(later) else ""
    return MachineIdentity(fingerprint=_digest(written) + more, words=_words(environment, gpus))


def hardware_of(environment: Environment) -> dict[str, object]:
    """What two runs must agree in of their machine: as machine_of, with its setup and its memory in GiB."""
    memory = environment.get("memory_total_bytes")
    return {
        **facts_of(environment, (name for name in (*OF_KIND, *OF_SETUP) if name in environment)),
        **facts_of(environment, LATER_FACTS),
        "memory_gib": None if memory is None else round(memory / 2**30),
        "gpus": [facts_of(gpu, OF_GPU) for gpu in environment.get("gpus") or []],
        "nvidia_gpus": [facts_of(gpu, SETUP_OF_GPU) for gpu in environment.get("nvidia_gpus") or []],
    }


def versions_of(environment: Environment) -> dict[str, object]:
    """The versions that two runs must agree in."""
    packages = environment.get("packages") or {}
    pinned = {name: packages[name] for name in (*LIBRARIES, *COMPILERS) if name in packages}
    return facts_of(environment, ("python", "nvidia_driver")) | pinned


def _digest(written: str) -> str:
    return hashlib.sha256(written.encode()).hexdigest()[:12]


def _words(environment: Environment, gpus: Sequence[Mapping[str, object]]) -> str:
    if gpus:
        names = [str(gpu["name"]) for gpu in gpus]
        return ", ".join(f"{names.count(name)} x {name}" for name in dict.fromkeys(names))
    cores = environment.get("affinity_cores") or environment.get("logical_cores")
    model = environment.get("cpu_model") or environment.get("cpu_id") or "processor not known"
    return f"{model}, {cores} cores" if cores else str(model)


def crowded(environment: Environment, threads: int | None = None) -> str:
    """That more threads share the quota of CPUs than fit, and the remedy; empty where they fit, or it is not known.

    ``threads``: of a part; None: torch's own number.
    """
    cpus, threads = environment.get("cgroup_cpus"), threads or (environment.get("threads") or {}).get("torch")
    if not threads or not cpus or threads <= cpus:
        return ""
    return (
        f"{threads} threads share a quota of {cpus:g} CPUs (cgroup), so times stop and go: write "
        f"threads: {max(1, int(cpus))} into the part, or raise the quota"
    )


def checkout_of(environment: Environment) -> Checkout:
    """``commit``, ``commit_has_changes`` and ``committed_at`` of the repository that the run was begun in; nothing where it was
    begun in none. Older records have sbd's own checkout alone.
    """
    return cast(Checkout, environment.get("repository", environment) or {})


def software_of(header: RunHeader) -> dict[str, str]:
    """Versions that may explain a change of speed, by name; what the snapshot lacks is left out."""
    environment = header.environment
    versions = facts_of(environment, SOFTWARE) | (environment.get("packages") or {})
    own = environment.get("commit")
    versions |= {"sbd commit": own} if checkout_of(environment).get("commit") != own else {}
    return {str(name): str(version) for name, version in sorted(versions.items()) if version is not None}


class _Absent:
    """Stands for a key that one side does not have; unlike None it is never a value."""

    def __repr__(self) -> str:
        return "not there"


ABSENT: Final = _Absent()


class Differing(NamedTuple):
    """One dotted key with its value on either side (``ABSENT``: the key is not there)."""

    key: str
    one: Any
    other: Any


def differing(one: object, other: object, where: str = "") -> list[Differing]:
    """Every place at which two values made of dicts, lists and scalars differ, down to the scalars."""
    if isinstance(one, dict) and isinstance(other, dict):
        pairs = [(str(key), one.get(key, ABSENT), other.get(key, ABSENT)) for key in dict.fromkeys([*one, *other])]
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        pairs = [(str(index), left, right) for index, (left, right) in enumerate(zip(one, other, strict=True))]
    else:
        return [] if one == other else [Differing(where or "everything", one, other)]
    return [found for name, left, right in pairs for found in differing(left, right, f"{where}.{name}" if where else name)]
