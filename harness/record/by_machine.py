"""A run over several nodes as one run for every kind of machine, and as a run of the only kind there is.

Nodes are of one kind if their processor, their GPUs and the versions of their software agree.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import cast

from harness.errors import UserError
from harness.record.same import MachineIdentity, machine_of, software_of
from harness.record.schema import Run
from harness.record.written import Environment, Happened, WrittenPartKeys

CEILINGS = "ceilings"
"""The event of a part's calibration, and of a node's hardware profile."""


def by_machine(run: Run) -> tuple[Run, ...]:
    """One run for each kind of machine, in the order of their first samples; each header describes its own machine.

    Parts that were made for one of several ``devices`` get their common name back, so that these runs can be compared. A run
    without nodes or samples is returned as it is.
    """
    nodes = list(dict.fromkeys(sample.node for sample in run.samples))
    if nodes in ([], [None]):
        return (run,)
    kinds: dict[tuple[MachineIdentity, str], list[str | None]] = {}
    for node in [*(name for name in nodes if name is not None), *([None] if None in nodes else [])]:
        kinds.setdefault(_kind(run, node), []).append(node)
    if len(kinds) == 1:
        return (_of_nodes(run, nodes),)
    return tuple(_apart(_of_nodes(run, own), *kind) for kind, own in kinds.items())


def of_one_machine(run: Run) -> Run:
    """The run of the only kind of machine that it was taken on.

    Raises:
        UserError: it was taken on several.
    """
    runs = by_machine(run)
    if len(runs) == 1:
        return runs[0]
    kinds = "; ".join(machine_of(own.header).words for own in runs)
    raise UserError(
        f"run {run.header.run_id}: was taken on {len(runs)} kinds of machine ({kinds}), which are never mixed in one "
        "statistic; `sbd report RUN` shows them beside each other"
    )


def calibrations(sessions: Sequence[Happened], nodes: Sequence[str | None] = (None,)) -> dict[str, object]:
    """By part, what its machine, or these nodes, were measured to reach before its first sample."""
    events = _ceilings(sessions, nodes)
    return {event["part"]: event["calibration"] for event in events if event.get("calibration") is not None}


def _ceilings(sessions: Sequence[Happened], nodes: Sequence[str | None]) -> list[Happened]:
    return [event for event in sessions if event.get("event") == CEILINGS and event.get("node") in nodes]


def _kind(run: Run, node: str | None) -> tuple[MachineIdentity, str]:
    """The kind of a node, with the versions of its software."""
    environment = _environment(run, node)
    if environment is None:
        return MachineIdentity(fingerprint="unknown", words="a node that the record says nothing of"), ""
    taken = {sample.case_id for sample in run.samples if sample.node == node}
    cases = [case for case in run.header.cases if case.case_id in taken]
    header = run.header.model_copy(update={"environment": environment, "cases": cases})
    return machine_of(header), json.dumps(software_of(header), sort_keys=True)


def _environment(run: Run, node: str | None) -> Environment | None:
    """The environment of a node when it began; that of the header where the samples have no node."""
    if node is None:
        return run.header.environment
    starts = (event for event in run.events("start") if event.get("node") == node)
    return cast(Environment | None, next(starts, None))


def _of_nodes(run: Run, nodes: Sequence[str | None]) -> Run:
    """The samples of these nodes, with a header that describes their machine."""
    header: dict[str, object] = {"environment": _environment(run, nodes[0]) or {}}
    profiles = [event for event in _ceilings(run.sessions, nodes) if "hardware" in event]
    if profiles:
        header |= {
            "calibration": calibrations(run.sessions, nodes) or None,
            "hardware": profiles[-1]["hardware"],
            "hardware_reason": profiles[-1].get("hardware_reason"),
        }
    changes = {
        "header": run.header.model_copy(update=header),
        "samples": [sample for sample in run.samples if sample.node in nodes],
        "sessions": [event for event in run.sessions if event.get("node") in {None, *nodes}],
    }
    return run.model_copy(update=changes)


def _apart(run: Run, machine: MachineIdentity, software: str) -> Run:
    """The run of one of several kinds, under an id of its own: the cells that have samples, their parts named as in the file of
    several devices.
    """
    header, taken = run.header, {sample.case_id for sample in run.samples}
    cells = {(case.part, case.batch_size) for case in header.cases if case.case_id in taken}
    own = [case for case in header.cases if (case.part, case.batch_size) in cells]
    parts = [part for part in header.scenario.get("parts", []) if part["name"] in {case.part for case in own}]
    names = {part["name"]: _common_name(part) for part in parts}
    if len(set(names.values())) < len(names):  # two devices of one kind of machine: their parts stay apart
        names = {name: name for name in names}

    def renamed(case_id: str) -> str:
        part, _, rest = case_id.partition("/")
        return f"{names[part]}/{rest}"

    cases = [case.model_copy(update={"part": names[case.part], "case_id": renamed(case.case_id)}) for case in own]
    baselines = [names.get(part.get("baseline") or "", part.get("baseline")) for part in parts]
    written = [{**part, "name": names[part["name"]], "baseline": base} for part, base in zip(parts, baselines, strict=True)]
    kind = hashlib.sha256(f"{machine.fingerprint} {software}".encode()).hexdigest()[:12]
    own_header = {"run_id": f"{header.run_id}-{kind}", "scenario": header.scenario | {"parts": written}, "cases": cases}
    ids = {case.case_id for case in own}
    changes = {
        "header": header.model_copy(update=own_header),
        "samples": [one.model_copy(update={"case_id": renamed(one.case_id)}) for one in run.samples],
        "outcomes": [one.model_copy(update={"case_id": renamed(one.case_id)}) for one in run.outcomes if one.case_id in ids],
        "sessions": [{**one, "part": names[one["part"]]} if one.get("part") in names else one for one in run.sessions],
    }
    return run.model_copy(update=changes)


def _common_name(part: WrittenPartKeys) -> str:
    name, devices = part["name"], part.get("devices") or []
    return name.removesuffix(f"-{devices[0]}") if len(devices) == 1 else name
