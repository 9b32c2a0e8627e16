"""What a record proves about itself: its seal, its own contradictions, its answers graded again.

Figures that follow from others are worked out again. Each check names the kind of sample it is about and applies to the samples
that have its fields. A broken seal or a contradiction leaves no verdict; a record without a seal is judged, and said to have
none. Whoever alters a record and seals it anew must keep all of this true; what a check cannot see is not shown to be honest.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator

import numpy as np

from harness.analysis.tally.pass_arrays import TraceArrays
from harness.analysis.trust.imported import IMPORTED_CHECKS, Found, twice
from harness.analysis.trust.regrading import regrade
from harness.formatting import count
from harness.frozen import frozen
from harness.record.schema import CaseHeader, Run, Sample
from harness.record.seal import SEALED_SINCE, SealState
from harness.record.written import WrittenPart
from harness.scenario.loading import scenario_digest
from harness.scenario.rounds import sample_seed

CLOCK_S, CLOCK_SHARE = 0.005, 0.01
"""Two clocks may disagree by so much: wall clock and timer, timer and pass clock."""
STEP_S = 1.0
"""A wall clock that is set right may jump back by so much between two samples."""


def _of_sample(case: CaseHeader, sample: Sample, trace: TraceArrays, part: WrittenPart) -> list[str]:
    """What contradicts what in one sample with its passes. Its span is by the monotonic clock where the record has it: the wall
    clock may be set, which analysis.trust.health sees.
    """
    rows, final = sample.rows, trace.per_row("final_tokens")
    written = [row.output_tokens for row in rows]
    durations = [trace.seconds(name) for name in ("forward_s", "sampler_s")]
    spent_s = sum(float(timed[trace.decode].sum()) for timed in durations if timed is not None)
    begun, ended = sample.moments_s
    span_s = sample.clock_span_s or (None if ended is None else ended - begun)
    taken_s = (sample.prefill_s or 0.0) + (sample.decode_s or 0.0)
    place = case.part, case.task, case.batch_size, sample.group, sample.repeat
    wrong = {
        "output_tokens is not the number of output_ids": any(
            row.output_ids is not None and row.output_tokens != len(row.output_ids) for row in rows
        ),
        "the passes made other numbers of tokens final than were written": (
            trace.count > 0 and not np.array_equal(final.sum(axis=0, dtype=np.int64), written)
        ),
        "the passes took longer than the whole decode": sample.decode_s is not None and spent_s > _at_most(sample.decode_s),
        "prompt and decode took longer than there is between its begin and its end": (
            span_s is not None and taken_s > _at_most(span_s)
        ),
        "a pass of next-token prediction made several tokens final": (
            case.arm.method == "ntp" and trace.count > 0 and int(final.max()) > 1
        ),
        "its seed is not that of its place": (
            part.seed is not None
            and not part.devices
            and sample.seed not in {sample_seed(part.seed, *place, process) for process in (0, sample.process)}
        ),
    }
    return [words for words, applies in wrong.items() if applies]


def _scenario(run: Run) -> Iterator[Found]:
    header = run.header
    renamed = any(part.get("devices") for part in header.scenario.get("parts", []))  # as on one of several devices
    if not renamed and scenario_digest(header.scenario) != header.scenario_digest:
        yield "the scenario is not that of its digest", "run.json"


def _once(run: Run) -> Iterator[Found]:
    """But for warm-ups, which whoever goes on with a run takes again."""
    for names in twice((sample.key, place) for sample, place in _placed(run) if not sample.warmup):
        yield "the same sample is there twice", names


def _measured_once(run: Run) -> Iterator[Found]:
    """Two decodes by a clock never take the same time to the last digit, in their prompt's pass, in whole and in each pass."""
    timed = ((s, s.packed_passes, place) for s, place in _placed(run) if s.decode_s and s.prefill_s and s.ended_at)
    for names in twice(((s.prefill_s, s.decode_s, passes.data), place) for s, passes, place in timed if passes):
        yield "two decodes took the same times to the last digit", names


def _in_order(run: Run) -> Iterator[Found]:
    """By the wall clock, and by the monotonic clock where it is known: one is set back, the other starts anew at a boot."""
    last: dict[Hashable, tuple[float, float]] = {}
    for sample, place in _placed(run):
        unit = None if sample.node is None else (sample.node, sample.process, sample.case_id.partition("/")[0])
        begun, ended = sample.moments_s
        wall_s, clock_s = last.get(unit, (begun, 0.0))
        if begun < wall_s - STEP_S and (sample.started_clock_s is None or sample.started_clock_s < clock_s - STEP_S):
            yield "it began before the sample before it ended", place
        last[unit] = begun if ended is None else ended, sample.ended_clock_s or 0.0


def _whole(run: Run) -> Iterator[Found]:
    """A case that never failed is decoded group by group: it lacks none in between, nor at an end that is recorded."""
    if run.header.record_version < SEALED_SINCE:
        return
    failed = {one.case_id for one in run.outcomes} | {str(one["case_id"]) for one in run.sessions if "case_id" in one}
    taken: dict[tuple[str, int], set[tuple[int, int]]] = defaultdict(set)
    for sample in run.samples:
        if not sample.warmup and sample.case_id not in failed:
            taken[sample.case_id, sample.process].add((sample.repeat, sample.group))
    ended = {(one.get("part"), one.get("process", 0)) for one in run.events("end")}
    groups: dict[str, int] = defaultdict(int)
    for (case_id, _), places in taken.items():
        groups[case_id] = max(groups[case_id], 1 + max(group for _, group in places))
    for (case_id, process), places in taken.items():
        repeat, group = max(places)
        to_the_end = {(case_id.partition("/")[0], process), (None, process)} & ended
        if len(places) != repeat * groups[case_id] + (groups[case_id] if to_the_end else group + 1):
            yield "samples are missing", f"case {case_id}, process {process}"


def _sessions(run: Run) -> Iterator[Found]:
    """Every process says what it found when it began, and a run on one machine was begun on it. A process that tries a case
    again begins again; older records tell its two begins apart by whole seconds alone.
    """
    starts = run.events("start")
    told = dict.fromkeys(tuple(map(one.get, ("pid", "taken_at", "node", "process"))) for one in starts)
    for names in twice((one[:3], f"process {one[3]}") for one in told if one[0] is not None):
        yield "two processes are one and the same", names
    if not starts or run.header.record_version < SEALED_SINCE or any(sample.node for sample in run.samples):
        return
    known = {one.get("process", 0) for one in starts}
    for process in sorted({sample.process for sample in run.samples} - known):
        yield "a process has samples, and never began", f"process {process}"
    if run.header.environment.get("cpu_model") not in {one.get("cpu_model") for one in starts}:
        yield "no process ran on the machine of the header", "run.json"


RunCheck = Callable[[Run], Iterator[Found]]
RUN_CHECKS: tuple[RunCheck, ...] = (_scenario, _once, _measured_once, _in_order, _whole, _sessions)
OF_IMPORTED: tuple[RunCheck, ...] = (_scenario, _once, *IMPORTED_CHECKS)
"""An imported run has no passes, no seeds, and requests that overlap; its files have figures of their own."""


def _placed(run: Run) -> Iterator[tuple[Sample, str]]:
    """Every sample with its place in words."""
    for one in run.samples:
        warm = ", warm-up" if one.warmup else ""
        yield one, f"{one.case_id}, group {one.group}, repeat {one.repeat}, process {one.process}{warm}"


def _at_most(seconds: float) -> float:
    return seconds * (1 + CLOCK_SHARE) + CLOCK_S


def contradictions(run: Run) -> dict[str, list[str]]:
    """Where the record contradicts itself: the places of each contradiction, in words; empty where nothing does."""
    found: dict[str, list[str]] = defaultdict(list)
    cases = {case.case_id: case for case in run.cases}
    parts = {case.part: run.header.written(case.part) for case in run.cases}
    for sample, place in _placed(run):
        if sample.packed_passes is not None:
            case = cases[sample.case_id]
            for words in _of_sample(case, sample, TraceArrays(sample.packed_passes), parts[case.part]):
                found[words].append(place)
    for about_run in RUN_CHECKS if run.header.imported is None else OF_IMPORTED:
        for words, place in about_run(run):
            found[words].append(place)
    return dict(found)


AS_WRITTEN = "judge the record as the run wrote it, or run again"
FINISH = "finish the run: the same sbd run command continues it"


@frozen
class Contradiction:
    """Two figures of a record that cannot both be true: in words, in how many ``places``, and the ``first`` of these."""

    words: str
    places: int
    first: str


@frozen
class Integrity:
    """``demanded``: why a demanded signature is not there. ``not_graded``: why some answers could not be graded again.
    ``unmeasured``: why no arm has a sample. ``unended``: why nothing is decided yet, for whoever looks and then goes on decides
    by chance. ``record_sha256``: the digest of what the record holds, that its pages carry.
    """

    seal: SealState = "unsealed"
    seal_words: str = "unsealed (it was not read from a record)"
    signed: bool = False
    contradictions: tuple[Contradiction, ...] = ()
    graded_again: int = 0
    not_graded: tuple[str, ...] = ()
    demanded: str | None = None
    unmeasured: str | None = None
    unended: str | None = None
    record_sha256: str | None = None

    @property
    def void(self) -> str | None:
        """Why nothing is judged by this record; None where something is."""
        if self.demanded is not None:
            return f"a signature was demanded: {self.demanded}"
        if self.seal == "broken":
            return f"the record's seal is {self.seal_words}"
        if self.unmeasured is not None:
            return self.unmeasured
        if self.contradictions:
            first, more = self.contradictions[0], len(self.contradictions) - 1
            others = f", and {more} more contradictions" if more else ""
            return f"the record contradicts itself: {first.words} ({first.first}; {count(first.places)} places){others}"
        return None

    @property
    def words(self) -> str:
        """One line for people."""
        return self.void or "; ".join(filter(None, (self.seal_words, self.unended)))


def integrity_of(run: Run) -> Integrity:
    """Check a run as it was read; one that was made here has no record that could be wrong."""
    if run.seal is None:
        return Integrity()
    regraded = regrade(run)
    found = contradictions(run) | regraded.wrong
    return Integrity(
        seal=run.seal.state,
        seal_words=run.seal.words,
        signed=run.seal.signature is not None and run.seal.signature.valid is True,
        contradictions=tuple(Contradiction(words=one, places=len(at), first=at[0]) for one, at in found.items()),
        graded_again=regraded.again,
        not_graded=tuple(sorted(regraded.reasons)),
        unmeasured=run.unmeasured,
        unended=run.unended,  # a stopping rule that was planned before the run is to be asked here
        record_sha256=run.seal.record or None,
    )
