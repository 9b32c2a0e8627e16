"""One arm on one model as a case without a scenario file, for other programs that decode with the harness.

Such a program names the arm in a mapping, in a line of YAML or JSON, or by its `sbd plan` name in a scenario.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from harness.config_file import parse_yaml
from harness.errors import ScenarioError, in_words
from harness.models.choice import REMOTE_CODE
from harness.scenario.arms import NtpArm
from harness.scenario.loading import load_scenario
from harness.scenario.methods import Arm
from harness.scenario.plan import Case, make_plan
from harness.scenario.scenario import Scenario

_ARM: TypeAdapter[Any] = TypeAdapter(Arm)


def read_arm(given: str | Mapping[str, object], knobs: Mapping[str, object] | None = None) -> dict[str, object]:
    """The keys of an arm: those of a mapping, of YAML or JSON text, or a method's bare name; ``knobs`` are further keys.

    Raises:
        ScenarioError: text that is no mapping and no word, or a key that is given twice.
    """
    parsed: Any = given
    if isinstance(given, str):
        try:
            parsed = parse_yaml(given, Path("arm")).data
        except ScenarioError as error:
            raise ScenarioError(f"{error}; write for example {{method: sbd, gamma: 0.1}}") from error
        parsed = {"method": parsed} if isinstance(parsed, str) else parsed
    if not isinstance(parsed, Mapping):
        raise ScenarioError(f"arm: got {given!r}; give a method's name, or a mapping such as {{method: sbd, gamma: 0.1}}")
    twice = sorted(set(parsed) & set(knobs or {}))
    if twice:
        raise ScenarioError(f"arm: {', '.join(twice)} given twice, in the arm and beside it; keep one")
    return {**parsed, **(knobs or {})}


def single_case(arm: Mapping[str, object], part: Mapping[str, object], remote_code: bool = False) -> Case:
    """The case of an arm with one value on every axis; ``part``: model, dtype and more, as a scenario's part has them.

    ``remote_code``: as load_scenario has it.

    Raises:
        ScenarioError, UnknownModelError: a key or value that a scenario also refuses; or several settings.
    """
    try:
        known = _ARM.validate_python(dict(arm))
    except ValidationError as error:
        raise ScenarioError(_described(error, "arm")) from error
    variants = known.variants()
    if len(variants) != 1 or variants[0].auto:
        raise ScenarioError(
            f"arm: {dict(arm)} has {'several' if variants[0].auto else len(variants)} settings, and one is decoded with; "
            "give every key one value"
        )
    baseline = [] if isinstance(known, NtpArm) else [{"method": "ntp"}]
    # A part names what it decodes; prompts from outside replace these, see with_lengths.
    workload = {"synthetic": {"prompt_tokens": 1}, "prompts": 1, "max_new_tokens": 1}
    whole = {**part, "name": "single", "arms": [*baseline, dict(arm)], "workload": workload, "baseline_check": 0, "warmup": 0}
    try:
        context = {"base": Path.cwd(), REMOTE_CODE: remote_code}
        scenario = Scenario.model_validate({"version": 1, "name": "single", "parts": [whole]}, context=context)
    except ValidationError as error:
        raise ScenarioError(_described(error, "model")) from error
    return make_plan(scenario).cases[-1]


def case_of_scenario(file: str | Path, part: str | None, arm: str | int, remote_code: bool = False) -> Case:
    """A case of a scenario: ``arm`` by its id, the last component of the case id that `sbd plan` shows, or by its number there.

    Arms with ``auto`` are left out. ``remote_code``: as load_scenario has it.

    Raises:
        ScenarioError and its kind: no such file, part or arm; the message lists the known ones.
    """
    scenario = load_scenario(file, remote_code)
    names = [each.name for each in scenario.parts]
    if part not in names and (part is not None or len(names) > 1):
        raise ScenarioError(f"{file}: part {part!r} is not there; give part=NAME, one of {', '.join(names)}")
    wanted = part or names[0]
    of_part = [case for case in make_plan(scenario).cases if case.part.name == wanted]
    cases = [case for case in of_part if not (case.is_check or case.arm.auto)]
    first = [case for case in cases if case.cell == cases[0].cell]
    ids = [case.case_id.rsplit("/", 1)[1] for case in first]
    index = int(arm) if str(arm).isdecimal() else ids.index(str(arm)) if arm in ids else -1
    if not 0 <= index < len(ids):
        listed = ", ".join(f"{number}: {name}" for number, name in enumerate(ids))
        raise ScenarioError(f"{file}: part {wanted} has no arm {arm!r}; give its number or its id, one of {listed}")
    return first[index]


def with_lengths(case: Case, max_new_tokens: int, stop_strings: tuple[str, ...] = ()) -> Case:
    """The case for prompts from outside, with this limit of new tokens and these stop strings."""
    changed = {"max_new_tokens": max_new_tokens, "stop_strings": stop_strings}
    return replace(case, part=case.part.model_copy(update={"workload": case.workload.model_copy(update=changed)}))


def _described(error: ValidationError, what: str) -> str:
    """Every mistake as ``what: key: words``, without the value's place inside unions and lists."""
    lines = []
    for details in error.errors(include_url=False):
        keys = [str(key) for key in details["loc"][1:] if isinstance(key, str) and key not in ("parts", "model")]
        lines.append(": ".join([what, *keys[-1:], in_words(details)]))
    return "\n".join(dict.fromkeys(lines))
