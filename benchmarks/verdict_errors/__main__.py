"""Simulate what is missing, judge doubtful cells again by fresh runs, print every cell, write."""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from multiprocessing import Pool
from pathlib import Path
from statistics import fmean

import numpy as np

from benchmarks.results_file import write_results
from benchmarks.sources import sources_of
from benchmarks.verdict_errors import counted
from benchmarks.verdict_errors.cells import RUN_ONE, every_cell
from benchmarks.verdict_errors.drawn import Task

RUNS, NEW_RUNS, PIECE, AGAIN = 2_000, 1_000, 100, 10
"""Runs of a cell of the laboratory and of records; of a piece; and how many times as many judge a doubtful cell."""
FRESH = 1_000
"""The number of the first piece of a doubtful cell's fresh runs."""
TOLD_EVERY_S = 20.0
Job = tuple[Task, int, int, Path]
"""A task, the number of the piece, its runs, the file of its counts."""


def program() -> str:
    """A digest of what simulates and judges, so that no figure mixes the pieces of two programs."""
    return hashlib.sha256(repr(sources_of("benchmarks.verdict_errors.cells")).encode()).hexdigest()[:12]


def piece(job: Job) -> float | None:
    """So many runs of a task, kept in a file, and their seconds; one that is there is not done again."""
    task, number, runs, file = job
    if file.exists():
        return None
    begun_s, seed = time.monotonic(), [ord(letter) for letter in task.name]
    random, counts = np.random.default_rng([number, *seed]), Counter[str]()
    for _ in range(runs):
        RUN_ONE[task.kind](task, random, counts)
    part = file.with_suffix(".part")
    part.write_text(json.dumps({name: int(times) for name, times in counts.items()}))
    part.rename(file)
    return time.monotonic() - begun_s


def counted_runs(runs: Mapping[Task, int], folder: Path, workers: int, first: int = 0) -> dict[Task, Counter[str]]:
    """The counts of so many runs of each task, in pieces numbered from ``first`` on."""
    pieces = [
        (first + start // PIECE, task, min(PIECE, number - start))
        for start in range(0, max(runs.values(), default=0), PIECE)
        for task, number in runs.items()
        if start < number
    ]
    jobs = [(task, i, size, folder / f"{task.name}-{i}-{size}.json") for i, task, size in pieces]
    with Pool(workers) as pool:
        _watched(pool.imap_unordered(piece, jobs), len(jobs), workers)
    found = {task: Counter[str]() for task in runs}
    for task, _, _, file in jobs:
        found[task].update(json.loads(file.read_text()))
    return found


def _watched(done: Iterable[float | None], pieces: int, workers: int) -> None:
    """Say how many pieces are done and how long the others take, by the mean of those that were not there before."""
    took_s, told_s = list[float](), 0.0
    for number, seconds in enumerate(done, 1):
        took_s += [] if seconds is None else [seconds]
        if took_s and (time.monotonic() > told_s + TOLD_EVERY_S or number == pieces):
            told_s = time.monotonic()
            left_min = (pieces - number) * fmean(took_s) / workers / 60
            print(f"{number} of {pieces} pieces, about {left_min:.0f} min left", file=sys.stderr, flush=True)


def main(arguments: Sequence[str] | None = None) -> None:
    """As the command says."""
    parser = argparse.ArgumentParser(description="How often a verdict is wrong where the truth is known.")
    parser.add_argument("--runs", type=int, help=f"of each cell (default: {RUNS} of the laboratory, {NEW_RUNS} of records)")
    parser.add_argument(
        "--only", metavar="SHAPE", help="tasks whose name begins so, such as loads or named-5; nothing is written"
    )
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--partial", type=Path, default=Path(tempfile.gettempdir()) / "sbd-verdict-errors")
    parser.add_argument("--print-only", action="store_true", help="do not write benchmarks/results")
    given = parser.parse_args(arguments)
    folder = given.partial / program()
    folder.mkdir(parents=True, exist_ok=True)
    cells = {task: new for task, new in every_cell().items() if task.name.startswith(given.only or "")}
    runs = {task: given.runs or (NEW_RUNS if new else RUNS) for task, new in cells.items()}
    counts = counted_runs(runs, folder, given.workers)
    again = counted.doubtful({task: counts[task] for task, new in cells.items() if new})
    print(
        f"judged by fresh runs: {', '.join(f'{task.name} {name}' for task, names in again.items() for name in names) or 'none'}"
    )
    fresh = counted_runs({task: AGAIN * runs[task] for task in again}, folder, given.workers, FRESH)
    counts |= {task: counted.judged_again(counts[task], fresh[task], names) for task, names in again.items()}
    for task, name, rate in counted.rates(counts):
        print(f"{task.name} | {name} | " + " | ".join(f"{state} {pct:.2f}" for state, pct in rate.items()))
    if given.only:
        return
    old, new = ({task: counts[task] for task, of_records in cells.items() if of_records is wanted} for wanted in (False, True))
    figures = counted.of_laboratory(old) | counted.of_records(new)
    print(json.dumps(figures, indent=1) if given.print_only else write_results("verdict_errors", figures))


if __name__ == "__main__":
    main()
