"""FreeDave and APD from the scenario to the report: names, a run."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.analysis.answer import compare
from harness.record.store import read_run
from harness.regression.counted import counted
from harness.reporting.page import render
from harness.scenario.masked_arms import MASKED_CHAIN
from tests.helpers.fake_machine import run_of
from tests.helpers.pages import words
from tests.helpers.plans import plan_of


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
    held = read_run(run_of(SCENARIO, tmp_path))
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
