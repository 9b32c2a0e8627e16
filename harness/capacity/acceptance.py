"""Passes per block, with their source: the assumption of a capacity plan that no datasheet contains."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, get_args

from harness.errors import UserError
from harness.frozen import frozen
from harness.roofline.batches import slowest_row_passes
from harness.roofline.operation import interpolate
from harness.roofline.step import DecodeArm
from harness.scenario.arms import Batching
from harness.scenario.replay import TABLE1, TABLE1_TASKS, BaseModelName

TABLE1_BLOCK_SIZE = 16
TABLE1_LEVELS = ("low", "high")


@frozen
class AssumedAcceptance:
    """Passes that a block of ``block_size`` tokens takes, the committing or checking one included.

    ``passes_per_block``  mean of one row
    ``source``            where that figure comes from, in words
    ``batching``          ragged: no row waits for another one, so the mean holds at any batch (harness.roofline.step)
    ``slowest_row``       (batch, mean passes until its slowest row is done), by batch, for rows in lockstep; batch 1 is
                          ``passes_per_block``. Empty in lockstep: as the assumed distribution has it (1 + binomial)
    ``tokens_per_check``  verified SBD: mean tokens of a block that its check makes final; None: blocks are committed whole

    Raises:
        UserError: fewer than one pass per block or more than k (verified: k + 1); tokens per check outside 1 to k, or in
            lockstep; batches not in order; a larger batch with fewer passes.
    """

    block_size: int
    passes_per_block: float
    source: str
    batching: Batching = "ragged"
    slowest_row: tuple[tuple[int, float], ...] = ()
    tokens_per_check: float | None = None

    def __post_init__(self) -> None:
        if self.tokens_per_check is not None:
            self._check_verified(self.tokens_per_check)
        elif self.block_size < 1 or not 1 <= self.passes_per_block <= self.block_size:
            raise UserError(
                f"got block size {self.block_size} and {self.passes_per_block:g} passes per block; a block takes at least 1 "
                "pass and at most one per token, so 1 <= NFE speedup <= block size"
            )
        if self.slowest_row and self.batching == "ragged":
            raise UserError("passes of a slowest row were given for a ragged batch, whose rows do not wait; leave out one")
        batches, passes = zip(*self._points, strict=True)
        rising = list(batches) == sorted(set(batches)) and list(passes) == sorted(passes)
        if not rising or passes[-1] > self.block_size:
            given = ", ".join(f"{batch}={value:g}" for batch, value in self._points)
            raise UserError(
                f"passes per block by batch {given} (batch 1 is the mean of a row); batches must rise from 2, and passes with "
                f"them to at most the block size {self.block_size}"
            )

    def _check_verified(self, tokens: float) -> None:
        """A block that was drafted whole and then refused at once takes a pass more than it has tokens."""
        if not 1 <= tokens <= self.block_size or not 1 <= self.passes_per_block <= self.block_size + 1:
            raise UserError(
                f"got {tokens:g} tokens per check and {self.passes_per_block:g} passes per check at block size "
                f"{self.block_size}; a check makes 1 to {self.block_size} tokens final and takes 1 to {self.block_size + 1} "
                "passes, so tokens per check are at least the NFE speedup"
            )
        if self.batching == "lockstep":
            raise UserError(
                "rows of verified SBD do not wait for one another; leave out --tokens-per-check, or --batching lockstep and "
                "--passes-at"
            )

    @property
    def nfe_speedup(self) -> float:
        """Mean tokens per pass of a row; k / l where blocks are committed whole."""
        return (self.tokens_per_check or self.block_size) / self.passes_per_block

    def arm_at(self, batch: Any) -> DecodeArm:
        """How rows decode in a batch; ``batch`` is a number or a numpy array of them."""
        return DecodeArm(
            block_size=self.block_size,
            passes_per_block=self.passes_at(batch),
            batching=self.batching,
            tokens_per_check=self.tokens_per_check,
        )

    @property
    def largest_batch(self) -> int | None:
        """The largest batch in ``slowest_row``; None where any batch is known."""
        return self.slowest_row[-1][0] if self.slowest_row else None

    def passes_at(self, batch: Any) -> Any:
        """Passes per block of a batch: the mean of a row, in lockstep of the slowest row.

        ``batch`` is a number or a numpy array of them, and in lockstep so is the result. ``slowest_row`` holds the predictions
        of a model of lockstep batches. Between two given batches the result is linear in the logarithms of both; beyond
        ``largest_batch`` it is undefined.
        """
        if self.batching == "ragged":
            return self.passes_per_block
        if not self.slowest_row:
            return slowest_row_passes(self.block_size, self.passes_per_block, batch)
        return interpolate(self._points, batch)

    @property
    def _points(self) -> tuple[tuple[int, float], ...]:
        return ((1, self.passes_per_block), *self.slowest_row)

    def in_lockstep(self, slowest_row: Sequence[tuple[int, float]] = ()) -> AssumedAcceptance:
        """The same acceptance of a row, in batches whose rows wait for the slowest one."""
        return replace(self, batching="lockstep", slowest_row=tuple(slowest_row))


def from_speedup(block_size: int, speedup: float, tokens_per_check: float | None = None) -> AssumedAcceptance:
    """Acceptance from a mean number of tokens per pass; with ``tokens_per_check`` of verified SBD.

    Raises:
        UserError: it is not between 1 and the block size.
    """
    if not speedup > 0 or (tokens_per_check is None and not 1 <= speedup <= block_size):
        raise UserError(f"NFE speedup {speedup:g} at block size {block_size}: allowed are 1 to {block_size} tokens per pass")
    checked = "" if tokens_per_check is None else f" and {tokens_per_check:g} tokens per check"
    return AssumedAcceptance(
        block_size=block_size,
        passes_per_block=(tokens_per_check or block_size) / speedup,
        tokens_per_check=tokens_per_check,
        source=f"NFE speedup {speedup:g}{checked}, given by hand",
    )


CLAIMED_TOKENS_PER_PASS = 3.0


def assumed_acceptance(block_size: int) -> AssumedAcceptance:
    """The lower end of the claim "3 to 5 times fewer passes", where nobody gave an acceptance."""
    claimed = from_speedup(block_size, min(CLAIMED_TOKENS_PER_PASS, block_size))
    return replace(
        claimed, source=f"assumed, for want of one: {claimed.nfe_speedup:g} tokens per pass, the lower end of the claim"
    )


def from_table1(block_size: int, cell: str) -> AssumedAcceptance:
    """Acceptance of one cell of the paper's Table 1, written ``model/task/low`` or ``model/task/high`` (the bound γ).

    Raises:
        UserError: no such cell, or a block size that Table 1 does not have.
    """
    models = get_args(BaseModelName)
    model, _, rest = cell.lower().partition("/")
    task, _, level = rest.rpartition("/")
    known = {name.lower(): name for name in TABLE1_TASKS}
    if model not in models or task.lower() not in known or level not in TABLE1_LEVELS:
        cells = [f"{base}/{name}/{bound}" for base in models for name in known.values() for bound in TABLE1_LEVELS]
        near = difflib.get_close_matches(cell, cells, n=2, cutoff=0.5)
        hint = f" (did you mean {' or '.join(near)}?)" if near else ""
        raise UserError(
            f"no cell of Table 1 is called {cell!r}{hint}; write MODEL/TASK/LEVEL with a model of {', '.join(models)}; "
            f"a task of {', '.join(known.values())}; and the bound γ {' or '.join(TABLE1_LEVELS)}"
        )
    if block_size != TABLE1_BLOCK_SIZE:
        raise UserError(
            f"Table 1 was taken at block size {TABLE1_BLOCK_SIZE}, not {block_size}; leave out --block-size, or give "
            "--nfe-speedup or --from-run"
        )
    speedup = TABLE1[model, known[task.lower()], f"sbd_gamma_{level}"]
    return AssumedAcceptance(
        block_size=block_size,
        passes_per_block=block_size / speedup,
        source=f"Table 1 of arXiv 2509.04185: {model}, {known[task.lower()]}, γ {level}: {speedup:g} tokens per pass",
    )


def from_passes(block_size: int, passes: Sequence[int], run: str) -> AssumedAcceptance:
    """Acceptance of a recorded run: the mean over its finished blocks."""
    return AssumedAcceptance(
        block_size=block_size, passes_per_block=sum(passes) / len(passes), source=f"{len(passes)} blocks recorded in {run}"
    )
