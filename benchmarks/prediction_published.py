"""How far predictions of the wall speedup are off in published timed runs, ex-ante and with the passes measured during each
run, and the intervals that follow. Nothing is measured here.

    python -m benchmarks.prediction_published [RUN ...]

RUN: run directories; without one all of reports/ that hold a timed part. `python -m benchmarks.published NAME` brings back
those that are elsewhere. Without RUN the intervals of the program are fitted to all of them and written to
harness/analysis/figures/prediction_bands.yaml. What is told of intervals here is of each run by those fitted to the others; of
one RUN alone by those of the program.
Each run counts alike in a fit, because the next run is a new one; arms of one run are off together.

`visits_sd_pct` is how far the time of a pass moves from one visit of a part to the next (standard deviation, pooled over
parts), with `visits_degrees` of freedom: what harness.roofline.shape_calibration.VISITS_SD takes for machines that a run has
not seen yet.
"""

from __future__ import annotations

import math
import statistics
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import yaml

from benchmarks.prediction import Row, interval_figures, rows
from benchmarks.results_file import write_results
from harness.analysis.answer import compare
from harness.analysis.figures import predictions
from harness.analysis.tally.pass_values import DURING_RUN, EX_ANTE_SHAPE, price_words
from harness.analysis.tally.prices import measured_passes
from harness.record.schema import Run
from harness.record.store import read_on_one_machine

REPORTS = Path(__file__).parents[1] / "reports"
NAMES = {EX_ANTE_SHAPE: "ex_ante", "calibrated": "ex_ante_calibrated", DURING_RUN: "during_run"}
"""How the figures of each price begin."""
SHAPES = {"llama-250m": "bandwidth_bound", "reference-sbd": "reference"}
"""Models whose runs are told together as well."""
DRAFTED = ("prompt_lookup", "draft_model", "universal_draft", "early_exit", "hierarchical")
"""Methods that check drafts of others; told together as well."""
STATED = 0.8
"""Coverage that the intervals state."""


def timed_runs(folders: Sequence[Path]) -> Iterator[tuple[str, Run]]:
    """Those of the folders whose run has a part with a clock, by name."""
    for folder in folders:
        run = read_on_one_machine(folder)
        if any(case.timed for case in run.header.cases):
            yield folder.name, run


def score(row: Row) -> float | None:
    """|log(predicted / measured)| in multiples of the row's scale; None without an interval."""
    if row.low is None or row.high is None:
        return None
    return abs(math.log(row.predicted / row.measured)) * 2 * predictions.bands().reach[row.price] / math.log(row.high / row.low)


def reach(by_run: Sequence[Sequence[float]]) -> float:
    """The least score that the STATED share of all stays within, each run counting alike. inf where there is no run."""
    told = [scores for scores in by_run if len(scores)]
    if not told:
        return math.inf
    values = np.concatenate(told)
    order, shares = np.argsort(values), np.concatenate([np.full(len(one), 1 / len(one) / len(told)) for one in told])
    place = int(np.searchsorted(np.cumsum(shares[order]), STATED - 1e-9))
    return float(values[order][min(place, len(values) - 1)])


def fitted(found: Mapping[str, Sequence[Row]]) -> dict[str, float]:
    """Reach of every price that has intervals, by all of the runs."""
    prices = dict.fromkeys(row.price for of_run in found.values() for row in of_run if row.low is not None)
    return {price: reach([_scores(of_run, price) for of_run in found.values()]) for price in prices}


def _scores(of_run: Sequence[Row], price: str) -> list[float]:
    return [one for row in of_run if row.price == price and (one := score(row)) is not None]


def held_out(found: Mapping[str, Sequence[Row]]) -> dict[str, list[Row]]:
    """The rows with intervals that their own run has no part in."""
    result = {}
    for name, of_run in found.items():
        others = fitted({other: its for other, its in found.items() if other != name})
        kept = predictions.bands().reach | others
        result[name] = [_within(row, kept.get(row.price, math.inf)) for row in of_run]
    return result


def _within(row: Row, reached: float) -> Row:
    if row.low is None or row.high is None:
        return row
    ratio = (row.high / row.low) ** (reached / 2 / predictions.bands().reach[row.price])
    return replace(row, low=row.predicted / ratio, high=row.predicted * ratio)


def summary(found: Sequence[Row], name: str = "") -> dict[str, float]:
    """Median error, coverage and median width of the intervals, by every price; ``name`` ends each key."""
    result: dict[str, float] = {}
    end = f"_{name}" if name else ""
    for price, before in NAMES.items():
        same = [row for row in found if row.price == price]
        if same:
            result[f"{before}_median_abs_error_pct{end}"] = statistics.median(abs(row.error_pct) for row in same)
        if intervals := interval_figures(same):
            result[f"{before}_interval_coverage_pct{end}"], result[f"{before}_interval_width_pct{end}"] = intervals
    return result


def line(name: str, part: str, found: Sequence[Row]) -> Iterator[str]:
    """What the table says of one part, price by price."""
    for price in NAMES:
        same = [row for row in found if row.price == price]
        if same:
            errors, intervals = [row.error_pct for row in same], interval_figures(same)
            covered = sum(row.covered is True for row in same)
            held = f"{covered} of {len(same)} | {intervals[1]:.0f} %" if intervals else "none | "
            yield (
                f"{name} | {part} | {price_words(price)} | {len(same)} | {statistics.median(map(abs, errors)):.1f} % | "
                f"{min(errors):+.1f} to {max(errors):+.1f} % | {held}"
            )


def groups_of(found: Mapping[str, Sequence[Row]], shapes: Mapping[tuple[str, str], str]) -> dict[str, list[Row]]:
    """The rows told together, by what ends their keys: parts, shapes, drafted ones, and all."""
    groups: dict[str, list[Row]] = {}
    for name, of_run in found.items():
        for row in of_run:
            drafted = ["drafted"] if row.method in DRAFTED else []
            for group in (f"{name}_{row.part}", shapes[name, row.part], *drafted, ""):
                groups.setdefault(group, []).append(row)
    return groups


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


def read(folders: Sequence[Path]) -> tuple[dict[str, list[Row]], dict[tuple[str, str], str], dict[str, float]]:
    """Rows by run, the shape of each of its timed parts, and how visits moved."""
    found, shapes, variances = {}, {}, []
    for name, run in timed_runs(folders):
        found[name] = rows(compare(run))
        for case in run.header.cases:
            shapes[name, case.part] = SHAPES.get(case.shape.name, case.shape.name)
        moved = [visits_variances(run, part) for part in dict.fromkeys(case.part for case in run.header.cases if case.timed)]
        variances += [one for one in moved if one]
    degrees = sum(one for _, one in variances)
    if not degrees:
        return found, shapes, {}
    pooled = 100 * math.sqrt(sum(one * count for one, count in variances) / degrees)
    return found, shapes, {"visits_sd_pct": pooled, "visits_degrees": degrees}


def write_bands(found: Mapping[str, Sequence[Row]], reached: Mapping[str, float]) -> None:
    """The table that travels with the program."""
    told = {name: len({(row.part, row.batch, row.arm) for row in its if row.low is not None}) for name, its in found.items()}
    document = {"version": 1, "runs": sum(map(bool, told.values())), "arms": sum(told.values())}
    where = "harness/analysis/figures/predictions.py explains the entries"
    head = f"# Written by `python -m benchmarks.prediction_published`, not by hand; {where}.\n"
    predictions.FILE.write_text(head + yaml.safe_dump(document | {"reach": dict(reached)}, sort_keys=False))


def main() -> None:
    """Read, print, write."""
    folders = [Path(one) for one in sys.argv[1:]] or sorted(one.parent for one in REPORTS.glob("*/run.json"))
    found, shapes, moved = read(folders)
    reached = {price: round(value, 2) for price, value in fitted(found).items()}
    print("run | part | price | arms | median error | errors | intervals that held | median width")
    figures: dict[str, float] = {}
    for group, its in groups_of(held_out(found), shapes).items():
        print(*line(group or "all", "", its), sep="\n")
        figures |= summary(its, group)
    figures |= {f"{NAMES[price]}_reach": value for price, value in reached.items()}
    figures |= {f"{NAMES[price]}_arms": sum(row.price == price for its in found.values() for row in its) for price in NAMES}
    figures |= moved
    if not sys.argv[1:]:
        write_bands(found, reached)
    print(write_results("prediction_published", {name: round(value, 2) for name, value in figures.items()}))


if __name__ == "__main__":
    main()
