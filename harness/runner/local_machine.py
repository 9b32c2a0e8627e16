"""The local machine for the runner: engines, calibration, and the profile of its device."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from datetime import datetime
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from harness.engine.compiling import execution_of
from harness.engine.engine import LocalEngine, open_engine
from harness.engine.loading import checkpoint_shape, open_tokenizer
from harness.engine.sessions import stepping
from harness.engine.tensor_parallel import SplitEngine, dismiss, open_split_engine
from harness.engine.text_tokenizer import TextTokenizer
from harness.errors import MissingExtraError, UserError
from harness.hardware.figures import MeasuredCeilings, MeasuredDtype
from harness.hardware.local_profile import unknown_device
from harness.hardware.profile import HardwareProfile, find_local_profile, match_profile
from harness.kernels.library import NAMES, why_not_built
from harness.meters.available import find_meters
from harness.meters.calibration import cached_calibration, load_or_calibrate
from harness.meters.clock import cuda_index
from harness.meters.environment_host import available_host_bytes, cpu_name, total_host_bytes
from harness.meters.survey import survey
from harness.meters.torch_bench import TorchBench
from harness.models import DTYPE_BYTES, ModelShape
from harness.models.choice import RandomModel, gguf_of, model_place
from harness.progress import Progress
from harness.record.schema import Sample
from harness.roofline.storage import shard
from harness.runner.divergence import WIDER, Gaps, classified, controls, gaps_of, partings
from harness.runner.protocols import Machine
from harness.runner.sample_taking import case_items
from harness.runner.subprocesses import end_with_parent
from harness.scenario.part import Execution, Part
from harness.scenario.plan import Case
from harness.scenario.scenario import Scenario

if TYPE_CHECKING:
    from harness.serving.engine import ServedEngine

OWN_THREADS = torch.get_num_threads()
"""Torch's choice when the program starts: OMP_NUM_THREADS, or the number of cores."""


CALIBRATING_S = 15.0
"""About how long a calibration takes, seen on a 2-core EPYC."""


def this_machine(logs: Path | None = None) -> Machine:
    """Engines of transformers models, calibrated where they run, and servers of others, whose ``logs`` lie in that folder."""
    return Machine(
        open_engine=partial(_open, logs or Path()),
        calibrate=_calibrate,
        free_bytes=_free_bytes,
        profile=_profile,
        execution=_execution,
        shape=_shape,
        close=dismiss,
        divergences=_divergences,
        date=_date,
    )


def _date(begun_at: str) -> None:
    TextTokenizer.begun = datetime.fromisoformat(begun_at)


def _execution(part: Part) -> str:
    return "served" if part.servers else execution_of(part)


def _served(logs: Path, part: Part) -> ServedEngine:
    """The servers of a part. The tokenizer is read for the prompts; the weights are the servers' own to load.

    Raises:
        MissingExtraError: what speaks to servers is not installed; nothing else needs it.
    """
    try:
        from harness.serving.engine import ServedEngine
    except ModuleNotFoundError as error:
        raise MissingExtraError(f"servers need {error.name}, not installed here; pip install 'sbd-bench[serve]'") from error
    choice = part.model
    assert not isinstance(choice, RandomModel)
    found = find_meters(part.device) if part.timed else None
    place, file = model_place(choice), gguf_of(choice)
    return ServedEngine(
        part,
        checkpoint_shape(choice),
        open_tokenizer(choice),
        str(Path(place, file)) if file else place,  # a folder, a GGUF file, or a name on the hub
        logs,
        found.windows if found else None,
        found.absent if found else (),
    )


def _divergences(part: Part, cases: Sequence[Case], samples: Sequence[Sample]) -> dict[str, object]:
    """Where the servers' answers part, judged by the weights in our engine: in the served dtype, and in a wider one."""
    choice = part.model
    assert not isinstance(choice, RandomModel)
    tokenizer, vocab = open_tokenizer(choice), cases[0].shape.vocab if cases[0].shape else 0
    prompts = {
        (task, item.prompt_id): item.ids
        for (_, task, _), items in {case.cell: case_items(case, tokenizer, vocab) for case in cases}.items()
        for item in items
    }
    by_id = {case.case_id: case for case in cases}
    found, compared = partings(samples, by_id, prompts)

    def gaps_in(dtype: str) -> Gaps:
        keys = {"servers": {}, "timed": False, "session": "plain", "execution": "eager", "dtype": dtype}
        return lambda asked: gaps_of(open_engine(part.model_copy(update=keys)))(asked)

    measured = controls(samples, by_id, prompts)
    return {"compared": compared, **classified(found, measured, gaps_in(WIDER[part.dtype]), gaps_in(part.dtype))}


def _open(logs: Path, part: Part) -> LocalEngine | SplitEngine | ServedEngine:
    if part.servers:
        return _served(logs, part)
    if part.threads is None and torch.get_num_threads() != OWN_THREADS:
        torch.set_num_threads(OWN_THREADS)  # undo an earlier part's setting
    return open_engine(part) if part.tensor_parallel == 1 else open_split_engine(part)


def _shape(part: Part) -> ModelShape:
    """The model's shape; a split model's is read from its configuration, because it may not fit one process."""
    if isinstance(part.model, RandomModel) or (part.tensor_parallel == 1 and not part.servers):
        return open_engine(part).shape
    return checkpoint_shape(part.model)


def _calibrate(part: Part, shape: ModelShape, progress: Progress, known: Sequence[object]) -> dict[str, object] | None:
    """Measured ceilings for a part's device, dtype and model size (its share of a split model), cached on this machine or
    ``known`` from a part like it, else measured.

    None where the processes of a split model share one CPU, whose rates one process alone does not show. It measures in its own
    process: in a shared one, a model's passes took a fifth longer after its gigabytes of buffers. They took 34.6 instead of
    28.6 ms in two consecutive runs (251M parameters, 2-core EPYC).
    """
    if part.tensor_parallel > 1 and part.device == "cpu":
        return None
    weight_bytes = shard(shape, part.tensor_parallel).streamed_params * DTYPE_BYTES[part.dtype]
    engine = stepping(part.session, part.attention, execution_of(part))
    asked = (part.device, part.dtype, part.threads or OWN_THREADS, weight_bytes, engine)
    calibration = cached_calibration(*asked, known)
    if calibration is not None:
        progress.note(f"part {part.name}: calibration for {part.dtype} of {calibration.created_at}, kept")
    else:
        what = f"part {part.name}: calibrating this machine for {part.dtype}, kept for later runs"
        torch.cuda.empty_cache()  # no effect without CUDA
        own = ProcessPoolExecutor(1, get_context("spawn"), end_with_parent, (os.getpid(),))
        with progress.step(what, CALIBRATING_S), own as pool:
            calibration = pool.submit(load_or_calibrate, *asked).result()
        if calibration.disturbed is not None:
            progress.note(f"part {part.name}: {calibration.disturbed}: calibrated twice, kept by this run alone")
    return calibration.model_dump(mode="json")


def _free_bytes(part: Part) -> int | None:
    """Free memory: CUDA's figure for the device, or Linux' available memory."""
    if part.device.startswith("cuda"):
        return torch.cuda.mem_get_info(cuda_index(part.device))[0] if torch.cuda.is_available() else None
    return available_host_bytes()


def _profile(scenario: Scenario) -> tuple[dict[str, object] | None, str | None]:
    """The profile of the scenario's device, or the reason for its absence."""
    profile, reason = profile_of(profiled_device(scenario))
    return profile.model_dump(mode="json") if profile else None, reason


def profiled_device(scenario: Scenario) -> str:
    """A run records one profile: that of its GPU if it has one, else that of the CPU."""
    return next((part.device for part in scenario.parts if part.device.startswith("cuda")), "cpu")


def profile_of(device: str) -> tuple[HardwareProfile | None, str | None]:
    """This machine's own profile of ``device``, else the published one that certainly matches it; or why it is absent."""
    if device == "cpu":
        name, memory, processors = cpu_name(), total_host_bytes(), None
    elif torch.cuda.is_available():
        properties = torch.cuda.get_device_properties(cuda_index(device))
        name, memory, processors = properties.name, properties.total_memory, properties.multi_processor_count
    else:
        return None, "torch sees no CUDA device"
    profile = find_local_profile(name, memory) or match_profile(name, memory, processors)
    if profile is not None:
        return profile, None
    if device == "cpu":
        return None, "no part runs on a GPU, and no profile describes this CPU: the calibration supplies the ceilings"
    return None, unknown_device(name)


def measure_ceilings(
    device: str,
    dtypes: Sequence[MeasuredDtype],
    threads: int | None,
    execution: Execution | None,
    budget_s: float,
    progress: Progress,
) -> MeasuredCeilings:
    """The ceilings of this machine, measured without a model in about a minute; see harness.meters.survey.

    ``execution``: how the forwards run that are measured; None is graphs on a GPU, and on a CPU native, if it can be.

    Raises:
        UserError: they do not run so on this device.
    """
    here: tuple[Execution, ...] = ("graphs", "compiled", "eager")
    if device == "cpu":
        here = ("native", "eager") if why_not_built() is None and {*dtypes} <= {*NAMES.values()} else ("eager",)
    if (chosen := execution or here[0]) not in here:
        raise UserError(
            f"--execution {chosen} does not work on {device} for {', '.join(dtypes)}; use {' or '.join(here)} (see sbd doctor)"
        )
    engine = stepping("static", "sdpa", chosen)
    return survey(lambda dtype: TorchBench(device, dtype, threads, engine), dtypes, budget_s, progress)
