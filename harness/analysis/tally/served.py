"""What a server said of an arm's requests beside what was counted: the passes by every way, and the engine's own headline."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

from harness.frozen import frozen
from harness.record.schema import Run, Sample
from harness.stats.quantity import Quantity, absent, wilson_interval

WAYS = ("steps", "accepted", "chunks")


@frozen
class Partings:
    """Greedy answers compared with NTP's, by what their first difference is (harness.runner.divergence).

    ``compared``: answers, of ``prompts`` different ones; ``wrong_prompts``: those with an error in any start.
    ``largest_near_tie``: the largest gap, in nats, that counts as rounding. ``rounding``: the measured root mean square.
    """

    compared: int
    prompts: int
    wrong_prompts: int
    near_ties: int
    errors: int
    unclassified: int
    largest_near_tie: float | None
    rounding: float | None

    @property
    def lossless(self) -> Quantity:
        """The share of prompts without an error in any answer; a difference that could not be classed leaves it unknown."""
        if self.unclassified:
            return absent(f"{self.unclassified} answers part from NTP's, why is unknown: few controls, or one had ended")
        return wilson_interval(self.prompts - self.wrong_prompts, self.prompts)


@frozen
class ServedCounts:
    """The requests of one arm that were sent one after the other, over all its samples but the warm-up.

    ``passes``: decode passes by way; None: the server does not tell, for one request at least. ``agreeing``: requests for which
    two ways or more gave one number. ``headline``: the engine's own tokens a pass, a mean over requests; None: it has none.
    ``headline_means``: what it is, in the words of the record; None in older ones, which are all of vLLM.
    ``read_bytes``: by the engine's own estimate, prompt included.
    """

    requests: int
    agreeing: int
    decode_tokens: int
    passes: dict[str, int | None]
    headline: float | None
    headline_means: str | None
    read_bytes: float | None
    partings: Partings | None

    @property
    def tokens_per_pass(self) -> float | None:
        """Decode tokens over passes by the first way that is known for all requests; None where ways disagree."""
        known = next((count for count in self.passes.values() if count and self.agreeing == self.requests), None)
        return self.decode_tokens / known if known else None


def served_counts(run: Run, part: str, case_ids: Collection[str]) -> ServedCounts | None:
    """Of the cases' samples; None where no server decoded them, or never one request at a time."""
    alone = [one for one in run.samples if one.case_id in case_ids and not one.warmup and "served_ways_disagree" in one.meters]
    if not alone:
        return None
    names = {case.arm.server for case in run.cases if case.case_id in case_ids}
    told = [about for event in run.events("engine", part) for name, about in event.get("servers", {}).items() if name in names]
    headlines = [one.meters["served_headline"] for one in alone if "served_headline" in one.meters]
    return ServedCounts(
        requests=sum(len(one.rows) for one in alone),
        agreeing=sum(len(one.rows) - int(one.meters["served_ways_disagree"]) for one in alone),
        decode_tokens=sum(row.output_tokens - 1 for one in alone for row in one.rows),
        passes={way: None if (found := _sum(alone, f"served_passes_by_{way}")) is None else int(found) for way in WAYS},
        headline=sum(headlines) / len(headlines) if headlines else None,
        headline_means=next((str(about["headline"]) for about in told if about.get("headline")), None),
        read_bytes=_sum(alone, "served_read_bytes"),
        partings=partings_of(run, part, case_ids),
    )


def partings_of(run: Run, part: str, case_ids: Collection[str]) -> Partings | None:
    """Of the arm's cases, over all processes; None where the run did not look."""
    events = run.events("divergences", part)
    found = [one for event in events for one in event.get("found", []) if one["case_id"] in case_ids]
    is_arm = {case.case_id for case in run.cases if case.arm.method == "served" and not case.arm.temperature}
    if not events or not is_arm & set(case_ids):
        return None
    by_class = Counter(str(one["class"]) for one in found)
    ties = [abs(one["gap"]) for one in found if one["class"] == "near_tie"]
    rounding = [event["rounding"] for event in events if event.get("rounding") is not None]
    rows = [
        ((one.case_id, row.prompt_id), row.prompt_digest)
        for one in run.samples
        if one.case_id in case_ids and not one.warmup
        for row in one.rows
    ]
    asked = {name: digest or name for name, digest in rows}
    wrong = {asked[one["case_id"], one["prompt_id"]] for one in found if one["class"] == "error"}
    return Partings(
        compared=len(rows),
        prompts=len({*asked.values()}),
        wrong_prompts=len(wrong),
        near_ties=by_class["near_tie"],
        errors=by_class["error"],
        unclassified=by_class["unclassified"],
        largest_near_tie=max(ties, default=None),
        rounding=max(rounding, default=None),
    )


def _sum(samples: list[Sample], name: str) -> float | None:
    found = [one.meters.get(name) for one in samples]
    known = [one for one in found if one is not None]
    return sum(known) if len(known) == len(found) else None
