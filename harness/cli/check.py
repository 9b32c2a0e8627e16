"""`sbd check`: what only a GPU can show, in one call of at most 8 minutes, as files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from harness.cli.output import json_text


def check_command(
    out: Annotated[Path, typer.Option(help="folder for the results")] = Path("gpu-check"),
    minutes: Annotated[
        float, typer.Option(min=0.0, help="time for everything; cells not reached are listed, and the same command continues")
    ] = 7.5,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="the same code on the CPU, with tiny shapes")] = False,
) -> None:
    """Check an NVIDIA GPU: exactness, NTP and SBD at an 8B shape, baseline, ways of attending, energy; writes tables.

    Exit code 1: an engine does not compute on it what the reference computes.
    """
    from harness.cli.calibrate import need_torch
    from harness.errors import UserError

    need_torch("sbd check")
    from harness.cli.doctor import examine
    from harness.engine.loading import device_here

    device = "cpu" if dry_run else "cuda"
    if device == "cuda" and device_here() != "cuda":
        raise UserError("torch sees no CUDA device here; run sbd check on a GPU machine, or with --dry-run")
    from harness.check.conduct import check

    try:
        print(check(out, minutes, dry=dry_run))
    finally:
        if out.exists():
            (out / "doctor.json").write_text(json_text(examine(device)), encoding="utf-8")
    print(f"files  {out}")
