"""Requests of other tools as samples of ours: which are paired with which, and what the record keeps of each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from harness.frozen import frozen
from harness.record.bounds import SHORTEST_S, arrived_together
from harness.record.imports.measured import MeasuredRequest, ResultFile
from harness.record.schema import REQUEST_S, TOGETHER, UNTOLD, Imported, ImportedFile, Pairing, RowResult, Sample

GAPS_S, PIECES = "gaps_s", "stream_pieces"
"""Meters of an imported sample: the sum of the gaps between the pieces of its stream, and the pieces."""
NOT_GRADED = "the files of other tools hold no grades"
FEWEST_LENGTHS = 2


@frozen
class Placed:
    """A file as one process of a case."""

    case_id: str
    process: int
    file: ResultFile


def pairing_of(files: Sequence[Placed]) -> tuple[Pairing | None, str]:
    """Whether requests of different files are of the same prompts, by the files alone; and why, in words."""
    given = [placed.file for placed in files]
    if all(request.prompt is not None for file in given for request in file.requests):
        every = {request.prompt for file in given for request in file.requests}
        if all(len(every) - len({request.prompt for request in file.requests}) <= file.failed for file in given):
            return "prompts", "paired by the text of the prompts"
        return None, "unpaired: the files hold different prompts, so means over whole files are compared"
    if len({file.sent for file in given}) > 1:
        return None, "unpaired: the files hold different numbers of requests, so means over whole files are compared"
    lengths: dict[int, set[int]] = {}
    for file in given:
        for request in file.requests:
            lengths.setdefault(request.place, set()).add(request.prompt_tokens)
    if any(len(of_place) > 1 for of_place in lengths.values()):
        return None, "unpaired: the lengths of the prompts differ between files, so means over whole files are compared"
    if len({length for of_place in lengths.values() for length in of_place}) < FEWEST_LENGTHS:
        return None, "unpaired: the files hold no prompts, all of one length, so means over whole files are compared"
    return "order", "paired by order: the files have prompts of the same lengths in the same order, and hold no text of them"


def imported_of(files: Sequence[Placed], lacks: dict[str, str]) -> Imported:
    """What the header says of these files, which are of one tool and load; ``lacks``: what none tells, beside their own."""
    first = files[0].file
    pairing, words = pairing_of(files)
    return Imported(
        tool=first.tool,
        format=first.format,
        pairing=pairing,
        pairing_words=words,
        concurrency=first.concurrency,
        lacks={**first.lacks, "grades": NOT_GRADED, **lacks},
        files=[
            ImportedFile(
                name=placed.file.name,
                sha256=placed.file.sha256,
                case_id=placed.case_id,
                process=placed.process,
                tool_version=placed.file.tool_version,
                requests=placed.file.sent,
                failed=placed.file.failed,
                duration_s=placed.file.duration_s,
                printed=dict(placed.file.printed),
                figures=placed.file.figures,
                counted=dict(placed.file.counted),
                rule=placed.file.rule,
            )
            for placed in files
        ],
    )


def samples_of(files: Sequence[Placed], pairing: Pairing | None) -> Iterator[Sample]:
    """One sample for every answered request, file by file; a group is a prompt."""
    widest = max(placed.file.sent for placed in files)
    groups: dict[str, int] = {}
    for placed in files:
        seen: Counter[str] = Counter()
        for request in placed.file.requests:
            group, repeat, prompt_id = request.place, 0, f"request-{request.place + 1}"
            if pairing == "prompts" and request.prompt is not None:
                group, repeat = groups.setdefault(request.prompt, len(groups)), seen[request.prompt]
                prompt_id = request.prompt[:16]
                seen[request.prompt] += 1
            elif pairing is None:
                group = placed.process * widest + request.place
                prompt_id = f"file-{placed.process + 1}-request-{request.place + 1}"
            yield _sample(placed, request, group, repeat, prompt_id)


def _sample(of: Placed, request: MeasuredRequest, group: int, repeat: int, prompt_id: str) -> Sample:
    """The decode has no time where the file contradicts itself; ``request_s`` then shows it."""
    decode_s = _no_dust(request.last_token_s - request.first_token_s)
    meters = {REQUEST_S: request.request_s}
    if request.gaps_s is not None:
        meters |= {GAPS_S: sum(request.gaps_s), PIECES: 1.0 + len(request.gaps_s)}
    if request.output_tokens > 1:
        meters |= _clock(request, decode_s, of.case_id.endswith("/ntp"))
    row = RowResult(
        prompt_id=prompt_id,
        prompt_tokens=request.prompt_tokens,
        output_tokens=request.output_tokens,
        output_ids=None,
        stop_reason=None,
        correct=None,
        ungraded_reason=NOT_GRADED,
    )
    return Sample.model_validate(
        {
            "case_id": of.case_id,
            "group": group,
            "repeat": repeat,
            "process": of.process,
            "warmup": False,
            "seed": None,
            "rows": [row],
            "passes": None,
            "prefill_s": _no_dust(request.first_token_s),
            "decode_s": decode_s if decode_s >= 0 else None,
            "started_at": request.begun_at,
            "load_1min": None,
            "meters": meters,
        }
    )


def _clock(request: MeasuredRequest, decode_s: float, ntp: bool) -> dict[str, float]:
    """What shows whether the stream tells the time of its tokens. An arm's pass makes several, which may come one by one: there
    only its first two pieces, of two passes, and those before its first token show something.
    """
    pieces = request.pieces or 1 + len(request.gaps_s or range(1, request.output_tokens))
    gaps_s = request.gaps_s or (decode_s / max(1, pieces - 1),)
    meters = {TOGETHER: arrived_together(gaps_s if ntp else gaps_s[:1])}
    if ntp or request.before_s * pieces > decode_s:
        meters[UNTOLD] = float(request.output_tokens - pieces)
    return meters


def _no_dust(seconds: float) -> float:
    """A difference of two readings of a clock that is no duration is 0."""
    return 0.0 if abs(seconds) < SHORTEST_S else seconds
