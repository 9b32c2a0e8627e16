"""The ceilings that price a case's recorded passes: from the run's calibration, a hardware profile or measured passes.

An unavailable ceiling comes with its reason.
"""

from __future__ import annotations

from datetime import UTC, datetime

import numpy as np
from pydantic import BaseModel, TypeAdapter, ValidationError

from harness.analysis.tally.pass_values import DURING_RUN, EX_ANTE_SHAPE, Roof
from harness.analysis.trust.health import kernel_times_s
from harness.errors import SbdError
from harness.frozen import frozen
from harness.hardware.profile import Calibration, HardwareProfile
from harness.models import DTYPE_BYTES
from harness.models.deployment import Deployment
from harness.record.schema import CaseHeader, PassColumns, Run, RunHeader
from harness.roofline.ceilings import Ceilings, ceilings_from_calibration, ceilings_from_measured, ceilings_from_profile, joined
from harness.roofline.operation import PassCounts
from harness.roofline.shape_calibration import SPREAD_PERCENTILES, UNSEEN_MOVEMENT, MeasuredPass, shape_calibrated
from harness.roofline.storage import shard
from harness.scenario.metrics import PRICES
from harness.stats.quantity import Quantity, absent

SAME_SIZE = 0.1
ENOUGH_VISITS = 3
"""Fewer visits during the run do not show how far the machine's speed moves between them."""
BEYOND_CACHE = 4


def deployment_of(case: CaseHeader) -> Deployment:
    """Storage and split of a case's model: all in one dtype, over as many devices as processes shared it."""
    return Deployment(dtype=case.known_dtype, tensor_parallel=case.tensor_parallel)


def read_calibration(header: RunHeader, case: CaseHeader) -> Calibration | Missing:
    """The calibration that holds for ``case``, or why it is absent.

    A header holds one calibration for the whole run, or one per part under the part's name.
    """
    whole = header.calibration or {}
    recorded = whole if "read_bandwidth" in whole else whole.get(case.part)
    if shared := _shared_cpu(case):
        return shared
    if recorded is None:
        return "this machine was not calibrated for this part"
    try:
        calibration = Calibration.model_validate(recorded)
    except ValidationError as error:
        return f"the recorded calibration cannot be read ({error.error_count()} fields do not fit)"
    if calibration.device.partition(":")[0] != case.known_device.partition(":")[0]:
        return f"the calibration is of {calibration.device}, this part ran on {case.known_device}"
    return calibration


def _shared_cpu(case: CaseHeader) -> Missing | None:
    """Why the rates of a CPU shared by several processes of a split model are unknown."""
    if case.tensor_parallel == 1 or case.known_device != "cpu":
        return None
    return f"{case.tensor_parallel} processes shared this CPU, whose rates one process alone does not show"


def read_profile(header: RunHeader, case: CaseHeader) -> HardwareProfile | Missing:
    """The hardware profile of the device of ``case``, or why it is absent."""
    if header.hardware is None:
        return header.hardware_reason or "no hardware profile fits this machine"
    try:
        profile = HardwareProfile.model_validate(header.hardware)
    except ValidationError as error:
        return f"the recorded hardware profile cannot be read ({error.error_count()} fields do not fit)"
    if (profile.kind == "cpu") != case.known_device.startswith("cpu"):
        return f"the hardware profile is of a {profile.kind} ({profile.name}), this part ran on {case.known_device}"
    return profile


@frozen
class Ladder:
    """The ceilings that can price a case, in the order of PRICES, why others cannot, and the read ceiling."""

    ceilings: dict[str, Ceilings]
    reasons: dict[str, Missing]
    read_ceiling: Quantity

    @property
    def roofs(self) -> tuple[Roof, ...]:
        """The rates of every rung with its own; the top rung corrects prices and shares the rates of a lower one."""
        return tuple(
            Roof(
                rung=rung,
                device_name=found.device_name,
                bandwidth_bytes_per_s=found.bandwidth_bytes_per_s,
                matrix_rates=found.matrix_rates,
            )
            for rung, found in self.ceilings.items()
            if found.factors is None
        )


def unpriced(reason: Missing) -> Ladder:
    """No ceiling at all, for one reason."""
    return Ladder(ceilings={}, reasons=dict.fromkeys(PRICES, reason), read_ceiling=absent(reason))


def feeds_masks(case: CaseHeader) -> bool:
    """Whether an adapter acts on the passes of the case's arm: see measured_passes."""
    return case.arm.block_size is not None


def ladder(run: Run, case: CaseHeader) -> Ladder:
    """Every price that the run offers for ``case``; the top rung builds on the best lower one."""
    calibration, profile = read_calibration(run.header, case), read_profile(run.header, case)
    ceilings: dict[str, Ceilings] = {}
    reasons: dict[str, Missing] = {}
    shared = _shared_cpu(case)
    for rung in ("calibrated", "datasheet", EX_ANTE_SHAPE, DURING_RUN):
        try:
            if rung == "calibrated":
                found = _calibrated(calibration, profile, case.known_dtype)
            elif rung == "datasheet":
                found = profile if isinstance(profile, Missing) else ceilings_from_profile(profile, case.known_dtype)
            else:
                base = ceilings.get("calibrated") or ceilings.get("datasheet")
                found = _shape_calibrated(base, run, case, rung == EX_ANTE_SHAPE)
        except SbdError as error:
            found = str(error)
        if isinstance(found, Ceilings) and shared:
            found = shared
        elif isinstance(found, Ceilings) and case.tensor_parallel > 1 and isinstance(profile, HardwareProfile):
            found = joined(found, profile, case.tensor_parallel)
        if isinstance(found, Ceilings) and case.tensor_parallel > 1 and found.link_bytes_per_s is None:
            found = f"what {found.device_name} can send to another device is not known, and the model was split over several"
        if isinstance(found, Ceilings):
            ceilings[rung] = found
        else:
            reasons[rung] = found
    measured = None if isinstance(calibration, Calibration) else ceilings.get("calibrated")
    ceilings = {price: ceilings[price] for price in PRICES if price in ceilings}
    return Ladder(ceilings=ceilings, reasons=reasons, read_ceiling=read_ceiling(case, calibration, profile, measured))


def _calibrated(calibration: Calibration | Missing, profile: HardwareProfile | Missing, dtype: str) -> Ceilings | Missing:
    """By the run's own calibration, else by the profile of this very machine."""
    if isinstance(calibration, Calibration):
        return ceilings_from_calibration(calibration, dtype)
    if isinstance(profile, HardwareProfile) and profile.measured is not None:
        return ceilings_from_measured(profile, dtype)
    return calibration


def _shape_calibrated(base: Ceilings | None, run: Run, case: CaseHeader, ex_ante: bool) -> Ceilings | Missing:
    """Ceilings from measured passes. Ex-ante the later visits and the machine's drift are not known; their spread in published
    runs is used instead.
    """
    passes = measured_passes(run, case.part, ex_ante=ex_ante, masked=feeds_masks(case))
    if base is None:
        return "there are no ceilings for measured passes to correct"
    if isinstance(passes, Missing):
        return passes
    decodes = sum(sample.case_id == case.case_id and not sample.warmup for sample in run.samples)
    few = ex_ante or len({one.visit for one in passes}) < ENOUGH_VISITS
    return shape_calibrated(
        base,
        case.shape,
        deployment_of(case),
        passes,
        machine_spread=UNSEEN_MOVEMENT if ex_ante else machine_spread(run, case.part),
        decodes=max(decodes, 1),
        least_spread=UNSEEN_MOVEMENT if few else (1.0, 1.0),
    )


def read_ceiling(
    case: CaseHeader, calibration: Calibration | Missing, profile: HardwareProfile | Missing, measured: Ceilings | None
) -> Quantity:
    """Bytes per second that memory gives a model, or one device's share of it, of this size, or why none may be claimed.

    Calibrated: only where the calibration found the model DRAM-bound at the size of this very model. Else by the profile, its
    ``measured`` ceilings before its datasheet. These hold only where the weights are at least four times the cache, so that
    they cannot stay in it.
    """
    if shared := _shared_cpu(case):
        return absent(shared)
    if isinstance(calibration, Calibration):
        if not of_same_size(calibration, case):
            calibrated_mb = calibration.model_bytes / 1e6
            return absent(f"the read rate was calibrated for a model of {calibrated_mb:,.0f} MB, not for this one")
        if not calibration.dram_bound:
            return absent(calibration.dram_bound_reason)
        return Quantity(value=calibration.read_bandwidth[0].bytes_per_s, method="calibrated read rate")
    if isinstance(profile, HardwareProfile):
        bandwidth, cache = profile.bandwidth_bytes_per_s.value, profile.cache_bytes.value
        model_bytes = shard(case.shape, case.tensor_parallel).streamed_params * DTYPE_BYTES[case.known_dtype]
        reached = measured.bandwidth_bytes_per_s if measured is not None and measured.share_claimable else None
        if (reached or bandwidth) is None or cache is None or model_bytes < BEYOND_CACHE * cache:
            return absent(f"the profile of {profile.name} does not show that this model is too large for its cache")
        if reached is not None:
            return Quantity(value=reached, method="calibrated read rate")
        return Quantity(value=bandwidth, method="datasheet bandwidth")
    return absent(calibration)


def of_same_size(calibration: Calibration, case: CaseHeader) -> bool:
    """Whether the calibration read as many bytes as the case's model streams, or holds."""
    held = shard(case.shape, case.tensor_parallel)
    sizes = (params * DTYPE_BYTES[case.known_dtype] for params in (held.streamed_params, held.params))
    return any(abs(calibration.model_bytes / size - 1) <= SAME_SIZE for size in sizes)


Missing = str
"""Why a value is absent, in words for the reader."""
UNTOLD = "the record does not tell which passes were measured before the first sample of the part"
SHARED_ENTRIES = {"start", "engine", "meters"}
"""Entries that a session records of a part before it measures passes."""


class _Decode(BaseModel):
    passes: PassColumns
    decode_s: float


class _Visit(BaseModel):
    """The decodes that a session measured at once, or why they made no pass."""

    decodes: list[_Decode]
    ended_at: str | None = None
    reason: str = "its decodes made no pass"


_VISITS = TypeAdapter(list[_Visit])


def measured_passes(run: Run, part: str, *, ex_ante: bool = False, masked: bool = True) -> list[MeasuredPass] | Missing:
    """Every decode pass that was measured before, among and after the part's samples, in all sessions, or why none was.

    ``ex_ante``: only those measured before the first sample of the part. ``masked``: for an arm that feeds masks. Where checks
    of drafts were measured apart, because a gated adapter does not act on them, other arms make these and NTP's passes alone.
    """
    events = run.events("measured_passes", part)
    if not events:
        return "no pass of this model was measured apart from the samples (a record older than version 3)"
    try:
        visits = _VISITS.validate_python(events)
        if ex_ante:
            before = _before_samples(run, part, visits)
            if isinstance(before, Missing):
                return before
            visits = before
        decodes = [(number, decode) for number, visit in enumerate(visits) for decode in visit.decodes]
        roles = [{*decode.passes.role} - {"prefill"} for _, decode in decodes]
        if any("verify" in of_decode for of_decode in roles):
            others = {"commit+decide", "verify+draft"} if not masked else {"verify"}
            decodes = [one for one, of_decode in zip(decodes, roles, strict=True) if not of_decode & others]
        found = [one for number, (visit, decode) in enumerate(decodes) for one in _of_decode(decode, number, visit)]
    except ValueError as error:  # includes pydantic's ValidationError
        return f"the measured passes of this part cannot be read ({type(error).__name__})"
    return found or visits[-1].reason


def _before_samples(run: Run, part: str, visits: list[_Visit]) -> list[_Visit] | Missing:
    """The measurements that ended before the first sample of the part began, warm-ups included.

    Older records have no times. Their sessions load a model, measure passes and then take samples, in this order. So the first
    measurement precedes the samples unless a second session began before it.

    Raises:
        ValueError: a recorded time cannot be read.
    """
    if all(visit.ended_at for visit in visits):
        cases = {case.case_id for case in run.cases if case.part == part}
        begun = (one.started_at for one in run.samples if one.case_id in cases)
        first = min((_moment(one) for one in begun if one is not None), default=None)
        found = [visit for visit in visits if first is None or _moment(visit.ended_at or "") <= first]
        return found or "no pass of this model was measured before the first sample of the part"
    names = [str(entry.get("event")) for entry in run.sessions if entry.get("part") == part]
    ahead = names[: names.index("measured_passes")]
    return visits[:1] if ahead.count("engine") == 1 and SHARED_ENTRIES.issuperset(ahead) else UNTOLD


def _moment(text: str) -> datetime:
    found = datetime.fromisoformat(text)
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def machine_spread(run: Run, part: str) -> tuple[float, float]:
    """10th and 90th percentile of the part's fixed calibration kernel, as multiples of its median. It was timed before and
    after every sample; (1, 1) without such times.
    """
    cases = {case.case_id for case in run.cases if case.part == part}
    times = kernel_times_s(sample for sample in run.samples if sample.case_id in cases)
    if not times:
        return 1.0, 1.0
    low, high = (np.percentile(times, SPREAD_PERCENTILES) / np.median(times)).tolist()
    return low, high


def _of_decode(decode: _Decode, number: int, visit: int) -> list[MeasuredPass]:
    """The decode passes; the loop's time beyond forwards and samplers is shared out evenly."""
    columns = decode.passes
    if columns.forward_s is None or columns.sampler_s is None:
        return []
    timed = [
        (PassCounts.of(one), forward_s, sampler_s)
        for one, forward_s, sampler_s in zip(columns.passes(), columns.forward_s, columns.sampler_s, strict=True)
        if one.role != "prefill"
    ]
    rest_s = decode.decode_s - sum(forward_s + sampler_s for _, forward_s, sampler_s in timed)
    return [
        MeasuredPass(counts=counts, forward_s=forward_s, after_s=sampler_s + rest_s / len(timed), decode=number, visit=visit)
        for counts, forward_s, sampler_s in timed
    ]
