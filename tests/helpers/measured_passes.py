"""Measured passes of a device with known costs."""

from __future__ import annotations

from dataclasses import replace

from harness.models import KNOWN_SHAPES
from harness.roofline.ceilings import Ceilings
from harness.roofline.operation import PassCounts
from harness.roofline.pricing import price_counts
from harness.roofline.shape_calibration import MeasuredPass

SHAPE = KNOWN_SHAPES["llama-250m"]
BASE = Ceilings(
    rung="calibrated",
    device_name="made up",
    dtype="bfloat16",
    bandwidth_bytes_per_s=20e9,
    matrix_rates=((1, 30e9), (16, 300e9), (64, 500e9)),
    overlap=0.5,
    fixed_s_per_pass=0.0005,
)
TRUTH = replace(BASE, bandwidth_bytes_per_s=16e9, matrix_rates=((1, 30e9), (16, 250e9), (64, 420e9)), overlap=0.7)
"""The machine as it really is: slower memory and arithmetic, better overlapped than the calibration found."""


def counts(rows: int, query: int, context: int, logits: int = 1) -> PassCounts:
    """A pass that keeps nothing."""
    return PassCounts(rows=rows, query=query, context=context, logits=logits, kept=0)


def seen(ceilings: Ceilings, *passes: PassCounts, factor: float = 1.0) -> list[MeasuredPass]:
    """What a clock would say on a machine with these ceilings; every factor is another decode, at a time of its own."""
    times = {one: factor * price_counts(SHAPE, "bfloat16", one, ceilings).forward_s for one in passes}
    return [
        MeasuredPass(counts=one, forward_s=forward_s, after_s=0.001, decode=round(100 * factor), visit=round(100 * factor))
        for one, forward_s in times.items()
    ]


MEASURED = (counts(1, 1, 128), counts(1, 16, 128, 16), counts(1, 32, 128, 16))
