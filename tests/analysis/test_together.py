"""Several claims: each at its own level, and beside it which stay confirmed at the family-wise level (Holm)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from statistics import NormalDist

import numpy as np
import pytest

from harness.analysis.answer import compare
from harness.analysis.judge.judgement import Judgements, to_json
from harness.analysis.judge.verdict import QUESTION, verdict
from harness.analysis.results import Comparison
from harness.reporting.claims_shown import whose_claims
from harness.reporting.page import render
from harness.scenario.claims import Bound, Claim, Where
from harness.stats.quantity import Quantity
from tests.helpers import synthetic_run as synthetic
from tests.helpers.judged_runs import claiming
from tests.helpers.published import compared, published

RUN = synthetic.build(arms=synthetic.ARMS[:2])
ARM = Where(arm="SBD k=16 γ=0.1")
METRICS = (
    "tokens_per_s",
    "joules_per_token",
    "bandwidth_share",
    "wall_over_nfe",
    "request_speedup",
    "nfe_speedup",
    "distinct4_median",
    "latency_p50_s",
)


def of_p(p: float, level: float) -> Quantity:
    """Normal, of standard error 0.1, with this two-sided p-value for 1: its interval begins at 1 where the level is 1 - p."""
    value = 1 + 0.1 * NormalDist().inv_cdf(1 - p / 2)
    reach = 0.1 * NormalDist().inv_cdf(0.5 + level / 2)
    return Quantity(value=value, low=value - reach, high=value + reach, n=9, processes=3)


def with_p(*ps: float) -> Comparison:
    """The run whose only arm has figures with these p-values, at every level."""
    comparison, by_name = compare(RUN), dict(zip(METRICS, ps, strict=False))
    cell = comparison.cells[0]
    figures = {name: of_p(p, 0.95) for name, p in by_name.items()}
    ntp, arm = cell.arms
    arm = replace(arm, figures=arm.figures | figures, at=lambda name, level: of_p(by_name[name], level))
    return replace(comparison, cells=(replace(cell, arms=(ntp, arm)),))


def at_least_one(metric: str, **others: object) -> Claim:
    """The figure is at least 1."""
    return Claim.model_validate({"metric": metric, "min": 1.0, "where": ARM} | others)


def judged(comparison: Comparison, claims: Sequence[Claim]) -> Judgements:
    """Claims of the scenario."""
    return verdict(comparison, tuple(claims), claiming(RUN, *claims).header)


@pytest.mark.parametrize(
    ("ps", "held"),
    [
        ((0.01, 0.04, 0.03, 0.005), (True, False, False, True)),  # 0.005 < 0.05/4, 0.01 < 0.05/3, but 0.03 > 0.05/2
        ((0.01, 0.016, 0.02, 0.2), (True, True, True, None)),  # 0.01 < 0.05/4, 0.016 < 0.05/3, 0.02 < 0.05/2
        ((0.02, 0.02, 0.02, 0.02), (False, False, False, False)),  # the first step takes 0.05/4
        ((0.001, 0.3, 0.4, 0.5), (True, None, None, None)),
    ],
)
def test_holm_by_hand(ps: tuple[float, ...], held: tuple[bool | None, ...]) -> None:
    """Each claim keeps its state; of the confirmed ones stay those that the step-down rejects."""
    found = judged(with_p(*ps), [at_least_one(name) for name in METRICS[:4]]).judgements
    assert [one.word for one in found] == ["confirmed" if p < 0.05 else "inconclusive" for p in ps]
    assert tuple(one.together for one in found) == held
    for one in found:
        words = {True: "confirmed at the family-wise 95 %", False: "not shown at the family-wise 95 %", None: ""}[one.together]
        assert one.reason.endswith(f"as one of 4 verdicts: {words}") if words else "family-wise" not in one.reason


def test_a_claim_of_several_bounds_is_one_of_the_family() -> None:
    """It needs all of its bounds, so each is judged at the level of the claim: the weakest decides."""
    both = Claim(all=tuple(Bound(metric=name, min=1) for name in METRICS[:2]), where=ARM)
    for ps, held in (((0.001, 0.02, 0.5), True), ((0.001, 0.03, 0.5), False)):
        found = judged(with_p(*ps), [both, at_least_one(METRICS[2])]).judgements
        assert [one.together for one in found] == [held, None], "0.05/2 for either bound"


def test_a_claim_alone_has_no_family() -> None:
    """Nothing is said beside it."""
    (found,) = judged(with_p(0.04), [at_least_one(METRICS[0])]).judgements
    assert found.word == "confirmed" and found.together is None and not found.levels


def test_a_primary_claim_keeps_its_level() -> None:
    """Beside three others with p 0.012, 0.02 and 0.04: these are a family of three, 0.05/3 and then 0.05/2."""
    comparison, names = with_p(0.04, 0.012, 0.02, 0.04), METRICS[:4]
    claims = [at_least_one(names[0], primary=True), *map(at_least_one, names[1:])]
    assert [one.together for one in judged(comparison, claims).judgements] == [None, True, True, True]
    plain = list(map(at_least_one, names))
    assert [one.together for one in judged(comparison, plain).judgements] == [False, True, False, False]
    run = claiming(RUN, *plain)
    typed = verdict(comparison, tuple(claims), run.header).judgements
    assert [one.together for one in typed] == [False, True, False, False], "after the run none becomes primary"
    again = verdict(comparison, tuple(plain), claiming(RUN, *claims).header).judgements
    assert [one.together for one in again] == [None, True, True, True], "the words of the primary claim are the primary claim"


def test_eight_claims_at_the_bound() -> None:
    """300 runs whose truth is at each of eight bounds: against Holm's test as it is written, p-values in order.

    Some claim is wrongly confirmed in 18 % of them (1 - 0.975^8), and wrongly held together in 2.5 %.
    """
    drawn, some, together = np.random.default_rng(8), 0, 0
    claims = [at_least_one(name) for name in METRICS]
    header = claiming(RUN, *claims).header
    for _ in range(300):
        z = drawn.standard_normal(8)
        ps = [2 * (1 - NormalDist().cdf(abs(one))) for one in z]
        signed = [p if one > 0 else 2 - p for p, one in zip(ps, z, strict=True)]  # 2 - p: as far below 1
        found = verdict(with_p(*signed), tuple(claims), header).judgements
        expected: list[int] = []
        for step, i in enumerate(sorted((i for i in range(8) if z[i] > 0), key=lambda i: ps[i])):
            if ps[i] > 0.05 / (8 - step):
                break
            expected.append(i)
        assert [i for i, one in enumerate(found) if one.together] == sorted(expected)
        some += any(one.state == "met" for one in found)
        together += bool(expected)
    assert 0.13 < some / 300 < 0.24 and together / 300 < 0.05


def test_terminal_page_and_json_say_it() -> None:
    """How many of the confirmed hold together, beside whose claims they are; each card has its clause."""
    claims = [at_least_one(name) for name in METRICS[:4]]
    run, comparison = claiming(RUN, *claims), with_p(0.01, 0.04, 0.03, 0.005)
    found = verdict(comparison, tuple(claims), run.header)
    assert whose_claims(run.header, found) == "this scenario's own: 4 confirmed; 2 of 4 stay confirmed at the family-wise 95 %"
    page = render(run, replace(comparison, judgements=found))
    assert page.count("As one of 4 verdicts: confirmed at the family-wise 95 %.") == 2
    assert page.count("As one of 4 verdicts: not shown at the family-wise 95 %.") == 2
    data = to_json(found)
    assert data["version"] == 3 and [one["together"] for one in data["judgements"]] == [True, False, False, True]  # type: ignore[attr-defined]


def test_the_programs_question_is_primary_where_the_scenario_states_nothing() -> None:
    """On a published record: the question stands alone, and the paper's figure is one of three verdicts."""
    run = published("quickstart")
    found = compared("quickstart").judgements
    assert QUESTION.primary and [claim.primary for claim in found.claims] == [True, False, False, False]
    passes = next(one for one in found.judgements if one.metric == "nfe_speedup")
    assert passes.word == "confirmed" and passes.together is True and "as one of 3 verdicts" in passes.reason
    assert whose_claims(run.header, found).endswith("; 1 of 1 stay confirmed at the family-wise 95 %")
