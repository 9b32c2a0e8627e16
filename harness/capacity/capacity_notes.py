"""What a capacity plan assumes, and which figures a profile lacks for one: sentences, made from the values they speak of."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from harness.capacity.acceptance import Acceptance
from harness.capacity.results import Workload
from harness.hardware.profile import HardwareProfile
from harness.models import ModelShape
from harness.models.deployment import Deployment


def missing_figures(profile: HardwareProfile, dtype: str) -> str:
    """Every figure that a plan needs and this profile does not have, with the profile's own reason; empty: none is missing."""
    peaks = {str(name): figure for name, figure in profile.peak_flops_per_s.items()}
    needed = {f"{dtype} peak": peaks.get(dtype), "bandwidth": profile.bandwidth_bytes_per_s, "memory": profile.memory_bytes}
    return "; ".join(
        f"no {name} ({figure.source})" for name, figure in needed.items() if figure is not None and figure.value is None
    )


def notes_of(
    shape: ModelShape, deployment: Deployment, acceptance: Acceptance, workload: Workload, memory_reserve: float,
    rate_dtype: str, rungs: Sequence[str],
) -> tuple[str, ...]:  # fmt: skip
    """The assumptions behind every figure, the weightiest first."""
    return (
        *_of_prices(rungs),
        *_of_acceptance(acceptance),
        *_of_work(shape, workload),
        *_of_storage(deployment, memory_reserve, rate_dtype),
        "USD: list price of the profile, power: the board's, an upper bound; both at full load, without host, idle time or "
        "cooling",
    )


def _of_prices(rungs: Sequence[str]) -> Iterator[str]:
    yield (
        f"predicted, {' and '.join(rungs) or 'no'} rung, nothing was run; a band runs from nothing overlapped to memory and "
        "arithmetic fully overlapped"
    )
    if "datasheet" in rungs:
        yield (
            "the datasheet rung takes peaks as reached and knows no launch cost, so real speeds are lower, most of all on "
            "small models and batches"
        )


def _of_acceptance(acceptance: Acceptance) -> Iterator[str]:
    yield (
        f"acceptance: {acceptance.source}; k = {acceptance.block_size}, {acceptance.passes_per_block:.2f} passes per block "
        f"({acceptance.nfe_speedup:.2f} tokens per pass)"
    )
    if acceptance.slowest_row:
        yield "lockstep: a batch takes the passes of its slowest row, as given per batch (between those, interpolated)"
    else:
        yield (
            "acceptance is that of a row: no row waits for another one and none is padded (ragged batches); in lockstep a "
            "batch takes the passes of its slowest row, so SBD would pay less and up to a smaller batch"
        )


def _of_work(shape: ModelShape, workload: Workload) -> Iterator[str]:
    if workload.prompt_tokens is None:
        yield "decoding only: no prompt was given, so no prefill is in speed per GPU, GPUs, money or energy"
    else:
        yield (
            f"prefill of {workload.prompt_tokens:,} tokens, one prompt at a time and nothing decoded meanwhile, is in speed "
            "per GPU, GPUs, money and energy, not in speed per user"
        )
    if shape.max_positions is not None and workload.longest_tokens > shape.max_positions:
        yield f"{workload.longest_tokens:,} tokens are more than the {shape.max_positions:,} positions of {shape.name}'s config"
    if shape.moe is not None:
        yield (
            "experts visited: the expectation under uniform, independent routing, an upper estimate for tokens of one text; a "
            "block visits more experts than a token, which costs SBD part of its gain"
        )


def _of_storage(deployment: Deployment, memory_reserve: float, rate_dtype: str) -> Iterator[str]:
    yield (
        f"memory: weights, KV cache at its longest, logits and one layer's activations, in {1 - memory_reserve:.0%} of the "
        "device's label; the rest is kept for the runtime, fragmentation and prefill (an assumption)"
    )
    yield (
        "GPUs of one replica share every layer (tensor parallel); the profile's link is taken to join them all, and the "
        "latency of collectives is not priced"
    )
    if rate_dtype != deployment.dtype:
        yield f"all matrix products, attention's too, at the {rate_dtype} peak"
