"""What a recorded run says about acceptance: passes per block, to be replayed on a model that has no SBD checkpoint yet."""

from __future__ import annotations

from pathlib import Path

from harness.errors import RecordError
from harness.record import PassColumns
from harness.store import read_run


def passes_per_block(run_dir: Path, block_size: int) -> list[int]:
    """Passes that each finished block of each row took in the SBD samples of a run, in recorded order.

    Raises:
        RecordError: the run holds no full block of this size.
    """
    run = read_run(run_dir)
    sizes = {case.case_id: case.arm.get("block_size") for case in run.header.cases if case.replayed is None}
    found = [
        passes
        for sample in run.samples
        if not sample.warmup and sizes.get(sample.case_id) == block_size
        for row in range(len(sample.rows))
        for passes in _of_row(sample.passes, row, block_size)
    ]
    if not found:
        known = sorted({str(size) for size in sizes.values() if size})
        raise RecordError(
            f"{run_dir}: no full block of size {block_size} in its samples (block sizes there: {', '.join(known) or 'none'}); "
            "replay with one of those, or give an nfe_speedup"
        )
    return found


def _of_row(passes: PassColumns, row: int, block_size: int) -> list[int]:
    """A block ends where the next pass commits it; the last one counts only if all its slots were decided."""
    blocks: list[int] = []
    taken = decided = 0
    for index, role in enumerate(passes.role):
        if role == "prefill":
            continue
        if role == "commit+decide":
            blocks.extend([taken] if decided == block_size else [])
            taken = decided = 0
        taken += passes.active[index][row]
        decided += passes.decided_tokens[index][row]
    return [*blocks, taken] if decided == block_size else blocks
