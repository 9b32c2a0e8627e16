"""Our NTP arm beside transformers' generate(), every mode of it, interleaved in one run on the same prompts.

    python -m benchmarks.baseline [RUN]

The reference model is decoded in ten fresh processes; ``benchmarks.engines`` stores its figures too, from the same run.
"""

from __future__ import annotations

from pathlib import Path

from benchmarks.measured_run import measured_run, print_void
from benchmarks.results_file import write_results
from harness.analysis.answer import compare
from harness.record.schema import Run

SCENARIO = Path(__file__).parent / "baseline.yaml"
SHORT = {"llama_250m": "250m", "reference": "reference"}


def stored(held: Run) -> dict[str, float]:
    """Print and write the figures of a run of the scenario; they are returned too."""
    comparison = compare(held)
    figures: dict[str, float] = {}
    print("part | generate() | speed of NTP beside it (95 % interval) | prompts | ")
    for cell in comparison.cells:
        check = cell.baseline_check
        if not cell.is_summary:
            continue
        for mode in check.modes:
            speed = mode.ntp_speed
            if speed.value is None or speed.low is None or speed.high is None:
                print(f"{cell.part} | {mode.label} | none: {speed.reason} | |")
                continue
            best = "best, " + check.state if mode.label == check.best else ""
            print(f"{cell.part} | {mode.label} | {speed.value:.3f} ({speed.low:.3f}-{speed.high:.3f}) | {speed.n} | {best}")
        best_speed = check.best_speed
        if best_speed is not None and best_speed.value is not None and best_speed.low is not None:
            name = f"ntp_over_best_generate_{SHORT[cell.part]}"
            figures |= {name: round(best_speed.value, 4), f"{name}_low": round(best_speed.low, 4)}
            figures |= {f"{name}_high": round(best_speed.high, 4)} if best_speed.high is not None else {}
    print_void(comparison)
    print(write_results("baseline", figures, held.header.environment))
    return figures


def main() -> None:
    """Measure (or read RUN), print, write."""
    stored(measured_run(SCENARIO))


if __name__ == "__main__":
    main()
