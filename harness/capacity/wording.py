"""A capacity plan in words: its answer, the batches at which SBD pays, and its assumptions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from harness.capacity.acceptance import AssumedAcceptance
from harness.capacity.question import Question, RowTokens, ServiceGoal
from harness.capacity.results import BreakEven, CapacityPlan, DeploymentPlan, DevicePlan, Ranges, expected
from harness.capacity.service import chunks_of
from harness.capacity.trials import CLOSE
from harness.formatting import rate, ratio, seconds
from harness.roofline.anchored import band_in_words
from harness.roofline.step import BATCH_WORDS

Offers = Sequence[tuple[float, float]]
"""Tokens/s of a user, and USD per million tokens, at every batch."""


def answer(plan: CapacityPlan) -> str:
    """What was asked, on how many devices that is possible, where SBD pays, and what is cheapest."""
    service = plan.question.service
    return _full_answer(plan) if service is None else f"{_service_asked(plan, service)}{_service_answer(plan)}."


def _full_answer(plan: CapacityPlan) -> str:
    question = plan.question
    planned = [device for device in plan.devices if device.sbd and device.sbd.reason is None]
    context, batching = question.workload.context_tokens, BATCH_WORDS[question.acceptance.batching]
    asked = f"{question.shape.name} at context {context:,}, {_goal(question)}, {batching}"
    if not planned:
        return f"{asked}: no plan with SBD on any of {len(plan.devices)} devices; the reasons are listed."
    entries = [(entry, device.hardware) for device in planned for entry in device.break_even if entry.context_tokens == context]
    clauses = [
        f"possible with SBD on {len(planned)} of {len(plan.devices)} devices, with more tokens/s per GPU than NTP on "
        f"{sum(map(_gains, planned))}",
        *_reach(entries),
        *_cheapest(plan),
    ]
    return f"{asked}: {'; '.join(clauses)}."


def _service_asked(plan: CapacityPlan, goal: ServiceGoal) -> str:
    """The load and what is promised."""
    tokens = f"{goal.prompt_tokens:,} prompt and {goal.output_tokens:,} output tokens each"
    if goal.trace is not None:
        tokens = f"as in a trace of {len(goal.trace.at_s):,}"
    load = f"{goal.load:.3g} requests/s"
    if goal.users is not None:
        think = f" but for {seconds(goal.think_s)} after an answer" if goal.think_s else " at all times"
        load = f"{goal.users:,} users with a request in flight{think}"
    promised = [f"a first token within {seconds(goal.ttft_s)}"]
    if goal.tokens_per_s is not None:
        promised.insert(0, f"at least {goal.tokens_per_s:g} tokens/s per user")
    promise = f"{' and '.join(promised)}, for {goal.percentile:g} % of the requests"
    return f"{plan.question.shape.name}, {load}, {tokens}; {promise}: "


def _service_answer(plan: CapacityPlan) -> str:
    """The cheapest deployment with either method, and which of the two costs less."""
    best = [ranked[0] for ranked in (plan.deployments("ntp"), plan.deployments("sbd")) if ranked]
    if not best:
        return f"no deployment keeps this{_closest(plan)}"
    clauses = list(map(_deployment, best))
    if len(best) == 2:
        clauses += [_comparison(*best), *_device_by_device(plan)]
    else:
        clauses.append(f"no deployment with {'SBD' if best[0].method == 'ntp' else 'NTP'} keeps this")
    return "; ".join(clauses)


def _deployment(row: DeploymentPlan) -> str:
    split = f" in {row.replicas:,} replicas of {row.tensor_parallel}" if row.gpus != 1 else ""
    cost = "price not known" if row.usd is None else f"{rate(row.usd)} USD per million tokens"
    return f"{row.method.upper()} on {row.gpus:,} {row.hardware}{split}, {cost}"


def _comparison(ntp: DeploymentPlan, sbd: DeploymentPlan) -> str:
    """SBD pays where its cheapest deployment costs less than NTP's, by more than the search leaves open; else never."""
    if sbd.usd is None or ntp.usd is None:
        return "which of the two costs less is not known, for want of a price"
    if max(sbd.usd, ntp.usd) > min(sbd.usd, ntp.usd) * CLOSE:
        return cheaper("SBD", sbd.usd, ntp.usd)
    return f"the two cost the same within the {CLOSE - 1:.0%} that the search leaves open"


def _device_by_device(plan: CapacityPlan) -> Iterator[str]:
    """On how many priced devices SBD costs less than NTP on the same device, estimates included."""
    both = [[row.usd for row in device.deployments if row.usd] for device in plan.devices]
    pairs = [pair for pair in both if len(pair) == 2]
    if len(pairs) > 1:
        yield f"device by device SBD costs less on {sum(sbd < ntp for ntp, sbd in pairs)} of {len(pairs)} with a price"


def _closest(plan: CapacityPlan) -> str:
    """What misses the goal by the least factor."""
    missed = [(refused.misses, refused) for refused in plan.refused if refused.misses is not None]
    if not missed:
        return "; the reasons are listed"
    misses, refused = min(missed, key=lambda pair: pair[0])
    method = (refused.method or "").upper()
    return f"; {method} on {refused.hardware} comes closest, {ratio(misses)} off: {refused.reason}"


def fitting_ranges(entry: BreakEven) -> Ranges:
    """The ranges of ``pays``, cut at the largest batch that fits."""
    fits = entry.largest_batch or 0
    return tuple((first, min(last, fits)) for first, last in entry.pays if first <= fits)


def pays_wherever_it_fits(entry: BreakEven) -> bool:
    """Whether SBD pays at every searched batch that fits."""
    return fitting_ranges(entry)[:1] == ((1, min(entry.largest_batch or 0, entry.searched_batch or 0)),)


def pays_words(entry: BreakEven | None) -> str:
    """The batches that fit and at which SBD pays: ``1..47 of 100``, ``all 100``, ``none of 100``."""
    if entry is None or entry.largest_batch is None:
        return "does not fit"
    if pays_wherever_it_fits(entry):
        searched = entry.searched_batch or 0
        all_fitting = entry.largest_batch <= searched
        return f"all {entry.largest_batch:,}" if all_fitting else f"1..{searched:,} (all searched) of {entry.largest_batch:,}"
    ranges = ", ".join(f"{first:,}..{last:,}" if first < last else f"{first:,}" for first, last in fitting_ranges(entry))
    return f"{ranges or 'none'} of {entry.largest_batch:,}"


def _goal(question: Question) -> str:
    goal, words = question.goal, "most tokens/s that fit"
    if goal.batch is not None:
        words = f"batch {goal.batch:,} per replica"
    if goal.tokens_per_s_per_user is not None:
        words = f"at least {goal.tokens_per_s_per_user:g} tokens/s per user"
    return words if goal.requests_per_s is None else f"{words}, {goal.requests_per_s:g} requests/s"


def _gains(device: DevicePlan) -> bool:
    """Whether SBD has more tokens/s per GPU, or NTP has no deployment."""
    speeds = [expected(row.tokens_per_s_per_gpu) or 0.0 for row in device.deployments]
    return len(speeds) == 1 or speeds[1] > speeds[0]


def _reach(entries: Sequence[tuple[BreakEven, str]]) -> Iterator[str]:
    """Devices by where SBD pays: at every batch that fits, at none, up to some batch, only from some batch on."""
    everywhere = sum(pays_wherever_it_fits(entry) for entry, _ in entries)
    nowhere = sum(not fitting_ranges(entry) for entry, _ in entries)
    until, since = [], []
    for entry, hardware in entries:
        ranges, fits = fitting_ranges(entry), entry.largest_batch or 0
        if ranges and not pays_wherever_it_fits(entry):
            until += [(ranges[-1][1], hardware)] * (ranges[-1][1] < fits)
            since += [(ranges[0][0], hardware)] * (ranges[0][0] > 1)
    if since:
        yield f"SBD needs a batch of at least {_span(sorted(since))} to pay"
    if until:
        yield f"SBD stops paying after batch {_span(sorted(until))}"
    if everywhere:
        yield f"on {everywhere} it pays at every batch that fits"
    if nowhere:
        yield f"on {nowhere} it pays at no batch that fits"


def _span(batches: Sequence[tuple[int, str]]) -> str:
    (low, first), (high, last) = batches[0], batches[-1]
    if low < high:
        return f"{low:,} ({first}) to {high:,} ({last})"
    return f"{low:,} ({first})" if len(batches) == 1 else f"{low:,} on {len(batches)} of them"


def _cheapest(plan: CapacityPlan) -> Iterator[str]:
    sbd = min((row for row in plan.deployments("sbd") if row.usd is not None), key=lambda row: row.order, default=None)
    if sbd is None or sbd.usd is None:
        yield "no price is known"
        return
    ntp = next((row.usd for row in plan.deployments("ntp") if row.hardware == sbd.hardware), None)
    beside = "no NTP there reaches it" if ntp is None else f"{cheaper('SBD', sbd.usd, ntp)} there"
    yield f"cheapest with SBD where a price is known: {sbd.hardware}, {sbd.usd:.3g} USD per million tokens ({beside})"


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


def notes_of(plan: CapacityPlan) -> Iterator[str]:
    """The assumptions after every figure of a plan, the most important first."""
    question, service = plan.question, plan.question.service
    yield from _of_prices(plan)
    yield from _of_acceptance(question.acceptance)
    yield from _of_work(question.workload) if service is None else _of_queue(service, chunks_of(question))
    yield (
        f"memory: weights, KV cache at its longest (SBD: two blocks more per row, which drafts look ahead), logits and one "
        f"layer's activations, in {1 - question.memory_reserve:.0%} of the device's label; the rest is kept for the runtime, "
        "fragmentation and prefill (an assumption)"
    )
    yield (
        "GPUs of one replica share every layer (tensor parallel) unless asked otherwise; their link is the device's own as far "
        "as it reaches, else PCIe (harness/hardware/links.py), with a latency for every transfer that waits"
    )
    shape, longest = question.shape, question.workload.longest_tokens
    if shape.max_positions is not None and longest > shape.max_positions:
        yield f"{longest:,} tokens are more than the {shape.max_positions:,} positions of {shape.name}'s config"
    if shape.moe is not None:
        yield (
            "experts visited: the expectation under uniform, independent routing, an upper estimate for tokens of one text; a "
            "block visits more experts than a token, which costs SBD part of its gain"
        )
    load = "at full load, without host, idle time or cooling" if service is None else "of all devices, per token delivered"
    yield f"USD: list price of the profile, power: the board's, an upper bound; {load}"


def _of_prices(plan: CapacityPlan) -> Iterator[str]:
    rungs = sorted({device.rung for device in plan.devices if device.rung})
    band = "; a band runs from nothing overlapped to memory and arithmetic fully overlapped"
    yield f"predicted, {' and '.join(rungs) or 'no'} rung, nothing was run{band * (plan.question.service is None)}"
    if "anchored" in rungs:
        yield f"the anchored rung is the datasheet times constants fitted to published speeds; {band_in_words()}"
    yield from dict.fromkeys(device.arithmetic for device in plan.devices if device.arithmetic)
    yield from dict.fromkeys(device.reached for device in plan.devices if device.reached)
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


def _of_work(workload: RowTokens) -> Iterator[str]:
    if workload.prompt_tokens is None:
        yield "decoding only: no prompt was given, so no prefill is in speed per GPU, GPUs, money or energy"
        return
    shared, read = "", "read whole, one at a time, while nothing is decoded"
    if workload.shared_tokens:
        shared = f", {workload.shared_tokens:,} of them shared and in the cache already"
    if workload.chunk_tokens is not None:
        read = f"read in chunks of {workload.chunk_tokens:,} beside the rows that decode"
    yield (
        f"prompts of {workload.prompt_tokens:,} tokens{shared}, {read}; what that takes from decoding is in speed per user and "
        "per GPU, GPUs, money and energy, for a replica that is always full"
    )
    yield (
        "a user's tokens/s count from the first token on; the time to it is that of a request admitted at once, so without "
        "any wait in a queue"
    )


def _of_queue(goal: ServiceGoal, chunks: Sequence[int]) -> Iterator[str]:
    if goal.users is not None:
        think = (
            f"thinks for exponential times of mean {seconds(goal.think_s)}"
            if goal.think_s
            else "sends the next request at once"
        )
        yield f"users: each {think}, so none has two requests; they are spread evenly over the replicas"
    elif goal.trace is not None:
        yield "a replica gets every R-th request of the trace; other loads stretch its times"
    else:
        yield "requests come as a Poisson process and go to a random replica; percentiles are those of 500 of them"
    if goal.trace is None:
        yield "every request has the same lengths; lengths that vary make queues longer (give a trace)"
    sizes = " or ".join(f"{size:,}" for size in sorted(chunks))
    which = " (whichever serves more, --chunk sets it)" if len(chunks) > 1 else ""
    yield (
        f"an engine step decodes every open row and reads waiting prompts, {sizes}{which} tokens of them at most; rows "
        "are admitted in order of arrival while memory has room for the longest; nothing is preempted, no prefix is shared"
    )
    yield (
        "the first rows of either method are simulated, percentiles included; the largest load of a replica is found to about "
        "5 %, so headroom is at least what is shown; the other rows are means of a steady load"
    )
