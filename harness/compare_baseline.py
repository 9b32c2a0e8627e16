"""Is our own NTP arm as fast as what anybody gets from transformers' generate()? A speedup over a slow baseline is a lie.

Pairs the decodes of generate() with the greedy NTP arm's by (task, group, repeat). Reads tallies only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from harness.arms import GREEDY
from harness.compare_arms import pair_up, wall_speedups
from harness.compare_result import Arm
from harness.compare_tally import Tally
from harness.compare_values import BaselineCheck, BaselineState, GenerateMode
from harness.record import CaseHeader
from harness.stats import Quantity

TOLERANCE = 0.03
"""A baseline this much slower than the best of generate() would lift every speedup by as much; less is timing noise."""
NOT_RECORDED = "this run did not decode with generate()"
NOT_GREEDY = "no greedy NTP arm to hold beside generate()"


def baseline_check(
    cases: Sequence[CaseHeader], tallies: Mapping[str, Sequence[Tally]], arms: Sequence[Arm]
) -> BaselineCheck:
    """Hold the cell's greedy NTP arm beside every way of generate() that ``cases`` hold."""
    greedy = next((arm for arm in arms if arm.method == "ntp" and arm.temperature == GREEDY), None)
    checked: dict[str, list[Tally]] = {}
    for case in cases:
        if case.arm.get("method") == "generate":
            checked.setdefault(case.label, []).extend(tallies[case.case_id])
    if not checked or greedy is None:
        return BaselineCheck(state="unchecked", modes=(), reason=NOT_GREEDY if checked else NOT_RECORDED)
    modes = tuple(
        GenerateMode(label=label, ntp_speed=wall_speedups(pair_up(found, greedy.tallies), "no pair was timed")[0])
        for label, found in checked.items()
    )
    timed = [mode for mode in modes if mode.ntp_speed.value is not None]
    if not timed:
        return BaselineCheck(state="unchecked", modes=modes, reason=modes[0].ntp_speed.reason)
    best = min(timed, key=lambda mode: mode.ntp_speed.value or 0.0)
    return BaselineCheck(state=state_of(best.ntp_speed), modes=modes, best=best.label)


def state_of(ntp_speed: Quantity) -> BaselineState:
    """What an interval of (speed of NTP ÷ speed of the best of generate()) shows.

    *kept_up*: shown not to be slower by more than the tolerance; *slow*: observed slower by more, and shown slower at all;
    *not_shown*: neither, as with one prompt, or a wide interval.
    """
    assert ntp_speed.value is not None
    if ntp_speed.low is not None and ntp_speed.low >= 1 - TOLERANCE:
        return "kept_up"
    if ntp_speed.value < 1 - TOLERANCE and (ntp_speed.high is None or ntp_speed.high < 1):
        return "slow"
    return "not_shown"
