"""Goals of a service: closed form beside simulation, the search beside brute force, and what a harder goal must do."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.capacity.acceptance import from_speedup
from harness.capacity.plan import plan
from harness.capacity.question import Question, RowTokens, ServiceGoal, Trace
from harness.capacity.queueing import QueueEngine, ServedRequests, closed_loop, simulate
from harness.capacity.replica import PlannedDevice, device_of
from harness.capacity.results import CapacityPlan, DeploymentPlan
from harness.capacity.service import pareto_front, ways_of
from harness.capacity.steady import largest_load, mean_request, steady
from harness.capacity.steps import PromptReading, price_steps
from harness.capacity.trials import largest_kept
from harness.capacity.wording import answer
from harness.errors import UserError
from harness.hardware.profile import load_profile
from harness.models import KNOWN_SHAPES
from harness.models.deployment import Deployment
from harness.roofline.step import price_step

QUESTION = Question(
    shape=KNOWN_SHAPES["llama-3.1-8b"],
    deployment=Deployment(dtype="bfloat16"),
    acceptance=from_speedup(16, 3),
    workload=RowTokens(context_tokens=2150, longest_tokens=2300),
    degrees=(1, 2),
)
GOAL = ServiceGoal(users=500, prompt_tokens=2000, output_tokens=300, tokens_per_s=30, ttft_s=1.0)
NAMES = ("h100-sxm", "l40s", "rtx-4090")
READING = PromptReading(chunk_tokens=512)
WAYS = {way.method: way for way in ways_of(QUESTION)}


def kept(goal: ServiceGoal, *names: str, chunk_tokens: int | None = None, degrees: tuple[int, ...] = (1, 2)) -> CapacityPlan:
    """The plan for a goal on these devices."""
    workload = replace(QUESTION.workload, chunk_tokens=chunk_tokens)
    return plan(replace(QUESTION, service=goal, workload=workload, degrees=degrees), [load_profile(name) for name in names])


@cache
def h100() -> PlannedDevice:
    """The device with its ceilings."""
    device = device_of(QUESTION, load_profile("h100-sxm"))
    assert isinstance(device, PlannedDevice)
    return device


@cache
def prices(method: str, batch: int = 150) -> Any:
    """Steps of one H100."""
    return price_steps(
        h100().replica(1), WAYS[method], largest_batch=batch, contexts=(2000.0, 2300.0), reading=READING, prompts=[2000]
    )


def priced_s(method: str, tokens: int, offset: float, rows: int, context: float) -> float:
    """That very step of rows beside prompt tokens, by itself."""
    replica = h100().replica(1)
    prompt = {"prefill_tokens": tokens, "prefill_context": offset, "prefill_logits": int(tokens > 0)}
    where = (replica.shape, replica.deployment, replica.ceilings, WAYS[method].arm)
    return price_step(*where, rows=rows, context_tokens=context, **prompt).expected_s


@pytest.mark.parametrize("method", ["ntp", "sbd"])
@settings(max_examples=40, deadline=None)
@given(rows=st.integers(0, 150), context=st.floats(2000, 2300), chunk=st.integers(0, 3))
def test_the_table_is_the_step_model(method: str, rows: int, context: float, chunk: int) -> None:
    """Any entry beside the price of that very step; the last chunk of 464 tokens is a multiple of 16."""
    step_s = prices(method).as_function(READING)
    tokens, offset = (464, 1536.0) if chunk == 3 else (512, 512.0 * chunk)
    assert step_s(tokens, offset, rows, context) == pytest.approx(priced_s(method, tokens, offset, rows, context), rel=0.02)
    if rows:
        assert step_s(0, 0.0, rows, context) == pytest.approx(priced_s(method, 0, 0.0, rows, context), rel=0.01)


@pytest.mark.parametrize("method", ["ntp", "sbd"])
@settings(max_examples=60, deadline=None)
@given(rows=st.integers(0, 150), tokens=st.integers(1, 512), offset=st.floats(0, 1900))
def test_a_step_of_any_prompt_tokens_is_near_its_price(method: str, rows: int, tokens: int, offset: float) -> None:
    """As prompts share steps, any number of tokens occurs; linear between powers of two, over the bend where matrices fill."""
    expected_s = priced_s(method, READING.priced(tokens), offset, rows, 2000.0)
    assert prices(method).as_function(READING)(tokens, offset, rows, 2000.0) == pytest.approx(expected_s, rel=0.06)


@pytest.mark.parametrize("method", ["ntp", "sbd"])
@settings(max_examples=20, deadline=None)
@given(users=st.integers(2, 40))
def test_short_prompts_share_steps_in_the_closed_form_too(method: str, users: int) -> None:
    """Prompts of 100 and answers of 20 tokens: with one prompt a step no more than 19 rows would ever be open."""
    goal, way = replace(GOAL, prompt_tokens=100, output_tokens=20), WAYS[method]
    table = price_steps(
        h100().replica(1), way, largest_batch=60, contexts=(100.0, 120.0), reading=READING, prompts=goal.prompts
    )
    column = steady(table, mean_request(goal, way, READING))
    engine = QueueEngine(
        step_s=table.as_function(READING), largest_batch=60, chunk_tokens=512, tokens_per_pass=way.tokens_per_pass
    )
    served = simulate(engine, closed_loop(users, 0.05, [100] * 900, [20] * 900, over_s=0.2, seed=2)).steady(0.3, 0.2)
    stayed_s = (served.finished_s - served.arrived_s).mean() + 0.05
    expected = 1 / np.interp(users, column.users(0.05), column.request_s)
    assert users / stayed_s == pytest.approx(expected, rel=0.12)


@pytest.mark.parametrize(("method", "users"), [("ntp", 4), ("ntp", 30), ("ntp", 70), ("sbd", 4), ("sbd", 12), ("sbd", 24)])
def test_the_closed_form_is_the_mean_of_the_simulation(method: str, users: int) -> None:
    """Speed of a user and requests per second, for users who never think; few rows end together, which costs some per cent."""
    way = WAYS[method]
    column = steady(prices(method), mean_request(GOAL, way, READING))
    engine = QueueEngine(
        step_s=prices(method).as_function(READING), largest_batch=150, chunk_tokens=512, tokens_per_pass=way.tokens_per_pass
    )
    served: ServedRequests = simulate(engine, closed_loop(users, 0.0, [2000] * 600, [300] * 600, over_s=3.0)).steady(0.3, 0.2)
    rows = np.interp(users, column.users(0.0), column.rows)
    speed = float(np.interp(rows, column.rows, column.tokens_per_s))
    assert 1 / np.median(served.time_per_token_s) == pytest.approx(speed, rel=0.04)
    stayed_s = (served.finished_s - served.arrived_s).mean()
    assert users / stayed_s == pytest.approx(1 / np.interp(rows, column.rows, column.request_s), rel=0.04)


@settings(max_examples=200, deadline=None)
@given(limit=st.floats(1, 5000), off=st.floats(0.6, 1.6), whole=st.booleans())
def test_the_search_finds_a_limit(limit: float, off: float, whole: bool) -> None:
    """Whatever the first guess: never beyond the limit, and at most 10 % below it, or the whole number below it."""
    found = largest_kept(lambda load: load <= limit, limit * off, whole)
    assert found <= limit
    assert found >= (min(np.floor(limit), np.floor(0.9 * limit)) if whole else 0.9 * limit)


@cache
def gpus(users: int, ttft_s: float, speed: float) -> tuple[int, int]:
    """NTP's and SBD's GPUs on one H100 a replica; 0 where no deployment keeps the goal."""
    goal = replace(GOAL, users=users, ttft_s=ttft_s, tokens_per_s=speed)
    found = kept(goal, "h100-sxm", chunk_tokens=512, degrees=(1,))
    ntp, sbd = (ranked[0].gpus if ranked else 0 for ranked in (found.deployments("ntp"), found.deployments("sbd")))
    return ntp, sbd


@settings(max_examples=8, deadline=None)
@given(users=st.sampled_from([1, 60, 500, 2000]), ttft_s=st.sampled_from([0.1, 0.5, 2.0]), speed=st.sampled_from([10.0, 40.0]))
def test_more_of_anything_never_needs_fewer_gpus(users: int, ttft_s: float, speed: float) -> None:
    """More users, an earlier first token, a faster answer: as many GPUs or more, or no deployment at all."""
    base = gpus(users, ttft_s, speed)
    for harder in ((users * 2, ttft_s, speed), (users, ttft_s / 2, speed), (users, ttft_s, speed * 1.5)):
        for needed, before in zip(gpus(*harder), base, strict=True):
            assert needed == 0 or needed >= before


@cache
def planned() -> CapacityPlan:
    """On three devices."""
    return kept(GOAL, *NAMES)


def test_every_simulated_deployment_keeps_the_goal_at_its_cost() -> None:
    """Percentiles within the goal, users shared out, dollars from GPUs and tokens delivered; the cheapest first."""
    for ranked in map(planned().deployments, ("ntp", "sbd")):
        seen = [one for one in ranked if one.simulated]
        assert seen and [one.usd_per_million_tokens for one in seen] == sorted(one.usd_per_million_tokens for one in seen)
        for one in seen:
            assert one.tokens_per_s >= 30 and one.ttft_s <= 1.0 and one.headroom >= 0
            assert one.replicas * one.load_per_replica == pytest.approx(500) and one.load_per_replica <= one.largest_load
            assert one.peak_batch <= one.largest_batch and one.gpus == one.replicas * one.tensor_parallel
            usd = load_profile(one.hardware).price_usd_per_hour.value
            assert one.usd_per_million_tokens == pytest.approx(usd / 3600 / one.tokens_per_s_per_gpu * 1e6)


def test_the_front_is_what_nothing_beats() -> None:
    """Every pair of its points of one method: the faster one for a user is the slower one per GPU."""
    found = planned().pareto
    assert {point.method for point in found} == {"ntp", "sbd"} and list(pareto_front([])) == []
    for one in found:
        for other in found:
            if one.method == other.method and one != other:
                faster = one.tokens_per_s_per_user > other.tokens_per_s_per_user
                assert faster == (one.tokens_per_s_per_gpu < other.tokens_per_s_per_gpu)


def priced(row: DeploymentPlan | None, usd: float | None) -> DeploymentPlan:
    """The same at another price."""
    return replace(row, usd_per_million_tokens=usd)


@settings(max_examples=100, deadline=None)
@given(ntp=st.none() | st.floats(0.01, 100), sbd=st.none() | st.floats(0.01, 100))
def test_the_answer_says_pays_only_where_sbd_costs_less(ntp: float | None, sbd: float | None) -> None:
    """At any pair of prices, known or not; less by more than the 5 % that the search leaves open."""
    first = planned().devices[0]
    told = answer(replace(planned(), devices=(replace(first, ntp=priced(first.ntp, ntp), sbd=priced(first.sbd, sbd)),)))
    assert ("pays" in told) == (ntp is not None and sbd is not None and sbd * 1.05 < ntp)
    assert (" as much as NTP" in told) == (ntp is not None and sbd is not None and sbd > ntp * 1.05)


def test_a_trace_of_equal_requests_is_a_rate() -> None:
    """Poisson arrivals given as a trace plan like the same rate, within what two draws differ by."""
    at_s = np.cumsum(np.random.default_rng(3).exponential(1 / 20, 4000)).tolist()
    trace = Trace(at_s=tuple(at_s), prompt_tokens=(2000,) * 4000, output_tokens=(300,) * 4000)
    goals = (
        ServiceGoal(trace=trace, tokens_per_s=30, ttft_s=1.0),
        ServiceGoal(requests_per_s=20, prompt_tokens=2000, output_tokens=300, tokens_per_s=30, ttft_s=1.0),
    )
    by_trace, by_rate = (kept(goal, "h100-sxm", chunk_tokens=2048, degrees=(1,)).deployments("ntp")[0] for goal in goals)
    assert by_trace.largest_load == pytest.approx(by_rate.largest_load, rel=0.15)


def test_the_closed_form_of_an_open_load_is_near_the_simulated_one() -> None:
    """Its largest rate is the first guess of the search: within 40 % either way."""
    goal = ServiceGoal(requests_per_s=20, prompt_tokens=2000, output_tokens=300, tokens_per_s=30, ttft_s=1.0)
    guess = largest_load(goal, steady(prices("ntp"), mean_request(goal, WAYS["ntp"], READING)))
    found = kept(goal, "h100-sxm", chunk_tokens=512, degrees=(1,)).deployments("ntp")[0]
    assert 0.6 < guess / found.largest_load < 1.4


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"ttft_s": 0.0}, "must be more than 0"),
        ({"think_s": -1.0}, "at least 0"),
        ({"users": None, "requests_per_s": 2.0, "think_s": 1.0}, "goes with --users"),
        ({"output_tokens": 0}, "both at least 1"),
    ],
)
def test_goals_that_cannot_be(changes: dict[str, Any], words: str) -> None:
    """With what is allowed."""
    with pytest.raises(UserError, match=words):
        replace(GOAL, **changes)
    with pytest.raises(UserError, match="leave out --batching lockstep"):
        replace(QUESTION, service=GOAL, acceptance=replace(QUESTION.acceptance, batching="lockstep"))
