"""The arm of public block models in a scenario: ids, labels, and a run."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.analysis.answer import compare
from harness.errors import ScenarioError
from harness.models.block_families import FAMILIES
from harness.record.store import read_run
from tests.helpers.fake_machine import run_of
from tests.helpers.plans import SDAR, case_of, plan_of, published_arm


def test_ids_and_labels_name_the_family_and_where_it_departs() -> None:
    """One case per point of the axes; what is as published is not said."""
    arms = [
        {"method": "ntp"},
        SDAR | {"block_size": [4, 8], "tau": [0.9, 0.95]},
        SDAR | {"commit": "merged"},
        published_arm("fast_dllm_v2", 32),
        published_arm("fast_dllm_v2", 32, sub_block=4, temperature=0.5),
    ]
    cases = plan_of(arms=arms, baseline_check=0).cases
    assert [(case.case_id.rpartition("/")[2], case.label) for case in cases[1:]] == [
        ("sdar-k4-tau0.9-t0-threshold", "sdar k=4 threshold τ=0.9"),
        ("sdar-k4-tau0.95-t0-threshold", "sdar k=4 threshold τ=0.95"),
        ("sdar-k8-tau0.9-t0-threshold", "sdar k=8 threshold τ=0.9"),
        ("sdar-k8-tau0.95-t0-threshold", "sdar k=8 threshold τ=0.95"),
        ("sdar-k4-tau0.9-t0-threshold-merged", "sdar k=4 threshold τ=0.9 merged"),
        ("fast_dllm_v2-k32-tau0.95-t0-threshold_strict", "fast_dllm_v2 k=32 strict threshold τ=0.95"),
        ("fast_dllm_v2-k32-tau0.95-t0.5-threshold_strict-sub4", "fast_dllm_v2 k=32 strict threshold τ=0.95 sub4 T=0.5"),
    ]
    merged, small = cases[5].arm, cases[7].arm
    assert merged.protocol.commit == "merged"
    assert small.protocol.sub_block == 4
    assert plan_of(arms=arms).scenario.parts[0].block_sizes == (4, 8, 32)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_published_rule_of_every_family_is_an_arm(family: str) -> None:
    """With its own block size and knobs, nothing changed."""
    case = case_of("block_diffusion", arms=[{"method": "ntp"}, published_arm(family, FAMILIES[family].block_size)])
    assert case.arm.protocol == FAMILIES[family].protocol
    assert case.label.startswith(family)


SCENARIO = """
version: 1
name: public
parts:
  - name: reference
    model: {reference: sbd}
    dtype: float64
    timed: false
    session: SESSION
    arms:
      - {method: ntp}
      - {method: sbd, block_size: 8, solver: threshold, tau: 0.9}
      - {method: block_diffusion, family: nemotron, block_size: 8, solver: threshold, tau: [0.9, 1]}
      - {method: block_diffusion, family: sdlm, block_size: 8, solver: longest_prefix, tau: 0.9}
      - {method: block_diffusion, family: sdar, block_size: 8, solver: threshold, tau: 0.9}
      - {method: block_diffusion, family: llada, block_size: 8, solver: top_k, tokens: 4}
    batch_sizes: [1, 3]
    workload: {tasks: [word_problems], prompts: 3, max_new_tokens: 24}
"""


@pytest.mark.parametrize("session", ["static", "plain"])
def test_a_run_of_the_reference_model_under_public_protocols(tmp_path: Path, session: str) -> None:
    """From the scenario to the comparison. The reference model is trained as Nemotron is (causal past, own prediction), so it
    still solves its problems when driven that way; the other families only show that their arms are recorded and compared.
    """
    pytest.importorskip("torch")
    for cell in compare(read_run(run_of(SCENARIO.replace("SESSION", session), tmp_path))).cells:
        by_label = {arm.label: arm for arm in cell.arms}
        assert len(by_label) == 7
        nemotron, ntp = by_label["nemotron k=8 threshold τ=0.9"], by_label["NTP"]
        assert nemotron.accuracy.value == ntp.accuracy.value == 1
        assert nemotron.nfe_speedup.value > 1.5
        assert nemotron.nfe_speedup.value < by_label["SBD k=8 threshold τ=0.9"].nfe_speedup.value, "a commit pass more"
        careful = by_label["nemotron k=8 threshold τ=1"]
        assert careful.nfe_speedup.value < nemotron.nfe_speedup.value


def test_an_arm_on_a_checkpoint_of_another_family_is_refused() -> None:
    """What decoding would give means nothing, so it is not begun."""
    pytest.importorskip("torch")
    from types import SimpleNamespace

    from harness.engine.decoders import Decoding, decoder_of

    def start(arm: dict[str, object], family: str | None) -> None:
        case = case_of(str(arm["method"]), arms=[{"method": "ntp"}, arm])
        known = FAMILIES[family] if family else None
        model = SimpleNamespace(family=known, mask_id=3, filler_id=3, shape=SimpleNamespace(name="x"))
        decoder_of(Decoding(case, model, None, None, 1, None))  # type: ignore[arg-type]  # nothing is decoded until the first pass

    with pytest.raises(ScenarioError, match="the checkpoint is of family llada2, the arm says family: sdar; write"):
        start(SDAR, "llada2")
    with pytest.raises(ScenarioError, match="a sdar checkpoint is not trained for method: sbd; use method: block_diffusion"):
        start({"method": "sbd", "gamma": 0.1}, "sdar")
    start(SDAR, "sdar")
    start(SDAR, None)
    start(published_arm("mdlm", 128), "bd3lm")
