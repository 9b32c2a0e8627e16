"""Figures of imported runs whose files are compared as wholes, because their requests have no pairs."""

from __future__ import annotations

import math
from dataclasses import replace
from operator import attrgetter
from statistics import median

from harness.analysis.tally.tally import Decodes, Tally
from harness.stats.quantity import Quantity, absent
from harness.stats.two_runs import ratio_of_files

NO_REQUEST_TIMES = "no request of one of the two sides has a time and a token after its first one"


def whole(tallies: Decodes) -> Tally:
    """All requests of a file as one: times and tokens added up, the time of the prompt their median."""
    prompts_s = [one.prompt_s for one in tallies if one.prompt_s is not None]
    return replace(
        tallies[0],
        answers=(),
        decode_s=math.fsum(one.decode_s or 0.0 for one in tallies),
        decode_tokens=sum(one.decode_tokens for one in tallies),
        latency_s=math.fsum(one.latency_s or 0.0 for one in tallies),
        output_tokens=sum(one.output_tokens for one in tallies),
        prompt_s=median(prompts_s) if prompts_s else None,
    )


def speedups_of_files(
    ntp: Decodes, arm: Decodes, seconds: str, tokens: str, widest: int, confidence: float
) -> tuple[Quantity, Quantity]:
    """Seconds per token, NTP ÷ arm, where the files of an imported run hold no common prompts: geometric mean, ratio of totals.

    A file is one process. By the geometric mean it has the geometric mean over requests of their time per token, by totals the
    time of all by the tokens of all, to which each request adds its influence.

    Args:
        widest: most requests of a file, for a group is file · widest + place (harness.record.imports.samples).
    """
    sides = [_by_process(side, attrgetter(seconds, tokens), widest) for side in (ntp, arm)]
    if not all(sides):
        return absent(NO_REQUEST_TIMES), absent(NO_REQUEST_TIMES)
    means = [[{at: math.log(time / count) for at, (time, count) in file.items()} for file in side] for side in sides]
    totals = [[*map(_influence, side)] for side in sides]
    return ratio_of_files(means[0], means[1], confidence), ratio_of_files(totals[0], totals[1], confidence)


Requests = dict[int, tuple[float, int]]
"""(seconds, tokens) of the requests of a file, by place."""


def _influence(file: Requests) -> dict[int, float]:
    """What each request adds to the log of (all seconds ÷ all tokens), the mean over them (delta method)."""
    time_s, tokens = math.fsum(time for time, _ in file.values()), sum(count for _, count in file.values())
    own, n = math.log(time_s / tokens), len(file)
    return {at: own + n * (time / time_s - count / tokens) for at, (time, count) in file.items()}


def _by_process(tallies: Decodes, of: attrgetter[tuple[float | None, int]], widest: int) -> list[Requests]:
    """Every request that has both, by process."""
    found: dict[int, Requests] = {}
    for one in tallies:
        time, count = of(one)
        if time and count > 0:
            found.setdefault(one.key[3], {})[one.key[1] % widest] = time, count
    return [found[process] for process in sorted(found)]
