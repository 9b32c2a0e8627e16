"""A capacity plan for a terminal: it arranges and rounds. An absent value is ?, with its reason below."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from harness.capacity.columns import shown
from harness.capacity.results import ABSENT, METHODS, Band, BreakEven, CapacityPlan, DevicePlan, ParetoPoint
from harness.capacity.wording import answer, pays_words
from harness.cli.output import by_reason, grid, wrapped
from harness.formatting import rate, ratio

LEGEND = """\
every figure is predicted, on the rung of its line; a..b: nothing overlapped .. memory and arithmetic fully overlapped
batch: rows of one replica; a | b: NTP | SBD; "1..47 of 100": SBD pays at batches 1 to 47, 100 of its rows fit; ?: not known"""
SERVICE_LEGEND = (
    "TP: GPUs per replica; at once: most rows that decode; TTFT, tok/s user: at the goal's percentile; head: how far the load "
    "can grow; ?: not known"
)
SHOWN_POINTS = 8  # of the Pareto front, each method


def render(plan: CapacityPlan) -> str:
    """The answer, the deployments, the devices without one, prices with sources, assumptions."""
    service = plan.question.service is not None
    rows = [row for method in METHODS for row in plan.deployments(method)]
    listed_devices = {row.hardware for row in rows if row.simulated or not service}
    prices = _priced(device for device in plan.devices if device.hardware in listed_devices)
    tables = _service_tables(plan) if service else _full_table(plan)
    return _parts(
        wrapped(answer(plan)), *(tables if rows else ()), _front(plan.pareto), _unplanned(plan), prices, _assumed(plan)
    )


def _parts(*parts: str) -> str:
    return "\n\n".join(part for part in parts if part)


def render_break_even(plan: CapacityPlan) -> str:
    """Two tables of devices by contexts: the batches that pay, and the tokens per pass where that ends."""
    planned = [device for device in plan.devices if device.deployments]
    contexts = [f"{entry.context_tokens:,}" for entry in planned[0].break_even] if planned else []
    k = plan.question.acceptance.block_size
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
                lambda entry: _end_in_tokens(entry, k),
            ),
        )
    ]
    small = [
        (f"{device.hardware} at {entry.context_tokens:,}", entry.reason)
        for device in planned
        for entry in device.break_even
        if entry.reason
    ]
    shown_tables = tables if planned else ()
    return _parts(wrapped(answer(plan)), *shown_tables, _listed("does not fit", small), _unplanned(plan), _assumed(plan))


def _end_in_tokens(entry: BreakEven, block_size: int) -> str:
    """The end of the first paying range at both ends of the band; > where it exceeds all batches searched."""
    if entry.searched_batch is None:
        return "does not fit"
    ends = sorted(ranges[0][1] if ranges else 0 for ranges in (entry.pays_serial, entry.pays_overlapped))
    words = [f"> {end * block_size:,}" if end == entry.searched_batch else f"{end * block_size:,}" for end in ends]
    return words[0] if words[0] == words[1] else "..".join(words)


def _full_table(plan: CapacityPlan) -> Iterator[str]:
    """A line per device with NTP beside SBD."""
    context = plan.question.workload.context_tokens
    columns: list[tuple[str, Callable[[DevicePlan], str]]] = [
        ("SBD's\nband", lambda device: _band(device.sbd.tokens_per_s_per_user if device.sbd else None, rate)),
        ("wall\nspeedup", lambda device: ratio(device.wall_speedup.expected) if device.wall_speedup else ABSENT),
        ("its\nband", lambda device: _band(device.wall_speedup, ratio)),
        (
            "SBD pays\nat batch",
            lambda device: pays_words(next((at for at in device.break_even if at.context_tokens == context), None)),
        ),
        ("rung", lambda device: str(device.rung)),
    ]
    figures = shown(plan)
    rows = [
        [device.hardware, *(_pair(device, name) for name in figures), *(cell(device) for _, cell in columns)]
        for device in plan.devices
        if device.deployments
    ]
    yield _table(["device", *figures.values(), *(head for head, _ in columns)], rows) + f"\n{LEGEND}"


def _pair(device: DevicePlan, name: str) -> str:
    """NTP's figure | SBD's; one where both are equal."""
    both = [ABSENT if row is None or row.reason else row.cell(name) for row in (device.ntp, device.sbd)]
    return both[0] if both[0] == both[1] else " | ".join(both)


def _band(band: Band | None, write: Callable[[float], str]) -> str:
    return ABSENT if band is None else f"{write(band.low)}..{write(band.high)}"


def _service_tables(plan: CapacityPlan) -> Iterator[str]:
    """Of each method the simulated deployments."""
    columns = shown(plan)
    for method in METHODS:
        ranked = plan.deployments(method)
        rows = [[row.hardware, *map(row.cell, columns)] for row in ranked if row.simulated]
        more = len(ranked) - len(rows)
        head = f"{method.upper()}, predicted, the best first" + (
            f" (estimates of {more} others: --csv, --json)" if more else ""
        )
        if ranked:
            yield f"{head}\n" + _table(["device", *columns.values()], rows)
    yield wrapped(SERVICE_LEGEND)


def _front(points: Sequence[ParetoPoint]) -> str:
    """Fastest user first; of many points some, evenly, the ends among them."""
    rows = []
    for method in METHODS:
        own = [point for point in points if point.method == method]
        count = min(SHOWN_POINTS, len(own))
        for number in range(count):
            point = own[number * (len(own) - 1) // max(count - 1, 1)]
            speeds = rate(point.tokens_per_s_per_user), rate(point.tokens_per_s_per_gpu)
            rows.append([point.hardware, method.upper(), f"{point.tensor_parallel}", f"{point.batch:,}", *speeds])
    if not rows:
        return ""
    head = f"Pareto front of steady batches, {len(rows)} of {len(points)} points: nothing is better for the user and per GPU"
    return f"{wrapped(head)}\n" + _table(["device", "method", "TP", "rows", "tok/s user", "tok/s GPU"], rows)


def _unplanned(plan: CapacityPlan) -> str:
    """Devices and methods without a deployment, by reason."""
    question, refused = plan.question, plan.refused
    if question.service is None and question.goal.tokens_per_s_per_user is None:
        # SBD needs more memory than NTP, so NTP's reason covers both.
        both = {refusal.hardware for refusal in refused if refusal.method == "ntp"}
        refused = [refusal for refusal in refused if refusal.method != "sbd" or refusal.hardware not in both]
    names = [f"{refusal.hardware} ({refusal.method.upper()})" if refusal.method else refusal.hardware for refusal in refused]
    return _listed("no plan", zip(names, (refusal.reason for refusal in refused), strict=True))


def _priced(devices: Iterable[DevicePlan]) -> str:
    """USD per device and hour with source, date and grade; then the devices without a price."""
    lines, unpriced = [], []
    for device in devices:
        name, price = device.hardware, device.price_usd_per_hour
        if price.value is None:
            unpriced.append((name, price.source))
        else:
            date = f", {price.date}" if price.date else ""
            lines.append(wrapped(f"{name}: {price.value:.2f} ({price.source}{date}; grade {price.grade})", "  ", "    "))
    known = "\n".join(["USD per GPU and hour (`sbd hardware NAME` shows what other sources say)", *lines]) if lines else ""
    return "\n".join(part for part in (known, _listed("price not known", unpriced)) if part)


def _assumed(plan: CapacityPlan) -> str:
    """The assumptions, a bullet each."""
    return "\n".join(["assumed", *(wrapped(note, "  - ", "    ") for note in plan.notes)])


def _listed(title: str, named: Iterable[tuple[str, str | None]]) -> str:
    """A title and names grouped by reason, each reason once."""
    lines = [wrapped(f"{', '.join(names)}: {reason}", "  ", "    ") for reason, names in by_reason(named).items()]
    return "\n".join([title, *lines]) if lines else ""


def _table(heads: list[str], rows: list[list[str]]) -> str:
    return grid(heads, rows, right=heads[1:])
