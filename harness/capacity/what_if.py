"""A what-if: NTP and SBD at one batch and context, on one device or on several that share the model, as plain data."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from harness.errors import DoesNotFitError, UnknownHardwareError, UserError
from harness.hardware.links import ask_for_link, link_called
from harness.hardware.profile import HardwareProfile, load_profile
from harness.models import ModelShape
from harness.models.deployment import Deployment, as_deployment, dtype_called
from harness.roofline.anchored import band_in_words, reached_in_words, rung_called, what_if_ceilings
from harness.roofline.batches import slowest_row_passes
from harness.roofline.ceilings import Ceilings, joined
from harness.roofline.memory import MEMORY_RESERVE, memory_need
from harness.roofline.speedup import SpeedupPrediction, predict_speedup
from harness.roofline.step import NTP, price_step
from harness.scenario.arms import Batching

WHAT_IF_VERSION = 1


def describe_prediction(
    shape: ModelShape,
    hardware: str,
    how: Deployment | str,
    block_size: int,
    nfe_speedup: float,
    batch: int,
    context: int,
    rung: str | None,
    *,
    batching: Batching,
    matrix_dtype: str | None = None,
    link: str | None,
) -> dict[str, Any]:
    """A what-if as plain data: the one model of a batch (harness.roofline.step), as `sbd capacity` has it.

    In lockstep the passes of the slowest row follow the assumed distribution. Prices are None where memory cannot hold the
    batch; ``does_not_fit`` says why.

    Raises:
        UnknownHardwareError: no such profile, or no known link of several devices. UserError: a value out of range.
    """
    if block_size < 1 or batch < 1 or not 1 <= nfe_speedup <= block_size:
        raise UserError(
            f"got block size {block_size}, batch {batch}, NFE speedup {nfe_speedup}; sizes must be at least 1 and "
            "1 <= NFE speedup <= block size"
        )
    deployed, mean_passes = as_deployment(how), block_size / nfe_speedup
    passes = slowest_row_passes(block_size, mean_passes, batch) if batching == "lockstep" else mean_passes
    profile = load_profile(hardware)
    ceilings = _ceilings(profile, deployed, dtype_called(matrix_dtype) if matrix_dtype else deployed.dtype, rung, link)
    prediction = predict_speedup(
        shape,
        deployed,
        ceilings,
        block_size=block_size,
        passes_per_block=passes,
        batch=batch,
        context_tokens=context,
        batching=batching,
    )
    read = price_step(
        shape, deployed, ceilings, NTP, rows=0, context_tokens=0, prefill_tokens=max(1, context), prefill_logits=1
    )
    prices = _prices(prediction) | {"prefill": asdict(read)}
    try:
        refused = fitting(shape, deployed, profile, batch, context, block_size)
    except DoesNotFitError as error:
        prices, refused = dict.fromkeys(prices), str(error)
    return {
        "version": WHAT_IF_VERSION,
        "model": shape.name,
        "hardware": hardware,
        "dtype": deployed.dtype,
        "weights": deployed.weights.name if deployed.weights else None,
        "kv_dtype": deployed.kv_dtype,
        "tensor_parallel": deployed.tensor_parallel,
        "split": deployed.words,
        "devices": deployed.devices,
        "batching": batching,
        "block_size": block_size,
        "nfe_speedup": nfe_speedup,
        "batch": batch,
        "context_tokens": context,
        "passes_per_block": passes,
        "rung": ceilings.rung,
        "arithmetic": ceilings.arithmetic(deployed),
        "reached": reached_in_words(profile, deployed.devices),
        "band": band_in_words() if ceilings.rung == "anchored" else None,
        "assumed": "passes per block of a row: 1 + binomial with the given mean" if passes != mean_passes else None,
        "does_not_fit": refused,
        **prices,
    }


def _ceilings(profile: HardwareProfile, deployed: Deployment, dtype: str, rung: str | None, link: str | None) -> Ceilings:
    ceilings = what_if_ceilings(profile, dtype, rung_called(rung))
    if deployed.devices == 1:
        return ceilings
    joins = deployed.tensor_parallel if deployed.tensor_parallel > 1 else deployed.pipeline_parallel
    found = joined(ceilings, profile, joins, None if link is None else link_called(link))
    if found.link_bytes_per_s is None:
        raise UnknownHardwareError(ask_for_link(profile, deployed.devices))
    return found


def fitting(
    shape: ModelShape, deployed: Deployment, profile: HardwareProfile, batch: int, context: int, block_size: int
) -> str | None:
    """Why this context is beyond the model's positions; None: it is not, or they are not known.

    Raises:
        DoesNotFitError: the device's memory is known, and too small for this batch.
    """
    found = []
    if shape.max_positions is not None and context > shape.max_positions:
        found.append(f"{context:,} tokens are more than the {shape.max_positions:,} positions of {shape.name}'s config")
    if profile.memory_bytes.value is not None:
        budget = profile.memory_bytes.value * (1 - MEMORY_RESERVE)
        need = memory_need(shape, deployed, tokens=context, block_size=block_size, budget_bytes=budget)
        if need.largest_batch < batch:
            found.append(
                f"batch {batch:,} needs {need.total_bytes(batch) / 1e9:,.3g} GB on each of {deployed.devices}, "
                f"{budget / 1e9:.3g} are usable; {need.largest_batch:,} such rows fit"
            )
            raise DoesNotFitError("; ".join(found))
    return "; ".join(found) or None


def _prices(prediction: SpeedupPrediction) -> dict[str, Any]:
    names = ("wall_speedup", "wall_speedup_overlapped", "wall_speedup_serial", "ntp_tokens_per_s", "sbd_tokens_per_s")
    share = prediction.first_passes / prediction.passes_per_block
    named = {"expected_s": "expected_s", "low_s": "low_s", "high_s": "high_s", "bytes": "bytes_", "flops": "flops"}
    first, later = prediction.first, prediction.later
    step = {name: share * getattr(first, field) + (1 - share) * getattr(later, field) for name, field in named.items()}
    passes = {
        f"{name}_pass": {key: getattr(price, field) for key, field in named.items()}
        for name, price in (("ntp", prediction.ntp), ("first", first), ("later", later))
    }
    return {name: getattr(prediction, name) for name in names} | {"step_pass": step} | passes
