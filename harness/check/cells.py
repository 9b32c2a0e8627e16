"""The tables of `sbd check`: the outcome of every planned arm of every cell, and all results as Markdown.

harness.analysis.answer gives speedups, shares and the memory traffic that the device counted; this module derives energy
per token. Knows no device and no file.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import field, replace
from statistics import fmean

from harness.analysis.answer import Derived
from harness.analysis.results import ArmResult, Cell
from harness.analysis.tally.pass_values import DURING_RUN, EX_ANTE_SHAPE, price_words
from harness.check.attention import AttentionTime
from harness.frozen import frozen
from harness.record.schema import CaseHeader, Sample
from harness.scenario.plan import Plan

CELLS_VERSION = 3
TIME_UP = "the time was up"
ENERGY = "energy_j"
ENERGY_WINDOW_S = 5.0
"""Mean of the windows of a counter that moves every 100 ms: each is off by up to 2 %."""


@frozen
class CellRow:
    """One line: an arm of a cell. Seconds, bytes per second, joules; None where absent.

    ``modelled_bytes_per_s`` covers the decode's forwards. ``counted_bytes_per_s`` is the device's memory counter (GPM or DCGM)
    over prefill and decode; ``counted_over_modelled`` divides its bytes by those modelled for that window.
    ``wall_over_passes``: wall speedup ÷ NFE speedup. ``decode_errors``: predicted ÷ measured decode time - 1, by price (PRICES
    of harness.analysis.tally.pass_values). ``missing`` says why energy or counter is None.
    """

    part: str
    batch: int
    arm: str
    state: str
    pass_s: float | None = None
    over_one_token: float | None = None
    wall_speedup: float | None = None
    nfe_speedup: float | None = None
    wall_over_passes: float | None = None
    share_of_ceiling: float | None = None
    energy_j_per_token: float | None = None
    modelled_bytes_per_s: float | None = None
    counted_bytes_per_s: float | None = None
    counted_over_modelled: float | None = None
    decode_errors: dict[str, float] = field(default_factory=dict)
    baseline: str = ""
    missing: tuple[str, ...] = ()


@frozen
class WidthRow:
    """One point of t(q)/t(1): the median pass of one kind in a cell, absolute and over the cell's one-token pass."""

    part: str
    batch: int
    method: str
    role: str
    query_tokens: int
    pass_s: float | None
    over_one_token: float | None


def rows(derived: Derived, why_not_run: str = TIME_UP) -> list[CellRow]:
    """Every planned arm of every cell in order, tasks together: samples measured, outcomes, or why it did not run."""
    held, comparison = derived.run, derived.comparison
    ended = {outcome.case_id: f"{outcome.outcome}: {outcome.reason}" for outcome in held.outcomes}
    taken = Counter(sample.case_id for sample in held.samples if not sample.warmup)
    sound = [sample for sample in derived.tallies.run.samples if not sample.warmup and sample.decode_s is not None]
    without_energy = {  # the reason by part, where its machine had no energy counter
        session["part"]: str(one["reason"])
        for session in held.events("meters")
        for one in session.get("absent", [])
        if ENERGY in one["figures"]
    }
    found = []
    for cases in _by_arm(held.cases):
        case, ids = cases[0], {case.case_id for case in cases}
        cell = comparison.summary(case.part, case.batch_size)
        arm = next((arm for arm in cell.arms if ids & set(arm.case_ids)), None)
        samples = [sample for sample in sound if sample.case_id in ids]
        count = sum(taken[case_id] for case_id in ids)
        void = count - len(samples)
        measured = f"measured, {count} samples" + (f", {void} of them void" if void else "")
        states = (ended.get(of_task.case_id, measured if arm else f"not run: {why_not_run}") for of_task in cases)
        row = CellRow(part=case.part, batch=case.batch_size, arm=case.label, state="; ".join(dict.fromkeys(states)))
        found.append(_measured(row, cell, arm, samples, without_energy.get(case.part)) if arm else row)
    return found


def _by_arm(cases: Sequence[CaseHeader]) -> list[list[CaseHeader]]:
    """The cases of each arm of a part and batch size, which differ only in the task."""
    found: dict[tuple[str, int, str], list[CaseHeader]] = {}
    for case in cases:
        if not case.is_check:
            found.setdefault((case.part, case.batch_size, repr(case.arm)), []).append(case)
    return list(found.values())


def unreached(plan: Plan, why_not_run: str) -> list[CellRow]:
    """The rows where the record was not begun."""
    cases = [case for case in plan.cases if not case.is_check]
    state = f"not run: {why_not_run}"
    return [CellRow(part=case.part.name, batch=case.batch_size, arm=case.label, state=state) for case in cases]


def widths(derived: Derived) -> list[WidthRow]:
    """t(q)/t(1) of every cell, by kind of decode pass."""
    return [
        WidthRow(
            part=cell.part,
            batch=cell.batch_size,
            method=one.method,
            role=one.role,
            query_tokens=one.query_tokens,
            pass_s=one.measured_s.value,
            over_one_token=one.cost.value,
        )
        for cell in derived.comparison.cells
        if cell.is_summary
        for one in cell.pass_widths
    ]


def _measured(row: CellRow, cell: Cell, arm: ArmResult, samples: Sequence[Sample], why_no_energy: str | None) -> CellRow:
    width = 1 if arm.is_ntp else arm.block_size
    one = next((w for w in cell.pass_widths if (w.method, w.role, w.query_tokens) == (arm.method, "decide", width)), None)
    speed = cell.baseline_check.best_speed
    checked = f"{speed.value:.3f} of {cell.baseline_check.best} ({cell.baseline_check.state})" if speed and speed.value else ""
    energy, no_energy = energy_j_per_token(samples, why_no_energy)
    counted = arm.measured_bandwidth_bytes_per_s
    wall, passes = arm.wall_speedup.value, arm.nfe_speedup.value
    no_counter = f"memory counter: {counted.reason}" if counted.reason else None
    return replace(
        row,
        pass_s=one.measured_s.value if one else None,
        over_one_token=one.cost.value if one else None,
        wall_speedup=wall,
        nfe_speedup=passes,
        wall_over_passes=wall / passes if wall and passes else None,
        share_of_ceiling=arm.ceiling_share.value,
        energy_j_per_token=energy,
        modelled_bytes_per_s=arm.modelled_bandwidth_bytes_per_s.value,
        counted_bytes_per_s=counted.value,
        counted_over_modelled=arm.measured_over_modelled.value,
        decode_errors={p.price: p.decode_error.value for p in arm.predictions if p.decode_error.value is not None},
        baseline=checked if arm.is_ntp else "",
        missing=tuple(dict.fromkeys(filter(None, (no_energy, no_counter)))),
    )


def energy_j_per_token(samples: Sequence[Sample], why_none: str | None) -> tuple[float | None, str | None]:
    """Joules per new token, prefill included, where the samples are long enough for the counter on average; or None and why.

    ``why_none``: why the part had no energy meter, from its session.
    """
    metered = [sample for sample in samples if ENERGY in sample.meters]
    if not samples:
        return None, "energy: every sample was void"
    if not metered:
        reasons = [sample.meter_reasons[ENERGY] for sample in samples if ENERGY in sample.meter_reasons]
        return None, f"energy: {next(iter(reasons), why_none or 'the record names no meter for it')}"
    window_s = fmean((sample.prefill_s or 0.0) + (sample.decode_s or 0.0) for sample in metered)
    if window_s < ENERGY_WINDOW_S:
        return None, f"energy: a window took {window_s:.1f} s on average, {ENERGY_WINDOW_S:g} s are needed"
    tokens = sum(row.output_tokens for sample in metered for row in sample.rows)
    return sum(sample.meters[ENERGY] for sample in metered) / tokens, None


MS, US, GB = 1e-3, 1e-6, 1e9
PREDICTED = (EX_ANTE_SHAPE, DURING_RUN, "calibrated")
"""Prices whose error is shown."""


def cells_table(rows: Sequence[CellRow], widths: Sequence[WidthRow]) -> str:
    """Every planned arm, then t(q)/t(1), then the reasons for missing energy or counted bytes."""
    heads = (
        "part",
        "batch",
        "arm",
        "state",
        "pass, ms",
        "over a 1-token pass",
        "wall speedup",
        "fewer passes",
        "wall over passes",
        "of read rate",
        "J/token",
        "modelled, GB/s",
        "counted, GB/s",
        "counted over modelled",
        *(f"error, {price_words(price)}" for price in PREDICTED),
        "NTP over generate()",
    )
    body = [
        (
            row.part,
            str(row.batch),
            row.arm,
            row.state,
            _number(row.pass_s, MS),
            _number(row.over_one_token),
            _number(row.wall_speedup),
            _number(row.nfe_speedup),
            _number(row.wall_over_passes),
            _number(row.share_of_ceiling),
            _number(row.energy_j_per_token),
            _number(row.modelled_bytes_per_s, GB),
            _number(row.counted_bytes_per_s, GB),
            _number(row.counted_over_modelled),
            *(_percent(row.decode_errors.get(price)) for price in PREDICTED),
            row.baseline,
        )
        for row in rows
    ]
    curve = [
        (w.part, str(w.batch), w.method, w.role, str(w.query_tokens), _number(w.pass_s, MS), _number(w.over_one_token))
        for w in widths
    ]
    reasons = dict.fromkeys(reason for row in rows for reason in row.missing)
    return "\n".join(
        [
            "# Cells",
            "",
            _table(heads, body),
            "",
            "Modelled: the decode's forwards. Counted, and its ratio to what is modelled for just that window: prefill and "
            "decode. J/token counts the prefill too. Error: of the predicted decode time, above 0 too long.",
            *(f"- {r}" for r in reasons),
            "",
            "# t(q)/t(1)",
            "",
            _table(("part", "batch", "method", "role", "q", "pass, ms", "over a 1-token pass"), curve),
            "",
        ]
    )


def attention_table(times: Sequence[AttentionTime]) -> str:
    """One line per way of attending at one place."""
    heads = ("batch", "context", "queries", "way", "µs", "over the mask", "largest difference to the mask", "reason")
    body = [
        (
            str(one.batch),
            str(one.context),
            str(one.queries),
            one.way,
            _number(one.seconds, US),
            _number(one.over_mask),
            "-" if one.difference is None else f"{one.difference:.1e}",
            one.reason or "",
        )
        for one in times
    ]
    notes = "No mask at 2k queries is two calls, one for the committed half. On a CPU flex_attention is not compiled."
    return f"# Ways of attending\n\n{_table(heads, body)}\n\n{notes}\n"


def _table(heads: Sequence[str], body: Iterable[Sequence[str]]) -> str:
    return "\n".join(["| " + " | ".join(heads) + " |", "|---" * len(heads) + "|", *("| " + " | ".join(b) + " |" for b in body)])


def _number(value: float | None, unit: float = 1.0) -> str:
    return "-" if value is None else f"{value / unit:.3f}"


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:+.1f} %"
