"""Requests at a replica against queueing theory, against a hand-worked day, and against steps taken one by one."""

from __future__ import annotations

import heapq
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.capacity.queueing import Arrivals, QueueEngine, closed_loop, poisson, simulate
from harness.errors import UserError

STEP_S = 0.001


def constant(chunk: int, chunk_context: float, rows: int, context: float) -> float:
    """Steps of the same length; a prompt costs nothing."""
    return STEP_S if rows else 0.0


def by_rows(chunk: int, chunk_context: float, rows: int, context: float) -> float:
    """Steps as long as they have rows: one processor that all rows share."""
    return STEP_S * rows


@pytest.mark.parametrize("servers", [1, 4])
def test_waits_are_those_of_the_recursion(servers: int) -> None:
    """Kiefer and Wolfowitz: a request begins when it has come and the first of the servers is free; to a few steps."""
    lengths = np.random.default_rng(5).geometric(1 / 4000, 20_000) + 1
    arrivals = poisson(0.8 * servers / (4000 * STEP_S), [1] * 20_000, lengths.tolist(), seed=6)
    engine = QueueEngine(step_s=constant, largest_batch=servers, chunk_tokens=1)
    free, waits = [0.0] * servers, []
    for at_s, tokens in zip(arrivals.at_s, arrivals.output_tokens, strict=True):
        begin = max(at_s, heapq.heappop(free))
        waits.append(begin - at_s)
        heapq.heappush(free, begin + (tokens - 1) * STEP_S)
    assert simulate(engine, arrivals).waited_s.mean() == pytest.approx(np.mean(waits), rel=0.02)


@pytest.mark.parametrize("lengths", ["equal", "exponential"])
def test_a_shared_processor_is_insensitive_to_the_spread_of_lengths(lengths: str) -> None:
    """M/G/1-PS: the mean time in the system is service / (1 - utilisation), whatever the lengths' distribution."""
    passes, utilisation, n = 4000, 0.5, 40_000
    drawn = np.random.default_rng(8).geometric(1 / passes, n) if lengths == "exponential" else np.full(n, passes)
    engine = QueueEngine(step_s=by_rows, largest_batch=10_000, chunk_tokens=1)
    served = simulate(engine, poisson(utilisation / (passes * STEP_S), [1] * n, (drawn + 1).tolist(), seed=9)).steady(0.05)
    stayed = (served.finished_s - served.arrived_s).mean()
    assert stayed == pytest.approx(passes * STEP_S / (1 - utilisation), rel=0.02)


def test_two_requests_by_hand() -> None:
    """Prompts of 300 in chunks of 256: 2 steps of 10 ms each. Decode steps of 1 ms; the second prompt slows the first row."""

    def step_s(chunk: int, chunk_context: float, rows: int, context: float) -> float:
        return 0.010 if chunk else 0.001

    engine = QueueEngine(step_s=step_s, largest_batch=2, chunk_tokens=256)
    served = simulate(engine, Arrivals(at_s=[0.0, 0.0225], prompt_tokens=[300, 300], output_tokens=[7, 3]))
    # 0-20 ms: prompt of the first. 20-23: three passes. 23-43: the second prompt, two passes of the first. 44: the last of it.
    assert served.first_token_s.tolist() == pytest.approx([0.020, 0.043])
    assert served.finished_s.tolist() == pytest.approx([0.044, 0.045])
    assert served.time_per_token_s.tolist() == pytest.approx([0.024 / 6, 0.001])
    assert served.busy_s == pytest.approx(0.045)


def test_prompts_share_a_step_by_hand() -> None:
    """Four of 100 tokens at once, 256 a step: two and 56 tokens of the third, then its other 44 and the fourth."""
    seen: list[tuple[int, float, int]] = []

    def step_s(chunk: int, chunk_context: float, rows: int, context: float) -> float:
        seen.append((chunk, chunk_context, rows))
        return 0.010 if chunk else 0.001

    arrivals = Arrivals(at_s=[0.0] * 4, prompt_tokens=[100] * 4, output_tokens=[3] * 4)
    served = simulate(QueueEngine(step_s=step_s, largest_batch=4, chunk_tokens=256), arrivals)
    assert seen[:2] == [(256, 0.0, 0), (144, pytest.approx(44 * 56 / 144), 2)]
    assert served.first_token_s.tolist() == pytest.approx([0.010, 0.010, 0.020, 0.020])
    assert served.finished_s.tolist() == pytest.approx([0.021, 0.021, 0.022, 0.022])


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.floats(0, 0.2), st.integers(0, 60), st.integers(1, 30)), min_size=1, max_size=12),
    st.integers(1, 4),
    st.integers(1, 150),
    st.sampled_from([1.0, 2.0, 3.0]),
    st.none() | st.integers(0, 99),
)
def test_steps_taken_at_once_are_steps_one_by_one(
    requests: list[tuple[float, int, int]], batch: int, chunk: int, per_pass: float, seed: int | None
) -> None:
    """Every step by itself, in a loop that knows nothing of events; the price is linear in the context. ``seed``: of passes."""

    def step_s(tokens: int, chunk_context: float, rows: int, context: float) -> float:
        return 0.001 + 1e-5 * tokens * (1 + chunk_context) + rows * (1e-4 + 1e-6 * context)

    at_s = np.cumsum([gap for gap, _, _ in requests]).tolist()
    outputs = [one for _, _, one in requests]
    passes = [max(1, round((tokens - 1) / per_pass)) for tokens in outputs]
    if seed is not None:
        passes = np.random.default_rng(seed).integers(1, 30, len(outputs)).tolist()
    arrivals = Arrivals(
        at_s=at_s, prompt_tokens=[one for _, one, _ in requests], output_tokens=outputs, passes=None if seed is None else passes
    )
    engine = QueueEngine(step_s=step_s, largest_batch=batch, chunk_tokens=chunk, tokens_per_pass=per_pass)
    served = simulate(engine, arrivals)
    first, finished = one_by_one(arrivals, passes, batch, chunk, per_pass, step_s)
    assert served.first_token_s == pytest.approx(first) and served.finished_s == pytest.approx(finished)


def one_by_one(
    arrivals: Arrivals,
    passes: list[int],
    batch: int,
    chunk: int,
    per_pass: float,
    step_s: Callable[[int, float, int, float], float],
) -> tuple[list[float], list[float]]:
    """The brute force."""
    n, now = len(arrivals.at_s), 0.0
    first, finished = [0.0] * n, [0.0] * n
    queue = list(range(n))
    read = [0] * n
    rows: dict[int, list[float]] = {}
    while queue or rows:
        step: list[tuple[int, int]] = []
        for request in queue:
            budget = chunk - sum(tokens for _, tokens in step)
            if arrivals.at_s[request] > now or len(rows) + len(step) == batch or budget == 0:
                break
            step.append((request, min(budget, arrivals.prompt_tokens[request] - read[request])))
        if not step and not rows:
            now = arrivals.at_s[queue[0]]
            continue
        context = sum(held for _, held in rows.values()) / len(rows) if rows else 0.0
        tokens = sum(tokens for _, tokens in step)
        now += step_s(tokens, sum(part * read[request] for request, part in step) / max(tokens, 1), len(rows), context)
        for request in list(rows):
            rows[request] = [rows[request][0] - 1, rows[request][1] + per_pass]
            if rows[request][0] <= 0:
                finished[request] = now
                del rows[request]
        for request, part in step:
            read[request] += part
            if read[request] == arrivals.prompt_tokens[request]:
                queue.remove(request)
                first[request] = finished[request] = now
                if arrivals.output_tokens[request] > 1:
                    rows[request] = [passes[request], float(arrivals.prompt_tokens[request])]
    return first, finished


def test_closed_users_never_have_two_requests() -> None:
    """Little's law: users = throughput x (time in the system + think time), and each request follows an answer."""
    users, think_s, n = 8, 0.05, 4_000
    engine = QueueEngine(step_s=constant, largest_batch=4, chunk_tokens=1)
    served = simulate(engine, closed_loop(users, think_s, [1] * n, [51] * n, over_s=0.05))
    order = np.sort(served.finished_s)
    throughput = (n // 2) / (order[-users] - order[-users - n // 2])
    stayed = (served.finished_s - served.arrived_s)[n // 4 :].mean()
    assert throughput * (stayed + think_s) == pytest.approx(users, rel=0.01)


def test_impossible_engines_are_refused() -> None:
    """With what was given."""
    with pytest.raises(UserError, match="at least 1"):
        QueueEngine(step_s=constant, largest_batch=0, chunk_tokens=1)
