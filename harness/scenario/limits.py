"""When a timed sample counts, and when a cell has enough repeats."""

from __future__ import annotations

from harness.config_file import Count, NonNegative, StrictModel


class HealthLimits(StrictModel):
    """How much disturbance a timed sample may show before its times are void; shared machines need more.

    ``kernel``: share of its usual time by which the calibration kernel may be slower. ``steal``: share of the cores' time that
    the hypervisor may give to others.
    """

    kernel: NonNegative = 0.03
    steal: NonNegative = 0.01


class Until(StrictModel):
    """Repeat until the timing standard error of every arm's log ratio to NTP, prompts held fixed, is small enough.

    Checked after 2, 4, 8, … repeats; never more than ``at_most``.
    """

    standard_error: NonNegative = 0.01
    at_most: Count = 16
