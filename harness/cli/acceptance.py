"""`sbd acceptance RUN`: an arm's recorded acceptance as other engines take it, to be forced there."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

from harness.analysis.answer import Derived
from harness.analysis.evidence.acceptance import ForcedAcceptance, forced_acceptance
from harness.analysis.evidence.best_settings import ways
from harness.cli.output import AsJson, give, lines_of
from harness.errors import UserError
from harness.formatting import percent
from harness.record.schema import Run
from harness.record.store import read_run

VERSION = 1


def acceptance_command(run: Path, arm: str | None = None, as_json: AsJson = False) -> None:
    """Write an arm's acceptance as vLLM, SGLang, TensorRT-LLM and aiconfigurator take it.

    An engine that is given it can be timed with that acceptance at full size. What it measures is replayed: given, not found.

    Args:
        run ({RUN}): a run directory
        arm: label of an arm; default: the fastest that decodes without loss
    """
    held = read_run(run)
    found = forced_acceptance(held, arm or _fastest(held))
    give(as_json, lambda: {"version": VERSION, **asdict(found), "engines": found.engines()}, lambda: _text(found))


def _fastest(run: Run) -> str:
    """Label of the fastest arm without loss.

    Raises:
        UserError: the run has none.
    """
    cells = Derived(run, ()).comparison.cells
    found = [way for cell in cells if cell.is_summary for way in ways(cell) if way.lossless or way.arm.served]
    if not found:
        raise UserError("the run has no arm that decodes without loss; give one that verifies its drafts with --arm")
    return max(found, key=lambda way: way.speed.value or 0.0).arm.label


def _text(found: ForcedAcceptance) -> str:
    shares = ", ".join(f"{number}: {percent(rate)}" for number, rate in enumerate(found.rates, 1))
    lines = [
        f"{found.label}: {found.tokens_per_pass:.2f} tokens a verifying pass, over {found.passes:,} passes",
        f"drafts accepted, at least: {shares}",
    ]
    if found.own_draft_passes:
        lines.append(f"{found.own_draft_passes:.2f} drafting passes of the same model for each; no engine's figure has them")
    return lines_of(*lines, "", *(f"{engine:15} {words}" for engine, words in found.engines().items()))
