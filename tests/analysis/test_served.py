"""What a server said beside what was counted, by hand on a synthetic run; and the table of the page."""

from __future__ import annotations

from typing import Any

import pytest

from harness.analysis.answer import compare
from harness.analysis.evidence.acceptance import forced_acceptance
from harness.analysis.judge.verdict import verdict
from harness.analysis.trust.health import void_reasons
from harness.errors import UserError
from harness.record.schema import Run
from harness.record.written import WrittenArm
from harness.regression.counted import counted
from harness.reporting.cells import Pointers
from harness.reporting.columns import SERVED
from harness.reporting.page import render
from harness.roofline.recorded_acceptance import accepted_in_run
from harness.scenario.claim_text import read_claim
from tests.helpers import synthetic_run as synthetic
from tests.helpers.environments import with_cases, with_header
from tests.helpers.synthetic_run import arm_of

LABEL = "SBD k=16 γ=0.1"
METERS = {
    "served_ways_disagree": 0.0,
    "served_passes_by_steps": 4.0,
    "served_passes_by_accepted": 4.0,
    "served_passes_by_chunks": 4.0,
    "served_headline": 5.0,
    "served_read_bytes": 100.0,
    "served_foreign_requests": 0.0,
}


def served_run(*found: dict[str, Any], **changed: float) -> Run:
    """The fast arm of a synthetic run as a server's; ``found``: its partings; ``changed``: meters of group 0."""
    run = synthetic.build()
    [case] = [case for case in run.header.cases if case.label == LABEL]
    part = run.header.scenario["parts"][0] | {"servers": {"x": {"engine": "vllm"}}}
    arm = WrittenArm.model_validate({"method": "served", "server": "x", "temperature": 0.0})
    run = with_cases(run, lambda one: {"arm": arm} if one is case else {})
    run = with_header(run, scenario=run.header.scenario | {"parts": [part]})
    samples = [
        one.model_copy(update={"meters": METERS | (changed if one.group == 0 else {})}) if one.case_id == case.case_id else one
        for one in run.samples
    ]
    event = {
        "event": "divergences",
        "part": part["name"],
        "process": 0,
        "compared": 8,
        "rounding": 0.02,
        "found": [{"case_id": case.case_id} | one for one in found],
    }
    return run.model_copy(update={"samples": samples, "sessions": [*run.sessions, event]})


def test_counts_headline_and_table() -> None:
    """Eight requests of 4 passes each; the table writes them and says why the headline is another number."""
    comparison = compare(served_run())
    cell = comparison.cells[0]
    arm = arm_of(comparison, LABEL)
    assert (arm.served.requests, arm.served.agreeing, arm.served.passes["steps"]) == (8, 8, 32)
    assert arm.served.headline == 5 and arm.served.read_bytes == 800
    assert arm.served.tokens_per_pass == arm.served.decode_tokens / 32
    table = SERVED.table([cell], Pointers(comparison))
    assert len(table.sections[0][1]) == 1
    row = table.sections[0][1][0]
    assert row["The engine's headline"].text == "5.00" and "Passes without one" in table.notes[0]
    assert all(one.served is None for one in cell.arms if one is not arm)


@pytest.mark.parametrize(
    ("meter", "value", "words"),
    [
        ("served_ways_disagree", 1.0, "ways of counting"),
        ("served_foreign_requests", 1.0, "another client"),
        ("served_cached_tokens", 16.0, "from its cache"),
        ("served_preempted", 1.0, "put a request off"),
    ],
)
def test_what_spoils_a_served_sample_voids_it_by_name(meter: str, value: float, words: str) -> None:
    """Only the samples that show it."""
    run = served_run(**{meter: value})
    rules = [rule for rule in void_reasons(run) if rule]
    assert len(rules) == len([one for one in run.samples if one.meters.get(meter) == value])
    assert all(words in rule[0] for rule in rules)


@pytest.mark.parametrize("timed", [True, False], ids=["timed", "untimed"])
def test_ways_that_disagree_give_no_passes(timed: bool) -> None:
    """Void by name with a remedy that helps: no claim, no table, no gate, no acceptance has passes of such samples."""
    run = served_run()
    disagree = {"served_ways_disagree": 1.0}
    spoilt = [one.model_copy(update={"meters": one.meters | disagree}) if one.meters else one for one in run.samples]
    if not timed:
        spoilt = [one.model_copy(update={"decode_s": None, "prefill_s": None}) for one in spoilt]
    run = synthetic.with_samples(run, spoilt)
    comparison = compare(run)
    arm = arm_of(comparison, LABEL)
    assert (arm.nfe, arm.passes, arm.nfe_speedup.value, arm.passes_saved.value) == (None,) * 4
    assert "ways of counting" in arm.nfe_speedup.reason and arm.served.tokens_per_pass is None
    for text in ("nfe_speedup >= 1", "nfe_speedup >= 1 by ratio_of_totals", "wall_over_nfe >= 0.1"):
        [judged] = verdict(comparison, (read_claim(f"{text} at arm='{LABEL}'"),), run.header).judgements
        assert judged.word == "void" and "ways of counting" in judged.reason, judged.reason
        assert "--stream-interval 1" in judged.remedy and "quiet" not in judged.remedy
    of_arm = {one.name: count for one, count in counted(run).items() if "served" in str(one) or LABEL in str(one)}
    assert of_arm["passes"].value is None and "ways of counting" in of_arm["passes"].reason
    with pytest.raises(UserError, match="counts disagree"):
        forced_acceptance(run, LABEL)
    assert not list(accepted_in_run(run)) and list(accepted_in_run(served_run()))


def test_samples_whose_ways_agree_keep_their_passes() -> None:
    """One of eight is void: the claim rests on the other seven, and the totals, which lack one, are not known."""
    run = served_run(served_ways_disagree=1.0)
    arm = arm_of(compare(run), LABEL)
    mean = arm.figures["nfe_speedup"]
    assert mean.value == pytest.approx(4) and mean.n == 7 and arm.nfe_speedup.value is None


TIE, ERROR, UNKNOWN = (
    {"class": kind, "gap": gap, "prompt_id": "p0"} for kind, gap in (("near_tie", 0.01), ("error", 4.0), ("unclassified", None))
)


@pytest.mark.parametrize(
    ("found", "words"),
    [((TIE,) * 8, "inconclusive"), ((ERROR,) * 4, "refuted"), ((UNKNOWN,), "void"), ((TIE, ERROR), "refuted")],
)
def test_the_claim_lossless(found: tuple[dict[str, Any], ...], words: str) -> None:
    """8 prompts confirm nothing about 99 of 100; one with errors refutes it; what is not classed leaves it open."""
    run = served_run(*found)
    claim = read_claim(f"lossless at arm='{LABEL}'")
    [judged] = verdict(compare(run), (claim,), run.header).judgements
    assert judged.word == words


def test_many_near_ties_confirm_it() -> None:
    """Of 800 prompts none has an error: the Wilson interval begins above 99 %."""
    run = served_run(TIE)
    many = []
    for one in run.samples:
        rows = [row.model_copy(update={"prompt_id": f"{one.group}/{n}"}) for row in one.rows for n in range(100)]
        many.append(one.model_copy(update={"rows": rows}) if one.meters else one)
    run = synthetic.with_samples(run, many)
    quantity = arm_of(compare(run), LABEL).figures["lossless"]
    assert quantity.low > 0.99 and quantity.n == 800


def test_a_server_that_tells_no_passes_is_timed_alone() -> None:
    """Its tokens a pass are unknown, with its reason; its speed is judged, first chunks of 5 tokens counted as decoding."""
    run = served_run()
    [case] = [case for case in run.header.cases if case.label == LABEL]
    untold = synthetic.altered(
        run,
        lambda one: (
            {"passes": None, "meters": {"served_first_tokens": 5.0}, "meter_reasons": {"passes": "SGLang tells none"}}
            if one.case_id == case.case_id
            else {}
        ),
    )
    assert not any(one.lacks for one in untold.samples), "its own reason explains it"
    comparison = compare(untold)
    arm = arm_of(comparison, LABEL)
    assert arm.nfe_speedup.value is None and arm.nfe_speedup.reason == "SGLang tells none"
    known = arm_of(compare(run), LABEL)
    assert arm.wall_speedup.value is not None and known.wall_speedup.value is not None
    assert arm.decode_time_estimated, "what came before the first chunk is more than NTP's prompt pass"
    assert arm.served is None
    judged = {
        name: verdict(comparison, (read_claim(f"{name} >= 1 at arm='{LABEL}'"),), untold.header).judgements[0].word
        for name in ("wall_speedup", "nfe_speedup")
    }
    assert judged["nfe_speedup"] == "void" and judged["wall_speedup"] != "void"
    assert "SGLang tells none" in render(untold, comparison)
