"""Checks the NTP arm: is it as fast as generate() and the engines of others, and how near is it to the read ceiling?

Of generate() the tokens are held against NTP's, too. An engine of others rounds otherwise, so its tokens void nothing. Its time
runs from the first token that its client sees to the last one, as NTP's from the prompt's pass to the end. Decodes are paired
with the greedy NTP arm's by (task, group, repeat, process).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import combinations
from statistics import fmean

from harness.analysis.figures.accuracy import Outputs, outputs
from harness.analysis.figures.arm_metrics import pair_up, wall_speedups
from harness.analysis.figures.arms import Arm
from harness.analysis.results import ArmResult, BaselineCheck, BaselineState, CeilingCheck, GenerateMode, TokenCheck
from harness.analysis.tally.by_request import Tallies
from harness.analysis.tally.prices import of_same_size
from harness.analysis.tally.tally import Tally
from harness.hardware.profile import Calibration
from harness.record.schema import CaseHeader
from harness.scenario.method import GREEDY
from harness.stats.quantity import Quantity, quotient

TOLERANCE = 0.03
"""A baseline slower than generate() by this share raises every speedup by as much; less is timing noise."""
ENGINE_TOLERANCE = 0.1
"""The same for an engine of others, whose best settings and measurement are its own."""
EXACT = ("float32", "float64")
"""Greedy outputs of correct decoders are equal in these; in shorter types rounding decides near-ties."""
NEAR_CEILING = 0.8
"""A decoder bound by memory reaches at least this share of its read rate."""
CACHE_EFFECT = 1.1
"""A buffer of the model's size that reads this much faster than a large one comes at least in part out of a cache."""


def baseline_check(cases: Sequence[CaseHeader], tallies: Tallies, arms: Sequence[Arm], why_none: str) -> BaselineCheck:
    """Compare the cell's greedy NTP arm with all that checks it and has samples; ``why_none``: the reason without."""
    greedy = next((arm for arm in arms if arm.method == "ntp" and arm.temperature == GREEDY), None)
    checked: dict[str, list[Tally]] = {}
    engines = {case.label for case in cases if case.is_check and case.arm.server}
    for case in cases:
        if case.is_check and tallies(case.case_id):
            checked.setdefault(case.label, []).extend(tallies(case.case_id))
    if not checked or greedy is None:
        return BaselineCheck(state="unchecked", modes=(), reason=why_none)
    written = {label: outputs(found) for label, found in checked.items()}
    tokens = token_check(greedy.outputs, [own for label, own in written.items() if label not in engines], cases[0].known_dtype)
    modes = tuple(
        GenerateMode(
            label=label,
            ntp_speed=wall_speedups(pair_up(found, greedy.tallies), "every pair of decodes was void, or made no pass")[0],
            is_engine=label in engines,
            agreed=_agreed(greedy.outputs, written[label]) if label in engines else None,
        )
        for label, found in checked.items()
    )
    timed = [mode for mode in modes if mode.ntp_speed.value is not None]
    best = min(timed, key=lambda mode: mode.ntp_speed.value or 0.0, default=None)
    check = partial(BaselineCheck, modes=modes, best=best.label if best else None, tokens=tokens)
    if tokens is not None and tokens.different:
        return check(state="different_tokens", reason=tokens.words)
    if not timed:
        return check(state="unchecked", reason=modes[0].ntp_speed.reason)
    return check(state=state_of([(mode.ntp_speed, ENGINE_TOLERANCE if mode.is_engine else TOLERANCE) for mode in modes]))


def _agreed(ntp: Outputs, written: Outputs) -> float | None:
    """The mean share of an answer up to its first difference from NTP's."""
    beside = [(ntp[row], answer) for row, answer in written.items() if row in ntp]
    return _alike(beside)[1] if beside else None


def token_check(ntp: Outputs, modes: Sequence[Outputs], dtype: str) -> TokenCheck | None:
    """NTP's outputs beside those of generate(), mode by mode; None where no decode is common to both.

    In float32 and float64 every output of NTP must be that of some mode. In shorter types two correct decoders differ at
    near-ties. How often depends on the model, so the reference is how often the modes of generate() agree with one another.
    Where most of their outputs are equal, NTP must have at least half as large a share of equal ones. Else NTP must agree at
    least half as long before the first difference. One mode alone counts as equal to itself.
    """
    beside = [(ntp[row], written) for mode in modes for row, written in mode.items() if row in ntp]
    if not beside:
        return None
    among = [(written, other[row]) for one, other in combinations(modes, 2) for row, written in one.items() if row in other]
    same, agreed = _alike(beside)
    mode_same, mode_agreed = _alike(among)
    if dtype in EXACT:
        rows = {row for mode in modes for row in mode if row in ntp}
        different = any(all(mode.get(row) != ntp[row] for mode in modes) for row in rows)
    else:
        equal = mode_same / len(among) if among else 1.0
        different = same / len(beside) < equal / 2 if equal >= 1 / 2 else agreed < mode_agreed / 2
    words = f"NTP wrote the tokens of generate() in {same} of {len(beside)} outputs ({dtype})"
    if among and same < len(beside):
        words += f", its modes those of one another in {mode_same} of {len(among)}"
    return TokenCheck(
        different=different,
        rows=len(beside),
        same=same,
        agreed=agreed,
        mode_rows=len(among),
        mode_same=mode_same,
        mode_agreed=mode_agreed if among else None,
        words=words,
    )


def _alike(pairs: Sequence[tuple[list[int], list[int]]]) -> tuple[int, float]:
    """How many pairs are equal, and the mean share of the longer one up to the first difference (0 without pairs)."""
    shares = []
    for one, other in pairs:
        first = next((i for i, (left, right) in enumerate(zip(one, other, strict=False)) if left != right), None)
        common = min(len(one), len(other)) if first is None else first
        shares.append(common / max(len(one), len(other), 1) if one != other else 1.0)
    return sum(one == other for one, other in pairs), fmean(shares) if shares else 0.0


def ceiling_check(arms: Sequence[ArmResult], case: CaseHeader, calibration: Calibration | str) -> CeilingCheck | None:
    """NTP among the ``arms`` of a timed cell at batch 1 beside the read rate; None at others, which reads need not bound.

    The slower of the two rates is taken where a calibration does not show which one is the ceiling. This leaves out models that
    come out of a cache.
    """
    ntp = min((arm for arm in arms if arm.is_ntp), key=lambda arm: arm.temperature, default=None)
    if ntp is None or case.batch_size > 1:
        return None
    share = ntp.ceiling_share
    if share.value is None and isinstance(calibration, Calibration) and of_same_size(calibration, case):
        own, large = calibration.read_bandwidth[0].bytes_per_s, calibration.read_bandwidth[-1].bytes_per_s
        if own > CACHE_EFFECT * large:
            words = "the weights come out of a cache, so no read ceiling bounds NTP, but launches, arithmetic and the cache do"
            words += ": whether a faster NTP engine exists is not shown"
            return CeilingCheck(state="in_cache", share=share, words=words)
        if len(calibration.read_bandwidth) > 1:
            rate = Quantity(value=min(own, large))
            share = quotient(ntp.modelled_bandwidth_bytes_per_s, rate, "no bandwidth", "measured read rate")
    if share.value is None or share.value >= NEAR_CEILING:
        return CeilingCheck(state="unknown" if share.value is None else "near", share=share)
    ceiling = "datasheet bandwidth" if share.method == "datasheet bandwidth" else "measured read ceiling"
    words = f"NTP reaches {100 * share.value:.0f} % of the {ceiling}: a faster NTP engine may exist"
    return CeilingCheck(state="far", share=share, words=words)


def state_of(speeds: Sequence[tuple[Quantity, float]]) -> BaselineState:
    """What the speeds of NTP over every mode show, each with its tolerance.

    *slow*: some mode is observed to be faster by more than the tolerance, and shown to be faster at all. *kept_up*: every mode
    is shown not to be faster by more. *not_shown*: neither, as with one prompt, a wide interval or a mode without a time.
    """
    observed = [speed for speed, tolerance in speeds if speed.value is not None and speed.value < 1 - tolerance]
    if any(speed.high is None or speed.high < 1 for speed in observed):
        return "slow"
    shown = all(speed.low is not None and speed.low >= 1 - tolerance for speed, tolerance in speeds)
    return "kept_up" if shown else "not_shown"
