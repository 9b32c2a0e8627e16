"""What a recorded run says about acceptance: passes per block, to be replayed on a model that has no SBD checkpoint yet, and
row by row, to say what a batch of other prompts would take.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from harness.errors import RecordError
from harness.record.schema import CaseHeader, PassColumns, Run
from harness.record.store import read_run
from harness.roofline.batches import RecordedRow


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedArm:
    """An SBD case of a run with its prompts, each decoded once."""

    case: CaseHeader
    rows: tuple[RecordedRow, ...]


def passes_per_block(run_dir: Path, block_size: int, label: str | None = None) -> list[int]:
    """Passes that each finished block of each row took in the SBD samples of a run, or of the arm of that ``label`` alone, in
    recorded order. Those of verified blocks are none: there a block may be finished in part (see harness.roofline.replay_checks).

    Raises:
        RecordError: the run holds no full block of this size.
    """
    run = read_run(run_dir)
    sizes = {
        case.case_id: case.arm.get("block_size")
        for case in run.header.cases
        if _replayable(case) and label in (None, case.label)
    }
    found = [
        passes
        for sample in run.samples
        if not sample.warmup and sizes.get(sample.case_id) == block_size
        for row in range(len(sample.rows))
        for passes, decided in blocks_of_row(sample.passes, row)
        if decided == block_size
    ]
    if not found:
        raise RecordError(
            f"{run_dir}: no full block of size {block_size}{'' if label is None else f' and label {label!r}'} in its samples "
            f"(block sizes there: {_known(run)}); "
            "replay with one of those, or give an nfe_speedup"
        )
    return found


def recorded_arms(run: Run, block_size: int) -> tuple[RecordedArm, ...]:
    """The SBD cases of a run with real acceptance and blocks of this size, prompt by prompt, first repeats in the first
    process only.

    A row takes its own passes whatever the other rows do, so of an arm that ran at several batch sizes, or in lockstep and
    ragged, the case with the smallest batches stands for all.

    Raises:
        RecordError: the run holds no such sample.
    """
    taken: dict[str, list[RecordedRow]] = {}
    for sample in run.samples:
        if not sample.warmup and sample.repeat == sample.process == 0:
            taken.setdefault(sample.case_id, []).extend(
                RecordedRow(
                    passes=tuple(passes for passes, _ in blocks_of_row(sample.passes, row) if passes),
                    output_tokens=result.output_tokens,
                )
                for row, result in enumerate(sample.rows)
            )
    smallest: dict[str, CaseHeader] = {}
    for case in sorted(run.header.cases, key=lambda case: case.batch_size):
        if _replayable(case) and case.arm.get("block_size") == block_size and case.case_id in taken:
            arm = {name: value for name, value in case.arm.items() if name != "batching"}
            smallest.setdefault(repr((case.part, case.task, sorted(arm.items()))), case)
    if not smallest:
        raise RecordError(
            f"{run.header.run_id}: no SBD sample with real acceptance and block size {block_size} (block sizes there: "
            f"{_known(run)}); give another run, or one of those block sizes"
        )
    return tuple(RecordedArm(case=case, rows=tuple(taken[case.case_id])) for case in smallest.values())


def blocks_of_row(passes: PassColumns, row: int) -> Iterator[tuple[int, int]]:
    """(passes, decided tokens) of every block of a row, the last one included; a block ends in the pass before it is committed.

    In lockstep a row that has ended goes on committing blocks of no pass.
    """
    taken = decided = 0
    for index, role in enumerate(passes.role):
        if role == "prefill":
            continue
        if passes.kept_tokens[index][row]:
            yield taken, decided
            taken = decided = 0
        taken += passes.active[index][row]
        decided += passes.decided_tokens[index][row]
    yield taken, decided


def _replayable(case: CaseHeader) -> bool:
    """Whether the case decoded whole blocks and chose what to accept by itself."""
    return case.replayed is None and case.arm.get("method") == "sbd"


def _known(run: Run) -> str:
    sizes = {case.arm.get("block_size") for case in run.header.cases if _replayable(case)}
    return ", ".join(sorted({str(size) for size in sizes if size})) or "none"
