"""How long the report of a large run takes, and how large it is: 10,000 samples over 200 cases, made up.

Five parts of eight arms and five tasks each, 128 decode tokens a sample, calibrated, so that every pass is priced on every
rung and every part is drawn. The whole of `sbd report` counts: reading the record, deriving, rendering, writing.

    python -m benchmarks.report_size
"""

from __future__ import annotations

import cProfile
import os
import pstats
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

os.environ.update(dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1"))

from benchmarks.results_file import write_results
from harness.analysis.answer import compare
from harness.record.schema import Run
from harness.record.store import RunStore, read_run
from harness.reporting import write_report
from harness.reporting.page import render
from tests.helpers import synthetic_run as synthetic

PARTS, ARMS, PROMPTS, REPEATS, BLOCKS = 5, 8, 10, 5, 8
TASKS = ("word_problems", "record_to_json", "short_trace", "code", "summary")
ROUNDS = 3
T = TypeVar("T")


def large_run() -> Run:
    """The run, in memory."""
    sbd = [
        synthetic.Arm(label=f"SBD k=16 γ={gamma:g}", gamma=gamma, passes_per_block=passes, wrong=frozenset({3, number}))
        for number, (gamma, passes) in enumerate(((0.0, 16), (0.003, 8), (0.01, 8), (0.1, 4), (0.2, 4), (0.35, 2), (0.6, 2)))
    ]
    parts = [
        synthetic.Part(
            name=f"part_{number}",
            arms=(synthetic.NTP, *sbd[: ARMS - 1]),
            tasks=TASKS,
            prompts=PROMPTS,
            repeats=REPEATS,
            blocks=BLOCKS,
            jitter=0.01 * (number + 1),
        )
        for number in range(PARTS)
    ]
    return synthetic.build(*parts, calibration=synthetic.calibration())


def timed(what: Callable[[], T]) -> tuple[T, float]:
    """The result and the seconds it took."""
    start = time.perf_counter()
    found = what()
    return found, time.perf_counter() - start


def main() -> None:
    """Measure, print, write; with --profile only say where the time goes."""
    run = large_run()
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder) / "run"
        with RunStore(directory) as store:
            store.create(run.header)
            for sample in run.samples:
                store.append(sample)
        if "--profile" in sys.argv:
            profile = cProfile.Profile()
            profile.runcall(write_report, directory)
            pstats.Stats(profile).sort_stats("cumtime").print_stats(60)
            return
        rounds = []
        for _ in range(ROUNDS):
            page, seconds = timed(lambda: write_report(directory))
            rounds.append(seconds)
        megabytes = page.stat().st_size / 1e6
        read, reading = timed(lambda: read_run(directory))
        comparison, deriving = timed(lambda: compare(read))
        _, rendering = timed(lambda: render(read, comparison))
    kept = sum(not sample.warmup for sample in run.samples)
    figures = {
        "seconds": round(min(rounds), 2),
        "megabytes": round(megabytes, 2),
        "samples": kept,
        "cases": len(run.header.cases),
        "seconds_reading": round(reading, 2),
        "seconds_deriving": round(deriving, 2),
        "seconds_rendering": round(rendering, 2),
    }
    print(", ".join(f"{name} {value}" for name, value in figures.items()))
    print(write_results("report_size", figures))


if __name__ == "__main__":
    main()
