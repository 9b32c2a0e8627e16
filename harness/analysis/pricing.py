"""The price of recorded passes on every rung of ceilings, kept in a table: a large run has millions, and few that differ.

The measured passes of a part as its record holds them, in the form the roofline's top rung is fitted to.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import repeat
from typing import Any

import numpy as np
import numpy.typing as npt

from harness.analysis.health import kernel_times_s
from harness.analysis.pass_arrays import TraceArrays
from harness.analysis.pass_values import PRICES
from harness.analysis.prices import deployment_of
from harness.errors import RecordError
from harness.models import ModelShape
from harness.models.deployment import Deployment
from harness.record.schema import CaseHeader, PassColumns, Run
from harness.record.trace import ForwardPass
from harness.roofline.ceilings import Ceilings
from harness.roofline.operation import PassCounts
from harness.roofline.operations import count_operations
from harness.roofline.pricing import price_counts
from harness.roofline.shape_calibration import SPREAD_PERCENTILES, MeasuredPass

Band = tuple[float, float, float]
"""Low (fully overlapped), expected and high (not overlapped) seconds."""
Counts = tuple[str | None, int, int, int, int, int]
"""What decides the price of a pass: the model that made it and the fields of PassCounts, in their order."""
Places = npt.NDArray[np.int64]
"""Of passes in the table of a Pricer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PricedPass:
    """One pass on every rung: modelled bytes and flops of the forward, its band, and that of forward and sampler together.

    Of one device, where the model is split over several.
    """

    bytes_: float
    flops: float
    forward_s: dict[str, Band]
    decode_s: dict[str, Band]


class Pricer:
    """Prices the passes of one model, and of the draft models beside it, on every rung; remembers passes it has priced, each
    at its place in a table.

    A large run has millions of passes, and few that differ in what they cost. The top rung's corrections are those of passes
    of the model itself; a draft model's passes take them over.
    """

    def __init__(self, case: CaseHeader, ceilings: dict[str, Ceilings]) -> None:
        self._shapes: dict[str | None, ModelShape] = {None: case.model}
        for name, shape in case.draft_models.items():
            self._shapes[name] = shape
        self._own, self._whole = deployment_of(case), Deployment(dtype=case.dtype)  # drafts are not split
        self._ceilings = ceilings
        self.rungs = tuple(price for price in PRICES if price in ceilings)
        self._places: dict[Counts, int] = {}
        self._table = np.empty((256, 2 + 6 * len(self.rungs)))

    def price(self, one: ForwardPass) -> PricedPass:
        """The price of ``one``; passes that differ only in which tokens became known cost the same (as in price_trace).

        Raises:
            RecordError: it was made by a model that the case does not know.
        """
        counts = PassCounts.of(one)
        place = self._place((one.model, counts.rows, counts.query, counts.context, counts.logits, counts.kept))
        bytes_, flops, *sides = self._table[place].tolist()
        bands = [(low, expected, high) for low, expected, high in zip(*[iter(sides)] * 3, strict=True)]
        forward = dict(zip(self.rungs, bands, strict=False))
        return PricedPass(
            bytes_=bytes_, flops=flops, forward_s=forward, decode_s=dict(zip(self.rungs, bands[len(forward) :], strict=True))
        )

    def places(self, trace: TraceArrays, which: npt.NDArray[np.bool_]) -> Places:
        """Where in the table the passes ``which`` of a sample stand."""
        if not which.any():
            return np.zeros(0, dtype=np.int64)
        columns = (
            trace.per_pass("padded_query"), trace.per_pass("padded_context"), trace.per_row("logit_tokens").max(axis=1),
            trace.over_rows("kept_tokens"),
        )  # fmt: skip
        made_by = [trace.models[code] for code in trace.model[which].tolist()]
        counts = zip(made_by, repeat(trace.rows), *(column[which].tolist() for column in columns))
        return np.fromiter(map(self._place, counts), dtype=np.int64)

    def bytes_(self, places: Places) -> npt.NDArray[np.float64]:
        """Modelled bytes of each pass, without its sampler."""
        return np.asarray(self._table[places, 0])

    def flops(self, places: Places) -> npt.NDArray[np.float64]:
        """Modelled flops of each pass, without its sampler."""
        return np.asarray(self._table[places, 1])

    def forward_s(self, places: Places) -> npt.NDArray[np.float64]:
        """Seconds of each forward, of shape (passes, rungs, 3): the band of every rung."""
        return self._bands(places, 2)

    def decode_s(self, places: Places) -> npt.NDArray[np.float64]:
        """Seconds of each forward and its sampler, of shape (passes, rungs, 3)."""
        return self._bands(places, 2 + 3 * len(self.rungs))

    def _bands(self, places: Places, first: int) -> npt.NDArray[np.float64]:
        width = 3 * len(self.rungs)
        return self._table[places, first : first + width].reshape(len(places), len(self.rungs), 3)

    def _place(self, counts: Counts) -> int:
        found = self._places.get(counts)
        if found is None:
            found = len(self._places)
            if found == len(self._table):
                self._table = np.concatenate([self._table, np.empty_like(self._table)])
            self._table[found] = self._price(counts)
            self._places[counts] = found
        return found

    def _price(self, key: Counts) -> list[float]:
        """Bytes, flops, the band of the forward on every rung, that of the whole pass on every rung."""
        model, rows, query, context, logits, kept = key
        shape = self._shapes.get(model)
        if shape is None:
            raise RecordError(
                f"a pass was made by {model!r}, a draft model whose shape its case does not have; the record is damaged"
            )
        counts = PassCounts(rows=rows, query=query, context=context, logits=logits, kept=kept)
        deployment = self._own if model is None else self._whole
        prices = [price_counts(shape, deployment, counts, self._ceilings[rung]) for rung in self.rungs]
        operations = count_operations(shape, deployment, counts)
        return [
            sum(operation.bytes_ for operation in operations), sum(operation.flops for operation in operations),
            *(side for price in prices for side in price.forward),
            *(side for price in prices for side in (price.low_s, price.expected_s, price.high_s)),
        ]  # fmt: skip


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
