"""A served sample under a load, reduced request by request: each has times of its own, so each is a decode by itself.

A pass of the server is of all requests that were in it. A request is charged with the whole of every pass that it was in, which
is what it waited for: measured by its own clock, and predicted by the prices of those passes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from harness.analysis.tally.pass_arrays import Bools, Ints, TraceArrays
from harness.analysis.tally.pricing import Pricer, Pricers, pricers_of
from harness.analysis.tally.requests import TalliedRequest, requests_of
from harness.analysis.tally.tally import PassSums, Tally, one_name_each, tally
from harness.analysis.tally.traffic import TrafficCounter, counters
from harness.analysis.trust.health import without_void_times
from harness.record.schema import CaseHeader, Run, Sample
from harness.scenario.load import Load, recorded_load


class Tallies:
    """The decodes of a run without its void times, those of a case tallied once, when they are first asked for.

    Warm-ups are left out; of a sample recorded twice the later counts.

    Example: Tallies(run)("reference/arithmetic/b1/ntp")
    """

    def __init__(self, run: Run, priced: bool = True) -> None:
        """``priced``: price the decodes whose time counts, and read the counters of memory traffic."""
        self.run, self.health = without_void_times(run)
        self.voids = {case_id: of_case for of_part in self.health for case_id, of_case in of_part.cases.items()}
        self.pricers: Pricers = pricers_of(self.run) if priced else {}
        self.counters = counters(self.run) if priced else {}
        self._cases = {case.case_id: case for case in run.cases}
        self._samples: dict[str, list[Sample]] = defaultdict(list)
        for sample in {one.key: one for one in one_name_each(self.run).samples if not one.warmup}.values():
            self._samples[sample.case_id].append(sample)
        self._tallied: dict[str, tuple[Tally, ...]] = {}

    def __call__(self, case_id: str) -> tuple[Tally, ...]:
        """The decodes of a case."""
        if case_id not in self._tallied:
            self._tallied[case_id] = tuple(self._of_case(self._cases[case_id]))
        return self._tallied[case_id]

    def _of_case(self, case: CaseHeader) -> Iterator[Tally]:
        written = self.run.header.written(case.part)
        load, sampled = recorded_load(written, case.batch_size), written.workload.generalise_over == "tasks"
        pricer = self.pricers[case.case_id][1] if self.pricers and case.timed and not case.is_check else None
        for sample in self._samples[case.case_id]:
            own = pricer if sample.decode_s is not None else None
            for one in tallies_of(case, sample, load, own, self.counters.get(case.part)):
                yield replace(one, tasks_sampled=True) if sampled else one


def tallies_of(
    case: CaseHeader, sample: Sample, load: Load | None, pricer: Pricer | None, counter: TrafficCounter | None
) -> tuple[Tally, ...]:
    """The sample as one tally; under a load as one for each request, of which those that do not count have no times.

    Without passes the first piece of an answer is taken to be one token. A request is numbered by its prompt, in the order of
    their names in the sample. So a prompt that processes send in other orders has one number. Where every process has prompts
    of its own, those of one number have nothing in common.

    Args:
        load: how the requests reached the server, None for all at once.
    """
    whole = tally(case, sample, pricer, counter)
    trace = TraceArrays(sample.packed_passes) if sample.packed_passes else None
    first = [1] * len(sample.rows)
    if trace is not None:
        first = trace.per_row("final_tokens")[~trace.decode].sum(axis=0, dtype=np.int64).tolist()
    requests = requests_of(sample, load, case.batch_size, first)
    if load is None:
        return (replace(whole, requests=requests),) if requests else (whole,)
    in_order = sorted(range(len(sample.rows)), key=lambda row: (len(sample.rows[row].prompt_id), sample.rows[row].prompt_id))
    task, group, repeat, process = whole.key
    requested = requests or [None] * len(sample.rows)
    return tuple(
        _of_row(replace(whole, key=(task, number, repeat, process)), sample, row, requested[row], trace, first[row])
        for number, row in enumerate(in_order, start=group * len(sample.rows))
    )


def _of_row(whole: Tally, sample: Sample, row: int, one: TalliedRequest | None, trace: TraceArrays | None, first: int) -> Tally:
    """The request: what it wrote and waited for, with the passes that it was in."""
    told = sample.rows[row]
    latency_s, first_s = (one.request_s, one.first_token_s) if one is not None and one.counted else (None, None)
    share = told.output_tokens / whole.output_tokens if whole.output_tokens else 0.0
    decode_tokens, sums = max(0, told.output_tokens - first), whole.sums
    if trace is not None:
        own = trace.per_row("active")[:, row].astype(bool) & trace.own
        final = trace.per_row("final_tokens")[own, row].astype(np.int64)
        decode_tokens, sums = int(final.sum()), _sums(whole.sums, trace, row, own, final)
    return replace(
        whole,
        answers=whole.answers[row : row + 1],
        output_tokens=told.output_tokens,
        decode_tokens=decode_tokens,
        decode_s=None if latency_s is None or first_s is None else latency_s - first_s,
        prompt_s=first_s,
        first_token_s=first_s,
        latency_s=latency_s,
        counted=None,
        energy_j=None if whole.energy_j is None or latency_s is None else share * whole.energy_j,
        sums=sums,
        requests=() if one is None else (one,),
    )


def _sums(whole: PassSums, trace: TraceArrays, row: int, own: Bools, final: Ints) -> PassSums:
    """Of the passes ``own`` that the request in ``row`` was in; ``final``: the tokens that they made final."""
    timed, count = whole.timed, len(final)
    if timed is not None:
        mine = own[trace.decode]
        timed = replace(
            timed,
            role=timed.role[mine],
            query_tokens=timed.query_tokens[mine],
            context_tokens=timed.context_tokens[mine],
            forward_s=None,
            model=timed.model[mine],
            places=timed.places[mine],
        )
    return PassSums(
        row_passes=count,
        passes=count,
        fed_tokens=int(trace.per_row("query_tokens")[own, row].sum(dtype=np.int64)),
        draft_passes=whole.draft_passes,
        draft_fed_tokens=whole.draft_fed_tokens,
        histogram=tuple(np.bincount(final).tolist()),
        priced_s=timed.pricer.by_rung(timed.pricer.decode_s(timed.places).sum(axis=0)) if timed else {},
        timed=timed,
    )
