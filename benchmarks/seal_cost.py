"""What a seal and the checks of a record cost: of a run's time, of a load, and of a record of a million passes.

    python -m benchmarks.seal_cost

append_us_sealed, append_us_plain   median time to keep one sample of the published quickstart, with its hash and without
share_of_run_pct    the difference over all lines of that run, and its seal, over the time that the run took
load_s              CPU time to read a record of a million passes, its seal included (benchmarks/large_run)
share_of_load_pct   the part of that in which the seal is checked
checks_s            CPU time of the cross-checks and of grading again, of the same record
checks_every_arm_s  the same of the published run with most timed samples, whose answers are graded again
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections import deque
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

os.environ.update(dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1"))

from benchmarks.large_run import REPEATS, write
from benchmarks.results_file import write_results
from harness.analysis.trust.integrity import integrity_of
from harness.record.journal import Journal, whole_lines
from harness.record.schema import RECORD_VERSION
from harness.record.seal import Seal, SealCheck, SealHead, digest, unlinked
from harness.record.store import HEADER, JOURNALS, SAMPLES, read_run
from tests.helpers import ROOT
from tests.helpers.sealed_lines import reseal

QUICKSTART, EVERY_ARM = (ROOT / "reports" / name for name in ("quickstart", "every_arm"))
ROUNDS = 5


def main() -> None:
    """Measure, print, store."""
    with tempfile.TemporaryDirectory() as folder:
        figures = of_a_run(Path(folder)) | of_a_load(Path(folder) / "large")
    published = read_run(EVERY_ARM)
    figures["checks_every_arm_s"] = cpu_s(lambda: integrity_of(published))
    figures = {name: round(value, 4) for name, value in figures.items()}
    print(figures)
    print(write_results("seal_cost", figures))


def of_a_run(folder: Path) -> dict[str, float]:
    """Keep the lines of a run in turns with and without their hashes."""
    lines = [unlinked(line).decode() for line in whole_lines(QUICKSTART / SAMPLES)]
    taken: dict[str, list[float]] = {"sealed": [], "plain": []}
    for number in range(ROUNDS):
        for way, times in taken.items():
            journal = Journal(folder / f"{way}{number}.jsonl")
            for line in lines:
                begun_s = time.perf_counter()
                journal.append(line, digest(b"") if way == "sealed" else None)
                times.append(time.perf_counter() - begun_s)
            journal.close()
    sealed_s, plain_s = (statistics.median(times) for times in taken.values())
    moments = sorted(datetime.fromisoformat(one.started_at) for one in read_run(QUICKSTART).samples if one.started_at)
    kept = {name: list(whole_lines(QUICKSTART / name)) for name in JOURNALS}
    head_s = cpu_s(lambda: sealed(b"{}", None, kept))
    lines_s = (sealed_s - plain_s) * sum(map(len, kept.values()))
    share = (lines_s + head_s) / (moments[-1] - moments[0]).total_seconds()
    return {"append_us_sealed": 1e6 * sealed_s, "append_us_plain": 1e6 * plain_s, "share_of_run_pct": 100 * share}


def of_a_load(directory: Path) -> dict[str, float]:
    """Read and check a record of a million passes."""
    write(directory, REPEATS)
    reseal(directory)
    load_s = cpu_s(lambda: read_run(directory))
    header, head = (directory / HEADER).read_bytes(), (directory / "seal.json").read_bytes()
    kept = {name: list(whole_lines(directory / name)) for name in JOURNALS}
    seal_s = cpu_s(lambda: sealed(header, head, kept))
    run = read_run(directory)
    return {"load_s": load_s, "share_of_load_pct": 100 * seal_s / load_s, "checks_s": cpu_s(lambda: integrity_of(run))}


def sealed(header: bytes, head: bytes | None, journals: dict[str, list[bytes]]) -> Seal:
    """Check all lines."""
    check = SealCheck(SealHead(run_id="x", header_sha256=digest(header)), RECORD_VERSION, head)
    for name, lines in journals.items():
        deque(check.through(name, lines), 0)
    return check.seal()


def cpu_s(call: Callable[[], object]) -> float:
    """Median CPU time of three calls."""
    taken = []
    for _ in range(3):
        begun_s = time.process_time()
        call()
        taken.append(time.process_time() - begun_s)
    return statistics.median(taken)


if __name__ == "__main__":
    main()
