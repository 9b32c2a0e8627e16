"""Does `make bench` decide in four minutes? Its run ten times in a row, and five more that no look ends.

    python -m benchmarks.decision [--partial FOLDER]      about 50 minutes on two cores that do nothing else

* decided_of_ten: runs whose claim "3-5x faster by the clock" is confirmed or refuted. contradictions: pairs of runs that are
  decided against each other. minutes_max: the longest of the ten, page included.
* half_width_pct_median: of the 95 % interval of the speedup, over the runs that used their whole time, and the five.
* Where the mean of all speedups is within NEAR of a bound, the claim is judged at that bound moved 20 % away.
"""

from __future__ import annotations

import argparse
import math
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path
from statistics import geometric_mean, median

from benchmarks.results_file import write_results
from harness.analysis.answer import Derived
from harness.analysis.judge.judgement import Judgement
from harness.progress import Progress
from harness.record.schema import Run
from harness.record.store import read_run
from harness.runner.job import Job
from harness.runner.options import RunOptions
from harness.runner.planned_looks import TIME_IS_UP
from harness.runner.runner import run
from harness.runner.subprocesses import FreshInterpreter
from harness.scenario.claim_text import read_claim
from harness.scenario.loading import find_scenario

RUNS, UNSTOPPED, AT_MOST_S = 10, 5, 210.0
BOUND, NEAR, AWAY = 3.0, 0.15, 0.2
TOOK = "minutes.txt"


def decided_run(folder: Path) -> None:
    """`make bench`, after installation, from the command to the page."""
    begun_s = time.monotonic()
    command = [sys.executable, "-m", "harness", "run", "quickstart", "--until", "decided", "--at-most", f"{AT_MOST_S:g}s"]
    subprocess.run([*command, "--out", str(folder)], check=True)
    (folder / TOOK).write_text(f"{(time.monotonic() - begun_s) / 60:.3f}", encoding="utf-8")


def unstopped_run(folder: Path) -> None:
    """The same with looks that decide nothing, so that it takes all of its time."""
    job = Job.of(find_scenario("quickstart"), RunOptions(until="decided", at_most=AT_MOST_S))
    run(job, folder, Progress(), spawn=FreshInterpreter(), look=lambda held, whole: (False, []))


def judged_at(held: Run, bound: float) -> Judgement:
    """Whether SBD is so many times faster, as the page judges it."""
    return Derived(held, (read_claim(f"wall_speedup >= {bound:g}"),)).comparison.judgements.judgements[0]


def half_width_pct(one: Judgement) -> float:
    """Of the interval that is shown, in percent of the figure."""
    assert one.value.low is not None and one.value.high is not None
    return 100 * math.expm1(math.log(one.value.high / one.value.low) / 2)


def figures(ten: Sequence[Run], unstopped: Sequence[Run], minutes: Sequence[float]) -> dict[str, float]:
    """As the module says."""
    every = [judged_at(held, BOUND) for held in (*ten, *unstopped)]
    mean = geometric_mean(one.value.value or math.nan for one in every)
    near = abs(mean / BOUND - 1) < NEAR
    bound = BOUND if not near else BOUND * (1 - AWAY if mean > BOUND else 1 + AWAY)
    found = [judged_at(held, bound) for held in ten]
    whole = [one for held, one in zip(ten, every, strict=False) if held.events("end")[-1].get("reason") == TIME_IS_UP]
    return {
        "decided_of_ten": sum(one.state in ("met", "missed") for one in found),
        "contradictions": sum({one.state, other.state} == {"met", "missed"} for one, other in combinations(found, 2)),
        "half_width_pct_median": round(median(map(half_width_pct, [*whole, *every[len(ten) :]])), 2),
        "minutes_max": max(minutes),
        "speedup_mean": round(mean, 3),
        "bound": bound,
        "whole_time_of_ten": len(whole),
    }


def main() -> None:
    """Take what is missing, print and write."""
    parser = argparse.ArgumentParser(description="Does make bench decide in four minutes?")
    parser.add_argument("--partial", type=Path, default=Path(tempfile.gettempdir()) / "sbd-decision")
    parser.add_argument("--print-only", action="store_true", help="do not write benchmarks/results")
    given = parser.parse_args()
    ten, five = ([given.partial / f"{kind}{i}" for i in range(count)] for kind, count in (("run", RUNS), ("whole", UNSTOPPED)))
    for folder in ten:
        if not (folder / TOOK).exists():
            decided_run(folder)
    for folder in five:
        if not folder.exists():
            unstopped_run(folder)
    minutes = [float((folder / TOOK).read_text(encoding="utf-8")) for folder in ten]
    found = figures(list(map(read_run, ten)), list(map(read_run, five)), minutes)
    print(found if given.print_only else write_results("decision", found))


if __name__ == "__main__":
    main()
