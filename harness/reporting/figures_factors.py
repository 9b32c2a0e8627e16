"""The waterfall from NTP's speed to the measured wall speedup, factor by factor, and predicted against measured speedups.

The waterfall is logarithmic, so equal factors are bars of equal length; it shows the claim beside the measurement. The second
figure has one line per rung of ceilings for every arm. The top rung has two prices: ex-ante, from what was known before the
first sample, and with what the run measured. It draws Waterfall and Residual values and computes no statistic.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from textwrap import wrap

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from harness import formatting
from harness.analysis.evidence.explain import Claimed, Residual, Step, Waterfall
from harness.analysis.tally.pass_values import DURING_RUN, EX_ANTE_SHAPE, price_words, rung_of
from harness.reporting import svg
from harness.reporting.cells import ends
from harness.reporting.svg import Drawing
from harness.stats.quantity import Quantity

TICKS = (0.1, 0.2, 0.3, 0.5, 0.7, 1, 1.5, 2, 3, 4, 5, 7, 10, 15, 20, 30)
BAR = 0.62
LONGEST_TITLE = 42
"""Characters in a line."""
ROOM = 0.45
"""Of the logarithmic axis for the figures behind the bars, as a share of what the bars need."""


def waterfall(falls: Sequence[Waterfall]) -> Drawing | None:
    """One block of bars per batch size, the highlighted arm of each."""
    if not falls:
        return None
    with svg.styled():
        lines = [len(_lines(fall)) for fall in falls]
        figure = Figure(figsize=(svg.WIDTH_IN, 0.7 + sum(0.31 * count + 0.5 for count in lines)))
        blocks = figure.subplots(len(falls), 1, sharex=True, squeeze=False, height_ratios=lines)[:, 0]
        every = [1.0, *(level for fall in falls for step in fall.steps for level in (step.before, step.after))]
        every += [fall.claimed.at_least for fall in falls if fall.claimed]
        every += [fall.measured.high for fall in falls if fall.measured.high]
        low, high = min(every) / 1.12, max(every)
        for axes, fall in zip(blocks, falls, strict=True):
            _block(axes, fall, (low, high * (high / low) ** ROOM))
        svg.log_ticks(blocks[-1].xaxis, TICKS, "x")
        blocks[-1].set_xlabel("speed against NTP (logarithmic)")
        caption = " ".join(waterfall_sentence(fall, len(falls) > 1) for fall in falls)
        replayed = ("replayed",) if any(fall.arm.replayed for fall in falls) else ()
        return svg.drawing(figure, "From passes to the clock", caption, ("measured", *replayed))


def _lines(fall: Waterfall) -> list[Step]:
    """The steps to draw; at batch 1 no row waits for another."""
    return [step for step in fall.steps if not (step.name == "rows that wait" and fall.batch_size == 1 and step.factor == 1)]


def _block(axes: Axes, fall: Waterfall, ends: tuple[float, float]) -> None:
    lines = _lines(fall)
    names = ["claimed"] * bool(fall.claimed) + [step.name for step in lines] + ["measured"]
    places = dict(zip(names, range(len(names)), strict=True))
    axes.set(xscale="log", xlim=ends, ylim=(len(names) - 0.4, -0.75))
    title = "\n".join(wrap(f"{fall.arm.label}, batch {fall.batch_size}", LONGEST_TITLE))
    axes.set_title(title, loc="left", fontsize=9.5)
    svg.name_rows(axes, names)
    axes.axvline(1, color=svg.MUTED, lw=0.8)
    if fall.claimed:
        _claim(axes, fall.claimed, len(names))
    for step in lines:
        _step(axes, step, places[step.name])
    _measured(axes, fall, places["measured"])


def _claim(axes: Axes, claimed: Claimed, count: int) -> None:
    (bar,) = axes.barh(0, claimed.at_least - 1, BAR, left=1, facecolor=svg.FAINT, edgecolor=svg.MUTED, lw=1, ls="--")
    svg.tell(bar, f"claimed: {claimed.words}")
    axes.plot([claimed.at_least] * 2, [0, count - 0.6], color=svg.MUTED, lw=0.8, ls=":")
    svg.beside(axes, max(1.0, claimed.at_least), 0, claimed.words.replace("x ", "x\n", 1), 9.5)


def _step(axes: Axes, step: Step, place: int) -> None:
    low, high = sorted((step.before, step.after))
    colour = svg.GREEN if step.factor >= 1 else svg.VERMILION
    (bar,) = axes.barh(place, high - low, BAR, left=low, color=colour, edgecolor=colour, lw=1)
    svg.tell(bar, f"{step.name}: ×{formatting.figure(step.factor, 3)}, from {step.before:.2f}x to {step.after:.2f}x")
    axes.plot([step.after] * 2, [place, place + 1], color=svg.MUTED, lw=0.7)
    svg.beside(axes, high, place, f"×{formatting.figure(step.factor, 3)}", 9.5)


def _measured(axes: Axes, fall: Waterfall, place: int) -> None:
    measured = fall.measured.value or fall.product
    low, high = sorted((1.0, measured))
    (bar,) = axes.barh(place, high - low, BAR, left=low, color=svg.BLUE, edgecolor=svg.BLUE, lw=1)
    band = ends(fall.measured)
    text = formatting.ratio(measured) + (f"\n({band})" if band else "")
    svg.interval(axes, fall.measured, place, lw=1.4)
    svg.tell(bar, f"measured: {text}, mean over prompts")
    svg.beside(axes, max(high, fall.measured.high or 0.0), place, text, 9.5, weight="bold")


def waterfall_sentence(fall: Waterfall, with_batch: bool) -> str:
    """How the saved passes became saved time."""
    by_name = {step.name: step.factor for step in fall.steps}
    passes = by_name.pop("fewer passes")
    lost = ", ".join(f"{name} ×{formatting.figure(factor, 3)}" for name, factor in by_name.items() if round(factor, 3) != 1)
    where = f"At batch {fall.batch_size}, " if with_batch else ""
    said = f"{where}{formatting.ratio(passes)} fewer passes became {formatting.ratio(fall.product)} by the clock"
    claimed = f"; claimed is {fall.claimed.words}" if fall.claimed else ""
    return f"{said}{f' ({lost})' if lost else ''}{claimed}, mean over prompts."


MOST_PREDICTED = 6
"""Arms in the drawing of predictions: NTP, the highlighted ones, then in order; the table has all."""
LINE, LINE_IN = 0.88, 0.19
"""Height of an arm's lines, as a share of the distance from one arm to the next, and of a line in inches."""
SHORT = {EX_ANTE_SHAPE: "shape, ex-ante", DURING_RUN: "during the run"}
"""Short names that fit beside a line."""
COLUMNS = (0.0, 0.72, 1.0)
"""Where the texts beside a line stand: its name and its errors."""


def predicted_measured(residuals: Sequence[Residual], highlighted: Sequence[tuple[int, str]]) -> Drawing | None:
    """``highlighted``: (batch size, label) of the arms to keep where all do not fit one drawing."""
    arms = [list(group) for _, group in groupby(residuals, key=lambda one: (one.batch_size, one.arm.label))]
    if len(arms) > MOST_PREDICTED:
        arms.sort(key=lambda arm: (not arm[0].arm.is_ntp, (arm[0].batch_size, arm[0].arm.label) not in highlighted))
        arms = arms[:MOST_PREDICTED]
    if not any(not arm[0].arm.is_ntp for arm in arms):
        return None
    with_batch = len({arm[0].batch_size for arm in arms}) > 1
    with svg.styled():
        figure = Figure(figsize=(svg.WIDTH_IN, 0.9 + sum(0.1 + LINE_IN * (len(arm) + 2) for arm in arms)))
        axes, beside = figure.subplots(1, 2, sharey=True, width_ratios=(8, 10))
        _draw(axes, beside, arms, with_batch)
        axes.set_xlabel("wall speedup over NTP,\nmean over prompts (x)")
        aloud = f"{residual_sentence(residuals)} {_every(arms)}"
        caption = residual_sentence([one for one in residuals if one.price == residuals[0].price])
        marks = ("measured", "predicted", *(("replayed",) if any(one.arm.replayed for one in residuals) else ()))
        return svg.drawing(figure, "Predicted against measured", caption, marks, aloud)


def _draw(axes: Axes, beside: Axes, arms: Sequence[Sequence[Residual]], with_batch: bool) -> None:
    """The speedups; beside each line its name and its error."""
    axes.set_ylim(len(arms) - 0.45, -0.75)
    svg.name_rows(axes, ())
    axes.axvline(1, color=svg.MUTED, lw=0.8)
    beside.set_axis_off()
    beside.set_xlim(0, 1)
    _beside(beside, -0.75, svg.MUTED, ("", "speedup", "time"))
    for row, arm in enumerate(arms):
        step = LINE / (len(arm) + 2)
        named, *places = [row - LINE / 2 + (i + 0.5) * step for i in range(len(arm) + 2)]
        name = arm[0].arm.label + (f", {arm[0].size}" if with_batch else "")
        svg.name_above(axes, named, name, up=-0.4 * step)
        colour = svg.BLUE if arm[0].arm.is_ntp else svg.VERMILION
        _line(axes, arm[0].measured, places[0], colour, f"{name}: measured")
        _beside(beside, places[0], colour, ("measured", formatting.ratio(arm[0].measured.value or 0.0), ""))
        for one, place in zip(arm, places[1:], strict=True):
            colour = svg.RUNGS.get(rung_of(one.price), svg.MUTED)
            _line(axes, one.predicted, place, colour, f"{name}: {price_words(one.price)}", hollow=True)
            _beside(beside, place, colour, (SHORT.get(one.price, one.price), _error(one.speedup_error), _error(one.time_error)))
    axes.set_xlim(left=0)


def _line(axes: Axes, quantity: Quantity, place: float, colour: str, said: str, hollow: bool = False) -> None:
    value = quantity.value or 0.0
    low, high = (value if end is None else end for end in (quantity.low, quantity.high))
    svg.interval(axes, quantity, place, colour, lw=1.5)
    text = f"{said} {formatting.ratio(value)} ({low:.2f}–{high:.2f})"
    svg.dot(axes, value, place, "D" if hollow else "o", colour, text, 4.5, hollow)


def _beside(axes: Axes, place: float, colour: str, texts: Sequence[str]) -> None:
    for x, text in zip(COLUMNS, texts, strict=True):
        axes.text(x, place, text, ha="left" if not x else "right", va="center", fontsize=9, color=colour)


def _error(error: float | None) -> str:
    return "" if error is None else formatting.signed_percent(error)


def residual_sentence(residuals: Sequence[Residual]) -> str:
    """The error of each price, over all arms."""
    said = []
    for price in dict.fromkeys(one.price for one in residuals):
        off = [one.speedup_error for one in residuals if one.price == price and one.speedup_error is not None]
        late = [one.time_error for one in residuals if one.price == price and one.time_error is not None]
        if off and late:
            which = f"the {price_words(price)} roofline"
            said.append(f"{which} is off by {_range(off)} in speedup and {_range(late)} in decode time")
    what = "Errors: predicted ÷ measured - 1."
    return f"Over all arms {'; '.join(said)}. {what}" if said else what


def _range(errors: Sequence[float]) -> str:
    low, high = formatting.signed_percent(min(errors)), formatting.signed_percent(max(errors))
    return low if low == high else f"{low} to {high}"


def _every(arms: Sequence[Sequence[Residual]]) -> str:
    return " ".join(
        f"{arm[0].arm.label}, {arm[0].size}: measured {formatting.ratio(arm[0].measured.value or 0.0)}, "
        + ", ".join(f"{price_words(one.price)} {formatting.ratio(one.predicted.value or 0.0)}" for one in arm)
        + "."
        for arm in arms
    )
