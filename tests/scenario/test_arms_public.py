"""The arm of public block models in a scenario: ids, labels, refusals, estimates, and a run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from harness.analysis.answer import compare
from harness.errors import ScenarioError
from harness.models import KNOWN_SHAPES
from harness.models.block_families import FAMILIES
from harness.record.store import read_run
from harness.roofline.pricing import price_pass
from harness.roofline.speedup import describe_pass
from harness.runner.estimates import estimate_memory, estimate_time
from harness.scenario.loading import load_scenario
from harness.scenario.masked_arms import BlockDiffusionSettings
from tests.helpers.fake_machine import uncalibrated
from tests.helpers.plans import CEILINGS, PART, case_of, plan_of

SDAR = {"method": "block_diffusion", "family": "sdar", "block_size": 4, "solver": "threshold", "tau": 0.9}


def arm_of(family: str, block_size: int, **changes: object) -> dict[str, object]:
    """The family's published rule."""
    spec = FAMILIES[family]
    how = {"solver": spec.solver, **spec.knobs}
    return {"method": "block_diffusion", "family": family, "block_size": block_size, **how, **changes}


def test_ids_and_labels_name_the_family_and_where_it_departs() -> None:
    """One case per point of the axes; what is as published is not said."""
    arms = [
        {"method": "ntp"},
        SDAR | {"block_size": [4, 8], "tau": [0.9, 0.95]},
        SDAR | {"commit": "merged"},
        arm_of("fast_dllm_v2", 32),
        arm_of("fast_dllm_v2", 32, sub_block=4, temperature=0.5),
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
    assert isinstance(merged, BlockDiffusionSettings) and merged.protocol.commit == "merged"
    assert isinstance(small, BlockDiffusionSettings) and small.protocol.sub_block == 4
    assert plan_of(arms=arms).scenario.parts[0].block_sizes == (4, 8, 32)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_published_rule_of_every_family_is_an_arm(family: str) -> None:
    """With its own block size and knobs, nothing changed."""
    case = case_of("block_diffusion", arms=[{"method": "ntp"}, arm_of(family, FAMILIES[family].block_size)])
    assert isinstance(case.arm, BlockDiffusionSettings) and case.arm.protocol == FAMILIES[family].protocol
    assert case.label.startswith(family)


@pytest.mark.parametrize(
    ("arm", "words"),
    [
        ("family: sdra, block_size: 4, solver: threshold, tau: 0.9", "unknown family 'sdra'; allowed: nemotron, sdlm, sdar"),
        ("block_size: 4, solver: threshold, tau: 0.9", "family"),
        ("family: sdar, solver: threshold, tau: 0.9", "block_size"),
        ("family: sdar, block_size: 4, solver: threshold", "tau is missing"),
        ("family: nemotron, block_size: 4, solver: threshold, tau: 0.9, commit: merged", "not possible with family nemotron"),
        ("family: llada, block_size: 4, solver: threshold, tau: 0.9, commit: own_pass", "not possible with family llada"),
        ("family: fast_dllm_v2, block_size: 12, solver: threshold, tau: 0.9", "no multiple of the family's sub_block 8"),
        ("family: sdlm, block_size: 4, solver: threshold, tau: 0.9", "use longest_prefix or longest_prefix_entropy"),
        ("family: sdar, block_size: 4, solver: threshold, tau: 0.9, batching: ragged", "batching"),
    ],
)
def test_what_makes_no_sense_is_refused(arm: str, words: str, tmp_path: Path) -> None:
    """With the file, the line and what to do."""
    file = tmp_path / "s.yaml"
    file.write_text(
        "version: 1\nname: s\nparts:\n- name: p\n  model: {random: llama-250m}\n  dtype: bfloat16\n"
        f"  arms: [{{method: ntp}}, {{method: block_diffusion, {arm}}}]\n"
        "  workload: {synthetic: {prompt_tokens: 8}, prompts: 1, max_new_tokens: 4}\n"
    )
    with pytest.raises(ScenarioError, match=re.escape(words)) as refused:
        load_scenario(file)
    assert "s.yaml:" in str(refused.value)


@pytest.mark.parametrize(
    ("arm", "query", "logits", "passes"),
    [
        # 33 tokens behind 64: 33 deciding passes, a commit for every block of 4.
        (SDAR, 4, 4, [("decide", 4, 80, 4, 0, 33), ("commit+decide", 4, 80, 0, 4, 33 / 4)]),
        (SDAR | {"commit": "merged"}, 8, 4, [("decide", 4, 80, 4, 0, 33 - 33 / 4), ("commit+decide", 8, 80, 4, 4, 33 / 4)]),
        (arm_of("nemotron", 8), 8, 8, [("decide", 8, 80, 8, 0, 33), ("commit+decide", 8, 80, 1, 8, 33 / 8)]),
        (arm_of("sdlm", 4), 8, 4, [("commit+decide", 5, 80, 4, 1, 33)]),
        (arm_of("llada", 32), 97, 33, [("decide", 97, 0, 33, 0, 33)]),
        (arm_of("dream", 32), 97, 34, [("decide", 97, 0, 34, 0, 33)]),
    ],
)
def test_memory_and_time_are_those_of_one_slot_a_pass(
    arm: dict[str, object], query: int, logits: int, passes: list[tuple]
) -> None:
    """By hand: the widest pass, and how many of each kind there are at most."""
    case = case_of("block_diffusion", arms=[{"method": "ntp"}, arm], warmup=0)
    shape = KNOWN_SHAPES["llama-250m"]
    memory, _ = estimate_memory(case)
    assert memory is not None and memory.logit_bytes == logits * shape.vocab * 6
    assert memory.kv_bytes == (64 + 33 + query) * shape.layers * shape.kv_width * 2
    estimate, _ = estimate_time(case, CEILINGS)
    prompt = price_pass(shape, "bfloat16", describe_pass("prefill", 1, 64, 0, logits=1, kept=64), CEILINGS).expected_s
    decode_s = 0.0
    for role, fed, context, wanted, kept, count in passes:
        one = describe_pass(role, 1, fed, context, logits=wanted, kept=kept)
        decode_s += count * price_pass(shape, "bfloat16", one, CEILINGS).expected_s
    assert estimate is not None and estimate.bound == "at_most"
    assert estimate.total_s == pytest.approx(PART["workload"]["prompts"] * (prompt + decode_s))  # type: ignore[index]


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
      - {method: block_diffusion, family: sdar, block_size: 8, commit: [], solver: threshold, tau: 0.9}
      - {method: block_diffusion, family: llada, block_size: 8, solver: top_k, tokens: 4}
    batch_sizes: [1, 3]
    workload: {tasks: [word_problems], prompts: 3, max_new_tokens: 24}
""".replace("commit: [], ", "")


@pytest.mark.parametrize("session", ["static", "plain"])
def test_a_run_of_the_reference_model_under_public_protocols(tmp_path: Path, session: str) -> None:
    """From the scenario to the comparison. The reference model is trained as Nemotron is (causal past, own prediction), so it
    still solves its problems when driven that way; the other families only show that their arms are recorded and compared.
    """
    pytest.importorskip("torch")
    from harness.runner.runner import run

    (tmp_path / "s.yaml").write_text(SCENARIO.replace("SESSION", session))
    out = run(tmp_path / "s.yaml", tmp_path / "out", machine=uncalibrated())
    for cell in compare(read_run(out)).cells:
        by_label = {arm.label: arm for arm in cell.arms}
        assert len(by_label) == 7
        nemotron, ntp = by_label["nemotron k=8 threshold τ=0.9"], by_label["NTP"]
        assert nemotron.accuracy.value == ntp.accuracy.value == 1
        assert nemotron.nfe_speedup.value is not None and nemotron.nfe_speedup.value > 1.5
        assert nemotron.nfe_speedup.value < (by_label["SBD k=8 threshold τ=0.9"].nfe_speedup.value or 0), "a commit pass more"
        careful = by_label["nemotron k=8 threshold τ=1"]
        assert careful.nfe_speedup.value is not None and careful.nfe_speedup.value < nemotron.nfe_speedup.value


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
    start(arm_of("mdlm", 128), "bd3lm")
