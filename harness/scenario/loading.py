"""A scenario read from its file; a part for several kinds of device becomes one part for each of them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

from pydantic import ValidationError

from harness.config_file import read_yaml
from harness.errors import ScenarioError, UnknownModelError, UnknownTaskError
from harness.models.choice import REMOTE_CODE
from harness.paths import data_dir
from harness.scenario.claims import misplaced
from harness.scenario.part import Part
from harness.scenario.scenario import NOT_MEASURED, Scenario


def load_scenario(path: Path | str, remote_code: bool = False) -> Scenario:
    """Read a scenario file, or a shipped scenario by its bare name; paths in it are resolved against its folder.

    ``remote_code``: models that ask for it may run code of their own.

    Raises:
        ScenarioError, UnknownModelError, UnknownTaskError: with ``file:line: key: given, allowed, what to do`` per mistake.
    """
    file = find_scenario(path)
    document = read_yaml(file)
    try:
        context = {"base": file.parent.resolve(), REMOTE_CODE: remote_code}
        return by_device(Scenario.model_validate(document.data, context=context), str(file))
    except ValidationError as error:
        kinds = {details["type"] for details in error.errors()}
        lines = document.describe(error)
    if "unknown_model" in kinds:
        raise UnknownModelError(*lines)
    raise UnknownTaskError(*lines) if "unknown_task" in kinds else ScenarioError(*lines)


def find_scenario(path: Path | str) -> Path:
    """The scenario file: a path that exists, or the name of a shipped scenario.

    Raises:
        ScenarioError: neither; the message lists the shipped names.
    """
    given = Path(path)
    return given if given.exists() else shipped_file(given, data_dir("scenarios"), "scenario file")


def shipped_file(name: Path, folder: Path, what: str) -> Path:
    """The file ``name``.yaml of a folder that travels with the program.

    Raises:
        ScenarioError: there is none; the message lists the shipped names.
    """
    shipped = folder / f"{name}.yaml"
    if len(name.parts) == 1 and shipped.is_file():
        return shipped
    names = ", ".join(shipped_names(folder))
    raise ScenarioError(f"{name}: there is no such {what}; give a path, or a shipped name: {names}")


def shipped_names(folder: Path) -> tuple[str, ...]:
    """Names of the scenarios, or files of claims, in a folder that travels with the program."""
    return tuple(sorted(file.stem for file in folder.glob("*.yaml")))


def scenario_digest(scenario: Mapping[str, object]) -> str:
    """SHA-256 of a resolved scenario (``model_dump(mode="json")``): equal if and only if all measured values are equal.

    Keys that no sample depends on are left out: runs older than claims can be continued, and hung runs with a later deadline.
    """
    measured = {key: value for key, value in scenario.items() if key not in NOT_MEASURED}
    return hashlib.sha256(json.dumps(measured, sort_keys=True, ensure_ascii=False).encode()).hexdigest()


LONGEST_NAME = 64


def by_device(scenario: Scenario, file: str) -> Scenario:
    """The scenario with ``name`` on devices A and B as the parts ``name-A`` and ``name-B``; the same for their baselines.

    Raises:
        ScenarioError: names that collide or are too long, a baseline on other devices, a claim about such a part.
    """
    if all(len(part.devices) < 2 for part in scenario.parts):
        return scenario
    by_name = {part.name: part for part in scenario.parts}
    parts = tuple(one for part in scenario.parts for one in _each(part, by_name, file))
    names = [part.name for part in parts]
    for name in names:
        if names.count(name) > 1 or len(name) > LONGEST_NAME:
            raise ScenarioError(
                f"{file}: devices: makes a part {name}, a name that is taken or longer than {LONGEST_NAME} letters; rename it"
            )
    for key, given, allowed in misplaced(scenario.claims, {part.name: part.batch_sizes for part in parts}):
        raise ScenarioError(
            f"{file}: claims: a claim is about {key} {given!r}, which is a part for each of its devices; "
            f"allowed: {', '.join(map(str, allowed))}"
        )
    return scenario.model_copy(update={"parts": parts})


def _each(part: Part, by_name: dict[str, Part], file: str) -> list[Part]:
    other = by_name.get(part.baseline or "")
    theirs = other.devices if other is not None and len(other.devices) > 1 else ()
    if theirs and theirs != part.devices:
        raise ScenarioError(
            f"{file}: part {part.name}: devices: its baseline {part.baseline} is measured on {', '.join(theirs)}; "
            "give both the same devices"
        )
    if len(part.devices) < 2:
        return [part]
    changes = (
        {"name": f"{part.name}-{device}", "devices": (device,)} | ({"baseline": f"{part.baseline}-{device}"} if theirs else {})
        for device in part.devices
    )
    return [part.model_copy(update=change) for change in changes]
