"""The rates that bound a pass: from a datasheet, from what others measured, or from a calibration of this machine.

The sources are rungs of one ladder:
* datasheet: one peak, no fixed cost; published: the same with the rates that others measured on the part.
* anchored: the datasheet times a few constants that were fitted to published speeds (harness.roofline.anchored).
* calibrated: the rates this machine reached, and an overlap fitted to them.
* shape-calibrated: calibrated, corrected by measured passes of the model (harness.roofline.shape_calibration).

Only a calibration measures how far memory and arithmetic overlap; without one the middle of the two ends is expected.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

from harness.errors import UnknownHardwareError, UserError
from harness.frozen import frozen, positional
from harness.hardware.figures import MeasuredCeilings
from harness.hardware.links import Link, link_of
from harness.hardware.profile import Calibration, HardwareProfile
from harness.models import DTYPE_BYTES, ModelShape
from harness.models.deployment import Deployment, element_bytes
from harness.roofline.feed_forward import expected_experts
from harness.roofline.operation import PassCounts, Points, choose, interpolate, is_one_of, larger

Rung = Literal["datasheet", "published", "anchored", "calibrated", "shape-calibrated"]

PAIR = 2
"""The fewest devices that share a model: a rung of a profile has the link of a pair; ``joined`` gives that of more."""
EIGHT_BITS = ("float8", "int8")  # what devices multiply weights in, besides their wider dtypes
LARGEST_FIT_ERROR = 1.0
"""Limit of a calibration's error on its own streaming times: quiet machines leave 0.04 to 0.27, a busy one left 15."""


@frozen
class PassFactors:
    """The top rung: corrections for all passes of a model, from a few measured ones (harness.roofline.shape_calibration).

    A measured pass gives the ratio of measured to priced time, without attention, at its number of matrix lines. One factor is
    kept for each overlap of memory and arithmetic (full, expected, none). At the measured sizes the three agree; away from them
    their range is the uncertainty of the extrapolation.

    ``overlapped``, ``expected``, ``serial``  (matrix lines, measured ÷ priced) of the forward without its attention, for each
                       overlap of memory and arithmetic
    ``spread``         the mean of the decodes that are predicted lies between these multiples of the factors: from the 10th
                       and 90th percentile of the means of measured decodes
    ``spread_between`` the same where that number of lines was not measured, so that a factor comes from its neighbours
    ``measured_lines`` numbers of lines that were measured; the other factors are derived from these
    ``after_one_s``    median seconds after the forward of a pass that wants one logit a row (sampler and loop); None: not
                       measured
    ``after_block_s``  (logit lines, seconds) after the forward of a pass that wants several
    ``s_per_line``     seconds that each further row takes in the sampler where a row wants one logit
    ``s_per_block_line``  seconds that each logit line beyond the largest measured pass takes
    """

    overlapped: Points
    expected: Points
    serial: Points
    spread: tuple[float, float]
    spread_between: tuple[float, float]
    measured_lines: tuple[int, ...]
    after_one_s: float | None
    after_block_s: Points
    s_per_line: float
    s_per_block_line: float

    def spread_at(self, lines: Any) -> tuple[Any, Any]:
        """``spread`` where that number of lines was measured, else ``spread_between``."""
        measured = is_one_of(lines, self.measured_lines)
        low, high = (choose(measured, at, between) for at, between in zip(self.spread, self.spread_between, strict=True))
        return low, high

    def after_s(self, counts: PassCounts) -> Any:
        """Sampler and loop after the forward of a pass: as measured, and beyond the largest measured one line by line."""
        lines = counts.logit_lines
        several = self.after_one_s
        if self.after_block_s:
            most, _ = self.after_block_s[-1]
            several = interpolate(self.after_block_s, lines) + larger(lines - most, 0) * self.s_per_block_line
        single = self.after_one_s if self.after_one_s is not None else several
        assert single is not None and several is not None, "made from no pass"
        return choose(counts.logits == 1, single + (counts.rows - 1) * self.s_per_line, several)


@frozen
class Ceilings:
    """Rates that bound a pass.

    ``matrix_rates``         (tokens m, FLOP/s), sorted by m; one entry where a single peak is known
    ``attention_rates``      (queries m that share a KV head, FLOP/s) of attention, sorted by m; None: not known, priced at the
                             matrix rate of the tokens of a row
    ``overlap``              0: memory and arithmetic run one after the other, 1: fully side by side; None: not measured,
                             priced as the middle of the two
    ``stall``                at least 1: streaming time over their sum, where the two hinder each other
    ``fixed_s_per_pass``, ``fixed_s_per_layer``  cost besides bytes and flops; None: not known, not priced;
                             ``fixed_reason`` says why
    ``fixed_s_per_routing_layer``  cost on top in a layer that routes to experts: router, selection, gathering
    ``all_reduce_s``         latency of one all-reduce between devices; None: not known, only its bytes are priced
    ``native_rates``         matrix rates of weights in fewer bits than ``dtype``, by the dtype that a device multiplies them in
    ``unpacked_rates``       of other such weights, which are unpacked first, as ``unpacked_words`` say; None: matrix_rates
    ``expert_reuse``         n tokens visit as many experts as n to this power would under independent routing
    ``attention_bytes_per_s``  rate of attention's reads; None: bandwidth_bytes_per_s
    ``fixed_hidden``         fixed cost runs beside the arithmetic (a host launching kernels), not before or between it (a CPU;
                             captured graphs, whose kernels follow one another)
    ``sampler_s_per_logit``  None: the sampler is priced by its bytes
    ``link_bytes_per_s``     what a device can send to the others; None: not known, a model split over devices has no price
    ``link_latency_s``       of one transfer between two devices, the bytes apart
    ``cache_bytes``          the last-level cache, which holds what one fused operation hands to the next; None: not known, and
                             then all activations are priced as moved
    ``share_claimable``      whether a share of this bandwidth may be claimed
    ``factors``              corrections from measured passes of the very model; None below the top rung
    """

    rung: Rung
    device_name: str
    dtype: str
    bandwidth_bytes_per_s: float
    matrix_rates: Points
    attention_rates: Points | None = None
    overlap: float | None = None
    stall: float = 1.0
    fixed_s_per_pass: float | None = None
    fixed_s_per_layer: float | None = None
    fixed_s_per_routing_layer: float | None = None
    all_reduce_s: float | None = None
    native_rates: tuple[tuple[str, Points], ...] = ()
    unpacked_rates: Points | None = None
    unpacked_words: str = "unpacked first, which costs no time"
    expert_reuse: float | None = None
    attention_bytes_per_s: float | None = None
    fixed_reason: str | None = None
    fixed_hidden: bool = False
    sampler_s_per_logit: float | None = None
    link_bytes_per_s: float | None = None
    link_latency_s: float = 0.0
    cache_bytes: float | None = None
    share_claimable: bool = True
    factors: PassFactors | None = None

    def for_weights(self, deployment: Deployment, operation: str = "ffn") -> Ceilings:
        """These ceilings for an operation of a pass: with the faster rates of its weights' format where that has fewer bits."""
        stored = deployment.stored(operation)
        if stored is None or stored.bits >= 8 * DTYPE_BYTES.get(self.dtype, 1):
            return self
        unpacked = self.unpacked_rates or self.matrix_rates
        return replace(self, matrix_rates=max(unpacked, dict(self.native_rates).get(stored.native, unpacked)))

    def arithmetic(self, deployment: Deployment) -> str:
        """How weights are multiplied, in words."""
        rated, stored = self.for_weights(deployment), deployment.weights
        if stored is None or rated is self:
            return f"all matrix products in {self.dtype}"
        native = rated.matrix_rates == dict(self.native_rates).get(stored.native)
        how = f"multiplied in {stored.native}" if native else self.unpacked_words
        return f"{stored.name} weights {how}; attention and LM head in {self.dtype}"

    def fixed_s(self, shape: ModelShape, deployment: Deployment) -> float:
        """Seconds of a pass that are neither bytes nor flops. A split layer has two all-reduces, with DP attention one."""
        routing = shape.moe.layers * (self.fixed_s_per_routing_layer or 0.0) if shape.moe else 0.0
        each = 1 if deployment.attention_data_parallel else 2
        reduced = each * shape.layers * (self.all_reduce_s or 0.0) if deployment.tensor_parallel > 1 else 0.0
        return (self.fixed_s_per_pass or 0.0) + shape.layers * (self.fixed_s_per_layer or 0.0) + routing + reduced

    def visited_experts(self, shape: ModelShape, lines: int) -> float | None:
        """Distinct experts that a pass is expected to visit, over all layers; None: as under independent routing."""
        moe = shape.moe
        if moe is None or self.expert_reuse is None:
            return None
        return moe.layers * expected_experts(moe.experts, moe.experts_per_token, lines**self.expert_reuse)

    def matrix_flops_per_s(self, tokens: float) -> float:
        """Matrix rate at ``tokens`` lines: linear in log-log between measured points, held constant outside them."""
        rate: float = interpolate(self.matrix_rates, tokens)
        return rate

    def attention_flops_per_s(self, tokens: float, sharing: float) -> float:
        """Rate of attention by ``tokens`` tokens a row, ``sharing`` query heads of each meeting the same KV head."""
        if self.attention_rates is None:
            return self.matrix_flops_per_s(tokens)
        rate: float = interpolate(self.attention_rates, tokens * sharing)
        return rate


@positional
class OverlapFit:
    """Overlap in [0, 1], stall >= 1 (1 unless the overlap is 0), and the largest relative error they leave."""

    overlap: float
    stall: float
    error: float


def fit_overlap(streaming: Points, resident: Points, bandwidth_bytes_per_s: float, bytes_per_element: int) -> OverlapFit:
    """The overlap o with the least squared relative error of max + (1 - o) * min against measured streaming times.

    Where o = 0 is still too fast, the sum is multiplied by the stall factor that fits best.

    Args:
        streaming: (m, seconds per weight byte) of a linear layer read from memory.
        resident: (m, FLOP/s) of such a layer with its weight in the cache.
        bandwidth_bytes_per_s: read rate; memory time is 1 / bandwidth per weight byte.
        bytes_per_element: a weight byte carries 2 * m / bytes_per_element flops.
    """
    parts = []
    for tokens, measured_s in streaming:
        memory_s = 1 / bandwidth_bytes_per_s
        compute_s = 2 * tokens / bytes_per_element / interpolate(resident, tokens)
        parts.append((max(memory_s, compute_s) / measured_s, min(memory_s, compute_s) / measured_s))
    best = sum(shorter * (longer + shorter - 1) for longer, shorter in parts) / sum(shorter**2 for _, shorter in parts)
    overlap, stall = min(1.0, max(0.0, best)), 1.0
    if overlap == 0.0:
        sums = [longer + shorter for longer, shorter in parts]
        stall = max(1.0, sum(sums) / sum(both**2 for both in sums))
    error = max(abs(stall * (longer + (1 - overlap) * shorter) - 1) for longer, shorter in parts)
    return OverlapFit(overlap, stall, error)


def ceilings_from_profile(profile: HardwareProfile, dtype: str) -> Ceilings:
    """The datasheet rung, with the link of a pair (see joined).

    Raises:
        UnknownHardwareError: the profile has no peak for ``dtype``, or no bandwidth.
    """
    peaks = {str(name): figure.value for name, figure in profile.peak_flops_per_s.items() if figure.value is not None}
    peak, bandwidth = peaks.get(dtype), profile.bandwidth_bytes_per_s.value
    if peak is None or bandwidth is None:
        missing = f"no peak for {dtype!r} (it has {', '.join(peaks) or 'none'})" if peak is None else "no bandwidth"
        raise UnknownHardwareError(
            f"the hardware profile {profile.name!r} has {missing}; choose another dtype or add the figure with its source"
        )
    ceilings = Ceilings(
        rung="datasheet",
        device_name=profile.name,
        dtype=dtype,
        bandwidth_bytes_per_s=bandwidth,
        matrix_rates=((1, peak),),
        native_rates=tuple((name, ((1, peaks[name]),)) for name in EIGHT_BITS if name in peaks),
        fixed_reason="a datasheet knows no launch cost",
        cache_bytes=profile.cache_bytes.value,
    )
    return joined(ceilings, profile, PAIR)


def ceilings_from_published(profile: HardwareProfile, dtype: str) -> Ceilings:
    """The published rung: the copy rate and matrix rate that others measured on the part.

    A copy reads and writes; decode mostly reads, so its own ceiling may be a little higher. A figure for bfloat16 is also
    used for float16.

    Raises:
        UnknownHardwareError: the profile has no published copy rate, or no matrix rate for ``dtype``.
    """
    measured = profile.published_ceilings
    copy, rates = measured.copy_bytes_per_s, measured.matrix_flops_per_s
    matrix = rates.get("bfloat16" if dtype == "float16" else dtype)  # type: ignore[call-overload]  # any dtype may be asked for
    if copy is None or copy.value is None or matrix is None or matrix.value is None:
        missing = "copy rate" if copy is None or copy.value is None else f"matrix rate for {dtype!r}"
        raise UnknownHardwareError(
            f"the hardware profile {profile.name!r} has no {missing} that others measured; use the datasheet rung, "
            "or add the figure with its source under published_ceilings"
        )
    ceilings = Ceilings(
        rung="published",
        device_name=profile.name,
        dtype=dtype,
        bandwidth_bytes_per_s=copy.value,
        matrix_rates=((1, matrix.value),),
        fixed_reason="rates measured by others come without a launch cost",
        cache_bytes=profile.cache_bytes.value,
    )
    return joined(ceilings, profile, PAIR)


def ceilings_from_calibration(calibration: Calibration, dtype: str) -> Ceilings:
    """The calibrated rung: the read rate at the model's own size, matrix rates by m, fitted overlap, fixed costs.

    Raises:
        UserError: the calibration was not made for ``dtype``, or contradicts itself.
    """
    rates = calibration.rates.get(dtype)
    if rates is None:
        raise UserError(
            f"the calibration of {calibration.device_name!r} covers {', '.join(calibration.rates)}, not {dtype!r}; "
            f"calibrate again with dtype {dtype}"
        )
    bandwidth = calibration.read_bandwidth[0].bytes_per_s
    fit = fit_overlap(rates.streaming, rates.resident, bandwidth, element_bytes(dtype))
    if fit.error > LARGEST_FIT_ERROR:
        raise UserError(
            f"the calibration of {calibration.device_name!r} for {dtype} contradicts itself: what its rates say of layers "
            f"streamed from memory is off by {fit.error:.0%} of the measured times (allowed {LARGEST_FIT_ERROR:.0%}); the "
            "machine was busy with something else, calibrate again when it is quiet"
        )
    return _calibrated(
        calibration,
        dtype,
        bandwidth,
        rates.resident,
        rates.attention,
        fit,
        fixed_s_per_pass=calibration.fixed_s_per_pass,
        fixed_s_per_layer=calibration.fixed_s_per_layer,
        fixed_reason=calibration.fixed_reason,
        sampler_s_per_logit=calibration.sampler_s_per_logit,
        share_claimable=calibration.dram_bound is True,
    )


def ceilings_from_measured(profile: HardwareProfile, dtype: str) -> Ceilings:
    """The calibrated rung from the measured section of a profile, where a run brings no calibration of its own.

    No model is known, so the read rate is that of the largest buffer. It is memory's rate where the buffer is known to exceed
    the cache four times. It says nothing about a model that fits the cache.

    Raises:
        UnknownHardwareError: the profile has no measured section, or none for ``dtype``.
    """
    measured = profile.measured
    curves = {str(name): curve for name, curve in measured.matrix_flops_per_s.items() if curve.known} if measured else {}
    if measured is None or measured.largest_read is None or dtype not in curves:
        missing = f"has no measured rates for {dtype!r} (it has {', '.join(curves) or 'none'})"
        raise UnknownHardwareError(
            f"the hardware profile {profile.name!r} {missing}; run `sbd calibrate --dtype {dtype}` on that machine"
        )
    resident, bandwidth = curves[dtype].known, measured.largest_read[1]
    streaming, attention = (
        {str(name): curve.known or None for name, curve in curve_of.items()}.get(dtype)
        for curve_of in (measured.streaming_s_per_byte, measured.attention_flops_per_s)
    )
    ceilings = _calibrated(
        measured,
        dtype,
        bandwidth,
        resident,
        attention,
        fit_overlap(streaming, resident, bandwidth, element_bytes(dtype)) if streaming else None,
        fixed_s_per_pass=measured.fixed_s_per_pass.value,
        fixed_s_per_layer=measured.fixed_s_per_layer.value,
        fixed_reason=None if measured.fixed_s_per_pass.value is not None else measured.fixed_s_per_pass.source,
        sampler_s_per_logit=measured.sampler_s_per_logit.value,
        cache_bytes=measured.cache_bytes.value or None,
        share_claimable=measured.read_is_memory[0],
    )
    return joined(ceilings, profile, PAIR)  # one machine alone measures no link: as published


def _calibrated(
    measured: Calibration | MeasuredCeilings,
    dtype: str,
    bandwidth: float,
    resident: Points,
    attention: Points | None,
    fit: OverlapFit | None,
    **others: Any,
) -> Ceilings:
    return Ceilings(
        rung="calibrated",
        device_name=measured.device_name,
        dtype=dtype,
        bandwidth_bytes_per_s=bandwidth,
        matrix_rates=resident,
        attention_rates=attention,
        overlap=fit.overlap if fit else None,
        stall=fit.stall if fit else 1.0,
        fixed_hidden=measured.fixed_hidden,
        **others,
    )


def ceilings_of(profile: HardwareProfile, dtype: str) -> Ceilings:
    """The profile's measured section if that has ``dtype``, else its datasheet; a what-if also knows the rung between.

    Raises:
        UnknownHardwareError: neither is there.
    """
    if profile.measured is not None and dtype in profile.measured.matrix_flops_per_s:
        return ceilings_from_measured(profile, dtype)
    return ceilings_from_profile(profile, dtype)


def joined(ceilings: Ceilings, profile: HardwareProfile, devices: int, link: Link | None = None) -> Ceilings:
    """The ceilings of each of ``devices`` devices that ``link`` joins; None: what the profile says of it (hardware.links)."""
    joining = link_of(profile, devices) if link is None else link
    if joining is None:
        return replace(ceilings, link_bytes_per_s=None)
    return replace(ceilings, link_bytes_per_s=joining.rate(devices), link_latency_s=joining.latency_s)
