"""What a served sample carries beside its times: the ways of counting, the engine's headline, and what would spoil it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean

from harness.meters.window import MeterFigure, Readings
from harness.scenario.servers import Load
from harness.serving.counts import Ways
from harness.serving.stream import Answer
from harness.serving.times import PERCENTILES, request_figures

FIGURES: dict[str, MeterFigure] = {
    "served_passes_by_steps": MeterFigure(unit="count", source="the server's step counter, less the prompt's pass"),
    "served_passes_by_accepted": MeterFigure(unit="count", source="decode tokens less accepted drafts"),
    "served_passes_by_chunks": MeterFigure(unit="count", source="chunks of the stream behind the first"),
    "served_ways_disagree": MeterFigure(unit="requests", source="requests of the sample whose ways of counting differ"),
    "served_headline": MeterFigure(unit="tokens", source="the engine's own mean acceptance length of these requests"),
    "served_foreign_requests": MeterFigure(unit="requests", source="the server's request counter, less these"),
    "served_cached_tokens": MeterFigure(unit="tokens", source="the server's count of prompt tokens found in a cache"),
    "served_preempted": MeterFigure(unit="requests", source="the server's count of requests put off"),
    "served_read_bytes": MeterFigure(unit="bytes", source="the server's own estimate"),
    **{
        f"served_{name}_p{percent}_s": MeterFigure(unit="s", source=f"percentile {percent} of its requests, by the client")
        for name in ("first_token", "time_per_token", "request") for percent in PERCENTILES
    },
    "served_requests_per_s": MeterFigure(unit="1/s", source="finished requests over the sample's time, by the client"),
    "served_tokens_per_s": MeterFigure(unit="tokens/s", source="output tokens over the sample's time, by the client"),
    "served_goodput_per_s": MeterFigure(unit="1/s", source="requests within the limits of the load over the sample's time"),
}  # fmt: skip


def readings_of(
    answers: Sequence[Answer], ways: Sequence[Ways], grown: Mapping[str, float], load: Load | None = None, untold: str = ""
) -> Readings:
    """The figures of one batch; those that its server does not give have a reason. ``untold``: why it tells no passes."""
    sums = {name: _sum([getattr(one, name) for one in ways]) for name in ("steps", "accepted", "chunks")}
    headlines = [one.said["headline"] for one in answers if one.said.get("headline")]
    cached = _sum([one.said.get("cached") for one in answers])
    values: dict[str, float | None] = {f"served_passes_by_{name}": found for name, found in sums.items()}
    values |= {
        "served_ways_disagree": None if len(answers) > 1 or untold else float(sum(not one.agree for one in ways)),
        "served_headline": fmean(headlines) if headlines else _headline(grown),
        "served_foreign_requests": grown["requests"] - len(answers) if "requests" in grown else None,
        "served_cached_tokens": grown.get("cached", cached),
        "served_preempted": grown.get("preempted"),
        "served_read_bytes": grown.get("read_bytes"),
    }
    values |= request_figures(answers, load)
    known = {name: value for name, value in values.items() if value is not None}
    why = "the server does not tell" if len(answers) == 1 else "the server does not tell, or not of several requests at once"
    reasons = dict.fromkeys((name for name in FIGURES if name not in known), why)
    if untold:
        reasons |= {name: untold for name in reasons if "passes" in name or "ways" in name} | {"passes": untold}
    return Readings(values=known, reasons=reasons)


def _sum(counts: Sequence[float | None]) -> float | None:
    known = [float(one) for one in counts if one is not None]
    return sum(known) if known and len(known) == len(counts) else None


def _headline(grown: Mapping[str, float]) -> float | None:
    """1 + accepted drafts a round, as vLLM and llama.cpp state it."""
    return 1 + grown["accepted"] / grown["rounds"] if grown.get("rounds") and "accepted" in grown else None
