"""Passes of one request, counted in up to three ways, and the passes as the trace of a decode.

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
from statistics import median

from harness.frozen import frozen
from harness.record.trace import ForwardPass, Role
from harness.serving.dialects.dialect import MOST, ONE_PASS, Rounds
from harness.serving.stream import ServedAnswer

PROMPT_PASSES = 1
"""Passes of one prompt by itself; a longer one that is fed in pieces makes the ways disagree."""


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
    found: list[Arrival] = []
    context, before_s = prompt_tokens, answer.chunks[0].at_s
    for chunk, fed in zip(answer.chunks[1:], fed_by_chunk(answer, width), strict=True):
        size = len(chunk.ids)
        pieces = size if one_by_one else 1
        for piece in range(pieces):
            at_s = before_s + (chunk.at_s - before_s) * (piece + 1) / pieces
            written = 1 if one_by_one else size
            found.append(Arrival(at_s=at_s, row=row, fed=1 if one_by_one else fed, context=context, written=written))
            context += written
        before_s = chunk.at_s
    return found


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
