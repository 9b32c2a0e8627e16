"""The queue of `sbd capacity` against a live vLLM: waiting times at loads that its prices were not fitted to.

    python -m benchmarks.served_queue RUN

RUN: of scenarios/served_load.yaml. The closed loops give each arm four prices: seconds of a step, of a row in it, of a prompt's
token, and of reading at all. They are those whose simulated medians are nearest to the measured ones. With them
harness.capacity.queueing serves the requests of the Poisson loads again: the same arrivals, lengths and numbers of passes. So
the queue is judged, and not the draw of arrivals.

p50_max_error_pct   simulated over measured medians, time to first token and time per token, of all arms and Poisson loads
p95_max_error_pct   the same of 95th percentiles
figures, p50_missed, p95_missed   of each kind; those off by more than 15 %, and by more than 25 %
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy import optimize

from benchmarks.results_file import write_results
from harness.analysis.tally.pass_arrays import TraceArrays
from harness.analysis.tally.requests import requests_of
from harness.capacity.queueing import Arrivals, QueueEngine, simulate
from harness.record.schema import RowTimes, Run, Sample
from harness.record.store import read_run
from harness.scenario.load import Load, recorded_load

CHUNK_TOKENS, MOST_ROWS, TURN_S = 2048, 64, 0.002
"""vLLM's budget of a step (its log), more rows than are in flight, and a client's time from an answer to its next request."""
LIMITS_PCT = {50: 15.0, 95: 25.0}
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Taken:
    """A sample with its load."""

    load: Load
    in_flight: int
    sample: Sample

    @property
    def words(self) -> str:
        """Of the load."""
        return self.load.words(self.in_flight)

    def simulated(self, prices: Floats) -> Taken:
        """The same requests with the times of the simulation."""
        step_s, row_s, token_s, read_s = np.exp(prices)
        engine = QueueEngine(
            step_s=lambda tokens, _, rows, __: float(step_s + row_s * rows + token_s * tokens + read_s * (tokens > 0)),
            largest_batch=MOST_ROWS,
            chunk_tokens=CHUNK_TOKENS,
        )
        rows, sent = self.sample.rows, [row.times.sent_s for row in self.sample.rows if row.times]
        assert self.sample.packed_passes is not None
        order, trace, closed = np.argsort(sent, kind="stable"), TraceArrays(self.sample.packed_passes), self.load.closed
        passes = trace.per_row("active")[trace.own].sum(axis=0, dtype=int)
        served = simulate(
            engine,
            Arrivals(
                at_s=[sent[place] for place in order[: self.in_flight if closed else None]],
                prompt_tokens=[rows[place].prompt_tokens for place in order],
                output_tokens=[rows[place].output_tokens for place in order],
                passes=[max(1, int(passes[place])) for place in order],
                after_s=[TURN_S] * len(rows) if closed else None,
            ),
        )
        waited = {
            place: RowTimes(sent_s=at_s, first_token_s=first_s - at_s, last_token_s=last_s - at_s)
            for place, at_s, first_s, last_s in zip(
                order.tolist(),
                served.arrived_s.tolist(),
                served.first_token_s.tolist(),
                served.finished_s.tolist(),
                strict=True,
            )
        }
        again = [row.model_copy(update={"times": waited[place]}) for place, row in enumerate(rows)]
        return Taken(self.load, self.in_flight, self.sample.model_copy(update={"rows": again}))


def figures(taken: Sequence[Taken], percentile: int) -> dict[tuple[str, str], float]:
    """Seconds by load and figure, over the requests that count."""
    waits: dict[tuple[str, str], list[float]] = {}
    for one in taken:
        for request in requests_of(one.sample, one.load, one.in_flight, [1] * len(one.sample.rows)):
            if request.counted:
                waits.setdefault((one.words, "first token"), []).append(request.first_token_s or np.nan)
                waits.setdefault((one.words, "time per token"), []).append(request.time_per_token_s or np.nan)
    return {key: float(np.nanpercentile(values, percentile)) for key, values in waits.items()}


def fitted(loops: Sequence[Taken]) -> Floats:
    """Logarithms of the four prices, from the closed loops."""
    measured = figures(loops, 50)

    def off(prices: Floats) -> Floats:
        simulated = figures([one.simulated(prices) for one in loops], 50)
        return np.log([simulated[key] / value for key, value in measured.items()])

    return np.asarray(optimize.least_squares(off, np.log([0.03, 0.003, 0.0003, 0.02]), diff_step=0.05).x)


def by_arm(run: Run) -> dict[str, list[Taken]]:
    """The samples of every arm."""
    found: dict[str, list[Taken]] = {}
    for case, sample in run.of_arms():
        load = recorded_load(run.header.written(case.part), case.batch_size)
        assert load is not None, f"{case.case_id}: a part without a load"
        found.setdefault(case.label, []).append(Taken(load, case.batch_size, sample))
    return found


def main() -> None:
    """Fit, predict, print and write."""
    run = read_run(Path(sys.argv[1]))
    errors: dict[int, list[float]] = {percentile: [] for percentile in LIMITS_PCT}
    for label, taken in by_arm(run).items():
        prices = fitted([one for one in taken if one.load.closed])
        print(f"{label}: seconds of a step, a row, a prompt token, reading: {np.exp(prices)}")
        held_out = [one for one in taken if not one.load.closed]
        again = [one.simulated(prices) for one in held_out]
        for percentile, found in errors.items():
            simulated = figures(again, percentile)
            for key, measured in figures(held_out, percentile).items():
                found.append(100 * (simulated[key] / measured - 1))
                told = f"measured {measured:.4f} s, simulated {simulated[key]:.4f} s, {found[-1]:+.1f} %"
                print(f"  {', '.join(key)}, p{percentile}: {told}")
    results: dict[str, float] = {"figures": len(errors[50])}
    for percentile, found in errors.items():
        results[f"p{percentile}_max_error_pct"] = max(map(abs, found))
        results[f"p{percentile}_missed"] = sum(abs(error) > LIMITS_PCT[percentile] for error in found)
    print(results)
    print(write_results("served_queue", results, run.header.environment))


if __name__ == "__main__":
    main()
