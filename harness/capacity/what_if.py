"""A what-if: NTP and SBD at one batch and context, on one device or on several that share the model, as plain data."""

from __future__ import annotations

from typing import Any

from harness.capacity.question import Question, RowTokens
from harness.capacity.replica import PlannedDevice, Replica
from harness.capacity.results import METHODS
from harness.capacity.serving import serve
from harness.errors import DoesNotFitError, UnknownHardwareError
from harness.hardware.profile import HardwareProfile
from harness.models import ModelShape
from harness.models.deployment import Deployment
from harness.roofline.anchored import band_in_words, reached_in_words, what_if_ceilings
from harness.roofline.pricing import PassPrice, SummedPrice, sum_prices
from harness.roofline.step import NTP
from harness.roofline.storage import MEMORY_RESERVE, memory_need

WHAT_IF_VERSION = 1
WALL_SPEEDUPS = ("wall_speedup", "wall_speedup_overlapped", "wall_speedup_serial")


def what_if(question: Question, profile: HardwareProfile) -> dict[str, Any]:
    """The one model of a batch (harness.roofline.step), at the batch and the first split of a question, as a plan has it.

    In lockstep the passes of the slowest row follow the assumed distribution. Prices are None where memory cannot hold the
    batch; ``does_not_fit`` says why. A device whose memory is not known is priced all the same.

    Raises:
        UnknownHardwareError: a profile without the figures, or no known link of several devices.
    """
    degree, batch, context = question.degrees[0], question.goal.batch or 1, question.workload.context_tokens
    ceilings = what_if_ceilings(profile, question.rate_dtype, question.rung)
    device = PlannedDevice(question=question, profile=profile, ceilings=ceilings)
    unlinked = device.no_link(degree)
    if unlinked is not None:
        raise UnknownHardwareError(unlinked)
    replica, acceptance = device.replica(degree), question.acceptance
    passes, prices = replica.arm("sbd", batch).passes_per_block, _prices(replica, batch, question.workload)
    try:
        refused = fitting(question.shape, replica.deployment, profile, batch, context, acceptance.block_size)
    except DoesNotFitError as error:
        prices, refused = dict.fromkeys(prices), str(error)
    assumed = "passes per block of a row: 1 + binomial with the given mean"
    asked = {
        "version": WHAT_IF_VERSION,
        "model": question.shape.name,
        "hardware": profile.name,
        "batching": acceptance.batching,
        "block_size": acceptance.block_size,
        "nfe_speedup": acceptance.nfe_speedup,
        "batch": batch,
        "context_tokens": context,
        "passes_per_block": passes,
        "reached": reached_in_words(profile, replica.deployment.devices),
        "assumed": assumed if passes != acceptance.passes_per_block else None,
        "does_not_fit": refused,
    }
    return asked | _stored(replica) | prices


def _stored(replica: Replica) -> dict[str, object]:
    """How the model is stored and split, and what the prices rest on."""
    deployed, ceilings = replica.deployment, replica.ceilings
    return {
        "dtype": deployed.dtype,
        "weights": deployed.weights.name if deployed.weights else None,
        "kv_dtype": deployed.kv_dtype,
        "tensor_parallel": deployed.tensor_parallel,
        "split": deployed.words,
        "devices": deployed.devices,
        "rung": ceilings.rung,
        "arithmetic": ceilings.arithmetic(deployed),
        "band": band_in_words() if ceilings.rung == "anchored" else None,
    }


def fitting(
    shape: ModelShape, deployed: Deployment, profile: HardwareProfile, batch: int, context: int, block_size: int
) -> str | None:
    """Why this context is beyond the model's positions; None: it is not, or they are not known.

    Raises:
        DoesNotFitError: the device's memory is known, and too small for this batch.
    """
    reasons = []
    if shape.max_positions is not None and context > shape.max_positions:
        reasons.append(f"{context:,} tokens are more than the {shape.max_positions:,} positions of {shape.name}'s config")
    if profile.memory_bytes.value is not None:
        budget = profile.memory_bytes.value * (1 - MEMORY_RESERVE)
        need = memory_need(shape, deployed, tokens=context, block_size=block_size, budget_bytes=budget)
        if need.largest_batch < batch:
            raise DoesNotFitError("; ".join([*reasons, need.refusal(batch, deployed.devices)]))
    return "; ".join(reasons) or None


def _prices(replica: Replica, batch: int, workload: RowTokens) -> dict[str, object]:
    """Wall speedups, each kind of step and SBD's mean, tokens/s of the replica, a prompt as long as the context, read alone."""
    context = workload.context_tokens
    prediction = replica.at(batch, context)
    share, first, later = prediction.first_passes / prediction.arm.passes_per_block, prediction.first, prediction.later
    step = sum_prices(((share, first), (1 - share, later)))
    prices: dict[str, object] = {name: getattr(prediction, name) for name in WALL_SPEEDUPS}
    for name, price in (("step", step), ("ntp", prediction.ntp), ("first", first), ("later", later)):
        prices[f"{name}_pass"] = _seconds(price) | {"bytes": price.bytes_, "flops": price.flops}
    for method in METHODS:
        served = serve(replica, replica.arm(method, batch), batch, workload)
        prices[f"{method}_tokens_per_s"] = served.decode_tokens_per_s.expected
    read = replica.price_step(NTP, rows=0, context_tokens=0, prefill_tokens=max(1, context), prefill_logits=1)
    return prices | {"prefill": _seconds(read)}


def _seconds(price: PassPrice | SummedPrice) -> dict[str, float]:
    return {name: getattr(price, name) for name in ("expected_s", "low_s", "high_s")}
