"""Arms of every method: which make no sense, and what memory and time a plan says they take at most."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from harness.errors import UserError
from harness.models.shape import ModelShape, with_layers
from harness.roofline.operation import describe_pass
from harness.roofline.pricing import price_pass
from harness.runner.estimates import estimate_memory, estimate_time
from harness.scenario.loading import load_scenario
from tests.helpers.plans import CEILINGS, DRAFT, SDAR, SMALL, TARGET, case_of, published_arm

PUBLIC = "{{method: block_diffusion, {}}}"
REFUSED = [
    ("{method: sbd_verified}", "gamma is missing: an arm with real acceptance and solver entropy_bounded needs it"),
    ("{method: sbd_verified, gamma: 0.1, batching: ragged}", "batching"),
    ("{method: self_speculation}", "form"),
    ("{method: self_speculation, form: cubic}", "'linear' or 'quadratic'"),
    ("{method: self_speculation, form: [linear, linear]}", "linear given twice"),
    ("{method: sbd, acceptance: {replay: {nfe_speedup: 3.0}}}, {method: sbd_verified, gamma: 0.1}", "their own part"),
    ("{method: sbd, gamma: 0.1, verified: true}", "verified"),
    ("{method: freedave, temperature: 0.5}", "got 0.5; nested drafts are exact at temperature 0 only, remove temperature"),
    ("{method: freedave, draft_steps: 0}", "draft_steps"),
    ("{method: freedave, gamma: 0.1}", "gamma"),
    ("{method: apd, mixture: 1.2}", "mixture"),
    ("{method: apd, mixture: [0.5, 0.5]}", "0.5 given twice"),
    ("{method: draft_model}", "draft"),
    ("{method: draft_model, draft: {reference: large}}", "unknown reference model 'large'; allowed: sbd, ntp_only, draft"),
    ("{method: draft_model, draft: {huggingface: ./nowhere}}", "no model at './nowhere'"),
    ("{method: prompt_lookup, draft_tokens: 0}", "greater than or equal to 1"),
    ("{method: prompt_lookup, ngram: 3}", "did you mean 'max_ngram'"),
    ("{method: prompt_lookup, least_confidence: 0.5}", "unknown key least_confidence"),
    ("{method: early_exit, exit_layers: 2, least_confidence: 1.5}", "less than or equal to 1"),
    ("{method: hierarchical, stack: [{max_ngram: 2, draft_tokens: 4}]}", "a stack of one is no stack"),
    (
        "{method: hierarchical, stack: [{max_ngram: 2, draft_tokens: 4}, {exit_layers: 2, draft_tokens: 4}]}",
        "prompt lookup checks nothing",
    ),
    ("{method: hierarchical, stack: [{draft_tokens: 4}, {max_ngram: 2, draft_tokens: 4}]}", "who drafts is missing"),
    ("{method: universal_draft, draft: {random: llama-250m}}", "a random model has no tokenizer to translate with"),
    ("{method: universal_draft, draft: {reference: draft}}", "a random model has no tokenizer to translate drafts with"),
    *(
        (PUBLIC.format(keys), words)
        for keys, words in (
            (
                "family: sdra, block_size: 4, solver: threshold, tau: 0.9",
                "unknown family 'sdra'; allowed: nemotron, sdlm, sdar",
            ),
            ("block_size: 4, solver: threshold, tau: 0.9", "family"),
            ("family: sdar, solver: threshold, tau: 0.9", "block_size"),
            ("family: sdar, block_size: 4, solver: threshold", "tau is missing"),
            (
                "family: nemotron, block_size: 4, solver: threshold, tau: 0.9, commit: merged",
                "not possible with family nemotron",
            ),
            ("family: llada, block_size: 4, solver: threshold, tau: 0.9, commit: own_pass", "not possible with family llada"),
            ("family: fast_dllm_v2, block_size: 12, solver: threshold, tau: 0.9", "no multiple of the family's sub_block 8"),
            ("family: sdlm, block_size: 4, solver: threshold, tau: 0.9", "use longest_prefix or longest_prefix_entropy"),
            ("family: sdar, block_size: 4, solver: threshold, tau: 0.9, batching: ragged", "batching"),
        )
    ),
]


@pytest.mark.parametrize(("arm", "words"), REFUSED)
def test_what_makes_no_sense_is_refused(arm: str, words: str, tmp_path: Path) -> None:
    """With the file, the line and what to do; verified blocks that lack a knob are not told to be replayed."""
    file = tmp_path / "s.yaml"
    file.write_text(
        "version: 1\nname: s\nparts:\n- name: p\n  model: {random: llama-250m}\n  dtype: bfloat16\n"
        f"  arms: [{{method: ntp}}, {arm}]\n  workload: {{synthetic: {{prompt_tokens: 8}}, prompts: 1, max_new_tokens: 4}}\n"
    )
    with pytest.raises(UserError, match=re.escape(words)) as refused:
        load_scenario(file)
    assert "s.yaml:" in str(refused.value) and ("sbd_verified" not in arm or "or replay" not in str(refused.value))


Pass = tuple[str, int, int, int, int, float, ModelShape]


def checks(role: str, query: int, count: float, kept: int = 1, shape: ModelShape = TARGET) -> Pass:
    """Passes that read logits of all they feed, at the context in the middle of the answer."""
    return role, query, 80, query, kept, count, shape


FOUR = with_layers(TARGET, 4)
# (arm, tokens of KV beyond its text, tokens whose logits are held, passes): 33 tokens behind 64. The prompt gives the first one
# to those that check with the next-token head, so theirs are 32 checks; the others have 33 passes, each after its drafts.
ESTIMATES: list[tuple[dict[str, Any], int | None, int, list[Pass]]] = [
    ({"method": "sbd_verified", "gamma": 0.1}, 32, 32, [checks("draft", 16, 15 * 32, 0), checks("verify+draft", 32, 32)]),
    ({"method": "self_speculation", "form": "linear"}, 16, 16, [checks("draft", 16, 32, 0), checks("verify", 16, 32)]),
    ({"method": "self_speculation", "form": "quadratic"}, 16 * 17, 16 * 17, [checks("verify+draft", 272, 32)]),
    ({"method": "freedave", "draft_steps": 3}, 4 * 16, 3 * 16, [checks("verify+draft", 64, 33)]),
    ({"method": "apd"}, 32, 32, [checks("draft", 16, 33, 0), checks("verify+draft", 32, 33)]),
    # 33 deciding passes, a commit for every block of 4.
    (SDAR, 4, 4, [("decide", 4, 80, 4, 0, 33, TARGET), ("commit+decide", 4, 80, 0, 4, 33 / 4, TARGET)]),
    (
        SDAR | {"commit": "merged"},
        8,
        4,
        [("decide", 4, 80, 4, 0, 33 - 33 / 4, TARGET), ("commit+decide", 8, 80, 4, 4, 33 / 4, TARGET)],
    ),
    (published_arm("nemotron", 8), 8, 8, [("decide", 8, 80, 8, 0, 33, TARGET), ("commit+decide", 8, 80, 1, 8, 33 / 8, TARGET)]),
    (published_arm("sdlm", 4), 8, 4, [("commit+decide", 5, 80, 4, 1, 33, TARGET)]),
    (published_arm("llada", 32), 97, 33, [("decide", 97, 0, 33, 0, 33, TARGET)]),
    (published_arm("dream", 32), 97, 34, [("decide", 97, 0, 34, 0, 33, TARGET)]),
    # Before each check every draft, one a pass of its own model; test_speculative_arms has the memory of several models.
    ({"method": "prompt_lookup"}, None, 0, [checks("verify", 11, 32)]),
    ({"method": "draft_model", "draft": DRAFT}, None, 0, [checks("verify", 6, 32), checks("draft", 1, 5 * 32, 1, SMALL)]),
    (
        {"method": "early_exit", "exit_layers": 4, "draft_tokens": 3},
        None,
        0,
        [checks("verify", 4, 32), checks("draft", 1, 3 * 32, 1, FOUR)],
    ),
    (
        {
            "method": "hierarchical",
            "stack": [
                {"exit_layers": 4, "draft_tokens": 6},
                {"draft": DRAFT, "draft_tokens": 3},
                {"max_ngram": 3, "draft_tokens": 4},
            ],
        },
        None,
        0,
        [checks("verify", 7, 32), checks("verify", 4, 6 * 32, 1, FOUR), checks("verify", 5, 18 * 32, 1, SMALL)],
    ),
]


@pytest.mark.parametrize(("arm", "fed", "logits", "passes"), ESTIMATES)
def test_memory_and_time_are_those_of_drafts_that_are_always_wrong(
    arm: dict[str, Any], fed: int | None, logits: int, passes: list[Pass]
) -> None:
    """By hand: KV of the text and the widest pass, its logits in the model's dtype and the sampler's; a price of every pass."""
    case = case_of(arm["method"], arms=[{"method": "ntp"}, arm], warmup=0)
    memory, _ = estimate_memory(case)
    estimate, _ = estimate_time(case, CEILINGS)
    assert estimate.bound == "at_most"
    if fed is not None:
        assert memory.kv_bytes == (64 + 33 + fed) * TARGET.layers * TARGET.kv_width * 2
        assert memory.logit_bytes == logits * TARGET.vocab * 6
    prompt = describe_pass("prefill", 1, 64, 0, logits=1, kept=64)
    readers = {shape.name: shape for *_, shape in [*passes, checks("verify", 1, 1)]}
    prompt_s = sum(price_pass(shape, "bfloat16", prompt, CEILINGS).expected_s for shape in readers.values())
    decode_s = 0.0
    for role, query, context, wanted, kept, count, shape in passes:
        one = describe_pass(role, 1, query, context, logits=wanted, kept=kept)
        decode_s += count * price_pass(shape, "bfloat16", one, CEILINGS).expected_s
    assert estimate.total_s == pytest.approx(4 * (prompt_s + decode_s))
