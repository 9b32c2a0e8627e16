"""The queue of `sbd capacity` against a live vLLM: waiting times at loads that its prices were not fitted to.

    python -m benchmarks.served_queue RUN

RUN: of scenarios/served_load.yaml. The closed loops give each arm three prices: seconds of a step, of a row in it, and of a
prompt's token. They are those whose simulated medians are nearest to the measured ones. With them harness.capacity.queueing
simulates the Poisson loads, with the measured lengths.

p50_max_error_pct   simulated over measured medians, time to first token and time per token, of all arms and Poisson loads
p95_max_error_pct   the same of 95th percentiles
figures, p50_missed, p95_missed   of each kind; those off by more than 15 %, and by more than 25 % and out of their interval
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy import optimize

from benchmarks.results_file import write_results
from harness.analysis.comparison import compare
from harness.analysis.results import ArmResult
from harness.capacity.queueing import Arrivals, Engine, Served, closed_loop, poisson, simulate
from harness.record.schema import Run
from harness.record.store import read_run

REQUESTS, SEED, CHUNK_TOKENS, MOST_ROWS = 4000, 5, 2048, 64
P50_PCT, P95_PCT = 15.0, 25.0
Floats = NDArray[np.float64]


class Measured:
    """An arm under every load, as a run has it."""

    def __init__(self, run: Run, arms: dict[str, ArmResult]) -> None:
        self.arms = arms
        cases = {case for arm in arms.values() for case in arm.case_ids}
        rows = [row for one in run.samples if one.case_id in cases for row in one.rows]
        drawn = np.random.default_rng(SEED).integers(len(rows), size=REQUESTS)
        self._prompts = [rows[place].prompt_tokens for place in drawn]
        self._outputs = [rows[place].output_tokens for place in drawn]
        self._tokens_per_pass = sum(arm.decode_tokens for arm in arms.values()) / sum(arm.nfe or 0 for arm in arms.values())

    def served(self, prices: Floats, load: str) -> Served:
        """What the requests of a load wait for at these prices."""
        step_s, row_s, token_s = np.exp(prices)
        engine = Engine(
            step_s=lambda tokens, _, rows, __: float(step_s + row_s * rows + token_s * tokens), largest_batch=MOST_ROWS,
            chunk_tokens=CHUNK_TOKENS, tokens_per_pass=max(1.0, self._tokens_per_pass),
        )  # fmt: skip
        amount, unit = load.split(" ", 1)
        return simulate(engine, self._arrivals(float(amount), unit)).steady()

    def _arrivals(self, amount: float, unit: str) -> Arrivals:
        if unit == "in flight":
            return closed_loop(int(amount), 0.0, self._prompts[:400], self._outputs[:400], over_s=0.1)
        return poisson(amount, self._prompts, self._outputs, SEED)

    def fitted(self) -> Floats:
        """Logarithms of the three prices, from the closed loops."""
        loops = [load for load in self.arms if load.endswith("in flight")]

        def off(prices: Floats) -> Floats:
            pairs = [pair for load in loops for pair in compared(self.arms[load], self.served(prices, load), "p50").values()]
            return np.log([simulated / measured for measured, simulated in pairs])

        return np.asarray(optimize.least_squares(off, np.log([0.03, 0.003, 0.0003]), diff_step=0.05).x)


def compared(arm: ArmResult, served: Served, which: str) -> dict[str, tuple[float, float]]:
    """(measured, simulated) by figure."""
    found = {}
    for name, seconds in (("first_token", served.waited_s), ("time_per_token", served.time_per_token_s)):
        measured = arm.figures[f"{name}_{which}_s"].value
        assert measured is not None, f"{arm.label} {name}: not measured"
        found[f"{name}_{which}_s"] = (measured, float(np.nanpercentile(seconds, int(which[1:]))))
    return found


def main() -> None:
    """Fit, predict, print and write."""
    run = read_run(Path(sys.argv[1]))
    by_arm: dict[str, dict[str, ArmResult]] = {}
    for cell in compare(run).cells:
        if cell.load is None:
            continue
        for arm in cell.arms:
            by_arm.setdefault(arm.label, {})[cell.load] = arm
    errors: dict[str, list[float]] = {"p50": [], "p95": []}
    missed = {"p50": 0, "p95": 0}
    for label, arms in by_arm.items():
        measured = Measured(run, arms)
        prices = measured.fitted()
        print(f"{label}: seconds of a step, a row, a prompt token: {np.exp(prices)}")
        for load in (load for load in arms if not load.endswith("in flight")):
            served = measured.served(prices, load)
            for which in errors:
                for name, (told, simulated) in compared(arms[load], served, which).items():
                    figure, error = arms[load].figures[name], 100 * (simulated / told - 1)
                    within = figure.low is not None and figure.high is not None and figure.low <= simulated <= figure.high
                    errors[which].append(abs(error))
                    missed[which] += abs(error) > P50_PCT if which == "p50" else abs(error) > P95_PCT and not within
                    span = f"{figure.low} to {figure.high}"
                    print(f"  {load} {name}: measured {told:.4f} ({span}), simulated {simulated:.4f}, {error:+.1f} %")
    figures = {
        "p50_max_error_pct": max(errors["p50"]), "p95_max_error_pct": max(errors["p95"]), "figures": len(errors["p50"]),
        "p50_missed": missed["p50"], "p95_missed": missed["p95"],
    }  # fmt: skip
    print(figures)
    print(write_results("served_queue", figures, run.header.environment))


if __name__ == "__main__":
    main()
