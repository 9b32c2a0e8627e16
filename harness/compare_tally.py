"""Reduces one sample to the counts and sums that every derived value needs, so that a big record is walked once.

Knows the record and the pricer; knows no arm, no pairing and no statistic.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from harness.compare_counter import Counted, TrafficCounter
from harness.compare_pricer import Band, Places, Pricer
from harness.compare_trace import TraceArrays
from harness.record import CaseHeader, Sample

Key = tuple[str, int, int, int]
"""(task, group, repeat, process): what one decode of NTP and one of an arm have in common."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedPasses:
    """The decode passes of one sample, entry i of every array one pass, and where their ``pricer`` has their prices.

    ``role`` holds places in compare_trace.ROLES, ``query_tokens`` those of each row with its padding, ``context_tokens`` the
    mean over the rows; ``forward_s`` is None where the passes were not timed one by one. ``model`` holds places in ``models``:
    None for the case's own, the names of draft models behind it.
    """

    role: npt.NDArray[np.int8]
    query_tokens: npt.NDArray[np.int64]
    context_tokens: npt.NDArray[np.float64]
    forward_s: npt.NDArray[np.float64] | None
    model: npt.NDArray[np.int64]
    models: tuple[str | None, ...]
    places: Places
    pricer: Pricer

    def __len__(self) -> int:
        """How many passes there are."""
        return len(self.places)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """Counts of one sample over its decode passes (prefill left out). ``fed_tokens`` counts all rows, waiting ones too.

    ``row_passes``, ``passes``, ``fed_tokens`` and ``histogram`` are of passes of the target; those of draft models, which make
    no token final, are ``draft_passes`` and ``draft_fed_tokens``. Times, bytes and prices are of all of them.
    ``counted``: what a memory counter says of the whole sample, None where it says nothing; ``energy_j`` likewise.
    ``priced_s`` is the trace's price per rung (low, expected, high), sampler included; ``timed`` holds its passes. There is
    neither where the part was not timed: nothing is compared with a clock there.
    """

    key: Key
    prompts: tuple[tuple[str, str], ...]
    clusters: tuple[str | None, ...]
    outputs: tuple[list[int], ...]
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
    timed: TimedPasses | None

    @property
    def has_decode_time(self) -> bool:
        """Whether decode time per decode token exists: timed, and more than the token the prefill gave."""
        return bool(self.decode_s) and self.decode_tokens > 0


def tally(case: CaseHeader, sample: Sample, pricer: Pricer | None, counter: TrafficCounter | None = None) -> Tally:
    """Reduce ``sample``; with a ``pricer`` its decode passes are priced too, with a ``counter`` its memory traffic is read."""
    trace, rows = TraceArrays(sample.packed_passes), len(sample.rows)
    decode = trace.decode
    final, active = trace.per_row("final_tokens"), trace.per_row("active").astype(bool)
    own, fed = trace.own, trace.per_pass("padded_query")
    histogram = np.bincount(final[own][active[own]]) if own.any() else np.zeros(0, dtype=np.int64)
    output_tokens = sum(row.output_tokens for row in sample.rows)
    from_prefill = int(final[~decode].sum())
    timed = _timed(trace, pricer) if pricer is not None else None
    return Tally(
        key=(case.task, sample.group, sample.repeat, sample.process),
        prompts=tuple((case.task, row.prompt_id) for row in sample.rows),
        clusters=tuple(row.cluster for row in sample.rows),
        outputs=tuple(row.output_ids for row in sample.rows),
        correct=tuple(row.correct for row in sample.rows),
        ungraded_reason=next((row.ungraded_reason for row in sample.rows if row.correct is None), None),
        output_tokens=output_tokens,
        decode_tokens=output_tokens - from_prefill,
        row_passes=int(active[own].sum()),
        passes=int(own.sum()),
        fed_tokens=int(fed[own].sum()) * rows,
        draft_passes=int((decode & ~own).sum()),
        draft_fed_tokens=int(fed[decode & ~own].sum()) * rows,
        histogram=tuple(histogram.tolist()),
        decode_s=sample.decode_s,
        latency_s=None if sample.decode_s is None or sample.prefill_s is None else sample.prefill_s + sample.decode_s,
        forward_s=_sum_of(trace.seconds("forward_s"), decode),
        sampler_s=_sum_of(trace.seconds("sampler_s"), decode),
        bytes_=float(timed.pricer.bytes_(timed.places).sum()) if timed else 0.0,
        counted=counter.read(sample, trace, pricer) if counter is not None and pricer is not None else None,
        energy_j=sample.meters.get("cpu_energy_j" if case.device.startswith("cpu") else "energy_j"),
        priced_s=_sum_bands(timed) if timed else {},
        timed=timed,
    )


def _sum_of(durations: npt.NDArray[np.float64] | None, which: npt.NDArray[np.bool_]) -> float | None:
    return None if durations is None else float(durations[which].sum())


def _timed(trace: TraceArrays, pricer: Pricer) -> TimedPasses:
    forward_s, decode = trace.seconds("forward_s"), trace.decode
    return TimedPasses(
        role=trace.role[decode],
        query_tokens=trace.per_pass("padded_query")[decode],
        context_tokens=trace.over_rows("context_tokens")[decode] / max(trace.rows, 1),
        forward_s=None if forward_s is None else forward_s[decode],
        model=trace.model[decode],
        models=trace.models,
        places=pricer.places(trace, decode),
        pricer=pricer,
    )


def _sum_bands(timed: TimedPasses) -> dict[str, Band]:
    totals = timed.pricer.decode_s(timed.places).sum(axis=0).tolist()
    return {rung: (low, expected, high) for rung, (low, expected, high) in zip(timed.pricer.rungs, totals, strict=True)}
