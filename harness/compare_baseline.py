"""Is our own NTP arm as fast as what anybody gets from transformers' generate()? A speedup over a slow baseline is a lie.

Pairs the decodes of generate() with the greedy NTP arm's by (task, group, repeat, process). Reads tallies only.
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
"""A baseline this much slower than generate() would lift every speedup by as much; less is timing noise."""


def baseline_check(
    cases: Sequence[CaseHeader], tallies: Mapping[str, Sequence[Tally]], arms: Sequence[Arm], why_none: str
) -> BaselineCheck:
    """Hold the cell's greedy NTP arm beside every mode of generate() that left samples; ``why_none``: if there is none."""
    greedy = next((arm for arm in arms if arm.method == "ntp" and arm.temperature == GREEDY), None)
    checked: dict[str, list[Tally]] = {}
    for case in cases:
        if case.is_check and tallies[case.case_id]:
            checked.setdefault(case.label, []).extend(tallies[case.case_id])
    if not checked or greedy is None:
        return BaselineCheck(state="unchecked", modes=(), reason=why_none)
    modes = tuple(
        GenerateMode(label=label, ntp_speed=wall_speedups(pair_up(found, greedy.tallies), "every pair of decodes was void")[0])
        for label, found in checked.items()
    )
    timed = [mode for mode in modes if mode.ntp_speed.value is not None]
    if not timed:
        return BaselineCheck(state="unchecked", modes=modes, reason=modes[0].ntp_speed.reason)
    best = min(timed, key=lambda mode: mode.ntp_speed.value or 0.0)
    return BaselineCheck(state=state_of([mode.ntp_speed for mode in modes]), modes=modes, best=best.label)


def state_of(speeds: Sequence[Quantity]) -> BaselineState:
    """What the speeds of NTP over every mode show.

    *slow*: some mode is observed to be faster by more than the tolerance, and shown to be faster at all; *kept_up*: every
    mode is shown not to be faster by more; *not_shown*: neither, as with one prompt, a wide interval or a mode without a time.
    """
    if any(_faster(speed) for speed in speeds):
        return "slow"
    return "kept_up" if all(speed.low is not None and speed.low >= 1 - TOLERANCE for speed in speeds) else "not_shown"


def _faster(speed: Quantity) -> bool:
    """Whether generate() beat the NTP arm."""
    return speed.value is not None and speed.value < 1 - TOLERANCE and (speed.high is None or speed.high < 1)
