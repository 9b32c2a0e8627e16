"""Figures of the counts: how often a verdict is wrong, how often an interval covers the truth, how often one is decided."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from benchmarks.verdict_errors.drawn import Task
from benchmarks.verdict_errors.laboratory import UNMET
from benchmarks.verdict_errors.records import POWER

OFTEN = 10.0
"""Percent of runs: an interval that is given more rarely has no coverage of its own; it counts among the false verdicts."""
DOUBTFUL_MET, DOUBTFUL_COVERAGE = 3.3, 93.0
"""Percent: a cell beyond one of them is judged by ten times as many fresh runs."""
STATES = ("runs", "met", "missed", "inconclusive", "void", "intervals", "covered")
"""What is counted of a cell."""
UNADJUSTED = "unadjusted"
"""At least one of eight claims, each at its own level: printed, and no goal."""
NEW_UNMET: dict[tuple[str, str], str] = {}
"""By task and name of a cell that cannot be met: why."""
Counts = Mapping[Task, Counter[str]]
Cell = tuple[Task, str, dict[str, float]]
"""With the percents of runs that were met, missed, void and had an interval, and of these intervals that covered the truth; and
how many runs were decided."""


def rates(all_counts: Counts) -> Iterator[Cell]:
    """Every cell."""
    for task, counts in all_counts.items():
        for name in sorted({key.removesuffix("_runs") for key in counts if key.endswith("_runs")}):
            of_runs = ("met", "missed", "void", "intervals")
            rate = {state: 100 * counts[f"{name}_{state}"] / counts[f"{name}_runs"] for state in of_runs}
            rate["covered"] = 100 * counts[f"{name}_covered"] / max(1, counts[f"{name}_intervals"])
            yield task, name, rate | {"decided": counts[f"{name}_met"] + counts[f"{name}_missed"]}


def doubtful(all_counts: Counts) -> dict[Task, list[str]]:
    """The cells of each task that are judged again."""
    found: dict[Task, list[str]] = {}
    for task, name, rate in rates(all_counts):
        low = rate["intervals"] >= OFTEN and rate["covered"] < DOUBTFUL_COVERAGE
        if _is_at_the_truth(name) and (rate["met"] > DOUBTFUL_MET or low) and (task.name, name) not in NEW_UNMET:
            found.setdefault(task, []).append(name)
    return found


def judged_again(counts: Counter[str], again: Counter[str], names: list[str]) -> Counter[str]:
    """The counts, those of these cells of the fresh runs alone."""
    return Counter({**counts, **{key: again[key] for name in names for key in (f"{name}_{state}" for state in STATES)}})


def _is_at_the_truth(name: str) -> bool:
    return not name.endswith(POWER) and name != UNADJUSTED


def of_records(all_counts: Counts) -> dict[str, float]:
    """The figures ``new_*``; the rate of each unmet cell under a key of its own."""
    cells = list(rates(all_counts))
    wrong = [cell for cell in cells if _is_at_the_truth(cell[1])]
    unmet = [(task, name, rate) for task, name, rate in wrong if (task.name, name) in NEW_UNMET]
    met = [cell[2] for cell in wrong if cell not in unmet]
    found: dict[str, float] = {
        "new_false_confirmed_pct_mean": float(np.mean([rate["met"] for *_, rate in wrong])),
        "new_false_confirmed_pct_max_met_cells": max(rate["met"] for rate in met),
        "new_coverage_pct_min_met_cells": min(rate["covered"] for rate in met if rate["intervals"] >= OFTEN),
        "new_power_pct_min": min(rate["met"] for _, name, rate in cells if name.endswith(POWER)),
        "new_unmet_cells": len(unmet),
    }
    found |= {f"new_unmet_pct.{task.name}.{name}": rate["met"] for task, name, rate in unmet}
    return {name: round(value, 2) for name, value in found.items()}


def of_laboratory(all_counts: Counts) -> dict[str, float]:
    """The figures of the first shapes."""
    cells = list(rates(all_counts))
    accuracy, power, few = ([rate for task, _, rate in cells if task.kind == kind] for kind in ("accuracy", "power", "few"))
    errors = [(task, name.rpartition("_")[0], rate) for task, name, rate in cells if task.kind == "errors"]
    met = [rate for task, name, rate in errors if (task.shape, task.prompts, task.processes, name) not in UNMET]
    plain = [rate for task, name, rate in errors if task.shape == "gaussian" and name in ("speedup", "totals")]
    found: dict[str, Any] = {
        "false_confirmed_pct_mean": np.mean([rate["met"] for *_, rate in errors]),
        "false_confirmed_pct_max": max(rate["met"] for rate in met),
        "false_refuted_pct_mean": np.mean([rate["missed"] for *_, rate in errors]),
        "false_refuted_pct_max": max(rate["missed"] for rate in met),
        "false_confirmed_pct_mean_met_cells": np.mean([rate["met"] for rate in met]),
        "accuracy_false_confirmed_pct_mean": np.mean([rate["met"] for rate in accuracy]),
        "accuracy_false_confirmed_pct_max": max(rate["met"] for rate in accuracy),
        "coverage_pct_min": min(rate["covered"] for rate in met if rate["intervals"] >= OFTEN),
        "unmet_cells": len(UNMET),
        "confirmed_when_true_pct_min": min(rate["met"] for rate in power),
        "unmarked_pct": min(rate["intervals"] for rate in plain),
        "verdicts_below_three_processes": sum(rate["decided"] for rate in few),
    }
    return {name: round(float(value), 2) for name, value in found.items()}
