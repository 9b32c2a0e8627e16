"""`sbd roofline`: predictions and their basis; needs no torch, except for --calibrate.

--from-run gives the time and gain of batches of a recorded run's prompts, priced and not run.
"""

from __future__ import annotations

import math
from functools import partial
from pathlib import Path
from typing import Any

from typer import Exit

from harness.capacity.acceptance import from_speedup
from harness.capacity.question import Goal, Question, RowTokens
from harness.capacity.what_if import fitting, what_if
from harness.cli.anchors import print_anchors
from harness.cli.calibrate import profile_here
from harness.cli.methods import print_methods
from harness.cli.options import RooflineOptions, takes_options
from harness.cli.output import give, grid, json_text, lines_of, show
from harness.cli.paper import explain_paper
from harness.errors import EXIT_INCONCLUSIVE, UserError
from harness.hardware.profile import load_profile
from harness.models.choice import shape_called
from harness.models.deployment import Deployment, dtype_called
from harness.record.store import read_run
from harness.roofline.anchored import what_if_ceilings
from harness.roofline.batches import BatchPrediction, PassesInterval, predict_batch, recorded_batch
from harness.roofline.paper import paper_tables
from harness.roofline.recorded_acceptance import RecordedArm, recorded_arms
from harness.roofline.step import BATCH_WORDS
from harness.scenario.arms import Batching

ASSUMED_NFE_SPEEDUP = 3.0
MS_PER_S = 1e3
SPLITS = (
    "weights",
    "kv_dtype",
    "matrix_dtype",
    "tensor_parallel",
    "expert_parallel",
    "dp_attention",
    "pipeline_parallel",
    "link",
    "batching",
)
"""Options of a what-if that nothing else here takes."""
BATCHINGS: tuple[Batching, ...] = ("lockstep", "ragged")


@takes_options
def roofline_command(options: RooflineOptions) -> None:
    """Predict: the paper's tables (--paper), other methods (--methods), published speeds (--anchors), or a what-if on a device.

    Runs nothing.
    """
    split = [name for name in SPLITS if name in options.given]
    if split and (options.explain or options.methods or options.paper or options.anchors or options.from_run):
        raise UserError(
            f"--{split[0].replace('_', '-')} is about a what-if of --model and --hardware; leave it out, or leave out --paper, "
            "--methods, --anchors and --from-run, which price one device in one dtype"
        )
    dtype = dtype_called(options.dtype)
    if options.explain:
        explained = explain_paper(options)
        print(explained) if options.as_json else show(explained)
    elif options.methods:
        print_methods(options, dtype)
    elif options.paper:
        _print_paper(options)
    elif options.anchors:
        print_anchors(options.as_json)
    elif options.from_run is not None:
        _print_batches(options, dtype, options.from_run)
    else:
        _print_what_if(options, dtype)


def _asked_of(options: RooflineOptions, dtype: str) -> tuple[str, str]:
    """Model and device of a what-if; --calibrate measures this machine where no profile of it is kept."""
    if options.model is None or (options.hardware is None and not options.calibrate):
        raise UserError("give --paper, --methods, --anchors, or --model and --hardware for a prediction (see `sbd hardware`)")
    if options.calibrate:
        return options.model, profile_here(None, [dtype], given=options.hardware).name
    assert options.hardware is not None
    return options.model, options.hardware


def _print_what_if(options: RooflineOptions, dtype: str) -> None:
    model, hardware = _asked_of(options, dtype)
    speedup = ASSUMED_NFE_SPEEDUP if options.nfe_speedup is None else options.nfe_speedup
    acceptance = from_speedup(options.block_size, speedup)
    question = Question(
        shape=shape_called(model, options.weights),
        deployment=options.deployment(options.tensor_parallel),
        acceptance=acceptance.in_lockstep() if options.batching == "lockstep" else acceptance,
        workload=RowTokens(context_tokens=options.context, longest_tokens=options.context),
        goal=Goal(batch=options.batch),
        degrees=(options.tensor_parallel,),
        matrix_dtype=options.matrix_dtype,
        link=options.link,
        rung=options.rung,
    )
    described = what_if(question, load_profile(hardware))
    give(options.as_json, lambda: described, lambda: _render_prediction(described))
    if described["wall_speedup"] is None:
        raise Exit(EXIT_INCONCLUSIVE)


def _render_prediction(answer: dict[str, Any]) -> str:
    """A what-if as text; the batch's model stands below its header."""
    stored = f" weights {answer['weights']}" * bool(answer["weights"]) + f" KV {answer['kv_dtype']}" * bool(answer["kv_dtype"])
    split = f" x {answer['devices']}, {answer['split']}" if answer["split"] else ""
    lines = [
        f"{answer['model']} {answer['dtype']}{stored} on {answer['hardware']}{split} ({answer['rung']}), "
        f"batch {answer['batch']}, context {answer['context_tokens']}, k={answer['block_size']}, "
        f"NFE speedup {answer['nfe_speedup']:g}",
        f"  batch                   {BATCH_WORDS[answer['batching']]}",
    ]
    if answer["does_not_fit"]:
        lines.append(f"  does not fit            {answer['does_not_fit']}")
    if answer["wall_speedup"] is None:
        return lines_of(*lines)
    mixed = answer["batching"] == "ragged" and answer["batch"] > 1
    sbd = (("step", "SBD step"),) if mixed else (("first", "first pass of a block"), ("later", "later pass of a block"))
    for name, what in (("ntp", "NTP step" if mixed else "NTP pass"), *sbd):
        price = answer[f"{name}_pass"]
        lines.append(f"  {what:24}{price['expected_s'] * MS_PER_S:9.3f} ms   {price['bytes'] / 1e9:8.3f} GB")
    lines.append(f"  tokens/s                NTP {answer['ntp_tokens_per_s']:,.0f}, SBD {answer['sbd_tokens_per_s']:,.0f}")
    lines.append(
        f"  wall speedup            {answer['wall_speedup']:.2f}x "
        f"({answer['wall_speedup_overlapped']:.2f}x overlapped, {answer['wall_speedup_serial']:.2f}x serial)"
    )
    for name in ("arithmetic", "band", "reached"):
        if answer[name]:
            lines.append(f"  {name:24}{answer[name]}")
    lines.append(
        f"  time to first token     {answer['prefill']['expected_s'] * MS_PER_S:,.4g} ms for a prompt of "
        f"{max(1, answer['context_tokens']):,}, read alone"
    )
    if answer["assumed"]:
        lines.append(f"  assumed                 {answer['assumed']}; {answer['passes_per_block']:.2f} passes a block")
    return lines_of(*lines)


def _print_paper(options: RooflineOptions) -> None:
    tables = paper_tables(options.mode)
    if options.as_json:
        rows = [*tables["table3"], *tables["table4"]]
        print(json_text({"version": tables["version"], "mode": tables["mode"], "rows": rows}))
        return
    for number, title in ((3, "time(k) / time(1)"), (4, "wall speedup")):
        rows, how = tables[f"table{number}"], options.mode or "as printed, and corrected"
        shown = [[f"{value:.4g}" if isinstance(value, float) else str(value) for value in row.values()] for row in rows]
        show(f"Table {number}: {title} ({how})\n{grid(tuple(rows[0]), shown, right=tuple(rows[0]))}\n")


BATCHES_VERSION = 1
PricedArm = tuple[RecordedArm, list[BatchPrediction]]
"""An arm with its batches, in lockstep and ragged."""


def _print_batches(options: RooflineOptions, dtype: str, run_dir: Path) -> None:
    """Passes and speedup of batches: one entry per SBD arm and task.

    Raises:
        UnknownHardwareError: no such profile.
        RecordError: no run, or no SBD arm of this block size with real acceptance.
        UserError: more rows than recorded prompts, or an acceptance beside the run's.
        DoesNotFitError: memory cannot hold the batch.
    """
    model, hardware = _asked_of(options, dtype)
    if options.nfe_speedup is not None:
        raise UserError(
            f"--from-run brings its own acceptance, and --nfe-speedup {options.nfe_speedup:g} was given too; leave one out"
        )
    shape, batch, context, block_size = shape_called(model, ""), options.batch, options.context, options.block_size
    profile = load_profile(hardware)
    fitting(shape, Deployment(dtype=dtype), profile, batch, context, block_size)
    ceilings = what_if_ceilings(profile, dtype, options.rung)
    predict = partial(predict_batch, shape, dtype, ceilings, block_size=block_size, prompt_tokens=context)
    priced = [
        (arm, [predict(recorded_batch(arm.rows, batch, batching), arm.rows) for batching in BATCHINGS])
        for arm in recorded_arms(read_run(run_dir), block_size)
    ]
    asked = {
        "version": BATCHES_VERSION,
        "model": shape.name,
        "hardware": hardware,
        "dtype": dtype,
        "rung": ceilings.rung,
        "block_size": block_size,
        "batch": batch,
        "context_tokens": context,
        "run": str(run_dir),
    }
    give(
        options.as_json,
        lambda: asked | {"arms": [_arm(arm, batches, block_size) for arm, batches in priced]},
        lambda: _render_batches(asked, priced, block_size),
    )


def _arm(arm: RecordedArm, batches: list[BatchPrediction], block_size: int) -> dict[str, object]:
    return {
        "case_id": arm.case.case_id,
        "part": arm.case.part,
        "task": arm.case.task,
        "label": arm.case.label,
        "recorded_model": arm.case.shape.name,
        "recorded_batch": arm.case.batch_size,
        "prompts": len(arm.rows),
    } | {batch.passes.batching: _batch(batch, block_size) for batch in batches}


def _batch(batch: BatchPrediction, block_size: int) -> dict[str, object]:
    passes, interval = batch.passes, batch.interval
    return {
        "passes": passes.passes,
        "passes_low": interval.low,
        "passes_high": interval.high,
        "passes_reason": interval.reason,
        "row_passes": passes.row_passes,
        "query_tokens_per_pass": passes.query_tokens_per_pass(block_size),
        "waiting_share": passes.waiting_share,
        "ntp_passes": batch.ntp_passes,
        "wall_speedup": batch.wall_speedup,
        "wall_speedup_overlapped": batch.wall_speedup_overlapped,
        "wall_speedup_serial": batch.wall_speedup_serial,
        "sbd_decode_s": batch.sbd.expected_s,
        "ntp_decode_s": batch.ntp.expected_s,
    }


def _render_batches(asked: dict[str, object], priced: list[PricedArm], block_size: int) -> str:
    """The batches as text."""
    lines = [
        f"{asked['model']} {asked['dtype']} on {asked['hardware']} ({asked['rung']}), batch {asked['batch']}, k="
        f"{block_size}, {asked['context_tokens']} tokens in the cache at first; rows of a batch padded to the widest, "
        f"as this program's own sessions run them; all matrix products in {asked['dtype']}; acceptance and lengths from "
        f"{asked['run']}; priced, not run"
    ]
    for arm, batches in priced:
        case = arm.case
        lines.append(f"{case.part}, {case.task}, {case.label}: {len(arm.rows)} prompts of {case.shape.name}")
        lines.append(f"  a row alone   {batches[0].passes.row_passes:8.2f} passes")
        for batch in batches:
            passes = batch.passes
            lines.append(
                f"  {passes.batching:12}  {passes.passes:8.2f} passes ({_range(batch.interval)}), "
                f"{passes.query_tokens_per_pass(block_size):.1f} tokens a row and pass, "
                f"rows wait in {100 * passes.waiting_share:.0f} %; "
                f"wall speedup {batch.wall_speedup:.2f}x ({batch.wall_speedup_overlapped:.2f}x overlapped, "
                f"{batch.wall_speedup_serial:.2f}x serial)"
            )
    return lines_of(*lines)


def _range(interval: PassesInterval) -> str:
    """The whole passes of 95 % of batches, or why they are unknown."""
    if interval.low is None or interval.high is None:
        return str(interval.reason)
    return f"{math.ceil(round(interval.low, 6))} to {math.floor(round(interval.high, 6))} in 95 % of batches"
