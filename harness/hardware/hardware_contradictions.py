"""Figures of one profile that contradict one another: one of them has the wrong unit, or is a sparse rate.

Asked when a profile file is read, so that a run recorded earlier stays readable. Knows no file and no line: a contradiction
is said with the keys that lead to it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from harness.hardware.figures import Figure, PeakDtype
    from harness.hardware.profile import HardwareProfile

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
        yield ("memory_seen_mib",), (
            f"got {seen.value:g} MiB, more than {MEMORY_TOLERANCE:.0%} away from memory_bytes; check the units of both"
        )


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
            yield ("peak_flops_per_s", dtype), (
                f"got {value:g} FLOP/s, {value / reference:.3g} times the {reference:g} of bfloat16, allowed is {allowed:g} "
                "times; is this a sparse rate (halve it), or are the others halved (say halved_in_float32: true)?"
            )


def _odd_ridge(profile: HardwareProfile) -> Iterator[Contradiction]:
    ridge, (low, high) = profile.ridge_flops_per_byte(), RIDGE_RANGE
    if ridge is not None and not low <= ridge <= high:
        yield ("bandwidth_bytes_per_s",), (
            f"the bfloat16 peak is {ridge:g} FLOP per byte of it, allowed are {low:g} to {high:g}; "
            "check the units of both"
        )


def _ceilings_above_peaks(profile: HardwareProfile) -> Iterator[Contradiction]:
    """A rate that someone measured cannot exceed the published one."""
    measured: dict[tuple[str, ...], tuple[Figure, Figure]] = {
        ("published_ceilings", "matrix_flops_per_s", dtype): (ceiling, profile.peak_flops_per_s[dtype])
        for dtype, ceiling in profile.published_ceilings.matrix_flops_per_s.items()
    }
    copy = profile.published_ceilings.copy_bytes_per_s
    if copy is not None:
        measured["published_ceilings", "copy_bytes_per_s"] = copy, profile.bandwidth_bytes_per_s
    for place, (ceiling, peak) in measured.items():
        if ceiling.value is not None and peak.value is not None and ceiling.value > peak.value:
            yield place, f"got {ceiling.value:g}, measured, above the published peak {peak.value:g}; check the units of both"
