"""A served sample under a load, reduced request by request: each has times of its own, so each is a decode by itself.

A pass of the server is of all requests that were in it. A request is charged with the whole of every pass that it was in, which
is what it waited for: measured by its own clock, and predicted by the prices of those passes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from harness.analysis.tally.pass_arrays import TraceArrays
from harness.analysis.tally.pricing import Pricer
from harness.analysis.tally.requests import Request, requests_of
from harness.analysis.tally.tally import Tally, tally
from harness.analysis.tally.traffic import TrafficCounter
from harness.record.schema import CaseHeader, Sample
from harness.scenario.load import Load


def tallies_of(
    case: CaseHeader, sample: Sample, load: Load | None, pricer: Pricer | None = None, counter: TrafficCounter | None = None
) -> tuple[Tally, ...]:
    """The sample as one tally; under a load as one for each request, of which those that do not count have no times.

    Without passes the first piece of an answer is taken to be one token.

    Args:
        load: how the requests reached the server, None for all at once.
    """
    whole = tally(case, sample, pricer, counter)
    packed = sample.packed_passes
    trace = TraceArrays(packed) if packed is not None and packed.count else None
    first = [1] * len(sample.rows)
    if trace is not None:
        first = trace.per_row("final_tokens")[~trace.decode].sum(axis=0, dtype=np.int64).tolist()
    requests = requests_of(sample, load, case.batch_size, first)
    if load is None:
        return (replace(whole, requests=requests),) if requests else (whole,)
    return tuple(
        replace(_of_row(whole, sample, row, requests, first[row]), **({} if trace is None else _passes_of(whole, trace, row)))
        for row in range(len(sample.rows))
    )


def _of_row(whole: Tally, sample: Sample, row: int, requests: Sequence[Request], first: int) -> Tally:
    """The request without its passes: what it wrote and waited for."""
    told, (task, group, repeat, process) = sample.rows[row], whole.key
    one = requests[row] if requests else None
    times = sample.rows[row].times if one is not None and one.counted else None
    clock = None if whole.decode_s is None else times
    share = told.output_tokens / whole.output_tokens if whole.output_tokens else 0.0
    return replace(
        whole,
        key=(task, group * len(sample.rows) + row, repeat, process),
        prompts=whole.prompts[row : row + 1],
        clusters=whole.clusters[row : row + 1],
        outputs=whole.outputs[row : row + 1],
        distinct4=whole.distinct4[row : row + 1],
        correct=whole.correct[row : row + 1],
        ungraded_reason=told.ungraded_reason if told.correct is None else None,
        output_tokens=told.output_tokens,
        decode_tokens=max(0, told.output_tokens - first),
        decode_s=None if clock is None else clock.last_token_s - clock.first_token_s,
        prompt_s=None if clock is None else clock.first_token_s,
        first_token_s=None if clock is None else clock.first_token_s,
        latency_s=None if times is None else times.last_token_s,
        forward_s=None,
        sampler_s=None,
        counted=None,
        energy_j=None if whole.energy_j is None or times is None else share * whole.energy_j,
        requests=() if one is None else (one,),
    )


def _passes_of(whole: Tally, trace: TraceArrays, row: int) -> dict[str, Any]:
    """The passes that a request was in, by field of Tally."""
    active = trace.per_row("active")[:, row].astype(bool) & trace.own
    final, fed = (trace.per_row(f"{name}_tokens")[:, row].astype(np.int64) for name in ("final", "query"))
    count = int(active.sum())
    found = {
        "decode_tokens": int(final[active].sum()),
        "row_passes": count,
        "passes": count,
        "fed_tokens": int(fed[active].sum()),
        "histogram": tuple(np.bincount(final[active]).tolist()),
    }
    return found | _priced(whole, active[trace.decode])


def _priced(whole: Tally, charged: npt.NDArray[np.bool_]) -> dict[str, Any]:
    """Bytes, prices and passes of the decode passes ``charged``."""
    if whole.timed is None:
        return {"bytes_": 0.0, "priced_s": {}, "timed": None}
    timed = whole.timed
    mine = replace(
        timed,
        role=timed.role[charged],
        query_tokens=timed.query_tokens[charged],
        context_tokens=timed.context_tokens[charged],
        forward_s=None,
        model=timed.model[charged],
        places=timed.places[charged],
    )
    totals = timed.pricer.decode_s(mine.places).sum(axis=0).tolist()
    bands = zip(timed.pricer.rungs, totals, strict=True)
    return {
        "bytes_": float(timed.pricer.bytes_(mine.places).sum()),
        "priced_s": {rung: (low, expected, high) for rung, (low, expected, high) in bands},
        "timed": mine,
    }
