"""The planner: where a model fits, how fast NTP and SBD decode there, what that costs, and at which batches SBD pays.

It computes from a shape, profiles and an acceptance. Every figure is a prediction on the rung of its device. Here replicas are
full; ``harness.capacity.service`` has users who wait in a queue.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from harness.capacity.question import Goal, Question, RowTokens
from harness.capacity.replica import PlannedDevice, Replica, break_even, device_of, joined_reasons, thinned
from harness.capacity.results import Band, BreakEven, CapacityPlan, DeploymentPlan, DevicePlan, Method, ParetoPoint, expected
from harness.capacity.service import Deployments, plan_service
from harness.capacity.serving import read_alone, serve
from harness.capacity.wording import notes_of
from harness.hardware.profile import HardwareProfile
from harness.roofline.anchored import reached_in_words
from harness.roofline.storage import MemoryNeed

_SAME = 1e-9  # relative; smaller differences of throughput are rounding, and an exact multiple needs no further replica


def plan(question: Question, profiles: Sequence[HardwareProfile]) -> CapacityPlan:
    """The plan for every profile, in their order; a profile that lacks a figure gets the reason instead."""
    devices = [device_of(question, profile) for profile in profiles]
    rows: Deployments = {}
    front: tuple[ParetoPoint, ...] = ()
    if question.service is not None:
        rows, front = plan_service(question.service, [device for device in devices if isinstance(device, PlannedDevice)])
    answer = CapacityPlan(
        question=question,
        devices=tuple(_device_plan(profile, device, rows) for profile, device in zip(profiles, devices, strict=True)),
        pareto=front,
    )
    return replace(answer, notes=tuple(notes_of(answer)))


def _device_plan(profile: HardwareProfile, device: PlannedDevice | str, rows: Deployments) -> DevicePlan:
    """Either method beside the other at every context that was asked for; of a service, as its queue had them."""
    planned = DevicePlan(hardware=profile.name, price_usd_per_hour=profile.price_usd_per_hour, power_w=profile.power_w)
    if isinstance(device, str):
        return replace(planned, reason=device)
    question = device.question
    planned = replace(planned, rung=device.ceilings.rung, arithmetic=device.ceilings.arithmetic(question.deployment))
    if question.service is not None:
        return replace(planned, ntp=rows[profile.name, "ntp"], sbd=rows[profile.name, "sbd"])
    sbd, contexts = _deployment(device, "sbd"), sorted({question.workload.context_tokens, *question.contexts})
    return replace(
        planned,
        reached=reached_in_words(profile, sbd.tensor_parallel or 1),
        ntp=_deployment(device, "ntp"),
        sbd=sbd,
        wall_speedup=_speedup(device, sbd),
        break_even=tuple(_break_even(device, context, sbd) for context in contexts),
    )


def _deployment(device: PlannedDevice, method: Method) -> DeploymentPlan:
    """The smallest split that fits; for a speed goal, of the splits that reach it the one with most tokens/s per GPU.

    The smallest split that reaches a speed serves few rows at a time, so it is often the most expensive.
    """
    question, reasons, possible = device.question, list[str](), list[DeploymentPlan]()
    for degree, need, refused in device.splits(method, question.workload.longest_tokens, question.goal.batch or 1):
        batch = refused or question.goal.batch or _best_batch(device, method, degree, need)
        if isinstance(batch, str):
            reasons.append(batch)
            continue
        possible.append(_at_batch(device, method, degree, batch, need))
        if question.goal.tokens_per_s_per_user is None:
            break
    if not possible:
        return device.deployment(method, joined_reasons(reasons))
    return max(possible, key=lambda row: expected(row.tokens_per_s_per_gpu) or 0.0)


def _at_batch(device: PlannedDevice, method: Method, degree: int, batch: int, need: MemoryNeed) -> DeploymentPlan:
    """Every figure at ``batch`` rows per replica."""
    question, replica = device.question, device.replica(degree)
    workload, devices = question.workload, replica.deployment.devices
    served, alone = serve(replica, replica.arm(method, batch), batch, workload), read_alone(replica, workload)
    planned = replace(
        device.deployment(method),
        tensor_parallel=degree,
        devices=devices,
        batch=batch,
        memory=need,
        passes_per_block=replica.acceptance.passes_at(batch) if method == "sbd" else None,
        tokens_per_s_per_user=served.user_tokens_per_s,
        decode_tokens_per_s_per_user=served.decode_tokens_per_s.scaled(1 / batch),
        tokens_per_s_per_gpu=served.tokens_per_s.scaled(1 / devices),
        prefill_s=alone,
        first_token_s=served.first_token_s or alone,
        gpus=devices * replicas_for(question.goal, workload, served.tokens_per_s.expected),
        gpus_serial=devices * replicas_for(question.goal, workload, served.tokens_per_s.low),
    )
    return device.costed(planned)


def replicas_for(goal: Goal, workload: RowTokens, replica_tokens_per_s: float) -> int:
    """Replicas for the requested load, fully used; one without a requested load."""
    if goal.requests_per_s is None or workload.output_tokens is None:
        return 1
    return max(1, math.ceil(goal.requests_per_s * workload.output_tokens / replica_tokens_per_s * (1 - _SAME)))


def _best_batch(device: PlannedDevice, method: Method, degree: int, need: MemoryNeed) -> int | str:
    """The batch that reaches the goal at this split, or why no batch does."""
    replica = device.replica(degree)
    coarse = thinned(min(need.largest_batch, len(replica.batches)))
    best = _search(device, replica, method, coarse)
    if isinstance(best, str):
        return f"{best} on {device.words(degree)}"
    if len(coarse) == coarse[-1]:
        return best  # every batch was asked
    at = int(np.searchsorted(coarse, best))
    around = np.arange(coarse[max(at - 1, 0)], coarse[min(at + 1, len(coarse) - 1)] + 1)
    return _search(device, replica, method, around)  # one of them is fast enough


def _search(device: PlannedDevice, replica: Replica, method: Method, batches: NDArray[np.int_]) -> int | str:
    """The smallest batch with most tokens per second of those that are fast enough, or what the fastest one reaches."""
    sizes = batches.astype(float)
    served = serve(replica, replica.arm(method, sizes), sizes, device.question.workload)
    per_user, tokens_per_s = np.asarray(served.user_tokens_per_s.expected), np.asarray(served.tokens_per_s.expected)
    fast_enough = per_user >= (device.question.goal.tokens_per_s_per_user or 0) * (1 - _SAME)
    if not fast_enough.any():
        fastest = int(np.argmax(per_user))
        return f"at most {per_user[fastest]:.3g} tokens/s per user (batch {batches[fastest]})"
    useful = np.where(fast_enough, tokens_per_s, 0.0)
    return int(batches[np.argmax(useful >= useful.max() * (1 - _SAME))])


def _speedup(device: PlannedDevice, sbd: DeploymentPlan) -> Band | None:
    """Wall speedup at SBD's own batch and split."""
    if sbd.batch is None or sbd.tensor_parallel is None:
        return None
    prediction = device.replica(sbd.tensor_parallel).at(sbd.batch, device.question.workload.context_tokens)
    sides = (prediction.wall_speedup, prediction.wall_speedup_overlapped, prediction.wall_speedup_serial)
    return Band(min(sides), prediction.wall_speedup, max(sides))


def _break_even(device: PlannedDevice, context: int, sbd: DeploymentPlan) -> BreakEven:
    """At the split of SBD's plan where this is its context, else at the smallest split that holds a row of it."""
    workload, reasons = device.question.workload, list[str]()
    own = context == workload.context_tokens
    for degree, need, refused in device.splits("sbd", workload.longest_tokens if own else context):
        if own and sbd.tensor_parallel not in (None, degree):
            continue
        if refused is None:
            return break_even(device.replica(degree), context, need.largest_batch)
        reasons.append(refused)
    return BreakEven(context_tokens=context, reason=joined_reasons(reasons))
