"""How far predictions of the wall speedup are from the clock, cell by cell: block sizes, batches and contexts that the top
rung of the ladder never saw, beside the few that it started from.

    python -m benchmarks.prediction [RUN]

RUN: a run directory of this benchmark measured earlier. `ex_ante_*` are priced from what was known before the first sample of
each part and have no bar. Bars (issue C), with the passes measured during the run: held-out cells of the bandwidth-bound shape,
median error at most 10 % on the shape-calibrated rung and 20 % on the calibrated one, intervals that cover 80 % at a median
width of at most 30 %. What the published runs say is in benchmarks.prediction_published.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from benchmarks.measured_run import measured_run, print_void
from benchmarks.results_file import write_results
from harness.analysis.answer import compare
from harness.analysis.figures.predictions import Prediction
from harness.analysis.results import ArmResult, Cell, Comparison
from harness.analysis.tally.pass_values import DURING_RUN, EX_ANTE_SHAPE, price_words
from harness.analysis.tally.prices import ladder
from harness.record.schema import Run
from harness.roofline.operation import describe_pass
from harness.roofline.pricing import price_pass
from harness.roofline.shape_calibration import MEASURED_CONTEXT

ERRORS = {
    EX_ANTE_SHAPE: "ex_ante_median_abs_error_pct",
    DURING_RUN: "median_abs_error_pct_shape_calibrated",
    "calibrated": "median_abs_error_pct_calibrated",
}
"""The figure of each price that is told."""
INTERVALS = {EX_ANTE_SHAPE: "ex_ante_", DURING_RUN: ""}
BLOCKS, BATCHES, CONTEXTS, NFE_SPEEDUP = [8, 16, 32], [1, 4, 8], (MEASURED_CONTEXT, 384), 3.0


def scenario() -> dict[str, Any]:
    """Replayed acceptance everywhere: what is predicted here is the clock, not the model's answers."""
    arms = [{"method": "ntp"}, {"method": "sbd", "block_size": BLOCKS, "acceptance": {"replay": {"nfe_speedup": NFE_SPEEDUP}}}]
    shared = {
        "device": "cpu",
        "arms": arms,
        "batch_sizes": BATCHES,
        "baseline_check": 0,
        "warmup": 1,
        "health": {"kernel": 0.5, "steal": 0.05},
    }
    random = {"model": {"random": "llama-250m"}, "dtype": "bfloat16"}
    # A batch is one decode, so batches take more prompts to be known as well; they are parts of their own for that.
    parts: list[dict[str, Any]] = [
        shared
        | random
        | {
            "name": f"250m_context_{context}{name}",
            "batch_sizes": sizes,
            "workload": {"synthetic": {"prompt_tokens": context}, "prompts": prompts, "max_new_tokens": 24},
        }
        for context in CONTEXTS
        for name, sizes, prompts in (("", BATCHES[:1], 8), ("_batches", BATCHES[1:], 80))
    ]
    parts.append(
        shared
        | {
            "name": "reference",
            "model": {"reference": "sbd"},
            "dtype": "float32",
            "execution": "auto",
            "workload": {"tasks": ["word_problems"], "prompts": 16, "max_new_tokens": 64},
        }
    )
    return {"version": 1, "name": "prediction", "question": "How well is the clock predicted?", "parts": parts}


@dataclass(frozen=True, slots=True)
class Row:
    """One SBD arm of one cell by one price; errors and noise in percent of the measured speedup. Without interval no ends."""

    part: str
    batch: int
    arm: str
    price: str
    seen: bool
    predicted: float
    low: float | None
    high: float | None
    measured: float
    noise_pct: float | None
    method: str = "sbd"

    @property
    def error_pct(self) -> float:
        """Signed."""
        return 100 * (self.predicted / self.measured - 1)

    @property
    def covered(self) -> bool | None:
        """Whether the interval holds the measured speedup."""
        return None if self.low is None or self.high is None else self.low <= self.measured <= self.high

    @property
    def width_pct(self) -> float | None:
        """Of the interval, in percent of the predicted speedup."""
        return None if self.low is None or self.high is None else 100 * (self.high - self.low) / self.predicted


def interval_figures(found: Sequence[Row]) -> tuple[float, float] | None:
    """Coverage and median width in percent of the rows' intervals; None without one."""
    told = [(row.covered, row.width_pct) for row in found if row.covered is not None and row.width_pct is not None]
    return (100 * statistics.mean(held for held, _ in told), statistics.median(width for _, width in told)) if told else None


def rows(comparison: Comparison) -> list[Row]:
    """Every predicted cell that was measured. Seen: of the batch and context that the measured passes were made at."""
    return [
        _row(cell, arm, prediction)
        for cell in comparison.cells
        if cell.is_summary
        for arm in cell.arms
        for prediction in arm.predictions
        if not arm.is_ntp and prediction.price in ERRORS and arm.wall_speedup.value and prediction.wall_speedup.value
    ]


def _row(cell: Cell, arm: ArmResult, prediction: Prediction) -> Row:
    speedup, wall = prediction.wall_speedup, arm.wall_speedup
    measured = arm.wall_speedup.value
    assert measured and speedup.value
    noise = 50 * (wall.high - wall.low) / measured if wall.low is not None and wall.high is not None else None
    seen = cell.batch_size == 1 and cell.part == f"250m_context_{MEASURED_CONTEXT}"
    known = (cell.part, cell.batch_size, arm.label, prediction.price, seen)
    return Row(*known, speedup.value, speedup.low, speedup.high, measured, noise, arm.method)


def table(found: list[Row]) -> str:
    """All cells with signs."""
    lines = ["part | batch | arm | price | predicted (interval) | measured | noise | error | covered | started from"]
    for row in found:
        noise = "one batch" if row.noise_pct is None else f"±{row.noise_pct:.1f} %"
        band = "no interval" if row.low is None or row.high is None else f"{row.low:.2f}-{row.high:.2f}"
        lines.append(
            f"{row.part} | {row.batch} | {row.arm} | {price_words(row.price)} | {row.predicted:.2f}x ({band}) | "
            f"{row.measured:.2f}x | {noise} | {row.error_pct:+.1f} % | {'yes' if row.covered else 'no'} | "
            f"{'yes' if row.seen else 'no'}"
        )
    return "\n".join(lines)


def figures(found: list[Row]) -> dict[str, float]:
    """Medians over the held-out cells of the bandwidth-bound shape, and beside them those of the others."""
    result: dict[str, float] = {}
    for price, name in ERRORS.items():
        of_price = [row for row in found if row.price == price]
        groups = {
            "": [row for row in of_price if not row.seen and row.part != "reference"],
            "_seen": [row for row in of_price if row.seen],
            "_reference": [row for row in of_price if row.part == "reference"],
        }
        for group, members in groups.items():
            if members:
                result[f"{name}{group}"] = statistics.median(abs(row.error_pct) for row in members)
        held_out = groups[""]
        intervals = interval_figures(held_out)
        if price in INTERVALS and intervals:
            before = INTERVALS[price]
            result[f"{before}interval_coverage_pct"], result[f"{before}interval_width_pct_median"] = intervals
    return {name: round(value, 2) for name, value in result.items()}


def dominating(run: Run) -> list[str]:
    """What the longest term of a pass is, by the calibrated rung, at batch 1."""
    lines = []
    for part in dict.fromkeys(case.part for case in run.header.cases):
        case = next(case for case in run.header.cases if case.part == part)
        ceilings = ladder(run, case).ceilings.get("calibrated")
        if ceilings is not None:
            passes = {q: describe_pass("decide", 1, q, MEASURED_CONTEXT, logits=q) for q in (1, 16)}
            for q, one in passes.items():
                price = price_pass(case.shape, case.known_dtype, one, ceilings)
                most = max(price.operations, key=lambda operation: operation.expected_s)
                lines.append(f"{part}: of a {q}-token pass most is {most.name}")
    return lines


def main() -> None:
    """Measure, print, write."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "prediction.yaml"
        file.write_text(yaml.safe_dump(scenario()))
        run = measured_run(file)
    comparison = compare(run)
    found = rows(comparison)
    print_void(comparison)
    print(table(found), *dominating(run), sep="\n")
    result = figures(found)
    print(*(f"{name}: {value}" for name, value in result.items()), sep="\n")
    print(write_results("prediction", result))


if __name__ == "__main__":
    main()
