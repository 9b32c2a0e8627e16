"""Claims: what can be said, in YAML and in a line of text, and that a mistake is named with its place and its remedy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.analysis.judge.verdict import QUESTION
from harness.errors import ScenarioError, UserError
from harness.scenario.claim_text import load_claims, read_claim
from harness.scenario.claims import ESTIMATORS, METRIC_NAMES, THIS_PROCESS, Bound, Claim, Where
from harness.scenario.loading import load_scenario, scenario_digest, shipped_names
from harness.scenario.metrics import METRICS
from harness.scenario.scenario import Scenario
from tests.helpers import ROOT
from tests.helpers.scenarios import GOOD, write
from tests.helpers.written_claims import write_claim

SPEEDUP = Bound(metric="wall_speedup", min=3.0)


@pytest.mark.parametrize(
    ("text", "claim"),
    [
        ("wall_speedup >= 3", Claim(metric="wall_speedup", min=3)),
        ("wall_speedup≥3x", Claim(metric="wall_speedup", min=3)),
        ("3-5x", Claim(metric="wall_speedup", min=3)),
        ("3–5x faster", Claim(metric="wall_speedup", min=3)),
        ("3-5x fewer passes", Claim(metric="nfe_speedup", min=3)),
        ("3 <= wall_speedup <= 5", Claim(metric="wall_speedup", min=3, max=5)),
        ("prediction_error <= 10%", Claim(metric="prediction_error", max=0.1)),
        ("tokens_per_s >= 1e3 by ratio_of_totals", Claim(metric="tokens_per_s", min=1000, estimator="ratio_of_totals")),
        ("close to the pass reduction", Claim(metric="wall_over_nfe", min=0.9)),
        ("same accuracy", Claim(within_points=1)),
        ("3-5x in this process", Claim(metric="wall_speedup", min=3, scope="this process")),
        ("same accuracy within 0.5 points", Claim(metric="accuracy_loss_points", max=1, within_points=0.5)),
        (
            "wall_speedup >= 3 at batch=1, part=bandwidth, arm='SBD k=16 γ=0.1' within 1 point",
            Claim(metric="wall_speedup", min=3, within_points=1, where=Where(batch=1, part="bandwidth", arm="SBD k=16 γ=0.1")),
        ),
        (
            "wall_speedup >= 3 and wall_over_nfe >= 0.9 at block_size=16, gamma=0",
            Claim(all=(SPEEDUP, Bound(metric="wall_over_nfe", min=0.9)), where=Where(block_size=16, gamma=0)),
        ),
    ],
)
def test_a_line_of_text_is_a_claim(text: str, claim: Claim) -> None:
    """Each form of the grammar, beside the claim written out by hand; 3-5x is at least 3, with no upper bound."""
    assert read_claim(text) == claim


numbers = st.floats(1e-3, 1e6)
bounds = st.builds(
    lambda metric, low, high, ends, estimator: Bound(
        metric=metric,
        min=None if METRICS[metric].either_way or ends == "max" else min(low, high),
        max=None if not METRICS[metric].either_way and ends == "min" else max(low, high),
        estimator=estimator if METRICS[metric].averaged else "geometric_mean",
    ),
    st.sampled_from(METRIC_NAMES),
    numbers,
    numbers,
    st.sampled_from(["min", "max", "both"]),
    st.sampled_from(ESTIMATORS),
)
letters = st.characters(codec="utf-8", exclude_characters="'\"–—≥≤×", exclude_categories=["C", "Z"])
names = st.text(letters, min_size=1, max_size=12)
arms = st.one_of(
    st.fixed_dictionaries({"arm": st.builds("{} k=16, γ={}".format, names, names)}),
    st.fixed_dictionaries({}, optional={"block_size": st.integers(1, 64), "gamma": st.floats(0, 3)}),
)
cells = st.fixed_dictionaries(
    {},
    optional={
        "part": st.from_regex(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,9}", fullmatch=True),
        "batch": st.integers(1, 512),
        "task": names,
        "model": names,
        "prompt_tokens": st.integers(1, 10**6),
    },
)
wheres = st.builds(lambda cell, arm: Where(**cell, **arm), cells, arms)


scopes = st.sampled_from([None, THIS_PROCESS])


@given(st.lists(bounds, min_size=1, max_size=3), wheres, st.none() | st.floats(1e-3, 100), scopes)
def test_every_claim_reads_back_from_its_own_text(said: list[Bound], where: Where, margin: float | None, scope: Any) -> None:
    """One bound or several, every metric, estimator and key: what is written is what is read."""
    claim = Claim(**(said[0].model_dump() if len(said) == 1 else {"all": said}), where=where, within_points=margin, scope=scope)
    again = read_claim(write_claim(claim))
    assert (again.bounds, again.where, again.scope) == (claim.bounds, claim.where, scope)


WORDS = ("wall_speedup", ">=", "<=", "3", "3-5x", "at", "part=a", "within", "1", "point", "by", "and", "=", ",", "'", "same")


@given(st.text(max_size=40) | st.lists(st.sampled_from(WORDS)).map(" ".join))
def test_any_text_is_a_claim_or_a_users_mistake(text: str) -> None:
    """Nothing else escapes, whatever is typed."""
    try:
        read_claim(text)
    except UserError as error:
        assert text in str(error) or repr(text) in str(error)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", ["a metric (or a range such as 3-5x) is missing", "wall_speedup, request_speedup"]),
        ("wall_sped >= 3", ["'wall_sped'", "did you mean 'wall_speedup'"]),
        ("wall_speedup > 3", ["'>' is no comparison", ">= or <="]),
        ("wall_speedup >= fast", ["'fast' is no number"]),
        ("wall_speedup >= 3 at batc=1", ["did you mean 'batch'", "prompt_tokens"]),
        ("wall_speedup >= 3 at batch=two", ["batch=two", "a whole number"]),
        ("wall_speedup >= 3 at batch=1, batch=2", ["batch is said twice"]),
        ("wall_speedup >= 3 at part=", ["part has no value"]),
        ("wall_speedup >= 3 at arm='x", ["opened and not closed"]),
        ("wall_speedup >= 3 at arm=x, gamma=1", ["named twice", "either arm, or block_size and gamma"]),
        ("wall_speedup >= 3 within 1", ["point or points"]),
        ("wall_speedup >= 3 within 0 points", ["within_points", "above 0"]),
        ("wall_speedup >= 3 in this machine", ["'in' is not expected here", "in this process"]),
        ("wall_speedup >= 3 please", ["'please' is not expected here"]),
        ("wall_speedup >= 3 by median", ["'median' is not an estimator", "geometric_mean, ratio_of_totals"]),
        ("5-3x", ["runs downwards"]),
        ("5 <= wall_speedup <= 3", ["min 5 is above max 3"]),
        ("wall_speedup >= 0", ["above 0 by nature"]),
        ("prediction_error >= 0.1", ["whatever its sign", "give max"]),
        ("prediction_error_during_run >= 0.1", ["prediction_error_during_run", "whatever its sign"]),
        ("latency_p50_s <= 1 by ratio_of_totals", ["no mean of ratios", "remove the estimator"]),
    ],
)
def test_a_bad_claim_says_what_is_wrong(text: str, words: list[str]) -> None:
    """What was given, what is allowed."""
    with pytest.raises(UserError) as caught:
        read_claim(text)
    assert all(word in str(caught.value) for word in words), caught.value


@pytest.mark.parametrize(
    ("lines", "where", "words"),
    [
        ("claims:\n  - metric: wall_speedup\n    mim: 3\n", ":3: claims.0.mim:", ["unknown key", "did you mean 'min'"]),
        ("claims:\n  - metric: wall_sped\n    min: 3\n", ":2: claims.0.metric:", ["wall_sped", "wall_speedup"]),
        ("claims:\n  - metric: wall_speedup\n    min: '3'\n", ":3: claims.0.min:", ["write a number"]),
        ("claims:\n  - name: x\n  - metric: wall_speedup\n", ":2: claims.0:", ["nothing is claimed"]),
        ("claims:\n  - metric: wall_speedup\n", ":2: claims.0:", ["has no bound", "min: or max:"]),
        ("claims:\n  - min: 3\n", ":2: claims.0:", ["without a metric"]),
        ("claims:\n  - all: [{metric: wall_speedup, min: 3}]\n    metric: nfe_speedup\n", ":2: claims.0:", ["put the"]),
        ("claims:\n  - within_points: 1\n    where:\n      batch: 0\n", ":4: claims.0.where.batch:", ["greater than or equal"]),
        ("claims: []\n", ":1: claims:", ["at least one"]),
        ("", ":1:", ["the file is empty; write claims: [...]"]),
    ],
)
def test_a_bad_file_names_file_and_line(tmp_path: Path, lines: str, where: str, words: list[str]) -> None:
    """The line of the mistake, the key, and the remedy."""
    file = tmp_path / "mine.yaml"
    file.write_text(lines)
    with pytest.raises(ScenarioError) as caught:
        load_claims(file)
    assert f"{file}{where}" in str(caught.value) and all(word in str(caught.value) for word in words), caught.value


def test_the_papers_claims_travel_along_by_name() -> None:
    """Its one figure is the paper's; limits that it does not name carry our name. Every claim has its source."""
    assert shipped_names(ROOT / "scenarios" / "claims") == ("ours", "paper")
    (paper,), ours = load_claims("paper"), load_claims("ours")
    assert paper.bounds == (Bound(metric="nfe_speedup", min=3),) and "our" not in f"{paper.name} {paper.source}"
    assert [claim.bounds for claim in ours] == [
        (Bound(metric="wall_over_nfe", min=0.9),),
        (Bound(metric="accuracy_loss_points", max=1),),
    ]
    assert all("our" in claim.name and "by sbd" in claim.source for claim in ours)
    assert all(claim.source and "2509.04185" in claim.source for claim in (paper, *ours))
    with pytest.raises(ScenarioError, match="shipped name: ours, paper"):
        load_claims("papper")


CLAIMED = GOOD + "claims:\n  - {metric: wall_speedup, min: 3, where: {part: one}}\n"


def test_a_scenario_may_claim(tmp_path: Path) -> None:
    """Claims are read, kept in the record's form, and refused with the line where they name what the scenario lacks."""
    scenario = load_scenario(write(tmp_path, CLAIMED))
    assert scenario.claims == (Claim(metric="wall_speedup", min=3, where=Where(part="one")),)
    assert Scenario.model_validate(scenario.model_dump(mode="json")) == scenario
    for old, new, words in (
        ("part: one", "part: two", "part 'two', which is not here; allowed: one"),
        ("part: one", "batch: 4", "batch 4, which is not here; allowed: 1"),
    ):
        with pytest.raises(ScenarioError) as caught:
            load_scenario(write(tmp_path, CLAIMED.replace(old, new)))
        assert f"s.yaml:{GOOD.count(chr(10)) + 1}: claims: a claim is about {words}" in str(caught.value)


def test_at_most_one_claim_is_primary(tmp_path: Path) -> None:
    """Refused by name with file and line; one is kept, and a scenario without any is written as before."""
    claim = "  - {name: %s, metric: wall_speedup, min: 3, primary: true}\n"
    one = load_scenario(write(tmp_path, GOOD + "claims:\n" + claim % "first"))
    assert one.claims[0].primary and "primary" in one.model_dump(mode="json")["claims"][0]
    assert "primary" not in load_scenario(write(tmp_path, CLAIMED)).model_dump(mode="json")["claims"][0]
    with pytest.raises(ScenarioError) as caught:
        load_scenario(write(tmp_path, GOOD + "claims:\n" + claim % "first" + claim % "second"))
    assert f"s.yaml:{GOOD.count(chr(10)) + 1}: claims: 2 claims are primary (first; second)" in str(caught.value)


def test_the_programs_own_claims_name_nothing() -> None:
    """So they are free of what a claim after the run pays, whenever they are asked."""
    assert all(claim.where == Where() for claim in (QUESTION, *load_claims("paper"), *load_claims("ours")))


def test_claims_do_not_make_another_run(tmp_path: Path) -> None:
    """No sample depends on a claim: a run taken before claims existed, or with other ones, is the same run."""
    with_claims = load_scenario(write(tmp_path, CLAIMED)).model_dump(mode="json")
    without = load_scenario(write(tmp_path, GOOD)).model_dump(mode="json")
    older = {key: value for key, value in without.items() if key != "claims"}
    assert scenario_digest(with_claims) == scenario_digest(without) == scenario_digest(older)
    assert scenario_digest(older) != scenario_digest(older | {"name": "other"})
