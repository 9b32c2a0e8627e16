"""A run over unlike nodes is read as one run for each kind of machine: the figures are those of separate runs, never mixed."""

from __future__ import annotations

from typing import Any

import pytest

from harness.analysis.answer import compare, to_json
from harness.errors import UserError
from harness.record.by_machine import by_machine, of_one_machine
from harness.record.schema import Run
from harness.record.store import read_on_one_machine
from harness.regression.side_by_side import compare_several
from tests.helpers.environments import with_header
from tests.helpers.synthetic_run import NTP, Arm, altered, build
from tests.helpers.two_runs import slower, stored

SBD = Arm(label="SBD k=16 γ=0.1", gamma=0.1, passes_per_block=4)
FAST = {"cpu_model": "fast", "logical_cores": 8, "packages": {"torch": "2.13.0"}, "python": "3.11.9"}
SLOW = FAST | {"cpu_model": "slow"}


def single(name: str = "reference", **changes: Any) -> Run:
    """A run of two arms."""
    return build(name=name, arms=(NTP, SBD), prompts=4, **changes)


REASON = "no profile describes this CPU"


def on_node(run: Run, node: str, environment: dict[str, Any], calibration: Any = None, reason: str = REASON) -> Run:
    """The same run taken on a node."""
    told = [
        {"event": "start", "node": node, **environment},
        {
            "event": "ceilings",
            "part": run.header.cases[0].part,
            "node": node,
            "hardware": None,
            "hardware_reason": reason,
            "calibration": calibration,
        },
    ]
    samples = [sample.model_copy(update={"node": node}) for sample in run.samples]
    return run.model_copy(update={"samples": samples, "sessions": [*run.sessions, *told]})


def merged(*runs: Run) -> Run:
    """One record that holds all of them."""
    first = runs[0]
    cases = {case.case_id: case for run in runs for case in run.header.cases}
    parts = {part["name"]: part for run in runs for part in run.header.scenario["parts"]}
    header = first.header.model_copy(
        update={"cases": list(cases.values()), "scenario": first.header.scenario | {"parts": list(parts.values())}}
    )
    return Run(
        header=header,
        samples=[sample for run in runs for sample in run.samples],
        outcomes=[outcome for run in runs for outcome in run.outcomes],
        sessions=[one for run in runs for one in run.sessions],
    )


def figures(run: Run) -> Any:
    """All that is derived, without whose it is."""
    return to_json(compare(run)) | {"run_id": None}


def test_a_run_that_knows_no_nodes_is_left_as_it_is():
    """Every run of one machine."""
    run = single()
    assert by_machine(run) == (run,) and of_one_machine(run) is run


def test_nodes_of_one_kind_are_one_machine():
    """Two nodes, one environment: one run, whose header tells of the nodes instead of where the run was begun."""
    run = merged(on_node(single(), "a", FAST), on_node(single("other"), "b", FAST, reason="of b"))
    one = of_one_machine(run)
    assert one.header.run_id == run.header.run_id and len(one.samples) == len(run.samples)
    assert one.header.environment["cpu_model"] == "fast"
    assert one.header.hardware_reason == "of b"
    assert len(figures(run)["cells"]) == 2


@pytest.mark.parametrize("other", [SLOW, FAST | {"packages": {"torch": "2.14.0"}}, FAST | {"logical_cores": 4}])
def test_unlike_nodes_are_never_mixed(other, tmp_path):
    """The same cell on two kinds of machine, by processor, cores or version: refused as one statistic."""
    second = slower(single(), 3.0)
    second = altered(second, lambda s: {"process": 1})
    run = merged(on_node(single(), "a", FAST), on_node(second, "b", other))
    with pytest.raises(UserError, match=r"was taken on 2 kinds of machine .*never mixed in one statistic; `sbd report RUN`"):
        compare(run)
    with pytest.raises(UserError, match="2 kinds of machine"):
        read_on_one_machine(stored(run, tmp_path / "run"))
    separate = by_machine(run)
    assert [one.header.environment["cpu_model"] for one in separate] == ["fast", other["cpu_model"]]
    assert figures(separate[0]) == figures(single())
    assert figures(separate[1]) == figures(second)
    assert len({one.header.run_id for one in separate}) == 2


def test_parts_made_for_devices_get_their_common_name_back_and_stand_side_by_side():
    """H100 and A100 of one part: the arm is one line with a column for each, and claims find it by the name in the file."""
    runs = []
    for device, environment, factor in (("H100", FAST, 1.0), ("A100", SLOW, 2.0)):
        run = slower(single(f"reference-{device}"), factor)
        parts = [part | {"devices": [device]} for part in run.header.scenario["parts"]]
        runs.append(on_node(with_header(run, scenario=run.header.scenario | {"parts": parts}), device, environment))
    separate = by_machine(merged(*runs))
    assert [{case.part for case in one.header.cases} for one in separate] == [{"reference"}] * 2
    assert all(sample.case_id.startswith("reference/") for one in separate for sample in one.samples)
    found = compare_several(separate)
    [arm] = found.arms
    assert arm.part == "reference" and all(result is not None for result in arm.results)
    tokens = [result.tokens_per_s.value for result in arm.results if result is not None]
    assert tokens[0] == pytest.approx(2 * tokens[1])


def test_the_report_of_a_mixed_run_has_a_column_for_each_machine(tmp_path):
    """Written where the report of a run is written, with both machines on it."""
    from harness.reporting import write_report

    run = merged(on_node(single(), "a", FAST), on_node(slower(single("other"), 2.0), "b", SLOW))
    page = write_report(stored(run, tmp_path / "run"))
    assert page == tmp_path / "run" / "report.html"
    text = page.read_text()
    assert all(one.header.run_id in text for one in by_machine(run))


def test_calibrations_are_those_of_the_machine():
    """Each machine's parts are priced on what its own node measured."""
    run = merged(on_node(single(), "a", FAST, {"of": "a"}), on_node(single("other"), "b", SLOW, {"of": "b"}))
    assert [one.header.calibration for one in by_machine(run)] == [{"reference": {"of": "a"}}, {"other": {"of": "b"}}]
