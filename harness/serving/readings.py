"""What a served sample carries beside its times: the ways of counting, the engine's headline, and what would spoil it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean

from harness.meters.window import MeterFigure
from harness.record.decode import Readings
from harness.record.schema import FIRST_TOKENS, NO_PASSES
from harness.serving.counts import PROMPT_PASSES, Ways
from harness.serving.stream import ServedAnswer

FIGURES = {
    name: MeterFigure(unit=unit, source=source)
    for name, (unit, source) in {
        "served_passes_by_steps": ("count", "the server's step counter, less the prompt's pass"),
        "served_passes_by_accepted": ("count", "decode tokens less accepted drafts"),
        "served_passes_by_chunks": ("count", "chunks of the stream behind the first"),
        "served_ways_disagree": ("requests", "requests of the sample whose ways of counting differ"),
        FIRST_TOKENS: ("tokens", "tokens of the first chunks of its answers, by the client"),
        "served_headline": ("tokens", "the engine's own mean acceptance length of these requests"),
        "served_foreign_requests": ("requests", "the server's request counter, less these"),
        "served_cached_tokens": ("tokens", "the server's count of prompt tokens found in a cache"),
        "served_preempted": ("requests", "the server's count of requests put off"),
        "served_read_bytes": ("bytes", "the server's own estimate"),
    }.items()
}


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
    values: dict[str, float | None] = {f"served_passes_by_{name}": found for name, found in sums.items()}
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
