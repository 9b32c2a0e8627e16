"""The waterfall from NTP's speed to the measured wall speedup, factor by factor, and predicted against measured speedups.

The waterfall is logarithmic, so equal factors are bars of equal length; it shows the claim beside the measurement. The second
figure has one line per rung of ceilings for every arm. The top rung has two prices: ex-ante, from what was known before the
first sample, and with what the run measured. It draws Waterfall and Residual values and computes no statistic.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from textwrap import wrap

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from harness import formatting
from harness.analysis.evidence.explain import Residual, Step, Waterfall
from harness.analysis.tally.pass_values import DURING_RUN, EX_ANTE_SHAPE, price_words, rung_of
from harness.reporting.cells import ends
from harness.reporting.svg import (
    BLUE,
    FAINT,
    GREEN,
    MUTED,
    RUNGS,
    STYLE,
    VERMILION,
    WIDTH_IN,
    Drawing,
    beside,
    dot,
    drawing,
    interval,
    log_ticks,
    name_above,
    name_rows,
    tell,
)

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
    with rc_context(STYLE):
        lines = [len(_lines(fall)) for fall in falls]
        figure = Figure(figsize=(WIDTH_IN, 0.7 + sum(0.31 * count + 0.5 for count in lines)))
        blocks = figure.subplots(len(falls), 1, sharex=True, squeeze=False, height_ratios=lines)[:, 0]
        for axes, fall in zip(blocks, falls, strict=True):
            _block(axes, fall)
        low, high = blocks[0].get_xlim()
        blocks[0].set_xlim(low, high * (high / low) ** ROOM)
        log_ticks(blocks[-1].xaxis, TICKS, "x")
        blocks[-1].set_xlabel("speed against NTP (logarithmic)")
        caption = " ".join(waterfall_sentence(fall, len(falls) > 1) for fall in falls)
        replayed = any(fall.arm.replayed for fall in falls)
        return drawing(figure, "From passes to the clock", caption, ("measured",), replayed=replayed)


def _lines(fall: Waterfall) -> list[Step]:
    """The steps to draw; at batch 1 no row waits for another."""
    return [step for step in fall.steps if not (step.name == "rows that wait" and fall.batch_size == 1 and step.factor == 1)]


def _block(axes: Axes, fall: Waterfall) -> None:
    lines, claimed = _lines(fall), fall.claimed
    names = ["claimed"] * bool(claimed) + [step.name for step in lines] + ["measured"]
    axes.set(xscale="log", ylim=(len(names) - 0.4, -0.75))
    title = "\n".join(wrap(f"{fall.arm.label}, batch {fall.batch_size}", LONGEST_TITLE))
    axes.set_title(title, loc="left", fontsize=9.5)
    name_rows(axes, names)
    axes.axvline(1, color=MUTED, lw=0.8)
    if claimed:
        end = _bar(axes, 0, 1.0, claimed.at_least, FAINT, f"claimed: {claimed.words}")
        axes.plot([claimed.at_least] * 2, [0, len(names) - 0.6], color=MUTED, lw=0.8, ls=":")
        beside(axes, end, 0, claimed.words.replace("x ", "x\n", 1), 9.5)
    for place, step in enumerate(lines, start=int(bool(claimed))):
        text, colour = f"×{formatting.figure(step.factor, 3)}", GREEN if step.factor >= 1 else VERMILION
        told = f"{step.name}: {text}, from {step.before:.2f}x to {step.after:.2f}x"
        end = _bar(axes, place, step.before, step.after, colour, told)
        axes.plot([step.after] * 2, [place, place + 1], color=MUTED, lw=0.7)
        beside(axes, end, place, text, 9.5)
    measured, band, place = fall.measured.value or fall.product, ends(fall.measured), len(names) - 1
    text = formatting.ratio(measured) + (f"\n({band})" if band else "")
    end = _bar(axes, place, 1.0, measured, BLUE, f"measured: {text}, mean over prompts")
    interval(axes, fall.measured, place, lw=1.4)
    beside(axes, max(end, fall.measured.high or 0.0), place, text, 9.5, weight="bold")


def _bar(axes: Axes, place: int, start: float, stop: float, colour: str, told: str) -> float:
    """A bar between the two, and its right end."""
    low, high = sorted((start, stop))
    (bar,) = axes.barh(place, high - low, BAR, left=low, color=colour, edgecolor=colour, lw=1)
    tell(bar, told)
    return high


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
    with rc_context(STYLE):
        figure = Figure(figsize=(WIDTH_IN, 0.9 + sum(0.1 + LINE_IN * (len(arm) + 2) for arm in arms)))
        axes, aside = figure.subplots(1, 2, sharey=True, width_ratios=(8, 10))
        _draw(axes, aside, arms, with_batch)
        axes.set_xlabel("wall speedup over NTP,\nmean over prompts (x)")
        aloud = [residual_sentence(residuals)]
        for arm in arms:
            prices = ", ".join(f"{price_words(one.price)} {formatting.ratio(one.predicted.value or 0.0)}" for one in arm)
            measured = formatting.ratio(arm[0].measured.value or 0.0)
            aloud.append(f"{arm[0].arm.label}, {arm[0].size}: measured {measured}, {prices}.")
        caption = residual_sentence([one for one in residuals if one.price == residuals[0].price])
        replayed = any(one.arm.replayed for one in residuals)
        return drawing(figure, "Predicted against measured", caption, ("measured", "predicted"), " ".join(aloud), replayed)


def _draw(axes: Axes, aside: Axes, arms: Sequence[Sequence[Residual]], with_batch: bool) -> None:
    """The speedups; beside each line its name and its error."""
    axes.set_ylim(len(arms) - 0.45, -0.75)
    name_rows(axes, ())
    axes.axvline(1, color=MUTED, lw=0.8)
    aside.set_axis_off()
    aside.set_xlim(0, 1)
    _beside(aside, -0.75, MUTED, ("", "speedup", "time"))
    for row, arm in enumerate(arms):
        step = LINE / (len(arm) + 2)
        top = row - (LINE - step) / 2
        name = arm[0].arm.label + (f", {arm[0].size}" if with_batch else "")
        name_above(axes, top, name, up=-0.4 * step)
        colour, measured = BLUE if arm[0].arm.is_ntp else VERMILION, arm[0].measured
        lines = [(measured, "measured", colour, ("measured", formatting.ratio(measured.value or 0.0), ""))]
        for one in arm:
            beside_it = SHORT.get(one.price, one.price), _error(one.speedup_error), _error(one.time_error)
            lines.append((one.predicted, price_words(one.price), RUNGS.get(rung_of(one.price), MUTED), beside_it))
        for number, (value, what, colour, texts) in enumerate(lines, start=1):
            place, hollow = top + number * step, number > 1
            low, high = (value.value if end is None else end for end in (value.low, value.high))
            interval(axes, value, place, colour, lw=1.5)
            text = f"{name}: {what} {formatting.ratio(value.value or 0.0)} ({low:.2f}–{high:.2f})"
            dot(axes, value.value or 0.0, place, "D" if hollow else "o", colour, text, 4.5, hollow)
            _beside(aside, place, colour, texts)
    axes.set_xlim(left=0)


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
