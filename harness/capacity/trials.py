"""A replica's load in simulation: what its requests wait for, and the largest load that keeps the goal.

All draws have one seed, so that a question has one answer.
"""

from __future__ import annotations

from collections.abc import Callable
from math import ceil, inf, sqrt

import numpy as np

from harness.capacity.question import ServiceGoal
from harness.capacity.queueing import Arrivals, QueueEngine, ServedRequests, closed_loop, poisson, simulate
from harness.frozen import frozen

SEED = 1
REPEATED, DRAWN = 300, 500
"""Requests after the warm-up: where all are alike, and where chance decides; of 500 a 95th percentile has 25 beyond it."""
MOST_TRACED = 2000
TRIALS = 8
UP, DOWN, CLOSE = 1.1, 1.25, 1.05  # ratios of loads: between trials while the limit is not enclosed; where it is close enough


@frozen
class Trial:
    """Figures of one replica at one load; of users' speeds None where answers have one token."""

    load: float
    ttft_p50_s: float
    ttft_s: float
    tokens_per_s_p50: float | None
    tokens_per_s: float | None
    requests_per_s: float
    mean_batch: float
    peak_batch: int
    busy: float

    def keeps(self, goal: ServiceGoal) -> bool:
        """Whether the goal holds."""
        fast = goal.tokens_per_s is None or self.tokens_per_s is None or self.tokens_per_s >= goal.tokens_per_s
        return fast and self.ttft_s <= goal.ttft_s


def trial(goal: ServiceGoal, engine: QueueEngine, load: float, request_s: float) -> Trial:
    """Simulate one replica. ``request_s``: what a request takes without a queue, roughly."""
    arrivals, warm, last = _arrivals(goal, load, request_s)
    served = simulate(engine, arrivals)
    seen = served.steady(warm, last)
    asked, per_token_s = [50, goal.percentile], seen.time_per_token_s
    known = per_token_s[~np.isnan(per_token_s)]
    waited, slow = np.percentile(seen.waited_s, asked), np.percentile(known, asked).tolist() if len(known) else None
    stayed_s = float((seen.finished_s - seen.arrived_s).mean())
    requests_per_s = load / (stayed_s + goal.think_s) if goal.users is not None else load
    return Trial(
        load=load,
        ttft_p50_s=float(waited[0]),
        ttft_s=float(waited[1]),
        tokens_per_s_p50=1 / slow[0] if slow else None,
        tokens_per_s=1 / slow[1] if slow else None,
        requests_per_s=requests_per_s,
        mean_batch=requests_per_s * float((seen.finished_s - seen.first_token_s).mean()),  # Little's law
        peak_batch=_peak(served),
        busy=served.busy_s / float(served.finished_s.max()),
    )


def largest_kept(keeps: Callable[[float], bool], start: float, whole: bool) -> float:
    """The largest load that ``keeps`` the goal, to about 5 %: from ``start`` outwards, then halved. 0: none was found.

    ``whole``: only whole numbers, from 1.
    """
    good, bad, load = 0.0, inf, max(1.0, float(int(start))) if whole else start
    for _ in range(TRIALS):
        if keeps(load):
            good = load
        else:
            bad = load
        if bad / max(good, 1e-300) < CLOSE or (whole and bad - good <= 1):
            break
        load = good * UP if bad == inf else bad / DOWN if good == 0 else sqrt(good * bad)
        if whole:
            load = float(ceil(load)) if bad == inf else min(max(float(int(load)), good + 1), bad - 1)
    return good


def _arrivals(goal: ServiceGoal, load: float, request_s: float) -> tuple[Arrivals, float, float]:
    """Requests of one replica, the share of them that warms it up, and that of the last ones, which see it drain."""
    if goal.trace is not None:
        return _of_trace(goal, load), 0.1, 0.05
    over_s, chance = request_s + goal.think_s, goal.users is None or goal.think_s > 0
    open_ = ceil(load * request_s / (over_s if goal.users is not None else 1))  # about so many are in the replica
    warm = (2 if chance else 1) * open_ + 50
    requests = warm + (DRAWN if chance else REPEATED) + open_
    prompts, outputs = [goal.prompt_tokens] * requests, [goal.output_tokens] * requests
    if goal.users is None:
        arrivals = poisson(load, prompts, outputs, seed=SEED)
    else:
        arrivals = closed_loop(int(load), goal.think_s, prompts, outputs, over_s=over_s, seed=SEED if chance else None)
    return arrivals, warm / requests, open_ / requests


def _of_trace(goal: ServiceGoal, load: float) -> Arrivals:
    """Every R-th request of the trace, its times stretched so that the mean rate is ``load``."""
    assert goal.trace is not None
    trace, whole = goal.trace, goal.trace.requests_per_s
    every = max(1, min(round(whole / load), len(trace.at_s) // 2))
    picked = slice(0, MOST_TRACED * every, every)
    stretch = whole / every / load
    return Arrivals(
        at_s=[at_s * stretch for at_s in trace.at_s[picked]],
        prompt_tokens=trace.prompt_tokens[picked],
        output_tokens=trace.output_tokens[picked],
    )


def _peak(served: ServedRequests) -> int:
    """Most rows that decode at once."""
    times = np.concatenate((served.first_token_s, served.finished_s))
    change = np.concatenate((np.ones(len(served.first_token_s)), -np.ones(len(served.finished_s))))
    return int(np.cumsum(change[np.lexsort((change, times))]).max())
