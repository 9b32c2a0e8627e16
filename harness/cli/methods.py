"""`sbd roofline --methods`: other decoding methods beside SBD and NTP on one roofline; priced, not run."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from harness.cli.output import by_reason, give, grid, lines_of
from harness.hardware.profile import load_profile
from harness.models import KNOWN_SHAPES, ModelShape
from harness.roofline.ceilings import Ceilings, ceilings_of
from harness.roofline.methods.calls import MethodTrace, Setting, price_method
from harness.roofline.methods.set_block import next_token
from harness.roofline.methods.systems import MARK, System, known_systems, read_systems
from harness.roofline.pricing import SummedPrice

METHODS_VERSION = 1
MODEL, HARDWARE = "llama-3.1-8b", "h100-sxm"
MS_PER_S = 1e3
LEGEND = """\
passes: target passes per token, a pass through half the layers counts as half; query: query tokens of a row in such a pass
speedup: over NTP on this roofline, memory and arithmetic fully or not overlapped (both alike); acceptance as published
published: wall speedup as reported, over what and where; grade: the weakest figure it rests on: V read in the project's own
       paper, code or results, S secondary, U unverified; `--json` has every figure with its source"""
ASSUMED = "every row progresses alike, none waits for the slowest; expected values where counts are random"


def print_methods(
    target: ModelShape | None, hardware: str | None, dtype: str, batch: int, context: int, file: Path | None, as_json: bool
) -> None:
    """Print the table or the JSON; ``target``, ``hardware`` and ``file`` default to a known model, device and list.

    Raises:
        UserError: an unknown device or dtype, a size out of range, or a refused file.
    """
    at = Setting(target=target or KNOWN_SHAPES[MODEL], batch=batch, context_tokens=context)
    ceilings = ceilings_of(load_profile(hardware or HARDWARE), dtype)
    described = describe_methods(at, dtype, ceilings, known_systems() if file is None else read_systems(file))
    give(as_json, lambda: described, lambda: render_methods(described))


def describe_methods(at: Setting, dtype: str, ceilings: Ceilings, systems: Iterable[System]) -> dict[str, Any]:
    """Every system as plain data; ``price`` and ``trace`` are None where ``missing`` says why.

    Raises:
        UserError: unknown dtype, or figures that do not fit this model.
    """
    baseline = price_method(next_token(at), dtype, ceilings)
    methods = []
    for system in systems:
        trace = system.trace(at)
        methods.append(
            system.model_dump(mode="json")
            | {"grade": system.grade, "missing": list(system.missing), "trace": trace and _trace(trace)}
            | {"price": trace and _price(price_method(trace, dtype, ceilings), baseline), "mark": MARK}
        )
    return {
        "version": METHODS_VERSION, "model": at.target.name, "hardware": ceilings.device_name, "rung": ceilings.rung,
        "dtype": dtype, "batch": at.batch, "context_tokens": at.context_tokens, "assumed": ASSUMED, "methods": methods,
    }  # fmt: skip


def _trace(trace: MethodTrace) -> dict[str, Any]:
    counts = ("target_passes_per_token", "tokens_per_target_pass", "query_tokens_per_target_pass")
    calls = [
        {
            "model": call.model, "shape": call.shape.name, "role": call.forward_pass.role,
            "query_tokens": call.forward_pass.padded_query, "context_tokens": call.forward_pass.padded_context,
            "logit_tokens": call.forward_pass.logit_tokens[0], "share_of_layers": call.share_of_layers,
            "count_per_token": call.count_per_token,
        }
        for call in trace.calls
    ]  # fmt: skip
    return {name: getattr(trace, name) for name in ("family", "notes", *counts)} | {"calls": calls}


def _price(price: SummedPrice, baseline: SummedPrice) -> dict[str, float]:
    low, expected, high = baseline.speedup_of(price)
    return {
        "low_s_per_token": price.low_s, "expected_s_per_token": price.expected_s, "high_s_per_token": price.high_s,
        "bytes_per_token": price.bytes_, "wall_speedup_low": low, "wall_speedup": expected, "wall_speedup_high": high,
    }  # fmt: skip


def render_methods(found: dict[str, Any]) -> str:
    """The table, and below it the reasons for missing prices."""
    numbers = ("passes", "query", "ms/token", "speedup")
    rows = [
        [method["name"], *_numbers(method), _reported(method["speedup"]), method["reference"], method["grade"] or "",
         method["mark"] if method["price"] else "not priced"]
        for method in found["methods"]
    ]  # fmt: skip
    heads = ("method", *numbers, "published", "source", "grade", "mark")
    table = grid(heads, rows, right=numbers, folds=("method", "published", "source"))
    head = (
        f"{found['model']} {found['dtype']} on {found['hardware']} ({found['rung']}), batch {found['batch']}, "
        f"context {found['context_tokens']}: priced, not run"
    )
    missing = [f"  {method['name']}: {why}" for method in found["methods"] for why in _grouped(method["missing"])]
    if missing:
        missing = ["", "not priced, for want of:", *missing]
    return "\n".join([lines_of(head), "", table, "", LEGEND, lines_of(f"assumed: {found['assumed']}", *missing)])


def _numbers(method: dict[str, Any]) -> tuple[str, str, str, str]:
    trace, price = method["trace"], method["price"]
    if trace is None or price is None:
        return "?", "?", "?", "?"
    query = trace["query_tokens_per_target_pass"]
    low, high = price["wall_speedup_low"], price["wall_speedup_high"]
    speedup = f"{low:.2f}x" if f"{low:.2f}" == f"{high:.2f}" else f"{low:.2f}..{high:.2f}x"
    passes = f"{trace['target_passes_per_token']:.3f}"
    return passes, "none" if query is None else f"{query:.1f}", f"{price['expected_s_per_token'] * MS_PER_S:.3f}", speedup


def _grouped(missing: list[str]) -> list[str]:
    """``figure, figure: reason``, one line per reason."""
    split = ((name, reason) for name, _, reason in (line.partition(": ") for line in missing))
    return [f"{', '.join(names)}: {reason}" for reason, names in by_reason(split).items()]


def _reported(speedup: dict[str, Any]) -> str:
    if speedup["value"] is None:
        return f"none: {speedup['source']}"
    where = ", ".join(part for part in (speedup["model"], speedup["hardware"] or "hardware not stated") if part)
    return f"{speedup['value']:g}x over {speedup['over']} ({where})"
