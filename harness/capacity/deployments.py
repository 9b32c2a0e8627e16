"""The deployments that keep a goal: closed form over all devices, splits and methods, then the best few in simulation.

A deployment is a number of equal replicas that share the load evenly. Its cost is that of all its devices, per token delivered.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import ceil, inf

import numpy as np

from harness.capacity.figures import J_PER_KWH, MILLION, S_PER_HOUR
from harness.capacity.goal_wording import assumptions
from harness.capacity.goals import CHUNKS, METHODS, DeploymentPlan, GoalPlan, ParetoPoint, Refused, ServiceGoal
from harness.capacity.plan import PlannedDevice, Question, device_of, sourced, too_small
from harness.capacity.queueing import Engine
from harness.capacity.results import Method
from harness.capacity.steady import MeanRequest, Steady, largest_load, mean_request, steady
from harness.capacity.steps import Reading, StepPrices, Way, price_steps
from harness.capacity.trials import Trial, largest_kept, trial
from harness.errors import UserError
from harness.hardware.profile import HardwareProfile
from harness.roofline.step import NTP

SIMULATED = 6  # deployments of each method
MOST_ROWS = 4096


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Candidate:
    """One method on replicas of ``degree`` devices of a kind, with the largest load of a replica in closed form."""

    device: PlannedDevice
    goal: ServiceGoal
    way: Way
    degree: int
    largest_batch: int
    reading: Reading
    prices: StepPrices
    request: MeanRequest
    steady: Steady
    load: float

    @property
    def method(self) -> Method:
        """NTP or SBD."""
        return self.way.method

    def planned(self, replicas: int, largest: float, seen: Trial, simulated: bool) -> DeploymentPlan:
        """``replicas`` that serve ``largest`` at most; ``seen`` at the load of the fullest of them."""
        devices = self.device.question.split(self.degree).devices
        gpus = replicas * devices
        # Users divide unevenly: the mean replica has a little less than the fullest one.
        tokens_per_s = seen.requests_per_s * self.goal.load / seen.load * self.request.output_tokens
        profile = self.device.profile
        price, power = profile.price_usd_per_hour.value, profile.power_w.value
        return DeploymentPlan(
            hardware=profile.name,
            rung=self.device.ceilings.rung,
            method=self.method,
            tensor_parallel=self.degree,
            chunk_tokens=self.reading.chunk_tokens,
            replicas=replicas,
            gpus=gpus,
            load_per_replica=self.goal.load / replicas,
            largest_load=largest,
            headroom=max(0.0, largest * replicas / self.goal.load - 1),
            largest_batch=self.largest_batch,
            peak_batch=seen.peak_batch,
            mean_batch=seen.mean_batch,
            occupancy=seen.mean_batch / self.largest_batch,
            busy=seen.busy if simulated else None,
            ttft_p50_s=seen.ttft_p50_s,
            ttft_s=seen.ttft_s,
            tokens_per_s_p50=seen.tokens_per_s_p50,
            tokens_per_s=seen.tokens_per_s,
            tokens_per_s_per_gpu=tokens_per_s / gpus,
            usd_per_hour=None if price is None else gpus * price,
            usd_per_million_tokens=None if price is None else gpus * price * MILLION / S_PER_HOUR / tokens_per_s,
            kwh_per_million_tokens=None if power is None else gpus * power * MILLION / J_PER_KWH / tokens_per_s,
            simulated=simulated,
            arithmetic=self.device.ceilings.arithmetic(self.device.question.deployment),
        )


def ways_of(question: Question) -> tuple[Way, ...]:
    """NTP, and SBD with the acceptance of a row."""
    return Way(method="ntp", arm=NTP), Way(method="sbd", arm=question.acceptance.arm_at(1))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Search:
    """A goal, and the chunks in which prompts may be read: the first one ranks, and the best one serves."""

    goal: ServiceGoal
    readings: tuple[Reading, ...]
    requests: dict[tuple[Method, Reading], MeanRequest]

    def candidate(self, device: PlannedDevice, way: Way, degree: int, largest_batch: int, reading: Reading) -> Candidate:
        goal, key = self.goal, (way.method, reading)
        if key not in self.requests:
            self.requests[key] = mean_request(goal, way, reading)
        prices = price_steps(
            device.replica(degree),
            way,
            largest_batch=min(largest_batch, _most_rows(goal, way, reading)),
            contexts=(float(min(goal.prompts)), float(goal.longest_tokens)),
            reading=reading,
            prompts=goal.prompts,
        )
        column = steady(prices, self.requests[key])
        return Candidate(
            device=device,
            goal=goal,
            way=way,
            degree=degree,
            largest_batch=largest_batch,
            reading=reading,
            prices=prices,
            request=self.requests[key],
            steady=column,
            load=largest_load(goal, column),
        )

    def candidates(self, device: PlannedDevice, way: Way) -> tuple[list[Candidate], list[str]]:
        """One per split that fits, and why the others do not."""
        found, reasons = [], []
        for degree in device.question.possible_degrees:
            need = device.need(way.method, degree, self.goal.longest_tokens)
            refused = device.no_link(degree) or (too_small(need, 1, device.words(degree)) if need.largest_batch < 1 else None)
            if refused is None:
                found.append(self.candidate(device, way, degree, need.largest_batch, self.readings[0]))
            else:
                reasons.append(refused)
        return found, reasons

    def best_chunks(self, one: Candidate) -> Candidate:
        """The same deployment with the chunks that serve most."""
        others = (self.candidate(one.device, one.way, one.degree, one.largest_batch, other) for other in self.readings[1:])
        return max((one, *others), key=lambda candidate: candidate.load)


def plan_goals(
    question: Question, goal: ServiceGoal, profiles: Sequence[HardwareProfile], chunk_tokens: int | None = None
) -> GoalPlan:
    """The deployments on every one of the profiles that keep the goal. ``chunk_tokens`` None: the best of CHUNKS for each.

    Raises:
        UserError: chunks below one token, or an acceptance of lockstep batches.
    """
    if chunk_tokens is not None and chunk_tokens < 1:
        raise UserError(f"chunks of {chunk_tokens} tokens were given; a chunk has at least 1")
    if question.acceptance.batching == "lockstep":
        raise UserError(
            "a goal is planned for rows that do not wait for one another, as servers run them; leave out --batching lockstep "
            "and --passes-at"
        )
    sizes = CHUNKS if chunk_tokens is None else (chunk_tokens,)
    search = _Search(goal=goal, readings=tuple(Reading(chunk_tokens=size) for size in sizes), requests={})
    refused, candidates = list[Refused](), list[Candidate]()
    for profile in profiles:
        device = device_of(question, profile)
        if isinstance(device, str):
            refused.append(Refused(hardware=profile.name, method=None, reason=device))
            continue
        for way in ways_of(question):
            found, reasons = search.candidates(device, way)
            candidates += found
            if not any(one.load >= _least(goal) for one in found):
                refused.append(_refusal(device, way, goal, found, reasons))
    ntp, sbd = (_ranked(search, [one for one in candidates if one.method == method], refused) for method in METHODS)
    plan = GoalPlan(
        model=question.shape.name,
        params=question.shape.params,
        deployment=question.deployment,
        acceptance=question.acceptance,
        goal=goal,
        memory_reserve=question.memory_reserve,
        ntp=ntp,
        sbd=sbd,
        pareto=tuple(pareto_front(candidates)),
        refused=tuple(refused),
        prices={profile.name: sourced(profile.price_usd_per_hour) for profile in profiles},
    )
    return replace(plan, notes=tuple(assumptions(question, plan, sizes)))


def _most_rows(goal: ServiceGoal, way: Way, reading: Reading) -> int:
    """Rows that can be open at once: while a row decodes, no more prompts are read than its passes have room for."""
    room = way.passes_for(max(goal.outputs)) * reading.chunk_tokens
    return min(MOST_ROWS, room // max(1, min(goal.prompts)) + 2)


def _least(goal: ServiceGoal) -> float:
    """Of a replica that serves anybody at all: one user, or a millionth of the load."""
    return 1.0 if goal.users is not None else goal.load * 1e-6


def _replicas(goal: ServiceGoal, largest: float) -> int:
    whole = int(largest) if goal.users is not None else largest
    return max(1, ceil(goal.load / whole * (1 - 1e-9)))


def _share(goal: ServiceGoal, replicas: int) -> float:
    """Load of the fullest replica."""
    return float(ceil(goal.load / replicas)) if goal.users is not None else goal.load / replicas


def _order(plan: DeploymentPlan) -> tuple[bool, float, int, float, str]:
    """The cheapest first; those without a price behind, by GPUs and energy."""
    usd, kwh = plan.usd_per_million_tokens, plan.kwh_per_million_tokens
    return usd is None, usd or 0.0, plan.gpus, inf if kwh is None else kwh, plan.hardware


def _ranked(search: _Search, candidates: Iterable[Candidate], refused: list[Refused]) -> tuple[DeploymentPlan, ...]:
    """Of every device its best split; the best few of them simulated, then the others as estimated."""
    best: dict[str, tuple[DeploymentPlan, Candidate]] = {}
    for one in candidates:
        if one.load < _least(one.goal):
            continue
        replicas = _replicas(one.goal, one.load)
        estimate = one.planned(replicas, one.load, _estimated(one, replicas), simulated=False)
        known = best.get(estimate.hardware)
        if known is None or _order(estimate) < _order(known[0]):
            best[estimate.hardware] = estimate, one
    waiting = sorted(best.values(), key=lambda pair: _order(pair[0]))
    done: list[DeploymentPlan] = []
    while waiting and len(done) < SIMULATED:
        estimate, one = waiting.pop(0)
        found = _simulated(search.best_chunks(one))
        if found is None:
            refused.append(
                Refused(
                    hardware=estimate.hardware,
                    method=one.method,
                    reason=(
                        "the mean of a steady load keeps the goal, the simulated percentiles do not at any load that was tried"
                    ),
                )
            )
        else:
            done.append(found)
    return (*sorted(done, key=_order), *(estimate for estimate, _ in waiting))


def _estimated(one: Candidate, replicas: int) -> Trial:
    """A replica at its share of the load in closed form: means for all percentiles, no queue."""
    goal, column = one.goal, one.steady
    load = _share(goal, replicas)
    loads = column.users(goal.think_s) if goal.users is not None else 1 / column.request_s
    rows = float(np.interp(load, loads, column.rows))
    read_s, speed, request_s = (
        float(np.interp(rows, column.rows, values)) for values in (column.read_s, column.tokens_per_s, column.request_s)
    )
    return Trial(
        load=load,
        ttft_p50_s=read_s,
        ttft_s=read_s,
        tokens_per_s_p50=speed,
        tokens_per_s=speed,
        requests_per_s=1 / request_s if goal.users is not None else load,
        mean_batch=rows,
        peak_batch=ceil(rows),
        busy=1.0,
    )


def _simulated(one: Candidate) -> DeploymentPlan | None:
    """The deployment with the fewest replicas whose percentiles keep the goal in simulation."""
    goal = one.goal
    engine = Engine(
        step_s=one.prices.as_function(one.reading),
        largest_batch=min(one.largest_batch, int(one.prices.rows[-1])),
        chunk_tokens=one.reading.chunk_tokens,
        tokens_per_pass=one.way.tokens_per_pass,
    )
    trials: dict[float, Trial] = {}

    def at(load: float) -> Trial:
        if load not in trials:
            rows = np.interp(load, one.steady.users(goal.think_s), one.steady.rows)
            once_s = float(np.interp(rows, one.steady.rows, one.steady.open_s + one.steady.read_s))
            trials[load] = trial(goal, engine, load, once_s)
        return trials[load]

    largest = largest_kept(lambda load: at(load).keeps(goal), one.load, whole=goal.users is not None)
    if largest < _least(goal):
        return None
    replicas = _replicas(goal, largest)
    while not at(_share(goal, replicas)).keeps(goal):  # a smaller load may fall into another rhythm
        replicas += 1
        if _share(goal, replicas) < max(_least(goal), largest / 2):
            return None
    return one.planned(replicas, largest, at(_share(goal, replicas)), simulated=True)


def _refusal(device: PlannedDevice, way: Way, goal: ServiceGoal, found: Sequence[Candidate], reasons: Sequence[str]) -> Refused:
    """Why no split keeps the goal: the one that misses it least, alone on its replica."""
    hardware = device.profile.name
    if not found:
        return Refused(hardware=hardware, method=way.method, reason="; ".join(dict.fromkeys((reasons[0], reasons[-1]))))
    missed = []
    for one in found:
        lone = 0  # the first entry: a replica that mostly waits
        speed, read_s = float(one.steady.tokens_per_s[lone]), float(one.steady.read_s[lone])
        missed.append((max((goal.tokens_per_s or 0.0) / speed, read_s / goal.ttft_s), one.degree, speed, read_s))
    misses, degree, speed, read_s = min(missed)
    return Refused(
        hardware=hardware,
        method=way.method,
        misses=misses,
        reason=f"a lone request has at most {speed:.3g} tokens/s, its first after {read_s:.3g} s ({device.words(degree)})",
    )


def pareto_front(candidates: Iterable[Candidate]) -> Iterator[ParetoPoint]:
    """Steady batches that no other of the same method beats in tokens/s per user and tokens/s per GPU, fastest user first."""
    points: dict[Method, list[ParetoPoint]] = {}
    for one in candidates:
        column, devices = one.steady, one.device.question.split(one.degree).devices
        for batch in _batches(int(column.rows[-1])):
            speed, request_s = (float(np.interp(batch, column.rows, line)) for line in (column.tokens_per_s, column.request_s))
            point = ParetoPoint(
                method=one.method,
                hardware=one.device.profile.name,
                tensor_parallel=one.degree,
                batch=batch,
                tokens_per_s_per_user=speed,
                tokens_per_s_per_gpu=one.request.output_tokens / request_s / devices,
            )
            points.setdefault(one.method, []).append(point)
    for found in points.values():
        best = -inf
        for point in sorted(found, key=lambda one: (-one.tokens_per_s_per_user, -one.tokens_per_s_per_gpu)):
            if point.tokens_per_s_per_gpu > best:
                best = point.tokens_per_s_per_gpu
                yield point


def _batches(last: int) -> list[int]:
    """1, 2, 3, 4, 6, 8, 12, 16 and so on to the last one."""
    steps: set[int] = {last}
    power = 1
    while power <= last:
        steps |= {batch for batch in (power, power * 3 // 2) if 1 <= batch <= last}
        power *= 2
    return sorted(steps)
