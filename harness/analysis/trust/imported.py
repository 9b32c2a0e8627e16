"""Imported records: what limits their figures, in words beside every figure, and whether one agrees with itself.

Its requests are held against the figures that the tool itself worked out of them.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator
from math import inf, isclose

from harness.formatting import count, seconds
from harness.record.imports.measured import MeasuredRequest, figures, totals
from harness.record.imports.samples import GAPS_S
from harness.record.schema import REQUEST_S, Imported, ImportedFile, Run, Sample

SHARE, LEAST_S = 0.01, 0.002
"""Two ways to the same time may differ by 1 %, or by 2 ms: a tool takes its times at slightly different places."""
STARTS = "each file counts as a process: whether its server was started anew, no file tells"
WARM = 3.0
"""Of the same prompts no start is so much slower to the first token than another."""
SAID = ("passes", "output_ids", "machine")
Found = tuple[str, str]
"""What contradicts what, and where."""


def _of_requests(run: Run) -> Iterator[Found]:
    for one, place in _placed(run):
        whole, gaps_s = one.meters.get(REQUEST_S), one.meters.get(GAPS_S)
        if one.decode_s is None or (whole is not None and (one.prefill_s or 0.0) + one.decode_s > _at_most(whole)):
            yield "the last token came before the first, or after the end of its request", place
        if gaps_s is not None and one.decode_s is not None and not _alike(gaps_s, one.decode_s):
            yield "the gaps between the pieces of a stream do not add up to its time after the first token", place


def _of_files(run: Run) -> Iterator[Found]:
    """In a closed loop of n the requests take at most n times as long as the whole; a single one never takes longer.

    Every figure that the tool worked out itself is worked out again; those of gaps were when the file was read. One with the
    end of the stream, which no request has, is no less than ours.
    """
    most = run.header.imported.concurrency if run.header.imported else None
    for file, samples in _by_file(run):
        if len(samples) != file.requests - file.failed:
            yield "the answered requests are not those that were sent less those that failed", _named(file)
        times, whole_s = [one.meters.get(REQUEST_S, 0.0) for one in samples], file.duration_s
        together_s = inf if most is None or whole_s is None else most * whole_s
        if times and (max(times) > _at_most(inf if whole_s is None else whole_s) or sum(times) > _at_most(together_s)):
            yield "the requests took longer than the whole run of the tool", _named(file)
        requests = [_request(one) for one in samples if one.decode_s is not None]
        if len(requests) != len(samples):
            continue  # said by another check
        ours = file.figures | figures(requests, file.rule) | totals(requests, whole_s)
        for name, theirs in (*file.printed.items(), *file.figures.items()):
            mine, least = ours.get(name, theirs), ours.get(name.replace("_to_the_end", ""), theirs)
            if least > _at_most(theirs) or not (_alike(mine, theirs) if name.endswith("_s") else isclose(mine, theirs)):
                both = f"{least:g} and {theirs:g}"
                yield f"its requests do not give the {name} that the tool printed", f"{_named(file)}: {both}"


def _files_once(run: Run) -> Iterator[Found]:
    """By their digests, and by the times of their requests."""
    keyed: list[tuple[Hashable, str]] = []
    for file, samples in _by_file(run):
        times = sorted((one.prefill_s or 0.0, one.decode_s) for one in samples if one.decode_s)
        keyed += [(key, _named(file)) for key in (file.sha256, tuple(times)) if key]
    for names in dict.fromkeys(twice(keyed)):
        yield "two files are one and the same", names


def _requests_once(run: Run) -> Iterator[Found]:
    """Times finer than a microsecond are never the same to the last digit in two requests; coarser ones may be by chance."""
    first: dict[tuple[float | None, ...], str] = {}
    shared: Counter[str] = Counter()
    for file, samples in _by_file(run):
        timed = {(one.prefill_s, one.decode_s or 0.0, one.meters.get(REQUEST_S)) for one in samples}
        of_file = {times for times in timed if abs(round(times[1], 6) - times[1]) > 1e-9}
        shared.update(f"{first[times]} and {_named(file)}" for times in of_file if times in first)
        first = dict.fromkeys(of_file, _named(file)) | first
    for files, requests in shared.items():
        if requests > 1:
            yield "two files hold the same requests, by their times to the last digit", f"{files}: {requests}"


def twice(keyed: Iterable[tuple[Hashable, str]]) -> Iterator[str]:
    """The places of every key that occurs again, joined with those of its first."""
    first: dict[Hashable, str] = {}
    for key, place in keyed:
        if key in first:
            yield place if place == first[key] else f"{first[key]} and {place}"
        first.setdefault(key, place)


IMPORTED_CHECKS: tuple[Callable[[Run], Iterator[Found]], ...] = (_of_requests, _of_files, _files_once, _requests_once)


def _placed(run: Run) -> Iterator[tuple[Sample, str]]:
    for one in run.samples:
        yield one, f"{one.case_id}, process {one.process}, {one.rows[0].prompt_id if one.rows else 'no request'}"


def _by_file(run: Run) -> Iterator[tuple[ImportedFile, list[Sample]]]:
    taken: dict[tuple[str, int], list[Sample]] = defaultdict(list)
    for one in run.samples:
        taken[one.case_id, one.process].append(one)
    for file in run.header.imported.files if run.header.imported else ():
        yield file, taken[file.case_id, file.process]


def _named(file: ImportedFile) -> str:
    return f"{file.name} ({file.case_id}, process {file.process})"


def _request(one: Sample) -> MeasuredRequest:
    first_s, row = one.prefill_s or 0.0, one.rows[0]
    last_s = first_s + (one.decode_s or 0.0)
    return MeasuredRequest(
        place=one.group,
        prompt_tokens=row.prompt_tokens,
        output_tokens=row.output_tokens,
        first_token_s=first_s,
        last_token_s=last_s,
        request_s=one.meters.get(REQUEST_S, last_s),
    )


def _alike(one: float, other: float) -> bool:
    return isclose(one, other, rel_tol=SHARE, abs_tol=LEAST_S)


def _at_most(span_s: float) -> float:
    return span_s * (1 + SHARE) + LEAST_S


def limits(origin: Imported) -> tuple[str, ...]:
    """A phrase for each limit: whose clock, how requests are paired, what ran beside, what a process is, what is lacking."""
    beside = "one request at a time"
    if origin.concurrency != 1:
        most = "an unknown number" if origin.concurrency is None else f"up to {origin.concurrency}"
        beside = f"{most} of requests were in flight together, so the time of each one holds waiting for others"
    whose = f"imported from files of {origin.tool}: its clock, and its count of tokens"
    found = [whose, origin.pairing_words, beside, STARTS, cached(origin)]
    if failed := sum(one.failed for one in origin.files):
        every = sum(one.requests for one in origin.files)
        found.append(f"{count(failed)} of {count(every)} requests failed and have no time")
    found += [f"{name.replace('_', ' ')}: {why}" for name, why in origin.lacks.items() if name in SAID]
    return tuple(found)


def cached(origin: Imported) -> str:
    """Whether a cache may have had prompts: the same prompts take like times to the first token in every file and arm."""
    first_s = [one.figures["median_first_token_s"] for one in origin.files]
    if max(first_s) <= WARM * min(first_s):
        return "whether a prefix cache had prompts, no file tells"
    ends = f"{seconds(min(first_s))} to {seconds(max(first_s))}"
    return f"the median first token takes {ends} by file, as where a prefix cache has the prompts of some: requests tell it too"
