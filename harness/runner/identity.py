"""What this process measures a part with: the model's files, the program's source, the machine and its libraries."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path

from harness.models.choice import model_name
from harness.models.digests import Known, model_digests
from harness.record.identity import machine_facts
from harness.record.written import Environment
from harness.scenario.part import Part
from harness.scenario.speculative_arms import draft_models

PACKAGE = Path(__file__).resolve().parents[1]
SUFFIXES = {".py", ".cpp", ".h", ".yaml", ".csv"}


@cache
def source_digest() -> str:
    """SHA-256 over the names and contents of the package's modules and tables: an edit shows, a commit alone does not."""
    digest = hashlib.sha256()
    for file in sorted(PACKAGE.rglob("*")):
        if file.suffix in SUFFIXES and "__pycache__" not in file.parts and "_data" not in file.parts:
            digest.update(f"{file.relative_to(PACKAGE).as_posix()}\0".encode())
            digest.update(hashlib.sha256(file.read_bytes()).digest())
    return digest.hexdigest()


def identity_of(part: Part, environment: Environment) -> dict[str, object]:
    """The values of an identity event (harness.record.identity) by key; ``reasons`` says why one is None.

    Args:
        environment: this process's, as harness.meters.environment.snapshot gives it.
    """
    facts, reasons = machine_facts(environment), dict(environment.get("reasons") or {})
    facts["code"] = source_digest()
    if part.device == "cpu":
        facts["gpus"], reasons["gpus"] = None, "the part runs on the CPU"
    found: dict[str, tuple[object, str | None]] = {**model_digests(part.model, part.seed, part.dtype), "drafts": _drafts(part)}
    facts |= {name: value for name, (value, _) in found.items()}
    reasons |= {name: reason for name, (_, reason) in found.items() if reason is not None}
    return {**facts, "reasons": {name: reasons.get(name, "not told") for name, value in facts.items() if value is None}}


def _drafts(part: Part) -> tuple[dict[str, str] | None, str | None]:
    """A digest of all files for every draft model of the part's arms, or None and why."""
    choices = [choice for arm in part.arms for variant in arm.variants() for choice in draft_models(variant)]
    if not choices:
        return None, "no arm has a draft model"
    every: dict[str, dict[str, Known]] = {model_name(one): model_digests(one, part.seed, part.dtype) for one in choices}
    if lacking := [f"{name}: {of_model['weights'][1]}" for name, of_model in every.items() if of_model["weights"][0] is None]:
        return None, "; ".join(lacking)
    return {
        name: hashlib.sha256(repr([digest for digest, _ in of_model.values()]).encode()).hexdigest()
        for name, of_model in every.items()
    }, None
