"""What a recorded run says about checked drafts: in how many passes a block was drafted, and how far the next-token head agreed
with it, to be replayed on a model that has no SBD checkpoint yet.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.errors import RecordError
from harness.record.schema import CaseHeader, PassColumns, Run
from harness.record.store import read_run


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedChecks:
    """``draft_passes`` of each whole block, with the one it rode along in, where it did; ``misses``: at each of its k-1
    drafts, the share of the blocks that were right so far in which it was wrong.
    """

    draft_passes: tuple[int, ...]
    misses: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One check of one row: ``agreed`` drafts of a block that took ``draft_passes``. ``last``: the answer ended in it, so how
    far the check would have gone on agreeing is not known.
    """

    draft_passes: int
    agreed: int
    last: bool


def recorded_checks(run_dir: Path, block_size: int, label: str | None) -> RecordedChecks:
    """Over all rows of the verified SBD samples of a run with blocks of this size, or of the arm of that ``label`` alone.

    Raises:
        RecordError: the run holds no such sample, or no block in it was checked to its end.
    """
    run = read_run(run_dir)
    cases = {
        case.case_id for case in run.header.cases if _replayable(case, block_size) and label in (None, case.label)
    }  # fmt: skip
    checks = [
        check
        for sample in run.samples
        if sample.case_id in cases and not sample.warmup
        for row in range(len(sample.rows))
        for check in checks_of_row(sample.passes, row, block_size)
    ]
    whole = tuple(check.draft_passes for check in checks if not check.last)
    if not whole:
        wanted = "" if label is None else f" and label {label!r}"
        raise RecordError(
            f"{run_dir}: no block of size {block_size}{wanted} that the next-token head checked to its end; verified SBD "
            f"there: {_known(run)}"
        )
    return RecordedChecks(draft_passes=whole, misses=miss_rates(checks, block_size - 1))


def checks_of_row(passes: PassColumns, row: int, block_size: int) -> Iterator[Check]:
    """Every check of a row, in order. A block opened with the check of the one before it, which was then all right, or with the
    prompt, is drafted in that pass already.
    """
    own = [index for index, role in enumerate(passes.role) if role != "prefill" and passes.active[index][row]]
    drafted = int(passes.role[0] == "prefill" and passes.logit_tokens[0][row] > 1)
    for index in own:
        kept = passes.kept_tokens[index][row]
        if not kept:
            drafted += 1
            continue
        yield Check(draft_passes=drafted, agreed=kept - 1, last=index == own[-1])
        drafted = int(kept == block_size)


def miss_rates(checks: Sequence[Check], drafts: int) -> tuple[float, ...]:
    """At each of ``drafts`` places, how often a draft was wrong where all before it were right; an answer that ended leaves
    those behind it unknown, and they are not counted (Kaplan and Meier, 1958). Where nobody came, as at the place before.
    """
    rates: list[float] = []
    for place in range(drafts):
        missed = sum(check.agreed == place and not check.last for check in checks)
        reached = missed + sum(check.agreed > place for check in checks)
        rates.append(missed / reached if reached else rates[-1])
    return tuple(rates)


def _replayable(case: CaseHeader, block_size: int | None = None) -> bool:
    """Whether the case had whole blocks checked, by the model's own word."""
    arm: dict[str, Any] = case.arm
    mine = case.replayed is None and arm.get("method") == "sbd_verified" and "least_confidence" not in arm
    return mine and block_size in (None, arm.get("block_size"))


def _known(run: Run) -> str:
    labels = dict.fromkeys(case.label for case in run.header.cases if _replayable(case))
    return ", ".join(map(repr, labels)) or "none"
