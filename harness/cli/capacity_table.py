"""A capacity plan as a table, which arranges and rounds, or as CSV. An absent value is ? or empty, with its reason."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any, Literal

from harness.capacity.results import ArmPlan, Band, BreakEven, DevicePlan, Plan, Sourced
from harness.capacity.wording import answer, own_break_even, pays_words
from harness.cli.output import by_reason, csv_text, grid, wrapped
from harness.formatting import rate, ratio

ABSENT = "?"
CellWriter = Callable[[DevicePlan], str]
LEGEND = """\
every figure is predicted, on the rung of its line; a..b: nothing overlapped .. memory and arithmetic fully overlapped
batch: rows of one replica; a | b: NTP | SBD; "1..47 of 100": SBD pays at batches 1 to 47, 100 of its rows fit; ?: not known"""


def in_order(plan: Plan, sort: Literal["cost", "speed", "name"]) -> Plan:
    """The plan with sorted devices: the best first, then those with an unknown figure, then those without a plan."""

    def key(device: DevicePlan) -> tuple[int, float, str]:
        arms = [arm for arm in (device.sbd, device.ntp) if arm and arm.batch is not None]
        if not arms or sort == "name":
            return 0 if arms else 2, 0.0, device.hardware
        band = arms[0].usd_per_million_tokens if sort == "cost" else arms[0].tokens_per_s_per_user
        if band is None:
            return 1, 0.0, device.hardware
        return 0, band.expected if sort == "cost" else -band.expected, device.hardware

    return replace(plan, devices=tuple(sorted(plan.devices, key=key)))


def render(plan: Plan) -> str:
    """The answer, a line per device with NTP beside SBD, the devices without a plan, prices with sources, assumptions."""
    planned = [device for device in plan.devices if _planned(device)]
    columns = _columns(plan)
    rows = [[device.hardware, *(cell(device) for _, cell in columns)] for device in planned]
    table = _table(["\ndevice", *(head for head, _ in columns)], rows) + f"\n{LEGEND}"
    prices = priced((device.hardware, device.price_usd_per_hour) for device in planned)
    parts = [wrapped(answer(plan)), table if rows else "", _unplanned(plan), prices, assumed(plan.notes)]
    return "\n\n".join(part for part in parts if part)


def render_break_even(plan: Plan) -> str:
    """Two tables of devices by contexts: the batches that pay, and the tokens per pass where that ends."""
    planned = [device for device in plan.devices if _planned(device)]
    contexts = [f"{found.context_tokens:,}" for found in planned[0].break_even] if planned else []
    k = plan.acceptance.block_size
    tables = [
        f"{title}, by tokens in the cache per row (predicted, k = {k})\n\n"
        + _table(
            ["device", *contexts, "rung"],
            [[device.hardware, *map(cell, device.break_even), str(device.rung)] for device in planned],
        )
        for title, cell in (
            ("batches at which SBD decodes faster than NTP, of those that fit", pays_words),
            (
                "tokens per pass (B x k) up to which it does, whether they fit or not; nothing .. fully overlapped",
                lambda found: _end_in_tokens(found, k),
            ),
        )
    ]
    small = listed(
        "does not fit",
        (
            (f"{device.hardware} at {found.context_tokens:,}", found.reason)
            for device in planned
            for found in device.break_even
            if found.reason
        ),
    )
    parts = [wrapped(answer(plan)), *(tables if planned else ()), small, _unplanned(plan), assumed(plan.notes)]
    return "\n\n".join(part for part in parts if part)


def _end_in_tokens(found: BreakEven, block_size: int) -> str:
    """The end of the first paying range at both ends of the band; > where it exceeds all batches searched."""
    if found.searched_batch is None:
        return "does not fit"
    ends = sorted(ranges[0][1] if ranges else 0 for ranges in (found.pays_serial, found.pays_overlapped))
    words = [f"> {end * block_size:,}" if end == found.searched_batch else f"{end * block_size:,}" for end in ends]
    return words[0] if words[0] == words[1] else "..".join(words)


def _columns(plan: Plan) -> list[tuple[str, CellWriter]]:
    columns: list[tuple[str, CellWriter]] = [
        ("GPUs per\nreplica", _pair(lambda arm: str(arm.devices))),
        ("\nbatch", _pair(lambda arm: f"{arm.batch:,}")),
        ("tokens/s\nper user", _pair(lambda arm: _expected(arm.tokens_per_s_per_user))),
        ("SBD's\nband", lambda device: _band(device.sbd.tokens_per_s_per_user if device.sbd else None, rate)),
        ("tokens/s\nper GPU", _pair(lambda arm: _expected(arm.tokens_per_s_per_gpu))),
        ("wall\nspeedup", lambda device: ratio(device.wall_speedup.expected) if device.wall_speedup else ABSENT),
        ("\nits band", lambda device: _band(device.wall_speedup, ratio)),
        ("SBD pays\nat batch", lambda device: pays_words(found) if (found := own_break_even(plan, device)) else ABSENT),
        ("USD per\nM tokens", _pair(lambda arm: _expected(arm.usd_per_million_tokens))),
        ("kWh per\nM tokens", _pair(lambda arm: _expected(arm.kwh_per_million_tokens))),
    ]
    if plan.workload.prompt_tokens:
        columns.append(("s to first\ntoken", _pair(lambda arm: _expected(arm.first_token_s))))
    if plan.goal.requests_per_s is not None:
        columns.append(("GPUs\nneeded", _pair(_gpus)))
    return [*columns, ("\nrung", lambda device: str(device.rung))]


def _gpus(arm: ArmPlan) -> str:
    assert arm.gpus is not None and arm.gpus_serial is not None
    return f"{arm.gpus:,}" if arm.gpus == arm.gpus_serial else f"{arm.gpus:,}..{arm.gpus_serial:,}"


def _pair(figure: Callable[[ArmPlan], str]) -> CellWriter:
    """NTP's figure | SBD's; one where both are equal."""

    def cell(device: DevicePlan) -> str:
        both = [figure(arm) if arm and arm.batch is not None else ABSENT for arm in (device.ntp, device.sbd)]
        return both[0] if both[0] == both[1] else " | ".join(both)

    return cell


def _expected(band: Band | None) -> str:
    return ABSENT if band is None else rate(band.expected)


def _band(band: Band | None, write: Callable[[float], str]) -> str:
    return ABSENT if band is None else f"{write(band.low)}..{write(band.high)}"


def _planned(device: DevicePlan) -> bool:
    return any(arm is not None and arm.batch is not None for arm in (device.ntp, device.sbd))


def _unplanned(plan: Plan) -> str:
    """Devices and arms without a plan, by reason."""
    found = []
    for device in plan.devices:
        arms = {arm.method.upper(): arm.reason for arm in (device.ntp, device.sbd) if arm and arm.reason}
        if device.reason:
            found.append((device.hardware, device.reason))
        elif len(arms) == 2 and plan.goal.tokens_per_s_per_user is None:
            found.append((device.hardware, arms["NTP"]))  # SBD needs more memory than NTP, so NTP's reason covers both
        else:
            found += [(f"{device.hardware} ({method})", reason) for method, reason in arms.items()]
    return listed("no plan", found)


def priced(prices: Iterable[tuple[str, Sourced]]) -> str:
    """USD per device and hour with source, date and grade; then the devices without a price."""
    lines, unpriced = [], []
    for name, price in prices:
        if price.value is None:
            unpriced.append((name, price.source))
        else:
            date = f", {price.date}" if price.date else ""
            lines.append(wrapped(f"{name}: {price.value:.2f} ({price.source}{date}; grade {price.grade})", "  ", "    "))
    known = "\n".join(["USD per GPU and hour (`sbd hardware NAME` shows what other sources say)", *lines]) if lines else ""
    return "\n".join(part for part in (known, listed("price not known", unpriced)) if part)


def assumed(notes: Iterable[str]) -> str:
    """The assumptions, a bullet each."""
    return "\n".join(["assumed", *(wrapped(note, "  - ", "    ") for note in notes)])


def listed(title: str, named: Iterable[tuple[str, str | None]]) -> str:
    """A title and names grouped by reason, each reason once."""
    lines = [wrapped(f"{', '.join(names)}: {reason}", "  ", "    ") for reason, names in by_reason(named).items()]
    return "\n".join([title, *lines]) if lines else ""


def _table(heads: list[str], rows: list[list[str]]) -> str:
    return grid(heads, rows, right=heads[1:-1])


BANDS = (
    "tokens_per_s_per_user",
    "decode_tokens_per_s_per_user",
    "tokens_per_s_per_gpu",
    "prefill_s",
    "first_token_s",
    "usd_per_million_tokens",
    "kwh_per_million_tokens",
)
PLAIN = ("tensor_parallel", "devices", "batch", "passes_per_block", "gpus", "gpus_serial", "usd_reason", "kwh_reason")
RANGES = ("pays", "pays_overlapped", "pays_serial")


def to_csv(plan: Plan, break_even: bool) -> str:
    """The arms of every device, or with ``break_even`` its contexts. ``predicted`` names the rung of a line's figures."""
    return csv_text(_break_even_lines(plan) if break_even else _arm_lines(plan))


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
            yield line | {name: " ".join(f"{first}-{last}" for first, last in getattr(found, name, ())) for name in RANGES}


def _of_device(plan: Plan, device: DevicePlan) -> dict[str, Any]:
    price = device.price_usd_per_hour
    return {
        "model": plan.model,
        "hardware": device.hardware,
        "predicted": device.rung,
        "arithmetic": device.arithmetic,
        "price_usd_per_hour": price.value,
        "price_source": price.source,
        "price_date": price.date,
        "power_w": device.power_w.value,
    }
