"""Which machine a run was measured on, as a key: runs of one key may stand in one line of a trend.

Hardware only. Versions of software are kept beside a run and named where a change falls together with theirs.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Any

from harness.record.schema import RunHeader

CPU_FACTS = ("cpu_model", "logical_cores", "affinity_cores", "cgroup_cpus", "isa_flags", "hypervisor")
"""Flags too, for hypervisors give several processors one name. A snapshot that lacks a fact differs from one that has it."""
GPU_FACTS = ("name", "memory_bytes", "multiprocessors")
SOFTWARE = ("python", "harness", "kernel", "nvidia_driver", "cuda_driver")


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """``fingerprint``: 12 hexadecimal digits over the facts. ``words``: for a reader, not unique."""

    fingerprint: str
    words: str


def machine_of(header: RunHeader) -> Machine:
    """The machine of a run: its processor, and its GPUs where a case ran on one."""
    environment = header.environment
    on_gpu = any(not case.device.startswith("cpu") for case in header.cases)
    facts: dict[str, Any] = {name: environment.get(name) for name in CPU_FACTS}
    gpus = [gpu for gpu in environment.get("gpus") or [] if isinstance(gpu, dict)] if on_gpu else []
    facts["gpus"] = [{name: gpu.get(name) for name in GPU_FACTS} for gpu in gpus]
    facts["devices"] = sorted({case.device.partition(":")[0] for case in header.cases})
    written = json.dumps(facts, sort_keys=True, ensure_ascii=True, default=str)
    return Machine(fingerprint=hashlib.sha256(written.encode()).hexdigest()[:12], words=_words(environment, gpus))


def _words(environment: dict[str, Any], gpus: list[dict[str, Any]]) -> str:
    if gpus:
        names = [str(gpu.get("name")) for gpu in gpus]
        return ", ".join(f"{names.count(name)} x {name}" for name in dict.fromkeys(names))
    cores = environment.get("affinity_cores") or environment.get("logical_cores")
    model = environment.get("cpu_model") or "processor not known"
    return f"{model}, {cores} cores" if cores else str(model)


def software_of(header: RunHeader) -> dict[str, str]:
    """Versions that a change of speed may come from, by name; what the snapshot does not tell is left out."""
    environment = header.environment
    found = {name: environment.get(name) for name in SOFTWARE} | (environment.get("packages") or {})
    return {str(name): str(version) for name, version in sorted(found.items()) if version is not None}
