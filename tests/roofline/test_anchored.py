"""The rung between datasheet and calibration: by hand, against the fit's own arithmetic, and where it is used."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks import anchored as fitting
from benchmarks import anchored_work
from harness.errors import UnknownHardwareError, UserError
from harness.hardware.profile import known_profiles, load_profile
from harness.models import KNOWN_SHAPES
from harness.models.deployment import WEIGHT_FORMATS, Deployment
from harness.roofline.anchor_values import known_anchors
from harness.roofline.anchored import (
    band_in_words,
    ceilings_from_anchors,
    constants,
    reached_in_words,
    rung_called,
    what_if_ceilings,
)
from harness.roofline.anchors import anchored_ceilings, seconds
from harness.roofline.feed_forward import expected_experts
from harness.roofline.operation import PassCounts
from harness.roofline.pricing import price_counts
from tests.helpers.command import Cli

DENSE, MIXTURE = KNOWN_SHAPES["llama-3.1-8b"], KNOWN_SHAPES["qwen3-30b-a3b"]
ONE = PassCounts(rows=1, query=1, context=0, logits=1, kept=1)


def test_the_ceilings_are_the_datasheet_times_the_constants() -> None:
    """3350 GB/s and 989.4 TFLOP/s of an H100, and the microseconds of the file."""
    fitted, found = constants(), ceilings_from_anchors(load_profile("h100-sxm"), "bfloat16")
    assert found.rung == "anchored"
    assert found.bandwidth_bytes_per_s == pytest.approx(3350e9 * fitted.copy_share["hbm"])
    assert found.matrix_flops_per_s(1) == pytest.approx(989.4e12 * fitted.matrix_share["float16"])
    assert found.fixed_s_per_layer == pytest.approx(fitted.layer_us * 1e-6)
    eight = ceilings_from_anchors(load_profile("h100-sxm"), "float8")
    assert eight.matrix_flops_per_s(1) == pytest.approx(1979e12 * fitted.matrix_share["float8"])


def test_a_pass_by_hand() -> None:
    """A one-token pass of Llama 3.1 8B: its 32 layers' fixed cost, and its bytes at the reached bandwidth, not overlapped."""
    found = ceilings_from_anchors(load_profile("h100-sxm"), "bfloat16")
    price = price_counts(DENSE, "bfloat16", ONE, found)
    assert price.fixed_s == pytest.approx(32 * constants().layer_us * 1e-6)
    serial = price.bytes_ / found.bandwidth_bytes_per_s + sum(one.compute_s for one in price.operations)
    assert price.fixed_s < price.forward_s < price.fixed_s + serial * (1 + 1e-9)
    assert price.bytes_ == pytest.approx(15.02e9, rel=0.01)


def test_a_split_pays_two_all_reduces_a_layer_and_a_mixture_its_routing() -> None:
    """Both on top of the layers' own cost."""
    fitted, found = constants(), ceilings_from_anchors(load_profile("h100-sxm"), "bfloat16")
    alone, split = (found.fixed_s(DENSE, Deployment(dtype="bfloat16", tensor_parallel=n)) for n in (1, 4))
    assert split - alone == pytest.approx(2 * 32 * fitted.all_reduce_us * 1e-6)
    mixed = found.fixed_s(MIXTURE, Deployment(dtype="bfloat16"))
    assert mixed == pytest.approx(48 * (fitted.layer_us + fitted.routing_layer_us) * 1e-6)


def matrix_rate(hardware: str, weights: str | None, engine: str = "vllm") -> float:
    """FLOP/s of a feed-forward network with weights in that format, under bfloat16."""
    deployed = Deployment(dtype="bfloat16", weights=weights and WEIGHT_FORMATS[weights])
    return ceilings_from_anchors(load_profile(hardware), "bfloat16", engine=engine).for_weights(deployed).matrix_flops_per_s(1)


def test_weights_are_multiplied_in_their_own_format_where_the_device_has_its_peak() -> None:
    """Datasheet peaks by hand; what has none is unpacked as vLLM's Marlin does it (141 TFLOP/s measured on an A100), or as
    llama.cpp's kernels do; where a peak is slower than that (int8 of a B300), it is not used.
    """
    eight = constants().matrix_share["float8"]
    for weights in ("float8", "float8-block128"):
        assert matrix_rate("h100-sxm", weights) == pytest.approx(1979e12 * eight)
        assert matrix_rate("a100-80-sxm", weights) == pytest.approx(141e12, rel=0.01)
    assert matrix_rate("a100-80-sxm", "int8") == pytest.approx(624e12 * eight)
    assert matrix_rate("b300-sxm", "int8") == pytest.approx(0.45 * 2250e12)
    for weights in ("w8a16", "int4-g32", "int4-g64", "int4-g128", "mxfp4", "nvfp4"):
        assert matrix_rate("h100-sxm", weights) == pytest.approx(0.45 * 989.4e12)
        assert matrix_rate("h100-sxm", weights, "llama.cpp") == pytest.approx(0.221 * 989.4e12)
    assert matrix_rate("h100-sxm", "bfloat16") == matrix_rate("h100-sxm", None)
    at_float8 = ceilings_from_anchors(load_profile("h100-sxm"), "float8")
    assert at_float8.for_weights(Deployment(dtype="bfloat16", weights=WEIGHT_FORMATS["float8"])) is at_float8


def test_attention_and_lm_head_keep_the_rate_of_their_dtype() -> None:
    """Only what is stored in fewer bits changes its arithmetic: seconds of each operation, one by one."""
    found = ceilings_from_anchors(load_profile("h100-sxm"), "bfloat16")
    counts = PassCounts(rows=4, query=100, context=500, logits=100, kept=400)
    plain, four = (
        {one.name: one.compute_s for one in price_counts(MIXTURE, deployed, counts, found).operations}
        for how in (None, WEIGHT_FORMATS["int4-g128"])
        for deployed in [Deployment(dtype="bfloat16", weights=how)]
    )
    slower = found.matrix_flops_per_s(1) / (0.45 * 989.4e12)
    for name in ("attention", "lm_head", "router"):
        assert four[name] == plain[name] > 0
    for name in ("qkv", "o", "experts"):
        assert four[name] == pytest.approx(slower * plain[name])


def test_sixteen_requests_at_once_as_published() -> None:
    """Llama 3.1 8B in 4 bits takes 0.267 s where bfloat16 takes 0.336 s (one H100, batch 16): faster, by about as much."""
    found = ceilings_from_anchors(load_profile("h100-sxm"), "bfloat16")
    took = []
    for weights in (None, WEIGHT_FORMATS["int4-g128"]):
        how = Deployment(dtype="bfloat16", weights=weights)
        read = PassCounts(rows=16, query=256, context=0, logits=1, kept=16 * 256, causal=True)
        write = PassCounts(rows=16, query=1, context=272, logits=1, kept=16)
        took.append(price_counts(DENSE, how, read, found).expected_s + 31 * price_counts(DENSE, how, write, found).expected_s)
    assert took[0] == pytest.approx(0.336, rel=0.1) and took[1] == pytest.approx(0.267, rel=0.1)


def test_tokens_of_a_batch_share_experts() -> None:
    """Fewer than under independent routing for many tokens, the same for one."""
    found = ceilings_from_anchors(load_profile("h100-sxm"), "bfloat16")
    assert found.visited_experts(DENSE, 16) is None
    assert found.visited_experts(MIXTURE, 1) == pytest.approx(48 * 8)
    many = found.visited_experts(MIXTURE, 16)
    assert many is not None and 48 * 8 < many < 48 * expected_experts(128, 8, 16)


def test_the_fit_prices_as_the_program_does() -> None:
    """The table of operations that the fit works on gives each anchor price_counts' price, within its thinned contexts."""
    table, fitted, profiles = known_anchors(), constants(), known_profiles()
    some = table.model_copy(update={"anchors": table.anchors[::9]})
    work = anchored_work.tabulate(some, profiles)
    names = {"copy": fitted.copy_share, "matrix": fitted.matrix_share}
    found = {f"{head}_{key}": value for head, values in names.items() for key, value in values.items()}
    found["metal_attention"] = fitted.metal_attention_share
    x = np.array([found[name] if name in found else getattr(fitted, name) for name in anchored_work.NAMES])
    expected = [
        seconds(one, some.shape_of(one), some.deployment_of(one), anchored_ceilings(one, profiles[one.device]))[1]
        for one in some.anchors
    ]
    assert anchored_work.predicted(work.arrays(), x) == pytest.approx(expected, rel=2e-3)


def test_the_fit_finds_constants_that_made_the_figures() -> None:
    """Figures made with known constants give them back, so nothing in the fit is set by hand."""
    table = known_anchors()
    work = anchored_work.tabulate(table.model_copy(update={"anchors": table.anchors[::3]}), known_profiles())
    columns = work.arrays()
    made = anchored_work.START * np.linspace(0.8, 1.1, len(anchored_work.START))
    made = np.minimum(made, [one.high for one in anchored_work.CONSTANTS.values()])
    figures = anchored_work.predicted(columns, made)
    found = fitting.fit(columns, figures, np.ones(len(figures)), np.ones(len(figures), dtype=bool))
    assert anchored_work.predicted(columns, found) == pytest.approx(figures, rel=0.05)
    for name, within in {"copy_hbm": 0.05, "layer_us": 0.2, "all_reduce_us": 0.2}.items():  # priors pull a little
        at = anchored_work.NAMES.index(name)
        assert found[at] == pytest.approx(made[at], rel=within)


def test_held_out_leaves_the_group_out() -> None:
    """Each group's figures come from a fit that did not see them."""
    groups = np.array(["a", "a", "b", "c"])
    found = fitting.held_out(groups, lambda kept: np.full(4, 10.0 * kept.sum()))
    assert found.tolist() == [20.0, 20.0, 30.0, 30.0]


def test_a_band_by_hand() -> None:
    """Every group weighs the same: nine figures of one device and one of another stand for half each."""
    ratios, groups = np.array([1.0] * 9 + [2.0]), np.array(["a"] * 9 + ["b"])
    assert fitting.band(ratios, groups) == (0.5, 1.0)


def test_ladder_of_a_profile() -> None:
    """Anchored by default, the datasheet when asked, and refused in words where a profile says too little."""
    profile = load_profile("h100-sxm")
    assert what_if_ceilings(profile, "bfloat16").rung == "anchored"
    assert what_if_ceilings(profile, "bfloat16", "datasheet").rung == "datasheet"
    unsaid = profile.model_copy(update={"memory_type": None})
    assert what_if_ceilings(unsaid, "bfloat16").rung == "datasheet" and reached_in_words(unsaid) is None
    with pytest.raises(UnknownHardwareError, match="does not say its memory_type"):
        what_if_ceilings(unsaid, "bfloat16", "anchored")
    with pytest.raises(UnknownHardwareError, match="no measured rates"):
        what_if_ceilings(profile, "bfloat16", "calibrated")
    assert rung_called("anchored") == "anchored"
    with pytest.raises(UserError, match="got the rung 'guess'; allowed are datasheet, anchored, calibrated"):
        rung_called("guess")


def test_every_answer_says_what_engines_reach(cli: Cli) -> None:
    """The sentence and the band stand in a what-if and in a plan."""
    what_if = ("roofline", "--model", "llama-3.1-8b", "--hardware", "h100-sxm")
    found = cli.answer(*what_if)
    assert found["rung"] == "anchored" and found["band"] == band_in_words()
    assert found["reached"] == reached_in_words(load_profile("h100-sxm"))
    assert found["reached"].startswith("engines reached 0.") and "of the datasheet on this class of device" in found["reached"]
    assert cli.answer(*what_if, "--rung", "datasheet")["rung"] == "datasheet"
    plan = ("capacity", "--model", "llama-3.1-8b", "--nfe-speedup", "3", "--batch", "8", "--hardware", "h100-sxm")
    assert cli(*plan) == 0
    words = " ".join(cli.out.split())
    assert found["reached"] in words and found["band"] in words
