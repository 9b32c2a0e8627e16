"""What a device can do: published figures with their sources (HardwareProfile), or measured on the spot (Calibration).

A profile is a file that people can check line by line; an unknown device is refused, never guessed. Figures of one profile
may contradict each other (a wrong unit, a sparse rate). Reading the file refuses them by key; earlier runs stay readable.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Literal

from pydantic import Field, PositiveFloat, PositiveInt, ValidationError

from harness.config_file import Flag, Name, StrictModel, Text, read_yaml
from harness.errors import UnknownHardwareError
from harness.hardware.figures import (
    Bandwidth,
    Cache,
    MeasuredCeilings,
    Memory,
    MemoryMib,
    MemoryType,
    Multiprocessors,
    Peak,
    PeakDtype,
    Peaks,
    Power,
    Price,
    SourcedFigure,
)
from harness.paths import data_dir, user_data_dir

Contradiction = tuple[tuple[str, ...], str]

# A driver reports up to about 8 % more than the label (H200: 143771 MiB against "141 GB", 7 %); 40 and 80 GB are far apart.
MEMORY_TOLERANCE = 0.12
MIB = 1 << 20
# FLOP per byte; published devices lie between 37 (H20) and 419 (L40S). Beyond this, peak and bandwidth differ in unit.
RIDGE_RANGE = (3.0, 3000.0)
# Largest dense rate of a dtype as a multiple of bfloat16's; sparse figures are twice the dense ones.
DENSE_RATIO: dict[PeakDtype, float] = {"float16": 1.0, "float8": 2.0, "int8": 2.0, "tf32": 0.5, "float32": 1.0}
# Integers keep their rate where bfloat16's is halved by accumulation in float32.
INT8_RATIO_WHERE_HALVED = 4.0
ROUNDING = 1.05


def contradictions(profile: HardwareProfile) -> Iterator[Contradiction]:
    """(place of the figure, what was given, what is allowed and what to do) for every contradiction."""
    yield from _sparse_peaks(profile)
    yield from _odd_ridge(profile)
    yield from _ceilings_above_peaks(profile)
    seen = profile.memory_seen_mib
    if seen is not None and seen.value is not None and not memory_agrees(profile, round(seen.value * MIB)):
        what = f"got {seen.value:g} MiB, more than {MEMORY_TOLERANCE:.0%} away from memory_bytes; check the units of both"
        yield ("memory_seen_mib",), what


def memory_agrees(profile: HardwareProfile, memory_bytes: int | None) -> bool:
    """Whether a memory of ``memory_bytes``, as a driver reports it, may be this device's; unknown agrees with everything."""
    label = profile.memory_bytes.value
    return memory_bytes is None or label is None or abs(memory_bytes / label - 1) <= MEMORY_TOLERANCE


def _sparse_peaks(profile: HardwareProfile) -> Iterator[Contradiction]:
    reference = profile.peak_flops_per_s["bfloat16"].value
    if reference is None:
        return
    for dtype, ratio in DENSE_RATIO.items():
        allowed, value = ratio, profile.peak_flops_per_s[dtype].value
        if dtype == "int8" and profile.halved_in_float32:
            allowed = INT8_RATIO_WHERE_HALVED
        if value is not None and value > allowed * ROUNDING * reference:
            what = (
                f"got {value:g} FLOP/s, {value / reference:.3g} times the {reference:g} of bfloat16, allowed is {allowed:g} "
                "times; is this a sparse rate (halve it), or are the others halved (say halved_in_float32: true)?"
            )
            yield ("peak_flops_per_s", dtype), what


def _odd_ridge(profile: HardwareProfile) -> Iterator[Contradiction]:
    ridge, (low, high) = profile.ridge_flops_per_byte(), RIDGE_RANGE
    if ridge is not None and not low <= ridge <= high:
        what = f"the bfloat16 peak is {ridge:g} FLOP per byte of it, allowed are {low:g} to {high:g}; check the units of both"
        yield ("bandwidth_bytes_per_s",), what


def _ceilings_above_peaks(profile: HardwareProfile) -> Iterator[Contradiction]:
    """A rate that someone measured cannot exceed the published one."""
    measured: dict[tuple[str, ...], tuple[SourcedFigure, SourcedFigure]] = {
        ("published_ceilings", "matrix_flops_per_s", dtype): (ceiling, profile.peak_flops_per_s[dtype])
        for dtype, ceiling in profile.published_ceilings.matrix_flops_per_s.items()
    }
    copy = profile.published_ceilings.copy_bytes_per_s
    if copy is not None:
        measured["published_ceilings", "copy_bytes_per_s"] = copy, profile.bandwidth_bytes_per_s
    for place, (ceiling, peak) in measured.items():
        if ceiling.value is not None and peak.value is not None and ceiling.value > peak.value:
            yield place, f"got {ceiling.value:g}, measured, above the published peak {peak.value:g}; check the units of both"


# Slices of a GPU: "H100 80GB HBM3 MIG 1g.10gb", "L40S-48Q" (vGPU). The figures of the whole part do not hold for them.
_SLICE = re.compile(r"\bMIG\b|-\d+[ABCQ]\b")


class PublishedCeilings(StrictModel):
    """Rates that others measured on the part: lower than its peaks, and never mixed with them."""

    matrix_flops_per_s: dict[PeakDtype, Peak] = Field(default_factory=dict)
    copy_bytes_per_s: Bandwidth | None = None


Topology = Literal["switch", "mesh", "bridge", "host"]


class Interconnect(StrictModel):
    """How devices of one kind are joined: the topology of their own link (harness.hardware.links.Link), how many it joins, and
    the PCIe that joins more. None: they have only PCIe, it joins any number, no board with PCIe.
    """

    topology: Topology | None = None
    joins: PositiveInt | None = None
    host: Literal["pcie4", "pcie5"] | None = None


class HardwareProfile(StrictModel):
    """A device as published. Peaks are dense (no sparsity); sizes in decimal bytes; price per device and hour.

    ``match_names`` are looked for as whole words in the name a driver reports; ``excluded_names`` belong to parts without
    a profile whose names contain ours (``RTX 4090 D``). ``memory_bytes`` is the label, ``memory_seen_mib`` a driver's.
    ``halved_in_float32``: the rates below float32 are halved where they accumulate in float32, as PyTorch does (GeForce).
    ``links``: how several are joined, beside the rate of a link; None: not said.
    ``memory_type``: the kind of memory, which decides how much of its bandwidth engines reach; None: not said.
    ``measured``: what `sbd calibrate` found one such device to reach.
    """

    name: Name
    kind: Literal["gpu", "cpu"]
    match_names: tuple[Text, ...]
    excluded_names: tuple[Text, ...] = ()
    peak_flops_per_s: Peaks
    halved_in_float32: Flag = False
    bandwidth_bytes_per_s: Bandwidth
    memory_bytes: Memory
    memory_seen_mib: MemoryMib | None = None
    memory_type: MemoryType | None = None
    cache_bytes: Cache
    link_bytes_per_s: Bandwidth
    links: Interconnect | None = None
    power_w: Power
    multiprocessors: Multiprocessors | None = None
    price_usd_per_hour: Price
    published_ceilings: PublishedCeilings = PublishedCeilings()
    notes: Text | None = None
    measured: MeasuredCeilings | None = None

    def ridge_flops_per_byte(self, dtype: PeakDtype = "bfloat16") -> float | None:
        """Peak over bandwidth, FLOP/byte; work with less per byte read is bound by memory. None where either is unknown."""
        peak, bandwidth = self.peak_flops_per_s[dtype].value, self.bandwidth_bytes_per_s.value
        return None if peak is None or bandwidth is None else peak / bandwidth


class BandwidthPoint(StrictModel):
    """Best read rate found for a buffer of ``bytes_`` bytes, and the kernel that reached it."""

    bytes_: PositiveInt
    bytes_per_s: PositiveFloat
    kernel: str


class DtypeRates(StrictModel):
    """Rates of one dtype by query tokens m. All sequences are sorted by m.

    ``streaming``  (m, seconds per byte of weight) of linear layers over as many weights as the model has, at most 512 MiB
    ``resident``   (m, FLOP/s) of a matrix product whose weight stays in the cache
    ``attention``  (m, FLOP/s) of attention whose keys and values stay in the cache, with m queries a KV head; None: not
                   measured, as on a GPU and in calibrations before version 2
    """

    streaming: tuple[tuple[PositiveInt, PositiveFloat], ...]
    resident: tuple[tuple[PositiveInt, PositiveFloat], ...]
    attention: tuple[tuple[PositiveInt, PositiveFloat], ...] | None = None


def engine_words(session: str, execution: str) -> str:
    """The name, in a calibration, of the engine whose fixed cost it measured."""
    return f"{session}, {execution}"


class Calibration(StrictModel):
    """Raw results of the on-machine calibration; the ceilings are derived on reading. Times are medians.

    ``read_bandwidth`` is sorted by size: the model's own size first, then, where memory allows, at least 4 GiB.
    ``dram_bound`` is None where the second size is missing. ``fixed_hidden``: fixed cost is the host's launch work
    and runs beside the device's arithmetic (CUDA, eager) instead of before it (a CPU) or in between (captured graphs).
    ``engine``: the session and execution whose fixed cost it is. ``disturbed``: what else ran meanwhile, which is why it was
    not kept for later runs; None where nothing is known to.
    """

    version: Literal[1, 2] = 2
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
    disturbed: str | None = None


@cache
def known_profiles() -> dict[str, HardwareProfile]:
    """All profiles that travel with the program, by name.

    Raises:
        UnknownHardwareError: a profile file is refused; the message names file and line.
    """
    return {name: _shipped(name) for name in _shipped_names()}


@cache
def _shipped_names() -> tuple[str, ...]:
    """A shipped profile is named as its file."""
    return tuple(sorted(file.stem for file in data_dir("hardware_profiles").glob("*.yaml")))


@cache
def _shipped(name: str) -> HardwareProfile:
    return _read_profile(data_dir("hardware_profiles") / f"{name}.yaml")


def local_profiles() -> dict[str, HardwareProfile]:
    """The profiles that `sbd calibrate` saved on this machine, by name.

    Raises:
        UnknownHardwareError: one cannot be read; the message names it.
    """
    files = sorted(user_data_dir("hardware_profiles").glob("*.yaml"), key=lambda file: file.stem)
    return {profile.name: profile for profile in map(_read_profile, files)}


def find_local_profile(device_name: str, memory_bytes: int | None = None) -> HardwareProfile | None:
    """The local profile of the device that reports exactly this name, and this much memory where both are known."""
    for profile in local_profiles().values():
        named = profile.measured is not None and profile.measured.device_name.lower() == device_name.lower()
        if named and memory_agrees(profile, memory_bytes):
            return profile
    return None


def load_profile(name: str) -> HardwareProfile:
    """The profile called ``name``, the one in the YAML file at that path, or this machine's own one of the device ``name``.

    Raises:
        UnknownHardwareError: no such profile, and the message lists the known ones; or the file is refused, with its line.
    """
    if name.endswith((".yaml", ".yml")):
        return _read_profile(Path(name))
    if name.lower() in _shipped_names():
        return _shipped(name.lower())
    known = known_profiles() | local_profiles()
    profile = known.get(name.lower()) or find_local_profile(name)
    if profile is None:
        longer = [other for other in known if other.startswith(name.lower())]
        near = ", ".join(longer or difflib.get_close_matches(name.lower(), known, cutoff=0.65))
        raise UnknownHardwareError(
            f"no hardware profile is called {name!r}{f' (did you mean {near}?)' if near else ''}; "
            f"known are {', '.join(known)}. Choose one of these (`sbd hardware` shows their figures), give the path of a "
            "YAML file in the same form, or measure this machine: `sbd calibrate`."
        )
    return profile


def match_profile(device_name: str, memory_bytes: int | None, multiprocessors: int | None = None) -> HardwareProfile | None:
    """The profile of the device that a driver calls ``device_name``, or None where no profile is certain.

    The longest matching name wins. Memory must agree within 12 % and the number of multiprocessors exactly, each where both
    sides know it. A name that two profiles still share matches neither. A slice of a GPU (MIG, vGPU) matches nothing.
    """
    if _SLICE.search(device_name):
        return None
    named = [(len(alias), profile) for profile in known_profiles().values() if (alias := _longest_alias(profile, device_name))]
    longest = max((length for length, _ in named), default=0)
    candidates = []
    for length, profile in named:
        published = profile.multiprocessors and profile.multiprocessors.value
        agree = multiprocessors is None or published in (None, multiprocessors)
        if length == longest and agree and memory_agrees(profile, memory_bytes):
            candidates.append(profile)
    return candidates[0] if len(candidates) == 1 else None


def _longest_alias(profile: HardwareProfile, device_name: str) -> str | None:
    if any(_contains_words(device_name, other) for other in profile.excluded_names):
        return None
    return max((alias for alias in profile.match_names if _contains_words(device_name, alias)), key=len, default=None)


def _contains_words(text: str, words: str) -> bool:
    """Whole words only: "L4" is not in "L40S", "H200" is not in "GH200"."""
    return re.search(rf"(?<![a-z0-9]){re.escape(words.lower())}(?![a-z0-9])", text.lower()) is not None


def _read_profile(path: Path) -> HardwareProfile:
    document = read_yaml(path, UnknownHardwareError, "write a hardware profile (start from a shipped one)")
    try:
        profile = HardwareProfile.model_validate(document.data)
    except ValidationError as error:
        raise UnknownHardwareError(*document.describe(error)) from error
    found = [f"{path}:{document.line_of(place)}: {'.'.join(place)}: {what}" for place, what in contradictions(profile)]
    if found:
        raise UnknownHardwareError(*found)
    return profile
