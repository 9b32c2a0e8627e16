"""A plan of a service for a terminal: NTP's deployments, SBD's, and the Pareto front; it arranges and rounds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from harness.capacity.goal_wording import answer, not_simulated
from harness.capacity.goals import DeploymentPlan, GoalPlan, ParetoPoint
from harness.cli.capacity_table import ABSENT, assumed, listed, priced
from harness.cli.output import grid, wrapped
from harness.formatting import figure, rate

SHOWN_POINTS = 8  # of the Pareto front, each method
LEGEND = (
    "TP: GPUs per replica; rows: most at once / that fit; TTFT, tokens/s per user: at the goal's percentile; head: how far the "
    "load can grow; ?: not known"
)
COLUMNS: tuple[tuple[str, Callable[[DeploymentPlan], str]], ...] = (
    ("device", lambda one: one.hardware),
    ("GPUs", lambda one: f"{one.gpus:,}"),
    ("TP", lambda one: f"{one.tensor_parallel}"),
    ("rows", lambda one: f"{one.peak_batch:,.0f}/{one.largest_batch:,}"),
    ("used", lambda one: f"{one.occupancy:.0%}"),
    ("TTFT\ns", lambda one: figure(one.ttft_s, 2)),
    ("tok/s\nuser", lambda one: _known(one.tokens_per_s)),
    ("tok/s\nGPU", lambda one: rate(one.tokens_per_s_per_gpu)),
    ("head", lambda one: f"{one.headroom:.0%}"),
    ("USD/\nM tok", lambda one: _known(one.usd_per_million_tokens)),
    ("kWh/\nM tok", lambda one: _known(one.kwh_per_million_tokens)),
)


def render_goals(plan: GoalPlan, ntp: Sequence[DeploymentPlan], sbd: Sequence[DeploymentPlan]) -> str:
    """The answer, a table per method, the Pareto front, devices without a plan, prices with sources, assumptions."""
    parts = [wrapped(answer(plan)), *(_table(title, ranked) for title, ranked in (("NTP", ntp), ("SBD", sbd)) if ranked)]
    if ntp or sbd:
        parts.append(wrapped(LEGEND))
    parts.append(_front(plan.pareto))
    names = {one.hardware for one in (*ntp, *sbd) if one.simulated}
    parts.append(priced((name, price) for name, price in plan.prices.items() if name in names))
    told = ((one.hardware + (f" ({one.method.upper()})" if one.method else ""), one.reason) for one in plan.refused)
    parts += [listed("no plan", told), assumed(plan.notes)]
    return "\n\n".join(part for part in parts if part)


def _table(title: str, ranked: Sequence[DeploymentPlan]) -> str:
    """The simulated ones."""
    rows = [[cell(one) for _, cell in COLUMNS] for one in ranked if one.simulated]
    more = not_simulated(ranked)
    head = f"{title}, predicted, the best first" + (f" (estimates of {more} others: --csv, --json)" if more else "")
    return f"{head}\n" + _grid([name for name, _ in COLUMNS], rows)


def _front(points: Iterable[ParetoPoint]) -> str:
    """Fastest user first; of many points some, evenly, the ends among them."""
    rows = []
    by_method: dict[str, list[ParetoPoint]] = {}
    for point in points:
        by_method.setdefault(point.method, []).append(point)
    for found in by_method.values():
        count = min(SHOWN_POINTS, len(found))
        picked = [found[i * (len(found) - 1) // max(count - 1, 1)] for i in range(count)]
        rows += [
            [
                one.hardware,
                one.method.upper(),
                f"{one.tensor_parallel}",
                f"{one.batch:,}",
                rate(one.tokens_per_s_per_user),
                rate(one.tokens_per_s_per_gpu),
            ]
            for one in picked
        ]
    if not rows:
        return ""
    total = sum(map(len, by_method.values()))
    head = f"Pareto front of steady batches, {len(rows)} of {total} points: nothing is better for the user and per GPU"
    return f"{wrapped(head)}\n" + _grid(["device", "method", "TP", "rows", "tok/s user", "tok/s GPU"], rows)


def _known(value: float | None) -> str:
    return ABSENT if value is None else rate(value)


def _grid(heads: list[str], rows: list[list[str]]) -> str:
    return grid(heads, rows, right=heads[1:])
