"""`sbd doctor`: what this machine can measure and what it cannot, why, and what would have to be done about it."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Annotated, Any

import typer

from harness.cli.cli_doctor_machine import machine_facts, machine_lines
from harness.cli.cli_doctor_model import print_model

DOCTOR_VERSION = 2


def doctor_command(
    device: Annotated[str | None, typer.Option(help="cpu, cuda or cuda:N; default: cuda where there is one")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="print JSON")] = False,
    model: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="say what a checkpoint is, and print a scenario for it")
    ] = None,
) -> None:
    """Open every meter once around a short pause and say what each one reads here, or why it reads nothing.

    With --model: no meter is opened and no weight loaded; what is printed is a scenario, with what is known as comments.
    """
    from harness.errors import MissingExtraError, UserError

    if model is not None:
        print_model(model, device, as_json)
        return
    if importlib.util.find_spec("torch") is None:
        raise MissingExtraError("sbd doctor needs torch, not installed here; pip install 'sbd-bench[run]'")
    import torch

    chosen = device or ("cuda" if torch.cuda.is_available() else "cpu")
    if chosen.startswith("cuda") and not torch.cuda.is_available():
        raise UserError(f"--device {chosen}: torch sees no CUDA device here; use cpu, or CUDA torch on a GPU machine")
    found = examine(chosen)
    print(json.dumps(found, indent=1, ensure_ascii=False) if as_json else render(found))


def examine(device: str) -> dict[str, Any]:
    """Figures that can be read here with a first value, those that cannot with reason and remedy, and the machine."""
    import time

    from harness.meters.available import find_meters

    available = find_meters(device)
    available.windows.open()
    time.sleep(0.5)  # GPM wants its two snapshots more than 100 ms apart, DCGM a window of 300 ms
    readings = available.windows.close()
    figures = [
        {
            "figure": name,
            "unit": figure.unit,
            "source": figure.source,
            "value": readings.values.get(name),
            "reason": readings.reasons.get(name),
            "remedy": None,
        }
        for name, figure in available.windows.figures.items()
    ]
    figures += [
        {"figure": name, "unit": None, "source": None, "value": None, "reason": one.reason, "remedy": one.remedy}
        for one in available.absent
        for name in one.figures
    ]
    return {"version": DOCTOR_VERSION, "device": device, "figures": figures} | machine_facts(device, available.scale)


def render(found: dict[str, Any]) -> str:
    """The same as text: readable figures first, then the missing ones grouped by their reason."""
    environment = found["environment"]
    lines = [f"device {found['device']}: {environment['cpu_model']}, {environment['logical_cores']} cores"]
    lines += [f"  {gpu['name']}, {gpu['memory_bytes'] / 1e9:.1f} GB" for gpu in environment["gpus"] or []]
    lines += ["", "can be read here"]
    for one in found["figures"]:
        if one["value"] is not None:
            lines.append(f"  {one['figure']:26}{one['value']:14,.6g} {one['unit']:6} {one['source']}")
    missing: dict[tuple[str, str | None], list[str]] = {}
    for one in found["figures"]:
        if one["value"] is None:
            missing.setdefault((one["reason"], one["remedy"]), []).append(one["figure"])
    lines += ["", "cannot be read here"] if missing else []
    for (reason, remedy), names in missing.items():
        lines.append(f"  {', '.join(names)}")
        lines.append(f"      because {reason}" + (f"; to change that: {remedy}" if remedy else ""))
    return "\n".join([*lines, *machine_lines(found)])
