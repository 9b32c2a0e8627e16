"""`sbd roofline --paper --explain`: a published figure, the project's own for that cell, and every step between them."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Any

from rich.bar import Bar

from harness.cli.options import RooflineOptions
from harness.cli.output import grid, json_text
from harness.errors import UserError
from harness.hardware.profile import load_profile
from harness.roofline.ceilings import ceilings_from_profile
from harness.roofline.paper import MODEL, PaperCell
from harness.roofline.paper_steps import PaperWaterfall, explain_slowdown, explain_speedup

EXPLAIN_VERSION = 1
PART = "h100-sxm"  # whose peaks and bandwidth the paper's constants are
# Long block, long context, batch 1: there the printed model is farthest from its own corrected dimensions.
DEFAULT_CELL = {"batch": 1, "context": 65536, "block_size": 64, "nfe_speedup": 4}
OPTIONS = ("paper", "explain", "batch", "context", "block_size", "nfe_speedup", "dtype", "as_json")
BAR_WIDTH = 32
HEADS = {"slowdown": "Table 3, time(k) / time(1)", "wall_speedup": "Table 4, wall speedup"}
KINDS = ("fault", "omission", "choice")
NOTE = """\
fault: the paper's code does not compute what its text says; omission: a pass does this work, and
the paper leaves it out; choice: another assumption, where the paper's is not wrong.
Each step is the model evaluated again on top of the steps before it: in another order the factors
differ, the ends do not. Memory and arithmetic of an operation overlap fully, as in the paper."""


def explain_paper(options: RooflineOptions) -> str:
    """The text of the command. Table 4 is left out, with a reason, for a cell in Table 3 only.

    Raises:
        UserError: an option without effect here, a cell that is not in the paper, an unknown dtype.
        UnknownHardwareError: the part has no peak for the dtype.
    """
    given = options.given
    strange = [f"--{name.replace('_', '-')}" for name in given if name not in OPTIONS]
    if strange or "paper" not in given:
        wrong = f"{', '.join(strange)} was given with --explain" if strange else "--explain was given without --paper"
        raise UserError(
            f"{wrong}; it explains a cell of the paper's tables: sbd roofline --paper --explain, with --batch, --context, "
            "--block-size, --nfe-speedup, --dtype or --json"
        )
    asked: dict[str, Any] = {name: getattr(options, name) if name in given else value for name, value in DEFAULT_CELL.items()}
    ceilings = ceilings_from_profile(load_profile(PART), options.dtype)
    cell = PaperCell(batch_size=asked["batch"], kv_length=asked["context"], block_size=asked["block_size"])
    table3, table4, reason = explain_slowdown(cell, ceilings), None, None
    try:
        table4 = explain_speedup(cell, asked["nfe_speedup"], ceilings)
    except UserError as error:
        if "nfe_speedup" in given:
            raise
        reason = str(error)
    if options.as_json:
        basis = {
            "version": EXPLAIN_VERSION,
            "model": MODEL.name,
            "hardware": PART,
            "rung": ceilings.rung,
            "dtype": options.dtype,
        }
        tables = {"table3": _as_data(table3), "table4": table4 and _as_data(table4)}
        return json_text(basis | tables | {"table4_reason": reason})
    ours = f"{MODEL.name}, {options.dtype}, on {PART} ({ceilings.rung})"
    last = str(reason) if table4 is None else _waterfall(table4, ours)
    reasons = (f"{at:>2}  {step.name} ({step.kind}): {step.reason} [{step.source}]" for at, step in enumerate(table3.steps, 1))
    return "\n\n".join([_waterfall(table3, ours), last, "\n".join(reasons), NOTE])


def _as_data(waterfall: PaperWaterfall) -> dict[str, object]:
    return asdict(waterfall) | {"factor_by_kind": waterfall.factor_by_kind}


def _waterfall(waterfall: PaperWaterfall, ours: str) -> str:
    """A table of steps with bars."""
    ends = (waterfall.published, waterfall.ours)
    figures = [*ends, *(step.after for step in waterfall.steps if step.after is not None)]
    scale = min(figures), max(figures)
    bar = f"{scale[0]:<{BAR_WIDTH // 2}.3f}{scale[1]:>{BAR_WIDTH // 2}.3f}"
    rows = [["", "published", f"{ends[0]:.3f}", "", ratio_bar(ends[0], ends[0], scale)]]
    for number, step in enumerate(waterfall.steps, 1):
        if step.after is None:
            rows.append([str(number), step.name, "?", "", "not priced"])
        else:
            drawn = ratio_bar(step.before, step.after, scale)
            rows.append([str(number), step.name, f"{step.after:.3f}", f"x{step.factor:.3f}", drawn])
    rows.append(["", "ours", f"{ends[1]:.3f}", f"x{ends[1] / ends[0]:.3f}", ratio_bar(ends[1], ends[1], scale)])
    table = grid(("", "step", "figure", "factor", bar), rows, right=("", "figure", "factor"))
    factors = ", ".join(f"{kind}s x{factor:.3f}" for kind, factor in waterfall.factor_by_kind.items() if kind in KINDS)
    return f"{_title(waterfall)}\nfrom the paper's to that of {ours}\n{factors}\n\n{table}"


def _title(waterfall: PaperWaterfall) -> str:
    cell = waterfall.cell
    title = f"{HEADS[waterfall.figure]}: batch {cell.batch_size}, KV length {cell.kv_length:,}, k={cell.block_size}"
    if waterfall.nfe_speedup is None:
        return title
    return f"{title}, NFE speedup {waterfall.nfe_speedup:g} (slowest row: {waterfall.passes_per_block:.2f} passes)"


def ratio_bar(before: float, after: float, scale: tuple[float, float]) -> Bar:
    """A bar between two figures on a logarithmic scale, where equal factors are equally long; a tick where they agree."""
    low, high = scale
    span = math.log(high / low) or 1.0
    tick = 1 / (8 * BAR_WIDTH)
    begin, end = sorted(math.log(figure / low) / span for figure in (before, after))
    begin = min(begin, 1 - tick)
    return Bar(size=1.0, begin=begin, end=max(end, begin + tick), width=BAR_WIDTH)
