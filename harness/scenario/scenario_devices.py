"""A part that is to be measured on several kinds of device, as one part for each: a part's figures are one device's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.errors import ScenarioError
from harness.scenario.claims import misplaced

if TYPE_CHECKING:
    from harness.scenario.scenario import Part, Scenario

LONGEST_NAME = 64


def by_device(scenario: Scenario, file: str) -> Scenario:
    """The scenario with ``name`` on devices A and B as the parts ``name-A`` and ``name-B``; their baselines likewise.

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
    if other is not None and len(other.devices) > 1 and other.devices != part.devices:
        raise ScenarioError(
            f"{file}: part {part.name}: devices: its baseline {other.name} is measured on {', '.join(other.devices)}; "
            "give both the same devices"
        )
    if len(part.devices) < 2:
        return [part]
    several = other is not None and len(other.devices) > 1
    return [
        part.model_copy(
            update={
                "name": f"{part.name}-{device}",
                "devices": (device,),
                "baseline": f"{part.baseline}-{device}" if several else part.baseline,
            }
        )
        for device in part.devices
    ]
