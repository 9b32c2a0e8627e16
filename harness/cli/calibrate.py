"""`sbd calibrate`: measures this machine's ceilings without a model and keeps them as its hardware profile.

--calibrate of `sbd run`, `sbd plan` and `sbd roofline` uses that profile and measures it where none is kept.
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, get_args

from typer import Option

from harness.cli.output import Amount, AsJson, grid, lines_of, show
from harness.cli.progress import TerminalProgress
from harness.errors import MissingExtraError, UserError
from harness.formatting import escaped_json, one_line
from harness.hardware.figures import MeasuredCeilings, MeasuredCurve, MeasuredDtype
from harness.hardware.local_profile import local_profile, save_profile
from harness.hardware.profile import HardwareProfile
from harness.meters.environment_host import OtherLoad
from harness.progress import Progress
from harness.scenario.part import Execution
from harness.scenario.scenario import Scenario

DTYPES: tuple[MeasuredDtype, ...] = ("bfloat16", "float32")


def calibrate_command(
    device: str | None = None,
    dtype: list[str] | None = None,
    threads: Annotated[int | None, Option(min=1)] = None,
    execution: Execution | None = None,
    budget_s: Amount = 15.0,
    output: Path | None = None,
    as_json: AsJson = False,
) -> None:
    """Measure this machine's ceilings (about a minute): read, copy, matrix and attention rates, fixed cost. Needs no model.

    Args:
        device: cpu, cuda or cuda:N; default: cuda where there is one
        dtype: dtype of the matrix rates (may be given again); default: bfloat16, float32
        threads: CPU threads; default: torch's
        execution: how the forwards run that are measured; default: graphs on a GPU; on a CPU native, if it can be
        budget_s: seconds for the matrix rates of one dtype; larger m are skipped, and listed as such
        output: YAML file to write; default: where later commands find it by the device's name
    """
    dtypes = measurable(dtype or DTYPES)
    need_torch()
    from harness.runner.local_machine import measure_ceilings

    chosen = seen_device(device)
    measured = _undisturbed(lambda progress: measure_ceilings(chosen, dtypes, threads, execution, budget_s, progress), output)
    profile = local_profile(measured)
    target = save_profile(profile, output)
    if as_json:
        print(escaped_json(profile.model_dump_json(indent=1)))
    else:
        show(render(measured))
    show(one_line(f"profile {target}"), sys.stderr if as_json else None)


def _undisturbed(measure: Callable[[Progress], MeasuredCeilings], output: Path | None) -> MeasuredCeilings:
    """The ceilings, measured again where other programs ran meanwhile.

    Raises:
        UserError: they ran the second time too, and no ``output`` says that they are wanted all the same.
    """
    why: str | None = None
    for again in (False, True):
        progress, others = TerminalProgress(sys.stderr), OtherLoad()
        measured = measure(progress)
        progress.end_line()
        if (why := others.words) is None:
            return measured
        show(f"warning: {why}{'' if again else '; the ceilings are measured again'}", sys.stderr)
    if output is None:
        raise UserError(f"{why}: nothing was kept; end them and try again, or give --output FILE for ceilings beside them")
    return measured


def seen_device(given: str | None) -> str:
    """The ``given`` device, by default a GPU where there is one.

    Raises:
        UserError: torch sees no such device here.
    """
    import torch

    seen = ["cpu", *(["cuda"] if torch.cuda.is_available() else []), *(f"cuda:{n}" for n in range(torch.cuda.device_count()))]
    chosen = given or ("cuda" if "cuda" in seen else "cpu")
    if chosen not in seen:
        raise UserError(
            f"--device {chosen}: torch sees no such device here, only {', '.join(seen)}; a GPU needs torch for CUDA"
        )
    return chosen


def measurable(dtypes: Sequence[str]) -> list[MeasuredDtype]:
    """``dtypes`` without repeats.

    Raises:
        UserError: torch multiplies no matrices in a dtype here.
    """
    allowed: tuple[MeasuredDtype, ...] = get_args(MeasuredDtype)
    wrong = [name for name in dtypes if name not in allowed]
    if wrong:
        raise UserError(f"--dtype {wrong[0]}: its rates cannot be measured; allowed: {', '.join(allowed)}")
    return [name for name in allowed if name in dtypes]


def render(measured: MeasuredCeilings) -> str:
    """The ceilings as tables: rates by buffer size, by tokens and by queries, and a pass's fixed cost."""
    threads = "" if measured.threads is None else f", {measured.threads} threads"
    is_memory, why = measured.read_is_memory
    read, copied = measured.read_bytes_per_s.points, measured.copy_bytes_per_s.points
    sizes = [[f"{one.at / 2**20:,.0f}", _giga(one.value), _giga(other.value)] for one, other in zip(read, copied, strict=True)]
    heads = ("buffer, MiB", "read, GB/s", "copy, GB/s")
    lines = [lines_of(f"{measured.device_name} ({measured.device}{threads}), torch {measured.torch_version}"), ""]
    lines.append(grid(heads, sizes, right=heads))
    lines += [lines_of(f"{'memory' if is_memory else 'not shown to be memory'}: {why}"), ""]
    lines += [_rates("tokens", measured.matrix_flops_per_s), ""]
    if measured.attention_flops_per_s:
        lines += ["attention", _rates("queries a KV head", measured.attention_flops_per_s), ""]
    for name, figure in (
        ("fixed cost per pass", measured.fixed_s_per_pass),
        ("fixed cost per layer", measured.fixed_s_per_layer),
        ("sampler per logit", measured.sampler_s_per_logit),
    ):
        shown = "not known" if figure.value is None else f"{figure.value * 1e6:,.4g} µs"
        lines.append(lines_of(f"{name:21} {shown}  ({figure.source.partition('; ')[0]})"))
    curves = {"read": measured.read_bytes_per_s, "copy": measured.copy_bytes_per_s}
    curves |= {f"matrix {dtype}": curve for dtype, curve in measured.matrix_flops_per_s.items()}
    curves |= {f"attention {dtype}": curve for dtype, curve in measured.attention_flops_per_s.items()}
    missing = ((name, point) for name, curve in curves.items() for point in curve.points if point.reason is not None)
    lines += [lines_of(f"-: {name} at {point.at:,}: {point.reason}") for name, point in missing]
    return "\n".join(lines)


def _rates(size: str, curves: Mapping[MeasuredDtype, MeasuredCurve]) -> str:
    heads = (size, *(f"{dtype}, GFLOP/s" for dtype in curves))
    rows = [
        [str(points[0].at), *(_giga(point.value) for point in points)]
        for points in zip(*(curve.points for curve in curves.values()), strict=True)
    ]
    return grid(heads, rows, right=heads)


def _giga(value: float | None) -> str:
    return "-" if value is None else f"{value / 1e9:,.1f}"


def need_torch(command: str = "sbd calibrate", more: str = "") -> None:
    """Raises:
    MissingExtraError: torch or transformers is not installed; ``more`` ends its message.
    """
    missing = [name for name in ("torch", "transformers") if importlib.util.find_spec(name) is None]
    if missing:
        needed = " and ".join(missing)
        raise MissingExtraError(f"{command} needs {needed}, not installed here; pip install 'sbd-bench[run]'{more}")


def profile_of_scenario(scenario: Scenario, given: str | None = None) -> HardwareProfile:
    """``profile_here`` for the device and dtypes of a scenario."""
    need_torch()
    from harness.runner.local_machine import profiled_device

    device = profiled_device(scenario)
    parts = [part for part in scenario.parts if part.device == device]
    return profile_here(device, [part.dtype for part in parts], parts[0].threads, given=given)


def profile_here(
    device: str | None, dtypes: Sequence[str], threads: int | None = None, given: str | None = None
) -> HardwareProfile:
    """This machine's own profile of ``device`` with measured rates in ``dtypes``, kept or measured now.

    Raises:
        UserError: another profile was ``given`` too, a dtype cannot be measured, or measuring failed.
    """
    if given is not None:
        raise UserError(f"got --hardware {given} and --calibrate; give one: --calibrate takes this machine's own profile")
    wanted = measurable(dtypes)
    need_torch()
    from harness.engine.loading import device_here
    from harness.runner.local_machine import profile_of

    chosen = device or device_here()
    kept, _ = profile_of(chosen)
    if kept is not None and kept.measured is not None:
        held = kept.measured.matrix_flops_per_s
        if set(wanted) <= set(held):
            show(one_line(f"measured on {kept.measured.measured_at}: {kept.name}"), sys.stderr)
            return kept
        wanted = measurable([*held, *wanted])  # one profile per device, so its dtypes are measured again
    calibrate_in_own_process(chosen, wanted, threads)
    found, reason = profile_of(chosen)
    if found is None or found.measured is None:
        raise UserError(f"this machine was measured, but its profile is not found again: {reason}; see `sbd hardware`")
    return found


def calibrate_in_own_process(device: str, dtypes: Sequence[MeasuredDtype], threads: int | None) -> None:
    """Run `sbd calibrate` in its own process, because its gigabytes of buffers slow down later timings here.

    Raises:
        UserError: it failed; its message is on stderr.
    """
    command = [sys.executable, "-m", "harness", "calibrate", "--device", device]
    command += [word for dtype in dtypes for word in ("--dtype", dtype)]
    command += [] if threads is None else ["--threads", str(threads)]
    show("calibrating this machine (about a minute, then kept)", sys.stderr)
    from harness.runner.subprocesses import ending_with_this  # loads what `sbd plan` does not need

    if subprocess.run(command, stdout=subprocess.DEVNULL, env=ending_with_this(), check=False).returncode:
        raise UserError("this machine could not be calibrated (see above); mend that, or leave out --calibrate")
