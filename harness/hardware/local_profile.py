"""This machine's own hardware profile as a file: what `sbd calibrate` measured, beside the published figures of the device.

Measured ceilings are handed in. Published figures are never derived from them.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Literal, get_args

import yaml

from harness.errors import StorageError, UserError
from harness.hardware.figures import MeasuredCeilings, MeasuredFigure, PeakDtype, SourcedFigure
from harness.hardware.profile import HardwareProfile, known_profiles, match_profile
from harness.paths import user_data_dir

LONGEST_NAME = 64  # harness.config_file.Name
HEADER = """\
# Written by `sbd calibrate`. What stands under measured was reached on this machine (grade R); every other figure is published,
# or reported by the system where its source says so. null = not known; the source says why.
"""


def local_profile(measured: MeasuredCeilings) -> HardwareProfile:
    """A profile that holds ``measured``: with the published figures if a known profile certainly describes the device."""
    memory = measured.memory_bytes.value
    kind: Literal["cpu", "gpu"] = "cpu" if measured.device == "cpu" else "gpu"
    published = match_profile(measured.device_name, None if memory is None else round(memory), measured.multiprocessors)
    identity = {"name": local_name(measured.device_name), "match_names": (measured.device_name,), "measured": measured}
    if published is not None and published.kind == kind:
        notes = " ".join(filter(None, (f"Published figures: those of {published.name}.", published.notes)))
        return published.model_copy(update=identity | {"notes": notes})
    unknown = SourcedFigure(
        value=None, source=f"not known: no published profile describes {measured.device_name!r} for certain"
    )
    return HardwareProfile(
        **identity,
        kind=kind,
        peak_flops_per_s=dict.fromkeys(get_args(PeakDtype), unknown),
        bandwidth_bytes_per_s=unknown,
        memory_bytes=_reported(measured.memory_bytes),
        cache_bytes=_reported(measured.cache_bytes),
        link_bytes_per_s=unknown,
        power_w=unknown,
        price_usd_per_hour=unknown,
    )


def local_name(device_name: str) -> str:
    """``local-amd-epyc-9534``: the device's name in letters that a file name and a command line can hold."""
    return f"local-{re.sub('[^a-z0-9]+', '-', device_name.lower()).strip('-')}"[:LONGEST_NAME].strip("-")


def profile_text(profile: HardwareProfile) -> str:
    """The profile as YAML that load_profile reads back to the same values."""
    written = profile.model_dump(mode="json")
    return HEADER + yaml.safe_dump(written, sort_keys=False, allow_unicode=True, width=120)


def save_profile(profile: HardwareProfile, file: Path | None = None) -> Path:
    """Write the profile, whole or not at all, where later commands find it by the device's name, or into ``file``.

    Raises:
        UserError: ``file`` has no YAML suffix, or is a link, a device or a pipe. StorageError: it cannot be written.
    """
    if file is not None and file.suffix not in {".yaml", ".yml"}:
        raise UserError(f"--output {file}: a hardware profile is a YAML file; give a name that ends in .yaml")
    target = file or user_data_dir("hardware_profiles") / f"{profile.name}.yaml"
    if target.is_symlink() or (target.exists() and not target.is_file()):
        raise UserError(f"{target}: is no regular file, so a profile would replace it; give another place with --output")
    partial = target.with_name(f".{target.name}.{os.getpid()}.partial")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        partial.unlink(missing_ok=True)  # left by a kill, or a link that was laid there
        try:
            with partial.open("x", encoding="utf-8") as out:  # record.regular_file writes so; it is of a higher layer
                out.write(profile_text(profile))
            partial.replace(target)
        finally:
            partial.unlink(missing_ok=True)
    except OSError as error:
        raise StorageError(
            f"the hardware profile cannot be written to {target} ({error.strerror}); give another place with --output"
        ) from error
    return target


def unknown_device(device_name: str) -> str:
    """The refusal to claim a share of any datasheet for this device, with the known ones and what to do."""
    return (
        f"no hardware profile describes {device_name!r} for certain (known are {', '.join(known_profiles())}), so no share of "
        "a datasheet is claimed; `sbd run --calibrate` measures this machine once and keeps a profile of it"
    )


def _reported(figure: MeasuredFigure) -> SourcedFigure:
    """A size that the system reports, marked as read on this machine, not from a datasheet."""
    if not figure.value:
        return SourcedFigure(value=None, source=figure.source)
    return SourcedFigure(value=figure.value, source=figure.source, grade="R", date=figure.date)
