"""The model between the paper's roofline and ours: its end against our pricing, each correction by hand."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.errors import UserError
from harness.hardware.profile import load_profile
from harness.models import KNOWN_SHAPES
from harness.roofline import paper
from harness.roofline.batches import slowest_row_passes
from harness.roofline.ceilings import Ceilings, ceilings_from_profile
from harness.roofline.operation import describe_pass
from harness.roofline.paper import (
    MODEL,
    AdjustableModel,
    PaperCell,
    published_slowdowns,
    published_speedups,
    slowdown,
    wall_speedup,
)
from harness.roofline.paper_steps import PaperWaterfall, corrections, explain_slowdown, explain_speedup
from tests.helpers.speedups import predict_speedup

CELLS_3, CELLS_4 = sorted(published_slowdowns()), sorted(published_speedups())


@cache
def roof(device: str = "h100-sxm", dtype: str = "bfloat16") -> Ceilings:
    """The datasheet rung of a device."""
    return ceilings_from_profile(load_profile(device), dtype)


def corrected(ceilings: Ceilings) -> AdjustableModel:
    """The model with every correction made."""
    model = AdjustableModel()
    for one in corrections(ceilings):
        model = replace(model, **one.changes)
    return model


@given(
    st.sampled_from([("h100-sxm", "bfloat16"), ("h100-sxm", "float8"), ("h100-sxm", "float32"), ("l40s", "float8")]),
    st.integers(1, 300),
    st.integers(0, 5_000_000),
    st.integers(1, 96),
    st.floats(0, 1),
)
def test_fully_corrected_it_is_our_pricing(device: tuple[str, str], batch: int, context: int, k: int, share: float) -> None:
    """Both figures equal predict_speedup's to the last bit, whatever the cell, dtype and device; the slowest row counts."""
    ceilings, cell = roof(*device), PaperCell(batch_size=batch, kv_length=context, block_size=k)
    passes = 1 + share * (k - 1)
    priced = predict_speedup(
        KNOWN_SHAPES["llama-3.1-8b"],
        device[1],
        ceilings,
        block_size=k,
        passes_per_block=passes,
        batch=batch,
        context_tokens=context,
        batching="lockstep",
    )
    model = corrected(ceilings)
    assert wall_speedup(model, cell, 99.0, passes) == priced.wall_speedup
    assert slowdown(model, cell) == priced.later.expected_s / priced.ntp.expected_s


# One pass of 2 rows and 3 queries on 16 cached tokens, logits at 3, 1 kept a row: 6 lines. What each correction alone adds to
# bytes and flops of the model as printed with its widths right (8-bit, so an element is a byte), worked by hand.
L, H, LINES = 32, 4096, 6
BY_HAND: list[tuple[dict[str, Any], int, int]] = [
    ({"gated_ffn": True}, L * (H * 16384 + LINES * (H + 16384)), L * 2 * LINES * H * 16384),
    ({"ffn_width": 14336}, -L * 2 * (16384 - 14336) * (H + LINES), -L * 2 * LINES * 2 * H * (16384 - 14336)),
    ({"kv_width": 256}, -L * 2 * 768 * (H + LINES), -L * 2 * LINES * 2 * H * 768),
    ({"inputs_read_once": True}, -L * 2 * LINES * H, 0),  # Q, K, V read it once instead of three times
    (
        {"inputs_read_once": True, "gated_ffn": True},
        L * (H * 16384 + LINES * (H + 16384)) - L * 3 * LINES * H,
        L * 2 * LINES * H * 16384,
    ),
    ({"lm_head": True}, 128256 * H + LINES * (H + 128256), 2 * LINES * H * 128256),
    # K and V of 6 tokens written, and of the 2 kept ones into the cache; 3 more keys for each of 6 queries.
    ({"own_tokens": True}, L * 2 * 1024 * (6 + 2), 4 * L * 6 * 3 * H),
    # A layer: 2 norms read and write, 2 additions of 2 reads and a write, Q and K rotated, 2 of the inner width; norm weights.
    ({"elementwise": True}, LINES * (L * (10 * H + 2 * 40 * 128 + 2 * 16384) + 4 * H) + L * 2 * H + H, 0),
    ({"sampler": True}, 5 * 4 * LINES * 128256, 0),
    # 6 lines of 4096 and more bytes in each of 32 layers stay within 100 kB: only the FFN's are more, 2 * 6 * (4096 + 16384).
    (
        {"cache_bytes": 1e5, "inputs_read_once": True},
        -L * (LINES * (2 * H + 2 * 1024) + 2 * LINES * H + 2 * LINES * H) - L * 2 * LINES * H - L * 100_000,
        0,
    ),
]


@pytest.mark.parametrize(("changes", "bytes_", "flops"), BY_HAND, ids=["+".join(case[0]) for case in BY_HAND])
def test_each_correction_alone_adds_what_it_says(changes: dict[str, Any], bytes_: int, flops: int) -> None:
    """With one byte a second and no end of flops the seconds are bytes, and the other way round flops."""
    forward_pass = describe_pass("decide", 2, 3, 16, logits=3, kept=1)
    widths = {"ffn_width": 16384, "kv_width": 1024}
    by_bytes = {"bandwidth_bytes_per_s": 1.0, "linear_flops_per_s": 1e40, "attention_flops_per_s": 1e40}
    by_flops = {"bandwidth_bytes_per_s": 1e40, "linear_flops_per_s": 1.0, "attention_flops_per_s": 1.0}
    for rates, added in ((by_bytes, bytes_), (by_flops, flops)):
        before = AdjustableModel(**{**rates, **widths})  # type: ignore[arg-type]
        after = AdjustableModel(**{**rates, **widths, **changes})
        assert after.pass_s(forward_pass) - before.pass_s(forward_pass) == pytest.approx(added, abs=1e-9)


def test_the_dtype_scales_every_byte_but_the_samplers() -> None:
    """Two bytes an element double the bytes of all that is stored in the dtype; float32 logits stay."""
    forward_pass = describe_pass("decide", 1, 4, 100, logits=4)
    model = AdjustableModel(bandwidth_bytes_per_s=1.0, elementwise=True, lm_head=True, own_tokens=True)
    assert replace(model, dtype="bfloat16").pass_s(forward_pass) == 2 * model.pass_s(forward_pass)
    sampled = replace(model, dtype="bfloat16", sampler=True).pass_s(forward_pass)
    assert sampled == 2 * model.pass_s(forward_pass) + 5 * 4 * 4 * 128256


def test_attention_has_a_peak_of_its_own() -> None:
    """Doubling the rate of attention leaves the linear layers as they are, and the other way round."""
    model = AdjustableModel(bandwidth_bytes_per_s=1e40, linear_flops_per_s=1.0, attention_flops_per_s=1.0)
    forward_pass = describe_pass("decide", 1, 4, 100, logits=4)
    attention_s = 4 * 32 * 4 * 100 * 4096
    assert replace(model, attention_flops_per_s=2.0).pass_s(forward_pass) == model.pass_s(forward_pass) - attention_s / 2
    linear_s = model.pass_s(forward_pass) - attention_s
    assert replace(model, linear_flops_per_s=2.0).pass_s(forward_pass) == linear_s / 2 + attention_s


def test_the_papers_constants_are_the_models() -> None:
    """Hidden width, heads and head width of fig. 11 are those of the model whose pricing the chain ends at; its FFN is not."""
    assert (MODEL.hidden, MODEL.heads, MODEL.head_dim, MODEL.kv_heads) == (
        paper.HIDDEN,
        paper.HEADS,
        paper.HEAD_DIM,
        paper.KV_HEADS,
    )
    assert MODEL.intermediate != paper.FFN


def check(waterfall: PaperWaterfall, published: float, printed: float, ours: float) -> None:
    """The chain is unbroken, begins at the published figure and its own evaluation, and ends at ours."""
    steps = waterfall.steps
    assert waterfall.published == steps[0].before == published
    assert steps[0].after == pytest.approx(published, abs=0.000507)  # 3.736507 is printed as 3.736: test_roofline_paper.py
    assert steps[0].after == pytest.approx(printed, rel=1e-14)
    assert all(left.after == right.before for left, right in pairwise(steps))
    assert (steps[-1].name, steps[-1].after, steps[-1].factor) == ("launches", None, None)
    assert steps[-2].after == steps[-1].before == waterfall.ours == ours
    product = 1.0
    for factor in waterfall.factor_by_kind.values():
        product *= factor
    assert product == pytest.approx(ours / published, rel=1e-12)


@given(st.sampled_from(CELLS_3), st.sampled_from(["bfloat16", "float8"]))
def test_a_slowdown_goes_from_the_published_to_ours(key: tuple[int, int, int], dtype: str) -> None:
    """Table 3: every cell leads from the file's figure over paper.py's to the prices of a pass of k and of one token."""
    batch, context, k = key
    ceilings, shape = roof(dtype=dtype), KNOWN_SHAPES["llama-3.1-8b"]
    priced = predict_speedup(
        shape, dtype, ceilings, block_size=k, passes_per_block=k, batch=batch, context_tokens=context, batching="lockstep"
    )
    check(
        explain_slowdown(PaperCell(batch_size=batch, kv_length=context, block_size=k), ceilings),
        published_slowdowns()[key],
        slowdown(AdjustableModel(), PaperCell(batch, context, k)),
        priced.later.expected_s / priced.ntp.expected_s,
    )


@given(st.sampled_from(CELLS_4), st.sampled_from(["bfloat16", "float8"]))
def test_a_speedup_goes_from_the_published_to_ours(key: tuple[int, int, int, int], dtype: str) -> None:
    """Table 4: every cell leads from the file's figure over paper.py's to predict_speedup's with the slowest row's passes."""
    batch, context, k, nfe = key
    ceilings, passes = roof(dtype=dtype), slowest_row_passes(k, k / nfe, batch)
    priced = predict_speedup(
        KNOWN_SHAPES["llama-3.1-8b"],
        dtype,
        ceilings,
        block_size=k,
        passes_per_block=passes,
        batch=batch,
        context_tokens=context,
        batching="lockstep",
    )
    found = explain_speedup(PaperCell(batch_size=batch, kv_length=context, block_size=k), nfe, ceilings)
    printed = wall_speedup(AdjustableModel(), PaperCell(batch, context, k), k / nfe, k / nfe)
    check(found, published_speedups()[key], printed, priced.wall_speedup)
    assert (found.nfe_speedup, found.passes_per_block) == (nfe, passes)


def test_each_step_is_a_correction_with_reason_and_source() -> None:
    """In order, none without effect on either table's figures, each with a sentence and where it is from."""
    cell = PaperCell(batch_size=8, kv_length=65536, block_size=64)
    slow, fast = explain_slowdown(cell, roof()), explain_speedup(cell, 4, roof())
    made = corrections(roof())
    assert [step.name for step in slow.steps] == ["as printed", *(one.name for one in made), "launches"]
    for one, other in zip(slow.steps[:-1], fast.steps[:-1], strict=True):
        assert one.factor != 1 or other.factor != 1
        assert len(one.reason) > 30 and one.source and (one.name, one.reason) == (other.name, other.reason)
    assert "a datasheet knows no launch cost" in slow.steps[-1].reason
    assert fast.steps[-2].factor is not None and fast.steps[-2].factor < 0.9  # eight rows wait for the slowest of them
    assert slow.steps[-2].factor == 1  # a slowdown knows no passes


def test_cells_outside_the_tables_are_refused_with_what_they_hold() -> None:
    """The message names what was given and every size there is; another rung is refused too."""
    with pytest.raises(UserError, match=r"Table 3 .* batch size 2, .*it has: batch size 1, 4, 8, 16; KV length 16, 256.*64$"):
        explain_slowdown(PaperCell(batch_size=2, kv_length=16, block_size=16), roof())
    cell = PaperCell(batch_size=8, kv_length=16, block_size=16)
    for nfe in (3, 0, -1.5):
        with pytest.raises(UserError, match=rf"Table 4 .* NFE speedup {nfe}; .*batch size 1, 4, 8; .*NFE speedup 2, 4, 8$"):
            explain_speedup(cell, nfe, roof())
    with pytest.raises(UserError, match="calibrated"):
        explain_slowdown(cell, replace(roof(), rung="calibrated"))
