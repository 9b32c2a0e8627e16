"""The top rung of the ladder of ceilings: corrections for all passes of a model, from a few measured ones.

A measured pass gives the ratio of measured to priced time, without attention, at its number of matrix lines. One factor is
kept for each overlap of memory and arithmetic (full, expected, none). At the measured sizes the three agree; away from them
their range is the uncertainty of the extrapolation. harness.roofline.shape_calibration fits the values.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from harness.roofline.operation import PassCounts, Points, choose, interpolate, is_one_of, larger


@dataclass(frozen=True, slots=True, kw_only=True)
class PassFactors:
    """Corrections from measured passes.

    ``overlapped``, ``expected``, ``serial``  (matrix lines, measured ÷ priced) of the forward without its attention, for each
                       overlap of memory and arithmetic
    ``spread``         the mean of the decodes that are predicted lies between these multiples of the factors: from the 10th
                       and 90th percentile of the means of measured decodes
    ``spread_between`` the same where that number of lines was not measured, so that a factor comes from its neighbours
    ``drift``          between these multiples of its median the machine's speed moved, for all passes alike; a pass price
                       leaves it out, because it cancels in a ratio of interleaved arms
    ``after_one_s``    median seconds behind the forward of a pass that wants one logit a row (sampler and loop); None: not
                       measured
    ``after_block_s``  (logit lines, seconds) behind the forward of a pass that wants several
    ``s_per_line``     seconds that each further row takes in the sampler where a row wants one logit
    ``s_per_block_line``  seconds that each logit line beyond the largest measured pass takes
    """

    overlapped: Points
    expected: Points
    serial: Points
    spread: tuple[float, float]
    spread_between: tuple[float, float]
    drift: tuple[float, float]
    after_one_s: float | None
    after_block_s: Points
    s_per_line: float
    s_per_block_line: float

    def spread_at(self, lines: Any) -> tuple[Any, Any]:
        """``spread`` where that number of lines was measured, else ``spread_between``."""
        measured = is_one_of(lines, [n for n, _ in self.expected])
        low, high = (choose(measured, at, between) for at, between in zip(self.spread, self.spread_between, strict=True))
        return low, high

    def after_s(self, counts: PassCounts) -> Any:
        """Sampler and loop behind the forward of a pass: as measured, and beyond the largest measured one line by line."""
        lines = counts.logit_lines
        several = self.after_one_s
        if self.after_block_s:
            most, _ = self.after_block_s[-1]
            several = interpolate(self.after_block_s, lines) + larger(lines - most, 0) * self.s_per_block_line
        one = self.after_one_s if self.after_one_s is not None else several
        assert one is not None and several is not None, "made from no pass"
        return choose(counts.logits == 1, one + (counts.rows - 1) * self.s_per_line, several)
