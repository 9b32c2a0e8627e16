"""Lockstep against ragged batches of 8 on the reference model: passes, query tokens and wall time, batch by batch.

Lockstep's loss is its passes less those that the batch's largest row takes on its own; ragged batches win some of it back.

    python -m benchmarks.ragged [RUN]
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

from benchmarks.measured_run import measured_run
from benchmarks.results_file import write_results
from harness.record.schema import Run, Sample

SCENARIO = Path(__file__).parent / "ragged.yaml"


@dataclass(slots=True)
class Sums:
    """Totals over the batches of one γ; passes and tokens of the first repeat, times of all."""

    passes: int = 0
    largest_row: int = 0
    query_tokens: int = 0
    decode_s: float = 0.0


def add(sums: Sums, sample: Sample) -> None:
    """Add one batch."""
    sums.decode_s += sample.decode_s or 0.0
    if sample.repeat:
        return
    decode = [i for i, role in enumerate(sample.passes.role) if role != "prefill"]
    own = [sum(sample.passes.active[i][row] for i in decode) for row in range(len(sample.rows))]
    sums.passes += len(decode)
    sums.largest_row += max(own)
    sums.query_tokens += sum(sample.passes.padded_query[i] for i in decode) * len(sample.rows)


def totals(held: Run) -> dict[float, dict[str, Sums]]:
    """Sums by γ and batching."""
    arms = {case.case_id: case.arm for case in held.header.cases}
    found: dict[float, dict[str, Sums]] = defaultdict(lambda: defaultdict(Sums))
    for sample in held.samples:
        arm = arms[sample.case_id]
        if arm.method == "sbd" and not sample.warmup:
            add(found[arm.gamma or 0.0][str(arm.values["batching"])], sample)
    return found


def main() -> None:
    """Measure (or read RUN), print, write."""
    held = measured_run(SCENARIO)
    figures: dict[str, float] = {}
    print("γ | batching | passes | largest row's own | query tokens | decode wall, s | loss won back")
    by_gamma = totals(held)
    for gamma, by_batching in sorted(by_gamma.items()):
        lockstep, ragged = by_batching["lockstep"], by_batching["ragged"]
        loss = lockstep.passes - lockstep.largest_row
        back = 100 * (lockstep.passes - ragged.passes) / loss if loss else 0.0
        for name, sums in (("lockstep", lockstep), ("ragged", ragged)):
            shown = f"{back:.0f} %" if name == "ragged" else "-"
            counts = f"{sums.passes} | {sums.largest_row} | {sums.query_tokens}"
            print(f"{gamma:g} | {name} | {counts} | {sums.decode_s:.2f} | {shown}")
        end = f"_gamma_{gamma:g}"
        figures |= {
            f"lockstep_passes{end}": lockstep.passes,
            f"ragged_passes{end}": ragged.passes,
            f"lockstep_query_tokens{end}": lockstep.query_tokens,
            f"ragged_query_tokens{end}": ragged.query_tokens,
            f"ragged_wall_over_lockstep{end}": round(ragged.decode_s / lockstep.decode_s, 4),
            f"loss_won_back_pct{end}": round(back, 2),
        }
        if gamma == min(by_gamma):
            figures |= {"lockstep_passes": lockstep.passes, "ragged_passes": ragged.passes, "loss_won_back_pct": round(back, 2)}
    print(write_results("ragged", figures, held.header.environment))


if __name__ == "__main__":
    main()
