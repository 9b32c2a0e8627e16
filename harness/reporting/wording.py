"""Names in words: the machine, the model and an arm."""

from __future__ import annotations

from harness.analysis.results import ArmResult, Cell
from harness.analysis.stats.quantity import Quantity
from harness.record.schema import RunHeader


def machine(header: RunHeader, device: str) -> str:
    """The device as the environment snapshot names it, else the plain device (``cpu``)."""
    environment = header.environment
    if device.startswith("cpu"):
        return str(environment.get("cpu_model") or device)
    gpus = environment.get("gpus") or []
    index = int(device.partition(":")[2] or 0)
    return str(gpus[index]["name"]) if index < len(gpus) else device


def model(cell: Cell) -> str:
    """The model of a cell, for example ``llama-250m (250M parameters, bfloat16)``."""
    return f"{cell.model} ({_params(cell.params)} parameters, {cell.dtype})"


def place(cell: Cell) -> str:
    """Where a cell ran: ``cuda``, or ``cuda, split over 2 processes (bytes and predictions are of one)``."""
    if cell.tensor_parallel == 1:
        return cell.device
    return f"{cell.device}, split over {cell.tensor_parallel} processes (bytes and predictions are of one)"


def arm(found: ArmResult) -> str:
    """The arm: ``SBD with block size 16 and bound γ=0.1``; the label of an arm of another solver."""
    if found.method != "sbd" or found.block_size is None or found.solver not in (None, "entropy_bounded"):
        return found.label
    bound = f" and bound γ={found.gamma:g}" if found.gamma is not None else ""
    warmth = f", temperature {found.temperature:g}" if found.temperature else ""
    return f"SBD with block size {found.block_size}{bound}{warmth}"


def processes(speed: Quantity) -> str:
    """How many fresh processes a speedup rests on, and what fewer than three leave open."""
    return speed.these_processes_only or (f"{speed.processes} processes" if speed.processes else "")


def _params(params: int) -> str:
    if params >= 1e9:
        return f"{params / 1e9:.1f}B"
    return f"{params / 1e6:.1f}M" if params < 1e7 else f"{params / 1e6:.0f}M"
