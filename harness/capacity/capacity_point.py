"""One arm at one batch on one kind of device: its speed, the GPUs it takes, and what a million tokens cost."""

from __future__ import annotations

import math
from typing import Literal

from harness.capacity.replica import Replica
from harness.capacity.results import ArmPlan, Band, Goal, Workload
from harness.hardware.profile import HardwareProfile
from harness.roofline.memory import MemoryNeed
from harness.roofline.operation import PassCounts
from harness.roofline.pricing import price_counts
from harness.roofline.speedup import SpeedupPrediction

MILLION = 1e6
S_PER_HOUR = 3600.0
J_PER_KWH = 3.6e6
_ROUNDING = 1e-9  # relative: an exact multiple needs no further replica


def figures_at(
    replica: Replica, profile: HardwareProfile, workload: Workload, goal: Goal, method: Literal["ntp", "sbd"], batch: int,
    need: MemoryNeed,
) -> ArmPlan:  # fmt: skip
    """Every figure of ``method`` at ``batch`` rows per replica.

    Raises:
        UnknownHardwareError: a split over devices whose link rate is not known.
    """
    decoding = _tokens_per_s(replica.at(batch, workload.context_tokens), method)
    prefill_s = _prefill_s(replica, workload)
    whole = _with_prefill(decoding, prefill_s, workload.output_tokens)
    devices = replica.deployment.tensor_parallel
    per_gpu = _scaled(whole, 1 / devices)
    price, power = profile.price_usd_per_hour, profile.power_w
    return ArmPlan(
        method=method,
        reason=None,
        tensor_parallel=devices,
        batch=batch,
        memory=need,
        passes_per_block=replica.acceptance.passes_at(batch) if method == "sbd" else None,
        tokens_per_s_per_user=_scaled(decoding, 1 / batch),
        tokens_per_s_per_gpu=per_gpu,
        prefill_s=prefill_s,
        gpus=devices * _replicas(goal, workload, whole.expected),
        gpus_serial=devices * _replicas(goal, workload, whole.low),
        usd_per_million_tokens=_per_million(price.value, S_PER_HOUR, per_gpu),
        usd_reason=None if price.value is not None else f"price not known: {price.source}",
        kwh_per_million_tokens=_per_million(power.value, J_PER_KWH, per_gpu),
        kwh_reason=None if power.value is not None else f"power not known: {power.source}",
    )


def _tokens_per_s(prediction: SpeedupPrediction, method: Literal["ntp", "sbd"]) -> Band:
    """Of the whole batch, decoding; slowest with nothing overlapped."""
    low, high = prediction.batch / prediction.ntp.high_s, prediction.batch / prediction.ntp.low_s
    if method == "ntp":
        return Band(low=low, expected=prediction.ntp_tokens_per_s, high=high)
    return Band(
        low=low * prediction.wall_speedup_serial,
        expected=prediction.sbd_tokens_per_s,
        high=high * prediction.wall_speedup_overlapped,
    )


def _prefill_s(replica: Replica, workload: Workload) -> Band | None:
    """One prompt alone, in one pass, the same in both arms; None where no prompt was given, 0 for an empty one."""
    tokens = workload.prompt_tokens
    if tokens is None:
        return None
    if tokens == 0:
        return Band(low=0.0, expected=0.0, high=0.0)
    prompt = PassCounts(rows=1, query=tokens, context=0, logits=1, kept=tokens)
    price = price_counts(replica.shape, replica.deployment, prompt, replica.ceilings)
    return Band(low=price.low_s, expected=price.expected_s, high=price.high_s)


def _with_prefill(decoding: Band, prefill_s: Band | None, output_tokens: int | None) -> Band:
    """Tokens per second of a replica that decodes nothing while it takes a prompt in: 1 / (1 / rate + prefill / output)."""
    if prefill_s is None or output_tokens is None:
        return decoding
    return Band(
        low=1 / (1 / decoding.low + prefill_s.high / output_tokens),
        expected=1 / (1 / decoding.expected + prefill_s.expected / output_tokens),
        high=1 / (1 / decoding.high + prefill_s.low / output_tokens),
    )


def gpus_needed(arm: ArmPlan | None, goal: Goal, workload: Workload) -> tuple[int, int] | None:
    """GPUs for the requests of ``goal`` with replicas as in ``arm``, as expected and with nothing overlapped; None: no plan."""
    if arm is None or arm.tensor_parallel is None or arm.tokens_per_s_per_gpu is None:
        return None
    devices, per_gpu = arm.tensor_parallel, arm.tokens_per_s_per_gpu
    expected, serial = (_replicas(goal, workload, rate * devices) for rate in (per_gpu.expected, per_gpu.low))
    return devices * expected, devices * serial


def _replicas(goal: Goal, workload: Workload, replica_tokens_per_s: float) -> int:
    """Replicas for the requests asked for, fully loaded; one where none were asked for."""
    if goal.requests_per_s is None or workload.output_tokens is None:
        return 1
    return max(1, math.ceil(goal.requests_per_s * workload.output_tokens / replica_tokens_per_s * (1 - _ROUNDING)))


def _per_million(rate: float | None, unit: float, tokens_per_s: Band) -> Band | None:
    """``rate`` per device for a million tokens: USD/h with seconds per hour, or W with J per kWh."""
    if rate is None:
        return None
    amount = rate * MILLION / unit
    return Band(low=amount / tokens_per_s.high, expected=amount / tokens_per_s.expected, high=amount / tokens_per_s.low)


def _scaled(band: Band, factor: float) -> Band:
    return Band(low=band.low * factor, expected=band.expected * factor, high=band.high * factor)
