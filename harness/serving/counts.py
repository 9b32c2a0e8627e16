"""Passes of one request, counted in up to three ways, and the passes as the trace of a decode.

*steps*: what the engine's own step counter grew by, less the prompt's pass. *accepted*: a pass ends with one token that no
draft gave, so decode tokens less accepted drafts; drafts accepted behind the answer's end are taken off. *chunks*: the pieces
of the stream behind the first. Each can be wrong alone: a counter has other clients' steps, an engine does not count a pass
without a draft, and a server may send the tokens of two passes together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import inf
from statistics import median

from harness.record.trace import ForwardPass, Role
from harness.serving.stream import Answer

PROMPT_PASSES = 1
"""Passes of one prompt by itself; a longer one that is fed in pieces makes the ways disagree."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ways:
    """Decode passes of one request by every way that was possible; None: it was not."""

    steps: int | None
    accepted: int | None
    chunks: int | None

    @property
    def counts(self) -> tuple[int, ...]:
        """Those that were possible."""
        return tuple(count for count in (self.steps, self.accepted, self.chunks) if count is not None)

    @property
    def agree(self) -> bool:
        """Whether two ways or more say the same; one alone shows nothing."""
        return len(self.counts) > 1 and len(set(self.counts)) == 1


def count_passes(answer: Answer, grown: Mapping[str, float], alone: bool) -> Ways:
    """The decode passes of a request.

    Args:
        grown: growth of the server's counters over it.
        alone: whether no other request ran meanwhile; else the engine's steps are of several.
    """
    steps = int(grown["passes"]) - PROMPT_PASSES if alone and "passes" in grown else None
    accepted = answer.said.get("accepted")
    if accepted is None and alone and "accepted" in grown:
        accepted = int(grown["accepted"])
    by_accepted = None
    if accepted is not None:
        by_accepted = len(answer.ids) - answer.sizes[0] - accepted + overrun(answer)
    return Ways(steps=steps, accepted=by_accepted, chunks=len(answer.chunks) - 1)


def overrun(answer: Answer) -> int:
    """Accepted drafts of the last pass that lie behind the answer's end, and are never written.

    Known where the server lists what every draft had accepted: the last one against the last chunk. A last chunk of one token
    can be of a pass without a draft: it is one if every draft with something accepted has a longer chunk before it.
    """
    rounds = answer.said.get("accepted_by_round") or ()
    if not rounds or len(answer.sizes) < 2:
        return 0
    last = answer.sizes[-1]
    if last == 1 and sum(size > 1 for size in answer.sizes[1:-1]) >= sum(one > 0 for one in rounds):
        return 0
    return max(0, int(rounds[-1]) + 1 - last)


def fed_by_chunk(answer: Answer) -> list[int]:
    """Tokens that every decode pass fed: its drafts and the token before them. Without a list of drafts, what it wrote."""
    sizes = list(answer.sizes[1:])
    fed = sizes.copy()
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


def prompt_pass(answers: Sequence[Answer], prompts: Sequence[Sequence[int]]) -> ForwardPass:
    """The prompts' pass, which gave the first chunk of every answer."""
    lengths, first = tuple(map(len, prompts)), tuple(one.sizes[0] for one in answers)
    nothing = (0,) * len(lengths)
    return ForwardPass(
        role="prefill", query_tokens=lengths, context_tokens=nothing, logit_tokens=(1,) * len(lengths), kept_tokens=lengths,
        decided_tokens=first, final_tokens=first, active=(True,) * len(lengths), padded_query=max(lengths), padded_context=0,
    )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """One row's part of a pass: when it was seen, tokens fed, KV before it, tokens written."""

    at_s: float
    row: int
    fed: int
    context: int
    written: int


def arrivals(row: int, answer: Answer, prompt_tokens: int, one_by_one: bool) -> list[Arrival]:
    """The decode passes of one row. ``one_by_one``: the engine decodes a token a pass, so a chunk of two is two passes."""
    found: list[Arrival] = []
    context, before_s = prompt_tokens, answer.chunks[0].at_s
    for chunk, fed in zip(answer.chunks[1:], fed_by_chunk(answer), strict=True):
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
    for one in sorted((one for row in every for one in row), key=lambda one: one.at_s):
        if not passes or one.row in seen or one.at_s - passes[-1][0].at_s > within_s:
            passes.append([])
            seen = set()
        passes[-1].append(one)
        seen.add(one.row)
    return passes


def described(arrived: Sequence[Arrival], rows: int) -> ForwardPass:
    """A decode pass of the batch; rows that are not in it wait."""
    by_row = {one.row: one for one in arrived}

    def each(value: str) -> tuple[int, ...]:
        return tuple(getattr(by_row[row], value) if row in by_row else 0 for row in range(rows))

    fed, written = each("fed"), each("written")
    role: Role = "verify" if max(fed) > 1 else "decide"
    return ForwardPass(
        role=role, query_tokens=fed, context_tokens=each("context"), logit_tokens=fed, kept_tokens=written,
        decided_tokens=written, final_tokens=written, active=tuple(row in by_row for row in range(rows)),
        padded_query=max(fed), padded_context=max(each("context")),
    )  # fmt: skip
