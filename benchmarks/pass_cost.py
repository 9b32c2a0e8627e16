"""The plain eager session against the engine on the reference model: cost of a 16-token pass, and the wall speedup at the
fastest γ whose observed accuracy stays within a point of NTP (the fastest of all where none does).

    python -m benchmarks.pass_cost [RUN]
"""

from __future__ import annotations

from pathlib import Path

from benchmarks.measured_run import measured_run, print_void
from benchmarks.results_file import write_results
from harness.analysis.answer import Comparison, compare
from harness.analysis.results import ArmResult, Cell

SCENARIO = Path(__file__).parent / "pass_cost.yaml"
WIDTH = 16
MARGIN = 0.01


def cost(cell: Cell) -> float | None:
    """A 16-token pass in one-token passes of the same part."""
    found = [w.cost.value for w in cell.pass_widths if w.method == "sbd" and w.role == "decide" and w.query_tokens == WIDTH]
    return found[0] if found else None


def fastest(cell: Cell) -> ArmResult:
    """By the clock, among those that stay within the margin."""
    arms = [arm for arm in cell.arms if not arm.is_ntp and arm.wall_speedup.value is not None]
    kept = [arm for arm in arms if (arm.accuracy_difference.value or 0.0) > -MARGIN]
    return max(kept or arms, key=lambda arm: arm.wall_speedup.value or 0.0)


def figures_of(comparison: Comparison) -> dict[str, float]:
    """The four figures, printed as a table on the way."""
    figures: dict[str, float] = {}
    print("part | session | NTP pass | 16-token pass over it | best arm | fewer passes | wall speedup (95 % interval)")
    for part in ("eager", "engine"):
        cell = comparison.summary(part, 1)
        arm, over = fastest(cell), cost(cell)
        one = next(w.measured_s.value for w in cell.pass_widths if w.method == "ntp")
        wall = arm.wall_speedup
        print(
            f"{part} | {cell.session}, {cell.execution} | {1e3 * (one or 0):.2f} ms | {over:.3f} | {arm.label} | "
            f"{arm.nfe_speedup.value:.2f}x | {wall.value:.2f}x ({wall.low:.2f}-{wall.high:.2f})"
        )
        figures |= {f"t16_over_t1_{part}": round(over or 0.0, 4), f"wall_speedup_{part}": round(wall.value or 0.0, 4)}
    return figures


def main() -> None:
    """Measure (or read RUN), print, write."""
    held = measured_run(SCENARIO)
    comparison = compare(held)
    figures = figures_of(comparison)
    print_void(comparison)
    print(write_results("pass_cost", figures, held.header.environment))


if __name__ == "__main__":
    main()
