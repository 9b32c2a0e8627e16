"""`sbd roofline --methods`: other decoding methods beside SBD and NTP on one roofline; priced, not run."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache
from pathlib import Path
from typing import Any

from harness.capacity.what_if import fitting
from harness.cli.output import by_reason, give, grid, lines_of
from harness.hardware.profile import load_profile
from harness.models import KNOWN_SHAPES, ModelShape
from harness.models.deployment import Deployment
from harness.roofline.ceilings import Ceilings, ceilings_of
from harness.roofline.methods.calls import MethodTrace, PricedAt, price_method
from harness.roofline.methods.ranges import PricedRange, figures_at, priced_range
from harness.roofline.methods.set_block import next_token
from harness.roofline.methods.systems import MARK, NOT_PUBLISHED, System, known_systems, read_systems
from harness.roofline.pricing import SummedPrice

METHODS_VERSION = 2
MODEL, HARDWARE = "llama-3.1-8b", "h100-sxm"
MS_PER_S = 1e3
LEGEND = """\
passes: target passes per token, a pass through half the layers counts as half; query: query tokens of a row in such a pass
speedup: over NTP on this roofline, memory and arithmetic fully or not overlapped (both alike); acceptance as published
published: wall speedup as reported, over what and where; grade: the weakest figure it rests on: V read in the project's own
       paper, code or results, S secondary, U unverified; `--json` has every figure with its source
not published: a figure is missing, and a range was assumed for it; passes, time and speedup are those over the whole range"""
RANGES = "not published, so priced over an assumed range; all figures of a system go from its worst end to its best together:"
ASSUMED = "every row progresses alike, none waits for the slowest; expected values where counts are random"


def print_methods(
    target: ModelShape | None, hardware: str | None, dtype: str, batch: int, context: int, file: Path | None, as_json: bool
) -> None:
    """Print the table or the JSON; ``target``, ``hardware`` and ``file`` default to a known model, device and list.

    Raises:
        UserError: an unknown device or dtype, a size out of range, or a refused file.
        DoesNotFitError: memory cannot hold the rows of NTP.
    """
    at = PricedAt(target=target or KNOWN_SHAPES[MODEL], batch=batch, context_tokens=context)
    profile = load_profile(hardware or HARDWARE)
    fitting(at.target, Deployment(dtype=dtype), profile, batch, context, 0)
    ceilings = ceilings_of(profile, dtype)
    described = describe_methods(at, dtype, ceilings, known_systems() if file is None else read_systems(file))
    give(as_json, lambda: described, lambda: render_methods(described))


def describe_methods(at: PricedAt, dtype: str, ceilings: Ceilings, systems: Iterable[System]) -> dict[str, Any]:
    """Every system as plain data; ``price`` and ``trace`` are None where ``missing`` says why, ``range`` where none is assumed.

    Raises:
        UserError: unknown dtype, or figures that do not fit this model.
    """
    listed = {system.name: system for system in systems}
    # A system that others are held to is priced once.
    priced = lru_cache(maxsize=None)(lambda trace: price_method(trace, dtype, ceilings))
    baseline = priced(next_token(at))
    methods = []
    for system in listed.values():
        trace = system.trace(at)
        over = _range(system, listed.get(system.against), at, priced) if trace is None and system.assumed else None
        methods.append(
            system.model_dump(mode="json")
            | {"grade": system.grade, "missing": list(system.missing), "trace": trace and _trace(trace)}
            | {"price": trace and _price(priced(trace), baseline), "range": over and _described(over, system, baseline)}
            | {"mark": NOT_PUBLISHED if over else MARK}
        )
    return {
        "version": METHODS_VERSION,
        "model": at.target.name,
        "hardware": ceilings.device_name,
        "rung": ceilings.rung,
        "dtype": dtype,
        "batch": at.batch,
        "context_tokens": at.context_tokens,
        "assumed": ASSUMED,
        "methods": methods,
    }


def _range(system: System, other: System | None, at: PricedAt, priced: Callable[[MethodTrace], SummedPrice]) -> PricedRange:
    """``system`` over its assumed range, against ``other`` at the same share of its own."""

    def to_beat(share: float) -> SummedPrice:
        assert other is not None
        return priced(other.trace(at) or other.assumed_trace(at, share))

    comparable = other is not None and (other.assumed or not other.missing)
    return priced_range(lambda share: system.assumed_trace(at, share), priced, to_beat if comparable else None)


def _described(over: PricedRange, system: System, baseline: SummedPrice) -> dict[str, Any]:
    """Both ends with their counts, the band of all prices between them, and where it is faster than another system."""
    prices = sorted((_price(price, baseline) for price in over.prices), key=lambda price: price["expected_s_per_token"])
    faster = over.faster
    return {
        "worst": _trace(over.worst),
        "best": _trace(over.best),
        "slowest": prices[-1],
        "fastest": prices[0],
        "wall_speedup_low": min(price["wall_speedup_low"] for price in prices),
        "wall_speedup_high": max(price["wall_speedup_high"] for price in prices),
        "faster_than": None if faster is None else system.against,
        "faster_where": None
        if faster is None
        else [{"from": figures_at(system.assumed, begun), "to": figures_at(system.assumed, ended)} for begun, ended in faster],
    }


def _trace(trace: MethodTrace) -> dict[str, Any]:
    counts = ("target_passes_per_token", "tokens_per_target_pass", "query_tokens_per_target_pass")
    calls = [
        {
            "model": call.model,
            "shape": call.shape.name,
            "role": call.forward_pass.role,
            "query_tokens": call.forward_pass.padded_query,
            "context_tokens": call.forward_pass.padded_context,
            "logit_tokens": call.forward_pass.logit_tokens[0],
            "share_of_layers": call.share_of_layers,
            "count_per_token": call.count_per_token,
        }
        for call in trace.calls
    ]
    return {name: getattr(trace, name) for name in ("family", "notes", "link_s_per_token", *counts)} | {"calls": calls}


def _price(price: SummedPrice, baseline: SummedPrice) -> dict[str, float]:
    low, expected, high = baseline.speedup_of(price)
    return {
        "low_s_per_token": price.low_s,
        "expected_s_per_token": price.expected_s,
        "high_s_per_token": price.high_s,
        "bytes_per_token": price.bytes_,
        "wall_speedup_low": low,
        "wall_speedup": expected,
        "wall_speedup_high": high,
    }


def render_methods(found: dict[str, Any]) -> str:
    """The table, and below it the reasons for missing prices."""
    numbers = ("passes", "query", "ms/token", "speedup")
    rows = [
        [
            method["name"],
            *_numbers(method),
            _reported(method["speedup"]),
            method["reference"],
            method["grade"] or "",
            method["mark"] if method["price"] or method["range"] else "not priced",
        ]
        for method in found["methods"]
    ]
    heads = ("method", *numbers, "published", "source", "grade", "mark")
    table = grid(heads, rows, right=numbers, folds=("method", "published", "source"))
    head = (
        f"{found['model']} {found['dtype']} on {found['hardware']} ({found['rung']}), batch {found['batch']}, "
        f"context {found['context_tokens']}: priced, not run"
    )
    unpriced = [method for method in found["methods"] if not method["range"]]
    bare = [f"  {method['name']}: {why}" for method in unpriced for why in _grouped(method["missing"])]
    missing = ["", "not priced, for want of:", *bare] if bare else []
    ranges = [line for method in found["methods"] if method["range"] for line in _over_range(method)]
    if ranges:
        missing += ["", RANGES, *ranges]
    assumed = f"assumed: {found['assumed']}; all matrix products in {found['dtype']}"
    return "\n".join([lines_of(head), "", table, "", LEGEND, lines_of(assumed, *missing)])


def _over_range(method: dict[str, Any]) -> list[str]:
    """The assumed figures of a system with their reasons, and where it beats the one that it is held to."""
    over = method["range"]
    reasons = ((f"{name} {_ends(one)}", one["why"]) for name, one in method["assumed"].items())
    lines = [f"  {method['name']}:", *(f"    {', '.join(names)} ({why})" for why, names in by_reason(reasons).items())]
    if over["faster_than"] is None:
        return lines
    moving = [name for name, one in method["assumed"].items() if one["worst"] != one["best"]]
    where = [_where(span, method["assumed"], moving) for span in over["faster_where"]]
    return [*lines, f"    faster than {over['faster_than']}: {' and '.join(where) or 'nowhere in this range'}"]


def _where(span: dict[str, Any], assumed: dict[str, Any], moving: list[str]) -> str:
    """The part of the range that a span is, by its first and last figures."""
    begun, ended = span["from"], span["to"]
    if ended == {name: assumed[name]["best"] for name in ended}:
        if begun == {name: assumed[name]["worst"] for name in begun}:
            return "in the whole range"
        return "from " + ", ".join(f"{name} {begun[name]:.3g}" for name in moving) + " on"
    return "at " + ", ".join(f"{name} {begun[name]:.3g} to {ended[name]:.3g}" for name in moving)


def _ends(assumed: dict[str, float]) -> str:
    worst, best = assumed["worst"], assumed["best"]
    return f"{worst:g}" if worst == best else f"{worst:g} to {best:g}"


def _numbers(method: dict[str, Any]) -> tuple[str, str, str, str]:
    """passes, query tokens, ms per token and speedup, each with its ends where a range was assumed."""
    over = method["range"]
    traces = [over["worst"], over["best"]] if over else [method["trace"]]
    prices = [over["fastest"], over["slowest"]] if over else [method["price"]]
    if None in traces or None in prices:
        return "?", "?", "?", "?"
    band = over or method["price"]
    passes = [trace["target_passes_per_token"] for trace in traces]
    queries = [trace["query_tokens_per_target_pass"] for trace in traces]
    times = [price["expected_s_per_token"] * MS_PER_S for price in prices]
    return (
        _span(passes, ".3f"),
        "none" if None in queries else _span(queries, ".1f"),
        _span(times, ".3f"),
        _span([band["wall_speedup_low"], band["wall_speedup_high"]], ".2f") + "x",
    )


def _span(values: list[float], form: str) -> str:
    """One number, or the least and the greatest where they read differently."""
    ends = [format(min(values), form), format(max(values), form)]
    return ends[0] if ends[0] == ends[1] else "..".join(ends)


def _grouped(missing: list[str]) -> list[str]:
    """``figure, figure: reason``, one line per reason."""
    split = ((name, reason) for name, _, reason in (line.partition(": ") for line in missing))
    return [f"{', '.join(names)}: {reason}" for reason, names in by_reason(split).items()]


def _reported(speedup: dict[str, Any]) -> str:
    if speedup["value"] is None:
        return f"none: {speedup['source']}"
    where = ", ".join(part for part in (speedup["model"], speedup["hardware"] or "hardware not stated") if part)
    return f"{speedup['value']:g}x over {speedup['over']} ({where})"
