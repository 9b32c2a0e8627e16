"""Windows, experts, latent caches, weight formats and splits: layers worked out by hand, masks and routings by brute force."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from harness.errors import UnknownHardwareError, UserError
from harness.hardware.profile import load_profile
from harness.models import KNOWN_SHAPES, LatentAttention, MixtureOfExperts, ModelShape
from harness.models.deployment import WEIGHT_FORMATS, Deployment
from harness.roofline.ceilings import ceilings_from_profile
from harness.roofline.feed_forward import expected_experts
from harness.roofline.operation import Operation, describe_pass
from harness.roofline.operations import forward_operations
from harness.roofline.pricing import price_pass
from harness.roofline.storage import kv_cache_bytes, shard, stored_weight_bytes

SIZES: dict[str, int] = {"layers": 2, "hidden": 8, "intermediate": 12, "heads": 4, "kv_heads": 2, "head_dim": 2, "vocab": 10}
TINY = ModelShape(name="tiny", **SIZES)
SLIDING = ModelShape(name="sliding", sliding_window=4, sliding_layers=1, **SIZES)
ROUTING = MixtureOfExperts(experts=6, experts_per_token=2, intermediate=5, layers=1, shared_intermediate=3)
EXPERTS = ModelShape(name="experts", moe=ROUTING, **SIZES)
LATENT = ModelShape(
    name="latent",
    layers=2,
    hidden=8,
    intermediate=12,
    heads=4,
    kv_heads=4,
    head_dim=5,
    vocab=10,
    mla=LatentAttention(q_lora_rank=7, kv_lora_rank=6, qk_nope_head_dim=3, qk_rope_head_dim=2, v_head_dim=4),
)


def operations(shape: ModelShape, deployment: Deployment | str, *sizes: int, **more: Any) -> dict[str, Operation]:
    """The operations of a pass of (rows, query, context), by name."""
    described = describe_pass("decide", *sizes, **{"logits": 1, **more})
    return {operation.name: operation for operation in forward_operations(shape, deployment, described)}


def test_a_sliding_layer_by_hand() -> None:
    """A window of 4: of 5 cached tokens the sliding layer holds 3 (and the query itself makes 4); the other layer all 5."""
    found = operations(SLIDING, "bfloat16", 2, 3, 5)
    # Keys of a query: 5 + 3 in the full layer, 3 + 3 in the sliding one; 2 rows, 3 queries, 4 heads of 2, 2 x 2 flops.
    assert found["attention"].flops == 4 * 2 * 3 * (4 * 2) * ((5 + 3) + (3 + 3))
    # K and V of 2 heads of 2, 2 bytes each.
    assert found["attention"].kv_bytes == 2 * (5 + 3) * (2 * 2 * 2) * 2
    # Until the window is full the two layers are alike.
    assert operations(SLIDING, "bfloat16", 2, 3, 3)["attention"] == operations(TINY, "bfloat16", 2, 3, 3)["attention"]


def test_a_routing_layer_by_hand() -> None:
    """Layer 1 dense, layer 2 routing: 3 tokens to 2 of 6 experts of width 5, one shared expert of width 3."""
    found = operations(EXPERTS, "bfloat16", 1, 3, 0)
    assert found["ffn"].flops == 2 * 3 * (3 * 8 * 12)
    assert (found["router"].flops, found["router"].weight_bytes) == (2 * 3 * 8 * 6, 8 * 6 * 2)
    assert found["experts"].flops == 2 * (3 * 2) * (3 * 8 * 5)  # six visits, however many experts they fall on
    # Distinct experts: 6 * (1 - (2/3)^3) = 38/9, of 3 * 8 * 5 weights of 2 bytes.
    assert found["experts"].weight_bytes == pytest.approx(38 / 9 * 120 * 2)
    assert found["experts"].tokens == pytest.approx(6 / (38 / 9))
    assert (found["shared_experts"].flops, found["shared_experts"].weight_bytes) == (2 * 3 * (3 * 8 * 3), 3 * 8 * 3 * 2)
    # Attention (q 8x8, k and v 8x4, o 8x8), norms and final norm, head, embedding; then the two feed-forward layers.
    attention = 2 * (64 + 2 * 32 + 64 + 2 * 8)
    assert EXPERTS.params == attention + 8 + 2 * 80 + 3 * 8 * 12 + 8 * 6 + 6 * 120 + 72


def test_latent_attention_by_hand() -> None:
    """One query on 9 cached tokens: scores and sums in the latent space, 4 heads on one shared latent of 6 and key of 2."""
    found = operations(LATENT, "bfloat16", 1, 1, 9)
    # Q down 8x7 and up 7x(4*5); latent and key 8x(6+2); up 6x(4*(3+4)).
    assert found["qkv"].flops == 2 * 2 * (8 * 7 + 7 * 20 + 8 * 8 + 6 * 28)
    assert found["o"].flops == 2 * 2 * (4 * 4) * 8
    assert found["attention"].flops == 2 * 2 * (9 + 1) * 4 * ((6 + 2) + 6)
    assert found["attention"].kv_bytes == 2 * 9 * (6 + 2) * 2
    # Without context K (3 + 2 wide) and V (4 wide) are at hand.
    assert operations(LATENT, "bfloat16", 1, 3, 0)["attention"].flops == 2 * 2 * 3 * 3 * 4 * (5 + 4)
    written = operations(LATENT, "bfloat16", 1, 1, 9, kept=1)["kv_write"].bytes_
    assert written == 2 * 8 * 2


def test_padding_is_computed() -> None:
    """Two rows of 1 and 3 query tokens on 5 and 2 cached ones cost what two rows of 3 on 5 cost."""
    per_pair = 2 * 2 * 4 * 2
    widest = describe_pass("decide", 2, 3, 5, logits=3)
    padded = widest._replace(query_tokens=(1, 3), context_tokens=(5, 2), logit_tokens=(1, 3), kept_tokens=(1, 0))
    computed = {operation.name: operation.flops for operation in forward_operations(TINY, "bfloat16", padded)}
    assert computed["attention"] == 2 * per_pair * (2 * 3 * 8)


@pytest.mark.parametrize(("experts", "per_token", "tokens"), [(8, 2, 1), (8, 2, 3), (64, 6, 16), (128, 8, 32)])
def test_expected_experts_against_simulation(experts: int, per_token: int, tokens: int) -> None:
    """The mean over 4,000 simulated routings, each token choosing without replacement, within four standard errors."""
    drawn = np.random.default_rng(0).random((4000, tokens, experts)).argsort(axis=-1)[..., :per_token]
    distinct = np.array([len(np.unique(routing)) for routing in drawn])
    error = distinct.std() / np.sqrt(len(distinct))
    assert abs(distinct.mean() - expected_experts(experts, per_token, tokens)) <= 4 * error + 1e-9


def test_weight_formats_and_cache_dtype() -> None:
    """Only the linear layers change their format; embeddings, head, norms and biases stay, and the cache has its own dtype."""
    shape = ModelShape(name="biased", qkv_bias=True, o_bias=True, ffn_bias=True, **SIZES)
    plain = operations(shape, "bfloat16", 1, 2, 3, kept=2)
    mixed = Deployment(dtype="bfloat16", weights=WEIGHT_FORMATS["int4-g128"], kv_dtype="float8")
    found = operations(shape, mixed, 1, 2, 3, kept=2)
    # Half a byte, and 2.5 bytes of scale and zero point for 128 weights; biases of 16, 8 and 2 * 12 + 8 elements in bfloat16.
    per_weight = 0.5 + 2.5 / 128
    assert found["qkv"].weight_bytes == 2 * (8 * 16 * per_weight + 16 * 2)
    assert found["o"].weight_bytes == 2 * (8 * 8 * per_weight + 8 * 2)
    assert found["ffn"].weight_bytes == 2 * (3 * 8 * 12 * per_weight + 32 * 2)
    for untouched in ("elementwise", "lm_head"):
        assert found[untouched] == plain[untouched]
    for cache in ("attention", "kv_write"):
        assert found[cache].kv_bytes == plain[cache].kv_bytes / 2
        assert found[cache].activation_bytes == plain[cache].activation_bytes
    assert [found[name].flops for name in found] == [plain[name].flops for name in plain]
    with pytest.raises(UserError, match=r"int3.*known are float64"):
        Deployment(dtype="bfloat16", kv_dtype="int3")


def test_a_quantised_head() -> None:
    """Only its own weights change: 8 x 10 of them; a tied table is stored a second time, an untied one is replaced."""
    quantised = Deployment(dtype="bfloat16", lm_head_weights=WEIGHT_FORMATS["int8"])
    plain, found = operations(TINY, "bfloat16", 1, 2, 3), operations(TINY, quantised, 1, 2, 3)
    assert (plain.pop("lm_head").weight_bytes, found.pop("lm_head").weight_bytes) == (8 * 10 * 2, 8 * 10)
    assert plain == found
    tied = TINY.model_copy(update={"tied_embeddings": True})
    assert stored_weight_bytes(TINY, quantised) == stored_weight_bytes(TINY, "bfloat16") - 8 * 10
    assert stored_weight_bytes(tied, quantised) == stored_weight_bytes(tied, "bfloat16") + 8 * 10


def test_a_split_with_the_vocabulary_whole() -> None:
    """Embedding and head stay whole on every device, nothing is gathered; the layers are split as before."""
    split, whole = (Deployment(dtype="bfloat16", tensor_parallel=4, split_vocab=vocab) for vocab in (True, False))
    found, halves = operations(TINY, whole, 2, 3, 5, kept=4), operations(TINY, split, 2, 3, 5, kept=4)
    assert found["lm_head"].weight_bytes == 8 * 10 * 2 and halves["lm_head"].weight_bytes == 8 * 3 * 2
    assert found["collectives"].link_bytes == 4 * 2 * 0.75 * (6 * 8 * 2)  # after both halves of 2 layers
    for name in set(found) - {"lm_head", "collectives"}:
        assert found[name] == halves[name], name
    assert stored_weight_bytes(TINY, whole) - stored_weight_bytes(TINY, split) == 2 * 8 * (10 - 3) * 2


@pytest.mark.parametrize(
    ("name", "stored"),
    [("bfloat16", 2), ("float8-block128", 1 + 4 / 16384), ("int8", 1), ("mxfp4", 0.5 + 1 / 32), ("nvfp4", 0.5 + 1 / 16)],
)
def test_bytes_of_a_weight(name: str, stored: float) -> None:
    """Bits and scales per weight; MXFP4 is 4.25 bits, NVFP4 4.5."""
    assert WEIGHT_FORMATS[name].bytes_per_weight == stored


def test_a_split_layer_by_hand() -> None:
    """Over 4 devices: 1 of 4 heads, the 2 KV heads repeated so that each has 1, a quarter of the FFN, 3 of 10 columns."""
    split = Deployment(dtype="bfloat16", tensor_parallel=4)
    found = operations(TINY, split, 2, 3, 5, kept=4)
    assert found["qkv"].flops == 2 * 2 * 6 * 8 * (1 + 2) * 2
    assert found["attention"].kv_bytes == 2 * (2 * 5) * (2 * 1 * 2) * 2
    assert found["ffn"].weight_bytes == 2 * 3 * 8 * 3 * 2
    assert found["lm_head"].flops == 2 * 2 * 8 * 3
    assert found["elementwise"].weight_bytes == operations(TINY, "bfloat16", 2, 3, 5)["elementwise"].weight_bytes
    # A ring sends 2 * 3/4 of 6 lines x 8 x 2 bytes, after both halves of 2 layers and for the embedding; then the logits
    # (2 lines of 4 x 3 columns) are gathered, 3/4 of them from others.
    assert found["collectives"].link_bytes == 5 * 2 * 0.75 * (6 * 8 * 2) + 0.75 * (2 * 12 * 2)
    assert "collectives" not in operations(TINY, "bfloat16", 2, 3, 5)


def test_a_split_adds_up() -> None:
    """Where everything divides, t devices together do one device's flops and hold its weights, norms and router repeated."""
    for name in ("llama-3.1-8b", "qwen3-30b-a3b"):
        shape, part = KNOWN_SHAPES[name], shard(KNOWN_SHAPES[name], 4)
        repeated = shape.layers * (2 * shape.hidden + shape.head_norms) + shape.hidden
        repeated += shape.moe.layers * shape.hidden * shape.moe.experts if shape.moe else 0
        assert 4 * part.params == shape.params + 3 * repeated
        whole = operations(shape, "bfloat16", 2, 16, 1024)
        split = operations(shape, Deployment(dtype="bfloat16", tensor_parallel=4), 2, 16, 1024)
        for kind in set(whole) - {"router", "elementwise"}:
            assert 4 * split[kind].flops == whole[kind].flops, kind
    latent = shard(KNOWN_SHAPES["deepseek-v3"], 8)
    assert (latent.heads, latent.kv_width) == (16, 576)  # every device caches the whole latent


def test_a_split_is_priced_over_the_link() -> None:
    """The link's time comes on top; without a link rate, or with heads that do not divide, there is no price."""
    shape, roof = KNOWN_SHAPES["llama-3.1-8b"], ceilings_from_profile(load_profile("h100-sxm"), "bfloat16")
    assert roof.link_bytes_per_s == 450e9  # 900 GB/s are both directions together
    described, split = describe_pass("decide", 1, 16, 1000, logits=16), Deployment(dtype="bfloat16", tensor_parallel=2)
    price = price_pass(shape, split, described, roof)
    link = next(operation for operation in price.operations if operation.name == "collectives")
    sent = (2 * 32 + 1) * 16 * 4096 * 2 + 16 * 128256 * 2 / 2
    waits = 65 * 2 + 1  # 65 all-reduces in two hops, and the logits gathered in one, 0.6 us each over NVLink
    assert link.link_s == link.low_s == link.expected_s == link.high_s == pytest.approx(sent / 450e9 + waits * 0.6e-6)
    one = price_pass(shape, "bfloat16", described, roof)
    assert one.forward_s / 2 < price.forward_s < one.forward_s
    with pytest.raises(UnknownHardwareError, match=r"gb10.*no link rate.*--link"):
        price_pass(shape, split, described, ceilings_from_profile(load_profile("gb10"), "bfloat16"))
    with pytest.raises(UserError, match=r"32 attention heads.*3 devices"):
        price_pass(shape, Deployment(dtype="bfloat16", tensor_parallel=3), described, roof)
    with pytest.raises(UserError, match="at least 1 device"):
        Deployment(dtype="bfloat16", tensor_parallel=0)


def test_bytes_a_device_holds() -> None:
    """All weights, read or not, and a cache in which sliding layers stop growing at their window."""
    assert stored_weight_bytes(KNOWN_SHAPES["llama-3.1-8b"], "bfloat16") == 2 * 8_030_261_248
    assert stored_weight_bytes(KNOWN_SHAPES["deepseek-v3"], "bfloat16") == 2 * 671_026_419_200
    int4 = Deployment(dtype="bfloat16", weights=WEIGHT_FORMATS["int4-g128"])
    embeddings = 2 * 128_256 * 4096 + 65 * 4096
    held = 2 * embeddings + (8_030_261_248 - embeddings) * (0.5 + 2.5 / 128)
    assert stored_weight_bytes(KNOWN_SHAPES["llama-3.1-8b"], int4) == pytest.approx(held)
    assert [kv_cache_bytes(SLIDING, "bfloat16", tokens) for tokens in (0, 3, 5)] == [0, 6 * 16, 8 * 16]
    spread = Deployment(dtype="bfloat16", kv_dtype="float8", tensor_parallel=4)
    assert kv_cache_bytes(KNOWN_SHAPES["llama-3.1-8b"], spread, 1000) == 1000 * 2 * 32 * 2 * 128
