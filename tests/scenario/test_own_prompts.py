"""Processes with prompts of their own: which scenarios get them, what each process decodes, what warms up, who is checked."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from pathlib import Path

import pytest

from harness.errors import ScenarioError
from harness.scenario.loading import load_scenario, scenario_digest
from harness.scenario.part import Part
from harness.scenario.plan import Plan, make_plan
from tests.helpers.scenarios import write

TEXT = """
version: 1
name: own
parts:
  - name: one
    model: {reference: sbd}
    dtype: float32
    processes: PROCESSES
    warmup: 2
    baseline_check: 2
    arms: [{method: ntp}, {method: sbd, gamma: [0.1, 0.3]}]
    workload: {WORKLOAD, prompts: 3, max_new_tokens: 8}
    EXTRA
"""
TASKS = "tasks: [word_problems, short_trace]"


def part_of(folder: Path, workload: str = TASKS, processes: int = 4, extra: str = "") -> Part:
    """The only part of such a scenario, read from a file."""
    text = TEXT.replace("WORKLOAD", workload).replace("PROCESSES", str(processes)).replace("EXTRA", extra)
    return load_scenario(write(folder, text)).parts[0]


def plan_of(folder: Path, **changes: object) -> Plan:
    part_of(folder, **changes)  # type: ignore[arg-type]  # of part_of
    return make_plan(load_scenario(folder / "s.yaml"))


def test_every_process_decodes_as_many_prompts_of_each_task_and_none_twice(tmp_path: Path) -> None:
    """In every arm alike; so do the seeds."""
    held: defaultdict[str, dict[int, set[int]]] = defaultdict(dict)
    seeds: dict[tuple[str, int], set[int]] = defaultdict(set)
    for slot in plan_of(tmp_path).slots():
        if not slot.warmup and not slot.case.is_check:
            held[slot.case.case_id].setdefault(slot.process, set()).update(slot.prompt_range)
            seeds[slot.case.task, slot.process].add(slot.seed)
    assert len(held) == 6
    for processes in held.values():
        assert [processes[j] for j in range(4)] == [set(range(3 * j, 3 * j + 3)) for j in range(4)]
    assert len(set().union(*seeds.values())) == sum(map(len, seeds.values())) == 2 * 4 * 3


def test_an_arm_warms_up_once_and_generate_is_in_the_first_process_alone(tmp_path: Path) -> None:
    """Two warm-ups of the first task; all counted in the plan's number of samples."""
    plan = plan_of(tmp_path)
    slots = list(plan.slots())
    warm = Counter((slot.process, slot.case.task, slot.case.is_check) for slot in slots if slot.warmup)
    checks = {case.case_id for case in plan.cases if case.is_check}
    of_arms = {key: count for key, count in warm.items() if not key[2]}
    assert of_arms == {(process, "word_problems", False): 3 * 2 for process in range(4)}
    assert {slot.process for slot in slots if slot.case.is_check} == {0} and len(checks) == 4
    assert sum(case.sample_count for case in plan.cases) == len(slots)


def test_rounds_stay_balanced_over_the_processes(tmp_path: Path) -> None:
    """Over 18 rounds beside no generate(), each of three arms is first, second and third equally often, or once more."""
    places: Counter[tuple[str, int]] = Counter()
    slots = [slot for slot in plan_of(tmp_path, processes=7).slots() if slot.case.task == "short_trace" and not slot.warmup]
    rounds: defaultdict[tuple[int, int], list[str]] = defaultdict(list)
    for slot in slots:
        rounds[slot.process, slot.group].append(slot.case.case_id)
    for (process, group), order in rounds.items():
        if process or group > 1:
            places.update((case_id, place) for place, case_id in enumerate(order))
    assert sum(places.values()) == 3 * (7 * 3 - 2) and max(places.values()) - min(places.values()) <= 1


@pytest.mark.parametrize(
    ("changes", "own"),
    [
        ({}, True),
        ({"processes": 1}, None),
        ({"extra": "own_prompts: false"}, None),
        ({"workload": "synthetic: {prompt_tokens: 8}"}, True),
        ({"workload": "instructions: {split: test}"}, True),
    ],
)
def test_it_is_what_a_scenario_gets_where_prompts_are_plenty(tmp_path: Path, changes: dict[str, object], own: object) -> None:
    assert part_of(tmp_path, **changes).own_prompts is own  # type: ignore[arg-type]  # of part_of


@pytest.mark.parametrize(("lines", "own"), [(12, True), (11, None)])
def test_a_file_has_to_hold_enough_for_all_processes(tmp_path: Path, lines: int, own: object) -> None:
    """Four processes with three prompts each take twelve; with fewer lines they share the first three."""
    text = "\n".join(json.dumps({"prompt": f"say {i}"}) for i in range(lines))
    (tmp_path / "p.jsonl").write_text(text)
    part = part_of(tmp_path, workload="prompts_file: p.jsonl")
    assert part.own_prompts is own
    if own is None:
        with pytest.raises(ScenarioError, match=r"own_prompts: got true, but 4 processes with 3 prompts each take 12"):
            part_of(tmp_path, workload="prompts_file: p.jsonl", extra="own_prompts: true")


def test_what_a_record_holds_stays_as_it_was(tmp_path: Path) -> None:
    """A record of before has no such key, and its processes shared their prompts; the new key is in the digest."""
    part = part_of(tmp_path)
    written = part.model_dump(mode="json")
    assert written["own_prompts"] is True and Part.model_validate(written) == part
    older = {key: value for key, value in written.items() if key != "own_prompts"}
    assert Part.model_validate(older).own_prompts is None
    shared = part_of(tmp_path, extra="own_prompts: false").model_dump(mode="json")
    assert shared == older
    digests = {scenario_digest({"parts": [one]}) for one in (written, older)}  # type: ignore[typeddict-item]  # as in a file
    assert len(digests) == 2


def test_a_baseline_in_another_part_decodes_the_same_prompts(tmp_path: Path) -> None:
    """Two parts that are paired have as many processes where each has prompts of its own."""
    text = TEXT.replace("WORKLOAD", TASKS).replace("PROCESSES", "4").replace("EXTRA", "")
    other = (
        text.partition("parts:\n")[2]
        .replace("name: one", "name: two\n    baseline: one")
        .replace("processes: 4", "processes: 5")
    )
    with pytest.raises(ScenarioError, match=r"part two: its baseline one decodes other prompts \(processes differ\)"):
        load_scenario(write(tmp_path, text + other))
