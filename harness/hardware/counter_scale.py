"""What one percent of a memory counter is worth on a device: raw results of a calibration by known bytes, kept in the record.

The scale is derived on reading. It is that of a copy of known bytes, timed in the measuring process with the counter's
window around it. The theoretical value of the memory interface is given beside it.
"""

from __future__ import annotations

from typing import Literal

from pydantic import AwareDatetime, PositiveFloat, PositiveInt

from harness.config_file import StrictModel

AGREEMENT = 0.1
"""Largest difference between two scales that count as the same."""
DATA_RATE = 2
"""Transfers per clock of double data rate memory: right for HBM; GDDR6X and GDDR7 may count otherwise."""


class Streamed(StrictModel):
    """Known bytes that a kernel moved in ``seconds``, and the counter's mean over exactly that time, in percent."""

    kernel: Literal["copy", "read"]
    bytes_: PositiveInt
    seconds: PositiveFloat
    percent: PositiveFloat

    @property
    def bytes_per_s_per_percent(self) -> float:
        """Bytes per second that one percent stood for."""
        return self.bytes_ / self.seconds / self.percent


class MemoryInterface(StrictModel):
    """The device's memory clock and bus as ``source`` reports them."""

    clock_hz: PositiveFloat
    bus_bits: PositiveInt
    source: str

    @property
    def bytes_per_s(self) -> float:
        """2 x memory clock x bus width / 8 (measurement notes, section 1)."""
        return DATA_RATE * self.clock_hz * self.bus_bits / 8


class BandwidthScale(StrictModel):
    """One calibration of a counter: a copy, which reads and writes, and a read-only reduction.

    ``counter`` names the source of the percentage. ``read`` and ``interface`` are None with their reason.
    """

    taken_at: AwareDatetime
    counter: str
    copied: Streamed
    read: Streamed | None = None
    read_reason: str | None = None
    interface: MemoryInterface | None = None
    interface_reason: str | None = None

    @property
    def bytes_per_s_per_percent(self) -> float:
        """The scale: that of the copy."""
        return self.copied.bytes_per_s_per_percent

    @property
    def theoretical_bytes_per_s_per_percent(self) -> float | None:
        """A hundredth of the memory interface's theoretical rate; None with ``interface_reason``."""
        return None if self.interface is None else self.interface.bytes_per_s / 100

    def disagreement(self) -> str | None:
        """In words: the other scales that are more than 10 % from that of the copy; None: no such scale."""
        others = {"the memory clock and bus width": self.theoretical_bytes_per_s_per_percent}
        if self.read is not None:
            others["a read-only reduction"] = self.read.bytes_per_s_per_percent
        own = self.bytes_per_s_per_percent
        apart = {name: other / own - 1 for name, other in others.items() if other is not None}
        apart_words = [
            f"{(others[name] or 0) / 1e9:.4g} GB/s ({100 * share:+.0f} %) by {name}"
            for name, share in apart.items()
            if abs(share) > AGREEMENT
        ]
        if not apart_words:
            return None
        return (
            f"the scales of {self.counter} disagree: one percent is {own / 1e9:.4g} GB/s by a copy of known bytes, which is "
            f"used, and {' and '.join(apart_words)}"
        )
