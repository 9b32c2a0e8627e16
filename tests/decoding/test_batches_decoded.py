"""Batches predicted from rows decoded alone, against the same decoder on that very batch; their price against its trace's."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from harness.analysis.evidence.blocks import decoded_blocks
from harness.decoding.acceptance import SolverAcceptance
from harness.decoding.next_token import decode_next_token
from harness.decoding.set_block import decode_set_block
from harness.decoding.solvers import entropy_bounded
from harness.engine.static_session import StaticSession
from harness.models import ModelShape
from harness.roofline.batches import RecordedRow, predict_batch, recorded_batch
from harness.roofline.ceilings import Ceilings
from harness.roofline.recorded_acceptance import blocks_of_row
from harness.runner.sample_taking import pass_columns
from tests.helpers.begun_runs import make_sample
from tests.helpers.priced_trace import price_trace
from tests.helpers.tiny_model import MASK_ID, drain, request, tiny_model

BLOCK, PROMPT = 4, 5
# Prompts of equal length, so that the context of a batch's trace is not padding; the stop ends some of them early.
PROMPTS = tuple(tuple((3 * row + 7 * i) % 31 + 1 for i in range(PROMPT)) for row in range(6))
STOPS = (2, 11, 17)
SHAPE = ModelShape(name="toy", layers=4, hidden=64, intermediate=128, heads=4, kv_heads=2, head_dim=16, vocab=37)
CEILINGS = Ceilings(
    rung="datasheet", device_name="toy", dtype="float32", bandwidth_bytes_per_s=1e8, matrix_rates=((1, 1e9),), overlap=0.5
)


def decoded(prompts, batching, gamma=2.2):
    """SBD on the tiny model; its γ lets the blocks of these prompts take different numbers of passes."""
    session = StaticSession(tiny_model("llama"))
    decoder = decode_set_block(
        session,
        request(prompts, STOPS),
        block_size=BLOCK,
        mask_id=MASK_ID,
        acceptance=SolverAcceptance(entropy_bounded, gamma=gamma),
        batching=batching,
    )
    return drain(decoder)


def columns(generation):
    """The passes as a record keeps them."""
    return pass_columns(SimpleNamespace(generation=generation, forward_s=None, sampler_s=None))


def rows_of(generation):
    """The record of every row."""
    return [
        RecordedRow(passes=tuple(n for n, _ in blocks_of_row(columns(generation), row) if n), output_tokens=len(output))
        for row, output in enumerate(generation.output_ids)
    ]


@pytest.fixture(scope="module")
def alone():
    """Every prompt decoded in a batch of its own."""
    return [rows_of(decoded((prompt,), "lockstep"))[0] for prompt in PROMPTS]


def test_the_rows_are_worth_predicting_from(alone):
    """They differ in blocks and in passes per block: else the tests below show little."""
    assert len({len(row.passes) for row in alone}) > 1
    assert len({passes for row in alone for passes in row.passes}) > 2


@pytest.mark.parametrize("batching", ["lockstep", "ragged"])
def test_a_row_takes_its_own_passes_in_every_batch(alone, batching):
    """What a record of a batch says of a row is what the row alone says: blocks end where the row itself commits."""
    assert rows_of(decoded(PROMPTS, batching)) == alone


@pytest.mark.parametrize("rows", [1, 2, 6])
@pytest.mark.parametrize("batching", ["lockstep", "ragged"])
def test_a_batch_takes_the_passes_predicted_from_its_rows(alone, batching, rows):
    """A batch of all its recorded rows is no average: passes, query tokens and context are those of the decoder's trace."""
    trace = decoded(PROMPTS[:rows], batching).decode_passes
    found = recorded_batch(alone[:rows], rows, batching)
    assert found.passes == pytest.approx(len(trace))
    query_tokens = found.passes * found.query_tokens_per_pass(BLOCK)
    assert query_tokens == pytest.approx(sum(one.padded_query for one in trace))
    context = sum(step.count * (PROMPT + BLOCK * step.committed_blocks) for step in found.steps)
    assert context == pytest.approx(sum(one.padded_context for one in trace))
    assert found.row_passes * rows == pytest.approx(sum(sum(one.active) for one in trace))


@pytest.mark.parametrize("rows", [1, 6])
@pytest.mark.parametrize("batching", ["lockstep", "ragged"])
def test_the_price_is_that_of_the_decoders_trace(alone, batching, rows):
    """Both arms' seconds are those of their traces, NTP writing the lengths SBD wrote. Ragged passes are priced as if every row
    wrote KV, which is all that differs.
    """
    generation = decoded(PROMPTS[:rows], batching)
    found = predict_batch(
        SHAPE,
        "float32",
        CEILINGS,
        recorded_batch(alone[:rows], rows, batching),
        alone[:rows],
        block_size=BLOCK,
        prompt_tokens=PROMPT,
    )
    price = price_trace(SHAPE, "float32", generation.decode_passes, CEILINGS)
    tolerance = 1e-9 if batching == "lockstep" or rows == 1 else 0.01
    for side in ("low_s", "expected_s", "high_s"):
        assert getattr(found.sbd, side) == pytest.approx(getattr(price, side), rel=tolerance)
    longest = max(len(output) for output in generation.output_ids)
    ntp = drain(decode_next_token(StaticSession(tiny_model("llama")), request(PROMPTS[:rows], max_new_tokens=longest)))
    ntp_price = price_trace(SHAPE, "float32", ntp.decode_passes, CEILINGS)
    assert found.ntp_passes == pytest.approx(longest - 1)
    assert found.ntp.expected_s == pytest.approx(ntp_price.expected_s)
    tokens = sum(len(output) for output in generation.output_ids)
    by_hand = (ntp_price.expected_s / (tokens - rows)) / (price.expected_s / tokens)
    assert found.wall_speedup == pytest.approx(by_hand, rel=tolerance)


@pytest.mark.parametrize("batching", ["lockstep", "ragged"])
def test_the_positions_a_pass_decided_say_when_every_token_became_final(batching):
    """Of a batch whose rows stop and wait: positions and counts agree in every pass, no position is decided twice, and the
    final pass of every token, told from positions alone, gives the decoder's own count of final tokens, block by block.
    """
    generation = decoded(PROMPTS, batching)
    kept = columns(generation)
    assert kept.passes() == list(generation.passes), "the record gives back the decoder's own trace"
    of_passes = [one for one in generation.passes if one.decided_slots is not None]
    assert len(of_passes) == len(generation.decode_passes)
    assert all(tuple(map(len, one.decided_slots)) == one.decided_tokens for one in of_passes)
    stops = 0
    for row, output in enumerate(generation.output_ids):
        blocks = decoded_blocks(sample_of(generation, kept), row)
        final = [one.final_tokens[row] for one in generation.decode_passes if one.active[row]]
        told = [block.final_in.count(number) for block in blocks for number in range(1, block.passes + 1)]
        assert told == final and sum(told) == len(output)
        assert [block.passes for block in blocks] == [n for n, _ in blocks_of_row(kept, row) if n]
        assert sum((block.output_ids for block in blocks), ()) == output
        decided = sum(number is not None for block in blocks for number in block.decided_in)
        assert decided == sum(one.decided_tokens[row] for one in generation.decode_passes)
        stops += sum(block.stops for block in blocks)
    assert 0 < stops == generation.stop_reasons.count("stop")


def sample_of(generation, kept):
    """The decode as a sample of the record."""
    sample = make_sample(0)
    rows = [
        sample.rows[0].model_copy(
            update={"prompt_tokens": PROMPT, "output_tokens": len(output), "output_ids": list(output), "stop_reason": stop}
        )
        for output, stop in zip(generation.output_ids, generation.stop_reasons, strict=True)
    ]
    return sample.model_copy(update={"rows": rows, "passes": kept})
