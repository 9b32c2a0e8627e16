"""Every way of decoding on one bench: lossy solvers, SBD that the next-token head checks, rivals, next-token prediction.

    python -m benchmarks.solvers RUN [RUN ...]

RUN: directories of runs of scenarios/solvers.yaml and its like; one of them timed. Per task and arm: accuracy, NFE speedup,
query tokens per final token, wall speedup with its interval, and what the arm is lossless against.

best_lossless_nfe_speedup   of the arms that are lossless against greedy NTP, on the easy word problems, one prompt at a time
lossless_mismatches         prompts on which such an arm wrote something else than NTP, of lossless_prompts
best_lossy_nfe_speedup_TASK best lossy arm at NTP's own accuracy or better on a task, best_lossless_nfe_speedup_TASK beside it
fastest_…_wall_speedup_TASK the same by the clock; chosen on the very prompts, so it flatters both a little
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from benchmarks.results_file import write_results
from harness.compare import compare
from harness.compare_values import ArmResult, Cell
from harness.stats import Quantity
from harness.store import read_run

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
    def query_tokens_per_final(self) -> float | None:
        """Tokens fed per token that became final."""
        fed = self.arm.query_tokens_per_pass.value
        return None if fed is None or not self.arm.decode_tokens else fed * self.arm.passes / self.arm.decode_tokens

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
        fed = row.query_tokens_per_final
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
    """Of the timed cells of one row a pass; NTP itself is neither lossy nor a way to be lossless."""
    timed = [row for row in rows if row.arm.decode_s.value is not None and row.cell.batch_size == 1 and not row.arm.is_ntp]
    exact = [row for row in timed if row.lossless and row.arm.identical_to_ntp.value is not None]
    found: dict[str, float] = {
        "lossless_prompts": sum(row.arm.prompts for row in exact),
        "lossless_mismatches": round(sum(row.arm.prompts * (1 - (row.arm.identical_to_ntp.value or 0)) for row in exact)),
    }
    for task in dict.fromkeys(row.cell.task for row in timed):
        of_task = [row for row in timed if row.cell.task == task]
        lossless_ones = [row for row in of_task if row.lossless]
        lossy_ones = [row for row in of_task if not row.lossless and row.as_accurate]
        lossless, lossy = best(lossless_ones), best(lossy_ones)
        for name, one in (("lossless", lossless), ("lossy", lossy)):
            if one is not None:
                found[f"best_{name}_nfe_speedup_{task}"] = round(one.arm.nfe_speedup.value or 0, 3)
                passes, wall = shown(one.arm.nfe_speedup), shown(one.arm.wall_speedup)
                print(f"{task}: best {name}: {one.arm.label}, {passes}x by passes, {wall}x by the clock")
        for name, ones in (("lossless", lossless_ones), ("lossy", lossy_ones)):
            fastest = max(
                (row for row in ones if row.arm.wall_speedup.value),
                key=lambda row: row.arm.wall_speedup.value or 0,
                default=None,
            )
            if fastest is not None:
                found[f"fastest_{name}_wall_speedup_{task}"] = round(fastest.arm.wall_speedup.value or 0, 3)
                print(f"{task}: fastest {name}: {fastest.arm.label}, {shown(fastest.arm.wall_speedup)}x by the clock")
        if task == EASY and lossless is not None:
            found["best_lossless_nfe_speedup"] = round(lossless.arm.nfe_speedup.value or 0, 3)
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
