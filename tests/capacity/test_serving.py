"""Prompts that take time from decoding: against a replica walked step by step, and by properties."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.capacity.acceptance import from_speedup
from harness.capacity.plan import plan
from harness.capacity.question import Goal, Question, RowTokens
from harness.capacity.replica import Replica
from harness.capacity.results import Method
from harness.capacity.serving import read_alone, serve
from harness.errors import UserError
from harness.hardware.profile import load_profile
from harness.models import KNOWN_SHAPES
from harness.models.deployment import Deployment
from harness.roofline.ceilings import ceilings_from_profile
from harness.roofline.step import NTP, price_step
from harness.roofline.storage import memory_need

SHAPE, BF16 = KNOWN_SHAPES["llama-3.1-8b"], Deployment(dtype="bfloat16")
REPLICA = Replica(
    shape=SHAPE,
    deployment=BF16,
    ceilings=ceilings_from_profile(load_profile("h100-sxm"), "bfloat16"),
    acceptance=from_speedup(16, 4),
)


def walked(batch: int, workload: RowTokens, method: Method) -> tuple[float, float]:
    """(tokens per second of a user, of the replica) of a full replica, walked step by step until its rates settle.

    Slots write in turn; when an answer ends, the slot's next prompt is read: whole, or a chunk a step, first come first served.
    """
    arm = REPLICA.arm(method, batch)
    per_step, output = float(arm.tokens_per_step), workload.output_tokens
    whole = workload.chunk_tokens is None
    size = workload.read_tokens if workload.chunk_tokens is None else workload.chunk_tokens
    starts = range(0, workload.read_tokens, size)
    chunks = [(min(size, workload.read_tokens - at), workload.shared_tokens + at) for at in starts]
    prices: dict[tuple[int, int, int], float] = {}

    def step_s(rows: int, tokens: int = 0, before: int = 0) -> float:
        key = (rows, tokens, before)
        if key not in prices:
            prices[key] = price_step(
                SHAPE,
                BF16,
                REPLICA.ceilings,
                arm if rows else NTP,
                rows=rows,
                context_tokens=workload.context_tokens,
                prefill_tokens=tokens,
                prefill_context=before,
                prefill_logits=int(tokens > 0),
            ).expected_s
        return prices[key]

    # A slot is waiting or being read (list of chunks left), or decoding (tokens left, since when). Ends are spread evenly.
    decoding = {slot: [output * (slot + 1) / batch, 0.0] for slot in range(batch)}
    waiting: list[tuple[int, list[tuple[int, int]]]] = []
    now, ended, spans, counted_from = 0.0, 0, [], 0.0
    while ended < 12 * batch:
        chunk = waiting[0][1].pop(0) if waiting else (0, 0)
        writing = [] if whole and chunk[0] else list(decoding)
        now += step_s(len(writing), *chunk)
        read = waiting.pop(0)[0] if waiting and not waiting[0][1] else None
        for slot in writing:
            decoding[slot][0] -= per_step
            if decoding[slot][0] <= 1e-9:
                _, since = decoding.pop(slot)
                ended += 1
                waiting.append((slot, list(chunks)))
                if ended > 4 * batch:
                    spans.append(now - since)
                elif ended == 4 * batch:
                    counted_from = now
        if read is not None:
            decoding[read] = [float(output), now]
    return output / float(np.mean(spans)), 8 * batch * output / (now - counted_from)


@pytest.mark.parametrize("method", ["ntp", "sbd"])
@pytest.mark.parametrize(
    ("batch", "workload"),
    [
        (1, RowTokens.of_request(2000, 400)),
        (16, RowTokens.of_request(2000, 400)),
        (16, RowTokens.of_request(8000, 200)),
        (16, RowTokens.of_request(2048, 400, chunk_tokens=512)),
        (16, RowTokens.of_request(8000, 200, shared_tokens=6000)),
        (8, RowTokens.of_request(16_384, 400, chunk_tokens=1024)),  # reading sets the pace
    ],
)
def test_a_full_replica_walked_step_by_step(method: Method, batch: int, workload: RowTokens) -> None:
    """Within 5 %: in the walk answers end at whole steps, and prompts come in clumps."""
    found = serve(REPLICA, REPLICA.arm(method, batch), batch, workload)
    user, whole = walked(batch, workload, method)
    assert found.tokens_per_s.expected == pytest.approx(whole, rel=0.05)
    if workload.chunk_tokens is None or batch == 16:
        assert found.user_tokens_per_s.expected == pytest.approx(user, rel=0.05)


def test_a_goal_is_judged_with_the_prompts() -> None:
    """Decoding alone 50 tokens/s would follow; with 4,000 tokens to read for every 200 written the user sees far less."""
    workload = RowTokens.of_request(4000, 200)
    asked = Question(
        shape=SHAPE,
        deployment=BF16,
        acceptance=from_speedup(16, 3),
        workload=workload,
        goal=Goal(tokens_per_s_per_user=50.0),
        degrees=(1,),
        rung="datasheet",
    )
    decoding_alone = replace(workload, prompt_tokens=None)
    (promised,) = plan(replace(asked, workload=decoding_alone), [load_profile("h100-sxm")]).devices
    (judged,) = plan(asked, [load_profile("h100-sxm")]).devices
    for before, after, method in ((promised.ntp, judged.ntp, "ntp"), (promised.sbd, judged.sbd, "sbd")):
        assert after.batch < before.batch and after.tokens_per_s_per_user.expected >= 50.0 * (1 - 1e-9)
        alike = replace(REPLICA, acceptance=asked.acceptance)
        at_promised = serve(alike, alike.arm(method, before.batch), before.batch, workload)
        assert at_promised.user_tokens_per_s.expected < 0.6 * before.tokens_per_s_per_user.expected


@settings(deadline=None, max_examples=40)
@given(st.sampled_from(["ntp", "sbd"]), st.integers(1, 100), st.integers(1, 20_000), st.integers(1, 2000), st.data())
def test_properties_of_what_is_served(method: Method, batch: int, prompt: int, output: int, data: st.DataObject) -> None:
    """Arrays are their entries; a shared prefix never slows; bands are in order; reading never adds speed."""
    chunk = data.draw(st.none() | st.integers(64, 8192))
    workload = RowTokens.of_request(prompt, output, chunk_tokens=chunk)
    found = serve(REPLICA, REPLICA.arm(method, batch), batch, workload)
    sizes = np.array([batch, batch + 1.0])
    several = serve(REPLICA, REPLICA.arm(method, sizes), sizes, workload)
    assert several.user_tokens_per_s.expected[0] == pytest.approx(found.user_tokens_per_s.expected, rel=1e-9)
    assert several.tokens_per_s.expected[0] == pytest.approx(found.tokens_per_s.expected, rel=1e-9)
    assert several.decode_tokens_per_s.expected[0] == pytest.approx(found.decode_tokens_per_s.expected, rel=1e-9)
    alone = read_alone(REPLICA, workload)
    for band in (found.user_tokens_per_s, found.tokens_per_s, alone, found.first_token_s):
        assert 0 < band.low <= band.expected * (1 + 1e-9) and band.expected <= band.high * (1 + 1e-9)
    assert found.tokens_per_s.expected <= found.decode_tokens_per_s.expected * (1 + 1e-9)
    assert found.first_token_s.expected >= alone.expected * (1 - 1e-9) or chunk is None or chunk < prompt
    shared = read_alone(REPLICA, RowTokens.of_request(prompt, output, chunk_tokens=chunk, shared_tokens=prompt // 2))
    assert shared.expected <= alone.expected * (1 + 1e-9)


def test_a_shared_prefix_is_held_once() -> None:
    """Eight rows of 8,000 tokens, 6,000 of them shared: 131,072 bytes a token for 6,000 + 8 x 2,000."""
    need = memory_need(SHAPE, BF16, tokens=8000, block_size=None, budget_bytes=80e9, shared_tokens=6000)
    assert need.shared_bytes == 6000 * 131_072 and need.kv_bytes_per_row == 2000 * 131_072
    apart = memory_need(SHAPE, BF16, tokens=8000, block_size=None, budget_bytes=80e9)
    assert apart.shared_bytes == 0 and apart.total_bytes(8) - need.total_bytes(8) == 7 * 6000 * 131_072
    assert need.largest_batch > apart.largest_batch


def test_workloads_that_cannot_be() -> None:
    """A prefix longer than the prompt, a chunk of nothing."""
    for wrong in ({"shared_tokens": 101}, {"shared_tokens": -1}, {"chunk_tokens": 0}):
        with pytest.raises(UserError, match="prefix is part of the prompt"):
            RowTokens.of_request(100, 10, **wrong)
    assert RowTokens.of_request(100, 10, shared_tokens=100).read_tokens == 1  # its logits give the first token
