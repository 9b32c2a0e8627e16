"""`sbd roofline --from-run`: what batches of a recorded run's prompts would take and gain. Priced, not run; needs no torch."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from harness.models import ModelShape
    from harness.roofline.ceilings import Ceilings
    from harness.roofline.recorded_acceptance import RecordedArm
    from harness.scenario.arms import Batching

BATCHES_VERSION = 1


def describe_batches(
    shape: ModelShape, hardware: str, dtype: str, run_dir: Path, block_size: int, batch: int, context: int
) -> dict[str, Any]:
    """Passes and speedup of batches as plain data: one entry per SBD arm and task of the run, each in lockstep and ragged.

    Raises:
        UnknownHardwareError: no such profile.
        RecordError: no run, or no SBD arm of this block size with real acceptance.
        UserError: more rows than recorded prompts.
    """
    from harness.hardware.profile import load_profile
    from harness.record.store import read_run
    from harness.roofline.ceilings import ceilings_of
    from harness.roofline.recorded_acceptance import recorded_arms

    ceilings = ceilings_of(load_profile(hardware), dtype)
    batchings: tuple[Batching, ...] = ("lockstep", "ragged")
    arms = [
        {
            "case_id": arm.case.case_id, "part": arm.case.part, "task": arm.case.task, "label": arm.case.label,
            "recorded_model": arm.case.model.name, "recorded_batch": arm.case.batch_size, "prompts": len(arm.rows),
        } | {name: _predicted(arm, name, shape, dtype, ceilings, block_size, batch, context) for name in batchings}
        for arm in recorded_arms(read_run(run_dir), block_size)
    ]  # fmt: skip
    return {
        "version": BATCHES_VERSION, "model": shape.name, "hardware": hardware, "dtype": dtype, "rung": ceilings.rung,
        "block_size": block_size, "batch": batch, "context_tokens": context, "run": str(run_dir), "arms": arms,
    }  # fmt: skip


def _predicted(
    arm: RecordedArm, batching: Batching, shape: ModelShape, dtype: str, ceilings: Ceilings, block_size: int, batch: int,
    context: int,
) -> dict[str, Any]:  # fmt: skip
    from harness.roofline.batch_decode import predict_batch
    from harness.roofline.batches import recorded_batch
    from harness.roofline.batch_interval import passes_interval

    passes = recorded_batch(arm.rows, batch, batching)
    interval = passes_interval(arm.rows, batch, batching)
    found = predict_batch(shape, dtype, ceilings, passes, arm.rows, block_size=block_size, prompt_tokens=context)
    return {
        "passes": passes.passes, "passes_low": interval.low, "passes_high": interval.high,
        "passes_reason": interval.reason, "row_passes": passes.row_passes,
        "query_tokens_per_pass": passes.query_tokens_per_pass(block_size), "waiting_share": passes.waiting_share,
        "ntp_passes": found.ntp_passes, "wall_speedup": found.wall_speedup,
        "wall_speedup_overlapped": found.wall_speedup_overlapped, "wall_speedup_serial": found.wall_speedup_serial,
        "sbd_decode_s": found.sbd.expected_s, "ntp_decode_s": found.ntp.expected_s,
    }  # fmt: skip


def render_batches(found: dict[str, Any]) -> str:
    """The same for a reader."""
    lines = [
        f"{found['model']} {found['dtype']} on {found['hardware']} ({found['rung']}), batch {found['batch']}, k="
        f"{found['block_size']}, {found['context_tokens']} tokens in the cache at first; acceptance and lengths from "
        f"{found['run']}; priced, not run",
    ]
    for arm in found["arms"]:
        lines.append(f"{arm['part']}, {arm['task']}, {arm['label']}: {arm['prompts']} prompts of {arm['recorded_model']}")
        row = arm["lockstep"]["row_passes"]
        lines.append(f"  a row alone   {row:8.2f} passes")
        for name in ("lockstep", "ragged"):
            one = arm[name]
            lines.append(
                f"  {name:12}  {one['passes']:8.2f} passes ({_range(one)}), "
                f"{one['query_tokens_per_pass']:.1f} tokens a row and pass, rows wait in {100 * one['waiting_share']:.0f} %; "
                f"wall speedup {one['wall_speedup']:.2f}x ({one['wall_speedup_overlapped']:.2f}x overlapped, "
                f"{one['wall_speedup_serial']:.2f}x serial)"
            )
    return "\n".join(lines)


def _range(one: dict[str, Any]) -> str:
    """The whole passes of 95 % of batches, or why they are not known."""
    if one["passes_low"] is None:
        return str(one["passes_reason"])
    return f"{math.ceil(round(one['passes_low'], 6))} to {math.floor(round(one['passes_high'], 6))} in 95 % of batches"
