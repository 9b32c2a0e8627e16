"""Claims on the page: each with its verdict, its interval as a picture, its reason and what would decide it.

harness.analysis.answer gives the verdict; this module puts it into words and a mark that needs no colour. A picture shows the
value, its interval, the limits of the claim and the allowed side. It has one fixed width, so its text has the same size on
every screen.

The first line of a page and of a run in the gallery is a claim too: how much faster is it? It has the same verdict, interval
and arm as its card below.
"""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup, escape

from harness import formatting
from harness.analysis.evidence.best_settings import faster
from harness.analysis.judge.judgement import Judgement, Judgements, State
from harness.analysis.results import Comparison
from harness.frozen import frozen
from harness.record.schema import RunHeader
from harness.reporting.cells import Entry, Pointers, Write, shown
from harness.reporting.exports.wording import tally
from harness.reporting.sentences import kept
from harness.scenario.claims import Claim
from harness.scenario.metrics import METRICS
from harness.stats.quantity import Quantity

WIDTH, HEIGHT, EDGE = 260.0, 40.0, 10.0
MIDDLE, TEXT = 13.0, 36.0
LETTER = 7.0
"""About the width of a letter of the labels, in units of the drawing; "ms" has wide ones."""
Ends = tuple[float, float]
"""The least and the greatest value of the axis."""


@frozen
class Limits:
    """What an interval is compared with: lower and upper limit, and a reference value with its name (NTP is 1)."""

    low: float | None = None
    high: float | None = None
    reference: tuple[float, str] | None = None


def ends_of(drawn: Sequence[tuple[Quantity, Limits]], from_zero: bool) -> Ends:
    """The ends of an axis that holds all of these with a margin; ``from_zero``: it begins at 0."""
    values = [x for quantity, _ in drawn for x in (quantity.value, quantity.low, quantity.high)]
    values += [x for _, limits in drawn for x in (limits.low, limits.high, *(limits.reference or ())[:1])]
    known = [x for x in values if x is not None] or [0.0, 1.0]
    low, high = min(known), max(known)
    room = 0.12 * ((high - low) or abs(high) or 1.0)
    return (0.0 if from_zero and low >= 0 else low - room), high + room


def interval_bar(quantity: Quantity, limits: Limits, ends: Ends, write: Write, said: str) -> Markup:
    """The picture; ``said`` states the finding in words for screen readers."""
    start, end = ends

    def at(value: float) -> float:
        return EDGE + (WIDTH - 2 * EDGE) * (value - start) / (end - start)

    parts = [f'<line class="axis" x1="{EDGE}" x2="{WIDTH - EDGE}" y1="{MIDDLE}" y2="{MIDDLE}"/>']
    if (limits.low, limits.high) != (None, None):  # the allowed side, shaded
        left, right = EDGE if limits.low is None else at(limits.low), WIDTH - EDGE if limits.high is None else at(limits.high)
        shaded = f'<rect class="asked" x="{left:.1f}" y="2" width="{right - left:.1f}" height="{2 * (MIDDLE - 2)}"/>'
        parts.insert(0, shaded)
    signs = (("≥", limits.low), ("≤", limits.high))
    uprights = [("limit", at(limit), f"{sign} {write(limit)}") for sign, limit in signs if limit is not None]
    if limits.reference is not None:
        uprights.append(("reference", at(limits.reference[0]), limits.reference[1]))
    parts += [f'<line class="{kind}" x1="{x:.1f}" x2="{x:.1f}" y1="1" y2="{2 * MIDDLE - 1}"/>' for kind, x, _ in uprights]
    if quantity.low is not None and quantity.high is not None:
        left, wide = at(quantity.low), max(at(quantity.high) - at(quantity.low), 1)
        parts.append(f'<rect class="interval" x="{left:.1f}" y="{MIDDLE - 3.5}" width="{wide:.1f}" height="7"/>')
    if quantity.value is not None:
        parts.append(f'<circle class="value" cx="{at(quantity.value):.1f}" cy="{MIDDLE}" r="5"/>')
    parts += _labels([(x, text) for _, x, text in uprights])
    box = f'class="bar" viewBox="0 0 {WIDTH:g} {HEIGHT:g}" role="img" aria-label="{escape(said)}"'
    return Markup(f"<svg {box}>{''.join(parts)}</svg>")


def _labels(labels: Sequence[tuple[float, str]]) -> list[str]:
    """The labels under the axis, kept inside the drawing; of two that touch the later one is left out."""
    drawn: list[tuple[float, float]] = []
    found = []
    for x, text in labels:
        half = LETTER * len(text) / 2
        middle = min(max(x, half), WIDTH - half)
        if any(abs(middle - other) < half + taken + 4 for other, taken in drawn):
            continue
        drawn.append((middle, half))
        found.append(f'<text x="{middle:.1f}" y="{TEXT}" text-anchor="middle">{escape(text)}</text>')
    return found


SPEEDUPS = ("wall_speedup", "nfe_speedup")
"""Drawn on one axis, so that passes saved and time saved can be compared."""


@frozen
class Held:
    """A claim and one judgement of it."""

    claim: Claim
    judgement: Judgement

    @property
    def place(self) -> tuple[str | None, str | None]:
        """The part and batch size that were judged."""
        return self.judgement.cell.get("part"), self.judgement.cell.get("batch_size")

    @property
    def asked(self) -> str:
        """``at least 3x fewer forward passes``."""
        words = [(bound, METRICS[bound.metric].words) for bound in self.claim.bounds]
        return " and ".join(f"{one.words}x {said}" if one.metric in SPEEDUPS else f"{said} {one.words}" for one, said in words)

    @property
    def name(self) -> str:
        """What the claim is called."""
        return self.claim.name or self.asked

    @property
    def limits(self) -> Limits:
        """The bounds of the claim on the metric that was judged."""
        same = [bound.limits for bound in self.claim.bounds if bound.metric == self.judgement.metric]
        lows, highs = [low for low, _ in same if low is not None], [high for _, high in same if high is not None]
        reference = (1.0, "NTP") if self.judgement.metric in SPEEDUPS else None
        return Limits(low=max(lows, default=None), high=min(highs, default=None), reference=reference)


@frozen
class ClaimShown:
    """One line of the verdict. ``value`` is an entry as in a table."""

    held: Held
    value: Entry
    interval: str
    bar: Markup | None


def held_claims(judged: Judgements) -> list[Held]:
    """Every judgement with its claim."""
    return [Held(claim=claim, judgement=one) for claim, one in zip(judged.claims, judged.judgements, strict=True)]


def whose_claims(header: RunHeader, judged: Judgements) -> str:
    """Whose the claims are; of the scenario's own, how many came to which verdict; and how many stay confirmed together."""
    whose = "3-5x by the clock, the paper's figure and limits of ours, because the scenario states none"
    if header.scenario.get("claims"):
        whose = f"this scenario's own: {tally(judged)}"
    if together := [one.together for one in judged.judgements if one.together is not None]:
        whose += f"; {sum(together)} of {len(together)} stay confirmed at the family-wise 95 %"
    return whose


def claims_shown(held: Sequence[Held], pointers: Pointers) -> list[ClaimShown]:
    """The lines of one part and batch size, in the order of the claims."""
    speedups = ends_of([(one.judgement.value, one.limits) for one in held if one.judgement.metric in SPEEDUPS], from_zero=True)
    lines = []
    for one in held:
        judged, value, metric = one.judgement, one.judgement.value, METRICS[one.judgement.metric]
        write, interval, bar = writer(metric.unit), "", None
        if value.low is not None and value.high is not None:
            interval = f"95\u00a0% interval {write(value.low)} to {write(value.high)}"
        if metric.averaged and value.n > 1 and interval:
            interval += ", mean over prompts" if judged.cell.get("batch_size") == "1" else ", mean over batches"
        entry = Entry(text="no figure") if value.value is None else shown(value, write, pointers.of(value))
        if value.value is not None and judged.state != "void":
            ends = (
                speedups
                if judged.metric in SPEEDUPS
                else ends_of([(value, one.limits)], from_zero=judged.metric != "accuracy_loss_points")
            )
            said = f"{metric.words}: {entry.text}, {interval or 'no interval'}; asked: {judged.bound}"
            bar = interval_bar(value, one.limits, ends, write, said)
        lines.append(ClaimShown(held=one, value=entry, interval=interval, bar=bar))
    return lines


def writer(unit: str) -> Write:
    """How a figure of this unit (harness.scenario.metrics) is written."""
    known: dict[str, Write] = {
        "x": formatting.ratio,
        "s": formatting.seconds,
        "percentage points": lambda value: f"{value + 0.0:.1f}\u00a0points",
        "of the read ceiling": formatting.percent,
        "of the prompts": formatting.percent,
        "predicted ÷ measured - 1": formatting.signed_percent,
    }
    return known.get(unit) or (lambda value: f"{formatting.figure(value, 4)}\u00a0{unit}")


ASKED = "wall_speedup"
TIMELESS = "nfe_speedup"
"""Asked of a part without a clock."""


@frozen
class Headline:
    """``state`` and ``word`` of the verdict; ``asked`` before them, ``found`` after them."""

    asked: str
    state: State
    word: str
    found: str


def headlines(held: Sequence[Held], comparison: Comparison) -> list[Headline]:
    """One per part and batch size that has a claim about its speed, in the order of the cards.

    It is the claim about the clock, or that about passes where a clock was not there to judge it.
    """
    lines, places = [], dict.fromkeys(one.place for one in held)
    for place in places:
        asked = [one for metric in (ASKED, TIMELESS) for one in held if (one.place, one.judgement.metric) == (place, metric)]
        known = [one for one in asked if one.judgement.value.value is not None] or asked
        for one in known[:1]:
            judged, value, parts = one.judgement, one.judgement.value, list[str]()
            if value.value is not None:
                ends = ""
                if value.low is not None and value.high is not None:
                    ends = f" ({formatting.figure(value.low, 3)}\u2013{formatting.figure(value.high, 3)})"
                fewer = "" if judged.metric == ASKED else " fewer passes, not timed"
                parts.append(f"{formatting.ratio(value.value)}{ends}{fewer}")
            for cell in comparison.cells:
                arm = cell.arm(judged.cell.get("arm"))
                if arm is not None and cell.is_summary and (cell.part, str(cell.batch_size)) == place:
                    where = f"{cell.part}, {cell.size_words}" if len(places) > 1 else ""
                    parts += filter(None, (where, arm.label, kept(cell, arm), faster(cell, arm)))
            if judged.state == "void":
                parts.append(judged.reason.partition(";")[0])
            lines.append(Headline(asked=one.name, state=judged.state, word=judged.word, found=", ".join(parts)))
    return lines
