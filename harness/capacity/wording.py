"""A capacity plan in words: its answer, the batches at which SBD pays, its assumptions, and the figures a profile lacks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from harness.capacity.acceptance import AssumedAcceptance
from harness.capacity.results import BreakEven, DevicePlan, Plan, Workload
from harness.formatting import rate, ratio
from harness.hardware.profile import HardwareProfile
from harness.models import ModelShape
from harness.roofline.anchored import band_in_words
from harness.roofline.step import BATCH_WORDS

Offers = Sequence[tuple[float, float]]
"""Tokens/s of a user, and USD per million tokens, at every batch."""


def answer(plan: Plan) -> str:
    """On how many devices a plan is possible, where SBD is faster per GPU, at which batches it pays, and what is cheapest."""
    planned = [device for device in plan.devices if device.sbd and device.sbd.batch is not None]
    asked = f"{plan.model} at context {plan.workload.context_tokens:,}, {_goal(plan)}, {BATCH_WORDS[plan.acceptance.batching]}"
    if not planned:
        return f"{asked}: no plan with SBD on any of {len(plan.devices)} devices; the reasons are listed."
    gaining = sum(map(_gains, planned))
    found = [(one, device.hardware) for device in planned if (one := own_break_even(plan, device)) is not None]
    clauses = [
        f"possible with SBD on {len(planned)} of {len(plan.devices)} devices, with more tokens/s per GPU than NTP on {gaining}",
        *_reach(found),
        *_cheapest(planned),
    ]
    return f"{asked}: {'; '.join(clauses)}."


def fitting_ranges(found: BreakEven) -> tuple[tuple[int, int], ...]:
    """The ranges of ``pays``, cut at the largest batch that fits."""
    fits = found.largest_batch or 0
    return tuple((first, min(last, fits)) for first, last in found.pays if first <= fits)


def pays_wherever_it_fits(found: BreakEven) -> bool:
    """Whether SBD pays at every searched batch that fits."""
    return fitting_ranges(found)[:1] == ((1, min(found.largest_batch or 0, found.searched_batch or 0)),)


def pays_words(found: BreakEven) -> str:
    """The batches that fit and at which SBD pays: ``1..47 of 100``, ``all 100``, ``none of 100``."""
    if found.largest_batch is None:
        return "does not fit"
    if pays_wherever_it_fits(found):
        searched = found.searched_batch or 0
        all_fitting = found.largest_batch <= searched
        return f"all {found.largest_batch:,}" if all_fitting else f"1..{searched:,} (all searched) of {found.largest_batch:,}"
    ranges = ", ".join(f"{first:,}..{last:,}" if first < last else f"{first:,}" for first, last in fitting_ranges(found))
    return f"{ranges or 'none'} of {found.largest_batch:,}"


def own_break_even(plan: Plan, device: DevicePlan) -> BreakEven | None:
    """The device's entry for the workload's own context."""
    return next((found for found in device.break_even if found.context_tokens == plan.workload.context_tokens), None)


def _goal(plan: Plan) -> str:
    goal, words = plan.goal, "most tokens/s that fit"
    if goal.batch is not None:
        words = f"batch {goal.batch:,} per replica"
    if goal.tokens_per_s_per_user is not None:
        words = f"at least {goal.tokens_per_s_per_user:g} tokens/s per user"
    return words if goal.requests_per_s is None else f"{words}, {goal.requests_per_s:g} requests/s"


def _gains(device: DevicePlan) -> bool:
    sbd = device.sbd.tokens_per_s_per_gpu if device.sbd else None
    ntp = device.ntp.tokens_per_s_per_gpu if device.ntp else None
    return sbd is not None and (ntp is None or sbd.expected > ntp.expected)


def _reach(found: Sequence[tuple[BreakEven, str]]) -> Iterator[str]:
    """Devices by where SBD pays: at every batch that fits, at none, up to some batch, only from some batch on."""
    everywhere = sum(pays_wherever_it_fits(one) for one, _ in found)
    nowhere = sum(not fitting_ranges(one) for one, _ in found)
    partly = [(fitting_ranges(one), one, name) for one, name in found if fitting_ranges(one) and not pays_wherever_it_fits(one)]
    until = sorted((ranges[-1][1], name) for ranges, one, name in partly if ranges[-1][1] < (one.largest_batch or 0))
    since = sorted((ranges[0][0], name) for ranges, _, name in partly if ranges[0][0] > 1)
    if since:
        yield f"SBD needs a batch of at least {_span(since)} to pay"
    if until:
        yield f"SBD stops paying after batch {_span(until)}"
    if everywhere:
        yield f"on {everywhere} it pays at every batch that fits"
    if nowhere:
        yield f"on {nowhere} it pays at no batch that fits"


def _span(batches: Sequence[tuple[int, str]]) -> str:
    (low, first), (high, last) = batches[0], batches[-1]
    if low < high:
        return f"{low:,} ({first}) to {high:,} ({last})"
    return f"{low:,} ({first})" if len(batches) == 1 else f"{low:,} on {len(batches)} of them"


def _cheapest(planned: Sequence[DevicePlan]) -> Iterator[str]:
    priced = [(device.sbd.usd_per_million_tokens, device) for device in planned if device.sbd]
    prices = [(usd.expected, device) for usd, device in priced if usd]
    if not prices:
        yield "no price is known"
        return
    usd, device = min(prices, key=lambda pair: pair[0])
    ntp = device.ntp.usd_per_million_tokens if device.ntp else None
    beside = f"{cheaper('SBD', usd, ntp.expected)} there" if ntp else "no NTP there reaches it"
    yield f"cheapest with SBD where a price is known: {device.hardware}, {usd:.3g} USD per million tokens ({beside})"


def cheaper(name: str, usd: float, ntp: float) -> str:
    """Whether ``name`` or NTP costs less, and by how much."""
    if usd < ntp:
        return f"{name} pays: {ratio(ntp / usd)} cheaper than NTP"
    return f"{name} costs {ratio(usd / ntp)} as much as NTP"


def pays_from(ntp: Offers, other: Offers) -> str:
    """From which speed of a user on the other method is cheaper than NTP, each at its best batch for it."""
    kept = max((speed for speed, usd in ntp if not any(fast >= speed and cost < usd for fast, cost in other)), default=0.0)
    if kept >= max(speed for speed, _ in other):
        return "it pays from no speed on: NTP serves the fastest users"
    return f"it pays where users want more than {rate(kept)} tokens/s" if kept else "it pays at every speed"


def missing_figures(profile: HardwareProfile, dtype: str) -> str:
    """Every figure that a plan needs and this profile lacks, with the profile's reason; empty: the profile is complete."""
    peaks = {str(name): figure for name, figure in profile.peak_flops_per_s.items()}
    needed = {f"{dtype} peak": peaks.get(dtype), "bandwidth": profile.bandwidth_bytes_per_s, "memory": profile.memory_bytes}
    return "; ".join(
        f"no {name} ({figure.source})" for name, figure in needed.items() if figure is not None and figure.value is None
    )


def notes_of(shape: ModelShape, plan: Plan) -> tuple[str, ...]:
    """The assumptions behind every figure of a plan for ``shape``, the most important first."""
    return (
        *_of_prices(plan.devices),
        *_of_acceptance(plan.acceptance),
        *_of_work(shape, plan.workload),
        *_of_storage(plan),
        "USD: list price of the profile, power: the board's, an upper bound; both at full load, without host, idle time or "
        "cooling",
    )


def _of_prices(devices: Sequence[DevicePlan]) -> Iterator[str]:
    rungs = sorted({device.rung for device in devices if device.rung})
    yield (
        f"predicted, {' and '.join(rungs) or 'no'} rung, nothing was run; a band runs from nothing overlapped to memory and "
        "arithmetic fully overlapped"
    )
    if "anchored" in rungs:
        yield f"the anchored rung is the datasheet times constants fitted to published speeds; {band_in_words()}"
    yield from dict.fromkeys(device.arithmetic for device in devices if device.arithmetic)
    yield from dict.fromkeys(device.reached for device in devices if device.reached)
    if "datasheet" in rungs:
        yield (
            "the datasheet rung takes peaks as reached and knows no launch cost, so real speeds are lower, most of all on "
            "small models and batches"
        )


def anchored_in_words() -> str:
    """What the anchored rung is, and how far published speeds lie from it on one GPU and on several: three sentences."""
    return (
        "Predicted on the anchored rung: the datasheet times constants fitted to published speeds. "
        f"On one GPU {band_in_words(1)}. On several {band_in_words(2)}."
    )


def _of_acceptance(acceptance: AssumedAcceptance) -> Iterator[str]:
    yield (
        f"acceptance: {acceptance.source}; k = {acceptance.block_size}, {acceptance.passes_per_block:.2f} passes per block "
        f"({acceptance.nfe_speedup:.2f} tokens per pass)"
    )
    if acceptance.tokens_per_check is not None:
        yield (
            f"verified SBD: a block's check, in the pass that opens the next one, makes {acceptance.tokens_per_check:.2f} of "
            f"its {acceptance.block_size} tokens final"
        )
    if acceptance.slowest_row:
        yield "lockstep: a batch takes the passes of its slowest row, as given per batch (between those, interpolated)"
    elif acceptance.batching == "lockstep":
        yield (
            "lockstep: a batch takes the passes of its slowest row; passes per block of a row are assumed as 1 + binomial with "
            "the given mean"
        )
    else:
        yield (
            "acceptance is that of a row: no row waits for another one and none is padded (ragged batches, as engines run "
            "them); in lockstep a batch takes the passes of its slowest row, so SBD would pay less and up to a smaller batch"
        )


def _of_work(shape: ModelShape, workload: Workload) -> Iterator[str]:
    if workload.prompt_tokens is None:
        yield "decoding only: no prompt was given, so no prefill is in speed per GPU, GPUs, money or energy"
    else:
        yield (
            f"prompts of {workload.prompt_tokens:,} tokens{_shared(workload)}, {_reading(workload)}; what that takes from "
            "decoding is in speed per user and per GPU, GPUs, money and energy, for a replica that is always full"
        )
        yield (
            "a user's tokens/s count from the first token on; the time to it is that of a request admitted at once, so without "
            "any wait in a queue"
        )
    if shape.max_positions is not None and workload.longest_tokens > shape.max_positions:
        yield f"{workload.longest_tokens:,} tokens are more than the {shape.max_positions:,} positions of {shape.name}'s config"
    if shape.moe is not None:
        yield (
            "experts visited: the expectation under uniform, independent routing, an upper estimate for tokens of one text; a "
            "block visits more experts than a token, which costs SBD part of its gain"
        )


def _shared(workload: Workload) -> str:
    return f", {workload.shared_tokens:,} of them shared and in the cache already" if workload.shared_tokens else ""


def _reading(workload: Workload) -> str:
    if workload.chunk_tokens is None:
        return "read whole, one at a time, while nothing is decoded"
    return f"read in chunks of {workload.chunk_tokens:,} beside the rows that decode"


def _of_storage(plan: Plan) -> Iterator[str]:
    yield (
        f"memory: weights, KV cache at its longest, logits and one layer's activations, in {1 - plan.memory_reserve:.0%} of "
        "the device's label; the rest is kept for the runtime, fragmentation and prefill (an assumption)"
    )
    yield (
        "GPUs of one replica share every layer (tensor parallel) unless told otherwise; their link is the device's own as far "
        "as it reaches, else PCIe (harness/hardware/links.py), with a latency for every transfer that waits"
    )
