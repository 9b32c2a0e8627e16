"""One arm beside NTP, and its figures that claims name, besides the wall speedup; each has an interval over prompts.

At batch sizes above 1 a batch takes the place of a prompt. A ratio of sums has two entries. Its name alone is the geometric
mean over prompts; its name with ``_totals`` is the ratio of totals.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from harness.analysis.figures import accuracy as on_accuracy
from harness.analysis.figures import unpaired
from harness.analysis.figures.accuracy import Clusters, Grades, Outputs, accuracy_figures
from harness.analysis.figures.arm_metrics import NO_PASS, Pair, Term, both_estimates, one_sided, pair_up
from harness.analysis.tally.pass_values import DURING_RUN, price_words
from harness.analysis.tally.prices import Ladder
from harness.analysis.figures.request_figures import request_figures
from harness.analysis.tally.tally import Tally, units_of
from harness.stats import quantity
from harness.stats.quantity import Quantity, absent, exact
from harness.stats.sample_size import percentile_over_processes
from harness.analysis.tally.traffic import CounterScale
from harness.record.schema import CaseHeader
from harness.scenario.load import Load
from harness.scenario.metrics import PERCENTILES, PRICES

TOTALS = "_totals"
ENERGY_WINDOW_S = 5.0
"""Seconds; a shorter window holds too few steps of an energy counter that moves every 100 ms."""
NO_ENERGY = "no energy was read over these decodes (sbd doctor says what this machine can read)"
REPETITIVE = 0.6
"""An answer with a smaller share of distinct 4-grams repeats itself."""
NOT_TIMED = "this part was not timed"
NO_TIMES = "no sample of this arm has a time: every one was void"
NO_CHOICE = "no decode pass was made: every answer of NTP is one token long, which the prompt's own pass gives"
NTP_VOID = "no sample of NTP has a time: every one was void"
NO_NTP = "no NTP arm in this part decoded the same prompts"
NOT_GRADED = "NTP was not graded on the same prompts"


@dataclass(frozen=True, kw_only=True)  # no slots: cached_property needs __dict__
class Arm:
    """The cases of one arm in one cell (one per task) with their tallies."""

    cases: tuple[CaseHeader, ...]
    tallies: tuple[Tally, ...]

    @property
    def spec(self) -> dict[str, Any]:
        """The arm's values on every axis, as the scenario resolved them."""
        return self.cases[0].arm

    @property
    def method(self) -> str:
        """``ntp`` or ``sbd``."""
        return str(self.spec.get("method"))

    @property
    def temperature(self) -> float:
        """Sampling temperature; a scenario that names none samples greedily."""
        return float(self.spec.get("temperature") or 0.0)

    @property
    def replayed(self) -> dict[str, Any] | None:
        """Source of the acceptance, for an arm whose acceptance was replayed."""
        return next((case.replayed for case in self.cases if case.replayed is not None), None)

    @cached_property
    def grades(self) -> Grades:
        """The grades of its answers; a replayed acceptance gives none."""
        return {} if self.replayed else on_accuracy.grades(self.tallies)

    @property
    def accuracy(self) -> Quantity:
        """Share of correct prompts with its interval."""
        return on_accuracy.accuracy(self.grades, self.tallies, self.replayed is not None)

    @cached_property
    def related(self) -> Clusters:
        """The clusters of its prompts."""
        return on_accuracy.clusters(self.tallies)

    @cached_property
    def outputs(self) -> Outputs:
        """Its output ids, decode by decode."""
        return on_accuracy.outputs(self.tallies)


@dataclass(frozen=True, slots=True, kw_only=True)
class CellContext:
    """What all arms of a cell share.

    ``lacks``: why an imported run has no ids, passes or grades, by names of harness.record.imported. ``unpaired``: why its
    requests have no pairs; None where they have. ``wrong``: prompts that some arm answers wrongly.
    """

    ladder: Ladder
    counter_scale: CounterScale
    timed: bool
    baseline_part: str | None
    load: Load | None
    baseline_grades: Grades
    why_unchecked: str
    lacks: Mapping[str, str] = field(default_factory=dict)
    unpaired: str | None = None
    wrong: int = 0


@dataclass(frozen=True, kw_only=True)  # no slots: cached_property needs __dict__
class ArmBesideNtp:
    """One arm of a cell and the NTP arm that it is compared with: itself for NTP, None where the cell has no such arm."""

    arm: Arm
    ntp: Arm | None
    place: CellContext

    @cached_property
    def timed(self) -> list[Tally]:
        """Its samples with a time, which void ones lack."""
        return [tally for tally in self.arm.tallies if self.place.timed and tally.decode_s is not None]

    @cached_property
    def pairs(self) -> list[Pair]:
        """Its timed samples, each with NTP's; none where the files of an imported run hold other prompts."""
        return pair_up(self.ntp.tallies, self.timed) if self.ntp and self.place.unpaired is None else []

    @cached_property
    def lost(self) -> list[tuple[str, int]]:
        """(task, group) that only one of the two decoded."""
        pairs = self.ntp is not None and self.place.timed and self.place.unpaired is None
        return one_sided(self.ntp.tallies, self.arm.tallies) if self.ntp and pairs else []

    @property
    def why_unpaired(self) -> str:
        """Why no decode has NTP's beside it."""
        if self.ntp and not any(one.decode_tokens for one in self.ntp.tallies):
            return NO_CHOICE
        return NTP_VOID if self.ntp and not self.ntp_timed else NO_NTP

    @property
    def why_lost(self) -> str | None:
        """Why there is no interval where prompts have no pair."""
        if not self.lost:
            return None
        task, group = self.lost[0]
        return (
            f"{len(self.lost)} prompts were decoded by NTP alone or by this arm alone (first: {task}, number {group}): "
            "no interval over the others, for what is left out of one side flatters it; "
            "the same command continues an unfinished run"
        )

    @property
    def ntp_timed(self) -> list[Tally]:
        """NTP's samples with a time."""
        return [tally for tally in self.ntp.tallies if tally.decode_s is not None] if self.ntp else []

    @property
    def why_untimed(self) -> str:
        """Why none of its samples has a time."""
        return NO_TIMES if self.place.timed else NOT_TIMED

    @property
    def why_ungraded(self) -> str:
        """Why its accuracy cannot be compared with NTP's."""
        return self.arm.accuracy.reason or NOT_GRADED


NOT_SERVED = "no server decoded this arm, or nothing was greedy: only then are answers held against the weights"


def claimed_figures(one: ArmBesideNtp, confidence: float = quantity.CONFIDENCE) -> dict[str, Quantity]:
    """The figures by the name that a claim uses, with intervals at ``confidence``; NTP is not compared with itself.

    *joules_per_token*: of prefill and decode, over the decodes that lasted long enough to be metered. *bandwidth_share*:
    modelled bytes of the decode's forwards ÷ (their time · read ceiling). *wall_over_nfe*: wall speedup ÷ NFE speedup over the
    same pairs, the share of the saved passes that saves time. Both are per decode token, so it is NTP's time per row-pass over
    the arm's. *distinct4_median*: the median over prompts of the share of distinct 4-grams among those of an answer, and
    *repetitive_answers*: the share of answers below REPETITIVE. *short_answers*: that of answers of one token at most.
    *request_speedup*: time of the whole request per output token, prompt included, NTP ÷ arm. *lossless* is put in behind, for
    arms that a server decoded (harness.analysis.tally.served). Those over the requests of a server are in
    harness.analysis.figures.request_figures.
    """
    timed, why = one.timed, one.why_untimed
    reference = None if one.ntp is one.arm else one.ntp
    pairs = one.pairs if reference and not one.lost else []
    why_unpaired = why if not timed else one.why_lost or one.why_unpaired
    metered = [t for t in timed if t.energy_j and (t.metered_s or 0.0) >= ENERGY_WINDOW_S]
    ceiling = one.place.ladder.read_ceiling
    rate, why_no_rate = (0.0, ceiling.reason or why) if ceiling.value is None else (ceiling.value, why)
    why_no_passes = one.place.lacks.get("passes", NO_PASS)
    passes = [Term(t, t.decode_tokens, t.row_passes) for t in one.arm.tallies if t.row_passes is not None]
    tokens = [Term(t, t.decode_tokens, t.decode_s or 0.0) for t in timed]
    joules = [Term(t, t.energy_j or 0.0, t.output_tokens) for t in metered]
    moved = [Term(t, t.bytes_, (t.forward_s or 0.0) * rate) for t in timed]
    row_passes = [
        Term(arm, ntp.decode_s or 0.0, arm.decode_s or 0.0, ntp.row_passes, arm.row_passes)
        for ntp, arm in pairs
        if ntp.row_passes is not None and arm.row_passes is not None
    ]
    return {
        "lossless": absent(NOT_SERVED),
        **_both("nfe_speedup", passes, why_no_passes, confidence, clock=False),
        **_both("tokens_per_s", tokens, why, confidence),
        **_both("joules_per_token", joules, NO_ENERGY if timed else why, confidence),
        **_both("bandwidth_share", moved, why_no_rate, confidence),
        **_latencies(one.arm.tallies, why, confidence),
        **_repetition(one.arm.tallies, one.place.lacks.get("output_ids", "no answer"), confidence),
        **_both("wall_over_nfe", row_passes, one.place.lacks.get("passes", why_unpaired), confidence),
        **_requests(one, why_unpaired, confidence),
        **_prediction_errors(pairs, one.place.lacks.get("passes", why_unpaired), confidence),
        **request_figures(one.arm.tallies, reference.tallies if reference else None, confidence),
        **accuracy_figures(
            one.arm.grades,
            reference.grades if reference else {},
            one.arm.related,
            one.why_ungraded,
            one.place.wrong,
            confidence,
        ),
    }


def _requests(one: ArmBesideNtp, why_none: str, confidence: float) -> dict[str, Quantity]:
    """The request speedup over pairs, or between the files of an imported run without pairs."""
    ntp = one.ntp.tallies if one.ntp and one.ntp is not one.arm and not one.lost else ()
    if one.place.unpaired is not None and ntp:
        mean, totals = unpaired.request_speedups(ntp, one.arm.tallies, confidence)
        return {"request_speedup": mean, "request_speedup" + TOTALS: totals}
    terms = [
        Term(arm, ntp.latency_s or 0.0, arm.latency_s or 0.0, ntp.output_tokens, arm.output_tokens)
        for ntp, arm in pair_up(ntp, one.arm.tallies, "latency_s")
        if min(ntp.decode_tokens, arm.decode_tokens) > 0
    ]
    return _both("request_speedup", terms, why_none, confidence)


def _both(name: str, terms: Sequence[Term], why_none: str, confidence: float, clock: bool = True) -> dict[str, Quantity]:
    """A ratio by either estimator, over the terms that are positive."""
    usable = [term for term in terms if min(term[1:]) > 0]
    mean, totals = both_estimates(usable, confidence, clock) if usable else (absent(why_none), absent(why_none))
    return {name: mean, name + TOTALS: totals}


def _latencies(timed: Sequence[Tally], why_none: str, confidence: float) -> dict[str, Quantity]:
    """Percentiles over prompts of the request latency, prefill and decode; repeats in a process are averaged."""
    units = zip(timed, units_of(timed), strict=True)
    known = [(tally.latency_s, unit, tally.key[3]) for tally, unit in units if tally.latency_s is not None]
    if not known:
        return {f"latency_p{p}_s": absent(why_none) for p in PERCENTILES}
    latencies, prompts, processes = zip(*known, strict=True)
    return {f"latency_p{p}_s": percentile_over_processes(latencies, prompts, processes, p, confidence) for p in PERCENTILES}


def _repetition(tallies: Sequence[Tally], why_none: str, confidence: float) -> dict[str, Quantity]:
    found = [
        (share, prompt, t.key[3])
        for t in tallies
        for prompt, share in zip(t.prompts, t.distinct4, strict=True)
        if share is not None
    ]
    if not found:
        return dict.fromkeys(("distinct4_median", "repetitive_answers", "short_answers"), absent(why_none))
    long = [len(ids) for t in tallies for ids in t.outputs if ids is not None]
    shares, prompts, processes = zip(*found, strict=True)
    return {
        "distinct4_median": percentile_over_processes(shares, prompts, processes, 50, confidence),
        "repetitive_answers": exact(sum(share < REPETITIVE for share in shares) / len(shares), n=len(shares)),
        "short_answers": exact(sum(tokens < 2 for tokens in long) / len(long), n=len(long)),
    }


def _prediction_errors(pairs: Sequence[Pair], why_none: str, confidence: float) -> dict[str, Quantity]:
    """Predicted ÷ measured wall speedup - 1, ex-ante and with passes measured during the run. Ex-ante: by the highest rung that
    priced both decodes of every pair, from facts known before the first sample.
    """
    priced = set.intersection(*(set(t.priced_s) for pair in pairs for t in pair)) if pairs else set()
    ex_ante = next((price for price in PRICES if price in priced and price != DURING_RUN), None)
    why_neither = "there are no ceilings to predict these decodes with" if pairs else why_none
    why_not_during = "no pass of this model was measured during the run" if ex_ante else why_neither
    return {
        **_prediction_error("prediction_error", ex_ante, pairs, why_neither, confidence),
        **_prediction_error(
            "prediction_error_during_run", DURING_RUN if DURING_RUN in priced else None, pairs, why_not_during, confidence
        ),
    }


def _prediction_error(
    name: str, price: str | None, pairs: Sequence[Pair], why_none: str, confidence: float
) -> dict[str, Quantity]:
    if price is None:
        return _both(name, (), why_none, confidence)
    predicted = [(ntp, arm, ntp.priced_s[price][1], arm.priced_s[price][1]) for ntp, arm in pairs]
    terms = [Term(arm, of_ntp, ntp.decode_s or 0.0, of_arm, arm.decode_s or 0.0) for ntp, arm, of_ntp, of_arm in predicted]
    found = {}
    for key, ratio in _both(name, terms, why_none, confidence).items():
        value, low, high = (None if end is None else end - 1 for end in (ratio.value, ratio.low, ratio.high))
        method = f"{price_words(price)} roofline; {ratio.method}"
        found[key] = replace(ratio, value=value, low=low, high=high, method=method)
    return found
