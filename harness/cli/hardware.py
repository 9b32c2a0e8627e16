"""`sbd hardware`: the devices that a prediction can use, and every figure of one of them with its source."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from typer import Argument

from harness.cli.calibrate import render
from harness.cli.output import AsJson, give, grid, lines_of
from harness.hardware.figures import SourcedFigure
from harness.hardware.profile import HardwareProfile, known_profiles, load_profile, local_profiles

HARDWARE_VERSION = 1
TERA, GIGA, MEGA = 1e12, 1e9, 1e6
GRADES = "VRSU"  # from the strongest to the weakest
LEGEND = """\
ridge: bf16 peak over bandwidth, below it memory is the limit; peaks are dense; *: other sources differ; ?: not known
grade: the weaker one of bandwidth and peak: V verified in a vendor's or project's source, R measured by us,
       S secondary, U unverified; `sbd hardware NAME` shows every figure with its source"""


def hardware_command(name: Annotated[str | None, Argument()] = None, as_json: AsJson = False) -> None:
    """List the hardware profiles, those that `sbd calibrate` left here too, or every figure of one with its source.

    Args:
        name ([NAME]): a profile, or a YAML file in the same form; default: list all
    """
    chosen = [load_profile(name)] if name else list((known_profiles() | local_profiles()).values())
    give(as_json, lambda: describe(chosen), lambda: render_one(chosen[0]) if name else render_list(chosen))


def describe(profiles: list[HardwareProfile]) -> dict[str, object]:
    """Profiles by name as plain data, each with its ridge (FLOP/byte, bfloat16; None with an unknown figure)."""
    devices = {
        profile.name: profile.model_dump(mode="json") | {"ridge_flops_per_byte": profile.ridge_flops_per_byte()}
        for profile in profiles
    }
    return {"version": HARDWARE_VERSION, "hardware": devices}


def render_list(profiles: list[HardwareProfile]) -> str:
    """One line per device."""
    rows = []
    for profile in profiles:
        peak, bandwidth = profile.peak_flops_per_s["bfloat16"], profile.bandwidth_bytes_per_s
        headline = ((profile.memory_bytes, GIGA), (bandwidth, GIGA), (peak, TERA))
        ridge, price = profile.ridge_flops_per_byte(), profile.price_usd_per_hour.value
        rows.append(
            [
                profile.name,
                *(shown(figure, unit) + ("*" if figure.also else " ") for figure, unit in headline),
                "?" if ridge is None else f"{ridge:.0f}",
                "?" if price is None else f"{price:.2f}",
                max((grade for grade in (peak.grade, bandwidth.grade) if grade), key=GRADES.index, default="?"),
            ]
        )
    figures = ("memory GB", "GB/s", "bf16 TFLOP/s", "ridge FLOP/byte", "USD/h")
    return f"{grid(('device', *figures, 'grade'), rows, right=figures)}\n{LEGEND}"


def render_one(profile: HardwareProfile) -> str:
    """Every figure of one device with unit, grade and source, and other sources' values below."""
    rows = []
    for label, unit, unit_name, figure in figures_of(profile):
        rows.append([label, shown(figure, unit), unit_name, figure.grade or "", with_date(figure.source, figure.date)])
        for other in figure.also:
            rows.append(["  also", f"{other.value / unit:,.6g}", unit_name, other.grade, with_date(other.source, other.date)])
    ridge = profile.ridge_flops_per_byte()
    if ridge is not None:
        rows.append(["ridge bfloat16", f"{ridge:,.0f}", "FLOP/byte", "", "derived: peak over bandwidth"])
    source = "source, or why it is not known"
    table = grid(("figure", "value", "unit", "grade", source), rows, right=("value",), folds=(source,))
    names = f"name {', '.join(profile.match_names)}" if profile.match_names else "name: none, it is only asked for"
    head = f"{profile.name} ({profile.kind}), driver's {names}"
    lines = [lines_of(head), "", table, *(["", lines_of(profile.notes)] if profile.notes else [])]
    if profile.measured is not None:
        lines += ["", lines_of(f"measured on {profile.measured.measured_at}"), "", render(profile.measured)]
    return "\n".join(lines)


def figures_of(profile: HardwareProfile) -> Iterator[tuple[str, float, str, SourcedFigure]]:
    """(label, size of the unit, name of the unit, figure), peaks first, measured ceilings last."""
    for dtype, peak in profile.peak_flops_per_s.items():
        yield f"peak {dtype}", TERA, "TOP/s" if dtype == "int8" else "TFLOP/s", peak
    yield "bandwidth", GIGA, "GB/s", profile.bandwidth_bytes_per_s
    yield "memory", GIGA, "GB", profile.memory_bytes
    if profile.memory_seen_mib:
        yield "seen by driver", 1, "MiB", profile.memory_seen_mib
    yield "cache", MEGA, "MB", profile.cache_bytes
    yield "link", GIGA, "GB/s", profile.link_bytes_per_s
    yield "power", 1, "W", profile.power_w
    if profile.multiprocessors:
        yield "multiprocessors", 1, "", profile.multiprocessors
    yield "price", 1, "USD/h", profile.price_usd_per_hour
    for dtype, ceiling in profile.published_ceilings.matrix_flops_per_s.items():
        yield f"measured {dtype}", TERA, "TFLOP/s", ceiling
    if profile.published_ceilings.copy_bytes_per_s:
        yield "measured copy", GIGA, "GB/s", profile.published_ceilings.copy_bytes_per_s


def shown(figure: SourcedFigure, unit: float) -> str:
    """The value in ``unit``, as published; "?" where unknown."""
    return "?" if figure.value is None else f"{figure.value / unit:,.6g}"


def with_date(source: str, date: str | None) -> str:
    """A source with the date of a price."""
    return f"{source} ({date})" if date else source
