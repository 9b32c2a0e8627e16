"""Decoding as public block models do, on tiny random models of the classes their tensors fit, against brute-force statements
of the published rules that keep no cache; and what a wrong protocol does to it.
"""

from __future__ import annotations

import itertools
import random
from dataclasses import replace
from functools import partial

import pytest
import torch
import transformers

from harness.decoding import block_diffusion
from harness.decoding.acceptance import SolverAcceptance
from harness.decoding.block_diffusion import decode_block_diffusion
from harness.decoding.request import NEVER, StopRule
from harness.decoding.set_block import decode_set_block
from harness.models.block_families import FAMILIES
from tests.helpers import published_rules
from tests.helpers.few_words import MASK_ID, WORDS, Work
from tests.helpers.other_keep import OtherKeep
from tests.helpers.sessions import SESSIONS
from tests.helpers.solver_rules import SOLVERS
from tests.helpers.tiny_model import Says, drain, request

K = 4
EXPERTS = {
    "moe_intermediate_size": 16,
    "num_experts_per_tok": 2,
    "n_routed_experts": 8,
    "n_group": 2,
    "topk_group": 1,
    "first_k_dense_replace": 1,
    "use_qk_norm": True,
    "routed_scaling_factor": 2.5,
}
# The class that each family's tensors fit, the rule with its knobs, and the published statement of the same.
TAU = 0.35
RULES = {
    "nemotron": ("ministral3", "threshold", {"tau": TAU}, partial(published_rules.nemotron, tau=TAU)),
    "sdlm": ("qwen2", "longest_prefix", {"tau": TAU}, partial(published_rules.sdlm, tau=TAU)),
    "sdar": ("qwen3", "low_confidence_dynamic", {"tau": TAU, "steps": K}, partial(published_rules.sdar, tau=TAU)),
    "fast_dllm_v2": ("qwen2", "threshold_strict", {"tau": TAU}, partial(published_rules.fast_dllm_v2, tau=TAU, run=2)),
    "llada2": ("glm4_moe", "low_confidence_dynamic", {"tau": TAU, "steps": K}, partial(published_rules.sdar, tau=TAU)),
    "bd3lm": ("qwen3", "uniform", {"steps": 2}, partial(published_rules.bd3lm, steps=2)),
    "dream": ("qwen2", "top_k", {"tokens": 1}, partial(published_rules.whole_sequence, steps=K, shift=1)),
    "llada": ("llama", "uniform", {"steps": 3}, partial(published_rules.whole_sequence, steps=3)),
    "mdlm": (
        "qwen3",
        "uniform",
        {"steps": 2},
        partial(published_rules.whole_sequence, steps=2, split=published_rules.rounded_split),
    ),
}
QUOTAS = ("bd3lm", "llada", "mdlm")
"""Families whose rule takes a share of a block, so that a block which a stop cuts has another schedule here."""
STOPS = StopRule(token_ids=frozenset({1, 3}))


def tiny(model_type, seed, attention="sdpa"):
    """A random model of eight words and the mask, float64, 2 layers with grouped-query attention."""
    torch.manual_seed(seed)
    sizes = {
        "vocab_size": WORDS + 1,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 8,
        "max_position_embeddings": 256,
        "initializer_range": 0.25,
        "pad_token_id": None,
        "eos_token_id": None,
        "bos_token_id": None,
    }
    config = transformers.AutoConfig.for_model(model_type, **sizes, **(EXPERTS if model_type == "glm4_moe" else {}))
    # The grouped kernel knows no float64, and experts one after another ask the device which: no graph can be captured of that.
    how = {"attn_implementation": attention} | ({"experts_implementation": "batched_mm"} if model_type == "glm4_moe" else {})
    model = transformers.AutoModelForCausalLM.from_config(config, **how).to(torch.float64).eval()
    for name, parameter in model.named_parameters():
        if name.endswith("gate.weight"):  # a router of zeros would send every token to the same experts
            torch.nn.init.normal_(parameter, std=0.5)
    return model


def protocol(family, **changes):
    """The family's, with runs as short as these blocks need."""
    published = FAMILIES[family].protocol
    return replace(published, **{"sub_block": 2 if published.sub_block else None, **changes})


def decoder(family, session, work, row=None, **changes):
    """The family's decoder with the rule of RULES."""
    _, solver, knobs, _ = RULES[family]
    return decode_block_diffusion(
        session,
        work.request(row),
        protocol=protocol(family, **changes),
        block_size=K,
        mask_id=MASK_ID,
        acceptance=SolverAcceptance(SOLVERS[solver], **knobs),
    )


def some_prompts(seed, count=5):
    """Prompts of 1 to 9 tokens, one of them of whole blocks and one shorter than a block."""
    rng = random.Random(f"block diffusion/{seed}")
    lengths = [2 * K, rng.randint(1, K - 1), *(rng.randint(1, 9) for _ in range(count - 2))]
    return tuple(tuple(rng.randrange(WORDS) for _ in range(length)) for length in lengths)


def expected(family, model, work, row):
    """The published rule on one prompt."""
    one = published_rules.Prompted(model, work.prompts[row], work.max_new_tokens, MASK_ID, work.stop.token_ids)
    RULES[family][3](one, K)
    return one.result()


def check(family, seed, kind="plain-sdpa", stop=NEVER, new=3 * K, **changes):
    """A batch of prompts against each prompt's own published decode; returns how many slots each deciding pass decided."""
    work, native = Work(some_prompts(seed), stop, new), RULES[family][0]
    model, session = tiny(native, seed), SESSIONS[kind](tiny(native, seed))
    found = drain(decoder(family, session, work, **changes))
    found.check_conservation()
    counts = []
    for row in range(len(work.prompts)):
        wanted = expected(family, model, work, row)
        assert list(found.output_ids[row]) == wanted.answer, f"{family}, prompt {row}"
        counts += [len(slots) for slots in wanted.decided]
    return counts


@pytest.mark.parametrize("family", RULES)
def test_a_batch_decodes_as_published(family):
    """Fifteen prompts of every length from 1, three to a block and more, in batches; passes that decide one slot, and where
    the rule allows it several.
    """
    counts = [count for seed in (1, 2, 3) for count in check(family, seed)]
    assert (1 in counts or family in ("bd3lm", "mdlm")) and (max(counts) > 1 or family == "dream")


@pytest.mark.full
@pytest.mark.parametrize("family", RULES)
def test_hundreds_of_prompts_decode_as_published(family):
    """200 prompts for each family, through the sessions in turn."""
    for seed in range(40):
        check(family, seed, list(SESSIONS)[seed % len(SESSIONS)])


@pytest.mark.parametrize("family", RULES)
@pytest.mark.parametrize("kind", ["static", "graphed"])
def test_every_session_decodes_as_published(family, kind):
    """The same through buffers written in place, and through captured passes."""
    check(family, 4, kind)


@pytest.mark.parametrize("family", RULES)
def test_stops_and_lengths_within_a_block(family):
    """Where the limit lies within a block, and where a stop does, slots behind it are not asked for."""
    check(family, 5, new=2 * K + 1)
    if family not in QUOTAS:
        check(family, 6, stop=STOPS)


class Views:
    """Remembers what every deciding pass read: logits of the slots asked for."""

    def __init__(self, monkeypatch):
        self.passes, view = [], block_diffusion.BlockView

        def remembered(logits, masked, temperature, figures):
            self.passes.append((logits.clone(), masked.clone()))
            return view(logits, masked, temperature, figures)

        monkeypatch.setattr(block_diffusion, "BlockView", remembered)


@pytest.mark.parametrize("family", RULES)
@pytest.mark.parametrize("kind", ["plain-sdpa", "static"])
def test_every_pass_reads_the_logits_of_the_uncached_sequence(family, kind, monkeypatch):
    """Pass by pass on prompts of 1, 4 and 7 tokens, stopped or not: as many passes as published, each asking for as many slots
    and deciding the same ones from the same logits; so the KV that was kept is what the family's mask makes of the sequence.
    """
    native = RULES[family][0]
    for length, stop in itertools.product((1, K, 7), (NEVER,) if family in QUOTAS else (NEVER, STOPS)):
        work = Work((tuple(i % WORDS for i in range(3, 3 + length)),), stop, 3 * K)
        wanted = expected(family, tiny(native, 8), work, 0)
        views = Views(monkeypatch)
        found = drain(decoder(family, SESSIONS[kind](tiny(native, 8)), work))
        assert [int(asked.sum()) for _, asked in views.passes] == wanted.asked
        for (logits, asked), slots, by_slot in zip(views.passes, wanted.decided, wanted.logits, strict=True):
            rows = logits[0, asked[0]]
            for logit in (by_slot[slot] for slot in slots):
                close = (rows - logit).masked_fill(~logit.isfinite(), 0).abs().amax(dim=-1)
                assert close.min() < 1e-9, "the logits that decided are those of some slot asked for"
        decisions = [one.decided_tokens[0] for one in found.passes if one.decided_tokens[0] and one.logit_tokens[0] > 1]
        assert decisions == [len(slots) for slots in wanted.decided]


@pytest.mark.parametrize("family", ["nemotron", "sdar", "fast_dllm_v2", "llada2", "bd3lm"])
def test_passes_are_the_published_ones(family):
    """One prefill of the prompt's whole blocks, the published deciding passes, and one to write the KV of every block but the
    last; each with its counts.
    """
    work, native = Work((tuple(range(7)),), NEVER, 3 * K), RULES[family][0]
    wanted = expected(family, tiny(native, 9), work, 0)
    passes = drain(decoder(family, SESSIONS["plain-sdpa"](tiny(native, 9)), work)).passes
    whole = K if FAMILIES[family].protocol.borders == "sequence" else 7
    assert passes[0].role == "prefill" and passes[0].kept_tokens == (whole,)
    decide = [one for one in passes[1:] if one.role == "decide"]
    commit = [one for one in passes[1:] if one.role == "commit+decide"]
    assert len(decide) == len(wanted.decided) and len(commit) == wanted.commits
    assert all(one.kept_tokens == (K,) and one.query_tokens == (K,) for one in commit)
    firsts = FAMILIES[family].protocol.first_slot == "committed"
    assert all(one.decided_tokens == (int(firsts),) for one in commit)
    assert sum(one.decided_tokens[0] for one in passes) == 3 * K
    assert all(one.context_tokens[0] == passes[0].kept_tokens[0] + K * before for before, one in enumerate(commit))


def test_a_window_is_one_pass_like_the_published_one():
    """Behind the prompt's own pass every pass is a published one, and keeps what the one before made final.

    Published code opens the first window in the prompt's pass: its last token is fed anew in ours.
    """
    work = Work((tuple(range(7)),), NEVER, 11)
    wanted = expected("sdlm", tiny("qwen2", 9), work, 0)
    found = drain(decoder("sdlm", SESSIONS["plain-sdpa"](tiny("qwen2", 9)), work))
    assert [one.decided_tokens[0] for one in found.decode_passes] == [len(slots) for slots in wanted.decided]
    assert [one.kept_tokens[0] for one in found.passes] == [6, 1, *(len(slots) for slots in wanted.decided[:-1])]
    assert (found.passes[0].role, found.passes[0].query_tokens, found.passes[0].logit_tokens) == ("prefill", (7,), (1,))
    assert found.decode_tokens(0) == 11


def test_a_canvas_keeps_nothing_and_feeds_everything():
    """Prompt and answer in every pass, no context."""
    work = Work((tuple(range(7)), (1, 2)), NEVER, 2 * K)
    found = drain(decoder("llada", SESSIONS["plain-sdpa"](tiny("llama", 9)), work))
    for one in found.passes:
        assert one.query_tokens == (7 + 2 * K, 2 + 2 * K) and one.context_tokens == one.kept_tokens == (0, 0)
    assert len(found.passes) == 6 and found.passes[0].role == "prefill"


@pytest.mark.parametrize("family", ["sdar", "llada2", "bd3lm"])
def test_committing_with_the_next_block_saves_a_pass_a_block(family):
    """The same output, two passes fewer for three blocks; the first pass of a block feeds two."""
    native = RULES[family][0]
    check(family, 7, commit="merged")
    work = Work((tuple(range(7)),), NEVER, 3 * K)
    own, merged = (
        drain(decoder(family, SESSIONS["static"](tiny(native, 7)), work, commit=commit)) for commit in ("own_pass", "merged")
    )
    commits = sum(one.role == "commit+decide" for one in own.decode_passes)
    assert own.output_ids == merged.output_ids and len(own.passes) - len(merged.passes) == commits > 1
    widths = {one.query_tokens for one in merged.decode_passes if one.role == "commit+decide"}
    assert widths == {(2 * K,)}


@pytest.mark.parametrize(
    ("family", "changes"),
    [
        ("nemotron", {"committed": "block"}),
        ("nemotron", {"first_slot": "drafted"}),
        ("nemotron", {"borders": "sequence"}),
        ("nemotron", {"prediction": "shifted"}),
        ("sdar", {"committed": "causal"}),
        ("sdar", {"borders": "answer"}),
        ("sdar", {"prediction": "shifted"}),
        ("sdar", {"layout": "canvas"}),
        ("sdar", {"sub_block": 2}),
        ("fast_dllm_v2", {"committed": "causal"}),
        ("fast_dllm_v2", {"borders": "answer"}),
        ("fast_dllm_v2", {"prediction": "own"}),
        ("fast_dllm_v2", {"sub_block": None}),
        ("llada2", {"committed": "causal"}),
        ("llada2", {"borders": "answer"}),
        ("bd3lm", {"borders": "sequence", "last_block": "whole"}),
        ("bd3lm", {"committed": "causal"}),
        ("sdlm", {"layout": "blocks"}),
        ("dream", {"prediction": "own"}),
        ("llada", {"prediction": "shifted"}),
        ("llada", {"layout": "blocks", "committed": "block", "commit": "own_pass"}),
    ],
)
def test_a_wrong_protocol_shows(family, changes):
    """Every field of the protocol decides what is written: with any of them wrong some prompt comes out otherwise."""
    with pytest.raises(AssertionError, match="prompt"):
        for seed in range(6):
            check(family, seed, **changes)


def test_a_last_block_that_is_not_cut_shows():
    """BD3-LM feeds no masks behind the limit; feeding them changes what is written."""
    with pytest.raises(AssertionError, match="prompt"):
        for seed in range(12):
            check("bd3lm", seed, new=2 * K + 2, last_block="whole")


@pytest.mark.parametrize("family", ["nemotron", "sdlm", "sdar", "fast_dllm_v2", "llada2", "bd3lm"])
def test_a_slot_of_kv_too_few_shows(family, monkeypatch):
    """The comparison sees the cache."""
    monkeypatch.setitem(SESSIONS, "short", lambda model: OtherKeep(SESSIONS["plain-sdpa"](model), -1))
    with pytest.raises(AssertionError, match="prompt"):
        for seed in range(6):
            check(family, seed, "short")


@pytest.mark.parametrize("family", ["bd3lm", "llada", None])
def test_a_solver_is_not_offered_slots_behind_a_stop(family):
    """Slot 2 says the stop and is decided first: slot 3 leaves the set that the solver chooses from, on the device too."""
    offered = []

    class LastSlots:
        """Decides the last offered slot but one, then the first."""

        def begin_block(self, row, masked):
            """Nothing to prepare."""

        def choose(self, view):
            """One slot."""
            offered.append(view.masked[0].tolist())
            slots = [slot for slot, asked in enumerate(offered[-1]) if asked]
            return torch.arange(4)[None] == (slots[-2] if len(offered) == 1 else slots[0])

    decode = partial(decode_block_diffusion, protocol=FAMILIES[family].protocol) if family else decode_set_block
    req = request(((1, 5, 9),), stop_ids=(2,), max_new_tokens=4)
    generation = drain(decode(Says(), req, block_size=4, mask_id=36, acceptance=LastSlots()))
    assert offered == [[True] * 4, [True, True, False, False], [False, True, False, False]]
    assert (generation.output_ids, generation.stop_reasons) == (((0, 1, 2),), ("stop",))
