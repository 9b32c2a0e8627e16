"""--calibrate of `sbd run`, `sbd plan` and `sbd roofline`: this machine's own hardware profile, measured where none is kept."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from harness.cli.calibrate import measurable, need_torch

if TYPE_CHECKING:
    from harness.hardware.measured_ceilings import MeasuredDtype
    from harness.hardware.profile import HardwareProfile
    from harness.scenario.scenario import Scenario


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
    """This machine's own profile of ``device``, with measured rates in ``dtypes``: the one that is kept, else measured now.

    Raises:
        UserError: another profile was ``given`` as well, a dtype cannot be measured, or measuring failed.
    """
    from harness.errors import UserError

    if given is not None:
        raise UserError(f"got --hardware {given} and --calibrate; give one: --calibrate takes this machine's own profile")
    wanted = measurable(dtypes)
    need_torch()
    from harness.runner.local_machine import device_here, profile_of

    chosen = device or device_here()
    kept, _ = profile_of(chosen)
    if kept is not None and kept.measured is not None:
        held = kept.measured.matrix_flops_per_s
        if set(wanted) <= set(held):
            print(f"measured on {kept.measured.measured_at}: {kept.name}", file=sys.stderr)
            return kept
        wanted = measurable([*held, *wanted])  # one profile per device: what it held is measured again
    calibrate_in_own_process(chosen, wanted, threads)
    found, reason = profile_of(chosen)
    if found is None or found.measured is None:
        raise UserError(f"this machine was measured, but its profile is not found again: {reason}; see `sbd hardware`")
    return found


def calibrate_in_own_process(device: str, dtypes: Sequence[MeasuredDtype], threads: int | None) -> None:
    """`sbd calibrate` as a user would call it: its gigabytes of buffers must not slow down what this process times later.

    Raises:
        UserError: it failed; what it said stands on stderr.
    """
    from harness.errors import UserError

    command = [sys.executable, "-m", "harness", "calibrate", "--device", device]
    command += [word for dtype in dtypes for word in ("--dtype", dtype)]
    command += [] if threads is None else ["--threads", str(threads)]
    print("calibrating this machine (about a minute, then kept)", file=sys.stderr, flush=True)
    if subprocess.run(command, stdout=subprocess.DEVNULL, check=False).returncode:
        raise UserError("this machine could not be calibrated (see above); mend that, or leave out --calibrate")
