"""A capacity plan as CSV: a line per device and arm, or per device and context; empty where absent, beside the reason."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from io import StringIO
from typing import Any

from harness.capacity.results import BreakEven, DevicePlan, Plan

BANDS = ("tokens_per_s_per_user", "tokens_per_s_per_gpu", "prefill_s", "usd_per_million_tokens", "kwh_per_million_tokens")
PLAIN = ("tensor_parallel", "batch", "passes_per_block", "gpus", "gpus_serial", "usd_reason", "kwh_reason")
RANGES = ("pays", "pays_overlapped", "pays_serial")


def to_csv(plan: Plan, break_even: bool) -> str:
    """The arms of every device, or where ``break_even`` its contexts. ``predicted`` names the rung of every line's figures."""
    lines = list(_break_even_lines(plan) if break_even else _arm_lines(plan))
    text = StringIO()
    table = csv.DictWriter(text, fieldnames=list(dict.fromkeys(key for line in lines for key in line)), lineterminator="\n")
    table.writeheader()
    table.writerows(lines)
    return text.getvalue()


def _arm_lines(plan: Plan) -> Iterator[dict[str, Any]]:
    for device in plan.devices:
        for method, arm in (("ntp", device.ntp), ("sbd", device.sbd)):
            line = _of_device(plan, device) | {"arm": method, "reason": device.reason or (arm and arm.reason)}
            line |= {name: getattr(arm, name, None) for name in PLAIN}
            for name in BANDS:
                band = getattr(arm, name, None)
                line |= {f"{name}{side}": getattr(band, part, None) for side, part in _SIDES.items()}
            speedup = device.wall_speedup if method == "sbd" else None
            yield line | {f"wall_speedup{side}": getattr(speedup, part, None) for side, part in _SIDES.items()}


_SIDES = {"": "expected", "_low": "low", "_high": "high"}


def _break_even_lines(plan: Plan) -> Iterator[dict[str, Any]]:
    for device in plan.devices:
        for found in device.break_even or (None,):
            line = _of_device(plan, device) | {"reason": device.reason or (found and found.reason)}
            plain = [name for name in BreakEven.__dataclass_fields__ if name not in (*RANGES, "reason")]
            line |= {name: getattr(found, name, None) for name in plain}
            yield line | {name: _ranges(getattr(found, name, ())) for name in RANGES}


def _of_device(plan: Plan, device: DevicePlan) -> dict[str, Any]:
    price = device.price_usd_per_hour
    return {
        "model": plan.model, "hardware": device.hardware, "predicted": device.rung, "price_usd_per_hour": price.value,
        "price_source": price.source, "price_date": price.date, "power_w": device.power_w.value,
    }  # fmt: skip


def _ranges(ranges: tuple[tuple[int, int], ...]) -> str:
    return " ".join(f"{first}-{last}" for first, last in ranges)
