"""Native forwards against the same forwards in float64 and by torch, for every level of the processor.

No token's bits depend on what is fed beside it, on the threads, or on an adapter beside it.
"""

from __future__ import annotations

import copy
from functools import cache

import pytest
import torch
import transformers
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.decoding.next_token import decode_next_token
from harness.decoding.session import Segment
from harness.engine.gated_adapter import attach
from harness.engine.native_forward import NativeForward, why_not_native
from harness.engine.static_session import StaticSession
from harness.errors import UnknownModelError
from harness.kernels.library import why_not_built
from harness.models import KNOWN_SHAPES
from tests.helpers.adapters import random_adapter
from tests.helpers.few_words import METHODS, decoder
from tests.helpers.tiny_model import MASK_ID, VOCAB, committed_kv, drain, request

pytestmark = pytest.mark.skipif(why_not_built() is not None, reason="no C++ compiler")
LEVELS = ["native", "x86-64-v4", "x86-64-v3", "x86-64"]
SIZES = {
    "vocab_size": VOCAB,
    "hidden_size": 96,
    "intermediate_size": 176,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "num_hidden_layers": 3,
    "head_dim": 32,
    "max_position_embeddings": 256,
}
SCALED = {
    "rope_type": "llama3",
    "rope_theta": 1e4,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
KINDS = {
    "llama": (transformers.LlamaConfig, transformers.LlamaForCausalLM, {"tie_word_embeddings": True}),
    "biases": (
        transformers.LlamaConfig,
        transformers.LlamaForCausalLM,
        {"attention_bias": True, "mlp_bias": True, "rope_parameters": SCALED},
    ),
    "qwen2": (transformers.Qwen2Config, transformers.Qwen2ForCausalLM, {}),
    "qwen3": (transformers.Qwen3Config, transformers.Qwen3ForCausalLM, {"head_dim": 64}),
}
DTYPES = [torch.float32, torch.bfloat16]
AS_FAR = 4
"""Times torch's own distance from float64, root mean square: one forward may be luckier than another."""


@cache
def model(kind, dtype, adapted=False):
    """A random model in ``dtype``, its weights drawn so that every part matters."""
    config, made, more = KINDS[kind]
    generator = torch.Generator().manual_seed(11)
    found = made(config(**SIZES | more)).eval()
    for name, one in found.named_parameters():
        drawn = torch.randn(one.shape, generator=generator)
        one.data = 1 + drawn / 4 if "norm" in name else drawn * (one.shape[-1] ** -0.5 if one.dim() > 1 else 0.3)
    if adapted:
        attach(found, random_adapter(found, MASK_ID, rank=5, size=0.2))
    return found.to(dtype)


@cache
def in_float64(kind, dtype, adapted):
    """Its session: the same weights, widened."""
    return StaticSession(copy.deepcopy(model(kind, dtype, adapted)).double())


@cache
def eager(kind, dtype, adapted):
    """Its session by torch."""
    return StaticSession(model(kind, dtype, adapted))


@cache
def native(kind, dtype, adapted, level):
    """A session of it whose forwards are for this level of the processor."""
    session = StaticSession(model(kind, dtype, adapted), "native")
    session._native = NativeForward(session._model, level)
    return session


class Fed:
    """Some committed tokens of every row, then one forward of these segments' ``widths``: causal, bidirectional, explicit."""

    def __init__(self, lengths, causal, bidirectional, explicit, padded, seed):
        drawn = torch.Generator().manual_seed(seed)
        rows, width = len(lengths), causal + bidirectional + explicit
        self.lengths = lengths
        self.prompt = torch.randint(VOCAB, (rows, max(lengths)), generator=drawn)
        fed = torch.randint(VOCAB, (rows, width), generator=drawn)
        fed[torch.rand(rows, width, generator=drawn) < 0.3] = MASK_ID
        positions = torch.tensor(lengths)[:, None] + torch.arange(width)
        valid = torch.rand(rows, causal, generator=drawn) < 0.7 if padded and causal else None
        seen = torch.rand(explicit, explicit, generator=drawn) < 0.5
        self.segments, end = [], 0
        for size, visibility in ((causal, "causal"), (bidirectional, "bidirectional"), (explicit, "explicit")):
            if size:
                self.segments.append(
                    Segment(
                        tokens=fed[:, end : end + size],
                        positions=positions[:, end : end + size],
                        visibility=visibility,
                        logits=size,
                        valid=valid if visibility == "causal" else None,
                        seen=seen | torch.eye(explicit, dtype=torch.bool) if visibility == "explicit" else None,
                    )
                )
                end += size
        self.real = torch.ones(rows, width, dtype=torch.bool)
        if valid is not None:
            self.real[:, :causal] = valid

    def logits(self, session, kv=None):
        """Of the forward, (B, Q, V), behind prompts whose KV is ``kv``, or the session's own; and that KV."""
        session.reset(len(self.lengths), 120)
        positions = torch.arange(self.prompt.shape[1]).expand(self.prompt.shape)
        session.forward([Segment(tokens=self.prompt, positions=positions, visibility="causal", logits=1)])
        session.keep(self.lengths)
        held = [one.clone() for one in (*session._keys, *session._values)]  # cached sessions keep their buffers
        for own, other in zip((*session._keys, *session._values), kv or held, strict=True):
            own.copy_(other)
        return session.forward(self.segments), held


FORWARDS = st.builds(
    Fed,
    st.lists(st.integers(1, 40), min_size=1, max_size=3),
    st.sampled_from([0, 1, 2, 7, 13, 33]),
    st.sampled_from([0, 1, 5, 16, 30]),
    st.sampled_from([0, 4]),
    st.booleans(),
    st.integers(0, 999),
).filter(lambda one: one.segments and one.real.any())


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("kind", KINDS)
@given(fed=FORWARDS, level=st.sampled_from(LEVELS), adapted=st.booleans(), threads=st.integers(1, 4))
@settings(max_examples=20, deadline=None)
def test_logits_are_as_near_to_float64_as_those_of_torch(kind, dtype, level, fed, adapted, threads):
    """Odd widths, 1 to 79 rows and more, batches, padding and explicit masks, with and without an adapter."""
    before = torch.get_num_threads()
    wanted, kv = fed.logits(in_float64(kind, dtype, adapted))
    rounded = [one.to(dtype) for one in kv]
    by_torch, _ = fed.logits(eager(kind, dtype, adapted), rounded)
    try:
        torch.set_num_threads(threads)
        found, _ = fed.logits(native(kind, dtype, adapted, level), rounded)
    finally:
        torch.set_num_threads(before)
    error, allowed = ((one.double() - wanted)[fed.real].square().mean().sqrt() for one in (found, by_torch))
    assert error <= AS_FAR * allowed + torch.finfo(dtype).eps * wanted.std()


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_tokens_bits_do_not_depend_on_what_is_fed_beside_it(dtype, level):
    """Thirty causal tokens at once, in runs, and one by one; with a block behind them, with an adapter on that block, and by
    other numbers of threads.
    """
    before = torch.get_num_threads()
    fed = Fed([9], 30, 0, 0, False, 5)
    [whole] = fed.segments
    block = Fed([9], 30, 7, 0, False, 5).segments[1]

    def found(width, threads, adapted=False, behind=()):
        torch.set_num_threads(1)  # prompts are read by torch, whose sums depend on the threads
        session = native("qwen3", dtype, adapted, level)
        session.reset(1, 80)
        positions = torch.arange(9)[None]
        session.forward([Segment(tokens=fed.prompt, positions=positions, visibility="causal", logits=1)])
        session.keep([9])
        torch.set_num_threads(threads)
        parts = []
        for start in range(0, 30, width):
            here = slice(start, start + width)
            tokens, positions = whole.tokens[:, here], whole.positions[:, here]
            run = Segment(tokens=tokens, positions=positions, visibility="causal", logits=tokens.shape[1])
            parts.append(session.forward([run, *behind])[:, : run.logits])
            session.keep([run.tokens.shape[1]])
        return torch.cat(parts, dim=1), committed_kv(session, 0)

    try:
        logits, kv = found(30, 1)
        for other in (found(1, 1), found(7, 2), found(30, 3), found(30, 2, True, [block]), found(13, 1, True)):
            assert torch.equal(other[0], logits)
            for one, same in zip(kv, other[1], strict=True):
                assert torch.equal(one[0], same[0]) and torch.equal(one[1], same[1])
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("method", METHODS)
def test_checked_drafts_write_the_answer_of_ntp_to_the_last_token(method, dtype):
    """In bfloat16 too, where the two round alike: no near-tie parts them."""
    session = StaticSession(model("llama", dtype, True), "native")
    for seed in range(3):
        prompts = tuple(tuple(row) for row in torch.randint(1, MASK_ID, (3, 6 + seed)).tolist())
        expected = [drain(decode_next_token(session, request((one,)))).output_ids[0] for one in prompts]
        assert list(drain(decoder(method, session, request(prompts), 4, MASK_ID)).output_ids) == expected


def test_what_is_not_taken_is_said():
    """By the shape before anything is loaded; by the configuration where a shape does not tell."""
    assert why_not_native(KNOWN_SHAPES["smollm2-135m"], "bfloat16") is None
    assert "not float16" in why_not_native(KNOWN_SHAPES["smollm2-135m"], "float16")
    assert "experts" in why_not_native(KNOWN_SHAPES["qwen3-30b-a3b"].model_copy(update={"architecture": "llama"}), "float32")
    assert "not gemma" in why_not_native(KNOWN_SHAPES["llama-3.2-1b"].model_copy(update={"architecture": "gemma"}), "float32")
    assert "heads" in why_not_native(KNOWN_SHAPES["llama-3.2-1b"].model_copy(update={"head_dim": 48}), "float32")
    assert "machine" in why_not_native(None, "float32")
    odd = copy.deepcopy(model("llama", torch.float32))
    odd.config.rope_parameters = {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}
    with pytest.raises(UnknownModelError, match="RoPE of type dynamic"):
        StaticSession(odd, "native")
    narrow = transformers.LlamaForCausalLM(transformers.LlamaConfig(**SIZES | {"head_dim": 16}))
    for one, words in ((narrow, "heads of 32"), (copy.deepcopy(model("llama", torch.float32)).double(), "not float64")):
        with pytest.raises(UnknownModelError, match=words):
            StaticSession(one, "native")
