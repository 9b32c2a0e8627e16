"""What a meter is: a reader of some counter, opened before a region of work and closed after it.

A meter promises its figures by name. A window yields every promised figure, or None with the reason; a meter that fails
never stops the work it was to watch. Meters know no decoder and no model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from harness.frozen import frozen
from harness.record.decode import Readings


@frozen
class MeterFigure:
    """What a promised figure is: its unit, and the counter it comes from."""

    unit: str
    source: str


@frozen
class Absent:
    """Figures that cannot be had on this machine: why, and what to do about it."""

    figures: tuple[str, ...]
    reason: str
    remedy: str


class Unreadable(Exception):
    """A window that cannot be read; the message says why. Raised by a meter, turned into a reason by Windows."""


class Meter(Protocol):
    """One source of figures."""

    @property
    def figures(self) -> Mapping[str, MeterFigure]:
        """What ``close`` returns, by name."""

    def open(self) -> None:
        """The region begins."""

    def close(self) -> Mapping[str, float]:
        """The region has ended: the figures of the window, those that can be read.

        Raises:
            Unreadable: none of them can.
        """


class CounterMeter:
    """A meter of counters: the growth over the window of those that can be read at both its ends."""

    counts_per_unit: Mapping[str, float] = {}
    """By figure, 1 where it is not named."""
    _before: Mapping[str, int] = {}

    def counters(self) -> Mapping[str, int]:
        """The counts now, by figure."""
        raise NotImplementedError

    def open(self) -> None:
        """Read the counters."""
        self._before = self.counters()

    def close(self) -> Mapping[str, float]:
        """Their growth, in the figures' units."""
        grown = {name: count - self._before[name] for name, count in self.counters().items() if name in self._before}
        return {name: count / self.counts_per_unit.get(name, 1) for name, count in grown.items()}


@dataclass
class Windows:
    """Several meters around one region: opened in order, closed in reverse, so the first one's window is the widest."""

    _meters: Sequence[Meter]

    @property
    def figures(self) -> dict[str, MeterFigure]:
        """Every figure promised, by name."""
        return {name: figure for meter in self._meters for name, figure in meter.figures.items()}

    def open(self) -> None:
        """Open every meter."""
        self._failed: dict[int, str] = {}
        for index, meter in enumerate(self._meters):
            try:
                meter.open()
            except Exception as error:  # a vendor library may raise anything; the work goes on
                self._failed[index] = words(error)

    def close(self) -> Readings:
        """Close every meter and gather the figures."""
        values: dict[str, float] = {}
        reasons: dict[str, str] = {}
        for index, meter in reversed([*enumerate(self._meters)]):
            found: Mapping[str, float] = {}
            reason = self._failed.get(index)
            if reason is None:
                try:
                    found = meter.close()
                except Exception as error:  # as above
                    reason = words(error)
            values.update(found)
            missing = [name for name in meter.figures if name not in found]
            reasons.update(dict.fromkeys(missing, reason or "the source gave no figure for this window"))
        return Readings(values=values, reasons=reasons)


def words(error: Exception) -> str:
    """A vendor's exception in one line."""
    return str(error) if isinstance(error, Unreadable) else f"{type(error).__name__}: {error}"
