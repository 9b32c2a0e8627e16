"""Figures about a batch: rows that wait, bandwidth against its ceiling, energy per token.

They draw values of a Comparison and compute no statistic. Every function returns None where there is nothing to draw.
"""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes

from harness import formatting
from harness.analysis.evidence.explain import Bandwidth
from harness.analysis.results import ArmResult, Cell
from harness.reporting import svg
from harness.reporting.svg import MOST_ARMS, Drawing
from harness.stats.quantity import Quantity

ENERGY = "joules_per_token"


def straggler_loss(cells: Sequence[Cell]) -> Drawing | None:
    """Active rows per pass relative to NTP, over the batch sizes of a part: the effect of waiting for the slowest row."""
    lines: dict[str, list[tuple[int, float]]] = {}
    for cell in cells:
        for arm in cell.arms:
            if not arm.is_ntp and arm.factors is not None:
                lines.setdefault(arm.label, []).append((cell.batch_size, arm.factors.rows_per_pass))
    if not lines or max(size for line in lines.values() for size, _ in line) == 1:
        return None
    shown = dict(sorted(lines.items(), key=lambda one: one[1][-1][1])[: len(svg.SERIES)])
    with svg.new_axes() as (figure, axes):
        axes.axhline(1, color=svg.MUTED, lw=0.8)
        for colour, (label, line) in zip(svg.SERIES, shown.items(), strict=False):
            axes.plot([size for size, _ in line], [share for _, share in line], "-", color=colour, label=label)
            for size, share in line:
                svg.dot(axes, size, share, "o", colour, f"{label}, batch {size}: ×{formatting.figure(share, 3)}", 5)
        axes.set_xscale("log", base=2)
        svg.key(axes)
        svg.log_ticks(axes.xaxis, sorted({size for line in lines.values() for size, _ in line}))
        axes.set_ylim(0, max(1.0, *(share for line in shown.values() for _, share in line)) * 1.08)
        axes.set_xlabel("batch size (rows)")
        axes.set_ylabel("active rows per pass ÷ NTP's")
        label, line = next(iter(shown.items()))
        caption = (
            f"At batch {line[-1][0]}, rows that wait for the slowest row of their batch change the speedup of {label} by ×"
            f"{formatting.figure(line[-1][1], 3)}. 1 is no loss; NTP's own rows wait too, so a factor may lie above 1."
        )
        replayed = ("replayed",) if any(arm.replayed for cell in cells for arm in cell.arms) else ()
        return svg.drawing(figure, "Rows that wait for the slowest", caption, ("measured", *replayed))


def bandwidth_bars(found: Sequence[Bandwidth]) -> Drawing | None:
    """Modelled and counted bytes per second of every arm, with the read ceiling as a line where one may be claimed."""
    found = found[:MOST_ARMS]
    if not found:
        return None
    both = any(one.measured.value is not None for one in found)
    with svg.new_axes(height_in=0.9 + (0.55 if both else 0.38) * len(found)) as (figure, axes):
        for row, one in enumerate(found):
            colour = svg.BLUE if one.arm.is_ntp else svg.VERMILION
            _bar(axes, one.arm.label, one.modelled, row + 0.2 - 0.14 * both, colour, "modelled")
            if one.measured.value is not None:
                _bar(axes, one.arm.label, one.measured, row + 0.36, svg.INK, "counted")
        ceilings = {
            f"{one.ceiling.method}, {formatting.gigabytes(one.ceiling.value)} GB/s": one.ceiling.value
            for one in found
            if one.ceiling.value is not None
        }
        for text, ceiling in ceilings.items():
            axes.axvline(ceiling / 1e9, color=svg.PURPLE, lw=1.2, label=text)
        if ceilings:
            svg.key(axes)
        axes.set_ylim(len(found) - 0.4, -0.55)
        axes.set_xlim(0, axes.get_xlim()[1] * 1.3)
        _name_arms(axes, [(one.arm, one.batch_size) for one in found])
        axes.set_xlabel("bytes moved by the forwards (GB/s)")
        return svg.drawing(figure, "Bandwidth", _bandwidth_sentence(found), ("modelled", "measured") if both else ("modelled",))


def _name_arms(axes: Axes, arms: Sequence[tuple[ArmResult, int]]) -> None:
    """A row per arm, with its batch size where these differ."""
    with_batch = len({size for _, size in arms}) > 1
    svg.name_rows(axes, ())
    for row, (arm, size) in enumerate(arms):
        svg.name_above(axes, row, f"{arm.label}{f', batch {size}' if with_batch else ''}", up=0.08)


def _bar(axes: Axes, label: str, quantity: Quantity, place: float, colour: str, word: str) -> None:
    value = (quantity.value or 0.0) / 1e9
    filled = word == "counted"
    face, dashes = colour if filled else "none", "-" if filled else ":"
    (bar,) = axes.barh(place, value, 0.24, facecolor=face, edgecolor=colour, lw=1.2, ls=dashes)
    text = f"{formatting.gigabytes(quantity.value or 0.0)} {word}"
    svg.tell(bar, f"{label}: {text.replace(' ', ' GB/s ', 1)}")
    svg.beside(axes, value, place, text)


def _bandwidth_sentence(found: Sequence[Bandwidth]) -> str:
    said = []
    for one in (found[0], found[-1]) if len(found) > 1 else found:
        share = one.arm.ceiling_share
        of = f", {formatting.percent(share.value, 0)} of the {share.method}" if share.value is not None else ""
        said.append(f"{one.arm.label} moves {formatting.gigabytes(one.modelled.value or 0.0)} GB/s as modelled{of}")
    missing = [one.ceiling.reason for one in found if one.ceiling.value is None and one.ceiling.reason]
    why = f" No ceiling is drawn: {missing[0].rstrip('.')}." if len(missing) == len(found) else ""
    return f"{'; '.join(said)}.{why}"


def energy_bars(cells: Sequence[Cell]) -> Drawing | None:
    """Joules per output token of every arm that was metered, with its interval."""
    found = [(cell, arm, arm.figures[ENERGY]) for cell in cells for arm in cell.arms if ENERGY in arm.figures]
    found = [one for one in found if one[2].value is not None][:MOST_ARMS]
    if not found:
        return None
    with svg.new_axes(height_in=0.8 + 0.38 * len(found)) as (figure, axes):
        for row, (_, arm, joules) in enumerate(found):
            value, place = joules.value or 0.0, row + 0.2
            (bar,) = axes.barh(place, value, 0.24, color=svg.BLUE if arm.is_ntp else svg.VERMILION)
            svg.tell(bar, f"{arm.label}: {formatting.rate(value)} J per output token")
            svg.interval(axes, joules, place, lw=1.4)
            svg.beside(axes, max(value, joules.high or 0), place, formatting.rate(value), 9.5)
        axes.set_ylim(len(found) - 0.4, -0.55)
        axes.set_xlim(0, axes.get_xlim()[1] * 1.25)
        _name_arms(axes, [(arm, cell.batch_size) for cell, arm, _ in found])
        axes.set_xlabel("energy per output token, prefill and decode (J)")
        said = [f"{arm.label}: {formatting.rate(joules.value or 0.0)} J per output token" for _, arm, joules in found]
        aloud = f"{'; '.join(said)}."
        return svg.drawing(figure, "Energy", "Lines: 95 % intervals.", ("measured",), aloud)
