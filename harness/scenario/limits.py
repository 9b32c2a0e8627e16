"""When a timed sample counts, and when a cell has enough repeats."""

from __future__ import annotations

from harness.config_file import Count, NonNegative, StrictModel


class HealthLimits(StrictModel):
    """How much disturbance a timed sample may show before its times are void; shared machines need more."""

    kernel: NonNegative = 0.03
    """Share of its usual time by which the calibration kernel may be slower."""
    steal: NonNegative = 0.01
    """Share of the cores' time that the hypervisor may give to others."""


class Until(StrictModel):
    """Repeat until the timing standard error of every arm's log ratio to NTP, prompts held fixed, is small enough."""

    standard_error: NonNegative = 0.01
    """Standard error to reach, of the log ratio: 0.01 is about 1 % of the speedup."""
    at_most: Count = 16
    """Repeats at most; checked after 2, 4, 8 and so on."""
