"""Models over several devices: TP, EP, DP attention and PP by hand, and what must hold of any of them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from harness.errors import UserError
from harness.hardware.profile import load_profile
from harness.models import KNOWN_SHAPES
from harness.models.deployment import Deployment
from harness.roofline.ceilings import ceilings_from_profile, joined
from harness.roofline.feed_forward import expected_experts
from harness.roofline.operation import Operation, PassCounts
from harness.roofline.operations import collectives, count_operations
from harness.roofline.pricing import price_counts
from harness.roofline.storage import kv_cache_bytes, stored_weight_bytes

ROWS = PassCounts(rows=64, query=1, context=2000, logits=1, kept=64)
MIXTURE, DEEPSEEK, DENSE = (KNOWN_SHAPES[name] for name in ("qwen3-30b-a3b", "deepseek-v3", "llama-3.1-8b"))


def split(**how: Any) -> Deployment:
    """In bfloat16."""
    return Deployment(dtype="bfloat16", **how)


def operations(name: str, how: Deployment, counts: PassCounts = ROWS) -> dict[str, Operation]:
    """By name."""
    return {one.name: one for one in count_operations(KNOWN_SHAPES[name], how, counts)}


def test_whole_experts_by_hand() -> None:
    """Of 128 experts each of 8 devices has 16: an eighth of the visited ones and of the visits, of whole width."""
    whole = operations("qwen3-30b-a3b", split())
    shared = operations("qwen3-30b-a3b", split(tensor_parallel=8, expert_parallel=True))
    visited = 48 * expected_experts(128, 8, 64)
    assert whole["experts"].weight_bytes == pytest.approx(visited * 3 * 2048 * 768 * 2)
    assert 8 * shared["experts"].weight_bytes == pytest.approx(whole["experts"].weight_bytes)
    assert 8 * shared["experts"].flops == whole["experts"].flops
    sliced = operations("qwen3-30b-a3b", split(tensor_parallel=8))
    # Lines of an expert's product are the same, but with whole experts an activation is not moved by all eight.
    assert shared["experts"].tokens == pytest.approx(sliced["experts"].tokens)
    assert shared["experts"].activation_bytes < sliced["experts"].activation_bytes
    assert stored_weight_bytes(MIXTURE, split(tensor_parallel=8, expert_parallel=True)) == pytest.approx(
        stored_weight_bytes(MIXTURE, split(tensor_parallel=8))
    )


def test_every_device_with_the_whole_attention_for_its_rows() -> None:
    """DeepSeek-V3 on 8: the latent cache is not split by heads, so each device would hold that of all 64 rows; now of 8."""
    heads, rows = (split(tensor_parallel=8, attention_data_parallel=dp) for dp in (False, True))
    by_heads, by_rows = operations("deepseek-v3", heads), operations("deepseek-v3", rows)
    assert by_heads["attention"].kv_bytes == 64 * 2000 * 61 * 576 * 2 == 8 * by_rows["attention"].kv_bytes
    assert by_heads["attention"].flops == by_rows["attention"].flops  # an eighth of the heads, or of the rows
    assert by_rows["qkv"].weight_bytes > 3 * by_heads["qkv"].weight_bytes  # whole instead of a slice of the up-projections
    assert by_rows["experts"].flops == by_heads["experts"].flops
    assert kv_cache_bytes(DEEPSEEK, heads, 1000) == 8 * kv_cache_bytes(DEEPSEEK, rows, 1000)
    # One row is on one device and cannot be shared out.
    alone = operations("deepseek-v3", rows, replace(ROWS, rows=1, kept=1))
    assert alone["attention"].kv_bytes == 2000 * 61 * 576 * 2


def test_stages_share_the_layers_and_the_rows() -> None:
    """With two stages each of two batches in flight has half of the rows, and each device half of weights and cache."""
    ceilings = joined(ceilings_from_profile(load_profile("h100-sxm"), "bfloat16"), load_profile("h100-sxm"), 2)
    both = price_counts(DENSE, split(pipeline_parallel=2), ROWS, ceilings)
    half = price_counts(DENSE, split(), replace(ROWS, rows=32, kept=32), ceilings)
    hop_s = 32 * 4096 * 2 / 450e9 + 0.6e-6
    assert both.expected_s == pytest.approx(half.expected_s + hop_s, rel=1e-9)
    assert stored_weight_bytes(DENSE, split(pipeline_parallel=2)) == stored_weight_bytes(DENSE, split()) / 2
    assert kv_cache_bytes(DENSE, split(pipeline_parallel=2), 1000) == kv_cache_bytes(DENSE, split(), 1000) / 2
    assert split(tensor_parallel=4, pipeline_parallel=2).devices == 8
    # A batch of one row goes through both stages alone, as long as on one device.
    one = replace(ROWS, rows=1, kept=1)
    alone = price_counts(DENSE, split(), one, ceilings).expected_s
    assert price_counts(DENSE, split(pipeline_parallel=2), one, ceilings).expected_s > alone


def test_what_is_sent_by_hand() -> None:
    """64 lines of hidden width 2048 and 7168 in two bytes over 8 devices, 7/8 of them to others."""
    line = 64 * 2048 * 2
    tp = collectives(MIXTURE, split(tensor_parallel=8), 64, 64)
    assert tp is not None
    gathered = 64 * 151_936 * 2
    assert tp.link_bytes == pytest.approx(7 / 8 * (2 * (2 * 48 + 1) * line + gathered))
    assert tp.link_hops == 3 * (2 * (2 * 48 + 1) + 1)  # log2 of 8 for each of two phases, and the gather
    dp = collectives(MIXTURE, split(tensor_parallel=8, attention_data_parallel=True), 64, 64)
    assert dp is not None and dp.link_bytes == pytest.approx(7 / 8 * (2 * (48 + 1) * line + gathered))
    # With whole experts a line goes only where its 8 experts are: to 1 - (7/8)^8 of the devices.
    ep = collectives(MIXTURE, split(tensor_parallel=8, attention_data_parallel=True, expert_parallel=True), 64, 64)
    assert ep is not None and ep.link_bytes == pytest.approx(7 / 8 * (2 * (48 * (1 - (7 / 8) ** 8) + 1) * line + gathered))
    assert collectives(MIXTURE, split(), 64, 64) is None


def test_splits_that_cannot_be() -> None:
    """Experts that a model does not have or that do not divide; no stage; heads need not divide where rows are shared."""
    with pytest.raises(UserError, match="has no experts to share out"):
        count_operations(DENSE, split(tensor_parallel=2, expert_parallel=True), ROWS)
    with pytest.raises(UserError, match="128 experts, which cannot be shared out evenly over 3"):
        count_operations(MIXTURE, split(tensor_parallel=3, expert_parallel=True, attention_data_parallel=True), ROWS)
    with pytest.raises(UserError, match="at least 1 stage"):
        split(pipeline_parallel=0)
    assert count_operations(DENSE, split(tensor_parallel=3, attention_data_parallel=True), ROWS)
    assert split(tensor_parallel=8, expert_parallel=True, pipeline_parallel=2).words == "TP 8, EP, PP 2"
