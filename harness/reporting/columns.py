"""Every column of every table of a run: its head, the basis of its figures, where its value is, and how it is written.

They put values of a Comparison into entries and compute no statistic.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import Any

from harness.analysis.results import ArmResult, Cell, GenerateMode
from harness.analysis.tally.pass_values import PassWidth, one_a_rung, price_words
from harness.analysis.tally.served import WAYS
from harness.formatting import gigabytes, percent, points, rate, ratio, seconds, signed_percent
from harness.frozen import frozen
from harness.reporting.cells import Entry, Listing, Marks, Notes, PageColumn, Write, between
from harness.scenario.metrics import REQUEST_PERCENTILES
from harness.stats.quantity import Quantity

MEASURED: Marks = ("measured",)
COUNTED: Marks = ("counted",)
MODELLED: Marks = ("modelled",)
PREDICTED: Marks = ("predicted",)


def _at_least(value: Quantity, write: Write) -> str:
    return "" if value.low is None else f"at least {write(value.low)}"


def _method(value: Quantity, write: Write) -> str:
    return value.method or ""


_hundredths, _thousandths = "{:.2f}".format, "{:.3f}".format


# ---- the heads of rows, and figures that no path leads to


@frozen
class OfArm:
    """One of several rows of an arm: ``small`` says which, ``by`` has its figures."""

    arm: ArmResult
    small: str
    by: Any

    @property
    def is_ntp(self) -> bool:
        """NTP is not compared with itself."""
        return self.arm.is_ntp


def _arm(row: ArmResult | OfArm, cell: Cell, notes: Notes) -> Entry:
    arm, small = (row.arm, row.small) if isinstance(row, OfArm) else (row, "")
    return Entry(text=arm.label, small=small, marks=("replayed",) if arm.replayed else ())


def _arm_with_prompts(arm: ArmResult, cell: Cell, notes: Notes) -> Entry:
    return _with_count(_arm(arm, cell, notes), notes.plain(arm, "prompts"), "prompts")


def _pass(width: PassWidth, cell: Cell, notes: Notes) -> Entry:
    return _with_count(Entry(text="NTP" if width.method == "ntp" else width.role), notes.plain(width, "count"), "passes")


def _with_count(head: Entry, count: Entry, unit: str) -> Entry:
    """The head of a row with a counted number under it; that number is the value behind the head."""
    return replace(head, small=f"{count.text} {unit}", raw=count.raw, key=count.key)


def _mode(mode: GenerateMode, cell: Cell, notes: Notes) -> Entry:
    agreed = "" if mode.agreed is None else f"{percent(mode.agreed)} of an answer as NTP's"
    return Entry(text=mode.label, small=agreed if mode.is_engine else "transformers")


def _tokens_per_s(arm: ArmResult, cell: Cell, notes: Notes) -> Entry:
    best = cell.best_ntp_tokens_per_s
    return notes.entry(arm.tokens_per_s, rate, small=f"best NTP {rate(best)}" if best else "")


def _identity(arm: ArmResult, cell: Cell, notes: Notes) -> Entry:
    """The counted identity, and what the arm is lossless against by construction."""
    return notes.entry(arm.identical_to_ntp, percent, small=f"lossless against {arm.lossless}" if arm.lossless else "")


def _correct(arm: ArmResult, cell: Cell, notes: Notes) -> Entry:
    return notes.plain(arm, "correct", why=arm.accuracy.reason or "no answer was graded")


HEADLINE = (
    "The engine's headline is 1 + accepted drafts per pass that had a draft. Passes without one, and accepted tokens after an "
    "answer's end, are in the count of passes and not in the headline."
)
OF_ENGINE = "The engine's headline is: {}. Tokens per pass are the decode tokens over the counted passes."


def _headline(arm: ArmResult, cell: Cell, notes: Notes) -> Entry:
    if arm.served is None or arm.served.headline is None:
        return Entry(text="none")
    means = HEADLINE if arm.served.headline_means is None else OF_ENGINE.format(arm.served.headline_means)
    return replace(notes.plain(arm.served, "headline", _hundredths), note=notes.number(means))


# ---- the subjects of rows


def _compared(cell: Cell) -> list[ArmResult]:
    return [arm for arm in cell.arms if not arm.is_ntp and arm.wall_speedup.value is not None]


def _predictions(cell: Cell) -> list[OfArm]:
    return [OfArm(arm=arm, small=f"{price_words(by.price)} roofline", by=by) for arm in cell.arms for by in arm.predictions]


WAITS = {
    "first_token": "First token",
    "time_per_token": "Time per token",
    "inter_token": "Between pieces",
    "request": "Request",
}
OLDER = "this comparison is older than the figure"


def _waits(cell: Cell) -> Iterator[OfArm]:
    """By percentile; the last one only where there are enough requests of the arm."""
    for arm in cell.arms:
        for percentile in REQUEST_PERCENTILES if arm.requests else ():
            by = {wait: arm.figures.get(f"{wait}_p{percentile}_s") for wait in WAITS}
            if percentile != REQUEST_PERCENTILES[-1] or any(one and one.value is not None for one in by.values()):
                by |= {f"{wait}_ratio": arm.figures.get(f"{wait}_p{percentile}_speedup") for wait in WAITS}
                yield OfArm(arm=arm, small="median" if percentile == 50 else f"{percentile}th percentile", by=by)


# ---- the tables


ARM = PageColumn("Arm", entry=_arm)
ARMS = Listing(
    "Arms",
    (
        PageColumn("Arm", entry=_arm_with_prompts),
        PageColumn("NFE speedup", COUNTED, "nfe_speedup", ratio),
        PageColumn("Wall speedup", MEASURED, "wall_speedup", ratio, between),
        PageColumn("Request speedup", MEASURED, "request_speedup", ratio, between),
        PageColumn("First token", MEASURED, "first_token_s", seconds),
        PageColumn("Tokens/s", MEASURED, entry=_tokens_per_s),
        PageColumn("Accuracy", COUNTED, "accuracy", percent, between),
        PageColumn("Against NTP", COUNTED, "accuracy_difference", points, _at_least),
        PageColumn("Against baseline", COUNTED, "baseline_difference", points, _at_least, why=None),
        PageColumn("Identical to NTP", COUNTED, entry=_identity, needs=("lossless", "served")),
    ),
)
NO_PLAN = "without an interval of the wall speedup nothing can be planned"
COUNTS = Listing(
    "What was counted",
    (
        ARM,
        PageColumn("Prompts timed", COUNTED, "wall_speedup.n"),
        PageColumn("Prompts for ±5 %", MEASURED, "prompts_for_5_percent", why=NO_PLAN),
        PageColumn("Correct", COUNTED, entry=_correct),
        PageColumn("NFE", COUNTED, "nfe"),
        PageColumn("Decode tokens", COUNTED, "decode_tokens"),
        PageColumn("Query tokens per pass", COUNTED, "query_tokens_per_pass"),
        PageColumn("Draft passes", COUNTED, "draft_passes", needs=("draft_passes",)),
    ),
)
COUNTER = ("measured_bandwidth_bytes_per_s.value",)
ENERGY, NO_ENERGY = ("figures.joules_per_token.value",), "no energy was read over these decodes"
RATES = Listing(
    "Latency, bandwidth and energy",
    (
        ARM,
        PageColumn("Ratio of totals", MEASURED, "wall_speedup_totals", ratio, between),
        PageColumn("Request latency", MEASURED, "latency_s", seconds, "median"),
        PageColumn("GB/s", MODELLED, "modelled_bandwidth_bytes_per_s", gigabytes),
        PageColumn("Share of ceiling", MODELLED, "ceiling_share", percent, _method),
        PageColumn("GB/s, counter", MEASURED, "measured_bandwidth_bytes_per_s", gigabytes, "prefill and decode", needs=COUNTER),
        PageColumn("Counter ÷ modelled", MEASURED + MODELLED, "measured_over_modelled", ratio, "same window", needs=COUNTER),
        PageColumn("J/token", MEASURED, "figures.joules_per_token", rate, between, needs=ENERGY, why=NO_ENERGY),
    ),
)
NO_FACTORS = "the forward passes were not timed one by one"
FACTORS = Listing(
    "Where the speedup comes from",
    (
        ARM,
        PageColumn("Wall speedup", MEASURED, "wall_speedup", _thousandths),
        PageColumn("= NFE speedup", COUNTED, "factors.passes", _thousandths, why=NO_FACTORS),
        PageColumn("× rows per pass", COUNTED, "factors.rows_per_pass", _thousandths, why=NO_FACTORS),
        PageColumn("× time per pass", MEASURED, "factors.pass_cost", _thousandths, why=NO_FACTORS),
        PageColumn("× work around passes", MEASURED, "factors.overhead", _thousandths, why=NO_FACTORS),
    ),
    _compared,
)
PASS_PARTS = Listing(
    "A decode pass taken apart (means)",
    (
        ARM,
        PageColumn("Passes", COUNTED, "passes"),
        PageColumn("Forward", MEASURED, "pass_parts.forward_s", seconds),
        PageColumn("Sampler", MEASURED, "pass_parts.sampler_s", seconds),
        PageColumn("Rest of the loop", MEASURED, "pass_parts.rest_s", seconds),
    ),
    needs=("pass_parts.forward_s.value",),
)


def passes(cells: Sequence[Cell]) -> Listing:
    """Measured and predicted time of every kind of decode pass; a rung may price one pass and not another."""
    rungs = dict.fromkeys(rung for cell in cells for width in cell.pass_widths for rung in one_a_rung(width.predicted_s))
    times = [(f"Predicted, {price_words(rung)}", f"predicted_s.{rung}") for rung in rungs]
    costs = [(f"Predicted cost, {price_words(rung)}", f"predicted_cost.{rung}") for rung in rungs]
    columns = (
        PageColumn("Pass", entry=_pass),
        PageColumn("Query tokens per row", COUNTED, "query_tokens"),
        PageColumn("Measured", MEASURED, "measured_s", seconds, between),
        *(PageColumn(head, PREDICTED, of, seconds, between, why=None) for head, of in times),
        PageColumn("Cost in NTP passes", MEASURED, "cost", ratio),
        *(PageColumn(head, PREDICTED, of, ratio, why=None) for head, of in costs),
    )
    return Listing("Time per pass", columns, attrgetter("pass_widths"))


PREDICTIONS = Listing(
    "Predicted beside measured, whole decode",
    (
        ARM,
        PageColumn("Decode, measured", MEASURED, "arm.decode_s", seconds),
        PageColumn("of that in forwards", MEASURED, "arm.forward_s", seconds),
        PageColumn("Decode, predicted", PREDICTED, "by.decode_s", seconds),
        PageColumn("Error", PREDICTED + MEASURED, "by.decode_error", signed_percent),
        PageColumn("Wall speedup, measured", MEASURED, "arm.wall_speedup", ratio),
        PageColumn("Wall speedup, predicted", PREDICTED, "by.wall_speedup", ratio, between),
        PageColumn("Error of speedup", PREDICTED + MEASURED, "by.wall_speedup_error", signed_percent),
    ),
    _predictions,
)
BASELINE = Listing(
    "Is the baseline fast?",
    (
        PageColumn("Decoded by", entry=_mode),
        PageColumn("Speed of our NTP arm beside it", MEASURED, "ntp_speed", ratio, between),
        PageColumn("Prompts", COUNTED, "ntp_speed.n"),
    ),
    attrgetter("baseline_check.modes"),
)


def _beside_ntp(head: str, of: str, write: Write, against: str) -> tuple[PageColumn, PageColumn]:
    """A figure, and how many times better than NTP's it is."""
    beside = PageColumn(f"{head} against NTP", MEASURED, against, ratio, between, why=OLDER, of_ntp=False)
    return PageColumn(head, MEASURED, of, write, between, why=OLDER), beside


WAITED = Listing(
    "What requests waited for",
    (ARM, *(one for wait, head in WAITS.items() for one in _beside_ntp(head, f"by.{wait}", seconds, f"by.{wait}_ratio"))),
    _waits,
)
ANSWERED = Listing(
    "Requests and tokens per second",
    (
        ARM,
        PageColumn("Requests", COUNTED, "requests.counted"),
        PageColumn("Left out", COUNTED, "requests.left_out"),
        PageColumn("In flight", MEASURED, "figures.in_flight", rate, fixed=True, why=OLDER),
        PageColumn("Requests/s", MEASURED, "figures.requests_per_s", rate, fixed=True, why=OLDER),
        *_beside_ntp("Tokens/s", "figures.throughput_tokens_per_s", rate, "figures.throughput_ratio"),
        *_beside_ntp("Good requests/s", "figures.goodput_per_s", rate, "figures.goodput_ratio"),
    ),
    needs=("requests",),
)
NOT_TOLD = "the server does not tell it for every request"
BY_WAY = {"steps": "Passes, engine's steps", "accepted": "Passes, by accepted drafts", "chunks": "Passes, by chunks"}
SERVED = Listing(
    "What the servers say of themselves",
    (
        ARM,
        PageColumn("Requests", COUNTED, "served.requests"),
        PageColumn("Ways agree", COUNTED, "served.agreeing"),
        *(PageColumn(BY_WAY[way], COUNTED, f"served.passes.{way}", why=NOT_TOLD) for way in WAYS),
        PageColumn("Tokens per pass", COUNTED, "served.tokens_per_pass", _hundredths, why=NOT_TOLD),
        PageColumn("The engine's headline", entry=_headline),
    ),
    needs=("served",),
)
