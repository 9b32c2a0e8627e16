"""Bytes of a sample by the device's memory counter (percent x scale), beside the bytes modelled for the same window.

The window is the whole sample, prefill included. The run records the scales (harness.hardware.counter_scale).
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple, TypeVar

import numpy as np
from pydantic import BaseModel, TypeAdapter, ValidationError

from harness.analysis.tally.pass_arrays import TraceArrays
from harness.analysis.tally.pricing import Pricer
from harness.frozen import frozen
from harness.hardware.counter_scale import BandwidthScale
from harness.record.schema import Run, Sample
from harness.stats.quantity import Quantity, absent, exact

PERCENT = "dram_bandwidth_pct"
_T = TypeVar("_T")
NOT_RECORDED = "this run recorded no counter of memory bandwidth"


@frozen
class CounterScale:
    """What one percent of the device's memory counter is worth, in bytes per second, by three methods; means over sessions.

    ``bytes_per_s_per_percent``, which is used, is from a copy of known bytes in the measuring process. The others are a
    read-only reduction, and memory clock and bus. ``disagreement`` says where two differ by more than 10 %.
    """

    counter: str | None
    bytes_per_s_per_percent: Quantity
    read_bytes_per_s_per_percent: Quantity
    theoretical_bytes_per_s_per_percent: Quantity
    theoretical_source: str | None
    disagreement: str | None


@frozen
class Counted:
    """One sample's window: its seconds, its counted bytes, and the bytes modelled for all its passes.

    Both are 0, with a ``reason``, where the counter was not read.
    """

    window_s: float
    counted_bytes: float = 0.0
    modelled_bytes: float = 0
    reason: str | None = None


class TrafficCounter(NamedTuple):
    """The memory counter of one part: its scales, each from its time on and in this order, and why readings are absent."""

    scales: Sequence[BandwidthScale]
    why_no_scale: str
    why_no_figure: str

    def read(self, sample: Sample, trace: TraceArrays, pricer: Pricer) -> Counted | None:
        """The sample's window in bytes; None where it was not timed."""
        if sample.prefill_s is None or sample.decode_s is None:
            return None
        window_s, percent = sample.prefill_s + sample.decode_s, sample.meters.get(PERCENT)
        if percent is None:
            return Counted(window_s=window_s, reason=sample.meter_reasons.get(PERCENT, self.why_no_figure))
        # a continued run calibrates again in its new process
        started = None if sample.started_at is None else datetime.fromisoformat(sample.started_at)
        scale = next((one for one in reversed(self.scales) if started is not None and one.taken_at <= started), None)
        if scale is None:
            reason = f"the counter reads in percent, and what one percent is worth is not known: {self.why_no_scale}"
            return Counted(window_s=window_s, reason=reason)
        return Counted(
            window_s=window_s,
            counted_bytes=percent * scale.bytes_per_s_per_percent * window_s,
            modelled_bytes=float(pricer.bytes_(pricer.places(trace, np.ones(trace.count, dtype=bool))).sum()),
        )

    @property
    def scale(self) -> CounterScale:
        """Mean of the scales."""
        scales, last = self.scales, self.scales[-1] if self.scales else None
        reads = [scale.read.bytes_per_s_per_percent for scale in scales if scale.read is not None]
        theoretical = [found for scale in scales if (found := scale.theoretical_bytes_per_s_per_percent) is not None]
        return CounterScale(
            counter=last.counter if last else None,
            bytes_per_s_per_percent=_mean([scale.bytes_per_s_per_percent for scale in scales], self.why_no_scale),
            read_bytes_per_s_per_percent=_mean(reads, last.read_reason if last else self.why_no_scale),
            theoretical_bytes_per_s_per_percent=_mean(theoretical, last.interface_reason if last else self.why_no_scale),
            theoretical_source=last.interface.source if last and last.interface else None,
            disagreement=next((words for scale in scales if (words := scale.disagreement()) is not None), None),
        )


def counters(run: Run) -> dict[str, TrafficCounter]:
    """The counter of every part, from the meters that the run's sessions recorded."""
    found: dict[str, TrafficCounter] = {}
    for part in dict.fromkeys(case.part for case in run.cases):
        events = run.events("meters", part)
        scales = [scale for event in events if (scale := _read(BandwidthScale, event.get("bandwidth_scale"))) is not None]
        why_none = next((str(event["bandwidth_scale_reason"]) for event in events if event.get("bandwidth_scale_reason")), None)
        unread = [one for event in events for one in _read(list[_AbsentMeters], event.get("absent")) or ()]
        missing = [one.reason for one in unread if PERCENT in one.figures]
        why_no_figure = missing[-1] if missing else NOT_RECORDED
        in_order = sorted(scales, key=lambda scale: scale.taken_at)
        found[part] = TrafficCounter(in_order, why_none or NOT_RECORDED, why_no_figure)
    return found


def measured_bandwidth(counted: Sequence[Counted | None], disagreement: str | None, why_none: str) -> tuple[Quantity, Quantity]:
    """Counted bytes per second, mean over the windows with a reading; and counted ÷ modelled bytes.

    ``disagreement`` becomes the reason for doubt in the figure, as does the number of windows without a reading.
    """
    windows = [one for one in counted if one is not None]
    read, unread = [one for one in windows if one.reason is None], [one.reason for one in windows if one.reason is not None]
    if not read:
        nothing = absent(unread[0] if unread else why_none)
        return nothing, nothing
    total = math.fsum(one.counted_bytes for one in read)
    window_s, modelled = math.fsum(one.window_s for one in read), sum(one.modelled_bytes for one in read)
    part = f"{len(read)} of {len(windows)} windows were read: {unread[0]}" if unread else None
    doubt = "; ".join(words for words in (disagreement, part) if words) or None
    rate = Quantity(value=total / window_s, n=len(read), method="percent x calibrated scale", reason=doubt)
    return rate, Quantity(value=total / modelled, n=len(read), reason=doubt) if modelled else absent("no bytes were modelled")


def _mean(values: Sequence[float], reason: str | None) -> Quantity:
    return exact(statistics.fmean(values), n=len(values)) if values else absent(reason or NOT_RECORDED)


class _AbsentMeters(BaseModel):
    """Meters that could not be read, as a session recorded them."""

    figures: tuple[str, ...]
    reason: str


def _read(kind: type[_T], recorded: Any) -> _T | None:
    """None where the record is damaged, or has nothing."""
    try:
        return TypeAdapter(kind).validate_python(recorded)
    except ValidationError:
        return None
