"""The real machine behind the runner: engines, calibration, and the profile of the device that is here."""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

import torch

from harness.hardware import match_profile
from harness.meters.calibration import load_or_calibrate
from harness.meters.processor import available_host_bytes
from harness.modeling.compiling import execution_of
from harness.modeling.engine import Engine, open_engine
from harness.modeling.sessions import stepping
from harness.modelshape import DTYPE_BYTES, ModelShape
from harness.progress import Progress
from harness.runner import Machine
from harness.scenario import Part, Scenario


def this_machine() -> Machine:
    """Engines of transformers models, calibrated where they run."""
    return Machine(open_engine=_open, calibrate=_calibrate, free_bytes=_free_bytes, profile=_profile, execution=execution_of)


def _open(part: Part) -> Engine:
    return open_engine(part)


def _calibrate(part: Part, shape: ModelShape, progress: Progress) -> dict[str, Any] | None:
    """Measured ceilings for a part's device, dtype and model size; cached on this machine.

    In a process of its own: after its gigabytes of buffers the passes of a model in the same process took a fifth longer
    (34.6 against 28.6 ms in two runs one after the other, 251M parameters, 2-core EPYC).
    """
    weight_bytes = shape.streamed_params * DTYPE_BYTES[part.dtype]
    progress.note(f"part {part.name}: calibrating this machine for {part.dtype} (15 s, compiled 30 s; then cached)")
    engine = stepping(part.session, part.attention, execution_of(part))
    with ProcessPoolExecutor(max_workers=1, mp_context=get_context("spawn")) as pool:
        calibration = pool.submit(load_or_calibrate, part.device, part.dtype, part.threads, weight_bytes, engine).result()
    return calibration.model_dump(mode="json")


def _free_bytes(part: Part) -> int | None:
    """Memory to spare: what CUDA says of the device, or what Linux calls available."""
    if part.device.startswith("cuda"):
        return torch.cuda.mem_get_info(part.device)[0] if torch.cuda.is_available() else None
    return available_host_bytes()


def _profile(scenario: Scenario) -> tuple[dict[str, Any] | None, str | None]:
    """The datasheet of the device, if it is one we know for certain."""
    if not any(part.device.startswith("cuda") for part in scenario.parts):
        return None, "no part runs on a GPU, and no profile describes a CPU: the calibration supplies the ceilings"
    if not torch.cuda.is_available():
        return None, "torch sees no CUDA device"
    properties = torch.cuda.get_device_properties(0)
    profile = match_profile(properties.name, properties.total_memory)
    if profile is None:
        return None, f"no hardware profile describes {properties.name!r} for certain"
    return profile.model_dump(mode="json"), None
