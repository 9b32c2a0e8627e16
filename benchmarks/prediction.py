"""How far the calibrated prediction of the wall speedup is from the clock: the quickstart's bandwidth-bound part, three
runs, each in a process of its own with a calibration of its own.

    python -m benchmarks.prediction [--runs 3]
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import yaml

from benchmarks.results_file import write_results
from harness.compare import compare
from harness.scenario import find_scenario
from harness.store import read_run

PART, RUNG = "bandwidth_bound", "calibrated"


def one_part(folder: Path) -> Path:
    """The quickstart with its bandwidth-bound part alone."""
    scenario = yaml.safe_load(find_scenario("quickstart").read_text())
    scenario["parts"] = [part for part in scenario["parts"] if part["name"] == PART]
    file = folder / "prediction.yaml"
    file.write_text(yaml.safe_dump(scenario))
    return file


def measure(scenario: Path, folder: Path) -> list[dict[str, float | str]]:
    """One fresh process, nothing cached; returns a row per SBD arm."""
    environment = os.environ | {"XDG_CACHE_HOME": str(folder / "cache")}
    command = [sys.executable, "-m", "harness", "run", str(scenario), "--out", str(folder / "run"), "--no-report"]
    subprocess.run(command, check=True, env=environment)
    rows: list[dict[str, float | str]] = []
    for cell in compare(read_run(folder / "run")).cells:
        for arm in cell.arms:
            for prediction in arm.predictions:
                if arm.is_ntp or prediction.rung != RUNG:
                    continue
                speedup, error = prediction.wall_speedup, prediction.wall_speedup_error
                assert speedup.value and speedup.low and speedup.high and error.value is not None
                rows.append({
                    "arm": arm.label, "nfe_speedup": arm.nfe_speedup.value or 0.0, "predicted": speedup.value,
                    "low": speedup.low, "high": speedup.high, "measured": arm.wall_speedup_totals.value or 0.0,
                    "error_pct": 100 * error.value,
                })  # fmt: skip
    return rows


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=3)
    runs = parser.parse_args().runs
    worst = 0.0
    figures: dict[str, float] = {}
    print("run | arm | NFE speedup | predicted wall speedup (band) | measured | error")
    for run in range(1, runs + 1):
        with tempfile.TemporaryDirectory() as name:
            for row in measure(one_part(Path(name)), Path(name)):
                print(
                    f"{run} | {row['arm']} | {row['nfe_speedup']:.2f}x | {row['predicted']:.2f}x "
                    f"({row['low']:.2f}-{row['high']:.2f}) | {row['measured']:.2f}x | {row['error_pct']:+.1f} %",
                    flush=True,
                )
                worst = max(worst, abs(float(row["error_pct"])))
                figures[f"run{run}_{str(row['arm']).split()[-1]}_error_pct"] = round(float(row["error_pct"]), 2)
    print(f"largest error {worst:.1f} %")
    print(write_results("prediction", {"wall_speedup_error_pct_max": round(worst, 2)} | figures))


if __name__ == "__main__":
    main()
