"""Loads of a part: which cells they make, what is refused, and that a trace is pinned and counted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from harness.errors import ScenarioError
from harness.record.written import WrittenPart
from harness.runner.sample_taking import case_items
from harness.scenario.load import recorded_load
from harness.scenario.loading import load_scenario
from harness.scenario.plan import Plan, make_plan
from harness.scenario.scenario import Scenario

PART: dict[str, Any] = {
    "name": "p",
    "model": {"pretrained": "smollm2-135m"},
    "dtype": "bfloat16",
    "warmup": 1,
    "servers": {"plain": {"engine": "vllm"}},
    "arms": [{"method": "ntp", "server": "plain"}],
    "workload": {"synthetic": {"prompt_tokens": 8}, "prompts": 24, "max_new_tokens": 16},
}
TRACE = [{"timestamp": 1000 * i, "input_length": 5 + i, "output_length": 4} for i in range(6)]


def plan_of(load: Any, **changes: Any) -> Plan:
    """The plan of one part under ``load``."""
    return make_plan(Scenario.model_validate({"version": 1, "name": "s", "parts": [PART | {"load": load} | changes]}))


def test_a_load_of_several_concurrencies_is_a_cell_for_each() -> None:
    """And arrivals are one more; a sample has all requests, a warm-up as many as are in flight, or four."""
    plan = plan_of([{"concurrency": [1, 2, 4]}, {"requests_per_s": 2.0}])
    assert [(case.batch_size, case.requests, case.groups) for case in plan.cases] == [
        (1, 24, 1),
        (2, 24, 1),
        (4, 24, 1),
        (24, 24, 1),
    ]
    assert [len(slot.prompt_range) for slot in plan.slots()] == [1, 24, 2, 24, 4, 24, 4, 24]
    written = plan.scenario.model_dump(mode="json")["parts"][0]
    assert written["batch_sizes"] == [1, 2, 4, 24]
    part = WrittenPart.model_validate(written)
    assert Scenario.model_validate(plan.scenario.model_dump(mode="json")) == plan.scenario, "it is read again as it was"
    assert [(found.words(size) if (found := recorded_load(part, size)) else None) for size in (2, 24, 3)] == [
        "2 in flight",
        "2 requests/s",
        None,
    ]


def test_requests_of_a_sample_are_a_part_of_the_prompts() -> None:
    """24 prompts are three samples of 8; each has its own prompts."""
    [case] = plan_of({"concurrency": 2, "requests": 8}).cases
    assert [list(case.prompt_range(group)) for group in range(case.groups)] == [
        list(range(8)),
        list(range(8, 16)),
        list(range(16, 24)),
    ]


def test_without_a_load_a_batch_goes_at_once() -> None:
    """As before; nothing is written of a load."""
    plan = plan_of([], batch_sizes=[2])
    assert plan.cases[0].load is None and plan.cases[0].requests == 2
    assert "load" not in plan.scenario.model_dump(mode="json")["parts"][0]


@pytest.mark.parametrize(
    ("load", "changes", "words"),
    [
        ({}, {}, "one of the three"),
        ({"concurrency": 2, "requests_per_s": 1.0}, {}, "got concurrency and requests_per_s"),
        ({"requests_per_s": 0}, {}, "greater than 0"),
        ({"concurrency": [2, 2]}, {}, "given twice"),
        ({"concurrency": 13}, {}, "too few for 13 in flight"),
        ([{"concurrency": 4}, {"requests_per_s": 1.0, "requests": 4}], {}, "would be one cell"),
        ({"requests_per_s": 1.0, "requests": 5}, {}, "do not fill samples of 5"),
        ({"concurrency": 2}, {"batch_sizes": [4]}, "remove batch_sizes"),
        ({"concurrency": 2}, {"servers": {}, "arms": [{"method": "ntp"}]}, "has no servers; remove load"),
        ({"concurency": 2}, {}, "did you mean 'concurrency'"),
    ],
)
def test_what_makes_no_sense_is_refused(load: Any, changes: dict[str, Any], words: str) -> None:
    """In words that say what to do."""
    with pytest.raises(ValidationError, match=words):
        plan_of(load, **changes)


def scenario_file(folder: Path, lines: list[dict[str, Any]], load: dict[str, Any], new_tokens: int = 16) -> Path:
    """A scenario beside its trace."""
    (folder / "trace.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    workload = PART["workload"] | {"max_new_tokens": new_tokens}
    file = folder / "s.yaml"
    part = PART | {"load": load | {"trace": "trace.jsonl"}, "workload": workload}
    file.write_text(json.dumps({"version": 1, "name": "s", "parts": [part]}), encoding="utf-8")
    return file


def test_a_trace_is_one_sample_pinned_by_its_digest(tmp_path: Path) -> None:
    """Its lines are counted; another file under the same name is refused, and so is none."""
    file = scenario_file(tmp_path, TRACE, {})
    scenario = load_scenario(file)
    [case] = make_plan(scenario).cases
    assert (case.batch_size, case.requests, case.groups, list(case.prompt_range(0))) == (6, 6, 1, list(range(6)))
    [load] = scenario.parts[0].load
    assert load.traced is not None and [one.after_s for one in load.traced] == [0, 1, 2, 3, 4, 5]
    assert load.words(6) == "trace trace.jsonl" and load.trace_sha256 is not None
    pinned = {"trace_sha256": load.trace_sha256}
    load_scenario(scenario_file(tmp_path, TRACE, pinned))
    with pytest.raises(ScenarioError, match="another trace than meant"):
        load_scenario(scenario_file(tmp_path, TRACE[:-1], pinned))
    (tmp_path / "trace.jsonl").unlink()
    with pytest.raises(ScenarioError, match="cannot read the trace"):
        load_scenario(file)


@pytest.mark.parametrize(
    ("lines", "load", "words"),
    [
        ([*TRACE, {"timestamp": 1, "input_length": 1, "output_length": 1}], {}, r"trace\.jsonl:7: comes before the line above"),
        ([*TRACE, {"timestamp": 9000, "input_length": 1, "output_length": 17}], {}, r"jsonl:7: asks for 17 tokens.*is 16"),
        (TRACE, {"requests": 7}, "has 6 requests, 7 are asked for"),
        ([{"timestamp": 0, "input_length": 0, "output_length": 1}], {}, r"jsonl:1: input_length: .*greater than or equal to 1"),
    ],
)
def test_a_wrong_trace_is_refused_by_file_and_line(tmp_path: Path, lines: Any, load: dict[str, Any], words: str) -> None:
    """Before anything runs."""
    with pytest.raises(ScenarioError, match=words):
        load_scenario(scenario_file(tmp_path, lines, load))


def test_the_first_requests_of_a_trace_are_enough(tmp_path: Path) -> None:
    """What is wrong behind them is not read."""
    lines = [*TRACE, {"timestamp": 0, "input_length": 1, "output_length": 999}]
    [case] = make_plan(load_scenario(scenario_file(tmp_path, lines, {"requests": 6}))).cases
    assert case.requests == 6


def slots_by_process(plan: Plan) -> list[list[list[int]]]:
    """The prompts of every sample that counts, of the first case, process by process."""
    slots = [one for one in plan.slots() if not one.warmup and one.case == plan.cases[0]]
    return [
        [list(one.prompt_range) for one in slots if one.process == at] for at in range(max(one.process for one in slots) + 1)
    ]


def test_every_process_has_generated_prompts_of_its_own() -> None:
    """Three processes of 24 prompts in samples of 8: 72 prompts, those of the first process as without others."""
    found = slots_by_process(plan_of({"concurrency": 2, "requests": 8}, processes=3))
    assert found == [[list(range(24 * at + 8 * i, 24 * at + 8 * i + 8)) for i in range(3)] for at in range(3)]
    case = plan_of({"concurrency": 2}, processes=3).cases[0]
    assert case.prompts_drawn == 72 and len(case_items(case, None, 300)) == 72
    assert case_items(case, None, 300)[:24] == case_items(plan_of({"concurrency": 2}).cases[0], None, 300)
    warm = [list(one.prompt_range) for one in plan_of({"concurrency": 2}, processes=2).slots() if one.warmup]
    assert warm == [[0, 1], [24, 25]], "a warm-up too"


def test_prompts_of_a_file_are_the_same_in_an_order_of_each_process(tmp_path: Path) -> None:
    """A sample keeps its prompts; the first process goes through them as they are in the file; every plan is the same."""
    (tmp_path / "p.jsonl").write_text("".join(json.dumps({"prompt": f"count to {i}"}) + "\n" for i in range(24)))
    part = PART | {
        "workload": {"prompts_file": "p.jsonl", "max_new_tokens": 16},
        "load": {"requests_per_s": 2.0, "requests": 12},
        "processes": 3,
    }
    (tmp_path / "s.yaml").write_text(json.dumps({"version": 1, "name": "s", "parts": [part]}))
    plan = make_plan(load_scenario(str(tmp_path / "s.yaml")))
    found = slots_by_process(plan)
    assert found[0] == [list(range(12)), list(range(12, 24))]
    assert all(sorted(sample) == first for of in found for sample, first in zip(of, found[0], strict=True))
    assert len({repr(of) for of in found}) == 3 and plan.cases[0].prompts_drawn == 24
    assert slots_by_process(make_plan(load_scenario(str(tmp_path / "s.yaml")))) == found


def test_seeds_are_of_the_process_under_a_drawn_load_alone(tmp_path: Path) -> None:
    """All arms of a process share them. A trace says itself what comes; without a load prompts and processes are crossed."""
    arms = [{"method": "ntp", "server": "plain"}, {"method": "served", "server": "plain"}]
    trace = tmp_path / "t.jsonl"
    trace.write_text("".join(json.dumps(line) + "\n" for line in TRACE))
    for load, draws in ((({"requests_per_s": 2.0}), 3), ([], 1), ({"trace": str(trace), "requests": 6}, 1)):
        slots = [one for one in plan_of(load, processes=3, arms=arms).slots() if not one.warmup and not one.group]
        seeds = {(one.process, one.seed) for one in slots}
        assert len(seeds) == 3 and len({seed for _, seed in seeds}) == draws, load
        assert all(list(one.prompt_range) == list(slots[0].prompt_range) for one in slots) == (draws == 1)
