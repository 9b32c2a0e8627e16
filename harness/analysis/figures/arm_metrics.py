"""Values of one arm in one cell from its samples and NTP's: speedups, factors, rates and predictions."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from operator import attrgetter
from typing import NamedTuple

from harness.analysis.tally.tally import Decodes, GroupKey, Tally, labels_of
from harness.frozen import frozen
from harness.stats.quantity import CONFIDENCE, Quantity, absent, exact, quotient
from harness.stats.ratios import geometric_mean_ratio, ratio_of_totals, ratio_percentiles

NO_PASS = "no decode pass was made"
NO_SAMPLER_TIME = "the record is older than the sampler's own time (record version 3)"
MOST_FILLED = 0.18
Pair = tuple[Tally, Tally]
"""(NTP, arm): two decodes of the same task, group, repeat and process."""


@frozen
class Factors:
    """Factors of the wall speedup over the paired samples, each a geometric mean over prompts; ``product`` is the speedup.

    ``passes``          NFE speedup: decode tokens per active row-pass, arm ÷ NTP (NTP is 1)
    ``rows_per_pass``   active rows per forward pass, arm ÷ NTP: rows that wait for the slowest (exactly 1 at batch 1)
    ``pass_cost``       time per forward, NTP ÷ arm; that of draft models' forwards is added to those of the target
    ``overhead``        decode wall ÷ Σ forwards, NTP ÷ arm: sampler and everything else around the forwards
    """

    passes: float
    rows_per_pass: float
    pass_cost: float
    overhead: float

    @property
    def product(self) -> float:
        """The wall speedup."""
        return self.passes * self.rows_per_pass * self.pass_cost * self.overhead


@frozen
class PassParts:
    """Mean seconds of a decode pass, in three parts that add up to decode wall ÷ passes.

    ``sampler_s`` runs from the end of the forward to the readback of the decisions; ``rest_s`` is the rest of the loop.
    """

    forward_s: Quantity
    sampler_s: Quantity
    rest_s: Quantity


@frozen
class Paired:
    """Details of a speedup over the pairs it rests on; a None has a ``reason``.

    ``processes``    fresh processes that the pairs come from
    ``p10``..``p90`` percentiles over prompts of each prompt's own wall speedup (batches at batch > 1)
    ``*_tokens``     mean output tokens of a sample of NTP and of the arm, those of the prefill included
    ``one_sided``    prompts that only one of the two decoded: they make no pair, and the speedup has no interval
    """

    pairs: int
    processes: int
    p10: float | None
    p50: float | None
    p90: float | None
    ntp_output_tokens: float | None
    output_tokens: float | None
    one_sided: int
    reason: str | None


class Term(NamedTuple):
    """What one decode of an arm, or one pair of them, adds to (Σ over ÷ Σ over_per) ÷ (Σ under ÷ Σ under_per)."""

    of: Tally
    over: float
    under: float
    over_per: float = 1.0
    under_per: float = 1.0


def both_estimates(terms: Sequence[Term], why_none: str, confidence: float, clock: bool = True) -> tuple[Quantity, Quantity]:
    """The geometric mean over prompts, and the ratio of totals. ``clock``: both rest on times, which differ from process to
    process.
    """
    if not terms:
        return absent(why_none), absent(why_none)
    prompts, processes = labels_of([term.of for term in terms])
    starts = processes if clock else None
    sums, per = [(term.over, term.under) for term in terms], [(term.over_per, term.under_per) for term in terms]
    return (
        geometric_mean_ratio(_ratios(terms), prompts, starts, confidence),
        ratio_of_totals(sums, per, prompts, starts, confidence),
    )


def pair_up(ntp: Decodes, arm: Decodes, has: str = "has_decode_time") -> list[Pair]:
    """Decodes of the same (task, group, repeat, process) by both arms that have decode tokens and the time in question."""
    of_ntp = {tally.key: tally for tally in ntp if getattr(tally, has)}
    return [(of_ntp[tally.key], tally) for tally in arm if tally.key in of_ntp and getattr(tally, has)]


def nfe_speedup(tallies: Decodes, given: bool, why_unknown: str) -> Quantity:
    """Decode tokens ÷ NFE over all rows; ``given`` marks a replayed arm, whose acceptance is an input."""
    tokens, row_passes = sum(tally.decode_tokens for tally in tallies), summed(tallies, attrgetter("sums.row_passes"))
    if row_passes is None:
        return absent(why_unknown)
    return quotient(exact(tokens, n=len(tallies)), exact(row_passes), NO_PASS, "given" if given else None)


def summed(tallies: Decodes, of: Callable[[Tally], int | None]) -> int | None:
    """A count over all samples; None where one sample does not tell it."""
    found = [of(tally) for tally in tallies]
    known = [count for count in found if count is not None]
    return sum(known) if len(known) == len(found) else None


def one_sided(ntp: Decodes, arm: Decodes) -> list[GroupKey]:
    """(task, group) that only one of the two decoded. A void decode counts as decoded: only its time is absent."""
    return sorted({tally.key[:2] for tally in ntp} ^ {tally.key[:2] for tally in arm})


def wall_speedups(pairs: Sequence[Pair], why_none: str, confidence: float = CONFIDENCE) -> tuple[Quantity, Quantity]:
    """Wall speedup as geometric mean over prompts and as ratio of totals, with intervals over prompts and processes."""
    return both_estimates(_per_token(pairs), why_none, confidence)


def filled(pairs: Sequence[Pair], ntp: Decodes, arm: Decodes, slow: bool) -> list[Pair]:
    """``pairs`` with one for each decode that is in none: below the least speedup that was seen, or above the largest if not
    ``slow``. No pairs where more than MOST_FILLED are lost.

    The least speedup that was seen is too high where the slowest were lost. For exponential logarithms the mean of a lost share
    p is 1 + 1 / ln(1 / 2p) times as far from the median; for normal ones it is nearer.

    Source: J. L. Horowitz and C. F. Manski, J. Am. Stat. Assoc. 95 (2000) 77: bounds by the extremes of what is missing.
    """
    of_ntp, of_arm = ({one.key: one for one in side if one.decode_tokens} for side in (ntp, arm))
    lost = (of_ntp | of_arm).keys() - {own.key for _, own in pairs}
    share = len(lost) / (len(pairs) + len(lost))
    if not 0 < share <= MOST_FILLED:
        return [] if lost else [*pairs]
    rates = _ratios(_per_token(pairs))
    seen, arm_s = [over / under for over, under in rates], statistics.median(under for _, under in rates)
    middle = statistics.median(seen)
    ntp_s = arm_s * middle * ((min if slow else max)(seen) / middle) ** (1 - 1 / math.log(2 * share))

    def timed(each_s: float, one: Tally) -> Tally:
        return replace(one, decode_s=each_s * one.decode_tokens)

    ntps, arms = of_arm | of_ntp, of_ntp | of_arm
    return [*pairs, *((timed(ntp_s, ntps[key]), timed(arm_s, arms[key])) for key in sorted(lost))]


def paired(pairs: Sequence[Pair], lost: int, why_none: str) -> Paired:
    """Spread, lengths and counts of these pairs; ``lost`` prompts have no pair because only one side decoded them."""
    percentiles = ratio_percentiles(_ratios(_per_token(pairs)), [arm.prompts for _, arm in pairs])
    p10, p50, p90 = percentiles or (None, None, None)
    return Paired(
        pairs=len(pairs),
        processes=len({arm.key[3] for _, arm in pairs}),
        p10=p10,
        p50=p50,
        p90=p90,
        ntp_output_tokens=sum(ntp.output_tokens for ntp, _ in pairs) / len(pairs) if pairs else None,
        output_tokens=sum(arm.output_tokens for _, arm in pairs) / len(pairs) if pairs else None,
        one_sided=lost,
        reason=None if percentiles else why_none if not pairs else "a decode time is not a positive finite number",
    )


def factors(pairs: Sequence[Pair]) -> Factors | None:
    """The wall speedup as a product; None where the forwards were not timed one by one.

    A decode's seconds per token are (row-passes per token) × (passes per row-pass) × (seconds of a forward) × (decode ÷
    forwards). The logarithms of the four add up in every pair of decodes, so they do in the mean over prompts.
    """
    chain = [attrgetter(name) for name in ("decode_tokens", "sums.row_passes", "sums.passes", "sums.forward_s", "decode_s")]
    if not pairs or any((of(tally) or 0) <= 0 for pair in pairs for tally in pair for of in chain):
        return None
    prompts, processes = labels_of([arm for _, arm in pairs])

    def mean(over: attrgetter[float], under: attrgetter[float]) -> float | None:
        """Of the arm's ``over`` ÷ ``under``, over NTP's."""
        rates = [(over(arm) / under(arm), over(ntp) / under(ntp)) for ntp, arm in pairs]
        return geometric_mean_ratio(rates, prompts, processes).value

    passes, rows, cost, around = (mean(over, under) for over, under in pairwise(chain))
    if passes is None or rows is None or cost is None or around is None:
        return None
    return Factors(passes=passes, rows_per_pass=rows, pass_cost=cost, overhead=around)


def pass_parts(tallies: Decodes, why_none: str) -> PassParts:
    """Forward, sampler and the rest of the loop, per pass; a record older than version 3 has no time of the sampler."""
    passes = summed(tallies, attrgetter("sums.passes"))
    decode_s = total(tallies, lambda t: t.decode_s, why_none)
    forward_s = total(tallies, lambda t: t.sums.forward_s, why_none)
    sampler_s = total(tallies, lambda t: t.sums.sampler_s, why_none if forward_s.value is None else NO_SAMPLER_TIME)
    why = decode_s.reason or forward_s.reason or sampler_s.reason or (None if passes else NO_PASS)
    decode, forward, sampler = (one.value or 0.0 for one in (decode_s, forward_s, sampler_s))
    parts = [
        absent(why) if why else exact(seconds / (passes or 1), n=len(tallies))
        for seconds in (forward, sampler, decode - forward - sampler)
    ]
    return PassParts(forward_s=parts[0], sampler_s=parts[1], rest_s=parts[2])


def total(tallies: Decodes, of: Callable[[Tally], float | None], why_none: str) -> Quantity:
    """Σ over samples, absent as soon as one sample has no figure."""
    if not tallies or any(of(tally) is None for tally in tallies):
        return absent(why_none)
    return exact(_sum(tallies, of), n=len(tallies))


def median(tallies: Decodes, of: Callable[[Tally], float | None], why_none: str) -> Quantity:
    """Median over the samples that have the figure, such as the request latency or the time to first token."""
    known = [value for value in map(of, tallies) if value is not None]
    return exact(statistics.median(known), n=len(known)) if known else absent(why_none)


def _per_token(pairs: Sequence[Pair]) -> list[Term]:
    return [Term(arm, ntp.decode_s or 0.0, arm.decode_s or 0.0, ntp.decode_tokens, arm.decode_tokens) for ntp, arm in pairs]


def _ratios(terms: Sequence[Term]) -> list[tuple[float, float]]:
    return [(term.over / term.over_per, term.under / term.under_per) for term in terms]


def _sum(tallies: Decodes, of: Callable[[Tally], float | None]) -> float:
    return math.fsum(of(tally) or 0.0 for tally in tallies)
