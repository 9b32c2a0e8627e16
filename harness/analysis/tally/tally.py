"""Reduces one sample to the counts and sums that derived values need, so that a large record is read once."""

from __future__ import annotations

import statistics
from collections.abc import Hashable, Sequence
from dataclasses import field, replace

import numpy as np
import numpy.typing as npt

from harness.analysis.tally.pass_arrays import PREFILL, Floats, Ints, TraceArrays
from harness.analysis.tally.pricing import Band, Places, Pricer
from harness.analysis.tally.requests import TalliedRequest
from harness.analysis.tally.traffic import Counted, TrafficCounter
from harness.frozen import frozen
from harness.record.schema import FIRST_TOKENS, REQUEST_S, CaseHeader, RowResult, Run, Sample
from harness.roofline.operation import describe_pass
from harness.stats.crossed import Grouped

PromptKey = tuple[str, str]
"""(task, prompt id)."""
GroupKey = tuple[str, int]
"""(task, group)."""
Key = tuple[str, int, int, int]
"""(task, group, repeat, process): identifies the decodes of NTP and of an arm that form a pair."""


@frozen
class TimedPasses:
    """The decode passes of one sample, entry i of every array one pass, and the indices of their prices in ``pricer``.

    ``role`` indexes pass_arrays.ROLES. ``query_tokens`` are those of each row with its padding, ``context_tokens`` the mean
    over the rows. ``forward_s`` is None where the passes were not timed one by one. ``model`` indexes ``models``: None for the
    case's own, then the names of draft models.
    """

    role: npt.NDArray[np.int8]
    query_tokens: Ints
    context_tokens: Floats
    forward_s: Floats | None
    model: Ints
    models: tuple[str | None, ...]
    places: Places
    pricer: Pricer


@frozen
class PassSums:
    """What the decode passes (without the prompts') of a sample, or of one of its requests, come to.

    Counts are None where the record has no passes, as an imported one.
    """

    row_passes: int | None = None
    """Passes of the target, summed over the active rows."""
    passes: int | None = None
    """Passes of the target."""
    fed_tokens: int | None = None
    """Fed to the target, by all rows; waiting ones too."""
    draft_passes: int | None = None
    """Passes of draft models, which make no token final."""
    draft_fed_tokens: int | None = None
    histogram: tuple[int, ...] = ()
    """Active row-passes of the target by the number of tokens they made final."""
    forward_s: float | None = None
    """Of target and draft models, as are all times, bytes and prices; None where the passes were not timed one by one."""
    sampler_s: float | None = None
    priced_s: dict[str, Band] = field(default_factory=dict)
    """Price per rung (low, expected, high), sampler included; empty where the part was not timed."""
    timed: TimedPasses | None = None
    """The passes themselves, where the part was timed."""

    @property
    def bytes_(self) -> float:
        """Modelled; 0 where the part was not timed."""
        return float(self.timed.pricer.bytes_(self.timed.places).sum()) if self.timed else 0.0


@frozen
class Written:
    """One answer of a decode, to the prompt (task, prompt id)."""

    prompt: PromptKey
    row: RowResult


@frozen
class Tally:
    """One decode: a sample, or under a load one request of it."""

    key: Key
    answers: tuple[Written, ...]
    output_tokens: int
    decode_tokens: int
    decode_s: float | None
    prompt_s: float | None
    """Time of the prompts' pass."""
    first_token_s: float | None
    """Time until a row's first final token, a mean over the rows."""
    latency_s: float | None
    metered_s: float | None
    """The time over which energy was read."""
    energy_j: float | None
    counted: Counted | None
    """The memory counter over the whole sample; None without a reading."""
    sums: PassSums
    reads_more: bool
    """Whether a prompts' pass does more than NTP's, so that ``charged`` must add decode time."""
    estimated: bool = False
    """Whether it has."""
    requests: tuple[TalliedRequest, ...] = ()
    """Of a server, with times of their own."""
    tasks_sampled: bool = False
    """Whether figures over several tasks are about tasks such as these (generalise_over), not about these."""

    @property
    def prompts(self) -> tuple[PromptKey, ...]:
        """Of its answers, in their order."""
        return tuple(one.prompt for one in self.answers)

    @property
    def has_decode_time(self) -> bool:
        """Whether decode time per decode token exists: timed, and more than the token the prefill gave."""
        return bool(self.decode_s) and self.decode_tokens > 0


Decodes = Sequence[Tally]


def one_name_each(run: Run) -> Run:
    """The run with the prompts of a part whose token ids are equal under one name: that of the first of them."""
    first: dict[str, str] = {}

    def named(row: RowResult) -> RowResult:
        name = first.setdefault(row.prompt_digest, row.prompt_id) if row.prompt_digest else row.prompt_id
        return row if name == row.prompt_id else row.model_copy(update={"prompt_id": name})

    samples = [
        one if (rows := [*map(named, one.rows)]) == one.rows else one.model_copy(update={"rows": rows}) for one in run.samples
    ]
    return run.model_copy(update={"samples": samples})


def units_of(tallies: Decodes) -> list[GroupKey]:
    """The independent unit of every decode, as (task, group): the earliest that holds one of its prompts.

    Where groups of one number hold other prompts in other processes, they have numbers by process.
    """
    held = {(one.key[:2], one.prompts) for one in tallies}
    several = max((one.key[3] for one in tallies), default=0) + 1 if len(held) > len({key for key, _ in held}) else 0
    keys = [(one.key[0], one.key[1] * several + one.key[3]) if several else one.key[:2] for one in tallies]
    first: dict[Hashable, GroupKey] = {}
    for key, prompts in sorted(zip(keys, (one.prompts for one in tallies), strict=True)):
        for prompt in prompts:
            first.setdefault(prompt, key)
    return [min((first[one] for one in tally.prompts), default=key) for key, tally in zip(keys, tallies, strict=True)]


def labels_of(tallies: Decodes) -> tuple[list[Grouped], list[int]]:
    """The unit and the process of every decode. Its stratum is its task, its cluster has all units with related prompts.

    Where tasks are a sample, each is a cluster of one stratum.
    """
    above: dict[Hashable, Hashable] = {}

    def top(name: Hashable) -> Hashable:
        while above.setdefault(name, name) != name:
            name = above[name]
        return name

    units, sampled = units_of(tallies), tasks_sampled(tallies)
    for unit, one in zip(units, tallies, strict=True):
        for answer in one.answers:
            if answer.row.cluster is not None:
                above[top(unit)] = top((answer.prompt[0], answer.row.cluster))
    grouped = [Grouped("", unit[0], unit) if sampled else Grouped(unit[0], top(unit), unit) for unit in units]
    return grouped, [one.key[3] for one in tallies]


def tasks_sampled(tallies: Decodes) -> bool:
    """Whether these are decodes of several tasks, as a sample of such tasks."""
    return len({one.key[0] for one in tallies}) > 1 and any(one.tasks_sampled for one in tallies)


def tally(case: CaseHeader, sample: Sample, pricer: Pricer | None, counter: TrafficCounter | None = None) -> Tally:
    """Reduce ``sample``; with a ``pricer`` its decode passes are priced too, with a ``counter`` its memory traffic is read.

    Without passes the prompt is taken to give the first token of each answer, as every serving benchmark counts. A server whose
    first chunks hold more has decoded before them, and is charged with it.
    """
    trace = TraceArrays(sample.packed_passes) if sample.packed_passes else None  # none: imported, or of a silent server
    output_tokens = sum(row.output_tokens for row in sample.rows)
    given = given_tokens(sample, trace)
    latency_s = sample.meters.get(REQUEST_S)
    if sample.decode_s is not None and sample.prefill_s is not None:
        latency_s = sample.prefill_s + sample.decode_s
    return Tally(
        key=(case.task, sample.group, sample.repeat, sample.process),
        answers=tuple(
            Written(prompt=("" if "/" in row.prompt_id else case.task, row.prompt_id), row=row) for row in sample.rows
        ),
        output_tokens=output_tokens,
        decode_tokens=output_tokens - given,
        decode_s=sample.decode_s,
        prompt_s=sample.prefill_s,
        first_token_s=sample.prefill_s if trace is None else _first_token_s(sample, trace),
        latency_s=latency_s,
        metered_s=latency_s,
        energy_j=sample.meters.get("cpu_energy_j" if (case.device or "").startswith("cpu") else "energy_j"),
        counted=counter.read(sample, trace, pricer) if counter and trace and pricer else None,
        sums=PassSums() if trace is None else _sums(sample, trace, pricer),
        reads_more=sample.meters.get(FIRST_TOKENS, given) > given if trace is None else trace.reads_more,
    )


def given_tokens(sample: Sample, trace: TraceArrays | None) -> int:
    """Output tokens that the prompts' pass gave; without passes the first one of every answer."""
    return sum(row.output_tokens > 0 for row in sample.rows) if trace is None else trace.given_tokens


def _sums(sample: Sample, trace: TraceArrays, pricer: Pricer | None) -> PassSums:
    decode, own, fed = trace.decode, trace.own, trace.per_pass("padded_query")
    final, active = trace.per_row("final_tokens"), trace.per_row("active").astype(bool)
    prompt, rows = trace.drafts_in_prompt, len(sample.rows)
    drafted = (final[0].astype(np.int64) - (trace.given_tokens > 0)).tolist() if prompt else []
    read = max((row.prompt_tokens for row in sample.rows), default=0)
    beyond = int(fed[0]) - read if prompt else 0
    timed = None if pricer is None else _timed(trace, pricer)
    return PassSums(
        row_passes=trace.row_passes,
        passes=trace.passes,
        fed_tokens=(int(fed[own].sum()) + beyond) * rows,
        draft_passes=trace.draft_passes,
        draft_fed_tokens=int(fed[decode & ~own].sum()) * rows,
        histogram=tuple(np.bincount([*final[own][active[own]].tolist(), *drafted]).tolist()),
        forward_s=trace.decode_seconds("forward_s"),
        sampler_s=trace.decode_seconds("sampler_s"),
        priced_s=_priced(timed, trace, read) if timed else {},
        timed=timed,
    )


def distinct_share(ids: Sequence[int]) -> float:
    """Distinct runs of four ÷ all runs of four of an answer's token ids; 1.0 where it has at most one. A loop lowers it
    towards 0.

    Source: J. Li et al., A Diversity-Promoting Objective Function for Neural Conversation Models, 2016 (distinct-n).
    """
    grams = list(zip(*(ids[start:] for start in range(4)), strict=False))
    return len(set(grams)) / len(grams) if grams else 1.0


def charged(tallies: Decodes, ntp: Decodes) -> tuple[Tally, ...]:
    """Add to decode time the time of the prompts' pass beyond that of ``ntp`` on the same prompt, where it does more.

    NTP's time is that of the same repeat and process, else the median over the prompt's other decodes. Without any, all of the
    prompts' pass is decode time. A negative difference counts as 0.
    """
    if not any(one.reads_more and one.decode_s is not None for one in tallies):
        return tuple(tallies)
    own = {one.key: one.prompt_s for one in ntp if one.prompt_s is not None}
    of_prompt: dict[GroupKey, list[float]] = {}
    for key, prompt_s in own.items():
        of_prompt.setdefault(key[:2], []).append(prompt_s)

    def charge(one: Tally) -> Tally:
        if not one.reads_more or one.decode_s is None or one.prompt_s is None:
            return one
        beyond_s = max(0.0, one.prompt_s - own.get(one.key, statistics.median(of_prompt.get(one.key[:2], [0.0]))))
        forward_s = None if one.sums.forward_s is None else one.sums.forward_s + beyond_s
        return replace(one, decode_s=one.decode_s + beyond_s, sums=replace(one.sums, forward_s=forward_s), estimated=True)

    return tuple(map(charge, tallies))


def _first_token_s(sample: Sample, trace: TraceArrays) -> float | None:
    """Mean over the rows of the time until a token is final. The loop's time beyond forwards and samplers is shared out evenly.
    None where the passes were not timed one by one and the prompts' pass made nothing final.
    """
    if sample.prefill_s is None or sample.decode_s is None:
        return None
    first = (trace.per_row("final_tokens") > 0).argmax(axis=0)  # a row without output gets the prompts' pass
    if not first.any():
        return sample.prefill_s
    forward_s, sampler_s = trace.seconds("forward_s"), trace.seconds("sampler_s")
    if forward_s is None:
        return None
    known = np.where(trace.role != PREFILL, forward_s + (0.0 if sampler_s is None else sampler_s), 0.0)
    passes = (trace.role != PREFILL).cumsum()
    rest_s = (sample.decode_s - float(known.sum())) / max(int(passes[-1]), 1)
    return sample.prefill_s + float((known.cumsum() + rest_s * passes)[first].mean())


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


def _priced(timed: TimedPasses, trace: TraceArrays, read: int) -> dict[str, Band]:
    """The decode passes on every rung. A prompts' pass that drafts costs its price beyond one that reads ``read`` tokens."""
    totals = timed.pricer.decode_s(timed.places).sum(axis=0)
    if trace.drafts_in_prompt:
        fed, logits, kept = (int(trace.per_row(f"{name}_tokens")[0].max()) for name in ("query", "logit", "kept"))
        both = [
            describe_pass("prefill", trace.rows, fed, 0, logits=logits, kept=kept)
            for fed, logits, kept in ((fed, logits, kept), (read, 1, read))
        ]
        whole, plain = timed.pricer.decode_s(timed.pricer.places_of(both))
        totals = totals + (whole - plain)
    return timed.pricer.by_rung(totals)
