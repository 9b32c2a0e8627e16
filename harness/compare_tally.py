"""Reduces one sample to the counts and sums that every derived value needs, so that a big record is walked once.

Knows the record and the pricer; knows no arm, no pairing and no statistic.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from harness.compare_counter import Counted, TrafficCounter
from harness.compare_pricing import Band, PricedPass, Pricer
from harness.record import CaseHeader, PassColumns, Sample

Key = tuple[str, int, int, int]
"""(task, group, repeat, process): what one decode of NTP and one of an arm have in common."""


class TimedPass(NamedTuple):
    """One decode pass with its duration (None: not timed per pass) and its price. A tuple: a large run has a million."""

    role: str
    query_tokens: int
    context_tokens: float
    forward_s: float | None
    priced: PricedPass
    model: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """Counts of one sample over its decode passes (prefill left out). ``fed_tokens`` counts all rows, waiting ones too.

    ``row_passes``, ``passes``, ``fed_tokens`` and ``histogram`` are of passes of the target; those of draft models, which make
    no token final, are ``draft_passes`` and ``draft_fed_tokens``. Times, bytes and prices are of all of them.
    ``counted``: what a memory counter says of the whole sample, None where it says nothing; ``energy_j`` likewise.
    ``priced_s`` is the trace's price per rung (low, expected, high), sampler included; ``timed`` holds its passes. Both
    are empty where the part was not timed: nothing is compared with a clock there.
    """

    key: Key
    prompts: tuple[tuple[str, str], ...]
    outputs: tuple[tuple[int, ...], ...]
    correct: tuple[bool | None, ...]
    ungraded_reason: str | None
    output_tokens: int
    decode_tokens: int
    row_passes: int
    passes: int
    fed_tokens: int
    draft_passes: int
    draft_fed_tokens: int
    histogram: tuple[int, ...]
    decode_s: float | None
    latency_s: float | None
    forward_s: float | None
    sampler_s: float | None
    bytes_: float
    counted: Counted | None
    energy_j: float | None
    priced_s: dict[str, Band]
    timed: tuple[TimedPass, ...]

    @property
    def has_decode_time(self) -> bool:
        """Whether decode time per decode token exists: timed, and more than the token the prefill gave."""
        return bool(self.decode_s) and self.decode_tokens > 0


def tally(case: CaseHeader, sample: Sample, pricer: Pricer | None, counter: TrafficCounter | None = None) -> Tally:
    """Reduce ``sample``; with a ``pricer`` its decode passes are priced too, with a ``counter`` its memory traffic is read."""
    columns, rows = sample.passes, len(sample.rows)
    decode = np.array([role != "prefill" for role in columns.role], dtype=bool)
    final = _matrix(columns.final_tokens, rows, np.dtype(np.int64))
    active = _matrix(columns.active, rows, np.dtype(np.bool_))
    own = decode & np.array([model is None for model in columns.made_by], dtype=bool)
    padded = np.asarray(columns.padded_query, dtype=np.int64)
    histogram = np.bincount(final[own][active[own]].ravel()) if own.any() else np.zeros(0, dtype=np.int64)
    output_tokens = sum(row.output_tokens for row in sample.rows)
    from_prefill = int(final[~decode].sum())
    timed = _price(columns, pricer) if pricer is not None else ()
    return Tally(
        key=(case.task, sample.group, sample.repeat, sample.process),
        prompts=tuple((case.task, row.prompt_id) for row in sample.rows),
        outputs=tuple(tuple(row.output_ids) for row in sample.rows),
        correct=tuple(row.correct for row in sample.rows),
        ungraded_reason=next((row.ungraded_reason for row in sample.rows if row.correct is None), None),
        output_tokens=output_tokens,
        decode_tokens=output_tokens - from_prefill,
        row_passes=int(active[own].sum()),
        passes=int(own.sum()),
        fed_tokens=int(padded[own].sum()) * rows,
        draft_passes=int((decode & ~own).sum()),
        draft_fed_tokens=int(padded[decode & ~own].sum()) * rows,
        histogram=tuple(histogram.tolist()),
        decode_s=sample.decode_s,
        latency_s=None if sample.decode_s is None or sample.prefill_s is None else sample.prefill_s + sample.decode_s,
        forward_s=_sum_of(columns.forward_s, decode),
        sampler_s=_sum_of(columns.sampler_s, decode),
        bytes_=sum(one.priced.bytes_ for one in timed),
        counted=counter.read(sample, pricer) if counter is not None and pricer is not None else None,
        energy_j=sample.meters.get("cpu_energy_j" if case.device.startswith("cpu") else "energy_j"),
        priced_s=_sum_bands(timed),
        timed=timed,
    )


def _matrix(column: list[list[int]] | list[list[bool]], rows: int, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """A column as an array of shape (passes, rows), also when there is no pass."""
    return np.asarray(column, dtype=dtype).reshape(len(column), rows)


def _sum_of(durations: list[float] | None, which: npt.NDArray[np.bool_]) -> float | None:
    return None if durations is None else float(np.asarray(durations, dtype=float)[which].sum())


def _price(columns: PassColumns, pricer: Pricer) -> tuple[TimedPass, ...]:
    return tuple(
        TimedPass(
            role=columns.role[i],
            query_tokens=columns.padded_query[i],
            context_tokens=sum(columns.context_tokens[i]) / len(columns.context_tokens[i]),
            forward_s=None if columns.forward_s is None else columns.forward_s[i],
            priced=priced,
            model=columns.made_by[i] if columns.model else None,
        )
        for i, priced in enumerate(pricer.price_columns(columns))
        if priced is not None
    )


def _sum_bands(timed: tuple[TimedPass, ...]) -> dict[str, Band]:
    totals: dict[str, Band] = {}
    for rung in timed[0].priced.decode_s if timed else ():
        low, expected, high = np.array([one.priced.decode_s[rung] for one in timed]).sum(axis=0).tolist()
        totals[rung] = (low, expected, high)
    return totals
