"""The anchored rung: a datasheet times a few constants that were fitted to published speeds.

It is the default where nothing was measured, between the datasheet and a calibration. `python -m benchmarks.anchored` fits the
constants to harness.roofline.anchors and writes them to anchored.yaml beside this module, with the errors that whole devices
and whole engines show when they are held out.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Annotated, Literal, get_args

from pydantic import Field, NonNegativeFloat, PositiveInt

from harness.config_file import Name, StrictModel, Text, read_yaml
from harness.errors import InvariantError, UnknownHardwareError, UserError
from harness.hardware.figures import MemoryType
from harness.hardware.profile import HardwareProfile
from harness.roofline.ceilings import EIGHT_BITS, Ceilings, ceilings_from_measured, ceilings_from_profile, ceilings_of

Kind = Literal["single_gpu", "multi_gpu", "block_pass"]
"""What a published result tells of: one GPU, several, or passes of blocks."""
ProfileRung = Literal["datasheet", "anchored", "calibrated"]
"""The rungs that a profile alone can offer, lowest first."""
Share = Annotated[float, Field(gt=0, le=1)]
US = 1e-6
FILE = Path(__file__).with_name("anchored.yaml")


class Reached(StrictModel):
    """Speeds over the datasheet rung's prediction without the latency of links: 10th and 90th percentile of so many figures."""

    low: float
    high: float
    figures: PositiveInt


class Constants(StrictModel):
    """What the fit found.

    ``copy_share``       share of the datasheet's bandwidth that engines reach, by memory type
    ``matrix_share``     share of the matrix peak: 16-bit, 8-bit, and of the 16-bit peak where weights are unpacked first: by
                         servers' kernels (``weight_only``, not fitted: vLLM's Marlin reaches 141 of an A100's 312 TFLOP/s,
                         https://github.com/vllm-project/vllm/pull/2497), and by those of llama.cpp (``unpacked``)
    ``overlap``          of memory and arithmetic, as in Ceilings
    ``layer_us``, ``routing_layer_us``  fixed cost of a layer, and on top where it routes to experts
    ``all_reduce_us``    latency of an all-reduce; two in a layer that is split
    ``expert_reuse``     as in Ceilings
    ``metal_attention_share``, ``metal_routing_layer_us``  Apple's GPUs: attention's share of the bandwidth on top, and the
                         routing cost instead
    ``band``             80 % interval of measured over predicted speed, from held-out errors
    ``median_error_pct``  the worse of the two held-out median errors, by kind
    ``reached``          by memory type and kind
    """

    version: Literal[1]
    fitted_from: Text
    copy_share: dict[MemoryType, Share]
    matrix_share: dict[Literal["float16", "float8", "weight_only", "unpacked"], Share]
    overlap: Annotated[float, Field(ge=0, le=1)]
    layer_us: NonNegativeFloat
    routing_layer_us: NonNegativeFloat
    all_reduce_us: NonNegativeFloat
    expert_reuse: Share
    metal_attention_share: Share
    metal_routing_layer_us: NonNegativeFloat
    band: dict[Kind, tuple[float, float]]
    median_error_pct: dict[Kind, float]
    reached: dict[MemoryType, dict[Name, Reached]]


@cache
def constants() -> Constants:
    """The constants that travel with the program.

    Raises:
        InvariantError: the file is damaged.
    """
    return read_yaml(FILE, InvariantError).value(Constants)


def is_metal(profile: HardwareProfile) -> bool:
    """Whether the device runs Metal: Apple's chips, by the name that a driver reports."""
    return any(name.startswith("Apple ") for name in profile.match_names)


def ceilings_from_anchors(profile: HardwareProfile, dtype: str, engine: str = "vllm") -> Ceilings:
    """The anchored rung of a profile; ``engine``: whose kernels unpack weights.

    Raises:
        UnknownHardwareError: the profile has no peak for ``dtype``, no bandwidth, or no memory type.
    """
    fitted = constants()
    copied = None if profile.memory_type is None else fitted.copy_share.get(profile.memory_type)
    if copied is None:
        raise UnknownHardwareError(
            f"the hardware profile {profile.name!r} does not say its memory_type, so no published speed is like it; add one of "
            f"{', '.join(get_args(MemoryType))}, or choose --rung datasheet"
        )
    base, metal = ceilings_from_profile(profile, dtype), is_metal(profile)
    bandwidth = base.bandwidth_bytes_per_s * copied
    (_, peak), shares = base.matrix_rates[0], fitted.matrix_share
    unpacked = shares["unpacked" if engine == "llama.cpp" else "weight_only"]
    routing_us = fitted.metal_routing_layer_us if metal else fitted.routing_layer_us
    return replace(
        base,
        rung="anchored",
        bandwidth_bytes_per_s=bandwidth,
        matrix_rates=((1, peak * shares["float8" if dtype in EIGHT_BITS else "float16"]),),
        native_rates=tuple((name, ((1, rate * shares["float8"]),)) for name, ((_, rate),) in base.native_rates),
        unpacked_rates=((1, peak * unpacked),),
        unpacked_words=f"unpacked first for want of a faster peak, at {unpacked:g} of the {dtype} peak",
        attention_bytes_per_s=bandwidth * fitted.metal_attention_share if metal else None,
        overlap=fitted.overlap,
        fixed_s_per_layer=fitted.layer_us * US,
        fixed_s_per_routing_layer=routing_us * US,
        all_reduce_s=fitted.all_reduce_us * US,
        expert_reuse=fitted.expert_reuse,
        fixed_reason=f"fitted to published speeds: {fitted.layer_us:.0f} µs a layer",
        share_claimable=False,  # a bandwidth fitted to published speeds is no ceiling
    )


def what_if_ceilings(profile: HardwareProfile, dtype: str, rung: ProfileRung | None = None) -> Ceilings:
    """The best rung of a profile alone, or ``rung``: its measured section, else the anchored rung, else its datasheet.

    Raises:
        UnknownHardwareError: the profile has no peak for ``dtype`` or no bandwidth, or lacks what ``rung`` needs.
    """
    ceilings = None if rung else ceilings_of(profile, dtype)
    if rung == "anchored" or (ceilings and ceilings.rung == "datasheet" and profile.memory_type in constants().copy_share):
        return ceilings_from_anchors(profile, dtype)
    return ceilings or (ceilings_from_profile if rung == "datasheet" else ceilings_from_measured)(profile, dtype)


def rung_called(name: str) -> ProfileRung:
    """The rung of that name.

    Raises:
        UserError: no rung is called so.
    """
    rungs: dict[str, ProfileRung] = {rung: rung for rung in get_args(ProfileRung)}
    if name not in rungs:
        raise UserError(f"got the rung {name!r}; allowed are {', '.join(get_args(ProfileRung))}")
    return rungs[name]


def kind_of(tensor_parallel: int) -> Literal["single_gpu", "multi_gpu"]:
    """Which published speeds a deployment is like."""
    return "multi_gpu" if tensor_parallel > 1 else "single_gpu"


def reached_in_words(profile: HardwareProfile, tensor_parallel: int = 1) -> str | None:
    """What published speeds reached of the datasheet rung on this class of device; None where nothing is known of it."""
    by_kind = constants().reached.get(profile.memory_type, {}) if profile.memory_type else {}
    reached = by_kind.get(kind_of(tensor_parallel))
    if reached is None:
        return None
    return (
        f"engines reached {reached.low:.2f} to {reached.high:.2f} of the datasheet on this class of device "
        f"({str(profile.memory_type).upper()} memory, {'several GPUs' if tensor_parallel > 1 else 'one GPU'}; "
        f"{reached.figures} published speeds, 10th to 90th percentile)"
    )


def band_in_words(tensor_parallel: int = 1) -> str:
    """The 80 % interval of speeds on the anchored rung, and that of a block pass, as multiples of the prediction."""
    fitted = constants()
    speed, block = fitted.band[kind_of(tensor_parallel)], fitted.band["block_pass"]
    return (
        f"80 of 100 published speeds lie within {speed[0]:.2f} to {speed[1]:.2f} times the anchored prediction, the cost of a "
        f"block pass within {block[0]:.2f} to {block[1]:.2f} times; devices and engines held out"
    )
