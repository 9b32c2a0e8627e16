"""Passes of batches of 8 and 16 told from other prompts decoded alone, against the passes that such batches took.

Lockstep decides; ragged is shown beside it, and so is what the mean alone would have said, with its distribution assumed.

    python -m benchmarks.lockstep [RUN]
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from benchmarks.measured_run import measured_run
from benchmarks.results_file import write_results
from harness.record.schema import CaseHeader, Run
from harness.roofline.batch_decode import PassesInterval, passes_interval
from harness.roofline.batches import BatchPasses, RecordedRow, recorded_batch, slowest_row_passes
from harness.roofline.recorded_acceptance import recorded_arms

SCENARIO = Path(__file__).parent / "lockstep.yaml"
RECORDS, BLOCK_SIZE = "records", 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """Totals over the batches of one case."""

    case: CaseHeader
    batches: int
    passes: int
    query_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One case, measured and predicted; passes and tokens are totals over its batches."""

    measured: Measured
    predicted: BatchPasses
    interval: PassesInterval
    assumed_passes: float

    @property
    def key(self) -> str:
        """Names the case in the figures."""
        case = self.measured.case
        return f"{case.arm.values['batching']}_{case.task}_gamma_{case.arm.gamma:g}_batch_{case.batch_size}"

    @property
    def error_pct(self) -> float:
        """Of the predicted passes."""
        return self.error_of(self.predicted.passes)

    @property
    def query_error_pct(self) -> float:
        """Of the predicted query tokens, padding included."""
        predicted = self.predicted.passes * self.predicted.query_tokens_per_pass(BLOCK_SIZE) * self.predicted.rows
        return 100 * (predicted * self.measured.batches / self.measured.query_tokens - 1)

    @property
    def inside(self) -> bool:
        """Whether the measured mean lies in the interval for so many batches."""
        low, high, mean = self.interval.low, self.interval.high, self.measured.passes / self.measured.batches
        return low is not None and high is not None and low <= mean <= high

    def error_of(self, passes: float) -> float:
        """Percent by which so many passes a batch miss the measured total."""
        return 100 * (passes * self.measured.batches / self.measured.passes - 1)


def totals(held: Run) -> list[Measured]:
    """Every SBD case that ran in batches."""
    found = []
    for case in held.header.cases:
        samples = [sample for sample in held.samples if sample.case_id == case.case_id]
        if case.part == RECORDS or case.arm.method != "sbd":
            continue
        widths = [
            sample.passes.padded_query[i] * len(sample.rows)
            for sample in samples
            for i, role in enumerate(sample.passes.role)
            if role != "prefill"
        ]
        found.append(Measured(case=case, batches=len(samples), passes=len(widths), query_tokens=sum(widths)))
    return found


def compared(measured: Measured, record: tuple[RecordedRow, ...]) -> Row:
    """Predict one case from the record of other prompts, and from the mean of that record alone."""
    rows, batching = measured.case.batch_size, measured.case.arm.values["batching"]
    blocks = sum(len(row.passes) for row in record) / len(record)
    predicted = recorded_batch(record, rows, batching)
    # In lockstep every block waits for its slowest row, ragged all blocks together do.
    together, times = (1, round(blocks)) if batching == "lockstep" else (round(blocks), 1)
    assumed_passes = times * slowest_row_passes(BLOCK_SIZE, predicted.row_passes / blocks, rows, together)
    return Row(
        measured=measured,
        predicted=predicted,
        interval=passes_interval(record, rows, batching, measured.batches),
        assumed_passes=assumed_passes,
    )


def figures_of(row: Row) -> dict[str, float]:
    """The committed figures of one case; passes are totals over its batches."""
    count = row.measured.batches
    found: dict[str, float] = {
        "measured_passes": row.measured.passes,
        "predicted_passes": round(row.predicted.passes * count, 1),
        "error_pct": round(row.error_pct, 2),
        "query_tokens_error_pct": round(row.query_error_pct, 2),
        "assumed_error_pct": round(row.error_of(row.assumed_passes), 2),
    }
    if row.interval.low is not None and row.interval.high is not None:
        found |= {"predicted_low": round(row.interval.low * count, 1), "predicted_high": round(row.interval.high * count, 1)}
    return found


def main() -> None:
    """Measure (or read RUN), print, write."""
    held = measured_run(SCENARIO)
    records = {
        (arm.case.task, arm.case.arm.gamma): arm.rows for arm in recorded_arms(held, BLOCK_SIZE) if arm.case.part == RECORDS
    }
    rows = [compared(one, records[one.case.task, one.case.arm.gamma]) for one in totals(held)]
    print("batching, task, γ, batch | batches | their passes | predicted (95 %) | error | query tokens | assumed from the mean")
    figures: dict[str, float] = {}
    for row in rows:
        one = figures_of(row)
        print(
            f"{row.key} | {row.measured.batches} | {one['measured_passes']} | {one['predicted_passes']} "
            f"({one['predicted_low']}-{one['predicted_high']}) | {one['error_pct']:+} % | "
            f"{one['query_tokens_error_pct']:+} % | {one['assumed_error_pct']:+} %"
        )
        figures |= {f"{row.key}_{name}": value for name, value in one.items()}
    summary = {
        f"{prefix}passes_error_pct_max": round(
            max(abs(row.error_pct) for row in rows if row.measured.case.arm.values["batching"] == batching), 2
        )
        for prefix, batching in (("", "lockstep"), ("ragged_", "ragged"))
    } | {"cells_inside_interval_pct": round(100 * sum(row.inside for row in rows) / len(rows), 1)}
    print(write_results("lockstep", summary | figures, held.header.environment))


if __name__ == "__main__":
    main()
