"""How far ex-ante predictions of the wall speedup are off in published timed runs: one table, beside what the passes measured
during each run make of it. Nothing is measured here.

    python -m benchmarks.prediction_published [RUN ...]

RUN: run directories; without one all of reports/ that hold a timed part. `visits_sd_pct` is how far the time of a pass moves
from one visit of a part to the next (standard deviation, pooled over parts), with `visits_degrees` of freedom: what
harness.roofline.shape_calibration.VISITS_SD takes for machines that a run has not seen yet.
"""

from __future__ import annotations

import math
import statistics
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.prediction import Row, rows
from benchmarks.results_file import write_results
from harness.analysis.answer import compare
from harness.analysis.tally.pass_values import DURING_RUN, EX_ANTE_SHAPE, price_words
from harness.analysis.tally.prices import measured_passes
from harness.record.schema import Run
from harness.record.store import read_on_one_machine

REPORTS = Path(__file__).parents[1] / "reports"
NAMES = {EX_ANTE_SHAPE: "ex_ante", "calibrated": "ex_ante_calibrated", DURING_RUN: "during_run"}
"""How the figures of each price begin."""
SHAPES = {"llama-250m": "bandwidth_bound", "reference-sbd": "reference"}
"""Models whose runs are told together as well."""


def timed_runs(folders: Sequence[Path]) -> Iterator[tuple[str, Run]]:
    """Those of the folders whose run has a part with a clock, by name."""
    for folder in folders:
        run = read_on_one_machine(folder)
        if any(case.timed for case in run.header.cases):
            yield folder.name, run


def summary(found: Sequence[Row], name: str) -> dict[str, float]:
    """Median error, coverage and median width of the intervals, by every price; ``name`` ends each key."""
    result: dict[str, float] = {}
    for price, before in NAMES.items():
        same = [row for row in found if row.price == price]
        if same:
            result[f"{before}_median_abs_error_pct_{name}"] = statistics.median(abs(row.error_pct) for row in same)
            result[f"{before}_interval_coverage_pct_{name}"] = 100 * statistics.mean(row.covered for row in same)
            result[f"{before}_interval_width_pct_{name}"] = statistics.median(row.width_pct for row in same)
    return result


def line(name: str, part: str, found: Sequence[Row]) -> Iterator[str]:
    """What the table says of one part, price by price."""
    for price in NAMES:
        same = [row for row in found if row.price == price]
        if same:
            errors = [row.error_pct for row in same]
            yield (
                f"{name} | {part} | {price_words(price)} | {len(same)} | {statistics.median(map(abs, errors)):.1f} % | "
                f"{min(errors):+.1f} to {max(errors):+.1f} % | {sum(row.covered for row in same)} of {len(same)} | "
                f"{statistics.median(row.width_pct for row in same):.0f} %"
            )


def visits_variances(run: Run, part: str) -> tuple[float, int] | None:
    """Variance between visits of the logarithm of a pass's median time, a mean over its widths, and its degrees of freedom."""
    passes = measured_passes(run, part)
    if isinstance(passes, str):
        return None
    times: dict[int, dict[int, list[float]]] = {}
    for one in passes:
        times.setdefault(one.counts.lines, {}).setdefault(one.visit, []).append(one.forward_s)
    if any(len(visits) < 2 for visits in times.values()):
        return None
    logs = [[math.log(statistics.median(found)) for found in visits.values()] for visits in times.values()]
    return statistics.fmean(statistics.variance(found) for found in logs), min(map(len, logs)) - 1


def main() -> None:
    """Read, print, write."""
    folders = [Path(one) for one in sys.argv[1:]] or sorted(one.parent for one in REPORTS.glob("*/run.json"))
    figures: dict[str, float] = {}
    together: dict[str, list[Row]] = {}
    variances: list[tuple[float, int]] = []
    print("run | part | price | arms | median error | errors | intervals that held | median width")
    for name, run in timed_runs(folders):
        found = rows(compare(run))
        for part in dict.fromkeys(case.part for case in run.header.cases if case.timed):
            own = [row for row in found if row.part == part]
            print(*line(name, part, own), sep="\n")
            figures |= summary(own, f"{name}_{part}")
            model = next(case.shape.name for case in run.header.cases if case.part == part)
            together.setdefault(SHAPES.get(model, model), []).extend(own)
            moved = visits_variances(run, part)
            variances += [moved] if moved else []
    for shape, found in together.items():
        print(*line("all", shape, found), sep="\n")
        figures |= summary(found, shape)
    degrees = sum(one for _, one in variances)
    if degrees:
        figures["visits_sd_pct"] = 100 * math.sqrt(sum(one * count for one, count in variances) / degrees)
        figures["visits_degrees"] = degrees
    print(write_results("prediction_published", {name: round(value, 2) for name, value in figures.items()}))


if __name__ == "__main__":
    main()
