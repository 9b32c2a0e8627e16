"""Faults planted into runs over a local Ray cluster: after the same command again, is everything there, and there once?

Every trial is one real run of benchmarks/faults.yaml (two units of a tiny model, 24 samples) by processes of their own, with
one fault at a place that its seed chooses; then the plain command again. Faults come in turn, so that 50 trials hold eight or
nine of each. Needs the extra [ray].

    python -m benchmarks.faults [--trials 50] [--seed 1] [--pretended]

With --pretended the decodes are arithmetic instead of a model's (see benchmarks/planted/faults), which saves every process of a
node the ten seconds of CPU that loading torch takes; all else is the same: processes, nodes, signals, record.

real_model 1 where a model decoded, 0 where decodes were pretended
trials     runs in which the fault came to pass (a trial in which it did not is an error)
lost       samples of the plan that are not in a record at the end, and samples once in it that are not any more
doubled    samples in a record more than once
different  samples whose outputs or traces are not those of a run in a single process without a fault
<fault>    trials of each kind
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.planted.faults import FAULTS, VARIABLE, pretended_machine
from benchmarks.results_file import write_results
from harness.progress import Progress
from harness.record.schema import Run
from harness.record.store import read_run
from harness.runner.runner import run, run_errand
from harness.runner.subprocesses import ChildTask
from harness.scenario.loading import load_scenario
from harness.scenario.plan import make_plan

ROOT = Path(__file__).resolve().parent.parent
SCENARIO = ROOT / "benchmarks" / "faults.yaml"
DECODES = 8
"""Decodes of a unit: the fault comes at one of them, or at one of the first lines of the record where the disk is full."""
LINES = 24
AGAIN_AT_MOST = 3
# A dead node is to be noticed within seconds, not within the half minute that is right for a real network.
HEALTH = {"health_check_initial_delay_ms": 0, "health_check_period_ms": 1000, "health_check_failure_threshold": 5}
CONFIG = HEALTH | {"worker_niceness": 0}


@contextmanager
def local_cluster(workers: int) -> Iterator[Any]:
    """A head without CPUs and so many nodes with one each, every one with a raylet of its own."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "_system_config": CONFIG})
    try:
        for _ in range(workers):
            cluster.add_node(num_cpus=1)
        yield cluster
    finally:
        cluster.shutdown()


def sbd_command(out: Path, where: str = "ray") -> list[str]:
    """The command line of `sbd run`, ready to have something planted."""
    module = "benchmarks.planted.faults"
    return [sys.executable, "-m", module, "run", str(SCENARIO), "--on", where, "--out", str(out), "--no-report"]


def sbd_environment(spec: dict[str, Any], **variables: str) -> dict[str, str]:
    """What says what is planted."""
    return {**os.environ, "RAY_USAGE_STATS_ENABLED": "0", "OMP_NUM_THREADS": "1", VARIABLE: json.dumps(spec), **variables}


def sbd(address: str, out: Path, spec: dict[str, Any]) -> int:
    """The command in a process of its own, with what is planted; its exit status."""
    command, environment = sbd_command(out), sbd_environment(spec, RAY_ADDRESS=address)
    with (out.parent / f"{out.name}.log").open("ab") as log:
        return subprocess.run(command, cwd=ROOT, env=environment, stdout=log, stderr=log, check=False, timeout=300).returncode


def trial(cluster: Any, fault: str, seed: int, work: Path, reference: Run, engine: str = "real") -> Counter[str]:
    """One run with a fault, and the same command until it is content."""
    chosen, out, mark = random.Random(seed), work / f"{seed:03d}-{fault}", work / f"{seed:03d}-{fault}.mark"
    at = chosen.randint(1, LINES if fault == "enospc" else DECODES)
    sbd(cluster.address, out, {"fault": fault, "at": at, "mark": str(mark), "engine": engine})
    if not mark.exists():
        raise RuntimeError(f"trial {seed}: the fault {fault} at {at} did not come to pass; see {out}.log")
    before = keys(read_run(out)) if (out / "run.json").exists() else Counter()
    if fault == "raylet":
        replace_dead(cluster)
    for _ in range(AGAIN_AT_MOST):
        if sbd(cluster.address, out, {"fault": "none", "engine": engine}) == 0:
            break
    else:
        raise RuntimeError(f"trial {seed}: after the fault {fault} at {at} the command does not succeed; see {out}.log")
    return verdict(read_run(out), before, reference)


def verdict(held: Run, before: Counter[Any], reference: Run) -> Counter[str]:
    """What is lost, doubled or different in a record, by the plan and by a run without a fault."""
    there, made = keys(held), {sample.key: (sample.rows, sample.passes, sample.seed) for sample in reference.samples}
    wanted = {slot.key for slot in make_plan(load_scenario(SCENARIO)).slots() if not slot.warmup}
    return Counter(
        trials=1,
        lost=len((wanted | set(before)) - set(there)),
        doubled=sum(count - 1 for count in there.values()),
        different=sum(made[sample.key] != (sample.rows, sample.passes, sample.seed) for sample in held.samples),
    )


def keys(held: Run) -> Counter[Any]:
    """How often each sample is there."""
    return Counter(sample.key for sample in held.samples)


def replace_dead(cluster: Any) -> None:
    """As many nodes as before."""
    for node in list(cluster.worker_nodes):
        if node.dead_processes():
            cluster.remove_node(node, allow_graceful=False)
            cluster.add_node(num_cpus=1)


def in_this_process(errand: ChildTask) -> int:
    """A Spawner for a reference that no model makes."""
    run_errand(errand, Progress(), pretended_machine())
    return 0


def figures(trials: int, seed: int, work: Path, engine: str = "real") -> dict[str, float]:
    """Run them all."""
    reference = read_run(run(SCENARIO, work / "reference", spawn=None if engine == "real" else in_this_process))
    found: Counter[str] = Counter()
    with local_cluster(workers=2) as cluster:
        for number in range(trials):
            fault = FAULTS[number % len(FAULTS)]
            one = trial(cluster, fault, seed + number, work, reference, engine)
            found += one + Counter({fault: 1})
            print(f"{number + 1}/{trials} {fault}: {dict(one)}", flush=True)
    counted = {name: float(found[name]) for name in ("trials", "lost", "doubled", "different", *FAULTS)}
    return {"real_model": float(engine == "real")} | counted


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--trials", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--pretended", action="store_true")
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="sbd-faults-") as work:
        found = figures(given.trials, given.seed, Path(work), "pretended" if given.pretended else "real")
    print(found)
    print(write_results("faults", found))


if __name__ == "__main__":
    main()
