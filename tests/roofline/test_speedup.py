"""A grid is the same prices as one cell at a time, for every kind of model and of ceilings."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.speedup_grid import CELLS_AT_ONCE, predict_grid
from harness.errors import UserError
from harness.hardware.profile import load_profile
from harness.models import KNOWN_SHAPES
from harness.models.deployment import WEIGHT_FORMATS, Deployment
from harness.roofline.ceilings import Ceilings, ceilings_from_profile
from harness.roofline.operation import interpolate
from tests.helpers.speedups import predict_speedup

DATASHEET = ceilings_from_profile(load_profile("h200-sxm"), "bfloat16")
CALIBRATED = Ceilings(
    rung="calibrated",
    device_name="toy",
    dtype="bfloat16",
    bandwidth_bytes_per_s=13e9,
    overlap=0.0,
    stall=1.2,
    matrix_rates=((1, 1e10), (4, 3e10), (16, 9e10), (64, 9.5e10)),
    fixed_s_per_pass=1e-3,
    fixed_s_per_layer=2e-5,
    sampler_s_per_logit=2e-9,
    link_bytes_per_s=1e10,
)
HIDDEN = Ceilings(**{name: getattr(CALIBRATED, name) for name in CALIBRATED.__dataclass_fields__} | {"fixed_hidden": True})
SPLIT = Deployment(dtype="bfloat16", weights=WEIGHT_FORMATS["nvfp4"], kv_dtype="float8", tensor_parallel=4)
FIGURES = ("wall_speedup", "wall_speedup_overlapped", "wall_speedup_serial", "ntp_tokens_per_s", "sbd_tokens_per_s")
MODELS = ("llama-250m", "gemma-3-4b", "qwen3-30b-a3b", "deepseek-v3")

cells = st.integers(1, 64).flatmap(
    lambda k: st.tuples(st.just(k), st.floats(1, k), st.integers(1, 512), st.integers(0, 10) | st.integers(0, 200_000))
)


@settings(deadline=None)
@given(
    st.sampled_from(MODELS),
    st.sampled_from(["bfloat16", SPLIT]),
    st.sampled_from([DATASHEET, CALIBRATED, HIDDEN]),
    st.lists(cells, min_size=1, max_size=6),
)
def test_a_grid_is_its_cells(name: str, deployment: Deployment | str, ceilings: Ceilings, drawn: list[Any]) -> None:
    """Every figure of every cell, to rounding."""
    axes = dict(zip(("block_size", "passes_per_block", "batch", "context_tokens"), zip(*drawn, strict=True), strict=True))
    grid = predict_grid(KNOWN_SHAPES[name], deployment, ceilings, **axes)
    for place, (k, passes, batch, context) in enumerate(drawn):
        one = predict_speedup(
            KNOWN_SHAPES[name], deployment, ceilings, block_size=k, passes_per_block=passes, batch=batch, context_tokens=context
        )
        for figure in FIGURES:
            assert getattr(grid, figure)[place] == pytest.approx(getattr(one, figure), rel=1e-9)
        for kind in ("ntp", "first", "later"):
            assert getattr(grid, f"{kind}_pass_s")[place] == pytest.approx(getattr(one, kind).expected_s, rel=1e-9)


def test_axes_broadcast_and_long_grids_keep_their_order() -> None:
    """A grid of axes is laid out as numpy lays it out, across the seams of what is priced together."""
    contexts = np.arange(CELLS_AT_ONCE)
    grid = predict_grid(
        KNOWN_SHAPES["llama-3.1-8b"],
        "bfloat16",
        DATASHEET,
        block_size=16,
        passes_per_block=4.0,
        batch=np.array([[1], [8]]),
        context_tokens=contexts,
    )
    assert grid.wall_speedup.shape == (2, CELLS_AT_ONCE)
    for row, batch in enumerate((1, 8)):
        for context in (0, 1, CELLS_AT_ONCE - 1):
            one = predict_speedup(
                KNOWN_SHAPES["llama-3.1-8b"],
                "bfloat16",
                DATASHEET,
                block_size=16,
                passes_per_block=4.0,
                batch=batch,
                context_tokens=context,
            )
            assert grid.ntp_tokens_per_s[row, context] == pytest.approx(one.ntp_tokens_per_s, rel=1e-12)


@pytest.mark.parametrize(
    "bad",
    [{"batch": 0}, {"block_size": 1.5}, {"context_tokens": -1}, {"passes_per_block": 17}, {"context_tokens": float("nan")}],
)
def test_an_impossible_cell_is_named(bad: dict[str, float]) -> None:
    """The second of two cells is the wrong one; the message shows it."""
    good = {"block_size": 16, "passes_per_block": 4, "batch": 2, "context_tokens": 10}
    axes = {name: [value, bad.get(name, value)] for name, value in good.items()}
    with pytest.raises(UserError, match=rf"{next(iter(bad))} {next(iter(bad.values())):g}\D"):
        predict_grid(KNOWN_SHAPES["llama-250m"], "bfloat16", DATASHEET, **axes)


@given(st.lists(st.integers(0, 5000), min_size=1, max_size=20))
def test_rates_are_interpolated_alike(tokens: list[int]) -> None:
    """Numbers one by one and an array of them, between, at and beyond the measured points."""
    points = ((1, 3e9), (4, 1e10), (16, 9e9), (300, 5e11))
    assert interpolate(points, np.array(tokens, dtype=float)) == pytest.approx([interpolate(points, m) for m in tokens])
