"""`sbd roofline --methods`: other decoding methods beside SBD and NTP on one roofline; priced, not run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache, partial

from harness.capacity.what_if import fitting
from harness.cli.options import RooflineOptions
from harness.cli.output import by_reason, give, grid, lines_of
from harness.hardware.profile import load_profile
from harness.models.choice import shape_called
from harness.models.deployment import Deployment
from harness.roofline.ceilings import ceilings_of
from harness.roofline.methods.calls import MethodTrace, PricedAt, price_method
from harness.roofline.methods.set_block import next_token
from harness.roofline.methods.systems import (
    MARK,
    NOT_PUBLISHED,
    AssumedFigure,
    PricedRange,
    PublishedSpeedup,
    System,
    figures_at,
    known_systems,
    priced_range,
    read_systems,
)
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


PricedSystem = tuple[System, PricedRange | None]
"""A system with its price, as published or over its assumed range; None: not priced."""


def print_methods(options: RooflineOptions, dtype: str) -> None:
    """Print the table or the JSON; model, hardware and systems default to a known model, device and list.

    Raises:
        UserError: an unknown device or dtype, a size out of range, a refused file, or figures that do not fit this model.
        DoesNotFitError: memory cannot hold the rows of NTP.
    """
    batch, context, file = options.batch, options.context, options.systems
    target = shape_called(MODEL if options.model is None else options.model)
    at = PricedAt(target=target, batch=batch, context_tokens=context)
    profile = load_profile(options.hardware or HARDWARE)
    fitting(at.target, Deployment(dtype=dtype), profile, batch, context, 0)
    ceilings = ceilings_of(profile, dtype)
    # A system that others are held to is priced once.
    price = lru_cache(maxsize=None)(partial(price_method, dtype=dtype, ceilings=ceilings))
    baseline = price(next_token(at))
    listed = {system.name: system for system in (known_systems() if file is None else read_systems(file))}
    rows = [(system, _priced(system, listed, at, price)) for system in listed.values()]
    asked = {
        "version": METHODS_VERSION,
        "model": at.target.name,
        "hardware": ceilings.device_name,
        "rung": ceilings.rung,
        "dtype": dtype,
        "batch": batch,
        "context_tokens": context,
        "assumed": ASSUMED,
    }
    give(
        options.as_json,
        lambda: asked | {"methods": [_described(system, over, baseline) for system, over in rows]},
        lambda: _render(asked, rows, baseline),
    )


def _priced(
    system: System, listed: Mapping[str, System], at: PricedAt, price: Callable[[MethodTrace], SummedPrice]
) -> PricedRange | None:
    """As published, or over its range against the system that it is held to, at the same share of that one's own."""
    trace = system.trace(at)
    if trace is not None:
        return PricedRange(worst=trace, best=trace, prices=(price(trace),), faster=None)
    if not system.assumed:
        return None
    other = listed.get(system.against)

    def to_beat(share: float) -> SummedPrice:
        assert other is not None
        return price(other.trace(at) or other.assumed_trace(at, share))

    comparable = other is not None and (other.assumed or not other.missing)
    return priced_range(lambda share: system.assumed_trace(at, share), price, to_beat if comparable else None)


def _described(system: System, over: PricedRange | None, baseline: SummedPrice) -> dict[str, object]:
    """A system as plain data; ``price`` and ``trace`` are None where ``missing`` says why, ``range`` where none is assumed."""
    published, ranged = (None, over) if system.missing else (over, None)
    return system.model_dump(mode="json") | {
        "grade": system.grade,
        "missing": [f"{name}: {why}" for name, why in system.missing.items()],
        "trace": published and _trace(published.worst),
        "price": published and _price(published.prices[0], baseline),
        "range": ranged and _range(ranged, system, baseline),
        "mark": NOT_PUBLISHED if ranged else MARK,
    }


def _range(over: PricedRange, system: System, baseline: SummedPrice) -> dict[str, object]:
    """Both ends with their counts, the band of all prices between them, and where it is faster than another system."""
    prices = sorted((_price(price, baseline) for price in over.prices), key=lambda price: price["expected_s_per_token"])
    spans = [[figures_at(system.assumed, share) for share in span] for span in over.faster or ()]
    return {
        "worst": _trace(over.worst),
        "best": _trace(over.best),
        "slowest": prices[-1],
        "fastest": prices[0],
        "wall_speedup_low": min(price["wall_speedup_low"] for price in prices),
        "wall_speedup_high": max(price["wall_speedup_high"] for price in prices),
        "faster_than": None if over.faster is None else system.against,
        "faster_where": None if over.faster is None else [{"from": begun, "to": ended} for begun, ended in spans],
    }


def _trace(trace: MethodTrace) -> dict[str, object]:
    names = ("family", "notes", "link_s_per_token")
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
    return {name: getattr(trace, name) for name in (*names, *counts)} | {"calls": calls}


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


def _render(asked: Mapping[str, object], rows: Sequence[PricedSystem], baseline: SummedPrice) -> str:
    """The table, and below it the reasons for missing prices."""
    numbers = ("passes", "query", "ms/token", "speedup")
    cells = [
        [
            system.name,
            *(_numbers(over, baseline) if over else ("?",) * len(numbers)),
            _reported(system.speedup),
            system.reference,
            system.grade or "",
            "not priced" if over is None else NOT_PUBLISHED if system.missing else MARK,
        ]
        for system, over in rows
    ]
    heads = ("method", *numbers, "published", "source", "grade", "mark")
    table = grid(heads, cells, right=numbers, folds=("method", "published", "source"))
    head = (
        f"{asked['model']} {asked['dtype']} on {asked['hardware']} ({asked['rung']}), batch {asked['batch']}, "
        f"context {asked['context_tokens']}: priced, not run"
    )
    bare = [
        f"  {system.name}: {', '.join(names)}: {why}"
        for system, over in rows
        if over is None
        for why, names in by_reason(system.missing.items()).items()
    ]
    missing = ["", "not priced, for want of:", *bare] if bare else []
    ranges = [line for system, over in rows if over and system.missing for line in _over_range(system, over)]
    if ranges:
        missing += ["", RANGES, *ranges]
    assumed = f"assumed: {ASSUMED}; all matrix products in {asked['dtype']}"
    return "\n".join([lines_of(head), "", table, "", LEGEND, lines_of(assumed, *missing)])


def _over_range(system: System, over: PricedRange) -> Iterator[str]:
    """The assumed figures of a system with their reasons, and where it beats the one that it is held to."""
    yield f"  {system.name}:"
    reasons = ((f"{name} {_ends(figure)}", figure.why) for name, figure in system.assumed.items())
    yield from (f"    {', '.join(names)} ({why})" for why, names in by_reason(reasons).items())
    if over.faster is not None:
        where = [_where(system, begun, ended) for begun, ended in over.faster]
        yield f"    faster than {system.against}: {' and '.join(where) or 'nowhere in this range'}"


def _where(system: System, begun: float, ended: float) -> str:
    """The part of the range that a span of shares is, by its first and last figures."""
    if (begun, ended) == (0, 1):
        return "in the whole range"
    first, last = figures_at(system.assumed, begun), figures_at(system.assumed, ended)
    moving = [name for name, figure in system.assumed.items() if figure.worst != figure.best]
    if ended == 1:
        return "from " + ", ".join(f"{name} {first[name]:.3g}" for name in moving) + " on"
    return "at " + ", ".join(f"{name} {first[name]:.3g} to {last[name]:.3g}" for name in moving)


def _numbers(over: PricedRange, baseline: SummedPrice) -> Iterator[str]:
    """passes, query tokens, ms per token and speedup, each with its ends where a range was assumed."""
    traces = (over.worst, over.best)
    queries = [trace.query_tokens_per_target_pass for trace in traces]
    yield _span([trace.target_passes_per_token for trace in traces], ".3f")
    yield "none" if None in queries else _span([query or 0.0 for query in queries], ".1f")
    yield _span([price.expected_s * MS_PER_S for price in over.prices], ".3f")
    yield _span([side for price in over.prices for side in baseline.speedup_of(price)], ".2f") + "x"


def _span(values: Sequence[float], form: str) -> str:
    """One number, or the least and the greatest where they read differently."""
    ends = [format(min(values), form), format(max(values), form)]
    return ends[0] if ends[0] == ends[1] else "..".join(ends)


def _ends(figure: AssumedFigure) -> str:
    return f"{figure.worst:g}" if figure.worst == figure.best else f"{figure.worst:g} to {figure.best:g}"


def _reported(speedup: PublishedSpeedup) -> str:
    if speedup.value is None:
        return f"none: {speedup.source}"
    where = ", ".join(part for part in (speedup.model, speedup.hardware or "hardware not stated") if part)
    return f"{speedup.value:g}x over {speedup.over} ({where})"
