"""The waterfall: from the speed of NTP to the measured wall speedup, factor by factor, with what was claimed beside it.

Draws Waterfall values; computes no statistic. Logarithmic, so that equal factors are bars of equal length.
"""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from harness import formatting
from harness.analysis.explain import Step, Waterfall
from harness.reporting import svg
from harness.reporting.drawing import Drawing

TICKS = (0.1, 0.2, 0.3, 0.5, 0.7, 1, 1.5, 2, 3, 4, 5, 7, 10, 15, 20, 30)
BAR = 0.62


def waterfall(falls: Sequence[Waterfall], name: str) -> Drawing | None:
    """One block of bars per batch size, the highlighted arm of each."""
    if not falls:
        return None
    with svg.styled():
        lines = [len(_lines(fall)) for fall in falls]
        figure = Figure(figsize=(6.4, 0.75 + sum(0.31 * count + 0.3 for count in lines)))
        blocks = figure.subplots(len(falls), 1, sharex=True, squeeze=False, height_ratios=lines)[:, 0]
        ends = _ends(falls)
        for axes, fall in zip(blocks, falls, strict=True):
            _block(axes, fall, ends)
        svg.log_ticks(blocks[-1].xaxis, TICKS, "x")
        blocks[-1].set_xlabel("speed against NTP (logarithmic)")
        caption = " ".join(waterfall_sentence(fall, len(falls) > 1) for fall in falls)
        image = svg.to_inline(figure, name, caption)
    replayed = ("replayed",) if any(fall.arm.replayed for fall in falls) else ()
    return Drawing(heading="From passes to the clock", image=image, caption=caption, marks=("measured", *replayed))


def _lines(fall: Waterfall) -> list[Step]:
    """The steps worth a line: at batch 1 no row can wait for another."""
    return [step for step in fall.steps if not (step.name == "rows that wait" and fall.batch_size == 1 and step.factor == 1)]


def _ends(falls: Sequence[Waterfall]) -> tuple[float, float]:
    every = [1.0, *(level for fall in falls for step in fall.steps for level in (step.before, step.after))]
    every += [fall.claimed.at_least for fall in falls if fall.claimed]
    every += [fall.measured.high for fall in falls if fall.measured.high]
    return min(every) / 1.12, max(every) * 1.75


def _block(axes: Axes, fall: Waterfall, ends: tuple[float, float]) -> None:
    lines = _lines(fall)
    names = ["claimed"] * bool(fall.claimed) + [step.name for step in lines] + ["measured"]
    places = dict(zip(names, range(len(names)), strict=True))
    axes.set(xscale="log", xlim=ends, ylim=(len(names) - 0.4, -0.75))
    axes.set_title(_title(fall), loc="left", fontsize=10)
    axes.set_yticks(list(places.values()), list(places))
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    axes.axvline(1, color=svg.MUTED, lw=0.8)
    if fall.claimed:
        _claim(axes, fall, len(names))
    for step in lines:
        _step(axes, step, places[step.name])
    _measured(axes, fall, places["measured"])


def _title(fall: Waterfall) -> str:
    return f"{fall.arm.label}, batch {fall.batch_size}"


def _claim(axes: Axes, fall: Waterfall, count: int) -> None:
    claimed = fall.claimed
    assert claimed is not None, "called for a claim"
    axes.barh(0, claimed.at_least - 1, BAR, left=1, facecolor="none", edgecolor=svg.MUTED, lw=1, ls="--")
    axes.plot([claimed.at_least] * 2, [0, count - 0.6], color=svg.MUTED, lw=0.8, ls=":")
    _label(axes, max(claimed.at_least, 1), 0, claimed.words)


def _step(axes: Axes, step: Step, place: int) -> None:
    low, high = sorted((step.before, step.after))
    colour = svg.GREEN if step.factor >= 1 else svg.VERMILION
    axes.barh(place, high - low, BAR, left=low, color=colour, edgecolor=colour, lw=1)
    axes.plot([step.after] * 2, [place, place + 1], color=svg.MUTED, lw=0.7)
    _label(axes, high, place, f"×{formatting.figure(step.factor, 3)}")


def _measured(axes: Axes, fall: Waterfall, place: int) -> None:
    measured = fall.measured.value or fall.product
    low, high = sorted((1.0, measured))
    axes.barh(place, high - low, BAR, left=low, color=svg.BLUE, edgecolor=svg.BLUE, lw=1)
    end, text = high, formatting.ratio(measured)
    if fall.measured.low is not None and fall.measured.high is not None:
        axes.plot([fall.measured.low, fall.measured.high], [place] * 2, color=svg.INK, lw=1.4)
        end, text = max(high, fall.measured.high), f"{text} ({fall.measured.low:.2f}–{fall.measured.high:.2f})"
    _label(axes, end, place, text, weight="bold")


def _label(axes: Axes, x: float, y: float, text: str, weight: str = "normal") -> None:
    axes.annotate(text, (x, y), (5, 0), textcoords="offset points", va="center", fontsize=9.5, fontweight=weight)


def waterfall_sentence(fall: Waterfall, with_batch: bool) -> str:
    """How the passes that were saved became the time that was saved."""
    by_name = {step.name: step.factor for step in fall.steps}
    passes = by_name.pop("fewer passes")
    lost = ", ".join(f"{name} ×{formatting.figure(factor, 3)}" for name, factor in by_name.items() if round(factor, 3) != 1)
    where = f"At batch {fall.batch_size}, " if with_batch else ""
    said = f"{where}{formatting.ratio(passes)} fewer passes became {formatting.ratio(fall.product)} by the clock"
    claimed = f"; claimed is {fall.claimed.words}" if fall.claimed else ""
    return f"{said}{f' ({lost})' if lost else ''}{claimed}."
