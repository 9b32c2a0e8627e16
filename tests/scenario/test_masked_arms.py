"""FreeDave and APD from the scenario to the report: names, refusals, estimates, a run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from harness.analysis.answer import compare
from harness.errors import ScenarioError
from harness.models import KNOWN_SHAPES
from harness.record.store import read_run
from harness.regression.counted import counted
from harness.reporting.page import render
from harness.roofline.pricing import price_pass
from harness.roofline.speedup import describe_pass
from harness.runner.estimates import estimate_memory, estimate_time
from harness.scenario.loading import load_scenario
from harness.scenario.masked_arms import MASKED_CHAIN
from tests.helpers.fake_machine import uncalibrated
from tests.helpers.pages import words
from tests.helpers.plans import CEILINGS, PART, case_of, plan_of

FREEDAVE, APD = {"method": "freedave", "draft_steps": 3}, {"method": "apd"}


def test_ids_and_labels_name_the_method_and_what_it_is_lossless_against() -> None:
    """FreeDave is lossless against the masked chain, never against NTP; APD is lossless against nothing."""
    arms = [
        {"method": "ntp"},
        {"method": "freedave", "block_size": [8, 16], "draft_steps": [1, 4]},
        {"method": "apd", "mixture": [0, 0.7], "temperature": [0, 0.7]},
    ]
    cases = plan_of(arms=arms, baseline_check=0).cases
    assert [(case.case_id.rpartition("/")[2], case.label, case.arm.lossless) for case in cases] == [
        ("ntp", "NTP", None),
        ("freedave-k8-d1-t0", "FreeDave k=8 d=1", MASKED_CHAIN),
        ("freedave-k8-d4-t0", "FreeDave k=8 d=4", MASKED_CHAIN),
        ("freedave-k16-d1-t0", "FreeDave k=16 d=1", MASKED_CHAIN),
        ("freedave-k16-d4-t0", "FreeDave k=16 d=4", MASKED_CHAIN),
        ("apd-k16-r0-t0", "APD k=16 R=0", None),
        ("apd-k16-r0-t0.7", "APD k=16 R=0 T=0.7", None),
        ("apd-k16-r0.7-t0", "APD k=16 R=0.7", None),
        ("apd-k16-r0.7-t0.7", "APD k=16 R=0.7 T=0.7", None),
    ]
    assert "NTP" not in MASKED_CHAIN


@pytest.mark.parametrize(
    ("arm", "said"),
    [
        ("{method: freedave, temperature: 0.5}", "got 0.5; nested drafts are exact at temperature 0 only, remove temperature"),
        ("{method: freedave, draft_steps: 0}", "draft_steps"),
        ("{method: freedave, gamma: 0.1}", "gamma"),
        ("{method: apd, mixture: 1.2}", "mixture"),
        ("{method: apd, mixture: [0.5, 0.5]}", "0.5 given twice"),
    ],
)
def test_what_makes_no_sense_is_refused(arm: str, said: str, tmp_path: Path) -> None:
    """With the file and the line."""
    file = tmp_path / "s.yaml"
    file.write_text(
        "version: 1\nname: s\nparts:\n- name: p\n  model: {random: llama-250m}\n  dtype: bfloat16\n"
        f"  arms: [{{method: ntp}}, {arm}]\n  workload: {{synthetic: {{prompt_tokens: 8}}, prompts: 1, max_new_tokens: 4}}\n"
    )
    with pytest.raises(ScenarioError, match=re.escape(said)) as refused:
        load_scenario(file)
    assert "s.yaml:" in str(refused.value)


@pytest.mark.parametrize(("arm", "fed", "logits"), [(FREEDAVE, 4 * 16, 3 * 16), (APD, 32, 32)])
def test_memory_is_that_of_the_widest_pass(arm: dict[str, object], fed: int, logits: int) -> None:
    """FreeDave feeds the block before and three states of the open one, APD a draft and the next block's masks."""
    shape = KNOWN_SHAPES["llama-250m"]
    memory, _ = estimate_memory(case_of(str(arm["method"]), arms=[*PART["arms"][:1], arm]))
    alone, _ = estimate_memory(case_of("ntp"))
    assert memory is not None and alone is not None
    assert memory.kv_bytes - alone.kv_bytes == fed * shape.layers * shape.kv_width * 2
    assert memory.logit_bytes == logits * shape.vocab * 6


@pytest.mark.parametrize(("arm", "passes"), [(FREEDAVE, [("verify+draft", 64)]), (APD, [("draft", 16), ("verify+draft", 32)])])
def test_time_is_at_most_that_of_drafts_that_are_always_wrong(arm: dict[str, object], passes: list[tuple[str, int]]) -> None:
    """33 tokens, none of them from the prompt's own logits, each after a whole iteration."""
    case = case_of(str(arm["method"]), arms=[*PART["arms"][:1], arm], warmup=0)
    estimate, _ = estimate_time(case, CEILINGS)
    shape = KNOWN_SHAPES["llama-250m"]
    prefill = describe_pass("prefill", 1, 64, 0, logits=1, kept=64)
    decode_s = sum(
        33
        * price_pass(
            shape, "bfloat16", describe_pass(role, 1, query, 80, logits=query, kept=int(role != "draft")), CEILINGS
        ).expected_s
        for role, query in passes
    )
    assert estimate is not None and estimate.bound == "at_most"
    assert estimate.total_s == pytest.approx(4 * (price_pass(shape, "bfloat16", prefill, CEILINGS).expected_s + decode_s))


SCENARIO = """
version: 1
name: masked
parts:
  - name: reference
    model: {reference: sbd}
    dtype: float32
    arms:
      - {method: ntp}
      - {method: sbd, block_size: 8, solver: top_k, tokens: 1}
      - {method: sbd_verified, block_size: 8, gamma: 99}
      - {method: self_speculation, block_size: 8, form: quadratic}
      - {method: freedave, block_size: 8, draft_steps: 4}
      - {method: apd, block_size: 8, mixture: 0.7}
    timed: false
    workload: {tasks: [word_problems], prompts: 2, max_new_tokens: 24}
"""


def test_a_run_of_all_of_them_yields_a_report(tmp_path: Path) -> None:
    """On the reference model: every pass is priced, and the page has every arm with what it is lossless against and
    how often it wrote what NTP wrote; FreeDave's output is that of one token a pass.
    """
    pytest.importorskip("torch")
    from harness.runner.runner import run

    (tmp_path / "s.yaml").write_text(SCENARIO)
    held = read_run(run(tmp_path / "s.yaml", tmp_path / "out", machine=uncalibrated()))
    comparison = compare(held)
    outputs = {
        label: [row.output_ids for s in held.samples for row in s.rows if s.case_id == case_id]
        for label, case_id in ((case.label, case.case_id) for case in held.header.cases)
    }
    assert outputs["FreeDave k=8 d=4"] == outputs["SBD k=8 top-k tokens=1"]
    by_label = {arm.label: arm for arm in comparison.cells[0].arms}
    assert by_label["FreeDave k=8 d=4"].nfe < by_label["SBD k=8 top-k tokens=1"].nfe
    assert by_label["SBD verified k=8 γ=99"].identical_to_ntp.value == 1
    priced = {metric.label: count.value for metric, count in counted(held).items() if metric.name == "modelled_bytes"}
    assert priced.keys() == by_label.keys() and all(priced.values())
    text = words(render(held, comparison))
    assert "Identical to NTP" in text and f"lossless against {MASKED_CHAIN}" in text
    assert all(label in text for label in by_label)
