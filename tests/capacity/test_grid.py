"""The grid against plans: each of its figures is that of the plan for the same single question, asked on its own."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

import pytest

from harness.capacity.acceptance import AssumedAcceptance, from_speedup
from harness.capacity.grid import Figures, Grid, Place, PricedColumn, price_grid
from harness.capacity.plan import plan
from harness.capacity.question import DEGREES, Goal, Question, RowTokens
from harness.capacity.results import Band, DeploymentPlan
from harness.hardware.profile import load_profile
from harness.models import KNOWN_SHAPES
from harness.models.deployment import WEIGHT_FORMATS, Deployment

LOCKSTEP = from_speedup(16, 4.0).in_lockstep()
GRID = Grid(
    models=(KNOWN_SHAPES["llama-3.1-8b"],),
    dtype="bfloat16",
    weights=(None, WEIGHT_FORMATS["int4-g128"]),
    kv_dtypes=(None, "float8"),
    requests=((2000, 300), (16_000, 500)),
    devices=(load_profile("h100-sxm"), load_profile("rtx-4090")),
    acceptances=(from_speedup(16, 3.0), from_speedup(8, 2.5), from_speedup(16, 4.0, tokens_per_check=9.0), LOCKSTEP),
    batches=(1, 8, 64),
    chunk_tokens=2048,
    requests_per_s=10.0,
)


def asked(place: Place, batch: int, acceptance: AssumedAcceptance) -> tuple[DeploymentPlan, Any]:
    """The arm of the plan for one place and batch, and the speedup that this plan has."""
    question = Question(
        shape=GRID.models[place.model],
        deployment=Deployment(dtype=GRID.dtype, weights=GRID.weights[place.weights], kv_dtype=GRID.kv_dtypes[place.kv]),
        acceptance=acceptance,
        workload=RowTokens.of_request(*GRID.requests[place.request], chunk_tokens=GRID.chunk_tokens),
        goal=Goal(batch=batch, requests_per_s=GRID.requests_per_s),
        degrees=(DEGREES[place.degree],),
    )
    (found,) = plan(question, [GRID.devices[place.device]]).devices
    return (found.sbd, found.wall_speedup) if place.arm else (found.ntp, Band(low=1, expected=1, high=1))


def test_every_figure_is_that_of_the_plan() -> None:
    """All places and batches: NTP, blocks of two sizes, verified ones, rows in lockstep; what does not fit has no figure."""
    columns, compared = price_grid(GRID), 0
    for place, column in columns.items():
        for at, batch in enumerate(GRID.batches):
            arm, speedup = asked(place, batch, GRID.acceptances[max(place.arm - 1, 0)])
            if arm.reason is not None:
                assert len(column.figures) <= at, (place, batch)
                continue
            assert column.rows == arm.memory.largest_batch
            bands = [getattr(arm, name) for name in Figures._fields[:4]]
            expected = (*(band.expected for band in bands), arm.gpus, speedup.expected)
            assert column.figures[at] == pytest.approx(expected, rel=1e-9), (place, batch)
            compared += 1
    assert compared > 500


def test_places_are_in_order_and_none_is_missing() -> None:
    """A page finds a column by counting, so the order is that of the axes."""
    sizes = (1, 2, 2, 2, 2, 1 + len(GRID.acceptances), len(DEGREES))
    assert list(price_grid(GRID)) == list(product(*map(range, sizes)))


def test_what_cannot_be_priced_says_why() -> None:
    """Heads that do not divide, and a device without a figure that a plan needs, which is the plan's own reason."""
    odd = KNOWN_SHAPES["llama-3.1-8b"].model_copy(update={"name": "odd", "heads": 9, "kv_heads": 9})
    complete = load_profile("h100-sxm")
    unknown = complete.memory_bytes.model_copy(update={"value": None, "source": "nobody said"})
    lacking = complete.model_copy(update={"name": "lacking", "memory_bytes": unknown})
    columns = price_grid(replace(GRID, models=(odd,), devices=(complete, lacking), acceptances=GRID.acceptances[:1]))
    for place, column in columns.items():
        if place.device == 1:
            assert column == PricedColumn(reason="no memory (nobody said)")
        elif DEGREES[place.degree] > 1:
            assert column.reason == f"9 attention heads cannot be split evenly over {DEGREES[place.degree]} GPUs"
        else:
            assert column.reason is None
