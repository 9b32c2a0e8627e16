"""Figures about a batch: rows that wait, bandwidth against its ceiling, energy per token.

They draw values of a Comparison and compute no statistic. Every function returns None where there is nothing to draw.
"""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes

from harness import formatting
from harness.analysis.explain import Bandwidth
from harness.analysis.results import ArmResult, Cell
from harness.analysis.stats.quantity import Quantity
from harness.reporting import svg
from harness.reporting.svg import MOST_ARMS, Drawing

ENERGY = "joules_per_token"


def straggler_loss(cells: Sequence[Cell], name: str) -> Drawing | None:
    """Active rows per pass relative to NTP, over the batch sizes of a part: the effect of waiting for the slowest row."""
    lines: dict[str, list[tuple[int, float]]] = {}
    for cell in cells:
        for arm in cell.arms:
            if not arm.is_ntp and arm.factors is not None:
                lines.setdefault(arm.label, []).append((cell.batch_size, arm.factors.rows_per_pass))
    if not lines or max(size for line in lines.values() for size, _ in line) == 1:
        return None
    shown = dict(sorted(lines.items(), key=lambda one: one[1][-1][1])[: len(svg.SERIES)])
    with svg.new_axes(height_in=3.0) as (figure, axes):
        axes.axhline(1, color=svg.MUTED, lw=0.8)
        places = svg.spread([line[-1][1] for line in shown.values()], 0.08)
        for colour, (label, line), place in zip(svg.SERIES, shown.items(), places, strict=False):
            axes.plot([size for size, _ in line], [share for _, share in line], "o-", color=colour, ms=5)
            at = (line[-1][0], place)
            axes.annotate(label, at, (8, 0), textcoords="offset points", va="center", color=colour, fontsize=9)
        axes.set_xscale("log", base=2)
        axes.set_xlim(axes.get_xlim()[0], axes.get_xlim()[1] * 2.2)
        svg.log_ticks(axes.xaxis, sorted({size for line in lines.values() for size, _ in line}))
        axes.set_ylim(0, max(*places, *(share for line in shown.values() for _, share in line)) * 1.08)
        axes.set_xlabel("batch size (rows)")
        axes.set_ylabel("active rows per pass ÷ NTP's")
        label, line = next(iter(shown.items()))
        caption = (
            f"At batch {line[-1][0]}, rows that wait for the slowest row of their batch change the speedup of {label} by ×"
            f"{formatting.figure(line[-1][1], 3)}. 1 is no loss; NTP's own rows wait too, so a factor may lie above 1."
        )
        replayed = ("replayed",) if any(arm.replayed for cell in cells for arm in cell.arms) else ()
        return svg.drawing(figure, name, "Rows that wait for the slowest", caption, ("measured", *replayed))


def bandwidth_bars(found: Sequence[Bandwidth], name: str) -> Drawing | None:
    """Modelled and counted bytes per second of every arm, with the read ceiling as a line where one may be claimed."""
    found = found[:MOST_ARMS]
    if not found:
        return None
    both = any(one.measured.value is not None for one in found)
    with svg.new_axes(height_in=1.0 + (0.5 if both else 0.3) * len(found)) as (figure, axes):
        for row, one in enumerate(found):
            _bar(axes, one.modelled, row - 0.19 * both, svg.BLUE if one.arm.is_ntp else svg.VERMILION, "modelled")
            if one.measured.value is not None:
                _bar(axes, one.measured, row + 0.19, svg.INK, "counted")
        ceilings = {one.ceiling.value: one.ceiling.method for one in found if one.ceiling.value is not None}
        for ceiling, method in ceilings.items():
            axes.axvline(ceiling / 1e9, color=svg.PURPLE, lw=1.2)
            text = f"{method}, {formatting.gigabytes(ceiling)} GB/s"
            axes.annotate(text, (ceiling / 1e9, -0.62), (-4, 0), textcoords="offset points", ha="right", va="center",
                          color=svg.PURPLE, fontsize=9)  # fmt: skip
        axes.set_ylim(len(found) - 0.45, -0.85)
        axes.set_xlim(0, axes.get_xlim()[1] * 1.22)
        _name_arms(axes, [(one.arm, one.batch_size) for one in found])
        axes.set_xlabel("bytes moved by the forwards (GB/s)")
        return svg.drawing(
            figure, name, "Bandwidth", _bandwidth_sentence(found), ("modelled", "measured") if both else ("modelled",)
        )


def _name_arms(axes: Axes, arms: Sequence[tuple[ArmResult, int]]) -> None:
    """A row per arm, with its batch size where these differ."""
    with_batch = len({size for _, size in arms}) > 1
    svg.name_rows(axes, [f"{arm.label}{f', batch {size}' if with_batch else ''}" for arm, size in arms])


def _bar(axes: Axes, quantity: Quantity, place: float, colour: str, word: str) -> None:
    value = (quantity.value or 0.0) / 1e9
    filled = word == "counted"
    axes.barh(place, value, 0.34, facecolor=colour if filled else "none", edgecolor=colour, lw=1.2, ls="-" if filled else ":")
    text = f"{formatting.gigabytes(quantity.value or 0.0)} {word}"
    axes.annotate(text, (value, place), (4, 0), textcoords="offset points", va="center", fontsize=9)


def _bandwidth_sentence(found: Sequence[Bandwidth]) -> str:
    said = []
    for one in (found[0], found[-1]) if len(found) > 1 else found:
        share = one.arm.ceiling_share
        of = f", {formatting.percent(share.value, 0)} of the {share.method}" if share.value is not None else ""
        said.append(f"{one.arm.label} moves {formatting.gigabytes(one.modelled.value or 0.0)} GB/s as modelled{of}")
    missing = [one.ceiling.reason for one in found if one.ceiling.value is None and one.ceiling.reason]
    why = f" No ceiling is drawn: {missing[0].rstrip('.')}." if len(missing) == len(found) else ""
    return f"{'; '.join(said)}.{why}"


def energy_bars(cells: Sequence[Cell], name: str) -> Drawing | None:
    """Joules per output token of every arm that was metered, with its interval."""
    found = [(cell, arm, arm.figures[ENERGY]) for cell in cells for arm in cell.arms if ENERGY in arm.figures]
    found = [one for one in found if one[2].value is not None][:MOST_ARMS]
    if not found:
        return None
    with svg.new_axes(height_in=0.9 + 0.34 * len(found)) as (figure, axes):
        for row, (_, arm, joules) in enumerate(found):
            value = joules.value or 0.0
            axes.barh(row, value, 0.6, color=svg.BLUE if arm.is_ntp else svg.VERMILION)
            if joules.low is not None and joules.high is not None:
                axes.plot([joules.low, joules.high], [row, row], color=svg.INK, lw=1.4)
            at = (max(value, joules.high or 0), row)
            axes.annotate(formatting.rate(value), at, (5, 0), textcoords="offset points", va="center", fontsize=9.5)
        axes.set_ylim(len(found) - 0.5, -0.5)
        axes.set_xlim(0, axes.get_xlim()[1] * 1.25)
        _name_arms(axes, [(arm, cell.batch_size) for cell, arm, _ in found])
        axes.set_xlabel("energy per output token, prefill and decode (J)")
        said = [f"{arm.label}: {formatting.rate(joules.value or 0.0)} J per output token" for _, arm, joules in found]
        aloud = f"{'; '.join(said)}."
        return svg.drawing(figure, name, "Energy", f"{aloud} Whiskers are 95 % intervals.", ("measured",), aloud)
