"""A capacity plan in words: one sentence that answers it, and the batches at which SBD pays. Computes nothing new."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from harness.capacity.results import BreakEven, DevicePlan, Plan


def answer(plan: Plan) -> str:
    """On how many devices a plan is possible, where SBD is faster per GPU, at which batches it pays, and what is cheapest."""
    planned = [device for device in plan.devices if device.sbd and device.sbd.batch is not None]
    asked = f"{plan.model} at context {plan.workload.context_tokens:,}, {_goal(plan)}"
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
    """The ranges of ``pays``, as far as they fit."""
    fits = found.largest_batch or 0
    return tuple((first, min(last, fits)) for first, last in found.pays if first <= fits)


def pays_wherever_it_fits(found: BreakEven) -> bool:
    """Whether SBD pays at every batch that fits, as far as batches were searched."""
    ranges, searched = fitting_ranges(found), found.searched_batch or 0
    return bool(ranges) and ranges[0] == (1, min(found.largest_batch or 0, searched))


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
    prices = [
        (device.sbd.usd_per_million_tokens.expected, device)
        for device in planned
        if device.sbd and device.sbd.usd_per_million_tokens
    ]
    if not prices:
        yield "no price is known"
        return
    usd, device = min(prices, key=lambda pair: pair[0])
    ntp = device.ntp.usd_per_million_tokens if device.ntp else None
    beside = f"NTP there {ntp.expected:.3g}" if ntp else "no NTP there reaches it"
    yield f"cheapest with SBD where a price is known: {device.hardware}, {usd:.3g} USD per million tokens ({beside})"
