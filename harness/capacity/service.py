"""Deployments that keep what a service promises: closed form over all devices and splits, then the best few in simulation.

A deployment is a number of equal replicas that share the load evenly. Its cost is that of all its devices, per token delivered.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from math import ceil, inf

import numpy as np

from harness.capacity.question import Question, ServiceGoal
from harness.capacity.queueing import QueueEngine, passes_of
from harness.capacity.replica import PlannedDevice, joined_reasons
from harness.capacity.results import METHODS, DeploymentPlan, Method, ParetoPoint
from harness.capacity.steady import (
    MeanRequest,
    PromptReading,
    Steady,
    StepPrices,
    largest_load,
    mean_request,
    price_steps,
    steady,
)
from harness.capacity.trials import Trial, largest_kept, trial
from harness.roofline.step import DecodeArm

CHUNKS = (2048, 512, 1024)
"""Prompt tokens in a step: vLLM's default for servers ranks the devices; the others are tried on the best of them."""
SIMULATED = 6  # deployments of each method
MOST_ROWS = 4096
Deployments = dict[tuple[str, Method], DeploymentPlan]
"""By hardware and method."""


def chunks_of(question: Question) -> tuple[int, ...]:
    """The chunks in which prompts may be read: the first one ranks, and the best one serves."""
    return CHUNKS if question.workload.chunk_tokens is None else (question.workload.chunk_tokens,)


@dataclass(frozen=True, kw_only=True, eq=False)
class Candidate:
    """One method on replicas of ``degree`` devices of a kind that read prompts in one way; its closed form when asked for."""

    device: PlannedDevice
    goal: ServiceGoal
    method: Method
    degree: int
    largest_batch: int
    reading: PromptReading

    @cached_property
    def arm(self) -> DecodeArm:
        """How its rows decode; none waits for another one."""
        return self.device.replica(self.degree).arm(self.method, 1)

    @cached_property
    def request(self) -> MeanRequest:
        """The mean over the goal's requests."""
        return mean_request(self.goal, self.arm, self.reading)

    @cached_property
    def prices(self) -> StepPrices:
        """Of its steps, up to the rows that can be open at once: their passes leave no more room to read prompts."""
        goal = self.goal
        room = passes_of(max(goal.outputs), self.arm.tokens_per_step) * self.reading.chunk_tokens
        return price_steps(
            self.device.replica(self.degree),
            self.arm,
            largest_batch=min(self.largest_batch, MOST_ROWS, room // max(1, min(goal.prompts)) + 2),
            contexts=(float(min(goal.prompts)), float(goal.longest_tokens)),
            reading=self.reading,
            prompts=goal.prompts,
        )

    @cached_property
    def steady(self) -> Steady:
        """One replica under a steady load."""
        return steady(self.prices, self.request)

    @cached_property
    def load(self) -> float:
        """The largest load of a replica."""
        return largest_load(self.goal, self.steady)

    def deployment(self, replicas: int, largest: float, seen: Trial, simulated: bool) -> DeploymentPlan:
        """``replicas`` that serve ``largest`` at most; ``seen`` at the load of the fullest of them."""
        devices = self.device.question.split(self.degree).devices
        gpus = replicas * devices
        # Users divide unevenly: the mean replica has a little less than the fullest one.
        per_gpu = seen.requests_per_s * self.goal.load / seen.load * self.request.output_tokens / gpus
        planned = replace(
            self.device.deployment(self.method),
            tensor_parallel=self.degree,
            devices=devices,
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
            tokens_per_s_per_gpu=per_gpu,
            simulated=simulated,
        )
        return self.device.costed(planned)

    def estimated(self) -> DeploymentPlan:
        """The fewest replicas in closed form: means for all percentiles, no queue."""
        goal, column, replicas = self.goal, self.steady, _replicas(self.goal, self.load)
        load = _share(goal, replicas)
        rows = float(np.interp(load, column.loads(goal), column.rows))
        read_s, speed, request_s = (
            float(column.at(values, rows)) for values in (column.read_s, column.tokens_per_s, column.request_s)
        )
        mean = Trial(
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
        return self.deployment(replicas, self.load, mean, simulated=False)

    def simulated(self) -> DeploymentPlan | None:
        """The fewest replicas whose percentiles keep the goal in simulation."""
        goal, column = self.goal, self.steady
        engine = QueueEngine(
            step_s=self.prices.as_function(self.reading),
            largest_batch=min(self.largest_batch, int(self.prices.rows[-1])),
            chunk_tokens=self.reading.chunk_tokens,
            tokens_per_pass=self.arm.tokens_per_step,
        )

        @cache
        def at(load: float) -> Trial:
            rows = np.interp(load, column.users(goal.think_s), column.rows)
            return trial(goal, engine, load, float(column.at(column.open_s + column.read_s, rows)))

        largest = largest_kept(lambda load: at(load).keeps(goal), self.load, whole=goal.users is not None)
        if largest < _least(goal):
            return None
        replicas = _replicas(goal, largest)
        while not at(_share(goal, replicas)).keeps(goal):  # a smaller load may fall into another rhythm
            replicas += 1
            if _share(goal, replicas) < max(_least(goal), largest / 2):
                return None
        return self.deployment(replicas, largest, at(_share(goal, replicas)), simulated=True)


def plan_service(goal: ServiceGoal, devices: Sequence[PlannedDevice]) -> tuple[Deployments, tuple[ParetoPoint, ...]]:
    """Every method on every device, the best few simulated, and the Pareto front of steady batches."""
    rows, candidates = Deployments(), defaultdict[Method, list[Candidate]](list)
    for device in devices:
        for method in METHODS:
            fitting, reasons = _candidates(device, goal, method)
            candidates[method] += fitting
            rows[device.profile.name, method] = _refusal(device, method, goal, fitting, reasons)
    for method in METHODS:
        ranked = _ranked([candidate for candidate in candidates[method] if candidate.load >= _least(goal)])
        rows |= {(row.hardware, method): row for row in ranked}
    return rows, tuple(point for method in METHODS for point in pareto_front(candidates[method]))


def _candidates(device: PlannedDevice, goal: ServiceGoal, method: Method) -> tuple[list[Candidate], list[str]]:
    """One per split that fits, with the chunks that rank, and why the others do not."""
    fitting, reasons = [], []
    reading = PromptReading(chunk_tokens=chunks_of(device.question)[0])
    for degree, need, refused in device.splits(method, goal.longest_tokens):
        if refused is not None:
            reasons.append(refused)
            continue
        rows = need.largest_batch
        fitting.append(Candidate(device=device, goal=goal, method=method, degree=degree, largest_batch=rows, reading=reading))
    return fitting, reasons


def _least(goal: ServiceGoal) -> float:
    """Of a replica that serves anybody at all: one user, or a millionth of the load."""
    return 1.0 if goal.users is not None else goal.load * 1e-6


def _replicas(goal: ServiceGoal, largest: float) -> int:
    whole = int(largest) if goal.users is not None else largest
    return max(1, ceil(goal.load / whole * (1 - 1e-9)))


def _share(goal: ServiceGoal, replicas: int) -> float:
    """Load of the fullest replica."""
    return float(ceil(goal.load / replicas)) if goal.users is not None else goal.load / replicas


def _ranked(candidates: Iterable[Candidate]) -> Iterator[DeploymentPlan]:
    """Of every device its best split; the best few of them simulated, then the others as estimated."""
    best: dict[str, tuple[DeploymentPlan, Candidate]] = {}
    for candidate in candidates:
        estimate = candidate.estimated()
        known = best.get(estimate.hardware)
        if known is None or estimate.order < known[0].order:
            best[estimate.hardware] = estimate, candidate
    tried = 0
    for estimate, candidate in sorted(best.values(), key=lambda pair: pair[0].order):
        if tried == SIMULATED:
            yield estimate
            continue
        sizes = chunks_of(candidate.device.question)[1:]
        others = (replace(candidate, reading=PromptReading(chunk_tokens=size)) for size in sizes)
        simulated = max((candidate, *others), key=lambda choice: choice.load).simulated()
        tried += simulated is not None
        yield simulated or candidate.device.deployment(
            candidate.method, "the mean of a steady load keeps the goal, the simulated percentiles do not at any load tried"
        )


def _refusal(
    device: PlannedDevice, method: Method, goal: ServiceGoal, fitting: Sequence[Candidate], reasons: Sequence[str]
) -> DeploymentPlan:
    """Why no split keeps the goal, if none does: the one that misses it least, alone on its replica."""
    if not fitting:
        return device.deployment(method, joined_reasons(reasons))
    missed = []
    for candidate in fitting:
        # The first entry: a replica that mostly waits.
        speed, read_s = float(candidate.steady.tokens_per_s[0]), float(candidate.steady.read_s[0])
        missed.append((max((goal.tokens_per_s or 0.0) / speed, read_s / goal.ttft_s), candidate.degree, speed, read_s))
    misses, degree, speed, read_s = min(missed)
    reason = f"a lone request has at most {speed:.3g} tokens/s, its first after {read_s:.3g} s ({device.words(degree)})"
    return device.deployment(method, reason, misses)


def pareto_front(candidates: Iterable[Candidate]) -> Iterator[ParetoPoint]:
    """Steady batches of one method that no other beats in tokens/s per user and tokens/s per GPU, fastest user first."""
    points = []
    for candidate in candidates:
        column, devices = candidate.steady, candidate.device.question.split(candidate.degree).devices
        for batch in _batches(int(column.rows[-1])):
            speed, request_s = (float(column.at(line, batch)) for line in (column.tokens_per_s, column.request_s))
            points.append(
                ParetoPoint(
                    method=candidate.method,
                    hardware=candidate.device.profile.name,
                    tensor_parallel=candidate.degree,
                    batch=batch,
                    tokens_per_s_per_user=speed,
                    tokens_per_s_per_gpu=candidate.request.output_tokens / request_s / devices,
                )
            )
    best = -inf
    for point in sorted(points, key=lambda point: (-point.tokens_per_s_per_user, -point.tokens_per_s_per_gpu)):
        if point.tokens_per_s_per_gpu > best:
            best = point.tokens_per_s_per_gpu
            yield point


def _batches(last: int) -> list[int]:
    """1, 2, 3, 4, 6, 8, 12, 16 and so on to the last one."""
    powers = [1 << power for power in range(last.bit_length())]
    return sorted({last, *powers, *(power * 3 // 2 for power in powers if power * 3 // 2 <= last)})
