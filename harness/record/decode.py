"""What one decode gives, whoever decoded it: engine and serving make it, the runner keeps it."""

from __future__ import annotations

from harness.frozen import frozen
from harness.record.schema import RowTimes
from harness.record.trace import Generation


@frozen
class Readings:
    """The figures of one window; each promised name is in exactly one of the two."""

    values: dict[str, float]
    reasons: dict[str, str]


@frozen
class Decoded:
    """One batch with its times; the generation has no passes where a server does not tell them.

    Our own engine: prefill and decode are host wall time between synchronisations, forwards the device's. ``forward_s`` and
    ``sampler_s``, by pass, are None where generate() made the forwards. A server: the client's times; ``forward_s`` are the
    gaps between chunks, and ``row_times`` the times of each request.
    """

    generation: Generation
    prefill_s: float
    decode_s: float
    forward_s: list[float] | None
    sampler_s: list[float] | None
    readings: Readings | None
    row_times: list[RowTimes] | None = None
