"""See the package: measure round by round, print, write."""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks import baseline
from benchmarks.engines import __doc__ as TITLE
from benchmarks.engines.figures import FIGURES, Figure, Measured, NotMeasured, Rounds, derived
from benchmarks.engines.models import NAMES
from benchmarks.engines.others import LlamaCpp, vllm
from benchmarks.engines.starts import started
from benchmarks.measured_run import measured_now
from benchmarks.results_file import RESULTS, write_results
from harness.errors import SbdError
from harness.meters.environment import snapshot
from harness.record.store import read_run

ROUNDS = 10
GENERATE = "ntp_over_best_generate_reference"
"""Ratio of tokens/s, NTP over generate() in its best mode, on the reference model in float32: a figure of ``baseline``."""
OVER_GENERATE = Figure(values=lambda rounds: [], needs=(), least=1.3)
MOST_S = 900.0
TWICE = "_250m"
"""Of this model all engines read the weights at nearly the memory's rate, so their ratios are the closest to 1."""
Measurement = Callable[[], Measured]


def ours(name: str, smoke: bool) -> dict[str, float]:
    """What a fresh process of our engine measures on a model.

    Raises:
        NotMeasured: the model is not here, or the process fails.
    """
    command = [sys.executable, "-m", "benchmarks.engines.own", name, *(["--smoke"] if smoke else [])]
    root = Path(__file__).resolve().parents[2]
    try:
        done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True, timeout=MOST_S)
    except subprocess.SubprocessError as error:
        raise NotMeasured(f"our engine: {(getattr(error, 'stderr', None) or str(error)).strip()[-300:]}") from error
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    if "reason" in found:
        raise NotMeasured(f"our engine: {found['reason']}")
    return found


def measurements(smoke: bool, wanted: set[str], absent: dict[str, str]) -> dict[str, Measurement]:
    """What a round takes, by name, each beside what it is compared with. What is not installed is put into ``absent``."""
    found: dict[str, Measurement] = {f"ours_{name}": partial(ours, name, smoke) for name in NAMES}
    for name in ("135m", "250m"):
        found |= {f"llama_cpp_{name}": _chosen(name, smoke, wanted, absent), f"vllm_{name}": partial(vllm, name, smoke)}
    found |= {f"start_{name}": partial(started, name) for name in ("135m", "reference")}
    order = ["135m", "250m", "reference"]
    by_model = sorted(found, key=lambda one: (one.startswith("start"), order.index(one.rpartition("_")[2])))
    if "SBD_VLLM_PYTHON" not in os.environ:
        absent |= {one: "SBD_VLLM_PYTHON is not set; run `make serving-ready`" for one in found if one.startswith("vllm")}
    return {one: found[one] for one in by_model if one in wanted and one not in absent}


def _chosen(name: str, smoke: bool, wanted: set[str], absent: dict[str, str]) -> Measurement:
    """llama.cpp at its best settings, which are looked for here."""
    key = f"llama_cpp_{name}"
    if key in wanted:
        try:
            found = LlamaCpp(name, smoke)
            print(f"{key}: {found.settings}", flush=True)
            return found.measured
        except (NotMeasured, SbdError) as error:
            absent[key] = str(error)
    return dict


def take(taken: Mapping[str, Measurement], rounds: int, absent: dict[str, str]) -> Rounds:
    """Take every measurement once a round, in reverse order every other round. Those of TWICE are taken again in reverse order,
    so that a machine that grows slower meanwhile is slower for all alike; of both the geometric mean. A failure is told; what
    fails each time leaves its round out. An interruption ends the last round where it is.
    """
    found: list[dict[str, Measured]] = []
    try:
        for number in range(rounds):
            found.append({})
            order = [*taken][:: -1 if number % 2 else 1]
            last = max((place for place, name in enumerate(order) if name.endswith(TWICE)), default=0) + 1
            again = [name for name in reversed(order) if rounds > 1 and name.endswith(TWICE)]
            for name in (*order[:last], *again, *order[last:]):
                try:
                    measured = taken[name]()
                    print(f"round {number + 1}, {name}: {json.dumps(measured)}", flush=True)
                    before = found[-1].get(name, measured)
                    found[-1][name] = {key: math.sqrt(before[key] * value) for key, value in measured.items()}
                except (NotMeasured, SbdError) as error:
                    absent[name] = str(error)
                    print(f"round {number + 1}, {name}: none: {error}", flush=True)
    except KeyboardInterrupt:
        print("interrupted: what is measured is kept", flush=True)
    return Rounds(taken=found, absent=absent)


def over_generate(run: Path | None) -> tuple[dict[str, float | None], dict[str, str]]:
    """The figures of GENERATE from a run of benchmarks/baseline.yaml, measured now if there is none; and why they are None."""
    held = measured_now(baseline.SCENARIO) if run is None else read_run(run)
    found = {name: value for name, value in baseline.stored(held).items() if name.startswith(GENERATE)}
    return (dict(found), {}) if found else ({GENERATE: None}, {GENERATE: "the run has no ratio of NTP to generate()"})


def kept_before() -> tuple[dict[str, float | None], dict[str, str]]:
    """Figures and reasons that were stored on this machine at this commit."""
    file, state = RESULTS / "engines.json", snapshot()
    if file.is_file():
        held = json.loads(file.read_text(encoding="utf-8"))
        here = f"{state['cpu_model']}, {state['logical_cores']} cores"
        if (held["machine"], held["commit"]) == (here, state["commit"]):
            return held["figures"], held.get("reasons", {})
    return {}, {}


def show(found: Mapping[str, float | None], reasons: Mapping[str, str]) -> None:
    """A line for every figure that was asked for, with its bar."""
    for name, one in (FIGURES | {GENERATE: OVER_GENERATE}).items():
        value, low, high = (found.get(f"{name}{end}") for end in ("", "_low", "_high"))
        if name in reasons:
            print(f"{name} | none: {reasons[name]}")
        elif value is not None:
            ends = "" if low is None or high is None else f" ({low:g}-{high:g})"
            print(f"{name} | {value:g}{ends} | {one.bar} | {'reached' if one.reached(value, low) else 'NOT REACHED'}")


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print, write; a smoke run writes nothing."""
    parser = argparse.ArgumentParser(prog="benchmarks.engines", description=(TITLE or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--only", action="append", choices=[*FIGURES, GENERATE], help="a figure; may be given several times")
    parser.add_argument("--baseline", type=Path, help=f"a run of benchmarks/baseline.yaml, for {GENERATE}")
    parser.add_argument("--smoke", action="store_true", help="one short round that shows whether everything works")
    given = parser.parse_args(arguments)
    for name in [name for name in os.environ if name.startswith("OMP_")]:
        del os.environ[name]  # every engine takes the threads that it takes for a user
    wanted = given.only or [*FIGURES, *([] if given.smoke else [GENERATE])]
    names = [name for name in FIGURES if name in wanted]
    needed, absent = {one for name in names for one in FIGURES[name].needs}, dict[str, str]()
    taken = measurements(given.smoke, needed, absent)
    for name in [name for name in taken if name.startswith("start")]:
        take({name: taken[name]}, 1, {})  # kernels are built and this machine is calibrated before the rounds
    rounds = take(taken, 1 if given.smoke else given.rounds, absent)
    found, reasons = derived(rounds, names)
    if GENERATE in wanted:
        more, why = over_generate(given.baseline)
        found, reasons = found | more, reasons | why
    show(found, reasons)
    if given.smoke:
        return
    before, why_before = kept_before()
    reasons = {name: why for name, why in (why_before | reasons).items() if (before | found).get(name) is None}
    print(write_results("engines", before | found | {"rounds": len(rounds.taken)}, reasons=reasons))


if __name__ == "__main__":
    main()
