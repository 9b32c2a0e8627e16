"""What an arm at one batch comes to: GPUs for a load, money and energy, with what reading prompts takes."""

from __future__ import annotations

import math

from harness.capacity.replica import Replica
from harness.capacity.results import ArmPlan, Band, Goal, Method, Workload
from harness.capacity.serving import serve
from harness.hardware.profile import HardwareProfile
from harness.roofline.memory import MemoryNeed

MILLION = 1e6
S_PER_HOUR = 3600.0
J_PER_KWH = 3.6e6
_ROUNDING = 1e-9  # relative: an exact multiple needs no further replica


def figures_at(
    replica: Replica, profile: HardwareProfile, workload: Workload, goal: Goal, method: Method, batch: int, need: MemoryNeed
) -> ArmPlan:
    """Every figure of ``method`` at ``batch`` rows per replica."""
    served = serve(replica, method, batch, workload)
    whole = served.tokens_per_s
    devices = replica.deployment.devices
    per_gpu = _scaled(whole, 1 / devices)
    price, power = profile.price_usd_per_hour, profile.power_w
    return ArmPlan(
        method=method,
        reason=None,
        tensor_parallel=replica.deployment.tensor_parallel,
        devices=devices,
        batch=batch,
        memory=need,
        passes_per_block=replica.acceptance.passes_at(batch) if method == "sbd" else None,
        tokens_per_s_per_user=served.user_tokens_per_s,
        decode_tokens_per_s_per_user=_scaled(served.decode_tokens_per_s, 1 / batch),
        tokens_per_s_per_gpu=per_gpu,
        prefill_s=served.prefill_s,
        first_token_s=served.first_token_s,
        gpus=devices * replicas_for(goal, workload, whole.expected),
        gpus_serial=devices * replicas_for(goal, workload, whole.low),
        usd_per_million_tokens=_band_per_million(price.value, S_PER_HOUR, per_gpu),
        usd_reason=None if price.value is not None else f"price not known: {price.source}",
        kwh_per_million_tokens=_band_per_million(power.value, J_PER_KWH, per_gpu),
        kwh_reason=None if power.value is not None else f"power not known: {power.source}",
    )


def replicas_for(goal: Goal, workload: Workload, replica_tokens_per_s: float) -> int:
    """Replicas for the requested load, fully used; one without a requested load."""
    if goal.requests_per_s is None or workload.output_tokens is None:
        return 1
    return max(1, math.ceil(goal.requests_per_s * workload.output_tokens / replica_tokens_per_s * (1 - _ROUNDING)))


def per_million(rate: float | None, unit: float, tokens_per_s: float) -> float | None:
    """``rate`` per device for a million tokens: USD/h with seconds per hour, or W with J per kWh; None where not known."""
    return None if rate is None else rate * MILLION / unit / tokens_per_s


def _band_per_million(rate: float | None, unit: float, tokens_per_s: Band) -> Band | None:
    low, expected, high = (
        per_million(rate, unit, speed) for speed in (tokens_per_s.high, tokens_per_s.expected, tokens_per_s.low)
    )
    return None if low is None or expected is None or high is None else Band(low=low, expected=expected, high=high)


def _scaled(band: Band, factor: float) -> Band:
    return Band(low=band.low * factor, expected=band.expected * factor, high=band.high * factor)
