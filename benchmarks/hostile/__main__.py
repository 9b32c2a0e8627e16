"""Walks the catalogue with worker processes and stores what was found."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from importlib import import_module
from itertools import groupby
from multiprocessing import get_context
from operator import itemgetter
from pathlib import Path
from random import Random
from typing import Any

from benchmarks.hostile import tampering
from benchmarks.hostile.cases import ALLOWED_GB, COUNTERS, judged, watch
from benchmarks.hostile.files import OF_FILES
from benchmarks.hostile.memory import check_reading
from benchmarks.hostile.world import World
from benchmarks.results_file import write_results
from harness.meters.environment import snapshot

KINDS = (
    "scenarios",
    "claims",
    "profiles",
    "records",
    "configs",
    "words",
    "links",
    "environments",
    "weights",
    "kills",
    "tampering",
    "imports",
    "histories",
    "galleries",
    "gates",
    "servers",
    "seals",
    "folders",
)
"""Those that load a model come last."""
LOADED = ("report", "gate", "compare", "verify", "plan", "run", "capacity", "roofline", "hardware", "history", "doctor")
LOADS_MODELS = ("weights", "kills", "seals", "folders")
SPEAKS = ("servers",)
BEFORE = {
    LOADS_MODELS: ("torch", "transformers", "harness.engine.engine", "harness.engine.loading"),
    SPEAKS: ("harness.runner.local_machine", "harness.serving.engine", "scipy.stats", "tests.helpers.hostile_answers"),
}
"""What a worker imports before a case of these kinds, so that the case's children need not."""
Found = list[tuple[str, str]]
Result = tuple[str, Found, float]
Cases = Sequence[tuple[str, int]]


def kind_of(name: str) -> Any:
    """What makes the cases of a kind, and their COUNT."""
    return OF_FILES.get(name) or import_module(f"benchmarks.hostile.{name}")


def kinds() -> dict[str, int]:
    """Every kind with its number of cases."""
    return {name: kind_of(name).COUNT for name in KINDS}


def chosen(share: float, only: str) -> list[tuple[str, int]]:
    """The cases to walk: all of them, an evenly spread share, one kind, or one case (KIND/NUMBER)."""
    kind, _, number = only.partition("/")
    if number:
        return [(kind, int(number))]
    counts = {name: count for name, count in kinds().items() if only in ("", name)}
    return [(name, round(i / share)) for name, count in counts.items() for i in range(int(count * share))]


def conduct(root: Path, seed: int, keep: bool, one: tuple[str, int]) -> Result:
    """Run one case in this process's children; its description, its findings and its peak memory in GB."""
    kind, number = one
    for name in (name for kinds_, names in BEFORE.items() if kind in kinds_ for name in names):
        import_module(name)
    case = kind_of(kind).case(World(root / "world"), number, Random(f"{seed}/{kind}/{number}"))
    folder = root / f"{kind}-{number}"
    shutil.rmtree(folder, ignore_errors=True)
    with judged(case, folder) as place:
        found = list(place.findings)
    if not keep:
        shutil.rmtree(folder, ignore_errors=True)
    return case.what, found, place.peak_gb


def load() -> None:
    """Import, once and before any fork, what the commands of the cases import."""
    for name in LOADED:
        import_module(f"harness.cli.{name}")
    for name in (
        "harness.reporting",
        "harness.reporting.side_by_side",
        "harness.reporting.gallery",
        "sqlalchemy",
        "matplotlib",
    ):
        import_module(name)
    watch()


def conducted(one: Callable[[tuple[str, int]], Result], cases: Cases, workers: int) -> Iterator[tuple[int, bool, Result]]:
    """Number, whether it was walked again, and result of each case. Beside others a command may lack the processor: a case that
    hung is walked once more when no other is, and only that counts.
    """
    late = []
    with ProcessPoolExecutor(workers, mp_context=get_context("fork"), initializer=load) as pool:
        for case, result in zip(cases, pool.map(one, cases), strict=True):
            if "hangs" in dict(result[1]):
                print(f"to be walked again: {case}: {result}", file=sys.stderr, flush=True)
                late.append(case)
            else:
                yield case[1], False, result
    for case in late:
        with ProcessPoolExecutor(1, mp_context=get_context("fork"), initializer=load) as pool:
            yield case[1], True, pool.submit(one, case).result()


def walk(one: Callable[[tuple[str, int]], Result], cases: Cases, workers: int) -> dict[str, Any]:
    """Run the cases of one kind: counts by counter, the largest memory of a case, a line for every failure, and the commit. A
    kind has workers of its own: a child begins with what its worker holds, and another's libraries are no memory of its case.
    """
    kind, counts, lines, peak_gb = cases[0][0], Counter({"walked_again": 0}), [], 0.0
    for done, (number, again, (what, found, case_gb)) in enumerate(conducted(one, cases, workers), start=1):
        peak_gb = max(peak_gb, case_gb)
        counts.update({"cases": 1, f"cases_{kind}": 1, "walked_again": int(again)})
        counts.update({counter for counter, _ in found})
        for counter, text in found:
            lines.append(f"{counter}: {kind}/{number}: {what}: {text}")
            print(lines[-1], flush=True)
        if done % 100 == 0 or done == len(cases):
            print(f"{kind} {done}/{len(cases)}", file=sys.stderr, flush=True)
    return {"counts": counts, "peak_gb": peak_gb, "lines": lines, "commit": snapshot()["commit"]}


def gathered(kinds: Sequence[dict[str, Any]]) -> dict[str, float]:
    """The figures of several kinds."""
    counts = Counter(dict.fromkeys(("cases", *COUNTERS), 0))
    for kind in kinds:
        counts.update(kind["counts"])
    return {name: float(count) for name, count in counts.items()} | {
        "peak_memory_gb": round(max((kind["peak_gb"] for kind in kinds), default=0.0), 3)
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Walk, print, store; 1 where something was found."""
    parser = argparse.ArgumentParser(description="Hostile input against the command line.")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--share", type=float, default=1.0, help="only so many of every kind; nothing is stored")
    parser.add_argument("--only", default="", metavar="KIND[/NUMBER]", help="one kind, or one case; nothing is stored")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--partial", type=Path, metavar="FOLDER", help="a whole walk keeps clean kinds here, and skips them")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="keep the folders of the cases here")
    given = parser.parse_args(arguments)
    whole = given.share == 1.0 and not given.only
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = "1"  # a library with threads cannot be forked
    # A shell begins its jobs in the background, and nohup, with signals ignored; cases would inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    print(f"memory is read within 10 %; a child begins with {check_reading():.2f} GB, at most {ALLOWED_GB:g} GB are allowed")
    with tempfile.TemporaryDirectory(prefix="sbd-hostile-") as temporary:
        root = given.keep or Path(temporary)
        World(root / "world").build()
        one = partial(conduct, root, given.seed, given.keep is not None)
        done: dict[str, dict[str, Any]] = {}
        for kind, of_kind in groupby(chosen(given.share, given.only), key=itemgetter(0)):
            file = given.partial / f"{kind}.json" if given.partial and whole else None
            if file is not None and file.exists():
                done[kind] = json.loads(file.read_text())
                continue
            done[kind] = walk(one, list(of_kind), given.workers)
            if file is not None and not done[kind]["lines"]:
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(json.dumps(done[kind]))
    figures = gathered(list(done.values())) | tampering.figures()
    print(figures)
    if whole:
        print(write_results("hostile", figures, commits={kind: found["commit"] for kind, found in done.items()}))
    return int(any(found["lines"] for found in done.values()))


if __name__ == "__main__":
    sys.exit(main())
