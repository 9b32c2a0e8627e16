"""A what-if: NTP and SBD at one batch and context, on one device or on several that share the model, as plain data."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from harness.capacity.question import Question
from harness.capacity.replica import PlannedDevice
from harness.capacity.results import METHODS
from harness.capacity.serving import serve
from harness.errors import DoesNotFitError, UnknownHardwareError
from harness.hardware.profile import HardwareProfile
from harness.models import ModelShape
from harness.models.deployment import Deployment
from harness.roofline.anchored import band_in_words, reached_in_words, what_if_ceilings
from harness.roofline.pricing import PassPrice
from harness.roofline.step import NTP, SpeedupPrediction, price_step
from harness.roofline.storage import MEMORY_RESERVE, memory_need

WHAT_IF_VERSION = 1


def what_if(question: Question, profile: HardwareProfile) -> dict[str, Any]:
    """The one model of a batch (harness.roofline.step), at the batch and the first split of a question, as a plan has it.

    In lockstep the passes of the slowest row follow the assumed distribution. Prices are None where memory cannot hold the
    batch; ``does_not_fit`` says why. A device whose memory is not known is priced all the same.

    Raises:
        UnknownHardwareError: a profile without the figures, or no known link of several devices.
    """
    degree, batch, context = question.degrees[0], question.goal.batch or 1, question.workload.context_tokens
    device = PlannedDevice(
        question=question, profile=profile, ceilings=what_if_ceilings(profile, question.rate_dtype, question.rung)
    )
    unlinked = device.no_link(degree)
    if unlinked is not None:
        raise UnknownHardwareError(unlinked)
    replica, acceptance = device.replica(degree), question.acceptance
    deployed, prediction = replica.deployment, replica.at(batch, context)
    read = price_step(
        replica.shape,
        deployed,
        replica.ceilings,
        NTP,
        rows=0,
        context_tokens=0,
        prefill_tokens=max(1, context),
        prefill_logits=1,
    )
    served = {method: serve(replica, replica.arm(method, batch), batch, question.workload) for method in METHODS}
    speeds = {f"{method}_tokens_per_s": speed.decode_tokens_per_s.expected for method, speed in served.items()}
    prices = _prices(prediction) | speeds | {"prefill": asdict(read)}
    try:
        refused = fitting(question.shape, deployed, profile, batch, context, acceptance.block_size)
    except DoesNotFitError as error:
        prices, refused = dict.fromkeys(prices), str(error)
    assumed = "passes per block of a row: 1 + binomial with the given mean"
    return {
        "version": WHAT_IF_VERSION,
        "model": question.shape.name,
        "hardware": profile.name,
        "dtype": deployed.dtype,
        "weights": deployed.weights.name if deployed.weights else None,
        "kv_dtype": deployed.kv_dtype,
        "tensor_parallel": degree,
        "split": deployed.words,
        "devices": deployed.devices,
        "batching": acceptance.batching,
        "block_size": acceptance.block_size,
        "nfe_speedup": acceptance.nfe_speedup,
        "batch": batch,
        "context_tokens": context,
        "passes_per_block": prediction.arm.passes_per_block,
        "rung": replica.ceilings.rung,
        "arithmetic": replica.ceilings.arithmetic(deployed),
        "reached": reached_in_words(profile, deployed.devices),
        "band": band_in_words() if replica.ceilings.rung == "anchored" else None,
        "assumed": assumed if prediction.arm.passes_per_block != acceptance.passes_per_block else None,
        "does_not_fit": refused,
        **prices,
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


def _prices(prediction: SpeedupPrediction) -> dict[str, Any]:
    names = ("wall_speedup", "wall_speedup_overlapped", "wall_speedup_serial")
    passes = {"ntp_pass": prediction.ntp, "first_pass": prediction.first, "later_pass": prediction.later}
    prices = {name: _described(price) for name, price in passes.items()}
    share, first, later = prediction.first_passes / prediction.arm.passes_per_block, prices["first_pass"], prices["later_pass"]
    step = {name: share * first[name] + (1 - share) * later[name] for name in first}
    return {name: getattr(prediction, name) for name in names} | {"step_pass": step} | prices


def _described(price: PassPrice) -> dict[str, float]:
    return {
        "expected_s": price.expected_s,
        "low_s": price.low_s,
        "high_s": price.high_s,
        "bytes": price.bytes_,
        "flops": price.flops,
    }
