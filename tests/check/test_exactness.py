"""Every logit of every pass against the same module run uncached with an explicit mask built by independent code."""

from __future__ import annotations

import pytest

from harness.decoding.acceptance import SolverAcceptance
from harness.decoding.next_token import decode_next_token
from harness.decoding.set_block import decode_set_block
from harness.decoding.solvers import entropy_bounded
from harness.engine.cuda_graphs import GraphedSession
from harness.engine.plain_session import TransformersSession
from harness.engine.static_session import StaticSession
from harness.kernels.library import why_not_built
from harness.meters.host import CAPTURES, GraphMeter
from tests.helpers.emulated_gpu import emulated_graphs
from tests.helpers.pass_spy import PassSpy
from tests.helpers.tiny_model import (
    MASK_ID,
    PROMPTS,
    TOLERANCE,
    VOCAB,
    check_kv,
    drain,
    reference_logits,
    request,
    tiny_model,
    torch,
)

NATIVE_TOLERANCE = 2e-4
"""Of float32, whose sums have another order here."""


def open_session(kind, architecture="llama"):
    """A tiny model and a session over it: the plain one with either attention, or the static one."""
    model = tiny_model(architecture, "eager" if kind == "plain-eager" else "sdpa")
    # The reference forward below must not go through our own attention.
    if kind == "static":
        return model, StaticSession(tiny_model(architecture))
    if kind == "graphed":
        return model, GraphedSession(tiny_model(architecture), emulated_graphs())
    return model, TransformersSession(model, kind.removeprefix("plain-"))


def decode(session, method, req, gamma=1.5, block_size=4):
    """Run one arm: ntp, or SBD (sbd: in lockstep, ragged)."""
    if method == "ntp":
        return drain(decode_next_token(session, req))
    return drain(
        decode_set_block(
            session,
            req,
            block_size=block_size,
            mask_id=MASK_ID,
            acceptance=SolverAcceptance(entropy_bounded, gamma=gamma),
            batching="ragged" if method == "ragged" else "lockstep",
        )
    )


@pytest.mark.parametrize("architecture", ["llama", "qwen3"])
@pytest.mark.parametrize("kind", TOLERANCE)
@pytest.mark.parametrize("batch", ["one", "padded"])
@pytest.mark.parametrize("method", ["ntp", "sbd", "ragged"])
def test_every_logit_equals_the_uncached_forward(architecture, kind, batch, method):
    """Catches a wrong mask, position, crop, slot or padding in any pass (seen to fail when is_causal or the crop is broken)."""
    model, session = open_session(kind, architecture)
    check_every_logit(model, session, batch, method, TOLERANCE[kind])


@pytest.mark.skipif(why_not_built() is not None, reason="no C++ compiler")
@pytest.mark.parametrize("architecture", ["llama", "qwen3"])
def test_native_forwards_are_the_same_ones(architecture):
    """One session decodes everything, one row, several, one again: other batches, lengths and buffers. Nothing is compiled, at
    no pass.
    """
    model, same = (tiny_model(architecture, sizes={"head_dim": 32}) for _ in range(2))
    session, meter = StaticSession(same.float(), "native"), GraphMeter()
    meter.open()
    for batch in (*PROMPTS, *PROMPTS):
        for method in ("ntp", "sbd", "ragged"):
            check_every_logit(model, session, batch, method, NATIVE_TOLERANCE)
    assert meter.close() == {"compiled_graphs": 0.0}


def test_a_graph_serves_every_later_pass_of_its_kind():
    """One session, one row and several in turn, twice each: what was captured once serves other contexts, tokens and rows that
    commit or do not; only other buffers ask for a new capture. Catches inputs that a replay does not see.
    """
    model, session = tiny_model("llama"), GraphedSession(tiny_model("llama"), emulated_graphs())
    made = []
    for batch in PROMPTS:
        for _ in range(2):
            before = CAPTURES.made
            for method in ("ntp", "sbd", "ragged"):
                check_every_logit(model, session, batch, method, TOLERANCE["graphed"])
            made.append(CAPTURES.made - before)
    assert made == [3, 0, 3, 0], "NTP, a block, a block that commits the one before it"
    session.reset(0, 0)
    assert not session._graphs, "a graph would hold the buffers that were given back"  # no session says what memory it holds


def check_every_logit(model, session, batch, method, tolerance):
    """Decode, and compare with one uncached forward per pass and row."""
    spy = PassSpy(session)
    generation = decode(spy, method, request(PROMPTS[batch], stop_ids=(11,)))
    rows = len(PROMPTS[batch])
    assert len(spy.calls) == rows * len(generation.passes)
    for prompt, output, committed in zip(PROMPTS[batch], generation.output_ids, spy.committed, strict=True):
        written = [*prompt, *output]
        assert written[: len(committed)] == committed[: len(written)]
    for index, (row, committed, fed) in enumerate(spy.calls):
        if not generation.passes[index // rows].active[row]:
            continue  # a finished or waiting row feeds filler: left out by name
        sequence, in_block = committed, [False] * len(committed)
        for visibility, (tokens, _) in fed.items():
            sequence, in_block = sequence + tokens, in_block + [visibility == "bidirectional"] * len(tokens)
        logits = torch.cat([found for _, found in fed.values()])
        expected = reference_logits(model, sequence, in_block, len(logits))
        allowed = torch.arange(VOCAB) != MASK_ID  # the decoder suppresses the mask token in place
        assert (logits[:, allowed] - expected[:, allowed]).abs().max() < tolerance


@pytest.mark.parametrize("kind", ["plain-sdpa", "static", "graphed"])
@pytest.mark.parametrize("batching", ["lockstep", "ragged"])
@pytest.mark.parametrize("batch", ["one", "padded"])
def test_kv_after_each_block_equals_a_causal_prefill(batch, batching, kind):
    """Catches KV of masks or of bidirectional attention staying in the cache."""
    model, session = open_session(kind)
    spy = PassSpy(session)
    req = request(PROMPTS[batch])
    acceptance = SolverAcceptance(entropy_bounded, gamma=1.5)
    checked = 0
    decoder = decode_set_block(spy, req, block_size=4, mask_id=MASK_ID, acceptance=acceptance, batching=batching)
    for forward_pass in decoder:
        if forward_pass.role != "commit+decide":
            continue
        for row, tokens in enumerate(spy.committed):
            check_kv(session, row, model, tokens, TOLERANCE[kind])
            checked += 1
    assert checked >= 4 * len(PROMPTS[batch])


@pytest.mark.parametrize("temperature", [0.0, 0.9])
@pytest.mark.parametrize("method", ["ntp", "sbd", "ragged"])
def test_tokens_are_conserved_and_every_call_is_in_the_trace(method, temperature):
    """Per row, final tokens over the trace are the decode tokens; the counting session finds no hidden call."""
    model = tiny_model("qwen3")
    for seed_stop in range(12):
        spy = PassSpy(TransformersSession(model, "sdpa"))
        prompts = PROMPTS["padded"]
        generation = decode(spy, method, request(prompts, stop_ids=(seed_stop, 20), temperature=temperature))
        generation.check_conservation()
        assert len(spy.calls) == len(generation.passes) * len(prompts)
        for row, output in enumerate(generation.output_ids):
            from_prefill = 1 if method == "ntp" else 0
            assert generation.decode_tokens(row) == len(output) - from_prefill
            assert sum(p.final_tokens[row] for p in generation.decode_passes) == len(output) - from_prefill
            assert not {seed_stop, 20} & set(output[:-1]), "nothing after the first stop"
            assert MASK_ID not in output
            stopped = output[-1] in (seed_stop, 20)
            assert generation.stop_reasons[row] == ("stop" if stopped else "length")
            assert stopped or len(output) == 21
            if method == "ntp":
                assert generation.nfe(row) == generation.decode_tokens(row)
