"""Prices recorded passes on every rung of ceilings, in a table: a large run has millions of passes, but few distinct ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple
from typing import Any

import numpy as np

from harness.analysis.tally.pass_arrays import PREFILL, ROLES, Bools, Floats, Ints, TraceArrays
from harness.analysis.tally.prices import Ladder, deployment_of, feeds_masks, ladder, unpriced
from harness.errors import RecordError
from harness.models import ModelShape
from harness.models.deployment import Deployment
from harness.record.schema import CaseHeader, Run
from harness.record.trace import ForwardPass
from harness.roofline.ceilings import Ceilings
from harness.roofline.operation import PassCounts
from harness.roofline.operations import count_operations
from harness.roofline.pricing import price_counts
from harness.scenario.metrics import PRICES

Band = tuple[float, float, float]
"""Low (fully overlapped), expected and high (not overlapped) seconds."""
Counts = tuple[str | None, float, int, int, int, int, int, bool]
"""The values that decide a pass's price: its model, its work (see WORK) and the fields of PassCounts, in their order."""
WORK: dict[str, float] = {"draft": 3.0, "verify+draft": 3.0, "verify": 1.3}
"""What follows the forward of a pass of that role, in multiples of what follows one that only decides, as measured passes do.
Sampler and host find the figures of drafts and check them. Rounded medians of published runs: 2.7 to 3.3 where masks draft,
1.2 to 1.4 where drafts are given, whichever run is left out. A draft model's passes count as checks.
"""
NO_PRICE = "an imported run has no passes to price"
Places = Ints
"""Indices of passes in the table of a Pricer."""


def work_of(role: str, model: str | None) -> float:
    """WORK of a pass that ``model`` made (None: the target)."""
    return WORK["verify"] if model is not None else WORK.get(role, 1.0)


class Pricer:
    """Prices the passes of one model and of its draft models on every rung; each distinct pass has one place in a table.

    Bytes, flops and seconds are those of one device, where the model is split over several.
    The top rung's corrections come from passes of the model itself; a draft model's passes use the same ones.
    """

    def __init__(self, case: CaseHeader, ceilings: dict[str, Ceilings]) -> None:
        self._shapes: dict[str | None, ModelShape] = {None: case.shape} | dict(case.draft_models)
        self._continuous = case.execution == "served"
        self._own, self._whole = deployment_of(case), Deployment(dtype=case.known_dtype)  # draft models are not split
        self._ceilings = ceilings
        self.rungs = tuple(price for price in PRICES if price in ceilings)
        self._places: dict[Counts, int] = {}
        self._table = np.empty((256, 2 + 6 * len(self.rungs)))

    def places_of(self, passes: Sequence[ForwardPass]) -> Places:
        """Table indices; passes that differ only in which tokens became known cost the same."""
        keys = ((one.model, work_of(one.role, one.model), *astuple(PassCounts.of(one))) for one in passes)
        return np.fromiter(map(self._place, keys), dtype=np.int64)

    def places(self, trace: TraceArrays, which: Bools) -> Places:
        """Table indices of the passes ``which`` of a sample. A server's pass has the rows that are in it; in a session of this
        program the tensors hold those that wait, too.

        Raises:
            RecordError: the case does not know the model that made one of them.
        """
        if not which.any():
            return np.zeros(0, dtype=np.int64)
        columns = (
            trace.per_pass("padded_query"),
            trace.per_pass("padded_context"),
            trace.per_row("logit_tokens").max(axis=1),
            trace.over_rows("kept_tokens"),
        )
        made_by = [trace.models[code] for code in trace.model[which].tolist()]
        work = [work_of(ROLES[role], model) for role, model in zip(trace.role[which].tolist(), made_by, strict=True)]
        causal = (trace.role[which] == PREFILL).tolist()
        rows = trace.over_rows("active")[which].tolist() if self._continuous else [trace.rows] * len(made_by)
        counts = zip(made_by, work, rows, *(column[which].tolist() for column in columns), causal, strict=True)
        return np.fromiter(map(self._place, counts), dtype=np.int64)

    def bytes_(self, places: Places) -> Floats:
        """Modelled bytes of each pass, without its sampler."""
        return np.asarray(self._table[places, 0])

    def flops(self, places: Places) -> Floats:
        """Modelled flops of each pass, without its sampler."""
        return np.asarray(self._table[places, 1])

    def forward_s(self, places: Places) -> Floats:
        """Seconds of each forward, of shape (passes, rungs, 3): the band of every rung."""
        return self._bands(places, 2)

    def decode_s(self, places: Places) -> Floats:
        """Seconds of each forward and its sampler, of shape (passes, rungs, 3)."""
        return self._bands(places, 2 + 3 * len(self.rungs))

    def by_rung(self, band: Floats) -> dict[str, Band]:
        """A band of shape (rungs, 3) by its rungs."""
        return {rung: (low, expected, high) for rung, (low, expected, high) in zip(self.rungs, band.tolist(), strict=True)}

    def _bands(self, places: Places, first: int) -> Floats:
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
        model, work, rows, query, context, logits, kept, causal = key
        shape = self._shapes.get(model)
        if shape is None:
            raise RecordError(
                f"a pass was made by {model!r}, a draft model whose shape its case does not have; the record is damaged"
            )
        counts = PassCounts(rows=rows, query=query, context=context, logits=logits, kept=kept, causal=causal)
        deployment = self._own if model is None else self._whole
        prices = [price_counts(shape, deployment, counts, self._ceilings[rung]) for rung in self.rungs]
        operations = count_operations(shape, deployment, counts)
        return [
            sum(operation.bytes_ for operation in operations),
            sum(operation.flops for operation in operations),
            *(side for price in prices for side in price.forward),
            *(
                forward_s + after_s * (1.0 if self._ceilings[rung].factors is None else work)
                for rung, price in zip(self.rungs, prices, strict=True)
                for forward_s, after_s in zip(price.forward, price.after, strict=True)
            ),
        ]


Pricers = dict[str, tuple[Ladder, Pricer | None]]
"""By case id."""


def pricers_of(run: Run) -> Pricers:
    """Ladder and pricer per case id, shared by the cases of one part, batch size, dtype, device, model and draft models. Those
    that feed masks have their own: an adapter makes their passes dearer. The larger the batch, the fewer decodes a part has to
    average, and an interval depends on their number. No pricer for an imported run, which has no passes.
    """
    if run.header.imported is not None:
        return dict.fromkeys((case.case_id for case in run.cases), (unpriced(NO_PRICE), None))
    shared: dict[Any, tuple[Ladder, Pricer | None]] = {}
    found: Pricers = {}
    for case in run.cases:
        drafts = sorted(case.draft_models.items())
        kind = (case.part, case.batch_size, case.model, case.dtype, case.device, feeds_masks(case), *drafts)
        if kind not in shared:
            rungs = ladder(run, case)
            shared[kind] = (rungs, Pricer(case, rungs.ceilings))
        found[case.case_id] = shared[kind]
    return found
