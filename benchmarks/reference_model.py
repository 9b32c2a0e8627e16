"""The reference model's table out of the published record of scenarios/reference_accuracy.yaml: accuracy of NTP-only
training, of SBD training with NTP decoding, and of SBD decoding; the shape of the paper's Table 1.

    python -m benchmarks.reference_model [reports/reference_accuracy]
"""

from __future__ import annotations

import sys
from pathlib import Path

from benchmarks.results_file import write_results
from harness.compare import compare
from harness.compare_values import ArmResult, Cell
from harness.stats import Quantity
from harness.store import read_run

EASY, MARGIN = "word_problems", -0.01


def percent(quantity: Quantity) -> str:
    """An accuracy in percent."""
    return "-" if quantity.value is None else f"{100 * quantity.value:.2f}"


def bound(quantity: Quantity | None) -> str:
    """A difference in points, with its one-sided lower bound."""
    if quantity is None or quantity.value is None or quantity.low is None:
        return "-"
    return f"{100 * quantity.value:+.2f} (≥ {100 * quantity.low:+.2f})"


def rows(cell: Cell) -> list[str]:
    """Table lines of one task and one part."""
    lines = []
    for arm in cell.arms:
        speedup = "-" if arm.nfe_speedup.value is None else f"{arm.nfe_speedup.value:.2f}x"
        lines.append(
            f"| {cell.task} | {cell.model} | {arm.label} | {arm.prompts} | {percent(arm.accuracy)} | {speedup} | "
            f"{bound(arm.accuracy_difference)} | {bound(arm.baseline_difference)} |"
        )
    return lines


def within_margin(arm: ArmResult) -> bool:
    """Whether the paired lower bound against NTP decoding of the same weights is above -1 point."""
    low = arm.accuracy_difference.low
    return not arm.is_ntp and low is not None and low > MARGIN


def main() -> None:
    """Read, print, write."""
    run = read_run(Path(sys.argv[1] if len(sys.argv) > 1 else "reports/reference_accuracy"))
    cells = [cell for cell in compare(run).cells if cell.task is not None]
    print("| task | weights | decoding | prompts | correct, % | NFE speedup | to own NTP, points | to NTP-only, points |")
    print("|---|---|---|---|---|---|---|---|")
    figures: dict[str, float] = {}
    for cell in sorted(cells, key=lambda c: (str(c.task), c.part)):
        print("\n".join(rows(cell)))
        for arm in cell.arms:
            if arm.is_ntp and arm.accuracy.value is not None:
                name = "ntp_accuracy_pct" if cell.part == "ntp_only" else "sbd_trained_ntp_accuracy_pct"
                figures[f"{cell.task}_{name}"] = round(100 * arm.accuracy.value, 3)
    easy = next(cell for cell in cells if cell.task == EASY and cell.part == "sbd")
    best = [arm.nfe_speedup.value for arm in easy.arms if within_margin(arm) and arm.nfe_speedup.value is not None]
    for name in ("ntp_accuracy_pct", "sbd_trained_ntp_accuracy_pct"):
        figures[name] = figures[f"{EASY}_{name}"]
    if best:
        figures["best_nfe_speedup_within_1pt"] = round(max(best), 3)
    print(write_results("reference_model", figures, run.header.environment))


if __name__ == "__main__":
    main()
