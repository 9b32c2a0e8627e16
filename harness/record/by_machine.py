"""A run over several nodes as one run for every kind of machine, and as a run of the only kind there is.

Nodes are of one kind if their processor, their GPUs and the versions of their software agree.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Any

from harness.errors import UserError
from harness.record.same import MachineIdentity, machine_of, software_of
from harness.record.schema import CaseHeader, Run, RunHeader

CEILINGS = "ceilings"
"""The event of a part's calibration, and of a node's hardware profile."""


def by_machine(run: Run) -> tuple[Run, ...]:
    """One run for each kind of machine, in the order of their first samples; each header describes its own machine.

    Parts that were made for one of several ``devices`` get their common name back, so that these runs can be compared. A run
    without nodes or samples is returned as it is.
    """
    nodes = list(dict.fromkeys(sample.node for sample in run.samples if sample.node is not None))
    if not nodes:
        return (run,)
    kinds: dict[tuple[MachineIdentity, str], list[str | None]] = {}
    for node in [*nodes, *([None] if any(sample.node is None for sample in run.samples) else [])]:
        kinds.setdefault(_kind(run, node), []).append(node)
    several = len(kinds) > 1
    return tuple(_of_nodes(run, own, _name(*kind) if several else "") for kind, own in kinds.items())


def of_one_machine(run: Run) -> Run:
    """The run of the only kind of machine that it was taken on.

    Raises:
        UserError: it was taken on several.
    """
    found = by_machine(run)
    if len(found) == 1:
        return found[0]
    kinds = "; ".join(machine_of(one.header).words for one in found)
    raise UserError(
        f"run {run.header.run_id}: was taken on {len(found)} kinds of machine ({kinds}), which are never mixed in one "
        "statistic; `sbd report RUN` shows them beside each other"
    )


def _name(machine: MachineIdentity, software: str) -> str:
    """The part of a run's id that names its kind of machine."""
    return hashlib.sha256(f"{machine.fingerprint} {software}".encode()).hexdigest()[:12]


def _kind(run: Run, node: str | None) -> tuple[MachineIdentity, str]:
    """The kind of a node, with the versions of its software."""
    found = _environment(run, node)
    if found is None:
        return MachineIdentity(fingerprint="unknown", words="a node that the record says nothing of"), ""
    cases = [case for case in run.header.cases if case.case_id in {one.case_id for one in run.samples if one.node == node}]
    header = run.header.model_copy(update={"environment": found, "cases": cases})
    return machine_of(header), json.dumps(software_of(header), sort_keys=True)


def _environment(run: Run, node: str | None) -> dict[str, Any] | None:
    """The environment of a node when it began; that of the header where the samples have no node."""
    if node is None:
        return run.header.environment
    return next((one for one in run.sessions if one.get("event") == "start" and one.get("node") == node), None)


def _of_nodes(run: Run, nodes: Sequence[str | None], name: str) -> Run:
    samples = [sample for sample in run.samples if sample.node in nodes]
    taken = {sample.case_id for sample in samples}
    header = run.header
    if name:
        cells = {(case.part, case.batch_size) for case in header.cases if case.case_id in taken}
        own = [case for case in header.cases if (case.part, case.batch_size) in cells]
    else:
        own = header.cases
    ids = {case.case_id for case in own}
    changes = {
        "header": _header(run, nodes, own, name),
        "samples": samples,
        "outcomes": [outcome for outcome in run.outcomes if outcome.case_id in ids],
        "sessions": [one for one in run.sessions if one.get("node") in {None, *nodes}],
    }
    found = run.model_copy(update=changes)
    return _common_names(found) if name else found


def _ceilings(sessions: Sequence[dict[str, Any]], nodes: Sequence[str | None]) -> list[dict[str, Any]]:
    return [one for one in sessions if one.get("event") == CEILINGS and one.get("node") in nodes]


def calibrations(sessions: Sequence[dict[str, Any]], nodes: Sequence[str | None] = (None,)) -> dict[str, Any]:
    """By part, what its machine, or these nodes, were measured to reach before its first sample."""
    told = _ceilings(sessions, nodes)
    return {one["part"]: one["calibration"] for one in told if one.get("calibration") is not None}


def _header(run: Run, nodes: Sequence[str | None], cases: list[CaseHeader], name: str) -> RunHeader:
    """The run's header as a run on this machine alone would have it."""
    header = run.header
    ceilings = [one for one in _ceilings(run.sessions, nodes) if "hardware" in one]
    changes: dict[str, Any] = {"environment": _environment(run, nodes[0]) or {}, "cases": cases}
    if ceilings:
        changes |= {
            "calibration": calibrations(run.sessions, nodes) or None,
            "hardware": ceilings[-1].get("hardware"),
            "hardware_reason": ceilings[-1].get("hardware_reason"),
        }
    if name:
        changes["run_id"] = f"{header.run_id}-{name}"
    return header.model_copy(update=changes)


def _common_names(run: Run) -> Run:
    """The run with its parts named as in the file of several devices; parts without samples are left out."""
    scenario, there = run.header.scenario, {case.part for case in run.header.cases}
    parts = [part for part in scenario.get("parts", []) if part["name"] in there]
    names = {part["name"]: _common_name(part) for part in parts}
    if len(set(names.values())) < len(names):  # two devices of one kind of machine: their parts stay apart
        names = {name: name for name in names}
    baselines = {part["name"]: names.get(part.get("baseline"), part.get("baseline")) for part in parts}
    renamed = [part | {"name": names[part["name"]], "baseline": baselines[part["name"]]} for part in parts]
    cases = [
        case.model_copy(
            update={"part": names[case.part], "case_id": f"{names[case.part]}/{case.case_id.removeprefix(f'{case.part}/')}"}
        )
        for case in run.header.cases
    ]
    ids = {old.case_id: new.case_id for old, new in zip(run.header.cases, cases, strict=True)}
    changes = {
        "header": run.header.model_copy(update={"scenario": scenario | {"parts": renamed}, "cases": cases}),
        "samples": [sample.model_copy(update={"case_id": ids[sample.case_id]}) for sample in run.samples],
        "outcomes": [outcome.model_copy(update={"case_id": ids[outcome.case_id]}) for outcome in run.outcomes],
        "sessions": [one | {"part": names[one["part"]]} if one.get("part") in names else one for one in run.sessions],
    }
    return run.model_copy(update=changes)


def _common_name(part: dict[str, Any]) -> str:
    name, devices = str(part["name"]), part.get("devices") or []
    return name.removesuffix(f"-{devices[0]}") if len(devices) == 1 else name
