"""Every way of decoding on one bench: lossy solvers, SBD that the next-token head checks, rivals, next-token prediction.

    python -m benchmarks.solvers RUN [RUN ...]

RUN: directories of runs of scenarios/every_arm.yaml and its like; one of them timed. Per task and arm: accuracy, NFE speedup,
query tokens per final token, wall speedup with its interval, and what the arm is lossless against.

best_lossless_nfe_speedup   of the arms that are lossless against greedy NTP, on the easy word problems, one prompt at a time
lossless_mismatches         prompts on which such an arm wrote something else than NTP, of lossless_prompts
best_lossy_nfe_speedup_TASK best lossy arm at NTP's own accuracy or better on a task, best_lossless_nfe_speedup_TASK beside it
fastest_…_wall_speedup_TASK the same by the clock; chosen on the very prompts, so it flatters both a little
untimed_…                   the same of runs that nobody timed, which take more prompts and decode them in batches
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from benchmarks.results_file import write_results
from harness.analysis.answer import compare
from harness.analysis.results import ArmResult, Cell
from harness.record.store import read_run
from harness.stats.quantity import Quantity

EASY = "word_problems"
GREEDY = "greedy NTP, same weights"


@dataclass(frozen=True, slots=True)
class Row:
    """One arm on one task of one part."""

    cell: Cell
    arm: ArmResult

    @property
    def lossless(self) -> bool:
        """Against greedy NTP, and nothing less."""
        return self.arm.lossless == GREEDY

    @property
    def as_accurate(self) -> bool:
        """No prompt fewer right than NTP on the same prompts."""
        difference = self.arm.accuracy_difference.value
        return difference is not None and difference >= 0


def rows_of(cells: Iterable[Cell]) -> list[Row]:
    """Task by task; a cell that sums up several tasks is none of them."""
    return [Row(cell, arm) for cell in cells if cell.task is not None for arm in cell.arms]


def shown(quantity: Quantity, scale: float = 1.0, digits: int = 2) -> str:
    """Value and interval."""
    if quantity.value is None:
        return "-"
    ends = [quantity.low, quantity.high]
    interval = "" if None in ends else f" ({', '.join(f'{scale * end:.{digits}f}' for end in ends if end is not None)})"
    return f"{scale * quantity.value:.{digits}f}{interval}"


def table(rows: list[Row]) -> str:
    """All rows, fastest first within a part and task."""
    lines = [
        "part | task | prompts | arm | accuracy, % | NFE speedup | query tokens per final | wall speedup | as NTP, % | lossless"
    ]
    for row in sorted(rows, key=lambda row: (row.cell.part, row.cell.task or "", -(row.arm.nfe_speedup.value or 0))):
        fed = row.arm.query_tokens_per_token
        lines.append(
            f"{row.cell.part} | {row.cell.task} | {row.arm.prompts} | {row.arm.label} | {shown(row.arm.accuracy, 100)} | "
            f"{shown(row.arm.nfe_speedup)} | {'-' if fed is None else f'{fed:.2f}'} | {shown(row.arm.wall_speedup)} | "
            f"{shown(row.arm.identical_to_ntp, 100, 1)} | {row.arm.lossless or ('NTP itself' if row.arm.is_ntp else 'lossy')}"
        )
    return "\n".join(lines)


def best(rows: Iterable[Row]) -> Row | None:
    """The fewest passes."""
    known = [row for row in rows if row.arm.nfe_speedup.value is not None]
    return max(known, key=lambda row: row.arm.nfe_speedup.value or 0, default=None)


def figures(rows: list[Row]) -> dict[str, float]:
    """Of the timed cells of one row a pass, then of untimed ones; NTP itself is neither lossy nor a way to be lossless."""
    arms = [row for row in rows if not row.arm.is_ntp]
    timed = [row for row in arms if row.arm.decode_s.value is not None and row.cell.batch_size == 1]
    untimed = [row for row in arms if row.arm.decode_s.value is None]
    found = mismatches(timed) | best_of_tasks(timed)
    if f"best_lossless_nfe_speedup_{EASY}" in found:
        found["best_lossless_nfe_speedup"] = found[f"best_lossless_nfe_speedup_{EASY}"]
    if untimed:
        found |= {f"untimed_{name}": value for name, value in (mismatches(untimed) | best_of_tasks(untimed)).items()}
    return found


def mismatches(rows: list[Row]) -> dict[str, float]:
    """Prompts of the arms that are lossless against NTP, and how many of them it wrote otherwise."""
    exact = [row for row in rows if row.lossless and row.arm.identical_to_ntp.value is not None]
    return {
        "lossless_prompts": sum(row.arm.prompts for row in exact),
        "lossless_mismatches": round(sum(row.arm.prompts * (1 - (row.arm.identical_to_ntp.value or 0)) for row in exact)),
    }


def best_of_tasks(rows: list[Row]) -> dict[str, float]:
    """Task by task, the lossless arm and the lossy one of NTP's accuracy that make the fewest passes, and the fastest ones."""
    found: dict[str, float] = {}
    for task in dict.fromkeys(row.cell.task for row in rows):
        of_task = [row for row in rows if row.cell.task == task]
        kinds = {
            "lossless": [row for row in of_task if row.lossless],
            "lossy": [row for row in of_task if not row.lossless and row.as_accurate],
        }
        for kind, ones in kinds.items():
            if (one := best(ones)) is not None:
                found[f"best_{kind}_nfe_speedup_{task}"] = round(one.arm.nfe_speedup.value or 0, 3)
                by_clock = f", {shown(one.arm.wall_speedup)}x by the clock" if one.arm.wall_speedup.value else ""
                which = f"{task}, {one.arm.prompts} prompts: best {kind}: {one.arm.label}"
                print(f"{which}, {shown(one.arm.nfe_speedup)}x by passes{by_clock}")
            clocked = [row for row in ones if row.arm.wall_speedup.value]
            fastest = max(clocked, key=lambda row: row.arm.wall_speedup.value or 0, default=None)
            if fastest is not None:
                found[f"fastest_{kind}_wall_speedup_{task}"] = round(fastest.arm.wall_speedup.value or 0, 3)
                print(f"{task}: fastest {kind}: {fastest.arm.label}, {shown(fastest.arm.wall_speedup)}x by the clock")
    return found


def main() -> None:
    """Read, print, write."""
    if len(sys.argv) < 2:
        sys.exit("give at least one run directory: python -m benchmarks.solvers RUN [RUN ...]")
    runs = [read_run(Path(name)) for name in sys.argv[1:]]
    rows = [row for run in runs for row in rows_of(compare(run).cells)]
    print(table(rows))
    found = figures(rows)
    print(*(f"{name}: {value}" for name, value in found.items()), sep="\n")
    print(write_results("solvers", found, runs[0].header.environment))


if __name__ == "__main__":
    main()
