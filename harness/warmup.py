"""When is a case warm? When two decodes in a row took the same time per pass; first ones pay for caches, clocks, compiling."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from harness.record import Sample

SETTLED = 0.05
"""Two medians in a row this close are settled: what timing noise makes of equal work on a quiet machine."""


def pass_s(sample: Sample) -> float | None:
    """Median seconds of a sample's decode passes, or their mean where they were not timed one by one; None: not timed."""
    decode = [i for i, role in enumerate(sample.passes.role) if role != "prefill"]
    if not decode or sample.decode_s is None:
        return None
    if sample.passes.forward_s is None:
        return sample.decode_s / len(decode)
    return statistics.median(sample.passes.forward_s[i] for i in decode)


def settled(passes_s: Sequence[float | None]) -> bool:
    """Whether the last two of the warm-up decodes, in the order taken, agree."""
    if len(passes_s) < 2:
        return False
    before, last = passes_s[-2:]
    return before is not None and last is not None and abs(last - before) <= SETTLED * before
