"""From a figure the paper published to the project's own for the same cell, one correction at a time.

Every step is the whole model evaluated again with one more correction, so a step's share depends on those before it; the two
ends do not. Knows no terminal.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from harness.errors import UserError
from harness.roofline.adjustable import MODEL, AdjustableModel, Cell, slowdown, wall_speedup
from harness.roofline.batches_assumed import slowest_row_passes
from harness.roofline.ceilings import Ceilings
from harness.roofline.corrections import Kind, corrections
from harness.roofline.published import published_slowdowns, published_speedups
from harness.roofline.speedup import predict_speedup


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One correction and the figure before and after it. ``after`` is None where it cannot be priced; ``reason`` says why."""

    name: str
    kind: Literal["reproduction"] | Kind
    reason: str
    source: str
    before: float
    after: float | None

    @property
    def factor(self) -> float | None:
        """How many times larger the figure becomes; None where it cannot be priced."""
        return None if self.after is None else self.after / self.before


@dataclass(frozen=True, slots=True, kw_only=True)
class Waterfall:
    """The steps from ``published`` to ``ours``, which is predict_speedup's answer and not the last step's.

    ``nfe_speedup`` and ``passes_per_block``, those of the slowest row, are None in Table 3, which knows no passes.
    """

    figure: Literal["slowdown", "wall_speedup"]
    cell: Cell
    nfe_speedup: float | None
    passes_per_block: float | None
    published: float
    steps: tuple[Step, ...]
    ours: float

    @property
    def factor_by_kind(self) -> dict[str, float]:
        """Product of the factors of each kind of step; all of them together lead from ``published`` to ``ours``."""
        products: dict[str, float] = dict.fromkeys((step.kind for step in self.steps), 1.0)
        for step in self.steps:
            products[step.kind] *= 1.0 if step.factor is None else step.factor
        return products


def explain_slowdown(cell: Cell, ceilings: Ceilings) -> Waterfall:
    """Table 3, time(k) / time(1): from the published cell to ``ceilings``, which must be of the datasheet rung.

    Raises:
        UserError: Table 3 has no such cell, or the ceilings are of another rung.
    """
    key = (cell.batch_size, cell.kv_length, cell.block_size)
    published = _published(3, key, published_slowdowns())
    steps = _steps(published, lambda model: slowdown(model, cell), ceilings)
    priced = predict_speedup(
        MODEL, ceilings.dtype, ceilings, block_size=cell.block_size, passes_per_block=1, batch=cell.batch_size,
        context_tokens=cell.kv_length,
    )  # fmt: skip
    ours = priced.later.expected_s / priced.ntp.expected_s
    return Waterfall(
        figure="slowdown", cell=cell, nfe_speedup=None, passes_per_block=None, published=published, steps=steps, ours=ours
    )


def explain_speedup(cell: Cell, nfe_speedup: float, ceilings: Ceilings) -> Waterfall:
    """Table 4, the wall speedup: from the published cell to ``ceilings``, which must be of the datasheet rung.

    The paper gives every row block size / ``nfe_speedup`` passes per block; here that is the mean, and in a batch the slowest
    row decides (see slowest_row_passes for the spread it assumes).

    Raises:
        UserError: Table 4 has no such cell, or the ceilings are of another rung.
    """
    published = _published(4, (cell.batch_size, cell.kv_length, cell.block_size, nfe_speedup), published_speedups())
    mean_passes = cell.block_size / nfe_speedup
    slowest_passes = slowest_row_passes(cell.block_size, mean_passes, cell.batch_size)
    steps = _steps(published, lambda model: wall_speedup(model, cell, mean_passes, slowest_passes), ceilings)
    ours = predict_speedup(
        MODEL, ceilings.dtype, ceilings, block_size=cell.block_size, passes_per_block=slowest_passes,
        batch=cell.batch_size, context_tokens=cell.kv_length,
    ).wall_speedup  # fmt: skip
    return Waterfall(
        figure="wall_speedup", cell=cell, nfe_speedup=nfe_speedup, passes_per_block=slowest_passes, published=published,
        steps=steps, ours=ours,
    )  # fmt: skip


def _steps(published: float, figure: Callable[[AdjustableModel], float], ceilings: Ceilings) -> tuple[Step, ...]:
    if ceilings.rung != "datasheet":
        raise UserError(f"the paper's figures are explained on a datasheet, not on the {ceilings.rung} rung")
    model = AdjustableModel()
    before = figure(model)
    steps = [
        Step(
            name="as printed",
            kind="reproduction",
            reason="the paper's own model, evaluated again; the published figure is this one to three decimals (in four cells "
            "of Table 4 it is one less in the last)",
            source="paper, section 4, fig. 11, eq. 16",
            before=published,
            after=before,
        )
    ]
    for one in corrections(ceilings):
        model = replace(model, **one.changes)
        after = figure(model)
        steps.append(Step(name=one.name, kind=one.kind, reason=one.reason, source=one.source, before=before, after=after))
        before = after
    reason = f"not priced: {ceilings.fixed_reason}, and every pass of either arm pays it; a calibration measures it"
    steps.append(
        Step(name="launches", kind="omission", reason=reason, source="harness/roofline/ceilings.py", before=before, after=None)
    )
    return tuple(steps)


def _published(table: int, key: tuple[float, ...], figures: Mapping[Any, float]) -> float:
    if key in figures:
        return figures[key]
    names = ("batch size", "KV length", "block size", "NFE speedup")[: len(key)]
    given = ", ".join(f"{name} {value:g}" for name, value in zip(names, key, strict=True))
    columns = zip(names, zip(*figures, strict=True), strict=True)
    allowed = "; ".join(f"{name} {', '.join(map(str, sorted(set(values))))}" for name, values in columns)
    raise UserError(f"Table {table} of the paper has no cell with {given}; it has: {allowed}")
