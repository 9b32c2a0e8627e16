"""Speedups of an imported run whose files hold no common prompts: NTP's files against the arm's, each as one mean.

A file is one process. By the geometric mean it has the geometric mean over requests of their time per token, by totals the time
of all by the tokens of all. Prompts that only one side has weigh on the ratio, and no interval shows that.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from operator import attrgetter
from statistics import geometric_mean, median

from harness.analysis.tally.tally import Tally
from harness.stats.quantity import Quantity, absent
from harness.stats.two_runs import ratio_of_processes

NO_TIMES = "no request of one of the two sides has a time and a token behind its first one"


def wall_speedups(ntp: Sequence[Tally], arm: Sequence[Tally], confidence: float) -> tuple[Quantity, Quantity]:
    """Decode time per decode token, NTP ÷ arm: geometric mean and ratio of totals."""
    return _speedups(ntp, arm, attrgetter("decode_s"), attrgetter("decode_tokens"), confidence)


def request_speedups(ntp: Sequence[Tally], arm: Sequence[Tally], confidence: float) -> tuple[Quantity, Quantity]:
    """Request time per output token, NTP ÷ arm: geometric mean and ratio of totals."""
    return _speedups(ntp, arm, attrgetter("latency_s"), attrgetter("output_tokens"), confidence)


def whole(tallies: Sequence[Tally]) -> Tally:
    """All requests of a file as one: times and tokens added up, the time of the prompt their median."""
    prompts_s = [one.prompt_s for one in tallies if one.prompt_s is not None]
    return replace(
        tallies[0],
        prompts=(),
        outputs=(),
        distinct4=(),
        correct=(),
        clusters=(),
        decode_s=math.fsum(one.decode_s or 0.0 for one in tallies),
        decode_tokens=sum(one.decode_tokens for one in tallies),
        latency_s=math.fsum(one.latency_s or 0.0 for one in tallies),
        output_tokens=sum(one.output_tokens for one in tallies),
        prompt_s=median(prompts_s) if prompts_s else None,
    )


def _speedups(
    ntp: Sequence[Tally],
    arm: Sequence[Tally],
    seconds: Callable[[Tally], float | None],
    tokens: Callable[[Tally], int],
    confidence: float,
) -> tuple[Quantity, Quantity]:
    sides = [_by_process(side, seconds, tokens) for side in (ntp, arm)]
    if not all(sides):
        return absent(NO_TIMES), absent(NO_TIMES)
    requests = min(sum(map(len, side)) for side in sides)
    means = [[geometric_mean(time / count for time, count in of_file) for of_file in side] for side in sides]
    totals = [[math.fsum(s for s, _ in of_file) / sum(n for _, n in of_file) for of_file in side] for side in sides]
    mean, total = (ratio_of_processes(over, under, requests, confidence) for over, under in (means, totals))
    return mean, total


def _by_process(
    tallies: Sequence[Tally], seconds: Callable[[Tally], float | None], tokens: Callable[[Tally], int]
) -> list[list[tuple[float, int]]]:
    """(seconds, tokens) of every request that has both, by process."""
    found: dict[int, list[tuple[float, int]]] = {}
    for one in tallies:
        time, count = seconds(one), tokens(one)
        if time and count > 0:
            found.setdefault(one.key[3], []).append((time, count))
    return [found[process] for process in sorted(found)]
