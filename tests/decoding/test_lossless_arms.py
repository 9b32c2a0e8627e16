"""The arms that decode without loss, from the scenario to the comparison: names, prices, agreement."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.analysis.answer import compare, to_json
from harness.analysis.judge.verdict import verdict
from harness.errors import RecordError
from harness.models import KNOWN_SHAPES
from harness.record.store import read_run
from harness.regression.counted import counted
from harness.regression.gate.counts import judge_counted
from harness.reporting.cells import Pointers
from harness.reporting.columns import ARMS
from harness.roofline.operation import describe_pass
from harness.roofline.pricing import price_pass
from harness.roofline.recorded_acceptance import passes_per_block, recorded_arms
from harness.runner.runner import run
from harness.scenario.claim_text import read_claim
from tests.helpers import synthetic_run as synthetic
from tests.helpers.fake_machine import uncalibrated
from tests.helpers.lossless import outputs_changed
from tests.helpers.plans import CEILINGS, plan_of
from tests.helpers.priced_trace import price_trace

GREEDY, SAMPLED = "greedy NTP, same weights", "NTP at temperature 0.7, same weights, in distribution"


def test_ids_and_labels_name_the_method_and_what_it_is_lossless_against() -> None:
    """One case per point of the axes; ids are those of the agreed form, and labels tell the arms from plain SBD."""
    arms = [
        {"method": "ntp"},
        {"method": "sbd_verified", "block_size": [8, 16], "gamma": [0.1, 99]},
        {"method": "sbd_verified", "solver": ["threshold"], "tau": 0.9, "temperature": 0.7},
        {"method": "sbd_verified", "gamma": 99, "least_confidence": 0.5},
        {"method": "self_speculation", "form": ["linear", "quadratic"], "block_size": 8},
    ]
    cases = plan_of(arms=arms, baseline_check=0).cases
    assert [(case.case_id.rpartition("/")[2], case.label, case.arm.lossless) for case in cases] == [
        ("ntp", "NTP", None),
        ("sbd-verified-k8-g0.1-t0-entropy_bounded", "SBD verified k=8 γ=0.1", GREEDY),
        ("sbd-verified-k8-g99-t0-entropy_bounded", "SBD verified k=8 γ=99", GREEDY),
        ("sbd-verified-k16-g0.1-t0-entropy_bounded", "SBD verified k=16 γ=0.1", GREEDY),
        ("sbd-verified-k16-g99-t0-entropy_bounded", "SBD verified k=16 γ=99", GREEDY),
        ("sbd-verified-k16-tau0.9-t0.7-threshold", "SBD verified k=16 threshold τ=0.9 T=0.7", SAMPLED),
        ("sbd-verified-k16-g99-t0-entropy_bounded-c0.5", "SBD verified k=16 γ=99 c>0.5", GREEDY),
        ("linear-k8-t0", "linear self-speculation k=8", GREEDY),
        ("quadratic-k8-t0", "quadratic self-speculation k=8", GREEDY),
    ]
    assert plan_of(arms=arms).scenario.parts[0].block_sizes == (8, 16), "passes of every block size are measured"


def test_a_pass_is_priced_by_its_counts_whatever_its_role() -> None:
    """A checking pass with the next block's masks costs what a committing pass of that width costs, and the LM head on twice
    as many positions.
    """
    shape = KNOWN_SHAPES["llama-250m"]
    merged = describe_pass("verify+draft", 2, 32, 100, logits=32, kept=9)
    commit = describe_pass("commit+decide", 2, 32, 100, logits=16, kept=9)
    costs, halves = ({o.name: o for o in price_pass(shape, "bfloat16", p, CEILINGS).operations} for p in (merged, commit))
    assert costs["lm_head"].flops == 2 * halves["lm_head"].flops
    assert all(costs[name] == halves[name] for name in halves if name != "lm_head")
    trace = price_trace(shape, "bfloat16", [merged, merged, describe_pass("draft", 2, 16, 100, logits=16)], CEILINGS)
    assert trace.expected_s > 2 * price_pass(shape, "bfloat16", merged, CEILINGS).expected_s


def test_agreement_with_ntp_is_counted_prompt_by_prompt() -> None:
    """Of 8 prompts 2 differ by one token in one of two repeats: 6 of 8 are identical, and the JSON says so with what the arm
    is lossless against; NTP is not compared with itself.
    """
    run = outputs_changed("SBD k=16 γ=0.1", {"p2", "p5"}, lossless=GREEDY)
    ntp, changed, same = compare(run).cells[0].arms
    assert (changed.identical_to_ntp.value, changed.identical_to_ntp.n, changed.lossless) == (0.75, 8, GREEDY)
    assert (same.identical_to_ntp.value, same.lossless) == (1.0, None) and ntp.identical_to_ntp.value is None
    found = to_json(compare(run))["cells"][0]["arms"][1]
    assert found["identical_to_ntp"]["value"] == 0.75 and found["lossless"] == GREEDY


def test_where_outputs_need_not_agree_nothing_is_counted() -> None:
    """Sampled or replayed."""
    sampled = compare(outputs_changed("SBD k=16 γ=0.1", set(), temperature=0.7)).cells[0].arms[1]
    assert sampled.identical_to_ntp.value is None and "by chance" in str(sampled.identical_to_ntp.reason)
    replayed = synthetic.Arm(label="SBD", gamma=0.1, replayed={"source": {"nfe_speedup": 3.0}})
    found = compare(synthetic.build(synthetic.Part(arms=(synthetic.NTP, replayed)))).cells[0].arms[1]
    assert found.identical_to_ntp.value is None and "replayed" in str(found.identical_to_ntp.reason)


def test_agreement_with_ntp_is_a_column_a_claim_and_a_gated_count() -> None:
    """6 of 8 prompts: the page has the share and what the arm is lossless against, a claim is held against Wilson's interval
    (41 % to 93 %), and the gate has the count itself; an arm that promises nothing has no such count.
    """
    run = outputs_changed("SBD k=16 γ=0.1", {"p2", "p5"}, lossless=GREEDY)
    shown, without = (ARMS.table(found.cells, Pointers(found)) for found in map(compare, (run, synthetic.build())))
    assert shown is not None and without is not None
    entry = shown.sections[0][1][1]["Identical to NTP"]
    assert (entry.text, entry.small) == ("75.0\u00a0%", f"lossless against {GREEDY}")
    assert "Identical to NTP" not in without.sections[0][1][1]
    said = {
        claim: verdict(compare(run), (read_claim(f"{claim} at arm='SBD k=16 γ=0.1'"),), run.header).judgements[0]
        for claim in ("identical_to_ntp >= 0.3", "identical_to_ntp >= 0.99", "identical_to_ntp >= 0.8", "identical_to_ntp >= 1")
    }
    assert [one.word for one in said.values()] == ["confirmed", "refuted", "inconclusive", "refuted"]
    assert "what would help: a wider margin" in str(said["identical_to_ntp >= 0.8"].remedy)
    whole = outputs_changed("SBD k=16 γ=0.1", set(), lossless=GREEDY)
    of_all = verdict(compare(whole), (read_claim("identical_to_ntp >= 1 at arm='SBD k=16 γ=0.1'"),), whole.header).judgements[0]
    assert of_all.word == "inconclusive" and "no sample shows a share to be 1" in str(of_all.remedy)
    assert [count.value for metric, count in counted(run).items() if metric.name == "identical_to_ntp"] == [1.0], "first repeat"
    worse = judge_counted(whole, outputs_changed("SBD k=16 γ=0.1", {"p2"}, repeat=0, lossless=GREEDY))
    found = next(one for one in worse if one.metric == "identical_to_ntp")
    assert found.state == "missed" and "from 1.0 to 0.875" in found.reason


SCENARIO = """
version: 1
name: lossless
parts:
  - name: reference
    model: {reference: sbd}
    dtype: float64
    timed: false
    arms:
      - {method: ntp}
      - {method: sbd_verified, block_size: 8, gamma: [0, 99]}
      - {method: sbd_verified, block_size: 8, solver: [longest_prefix, threshold], tau: 0.9}
      - {method: self_speculation, form: [linear, quadratic], block_size: 8}
    batch_sizes: [1, 4]
    workload: {tasks: [word_problems], prompts: 4, max_new_tokens: 24}
"""


def test_a_run_of_the_reference_model_is_identical_to_ntp(tmp_path: Path) -> None:
    """From the scenario to the comparison, alone and in a batch: the very tokens of NTP in fewer passes; nothing in the run can
    be replayed as plain SBD.
    """
    (tmp_path / "s.yaml").write_text(SCENARIO)
    out = run(tmp_path / "s.yaml", tmp_path / "out", machine=uncalibrated())
    for cell in compare(read_run(out)).cells:
        ntp, *arms = cell.arms
        assert len(arms) == 6 and ntp.nfe_speedup.value == 1
        for arm in arms:
            assert arm.identical_to_ntp.value == 1 and arm.lossless == GREEDY, arm.label
            assert arm.decode_tokens == ntp.decode_tokens and arm.accuracy.value == ntp.accuracy.value
        speed = {arm.label: arm.nfe_speedup.value for arm in arms}
        assert min(value for label, value in speed.items() if "γ=0" not in label) > 2, "drafts of a trained model are used"
        assert speed["quadratic self-speculation k=8"] > speed["linear self-speculation k=8"]
    with pytest.raises(RecordError, match="block sizes there: none"):
        passes_per_block(out, 8)
    with pytest.raises(RecordError, match="block sizes there: none"):
        recorded_arms(read_run(out), 8)
