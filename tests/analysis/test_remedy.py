"""What would decide an open claim, in words: for which truth the number is, and what it is at other truths."""

import re
import statistics

import pytest

from harness.analysis.judge.remedy import more_prompts
from harness.scenario.claims import Bound
from harness.stats.quantity import Quantity, Spread, absent, effective_pairs, exact, paired_lower_bound, pairs_needed
from harness.stats.sample_size import cautious, prompts_to_decide

AT_LEAST_3 = Bound(metric="wall_speedup", min=3.0)
SPEED = Quantity(value=3.3, low=2.9, high=3.45, n=20, processes=1, spread=Spread(prompt=0.2))
NO_SD = absent("not graded")


def test_the_number_says_for_which_truth_it_is() -> None:
    """The three numbers are those of the plan at the value and at the ends of its interval."""

    def in_all(true: float) -> str:
        assumed = Quantity(value=true, n=20, processes=1, spread=cautious(Spread(prompt=0.2), 20, 1))
        return f"{prompts_to_decide(assumed, 3.0).prompts:,}"

    said = more_prompts(AT_LEAST_3, SPEED, NO_SD, "prompts")
    more = int(in_all(3.3).replace(",", "")) - 20
    assert said == (
        f"{more:,} more prompts ({in_all(3.3)} in all) would decide it with 90% power if it stays at 3.3x; "
        f"{in_all(2.9)} in all at 2.9x, {in_all(3.45)} in all at 3.45x, none if the truth is at the bound"
    )


def test_a_value_at_the_bound_is_not_planned() -> None:
    """No number, and why."""
    at_it = more_prompts(Bound(metric="wall_speedup", min=3.3), SPEED, NO_SD, "prompts")
    assert at_it == "no number of prompts can be planned: the value equals the bound: no number of prompts tells them apart"


def accuracy(differences: list[float], clusters: list[int] | None = None) -> str:
    """The words for "at most 1 point lost"."""
    gain = paired_lower_bound(differences, clusters=clusters)
    loss = paired_lower_bound([-one for one in differences], clusters=clusters)
    unrelated = len(differences) if clusters is None else effective_pairs(differences, clusters)
    value = Quantity(value=-100 * gain.value, low=100 * loss.low, high=-100 * gain.low, n=len(differences))
    sd = exact(100 * statistics.stdev(differences), n=unrelated)
    return more_prompts(Bound(metric="accuracy_loss_points", max=1.0), value, sd, "prompts")


def test_accuracy_is_planned_for_one_lost_answer() -> None:
    """555 equal answers but one are within 1 point, 554 are not; 368 would do if none were lost, which nobody promises. The
    chances by hand: 0.99^n + n 0.01 0.99^(n - 1), and 0.99^n, are 2.5 % at the most.
    """
    said = accuracy([0.0] * 60)
    assert said.startswith("495 more prompts (555 in all) would decide it with 90% power if it stays at 0 points lost, ")
    assert "at most one answer lost" in said
    for pairs, within in ((555, True), (554, False)):
        low = paired_lower_bound([-1.0] + [0.0] * (pairs - 1)).low
        assert (low > -0.01) is within
    assert (pairs_needed(0.01), pairs_needed(0.01, losses=1)) == (368, 555)


def test_more_differing_answers_take_more_prompts() -> None:
    """And the plan says how many may differ."""
    numbers = []
    for differing in (2, 4, 8):
        said = accuracy([1.0, -1.0] * differing + [0.0] * (600 - 2 * differing))
        numbers.append(int((re.search(r"\(([\d,]+) in all\)", said) or [""])[1].replace(",", "")))
        assert re.search(r"at most \d\.\d% of the answers differing", said)
    assert numbers == sorted(numbers) and numbers[0] > 555


def test_related_prompts_count_as_fewer_in_a_plan_too() -> None:
    """Texts of ten questions each, none differs: 555 texts."""
    said = accuracy([0.0] * 1000, [i // 10 for i in range(1000)])
    assert "(5,550 in all)" in said


@pytest.mark.parametrize(("metric", "words"), [("tokens_per_s", "3.3 tokens/s"), ("joules_per_token", "3.3 J/token")])
def test_a_value_has_its_unit(metric: str, words: str) -> None:
    """In the words for its truth."""
    bound = Bound.model_validate({"metric": metric, "min": 3.0})
    assert f"if it stays at {words}" in more_prompts(bound, SPEED, NO_SD, "prompts")


def test_a_prediction_is_planned_as_a_ratio() -> None:
    """Predicted ÷ measured 1.05 with 1.1 in its interval: as the ratio itself against 1.1."""
    spread = Spread(prompt=0.15)
    error = Quantity(value=0.05, low=-0.02, high=0.12, n=20, processes=1, spread=spread)
    said = more_prompts(Bound(metric="prediction_error", max=0.1), error, NO_SD, "prompts")
    ratio = Quantity(value=1.05, n=20, processes=1, spread=cautious(spread, 20, 1))
    planned = prompts_to_decide(ratio, 1.1).prompts
    assert planned is not None and f"({planned:,} in all) would decide it with 90% power if it stays at +5.0%" in said


@pytest.mark.parametrize(("value", "beyond"), [(3.06, True), (3.3, False)])
def test_a_plan_of_ten_times_the_run_is_no_advice(value: float, beyond: bool) -> None:
    """Its decodes are counted over all processes; it says what would help, by the larger part of the variance."""
    spread = Spread(prompt=0.2, process=0.01)
    said = more_prompts(
        AT_LEAST_3, Quantity(value=value, low=2.9, high=3.4, n=20, processes=3, spread=spread), NO_SD, "prompts"
    )
    plan = prompts_to_decide(Quantity(value=value, n=20, processes=3, spread=cautious(spread, 20, 3)), 3.0)
    times = (plan.prompts or 0) * (plan.processes or 0) / (20 * 3)
    assert (times > 10) is beyond and ("would decide it" in said) is not beyond
    if beyond:
        assert said.startswith(f"not decidable with this design: it takes {times:,.0f} times these decodes; what would help: ")
        assert said.endswith("longer answers or another metric, for prompts differ most (by 20.0%)")


def test_no_plan_of_any_size_is_no_advice_either() -> None:
    """Processes that differ by 30 % never tell 3.06 from 3."""
    speed = Quantity(value=3.06, low=2.0, high=4.0, n=20, processes=3, spread=Spread(prompt=0.02, process=0.3))
    said = more_prompts(AT_LEAST_3, speed, NO_SD, "prompts")
    assert said.startswith(
        "not decidable with this design: with 50 processes, 1,000,000 prompts are not enough; what would help: "
    )
    assert "for processes differ most (by 30.0%)" in said


def test_a_loss_that_takes_too_many_prompts_has_no_spread_to_name() -> None:
    """40 equal answers: 473 would do, which is more than ten times as many."""
    assert accuracy([0.0] * 40).endswith("what would help: a wider margin, or another metric")
