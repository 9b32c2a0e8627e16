"""Figures over the requests of a served arm: percentiles of what they waited for, rates and goodput, and each against NTP's.

One figure a process, over the requests that count in all its samples (harness.analysis.tally.requests). The interval is over
processes, each with arrivals of its own, and with prompts of its own where they are generated. A percentile's ratio to NTP's is
of all processes together.

A percentile is the median-unbiased one (R. Hyndman and Y. Fan, The American Statistician 50, 1996, 361, definition 8). Other
benchmarks take the linear one, which is too low for a high percentile of few requests. With 40 it confirmed "at most the truth"
in 5 to 14 % of simulated runs, this one in 2 to 3 % (benchmarks/simulated_load, 95th of time per token and whole request).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from harness.analysis.figures.arms import ArmBesideNtp, Figures, figure
from harness.analysis.tally.requests import TalliedRequest, Window
from harness.analysis.tally.tally import Decodes, Key
from harness.frozen import frozen
from harness.scenario.metrics import REQUEST_PERCENTILES, WAITS, names_of
from harness.stats.quantity import Quantity, absent
from harness.stats.two_runs import over_processes, percentile_ratio, within_pooled

BEYOND = 5
"""Requests of a process to be expected beyond a percentile that has an interval: a burst of a queue holds several."""
NO_LIMITS = "the load states no limits of a good request (first_token_s, time_per_token_s)"
NOT_STEADY = "no request counts: the load was never steady, for it has too few requests"
NO_LENGTH = "the steady part of a load has no length"
NO_NTP = "NTP is what the other arms are compared with, and this part has no other with times of requests"


@frozen
class RequestCounts:
    """Requests of an arm over all its samples: those that count, and those left out because the load was not steady.

    ``shortest``: the fewest that count in a process. ``steady_s``: seconds of the steady parts together.
    """

    counted: int
    left_out: int
    shortest: int
    steady_s: float


Place = tuple[Key, int]
"""Of a request: its decode, and its place in it."""


@frozen
class _OfProcess:
    """What one process gave; a text is why it has no such figure."""

    requests: Mapping[Place, TalliedRequest]
    windows: tuple[Window, ...]

    @property
    def counted(self) -> list[TalliedRequest]:
        """The requests that count."""
        return [one for one in self.requests.values() if one.counted]

    def beside(self, other: _OfProcess) -> _OfProcess:
        """With the requests alone that count in the other too: a longer lead-in leaves out more of them."""
        both = {at: one for at, one in self.requests.items() if at in other.requests and other.requests[at].counted}
        return replace(self, requests=both)

    @property
    def steady_s(self) -> float:
        return sum(one.length_s for one in self.windows)

    def waited_s(self, wait: str) -> list[float]:
        """What its requests waited for, or the gaps between the pieces of their answers."""
        if wait == "inter_token":
            return [gap_s for one in self.counted for gap_s in one.gaps_s]
        return [seconds for one in self.counted if (seconds := getattr(one, f"{wait}_s")) is not None]

    def percentiles(self, wait: str) -> dict[int, float | str]:
        """Those of REQUEST_PERCENTILES: at least one value is to be expected beyond each."""
        values, percents = self.waited_s(wait), list(REQUEST_PERCENTILES)
        found: list[float] = np.percentile(values or [0.0], percents, method="median_unbiased").tolist()
        return {
            percent: one if (why := _few(len(values), wait, percent, 1)) is None else why if self.counted else NOT_STEADY
            for percent, one in zip(percents, found, strict=True)
        }

    def per_s(self, what: str) -> float | str:
        """Of a field of Window."""
        return sum(getattr(one, what) for one in self.windows) / self.steady_s if self.steady_s > 0 else NO_LENGTH

    def goodput_per_s(self) -> float | str:
        """Share of good requests among those that count, times the rate at which requests came."""
        good, came_per_s = [one.good for one in self.counted], self.per_s("came")
        if not good or None in good or isinstance(came_per_s, str):
            return NO_LIMITS
        return sum(map(bool, good)) / len(good) * came_per_s


Processes = Mapping[int, _OfProcess]
"""By their numbers."""
RATES = {"throughput_tokens_per_s": "tokens", "goodput_per_s": None, "requests_per_s": "answered", "in_flight": "waited_s"}
"""By the field of Window of which they are the sum a second; goodput by the requests that count."""
RATIOS = {"throughput_tokens_per_s": "throughput_ratio", "goodput_per_s": "goodput_ratio"}
"""Of these rates, to NTP's."""


def request_counts(tallies: Decodes) -> RequestCounts | None:
    """None where no request has times of its own."""
    found = _by_process(tallies)
    if not found:
        return None
    return RequestCounts(
        counted=sum(len(one.counted) for one in found.values()),
        left_out=sum(window.left_out for one in found.values() for window in one.windows),
        shortest=min(len(one.counted) for one in found.values()),
        steady_s=sum(one.steady_s for one in found.values()),
    )


@figure(*names_of(lambda row: row.of_requests))
def request_figures(one: ArmBesideNtp, level: float) -> Figures:
    """With ``requests_per_s`` and ``in_flight`` beside them; empty where no request has times."""
    own = _by_process(one.arm.tallies)
    if not own:
        return {}
    other = _by_process(one.reference.tallies) if one.reference is not None else {}
    both, beside = ({at: one.beside(b[at]) for at, one in a.items() if at in b} for a, b in ((own, other), (other, own)))
    found: Figures = {}
    for wait in WAITS:
        every = [{at: each.percentiles(wait) for at, each in side.items()} for side in (both, beside, own)]
        values, over, under = (
            [side[at].waited_s(wait) for at in of] for side, of in ((own, own), (beside, both), (both, both))
        )
        for percent in REQUEST_PERCENTILES:
            mine, theirs, ours = ({at: each[percent] for at, each in side.items()} for side in every)
            waited, sped = _one_side(own, ours, level), _ratio(both, theirs, mine, level)
            if sped.value is not None:
                sped = percentile_ratio(over, under, percent, sped.n, level)
            why = _few(min(map(len, values)), wait, percent, BEYOND)
            waited = waited.without_interval(why) if why else within_pooled(waited, values, percent, level)
            found[f"{wait}_p{percent}_s"] = waited
            found[f"{wait}_p{percent}_speedup"] = sped.without_interval(why) if why else sped
    for name, what in RATES.items():
        mine, theirs = (
            {at: each.per_s(what) if what else each.goodput_per_s() for at, each in side.items()} for side in (own, other)
        )
        found[name] = _one_side(own, mine, level)
        if name in RATIOS:
            found[RATIOS[name]] = _ratio(own, mine, theirs, level)
    return found


def percentile_by_process(tallies: Decodes, name: str) -> dict[int, float | str]:
    """The percentile ``name`` (``first_token_p95_s``) of every process, or why it has none; for a gate."""
    wait, _, rest = name.rpartition("_p")
    return {process: one.percentiles(wait)[int(rest.removesuffix("_s"))] for process, one in _by_process(tallies).items()}


def _by_process(tallies: Decodes) -> dict[int, _OfProcess]:
    requests: dict[int, dict[Place, TalliedRequest]] = {}
    for one in tallies:
        requests.setdefault(one.key[3], {}).update(((one.key, at), each) for at, each in enumerate(one.requests))
    return {
        process: _OfProcess(requests=found, windows=tuple({id(one.window): one.window for one in found.values()}.values()))
        for process, found in requests.items()
        if found
    }


def _few(count: int, wait: str, percent: int, beyond: int) -> str | None:
    """Why so many values are too few for ``beyond`` of them to be expected beyond the percentile."""
    needed = beyond * round(100 / (100 - percent))
    if count >= needed:
        return None
    what, it = "gaps" if wait == "inter_token" else "requests", f"percentile {percent}" if beyond == 1 else "its interval"
    return f"{count} {what} that count in a process; {it} takes {needed}"


def _one_side(found: Processes, values: Mapping[int, float | str], confidence: float) -> Quantity:
    if reason := next((one for one in values.values() if isinstance(one, str)), None):
        return absent(reason)
    known = [one for one in values.values() if not isinstance(one, str)]
    return over_processes(known, sum(len(one.counted) for one in found.values()), confidence)


def _ratio(found: Processes, over: Mapping[int, float | str], under: Mapping[int, float | str], confidence: float) -> Quantity:
    """Process by process, of those that both have."""
    if not over or not under:
        return absent(NO_NTP)
    shared = [process for process in over if process in under]
    pairs = [(over[process], under[process]) for process in shared]
    if reason := next((one for pair in pairs for one in pair if isinstance(one, str)), None):
        return absent(reason)
    known = [(float(a), float(b)) for a, b in pairs]
    if not known or any(b <= 0 for _, b in known):
        return absent("no process of both has the figure" if not known else "a figure is 0: no ratio")
    counted = sum(len(found[process].counted) for process in shared if process in found)
    return over_processes([a / b for a, b in known], counted, confidence)
