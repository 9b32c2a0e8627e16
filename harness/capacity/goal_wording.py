"""The answer of a goal plan in words, what it assumes, and what comes closest where no deployment keeps the goal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from harness.capacity.goals import DeploymentPlan, GoalPlan, ServiceGoal
from harness.capacity.plan import Question
from harness.capacity.trials import CLOSE
from harness.capacity.wording import cheaper
from harness.formatting import rate, ratio, seconds


def asked(plan: GoalPlan) -> str:
    """The load and what is promised."""
    goal = plan.goal
    tokens = f"{goal.prompt_tokens:,} prompt and {goal.output_tokens:,} output tokens each"
    if goal.trace is not None:
        tokens = f"as in a trace of {len(goal.trace.at_s):,}"
    promised = [f"a first token within {seconds(goal.ttft_s)}"]
    if goal.tokens_per_s is not None:
        promised.insert(0, f"at least {goal.tokens_per_s:g} tokens/s per user")
    return f"{plan.model}, {_load(goal)}, {tokens}; {' and '.join(promised)}, for {goal.percentile:g} % of the requests"


def _load(goal: ServiceGoal) -> str:
    if goal.users is not None:
        think = f" but for {seconds(goal.think_s)} after an answer" if goal.think_s else " at all times"
        return f"{goal.users:,} users with a request in flight{think}"
    return f"{goal.load:.3g} requests/s"


def answer(plan: GoalPlan) -> str:
    """The cheapest deployment with either method, and which of the two costs less."""
    best = [ranked[0] for ranked in (plan.ntp, plan.sbd) if ranked]
    if not best:
        return f"{asked(plan)}: no deployment keeps this{_closest(plan)}."
    clauses = [_deployment(one) for one in best]
    if len(best) == 2:
        clauses += [_comparison(*best), *_device_by_device(plan)]
    else:
        other = "sbd" if best[0].method == "ntp" else "ntp"
        clauses.append(f"no deployment with {other.upper()} keeps this")
    return f"{asked(plan)}: {'; '.join(clauses)}."


def _deployment(one: DeploymentPlan) -> str:
    split = f" in {one.replicas:,} replicas of {one.tensor_parallel}" if one.gpus > 1 else ""
    usd = one.usd_per_million_tokens
    cost = "price not known" if usd is None else f"{rate(usd)} USD per million tokens"
    return f"{one.method.upper()} on {one.gpus:,} {one.hardware}{split}, {cost}"


def _comparison(ntp: DeploymentPlan, sbd: DeploymentPlan) -> str:
    """SBD pays where its cheapest deployment costs less than NTP's, by more than the search leaves open; else never."""
    mine, theirs = sbd.usd_per_million_tokens, ntp.usd_per_million_tokens
    if mine is None or theirs is None:
        return "which of the two costs less is not known, for want of a price"
    if max(mine, theirs) > min(mine, theirs) * CLOSE:
        return cheaper("SBD", mine, theirs)
    return f"the two cost the same within the {CLOSE - 1:.0%} that the search leaves open"


def _device_by_device(plan: GoalPlan) -> Iterator[str]:
    """On how many priced devices SBD costs less than NTP on the same device, estimates included."""
    ntp, sbd = (
        {one.hardware: one.usd_per_million_tokens for one in ranked if one.usd_per_million_tokens}
        for ranked in (plan.ntp, plan.sbd)
    )
    both = ntp.keys() & sbd.keys()
    if len(both) > 1:
        yield f"device by device SBD costs less on {sum(sbd[name] < ntp[name] for name in both)} of {len(both)} with a price"


def _closest(plan: GoalPlan) -> str:
    """What misses the goal by the least factor."""
    missed = [(one.misses, one) for one in plan.refused if one.misses is not None]
    if not missed:
        return "; the reasons are listed"
    misses, one = min(missed, key=lambda pair: pair[0])
    method = (one.method or "").upper()
    return f"; {method} on {one.hardware} comes closest, {ratio(misses)} off: {one.reason}"


def assumptions(question: Question, plan: GoalPlan, chunks: Sequence[int]) -> Iterator[str]:
    """Behind every figure, the most important first."""
    acceptance, goal = plan.acceptance, plan.goal
    rungs = sorted({one.rung for one in (*plan.ntp, *plan.sbd)})
    told = f"predicted, {' and '.join(rungs) or 'no'} rung, nothing was run"
    yield told + ("; the datasheet rung takes peaks as reached and knows no launch cost" if "datasheet" in rungs else "")
    yield from dict.fromkeys(one.arithmetic for one in (*plan.ntp, *plan.sbd))
    yield (
        f"acceptance: {acceptance.source}; k = {acceptance.block_size}, {acceptance.nfe_speedup:.2f} tokens per pass of a row; "
        "no row waits for another one"
    )
    yield from _of_load(goal)
    yield (
        f"an engine step decodes every open row and reads waiting prompts, {_sizes(chunks)} tokens of them at most; rows "
        "are admitted in order of arrival while memory has room for the longest; nothing is preempted, no prefix is shared"
    )
    yield (
        f"memory: weights, KV cache at its longest (SBD: two blocks more per row, which drafts look ahead), logits and one "
        f"layer's activations, in {1 - plan.memory_reserve:.0%} of the device's label"
    )
    yield (
        "the first rows of either method are simulated, percentiles included; the largest load of a replica is found to about "
        "5 %, so headroom is at least what is shown; the other rows are means of a steady load"
    )
    yield "USD: list price of the profile, power: the board's, an upper bound; of all devices, per token delivered"
    longest, shape = goal.longest_tokens, question.shape
    if shape.max_positions is not None and longest > shape.max_positions:
        yield f"{longest:,} tokens are more than the {shape.max_positions:,} positions of {shape.name}'s config"


def _sizes(chunks: Sequence[int]) -> str:
    listed = " or ".join(f"{size:,}" for size in sorted(chunks))
    return listed if len(chunks) == 1 else f"{listed} (whichever serves more, --chunk sets it)"


def _of_load(goal: ServiceGoal) -> Iterator[str]:
    if goal.users is not None:
        think = "sends the next request at once"
        if goal.think_s:
            think = f"thinks for exponential times of mean {seconds(goal.think_s)}"
        yield f"users: each {think}, so none has two requests; they are spread evenly over the replicas"
    elif goal.trace is not None:
        yield "a replica gets every R-th request of the trace; other loads stretch its times"
    else:
        yield "requests come as a Poisson process and go to a random replica; percentiles are those of 500 of them"
    if goal.trace is None:
        yield "every request has the same lengths; lengths that vary make queues longer (give a trace)"


def not_simulated(ranked: Sequence[DeploymentPlan]) -> int:
    """Deployments whose figures are means."""
    return sum(not one.simulated for one in ranked)
