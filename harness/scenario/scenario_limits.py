"""When a timed sample counts, and when a cell was repeated often enough: limits that a part of a scenario sets."""

from __future__ import annotations

from harness.config_file import Count, Frozen, NonNegative


class HealthLimits(Frozen):
    """How much disturbance a timed sample may show before its times are void; shared machines need more.

    ``kernel``: by how much of its usual time the calibration kernel may take longer. ``steal``: share of the cores' time
    that the hypervisor may have given to others.
    """

    kernel: NonNegative = 0.03
    steal: NonNegative = 0.01


class Until(Frozen):
    """Repeat until the timing standard error of every arm's log ratio to NTP, prompts held fixed, is small enough.

    Looked at after 2, 4, 8, … repeats and never after more than ``at_most``.
    """

    standard_error: NonNegative = 0.01
    at_most: Count = 16
