"""How long a trend over 10,000 records takes, how often a planted step or drift is found, and how often one is found in noise.

    python -m benchmarks.history_trend

Bars: at most 2 s, through the command, interpreter and imports included; a step of 3 % at 1 % noise after 40 of 80 commits
found within ± 3 commits in at least 95 % of histories, no change in flat ones in at least 95 % (issue D). Flat series of 200
commits whose noise is correlated with that of the commit before: no change in at least 95 % at 0.3 and 90 % at 0.5; a step of
3 % after 100 of 200 found in at least 90 %; at most 0.2 false alarms per series and year at 0.3 (issue H).

A year is 250 commits, one a working day. The trend of the newest 200 is looked at after each. A false alarm is a look at which
a change is told that no earlier look told within ± 5 commits; what the look before the year told is not counted.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

os.environ.update(dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1"))
import numpy as np
from numpy.typing import NDArray

from benchmarks.results_file import write_results
from harness.regression.history.store import History, HistoryRecord, TrackedFigure
from harness.regression.history.trend import LAST
from harness.stats.change_points import ALPHA, MIN_SEGMENT, LevelChange, changes_at, common_level, examine
from tests.helpers.synthetic_history import figure, record

MACHINES, SCENARIOS, COMMITS, STEP = 4, 5, 500, 400
CELLS = ("reference/word_problems/b1", "bandwidth_bound/synthetic/b1")
SBD_ARMS = ("SBD k=16 γ=0.1", "SBD k=16 γ=0.35")
OF_ALL = ("time_per_token_s", "tokens_per_s", "decode_error.calibrated")
OF_SBD = ("wall_speedup", "nfe_speedup", "accuracy", "accuracy_difference", "wall_speedup_error.calibrated")
HISTORIES = 2000
WITHIN = 3
PAGE, PAGES = 38, 200
YEAR, YEARS = 250, 1000
DELAYS = 300
REPEATS = 5


def records(random: np.random.Generator) -> Iterator[HistoryRecord]:
    """10,000 runs of 38 figures at 1 % noise, night by night; in every second scenario all of them grow by 3 % at a commit."""
    for number in range(COMMITS):
        for place in range(MACHINES * SCENARIOS):
            machine, scenario = divmod(place, SCENARIOS)
            level = 1.03 if scenario % 2 and number >= STEP else 1.0
            one = record(number, *_figures(random, level), fingerprint=f"{machine:012x}", scenario_digest=f"{scenario:064x}")
            yield replace(one, run_id=f"{place:04x}{number:028x}")


def _figures(random: np.random.Generator, level: float) -> Iterator[TrackedFigure]:
    for cell in CELLS:
        for arm in ("NTP", *SBD_ARMS):
            for metric in OF_ALL if arm == "NTP" else OF_ALL + OF_SBD:
                yield figure(level * float(np.exp(random.normal(0, 0.01))), metric, arm, cell)


def seconds_of_trend(database: Path, last: int) -> tuple[list[float], float]:
    """Wall seconds of `sbd history trend` as a process of its own, one per repeat, and its mean processor seconds."""
    command = [sys.executable, "-m", "harness", "history", "trend", "--last", str(last), "--db", str(database)]
    taken, before = [], resource.getrusage(resource.RUSAGE_CHILDREN)
    for _ in range(REPEATS):
        start = time.perf_counter()
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        taken.append(time.perf_counter() - start)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(*done.stdout.splitlines()[-3:], sep="\n")
    return sorted(taken), (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) / REPEATS


def correlated(random: np.random.Generator, commits: int, correlation: float) -> NDArray[np.float64]:
    """Deviations of 1 % whose correlation with the commit before is ``correlation``, stationary from the first on."""
    noise = random.normal(0, 0.01, commits)
    for i in range(1, commits):
        noise[i] = correlation * noise[i - 1] + np.sqrt(1 - correlation**2) * noise[i]
    return noise


def found_pct(random: np.random.Generator, size: float, commits: int = 80, correlation: float = 0.0) -> float:
    """Share of histories that are given the one step that was planted halfway, within ± 3 commits."""
    level = np.where(np.arange(commits) < commits // 2, 0.0, np.log1p(size))
    found = 0
    for _ in range(HISTORIES):
        changes = _changes(level + correlated(random, commits, correlation))
        found += [change.kind for change in changes] == ["step"] and abs(changes[0].index - commits // 2) <= WITHIN
    return 100 * found / HISTORIES


def flat_pct(random: np.random.Generator, commits: int = 80, correlation: float = 0.0) -> float:
    """Share of flat histories that are given no change; ``correlation`` of a commit's noise with the one before."""
    return 100 * sum(not _changes(correlated(random, commits, correlation)) for _ in range(HISTORIES)) / HISTORIES


def flat_page_pct(random: np.random.Generator, correlation: float) -> float:
    """Share of pages of ``PAGE`` flat series, looked at together, without any change."""
    unchanged = 0
    for _ in range(PAGES):
        page = [examine(_figures_of(correlated(random, LAST, correlation)), "ratio") for _ in range(PAGE)]
        level = common_level(page)
        unchanged += not any(changes_at(one, level) for one in page)
    return 100 * unchanged / PAGES


def drift_pct(random: np.random.Generator, size: float, correlation: float = 0.0) -> float:
    """Share of histories of 200 commits that are told as one drift, the level moving by ``size`` from the first to the last."""
    line = np.log1p(size) * np.arange(LAST) / (LAST - 1)
    told = 0
    for _ in range(HISTORIES):
        changes = _changes(line + correlated(random, LAST, correlation))
        told += [change.kind for change in changes] == ["drift"]
    return 100 * told / HISTORIES


def false_alarms_a_year(random: np.random.Generator, correlation: float, years: int) -> float:
    """Mean over ``years`` flat series that are looked at after every commit; see the head of this file."""
    alarms = 0
    for _ in range(years):
        noise, told = correlated(random, LAST + YEAR, correlation), set[int]()
        for end in range(LAST, LAST + YEAR + 1):
            now = {end - LAST + change.index for change in _changes(noise[end - LAST : end])}
            is_new = any(all(abs(place - known) > MIN_SEGMENT for known in told) for place in now)
            alarms += is_new and end > LAST
            told |= now
    return alarms / years


def commits_until_told(random: np.random.Generator, size: float, correlation: float) -> list[int]:
    """Sorted over ``DELAYS`` series: how many commits after a step, with LAST flat ones before, a look first tells a change."""
    delays = []
    for _ in range(DELAYS):
        level = np.where(np.arange(2 * LAST) < LAST, 0.0, np.log1p(size)) + correlated(random, 2 * LAST, correlation)
        looks = (end - LAST for end in range(LAST + 1, 2 * LAST + 1) if _changes(level[end - LAST : end]))
        delays.append(next(looks, LAST))
    return sorted(delays)


def _changes(deviations: NDArray[np.float64]) -> tuple[LevelChange, ...]:
    return changes_at(examine(_figures_of(deviations), "ratio"), ALPHA)


def _figures_of(deviations: NDArray[np.float64]) -> list[float]:
    return [float(value) for value in 3 * np.exp(deviations)]


def simulated(random: np.random.Generator) -> dict[str, float]:
    """The figures that need no database."""
    delays = commits_until_told(random, 0.03, 0.3)
    return {
        "step_3pct_found_pct": found_pct(random, 0.03),
        "step_2pct_found_pct": found_pct(random, 0.02),
        "step_3pct_of_200_found_pct": found_pct(random, 0.03, LAST),
        "step_3pct_of_200_correlated_03_found_pct": found_pct(random, 0.03, LAST, 0.3),
        "flat_unchanged_pct": flat_pct(random),
        "flat_200_unchanged_pct": flat_pct(random, LAST),
        "flat_correlated_03_unchanged_pct": flat_pct(random, LAST, 0.3),
        "flat_correlated_05_unchanged_pct": flat_pct(random, LAST, 0.5),
        "flat_correlated_07_unchanged_pct": flat_pct(random, LAST, 0.7),
        f"page_of_{PAGE}_flat_correlated_03_unchanged_pct": flat_page_pct(random, 0.3),
        "drift_6pct_told_as_drift_pct": drift_pct(random, 0.06),
        "drift_6pct_correlated_03_told_as_drift_pct": drift_pct(random, 0.06, 0.3),
        "false_alarms_per_series_and_year": false_alarms_a_year(random, 0.0, YEARS // 4),
        "false_alarms_per_series_and_year_correlated_03": false_alarms_a_year(random, 0.3, YEARS),
        "false_alarms_per_series_and_year_correlated_05": false_alarms_a_year(random, 0.5, YEARS // 4),
        "commits_until_step_3pct_correlated_03_is_told_median": delays[DELAYS // 2],
        "commits_until_step_3pct_correlated_03_is_told_p90": delays[9 * DELAYS // 10],
    }


def main() -> None:
    """Simulate, fill a database, time, write."""
    random = np.random.default_rng(20260418)
    figures = simulated(random)
    with tempfile.TemporaryDirectory() as folder:
        database = Path(folder) / "history.sqlite"
        start, count = time.perf_counter(), 0
        with History(str(database)) as history:
            for one in records(random):
                count += history.add(one) == "added"
        adding = time.perf_counter() - start
        load = os.getloadavg()[0]
        taken, cpu = seconds_of_trend(database, LAST)
        of_all, _ = seconds_of_trend(database, COMMITS)
        figures |= {
            f"seconds_{count}_records": taken[len(taken) // 2],
            f"seconds_{count}_records_fastest": taken[0],
            f"seconds_{count}_records_slowest": taken[-1],
            f"seconds_{count}_records_every_commit": of_all[len(of_all) // 2],
            f"processor_seconds_{count}_records": cpu,
            "load_1min_before": load,
            "seconds_per_record_added": adding / count,
            "bytes_per_record": database.stat().st_size / count,
        }
    figures = {name: float(f"{value:.4g}") for name, value in figures.items()}
    print(*(f"{name}: {value}" for name, value in figures.items()), sep="\n")
    print(write_results("history_trend", figures))


if __name__ == "__main__":
    main()
