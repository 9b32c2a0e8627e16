"""What a device can do: published figures with their sources (HardwareProfile), or measured on the spot (Calibration).

A profile is a file that people can check line by line; an unknown device is a refusal, never a guess. This module
measures nothing and prices nothing, and knows no model.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, PositiveFloat, PositiveInt, ValidationError, model_validator

from harness.datafiles import data_dir, user_data_dir
from harness.errors import UnknownHardwareError
from harness.measured import MeasuredCeilings

Grade = Literal["V", "R", "S", "U"]
PeakDtype = Literal["bfloat16", "float16", "float8", "int8", "float32", "tf32"]

# A driver reports up to about 8 % more than the label (H200: 143771 MiB against "141 GB", 7 %); 40 and 80 GB are far apart.
MEMORY_TOLERANCE = 0.12


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Figure(_Frozen):
    """One published figure. ``value`` is None where it is not known, and then ``source`` says why.

    ``grade``: V verified in a vendor's or project's source, R measured by us, S secondary, U unverified.
    """

    value: PositiveFloat | None
    source: str = Field(min_length=1)
    grade: Grade | None = None
    date: str | None = None

    @model_validator(mode="after")
    def _graded(self) -> Figure:
        if self.value is not None and self.grade is None:
            raise ValueError("a figure with a value needs a grade: V, R, S or U")
        return self


class HardwareProfile(_Frozen):
    """A device as published. Peaks are dense (no sparsity); sizes in decimal bytes; price per device and hour.

    ``match_names`` are looked for as whole words in the name a driver reports; ``excluded_names`` belong to other parts
    whose names contain ours (``H200 NVL``). ``measured`` is what `sbd calibrate` found one such device to reach.
    """

    name: str
    kind: Literal["gpu", "cpu"]
    match_names: tuple[str, ...]
    excluded_names: tuple[str, ...] = ()
    peak_flops_per_s: dict[PeakDtype, Figure]
    bandwidth_bytes_per_s: Figure
    memory_bytes: Figure
    cache_bytes: Figure
    link_bytes_per_s: Figure
    power_w: Figure
    price_usd_per_hour: Figure
    notes: str | None = None
    measured: MeasuredCeilings | None = None


class BandwidthPoint(_Frozen):
    """Best read rate found for a buffer of ``bytes_`` bytes, and the kernel that reached it."""

    bytes_: PositiveInt
    bytes_per_s: PositiveFloat
    kernel: str


class DtypeRates(_Frozen):
    """Matrix rates of one dtype by query tokens m. Both sequences are sorted by m.

    ``streaming``  (m, seconds per byte of weight) of linear layers over as many weights as the model has, at most 512 MiB
    ``resident``   (m, FLOP/s) of a matrix product whose weight stays in the cache
    """

    streaming: tuple[tuple[PositiveInt, PositiveFloat], ...]
    resident: tuple[tuple[PositiveInt, PositiveFloat], ...]


def engine_words(session: str, execution: str) -> str:
    """What a calibration calls the engine whose fixed cost it measured."""
    return f"{session}, {execution}"


class Calibration(_Frozen):
    """Raw results of the on-machine calibration; the ceilings are derived on reading. Times are medians.

    ``read_bandwidth`` is sorted by size: the model's own size first, then, where memory allows, at least 4 GiB.
    ``dram_bound`` is None where the second size is missing. ``fixed_hidden``: fixed cost is the host's launch work
    and runs beside the device's arithmetic (CUDA) instead of before it (CPU). ``engine``: the session and execution whose
    fixed cost it is.
    """

    version: Literal[1] = 1
    engine: str = "plain, eager"
    device_name: str
    device: str
    threads: PositiveInt | None
    torch_version: str
    created_at: str
    load_1min: float | None
    model_bytes: PositiveInt
    read_bandwidth: tuple[BandwidthPoint, ...] = Field(min_length=1)
    dram_bound: bool | None
    dram_bound_reason: str
    rates: dict[str, DtypeRates]
    fixed_s_per_pass: float | None
    fixed_s_per_layer: float | None
    fixed_reason: str | None = None
    fixed_hidden: bool
    sampler_s_per_logit: PositiveFloat


@cache
def known_profiles() -> dict[str, HardwareProfile]:
    """All profiles that travel with the program, by name.

    Raises:
        UnknownHardwareError: a profile file cannot be read; the message names it.
    """
    profiles = (_read_profile(path) for path in sorted(data_dir("hardware_profiles").glob("*.yaml")))
    return {profile.name: profile for profile in profiles}


def local_profiles() -> dict[str, HardwareProfile]:
    """The profiles that `sbd calibrate` has left on this machine, by name.

    Raises:
        UnknownHardwareError: one cannot be read; the message names it.
    """
    profiles = (_read_profile(path) for path in sorted(user_data_dir("hardware_profiles").glob("*.yaml")))
    return {profile.name: profile for profile in profiles}


def find_local_profile(device_name: str, memory_bytes: int | None = None) -> HardwareProfile | None:
    """The local profile of the device that reports exactly this name, and this much memory where both are known."""
    return next(
        (
            profile for profile in local_profiles().values()
            if profile.measured and profile.measured.device_name.lower() == device_name.lower()
            and _memory_agrees(profile, memory_bytes)
        ),
        None,
    )  # fmt: skip


def load_profile(name: str) -> HardwareProfile:
    """The profile called ``name``, the one in the YAML file at that path, or this machine's own one of the device ``name``.

    Raises:
        UnknownHardwareError: there is none; the message lists the known ones.
    """
    if name.endswith((".yaml", ".yml")):
        return _read_profile(Path(name))
    profile = known_profiles().get(name.lower()) or local_profiles().get(name.lower()) or find_local_profile(name)
    if profile is None:
        raise UnknownHardwareError(
            f"no hardware profile is called {name!r}; known are {', '.join([*known_profiles(), *local_profiles()])}. "
            "Choose one of these, give the path of a YAML file in the same form, or measure this machine: `sbd calibrate`."
        )
    return profile


def match_profile(device_name: str, memory_bytes: int | None) -> HardwareProfile | None:
    """The profile of the device that a driver calls ``device_name``, or None where no profile is certain.

    The longest matching name wins; the memory must agree within 12 % where it is known, and where it is not, a name
    shared by two profiles matches neither.
    """
    found = [(len(alias), profile) for profile in known_profiles().values() if (alias := _longest_alias(profile, device_name))]
    if not found:
        return None
    longest = max(length for length, _ in found)
    candidates = [p for length, p in found if length == longest and _memory_agrees(p, memory_bytes)]
    return candidates[0] if len(candidates) == 1 else None


def _longest_alias(profile: HardwareProfile, device_name: str) -> str | None:
    if any(_contains_words(device_name, other) for other in profile.excluded_names):
        return None
    return max((alias for alias in profile.match_names if _contains_words(device_name, alias)), key=len, default=None)


def _contains_words(text: str, words: str) -> bool:
    """Whole words only: "L4" is not in "L40S", "H200" is not in "GH200"."""
    return re.search(rf"(?<![a-z0-9]){re.escape(words.lower())}(?![a-z0-9])", text.lower()) is not None


def _memory_agrees(profile: HardwareProfile, memory_bytes: int | None) -> bool:
    label = profile.memory_bytes.value
    return memory_bytes is None or label is None or abs(memory_bytes / label - 1) <= MEMORY_TOLERANCE


def _read_profile(path: Path) -> HardwareProfile:
    try:
        return HardwareProfile.model_validate(yaml.safe_load(path.read_text(encoding="utf-8")))
    except OSError as error:
        raise UnknownHardwareError(f"{path}: the hardware profile cannot be read ({error.strerror}); check the path") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise UnknownHardwareError(f"{path}: not a YAML file ({error}); see the shipped profiles for the form") from error
    except ValidationError as error:
        faults = "; ".join(f"{'.'.join(map(str, e['loc'])) or 'file'}: {e['msg']}" for e in error.errors())
        raise UnknownHardwareError(
            f"{path}: not a hardware profile: {faults}; see the shipped profiles for the form"
        ) from error
