"""One run of NTP and a faster arm under a load, simulated: when every request was sent and answered, with a known truth.

With n requests in flight, at most ``slots``, a pass of the server takes PASS_S · (1 + FURTHER · (n - 1)) seconds. Who finds no
slot waits in order of arrival: processor sharing with c slots, a fluid of passes. It is solved event by event in the virtual
time of L. Kleinrock, Queueing Systems II, 1976, section 4.4. A request takes PROMPT_PASSES to its first token. Then NTP takes a
pass for each further token, and the arm so many times fewer. Prompts differ in length (sd LENGTH_SD) and in the arm's gain (sd
GAIN_SD), starts in the speed of their machine (sd START_SD, half of its variance in both arms).

    shape = LoadShape(kind="poisson", utilisation=0.7, requests=48, starts=3)
    drawn = simulated(shape, np.random.default_rng(1))     # {"ntp": [Start, ...], "arm": [Start, ...]}, of each process one
    one = beside(shape, drawn)                             # as analysis has the arm of a record
    one.figure("request_p95_speedup", 0.95), truth(shape)["request_p95_speedup"]

``same_draw=True`` gives every start the same arrivals and prompts, as records had before issue 48.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import accumulate
from typing import Any, Literal

import numpy as np

from harness.analysis.figures.arms import Arm, ArmBesideNtp, CellContext
from harness.analysis.tally.by_request import tallies_of
from harness.record.schema import CaseHeader, RowResult, RowTimes, Sample
from harness.record.written import WrittenArm
from harness.scenario.load import Load

PASS_S, FURTHER, PROMPT_PASSES = 0.02, 0.1, 2.0
TOKENS, LENGTH_SD, GAIN_SD, START_SD, COMMON = 40, 0.5, 0.2, 0.02, 0.5
LOADS = {"half": 0.5, "moderate": 0.7, "near full": 0.9}
"""Utilisations of Poisson arrivals, of the most that NTP's server can answer."""
LONG_STARTS, LONG_REQUESTS, LONG_WARM = 48, 4_000, 500
"""A truth is that of so many starts with so many requests, of which the first ones are left out."""
WAITS = ("first_token", "time_per_token", "request")


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadShape:
    """``kind``: Poisson arrivals at ``utilisation`` of what NTP's server can answer, or a closed loop of ``slots``.

    ``requests``: of one start. ``speedup``: tokens of the arm's pass, on average (geometric mean). 1: both arms are alike.
    """

    kind: Literal["poisson", "closed"]
    requests: int
    starts: int
    utilisation: float = 0.7
    speedup: float = 1.3
    slots: int = 4
    same_draw: bool = False

    @property
    def requests_per_s(self) -> float:
        """Rate of the arrivals; NTP's most is ``slots`` requests in the time that one takes among so many."""
        mean_passes = PROMPT_PASSES + TOKENS * math.exp(LENGTH_SD**2 / 2)
        return self.utilisation * self.slots / (mean_passes * PASS_S * (1 + FURTHER * (self.slots - 1)))

    @property
    def load(self) -> Load:
        """As a scenario says it; a good request has its first token and its tokens in the time of an idle server and a half."""
        limits = {"first_token_s": 1.5 * PROMPT_PASSES * PASS_S, "time_per_token_s": 1.5 * PASS_S}
        if self.kind == "closed":
            return Load(concurrency=(self.slots,), requests=self.requests, **limits)
        return Load(requests_per_s=self.requests_per_s, requests=self.requests, **limits)

    @property
    def in_flight(self) -> int:
        """Most requests of a sample in flight: its batch size."""
        return self.slots if self.kind == "closed" else self.requests


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """One arm in one process: request by request, in the order of sending. ``prompts``: equal numbers are equal prompts."""

    times: list[RowTimes]
    tokens: list[int]
    prompts: list[int]


def simulated(shape: LoadShape, random: np.random.Generator) -> dict[str, list[Start]]:
    """NTP (``ntp``) and the arm (``arm``) in every start; both have the same arrivals and prompts."""
    found: dict[str, list[Start]] = {"ntp": [], "arm": []}
    drawn = None
    for number in range(shape.starts):
        if drawn is None or not shape.same_draw:
            drawn = _drawn(shape, random)
        sent, tokens, gains = drawn
        common = math.sqrt(COMMON) * random.normal()
        first = 0 if shape.same_draw else number * shape.requests
        for arm in found:
            slower = math.exp(START_SD * (common + math.sqrt(1 - COMMON) * random.normal()))
            passes = (tokens - 1) / (gains if arm == "arm" else 1.0)
            found[arm].append(
                Start(
                    times=answered(sent, passes.tolist(), shape.slots, PASS_S * slower),
                    tokens=tokens.astype(int).tolist(),
                    prompts=list(range(first, first + shape.requests)),
                )
            )
    return found


def _drawn(shape: LoadShape, random: np.random.Generator) -> tuple[list[float] | None, np.ndarray, np.ndarray]:
    """Arrivals (None: a closed loop), tokens of the answers, and how many tokens a pass of the arm makes."""
    tokens = np.maximum(2.0, np.round(TOKENS * np.exp(LENGTH_SD * random.normal(size=shape.requests))))
    gains = shape.speedup * np.exp(GAIN_SD * random.normal(size=shape.requests))
    if shape.kind == "closed":
        return None, tokens, gains
    gaps = random.exponential(1 / shape.requests_per_s, size=shape.requests - 1).tolist()
    return list(accumulate([0.0, *gaps])), tokens, gains


def answered(sent: Sequence[float] | None, passes: Sequence[float], slots: int, pass_s: float) -> list[RowTimes]:
    """What the client of such a server sees.

    Args:
        sent: seconds of sending; None: at most ``slots`` in flight, the next one is sent when one is answered.
        passes: of every request, after its first token.
        pass_s: of a pass with one request.
    """
    coming = deque(enumerate(sent if sent is not None else [0.0] * len(passes)))
    waiting: deque[int] = deque()
    ends: list[tuple[float, int]] = []  # virtual time of the end of those in flight
    now, virtual = 0.0, 0.0
    at, of = [0.0], [0.0]  # real time at virtual times, linear between them
    begun, began, last = [0.0] * len(passes), [0.0] * len(passes), [0.0] * len(passes)
    while coming or waiting or ends:
        each_s = pass_s * (1 + FURTHER * (len(ends) - 1))
        end_s = now + (ends[0][0] - virtual) * each_s if ends else math.inf
        come_s = coming[0][1] if coming and (sent is not None or len(ends) < slots) else math.inf
        come_s = max(come_s, now)
        if come_s < end_s:
            virtual += (come_s - now) / each_s if ends else 0.0
            now = come_s
            number = coming.popleft()[0]
            begun[number] = now
            waiting.append(number)
        else:
            now, (virtual, number) = end_s, heapq.heappop(ends)
            last[number] = now
        at.append(now)
        of.append(virtual)
        while waiting and len(ends) < slots:
            number = waiting.popleft()
            began[number] = virtual
            heapq.heappush(ends, (virtual + PROMPT_PASSES + passes[number], number))
    first = np.interp(np.asarray(began) + PROMPT_PASSES, of, at).tolist()
    return [
        RowTimes.model_construct(sent_s=a, first_token_s=b - a, last_token_s=c - a, gaps_s=None)
        for a, b, c in zip(begun, first, last, strict=True)
    ]


def beside(shape: LoadShape, drawn: Mapping[str, Sequence[Start]]) -> ArmBesideNtp:
    """The arm beside NTP as analysis has them of a record, ready for ``figure(name, level)`` of METRICS."""
    arms = {name: _arm(shape, name, starts) for name, starts in drawn.items()}
    nothing: dict[str, Any] = dict.fromkeys(CellContext.__dataclass_fields__)
    place = CellContext(
        **nothing
        | {"timed": True, "load": shape.load, "voids": {}, "remarks": (), "imported": (), "lacks": {}, "files": (), "widest": 1}
    )
    return ArmBesideNtp(arm=arms["arm"], ntp=arms["ntp"], place=place)


def _arm(shape: LoadShape, name: str, starts: Sequence[Start]) -> Arm:
    method = WrittenArm.model_validate({"method": "ntp" if name == "ntp" else "served"})
    given: dict[str, Any] = {"case_id": name, "part": "load", "arm": method, "label": name, "batch_size": shape.in_flight}
    case = CaseHeader.model_construct(**given | {"task": "simulated", "device": "cpu", "timed": True})
    samples = [_sample(name, process, start) for process, start in enumerate(starts)]
    return Arm(cases=(case,), tallies=tuple(t for one in samples for t in tallies_of(case, one, shape.load, None, None)))


def _sample(case_id: str, process: int, start: Start) -> Sample:
    ungraded: dict[str, Any] = {"prompt_tokens": 1, "output_ids": None, "correct": None, "ungraded_reason": "simulated"}
    rows = [
        RowResult.model_construct(prompt_id=f"simulated/{prompt}", output_tokens=tokens, times=times, **ungraded)
        for prompt, tokens, times in zip(start.prompts, start.tokens, start.times, strict=True)
    ]
    whole = max(one.sent_s + one.last_token_s for one in start.times)
    given: dict[str, Any] = {"case_id": case_id, "group": 0, "repeat": 0, "process": process, "warmup": False, "rows": rows}
    given |= {"prefill_s": 0.0, "decode_s": whole, "started_at": None, "meters": {}, "meter_reasons": {}}
    return Sample.model_construct(**given | {"seed": start.prompts[0], "packed_passes": None})


@cache
def truth(shape: LoadShape) -> dict[str, float]:
    """The true figures, by their names in METRICS: geometric means over long starts, worked out here and not by analysis.

    ``shape.requests``, ``starts`` and ``same_draw`` do not matter. A start of few requests differs from it by chance, and by
    the bias of a percentile of few.
    """
    long = replace(shape, requests=LONG_REQUESTS, starts=LONG_STARTS, same_draw=False)
    if long != shape:
        return truth(replace(long))
    drawn = simulated(long, np.random.default_rng(48))
    logs = [_of_start(long, one, other) for one, other in zip(drawn["ntp"], drawn["arm"], strict=True)]
    return {name: math.exp(sum(one[name] for one in logs) / len(logs)) for name in logs[0]}


def _of_start(shape: LoadShape, ntp: Start, arm: Start) -> dict[str, float]:
    """Logarithms of the figures of one long start."""
    kept = slice(LONG_WARM, shape.requests - (LONG_WARM if shape.kind == "closed" else 0))
    found: dict[str, float] = {}
    rates: list[dict[str, float]] = []
    sides = [_waits(one) for one in (ntp, arm)]
    for wait in WAITS:
        for percent in (50, 95):
            values = [math.log(float(np.percentile(side[wait][kept], percent))) for side in sides]
            found[f"{wait}_p{percent}_s"] = values[1]
            found[f"{wait}_p{percent}_speedup"] = values[0] - values[1]
    for side, one in zip(sides, (ntp, arm), strict=True):
        rates.append(_rates(shape, one, side, kept))
    found |= {name: math.log(value) for name, value in rates[1].items()}
    for rate, ratio in (("throughput_tokens_per_s", "throughput_ratio"), ("goodput_per_s", "goodput_ratio")):
        found[ratio] = math.log(rates[1][rate] / rates[0][rate])
    found["wall_speedup"] = float(np.mean(np.log(sides[0]["time_per_token"][kept] / sides[1]["time_per_token"][kept])))
    found["request_speedup"] = float(np.mean(np.log(sides[0]["request"][kept] / sides[1]["request"][kept])))
    return found


def _waits(one: Start) -> dict[str, np.ndarray]:
    first, last = (np.array([getattr(times, name) for times in one.times]) for name in ("first_token_s", "last_token_s"))
    return {"first_token": first, "request": last, "time_per_token": (last - first) / (np.array(one.tokens) - 1)}


def _rates(shape: LoadShape, one: Start, waits: Mapping[str, np.ndarray], kept: slice) -> dict[str, float]:
    sent = np.array([times.sent_s for times in one.times])[kept]
    begin_s, end_s = float(sent[0]), float(sent[-1])
    ended = np.array([times.sent_s for times in one.times]) + waits["request"]
    answered_then = (begin_s < ended) & (ended <= end_s)
    length_s, limits = end_s - begin_s, shape.load
    good = (waits["first_token"] <= (limits.first_token_s or 0)) & (waits["time_per_token"] <= (limits.time_per_token_s or 0))
    return {
        "throughput_tokens_per_s": float(np.array(one.tokens)[answered_then].sum()) / length_s,
        "goodput_per_s": float(good[kept].mean()) * len(sent) / length_s,
        "requests_per_s": float(answered_then.sum()) / length_s,
    }
