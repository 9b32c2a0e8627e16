"""The measured passes of a part as its record holds them, in the form the roofline's top rung is fitted to."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import numpy as np

from harness.analysis.health import kernel_times_s
from harness.record.schema import PassColumns, Run
from harness.roofline.operation import PassCounts
from harness.roofline.shape_calibration import SPREAD_PERCENTILES, MeasuredPass

Missing = str
"""Why something is not there, in words for the reader."""


UNTOLD = "the record does not tell which passes were measured before the first sample of the part"
SHARED_ENTRIES = {"start", "engine", "meters"}
"""What a session records of a part before it measures passes."""


def measured_passes(run: Run, part: str, *, ex_ante: bool = False) -> list[MeasuredPass] | Missing:
    """Every decode pass that was measured before, among and after the part's samples, in all sessions, or why none was.

    ``ex_ante``: only those measured before the first sample of the part.
    """
    events = run.events("measured_passes", part)
    if not events:
        return "no pass of this model was measured apart from the samples (a record older than version 3)"
    try:
        if ex_ante:
            before = _before_samples(run, part, events)
            if isinstance(before, Missing):
                return before
            events = before
        decodes = [(visit, decode) for visit, event in enumerate(events) for decode in event["decodes"]]
        found = [one for number, (visit, decode) in enumerate(decodes) for one in _of_decode(decode, number, visit)]
    except (KeyError, TypeError, ValueError) as error:  # among them pydantic's ValidationError
        return f"the measured passes of this part cannot be read ({type(error).__name__})"
    return found or str(events[-1].get("reason", "its decodes made no pass"))


def _before_samples(run: Run, part: str, events: list[dict[str, Any]]) -> list[dict[str, Any]] | Missing:
    """The measurements that ended before the first sample of the part began, warm-ups included.

    Older records have no times. Their sessions load a model, measure passes and then take samples, in this order; so the
    first measurement is the one before the samples where no second session began ahead of it.

    Raises:
        ValueError: a time of a measurement is none.
    """
    if all("ended_at" in event for event in events):
        cases = {case.case_id for case in run.header.cases if case.part == part}
        first = min((_moment(sample.started_at) for sample in run.samples if sample.case_id in cases), default=None)
        found = [event for event in events if first is None or _moment(event["ended_at"]) <= first]
        return found or "no pass of this model was measured before the first sample of the part"
    names = [str(entry.get("event")) for entry in run.sessions if entry.get("part") == part]
    ahead = names[: names.index("measured_passes")]
    return events[:1] if ahead.count("engine") == 1 and SHARED_ENTRIES.issuperset(ahead) else UNTOLD


def _moment(text: str) -> datetime:
    found = datetime.fromisoformat(text)
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def machine_spread(run: Run, part: str) -> tuple[float, float]:
    """How much the machine itself changed while the part ran: the 10th and 90th percentile of its fixed calibration kernel,
    timed before and after every sample, as multiples of the median; (1, 1) where no sample has it.
    """
    cases = {case.case_id for case in run.header.cases if case.part == part}
    times = kernel_times_s(sample for sample in run.samples if sample.case_id in cases)
    if not times:
        return 1.0, 1.0
    low, high = (np.percentile(times, SPREAD_PERCENTILES) / np.median(times)).tolist()
    return low, high


def _of_decode(decode: dict[str, Any], number: int, visit: int) -> list[MeasuredPass]:
    """The passes behind the prompt; what the loop spends beyond forwards and samplers is shared out evenly."""
    columns = PassColumns.model_validate(decode["passes"])
    if columns.forward_s is None or columns.sampler_s is None:
        return []
    timed = [
        (PassCounts.of(one), forward_s, sampler_s)
        for one, forward_s, sampler_s in zip(columns.passes(), columns.forward_s, columns.sampler_s, strict=True)
        if one.role != "prefill"
    ]
    rest_s = float(decode["decode_s"]) - sum(forward_s + sampler_s for _, forward_s, sampler_s in timed)
    return [
        MeasuredPass(
            counts=counts, forward_s=forward_s, after_s=sampler_s + rest_s / len(timed), decode=number, visit=visit
        )
        for counts, forward_s, sampler_s in timed
    ]
