"""A claim that is made after the run is judged among all that it could have named; one of the scenario is not."""

from __future__ import annotations

import html
from dataclasses import replace

import pytest

from harness.analysis.answer import Derived, compare
from harness.analysis.judge.judgement import Judgement
from harness.analysis.judge.verdict import claims_for, verdict
from harness.record.schema import Run
from harness.reporting.page import render
from harness.scenario.claim_text import read_claim
from harness.stats.crossed import Grouped
from harness.stats.ratios import geometric_mean_ratio
from tests.helpers import synthetic_run as synthetic
from tests.helpers.environments import with_claims
from tests.helpers.judged_runs import claiming
from tests.helpers.published import compared, published
from tests.helpers.two_runs import in_processes, slower

VERIFIED = "SBD verified k=16 γ=99 c>0.3"
SLOW, FAST = "SBD k=16 γ=0.1", "SBD k=16 γ=0.6"


def after(run: Run, text: str) -> list[Judgement]:
    """What is judged of a claim that is typed now."""
    return list(verdict(compare(run), (read_claim(text),), run.header).judgements)


def ratio(run: Run, arm: str, level: float, task: str | None = None) -> tuple[float, float]:
    """The interval of an arm's wall speedup from the samples as they stand in the record: seconds per decode token."""
    arms = {case.case_id: case for case in run.header.cases if case.label in ("NTP", arm) and task in (None, case.task)}
    times: dict[tuple[str, int, int], dict[str, list[float]]] = {}
    for one in run.samples:
        if one.case_id in arms and not one.warmup:
            decided = zip(one.passes.final_tokens, one.passes.role, strict=True)
            tokens, case = sum(sum(row) for row, role in decided if role != "prefill"), arms[one.case_id]
            key = (case.task, one.group, one.process)
            times.setdefault(key, {}).setdefault("NTP" if case.label == "NTP" else "arm", []).append(
                (one.decode_s or 0.0) / tokens
            )
    pairs = [(seconds["NTP"][0], seconds["arm"][0]) for seconds in times.values()]
    found = geometric_mean_ratio(pairs, [Grouped(key[0], key[:2], key[:2]) for key in times], [key[2] for key in times], level)
    assert found.low is not None and found.high is not None
    return found.low, found.high


def test_a_winner_of_the_published_quickstart_is_not_confirmed_by_naming_it() -> None:
    """Its own 95 % interval begins above 1.6; at the level of the four arms that could have been named it does not."""
    run, text = published("quickstart"), f"wall_speedup >= 1.6 at arm='{VERIFIED}'"
    (found,) = verdict(compared("quickstart"), claims_for(run.header, [text], []), run.header).judgements
    assert found.word == "inconclusive" and found.levels == ("named after the run: judged among 4 arms",)
    assert "named after the run: judged among 4 arms at a simultaneous 95 % level, 1.366 to 3.757" in found.reason
    own, among = (ratio(run, VERIFIED, level) for level in (0.95, 1 - 0.05 / 4))
    assert own[0] > 1.6 > among[0] == pytest.approx(1.366, abs=5e-4) and found.value.low == pytest.approx(own[0])
    assert "names this arm (where: arm) judges it at its own level" in str(found.remedy)
    (still,) = verdict(compared("quickstart"), (read_claim(text.replace("1.6", "1.3")),), run.header).judgements
    assert still.word == "confirmed" and still.levels == found.levels, "confirmed, and not without a word"


def test_a_claim_of_the_scenario_is_judged_at_its_own_level() -> None:
    """The same words in the sealed scenario, with a name and a source there, typed again or not typed at all."""
    text = f"wall_speedup >= 1.6 at arm='{VERIFIED}'"
    made = read_claim(text).model_copy(update={"name": "ours", "source": "us"})
    run = claiming(published("quickstart"), made)
    for claims in (claims_for(run.header, [], []), claims_for(run.header, [text], [])):
        (found,) = verdict(compared("quickstart"), claims, run.header).judgements
        assert found.word == "confirmed" and not found.levels and "simultaneous" not in found.reason
    (other,) = verdict(compared("quickstart"), claims_for(run.header, [text.replace("1.6", "1.5")], []), run.header).judgements
    assert other.word == "inconclusive" and "named after the run" in other.reason, "another claim is not the one made before"


def test_a_claim_that_names_nothing_is_judged_as_the_best_one_always_was() -> None:
    """The arm is picked by the program, before and after the run."""
    run = published("quickstart")
    (found,) = verdict(compared("quickstart"), (read_claim("wall_speedup >= 1.6"),), run.header).judgements
    assert found.word == "inconclusive" and "picked from 4 arms" in found.reason and not found.levels


def shifted(*parts: synthetic.Part) -> Run:
    """Three processes that differ a little."""
    return slower(slower(in_processes(synthetic.build(*parts), 1, 1, 1), 1.002, "sbd", 1), 1.004, "sbd", 2)


TASKS = shifted(synthetic.Part(tasks=("a", "b", "c"), jitter=0.05))


@pytest.mark.parametrize(
    ("where", "words", "among"),
    [
        ("arm='SBD k=16 γ=0.1', task=b", "2 arms × 3 tasks", 6),
        ("arm='SBD k=16 γ=0.1', part=reference, batch=1", "2 arms", 2),
        ("gamma=0.1", "2 arms", 2),
        ("task=b", "2 arms × 3 tasks", 6),
    ],
)
def test_arms_times_tasks(where: str, words: str, among: int) -> None:
    """By what the claim names; a part and a batch size that are the only ones could not have been others."""
    (found,) = after(TASKS, f"wall_speedup >= 1.01 at {where}")
    assert found.word == "confirmed" and f"named after the run: judged among {words} at a simultaneous" in found.reason
    low, high = ratio(TASKS, found.cell["arm"], 1 - 0.05 / among, found.cell.get("task"))
    assert f"{low:.4g} to {high:.4g}: all of it at least 1.01" in found.reason
    claim = read_claim(f"nfe_speedup >= 1 at {where}")
    (early,) = verdict(compare(TASKS), (claim,), claiming(TASKS, claim).header).judgements
    assert not early.levels


def test_parts_and_batch_sizes() -> None:
    """Two parts of two arms; a part that was not timed could not have been named in a claim about times."""
    parts = [synthetic.Part(name="one", jitter=0.05), synthetic.Part(name="four", batch_size=4, jitter=0.05)]
    run = shifted(*parts, synthetic.Part(name="counted", timed=False))
    (found,) = after(run, f"wall_speedup >= 1.01 at batch=4, arm='{SLOW}'")
    assert found.levels == ("named after the run: judged among 2 arms × 2 batch sizes",)
    (found,) = after(run, "wall_speedup >= 1.01 at part=four")
    assert found.levels == ("named after the run: judged among 2 arms × 2 parts",), "the best one of the part"
    (found,) = after(run, f"identical_to_ntp >= 0.01 at part=counted, arm='{SLOW}'")
    assert found.levels == ("named after the run: judged among 2 arms × 3 parts",)


def test_what_alone_could_be_named_is_free() -> None:
    """One arm beside NTP, and NTP itself, which is no choice."""
    alone = shifted(synthetic.Part(arms=synthetic.ARMS[:2], jitter=0.05))
    (found,) = after(alone, f"wall_speedup >= 1.01 at arm='{SLOW}', part=reference")
    assert found.word == "confirmed" and not found.levels and "simultaneous" not in found.reason
    (found,) = after(TASKS, "tokens_per_s >= 1 at arm=NTP")
    assert found.word == "confirmed" and not found.levels


def test_the_page_says_so() -> None:
    """Beside the claim, which its card shows."""
    claim = read_claim(f"wall_speedup >= 1.01 at arm='{SLOW}'")
    page = html.unescape(render(TASKS, Derived(TASKS, (claim,)).comparison))
    assert "Named after the run: judged among 2 arms." in page
    run = claiming(TASKS, claim)
    assert "Named after the run" not in render(run, compare(run))


def test_claims_that_cannot_be_read_were_not_made() -> None:
    """A record whose claims are damaged frees nothing."""
    run = with_claims(TASKS, {"metric": "wall_speedup", "min": 1.01, "where": {"arm": SLOW}, "odd": 1})
    (found,) = after(run, f"wall_speedup >= 1.01 at arm='{SLOW}'")
    assert found.levels


def test_a_figure_at_another_level_is_that_of_the_same_decodes() -> None:
    """At 95 % each figure that an arm hands out again is the one that it has, in the summary and by task."""
    for cell in compare(TASKS).cells:
        for arm in cell.arms:
            assert arm.at is not None
            again = {
                name: arm.at(name, 0.95) for name in ("tokens_per_s", "nfe_speedup", "nfe_speedup_totals", "latency_p50_s")
            }
            assert again == {name: arm.figures[name] for name in again}
            assert arm.at("wall_speedup", 0.95) == arm.wall_speedup
            assert replace(arm, at=None) == arm, "two arms are told apart by their values"
