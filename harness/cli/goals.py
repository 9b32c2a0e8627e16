"""`sbd capacity --users ... --ttft ...`: the goal of a service from arguments, and its plan as a table, JSON or CSV.

The CSV has a line per deployment and then one per point of the Pareto front; the column ``line`` says which.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Literal

import typer

from harness.capacity.goals import PERCENTILE, DeploymentPlan, GoalPlan, ServiceGoal, Trace
from harness.cli.goals_table import render_goals
from harness.cli.output import csv_text, json_text, show
from harness.errors import EXIT_INCONCLUSIVE, UserError
from harness.workloads.arrivals import read_trace

Sort = Literal["cost", "speed", "name"]


def refuse(given: Mapping[str, object], service: str) -> None:
    """Refuse options that say nothing about a service.

    Raises:
        UserError: one of them was given.
    """
    for name, value in given.items():
        if value is not None:
            raise UserError(f"{name} and {service} were given; it says nothing about a service here, so leave out {name}")


def goal_of(
    *,
    users: int | None,
    requests_per_s: float | None,
    trace: Path | None,
    ttft_s: float | None,
    think_s: float | None,
    percentile: float | None,
    tokens_per_s: float | None,
    prompt_tokens: int | None,
    output_tokens: int | None,
) -> ServiceGoal:
    """The goal as given.

    Raises:
        UserError: it lacks its load, its time to first token or its lengths, or has two of one.
    """
    if ttft_s is None:
        raise UserError("no time to first token was given, so users could wait without limit; give --ttft 1 (seconds)")
    if trace is not None and (prompt_tokens is not None or output_tokens is not None):
        raise UserError("a trace has its own lengths; leave out --prompt-tokens and --output-tokens")
    return ServiceGoal(
        users=users,
        requests_per_s=requests_per_s,
        trace=None if trace is None else _trace(trace),
        think_s=think_s or 0.0,
        prompt_tokens=prompt_tokens or 0,
        output_tokens=output_tokens or 0,
        tokens_per_s=tokens_per_s,
        ttft_s=ttft_s,
        percentile=PERCENTILE if percentile is None else percentile,
    )


def _trace(file: Path) -> Trace:
    requests = read_trace(file)
    return Trace(
        at_s=tuple(one.after_s for one in requests),
        prompt_tokens=tuple(one.prompt_tokens for one in requests),
        output_tokens=tuple(one.output_tokens for one in requests),
    )


KEYS: dict[Sort, Callable[[DeploymentPlan], Any]] = {
    "cost": lambda one: 0,  # the plan's own order
    "speed": lambda one: -(one.tokens_per_s or 0.0),
    "name": lambda one: one.hardware,
}


def show_goals(plan: GoalPlan, sort: Sort, as_json: bool, as_csv: bool) -> None:
    """Print the plan; exit code 3 where no deployment keeps the goal."""
    ntp, sbd = (tuple(sorted(ranked, key=lambda one: (not one.simulated, KEYS[sort](one)))) for ranked in (plan.ntp, plan.sbd))
    if as_json:
        print(json_text(replace(plan, ntp=ntp, sbd=sbd).to_dict()))
    elif as_csv:
        print(to_csv(replace(plan, ntp=ntp, sbd=sbd)), end="")
    else:
        show(render_goals(plan, ntp, sbd))
    if not ntp and not sbd:
        raise typer.Exit(EXIT_INCONCLUSIVE)


def to_csv(plan: GoalPlan) -> str:
    """Deployments, then the Pareto front; every line has the version of the format."""
    return csv_text(_lines(plan))


def _lines(plan: GoalPlan) -> Iterator[dict[str, Any]]:
    for kind, found in (("deployment", (*plan.ntp, *plan.sbd)), ("pareto", plan.pareto)):
        for one in found:
            yield {"version": plan.version, "line": kind, "model": plan.model, **asdict(one)}
