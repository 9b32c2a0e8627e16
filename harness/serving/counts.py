"""Passes of one request, counted in up to three ways; the passes as the trace of a decode, and the figures of a sample.

*steps*: the engine's own count of steps, less the prompt's. *accepted*: a round ends with tokens that no draft gave, mostly
one, so decode tokens less accepted drafts; drafts accepted after the answer's end are taken off. *chunks*: the pieces of the
stream after the first. Each can be wrong alone: a counter has other clients' steps, an engine does not count a pass without a
draft, and a server may send the tokens of two rounds together. A round is one pass of the model, or several (Rounds).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise
from math import inf
from statistics import fmean, median

from harness.frozen import frozen
from harness.meters.window import MeterFigure
from harness.record.decode import Readings
from harness.record.schema import FIRST_TOKENS, NO_PASSES
from harness.record.trace import ForwardPass, Role
from harness.serving.dialects.dialect import MOST, ONE_PASS, Rounds
from harness.serving.stream import ServedAnswer

PROMPT_PASSES = 1
"""Passes of one prompt by itself; a longer one that is fed in pieces makes the ways disagree."""
FIGURES = {
    name: MeterFigure(unit=unit, source=source)
    for name, (unit, source) in {
        "served_passes_by_steps": ("count", "the server's step counter, less the prompt's pass"),
        "served_passes_by_accepted": ("count", "decode tokens less accepted drafts"),
        "served_passes_by_chunks": ("count", "chunks of the stream after the first"),
        "served_ways_disagree": ("requests", "requests of the sample whose ways of counting differ"),
        FIRST_TOKENS: ("tokens", "tokens of the first chunks of its answers, by the client"),
        "served_headline": ("tokens", "the engine's own mean acceptance length of these requests"),
        "served_foreign_requests": ("requests", "the server's request counter, less these"),
        "served_cached_tokens": ("tokens", "the server's count of prompt tokens found in a cache"),
        "served_preempted": ("requests", "the server's count of requests put off"),
        "served_read_bytes": ("bytes", "the server's own estimate"),
    }.items()
}
"""What a served sample carries beside its times: the ways of counting, the engine's headline, and what would spoil it."""


@frozen
class Ways:
    """Decode passes of one request by every way that was possible; None: it was not."""

    steps: int | None
    accepted: int | None
    chunks: int | None

    @property
    def counts(self) -> tuple[int, ...]:
        """Those that were possible."""
        return tuple(count for count in (self.steps, self.accepted, self.chunks) if count is not None)


def count_passes(answer: ServedAnswer, grown: Mapping[str, float], alone: bool, rounds: Rounds = ONE_PASS) -> Ways:
    """The decode passes of a request.

    Args:
        grown: growth of the server's counters over it.
        alone: whether no other request ran meanwhile; else the engine's counters are of several.
        rounds: how the server decodes; one that does not tell its passes leaves all ways unknown.
    """
    if rounds.passes is None:
        return Ways(steps=None, accepted=None, chunks=None)
    accepted = answer.said.get("accepted")
    if accepted is None and rounds.drafts is False:
        accepted = 0
    if accepted is None and alone and "accepted" in grown:
        accepted = int(grown["accepted"])
    own = None if accepted is None else len(answer.ids) - answer.sizes[0] - accepted + overrun(answer, rounds.own_tokens)
    steps = _steps(answer, grown, alone)
    return Ways(
        steps=None if steps is None else steps * rounds.passes,
        accepted=None if own is None else own * rounds.passes // rounds.own_tokens,
        chunks=(len(answer.chunks) - 1) * rounds.passes,
    )


def _steps(answer: ServedAnswer, grown: Mapping[str, float], alone: bool) -> int | None:
    """Decode rounds by what the server said of the request, or by its counter of all steps."""
    if "steps" in answer.said:
        return int(answer.said["steps"])
    if average := answer.said.get("tokens_per_iteration"):
        return round(len(answer.ids) / max(float(average), 1 / MOST)) - PROMPT_PASSES
    return int(grown["passes"]) - PROMPT_PASSES if alone and "passes" in grown else None


def overrun(answer: ServedAnswer, own_tokens: int) -> int:
    """Accepted drafts of the last round that lie after the answer's end, and are never written.

    Known where the server lists what every draft had accepted: the last one against the last chunk.
    """
    last = _last_accepted(answer, own_tokens) if len(answer.sizes) > 1 else None
    return 0 if last is None else max(0, last + own_tokens - answer.sizes[-1])


def _last_accepted(answer: ServedAnswer, own_tokens: int) -> int | None:
    """What the last round's draft had accepted; None where the server does not list it, or the round had no draft.

    In a histogram it is the one that no chunk before has. A last chunk of one token can be of a pass without a draft: it is one
    if every draft with something accepted has a longer chunk before it.
    """
    before = answer.sizes[1:-1]
    if histogram := answer.said.get("accepted_histogram"):
        left = Counter(dict(enumerate(histogram))) - Counter(size - own_tokens for size in before)
        return int(min(left)) if left.total() == 1 else None
    listed = answer.said.get("accepted_by_round") or ()
    if not listed or (answer.sizes[-1] == 1 and sum(size > 1 for size in before) >= sum(count > 0 for count in listed)):
        return None
    return int(listed[-1])


def fed_by_chunk(answer: ServedAnswer, width: int | None = None) -> list[int]:
    """Tokens that every decode pass fed: its drafts and the token before them. Without a list of drafts, what it wrote.

    ``width``: what each fed, where the server says so.
    """
    sizes = list(answer.sizes[1:])
    fed = [max(size, width or 0) for size in sizes]
    rounds = zip(answer.said.get("accepted_by_round") or (), answer.said.get("drafted_by_round") or (), strict=False)
    at = 0
    for accepted, drafted in rounds:
        while at < len(sizes) and sizes[at] != accepted + 1 and not (at == len(sizes) - 1 and sizes[at] <= accepted):
            at += 1  # a pass without a draft
        if at == len(sizes):
            break
        fed[at] = max(drafted + 1, sizes[at])
        at += 1
    return fed


def prompt_pass(answers: Sequence[ServedAnswer], prompts: Sequence[Sequence[int]]) -> ForwardPass:
    """The prompts' pass, which gave the first chunk of every answer."""
    lengths, first = tuple(map(len, prompts)), tuple(answer.sizes[0] for answer in answers)
    nothing = (0,) * len(lengths)
    return ForwardPass(
        role="prefill",
        query_tokens=lengths,
        context_tokens=nothing,
        logit_tokens=(1,) * len(lengths),
        kept_tokens=lengths,
        decided_tokens=first,
        final_tokens=first,
        active=(True,) * len(lengths),
        padded_query=max(lengths),
        padded_context=0,
    )


@frozen
class Arrival:
    """One row's part of a pass: when it was seen, tokens fed, KV before it, tokens written."""

    at_s: float
    row: int
    fed: int
    context: int
    written: int


def arrivals(row: int, answer: ServedAnswer, prompt_tokens: int, one_by_one: bool, width: int | None = None) -> list[Arrival]:
    """The decode rounds of one row. ``one_by_one``: the engine decodes a token a pass, so a chunk of two is two passes."""
    parts: list[Arrival] = []
    context, before_s = prompt_tokens, answer.chunks[0].at_s
    for chunk, fed in zip(answer.chunks[1:], fed_by_chunk(answer, width), strict=True):
        size = len(chunk.ids)
        pieces = size if one_by_one else 1
        for piece in range(pieces):
            at_s = before_s + (chunk.at_s - before_s) * (piece + 1) / pieces
            written = 1 if one_by_one else size
            parts.append(Arrival(at_s=at_s, row=row, fed=1 if one_by_one else fed, context=context, written=written))
            context += written
        before_s = chunk.at_s
    return parts


def merged(every: Sequence[Sequence[Arrival]]) -> list[list[Arrival]]:
    """The rows' passes as passes of the batch, in time. One ends where a row that is in it comes again, or half of a row's
    usual time between two passes after it began.
    """
    gaps = [after.at_s - before.at_s for row in every for before, after in pairwise(row)]
    within_s = median(gaps) / 2 if gaps else inf
    passes: list[list[Arrival]] = []
    seen: set[int] = set()
    for arrival in sorted((arrival for row in every for arrival in row), key=lambda arrival: arrival.at_s):
        if not passes or arrival.row in seen or arrival.at_s - passes[-1][0].at_s > within_s:
            passes.append([])
            seen = set()
        passes[-1].append(arrival)
        seen.add(arrival.row)
    return passes


def described(arrived: Sequence[Arrival], rows: int) -> ForwardPass:
    """The decode pass of the batch that wrote these; rows that are not in it wait."""
    by_row = {arrival.row: arrival for arrival in arrived}

    def each(value: str) -> tuple[int, ...]:
        return tuple(getattr(by_row[row], value) if row in by_row else 0 for row in range(rows))

    fed, written = each("fed"), each("written")
    role: Role = "verify" if max(fed) > 1 else "decide"
    return ForwardPass(
        role=role,
        query_tokens=fed,
        context_tokens=each("context"),
        logit_tokens=fed,
        kept_tokens=written,
        decided_tokens=written,
        final_tokens=written,
        active=tuple(row in by_row for row in range(rows)),
        padded_query=max(fed),
        padded_context=max(each("context")),
    )


def passes_of_round(arrived: Sequence[Arrival], rows: int, passes: int) -> list[ForwardPass]:
    """A round as the passes of the batch: those that only draft, as wide as the one that checks and writes, then that one."""
    last = described(arrived, rows)
    nothing = (0,) * rows
    drafting = last._replace(role="draft", kept_tokens=nothing, decided_tokens=nothing, final_tokens=nothing)
    return [*[drafting] * (passes - 1), last]


def readings_of(
    answers: Sequence[ServedAnswer], ways: Sequence[Ways], grown: Mapping[str, float], in_turn: bool, untold: str
) -> Readings:
    """The figures of one sample; those that its server does not give have a reason.

    Args:
        in_turn: its requests were sent one after the other, so that the server's steps are theirs together.
        untold: why the server tells no passes.
    """
    sums = {name: _sum([getattr(counted, name) for counted in ways]) for name in ("steps", "accepted", "chunks")}
    if in_turn and len(answers) > 1 and "passes" in grown:
        sums["steps"] = grown["passes"] - PROMPT_PASSES * len(answers)
    headlines = [answer.said["headline"] for answer in answers if answer.said.get("headline")]
    cached = _sum([answer.said.get("cached") for answer in answers])
    values: dict[str, float | None] = {f"served_passes_by_{name}": total for name, total in sums.items()}
    values |= {
        "served_ways_disagree": (
            _disagreeing(ways, [total for total in sums.values() if total is not None]) if in_turn and not untold else None
        ),
        FIRST_TOKENS: float(sum(answer.sizes[0] for answer in answers)),
        "served_headline": fmean(headlines) if headlines else _headline(grown),
        "served_foreign_requests": grown["requests"] - len(answers) if "requests" in grown else None,
        "served_cached_tokens": grown.get("cached", cached),
        "served_preempted": grown.get("preempted"),
        "served_read_bytes": grown.get("read_bytes"),
    }
    known = {name: value for name, value in values.items() if value is not None}
    why = "the server does not tell" if in_turn else "the server does not tell, or not of several requests at once"
    reasons = dict.fromkeys((name for name in FIGURES if name not in known), why)
    if untold:
        reasons |= {name: untold for name in reasons if "passes" in name or "ways" in name} | {NO_PASSES: untold}
    return Readings(values=known, reasons=reasons)


def _disagreeing(ways: Sequence[Ways], sums: Sequence[float]) -> float:
    """Requests whose own ways differ; all where there is one way only, and one where nothing but the sums differ."""
    if len(sums) < 2:
        return float(len(ways))
    return float(max(sum(len(set(counted.counts)) > 1 for counted in ways), len(set(sums)) > 1))


def _sum(counts: Sequence[float | None]) -> float | None:
    known = [float(count) for count in counts if count is not None]
    return sum(known) if known and len(known) == len(counts) else None


def _headline(grown: Mapping[str, float]) -> float | None:
    """1 + accepted drafts a round, as vLLM and llama.cpp state it."""
    return 1 + grown["accepted"] / grown["rounds"] if grown.get("rounds") and "accepted" in grown else None
