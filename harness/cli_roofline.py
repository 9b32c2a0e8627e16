"""`sbd roofline`, `sbd calibrate`: predictions, and what they rest on. Only calibrate needs torch."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

if TYPE_CHECKING:
    from harness.modelshape import ModelShape
    from harness.roofline.decode import SpeedupPrediction

WHAT_IF_VERSION = 1
MS_PER_S = 1e3


def roofline_command(
    paper: Annotated[bool, typer.Option("--paper", help="print Tables 3 and 4 of the paper")] = False,
    mode: Annotated[
        Literal["as_printed", "corrected"] | None,
        typer.Option(help="the paper's model as printed, or with its dimensions corrected; default: both side by side"),
    ] = None,
    model: Annotated[str | None, typer.Option(help="what-if: a known shape, or a folder with a config.json")] = None,
    hardware: Annotated[str | None, typer.Option(help="what-if: a hardware profile (see `sbd hardware`)")] = None,
    dtype: Annotated[str, typer.Option(help="what-if: dtype of weights and KV cache")] = "bfloat16",
    block_size: Annotated[int, typer.Option("--block-size", "-k", help="what-if: block size k")] = 16,
    nfe_speedup: Annotated[float, typer.Option(help="what-if: mean tokens per forward pass of a row")] = 3.0,
    batch: Annotated[int, typer.Option(help="what-if: batch size")] = 1,
    context: Annotated[int, typer.Option(help="what-if: tokens already in the cache per row")] = 4096,
    anchors: Annotated[bool, typer.Option("--anchors", help="predictions beside speeds that others published")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="print JSON")] = False,
) -> None:
    """Predict: the paper's tables (--paper), published speeds (--anchors), or a what-if on a device. Runs nothing."""
    if paper:
        _print_paper(mode, as_json)
        return
    if anchors:
        from harness.cli_anchors import print_anchors

        print_anchors(as_json)
        return
    from harness.errors import UserError

    if model is None or hardware is None:
        raise UserError("give --paper, --anchors, or --model and --hardware for a prediction (see `sbd hardware`)")
    shape = _shape(model)
    described = describe_prediction(shape, hardware, dtype, block_size, nfe_speedup, batch, context)
    print(json.dumps(described, indent=1, ensure_ascii=False) if as_json else _render_prediction(described))


def calibrate_command(
    device: Annotated[str, typer.Option(help="cpu, cuda or cuda:N")] = "cpu",
    dtype: Annotated[str, typer.Option(help="dtype of the weights")] = "bfloat16",
    model: Annotated[str, typer.Option(help="calibrate at the size of this shape, or model folder")] = "llama-250m",
    threads: Annotated[int | None, typer.Option(help="CPU threads; default: torch's")] = None,
    execution: Annotated[Literal["eager", "compiled", "graphs"], typer.Option(help="how forwards are run")] = "eager",
    fresh: Annotated[bool, typer.Option("--fresh", help="measure again, whatever is cached, and cache nothing")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="print JSON")] = False,
) -> None:
    """Measure this machine's ceilings (about 15 s, cached): read rate, matrix rate, fixed cost per pass."""
    import importlib.util
    import sys

    from harness.errors import MissingExtraError
    from harness.meters.calibration import load_or_calibrate
    from harness.roofline.ops import element_bytes

    if any(importlib.util.find_spec(name) is None for name in ("torch", "transformers")):
        raise MissingExtraError("sbd calibrate needs torch and transformers, not installed here; pip install 'sbd-bench[run]'")
    from harness.modeling.sessions import stepping

    model_bytes = _shape(model).streamed_params * element_bytes(dtype)
    engine = stepping("static", "sdpa", execution)
    found = load_or_calibrate(
        device, dtype, threads, model_bytes, engine, lambda message: print(message, file=sys.stderr), fresh=fresh
    )
    if as_json:
        print(found.model_dump_json(indent=1))
        return
    print(f"{found.device_name} ({found.device}, {found.threads or 'no'} CPU threads, {dtype}, {found.engine} forwards)")
    for point in found.read_bandwidth:
        print(f"read rate at {point.bytes_ / 2**30:.2f} GiB: {point.bytes_per_s / 1e9:.1f} GB/s ({point.kernel})")
    print(f"DRAM-bound: {found.dram_bound} ({found.dram_bound_reason})")
    for tokens, rate in found.rates[dtype].resident:
        print(f"matrix rate at {tokens} tokens: {rate / 1e9:.0f} GFLOP/s")


def describe_prediction(
    shape: ModelShape, hardware: str, dtype: str, block_size: int, nfe_speedup: float, batch: int, context: int
) -> dict[str, Any]:
    """A what-if as plain data. In a batch all rows wait for the slowest, whose passes follow the assumed distribution.

    Raises:
        UnknownHardwareError: no such profile. UserError: a value out of range.
    """
    from harness.errors import UserError
    from harness.estimates import slowest_row_passes
    from harness.hardware import load_profile
    from harness.roofline.ceilings import ceilings_from_profile
    from harness.roofline.decode import predict_speedup

    if block_size < 1 or batch < 1 or not 1 <= nfe_speedup <= block_size:
        raise UserError(
            f"got block size {block_size}, batch {batch}, NFE speedup {nfe_speedup}; sizes must be at least 1 and "
            "1 <= NFE speedup <= block size"
        )
    passes = slowest_row_passes(block_size, block_size / nfe_speedup, batch)
    prediction = predict_speedup(
        shape, dtype, ceilings_from_profile(load_profile(hardware), dtype),
        block_size=block_size, passes_per_block=passes, batch=batch, context_tokens=context,
    )  # fmt: skip
    return {
        "version": WHAT_IF_VERSION, "model": shape.name, "hardware": hardware, "dtype": dtype, "block_size": block_size,
        "nfe_speedup": nfe_speedup, "batch": batch, "context_tokens": context, "passes_per_block": passes, "rung": "datasheet",
        "assumed": "passes per block of a row: 1 + binomial with the given mean; rows in lockstep" if batch > 1 else None,
        **_prices(prediction),
    }  # fmt: skip


def _prices(prediction: SpeedupPrediction) -> dict[str, Any]:
    names = ("wall_speedup", "wall_speedup_overlapped", "wall_speedup_serial", "ntp_tokens_per_s", "sbd_tokens_per_s")
    passes = {"ntp": prediction.ntp, "first": prediction.first, "later": prediction.later}
    return {name: getattr(prediction, name) for name in names} | {
        f"{name}_pass": {"expected_s": p.expected_s, "low_s": p.low_s, "high_s": p.high_s, "bytes": p.bytes_, "flops": p.flops}
        for name, p in passes.items()
    }


def _render_prediction(found: dict[str, Any]) -> str:
    lines = [
        f"{found['model']} {found['dtype']} on {found['hardware']} (datasheet), batch {found['batch']}, "
        f"context {found['context_tokens']}, k={found['block_size']}, NFE speedup {found['nfe_speedup']:g}",
    ]
    for name, what in (("ntp", "NTP pass"), ("first", "first pass of a block"), ("later", "later pass of a block")):
        price = found[f"{name}_pass"]
        lines.append(f"  {what:24}{price['expected_s'] * MS_PER_S:9.3f} ms   {price['bytes'] / 1e9:8.3f} GB")
    lines.append(f"  tokens/s                NTP {found['ntp_tokens_per_s']:,.0f}, SBD {found['sbd_tokens_per_s']:,.0f}")
    lines.append(
        f"  wall speedup            {found['wall_speedup']:.2f}x "
        f"({found['wall_speedup_overlapped']:.2f}x overlapped, {found['wall_speedup_serial']:.2f}x serial)"
    )
    if found["assumed"]:
        lines.append(f"  assumed                 {found['assumed']}; {found['passes_per_block']:.2f} passes a block")
    return "\n".join(lines)


def _shape(model: str) -> ModelShape:
    """A known shape by name, or the shape of the model in a folder."""
    from harness.errors import UnknownModelError
    from harness.model_choice import HuggingFaceModel, shape_of
    from harness.modelshape import KNOWN_SHAPES

    if model in KNOWN_SHAPES:
        return KNOWN_SHAPES[model]
    if (Path(model) / "config.json").is_file():
        shape, _ = shape_of(HuggingFaceModel(huggingface=model))
        if shape is not None:
            return shape
    raise UnknownModelError(
        f"unknown model {model!r}; allowed: {', '.join(KNOWN_SHAPES)}, or a folder with a config.json"
    )


def _print_paper(mode: Literal["as_printed", "corrected"] | None, as_json: bool) -> None:
    from harness.roofline.tables import paper_tables, side_by_side

    tables = paper_tables(mode) if mode else side_by_side()
    if as_json:
        rows = [*tables["table3"], *tables["table4"]]
        print(json.dumps({"version": tables["version"], "mode": tables["mode"], "rows": rows}, indent=1))
        return
    for number, title in ((3, "time(k) / time(1)"), (4, "wall speedup")):
        print(f"Table {number}: {title} ({'as printed, and corrected' if mode is None else mode})")
        rows = tables[f"table{number}"]
        print("  ".join(f"{name:>22}" for name in rows[0]))
        for row in rows:
            print("  ".join(f"{value:>22.4g}" if isinstance(value, float) else f"{value:>22}" for value in row.values()))
        print()
