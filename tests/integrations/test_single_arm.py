"""One arm where there is no scenario file: every way of naming it, and what is refused."""

from __future__ import annotations

import pytest

from harness.errors import ScenarioError, UserError
from harness.integrations.single_arm import case_of_scenario, read_arm, single_case, with_lengths

PART = {"model": {"reference": "sbd"}, "dtype": "float32"}


@pytest.mark.parametrize(
    ("given", "knobs", "found"),
    [
        ("ntp", {}, {"method": "ntp"}),
        ("sbd", {"gamma": 0.1}, {"method": "sbd", "gamma": 0.1}),
        ("{method: sbd, gamma: 0.1}", {"block_size": 8}, {"method": "sbd", "gamma": 0.1, "block_size": 8}),
        ('{"method": "sbd", "solver": "factor", "factor": 0.5}', {}, {"method": "sbd", "solver": "factor", "factor": 0.5}),
        ({"method": "ntp"}, {"temperature": 0.5}, {"method": "ntp", "temperature": 0.5}),
    ],
)
def test_an_arm_is_named_in_a_word_a_line_or_a_mapping(given, knobs, found) -> None:
    """The three forms give the same keys."""
    assert read_arm(given, knobs) == found


@pytest.mark.parametrize(
    ("given", "knobs"), [("{method: sbd", {}), ("[1]", {}), ("7", {}), ("{method: ntp}", {"method": "sbd"})]
)
def test_what_names_no_arm_is_refused(given, knobs) -> None:
    """With what to write."""
    with pytest.raises(ScenarioError, match=r"method: sbd, gamma|given twice"):
        read_arm(given, knobs)


def test_the_case_is_that_of_a_scenario() -> None:
    """Same arm, same defaults as an arm of a file; the model is the part's."""
    case = single_case({"method": "sbd", "gamma": 0.35}, PART)
    other = case_of_scenario("gate", None, 0)
    assert case.arm.values == {
        "method": "sbd",
        "acceptance": "real",
        "block_size": 16,
        "gamma": 0.35,
        "temperature": 0.0,
        "solver": "entropy_bounded",
        "batching": "lockstep",
    }
    assert case.part.model.model_dump() == {"reference": "sbd"} and not case.part.replayed
    assert other.part.arms[0].method == other.arm.method
    longer = with_lengths(case, 33, ("\n",))
    assert (longer.workload.max_new_tokens, longer.workload.stop_strings, longer.arm) == (33, ("\n",), case.arm)
    assert case.workload.max_new_tokens == 1, "the case itself is as it was"


@pytest.mark.parametrize(
    ("arm", "part", "words"),
    [
        ({"method": "sbd"}, {}, "arm: gamma is missing"),
        ({"method": "sbd", "gama": 1}, {}, "did you mean 'gamma'"),
        ({"method": "sbd", "gamma": [1, 2]}, {}, "2 settings, and one is decoded with"),
        ({"method": "sbd", "gamma": -1}, {}, "arm: gamma: "),
        ({"method": "ntp"}, {"dtype": "bf16"}, "dtype: got 'bf16'"),
        ({"method": "ntp"}, {"model": {"reference": "nothing"}}, "allowed: sbd, ntp_only"),
        ({"method": "ntp"}, {"model": {"huggingface": "./nowhere"}}, "no model at './nowhere'"),
    ],
)
def test_a_mistake_is_named_with_its_remedy(arm, part, words) -> None:
    """As in a scenario, less the line."""
    with pytest.raises(UserError) as caught:
        single_case(arm, PART | part)
    assert words in str(caught.value), caught.value


def test_an_arm_of_a_scenario_by_number_and_by_id() -> None:
    """As `sbd plan` lists them; a wrong one is answered with the list."""
    by_number = case_of_scenario("reference_accuracy", "sbd", "2")
    assert by_number.case_id.endswith("/sbd-k16-g0.003-t0-entropy_bounded")
    assert case_of_scenario("reference_accuracy", "sbd", "sbd-k16-g0.003-t0-entropy_bounded") == by_number
    with pytest.raises(ScenarioError, match=r"0: ntp, 1: sbd-k16-g0\.002-t0-entropy_bounded, 2: "):
        case_of_scenario("reference_accuracy", "sbd", "3")
    with pytest.raises(ScenarioError, match="one of ntp_only, sbd"):
        case_of_scenario("reference_accuracy", None, "0")
