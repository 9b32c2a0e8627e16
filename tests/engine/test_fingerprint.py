"""What a model really runs on: the kernel torch picks for a part's shapes, asked about tensors like the session's own."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from transformers import AutoTokenizer, LlamaForCausalLM

from harness.decoding.session import Segment
from harness.engine import fingerprint as module
from harness.engine import sessions
from harness.engine.captured_attention import choose_kernels
from harness.engine.fingerprint import fingerprint, sdpa_backend, sdpa_backends
from harness.engine.sessions import open_session
from harness.engine.text_tokenizer import TextTokenizer
from harness.models import ModelShape
from harness.models.choice import REFERENCE_DIR
from harness.scenario.part import Part
from tests.helpers.tiny_model import tiny_config

SHAPE = ModelShape(name="tiny", layers=1, hidden=32, intermediate=48, heads=4, kv_heads=2, head_dim=8, vocab=64)


def part(**changes):
    """A part on the tiny model."""
    given = {
        "name": "one",
        "model": {"random": SHAPE.model_dump()},
        "device": "cpu",
        "dtype": "float32",
        "session": "static",
        "arms": [{"method": "ntp"}, {"method": "sbd", "block_size": [4, 8], "acceptance": {"replay": {"nfe_speedup": 2.0}}}],
        "batch_sizes": [1, 2],
        "workload": {"synthetic": {"prompt_tokens": 10}, "prompts": 2, "max_new_tokens": 4},
    }
    return Part.model_validate(given | changes)


def test_every_decode_pass_of_the_part_is_asked_about():
    """1, k and 2k tokens (k = 4, 8) at both batch sizes, with and without a mask; 12 committed tokens: 10 and half of 4."""
    found = sdpa_backends(part(), SHAPE)
    assert [(one["rows"], one["query_tokens"], one["masked"]) for one in found] == [
        (rows, query, masked) for rows in (1, 2) for query in (1, 4, 8, 16) for masked in (False, True)
    ]
    assert {one["context_tokens"] for one in found} == {12}
    names = {backend.name.lower() for backend in SDPBackend.__members__.values()} - {"error"}
    assert all(one["backend"] in names and one["reason"] is None for one in found)


def test_the_answer_is_torchs_and_not_a_constant():
    """Where torch is told to use nothing but its plain mathematics, that is what it says."""
    with sdpa_kernel(SDPBackend.MATH):
        assert {one["backend"] for one in sdpa_backends(part(), SHAPE)} == {"math"}
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        assert {one["backend"] for one in sdpa_backends(part(), SHAPE)} == {"flash_attention"}


@pytest.mark.parametrize("session", ["static", "plain"])
@pytest.mark.parametrize(("query", "masked"), [(1, False), (1, True), (4, False), (4, True)])
def test_the_tensors_asked_about_are_those_the_session_hands_to_torch(monkeypatch, session, query, masked):
    """A spy on the call in a real forward: shapes, strides of the last axes, mask and grouping agree with what is asked about.

    Rows that kept different numbers of tokens force a mask.
    """
    torch.manual_seed(1)
    config = tiny_config(num_attention_heads=4, num_key_value_heads=2, head_dim=8, attn_implementation="sdpa")
    opened = open_session(LlamaForCausalLM(config).eval(), session, "sdpa", "eager")
    opened.reset(2, 40)

    def forward(tokens, visibility):
        start = torch.tensor(opened.context_tokens)[:, None]
        fed = torch.ones(2, tokens, dtype=torch.long)
        opened.forward([Segment(tokens=fed, positions=start + torch.arange(tokens), visibility=visibility, logits=1)])

    forward(12, "causal")
    opened.keep([12, 11] if masked else [12, 12])
    seen = []
    real = torch.nn.functional.scaled_dot_product_attention

    def spy(q, k, v, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False):
        seen.append((q, k, v, attn_mask, enable_gqa))
        return real(q, k, v, attn_mask=attn_mask, dropout_p=dropout_p, is_causal=is_causal, scale=scale, enable_gqa=enable_gqa)

    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", spy)
    forward(query, "bidirectional")
    [(q, k, v, mask, gqa)] = seen
    tried = module._tensors(part(session=session), SHAPE, 2, query, 12, masked, torch.float32)
    assert [tuple(one.shape) for one in tried[:3]] == [tuple(one.shape) for one in (q, k, v)]
    assert [one.stride()[-1] for one in tried[:3]] == [one.stride()[-1] for one in (q, k, v)]
    assert tried[1].is_contiguous() == k.is_contiguous()
    assert (tried[3] is None) == (mask is None) == (not masked) and tried[4] is gqa
    assert mask is None or (tried[3].shape == mask.shape and tried[3].dtype == mask.dtype)
    chosen = torch._fused_sdp_choice(q, k, v, attn_mask=mask, enable_gqa=gqa)
    answer = sdpa_backend(part(session=session), SHAPE, rows=2, query=query, masked=masked)
    assert answer["backend"] == SDPBackend(chosen).name.lower()


def test_a_context_too_long_to_ask_about_is_cut_and_said(monkeypatch):
    """4 heads of 8 floats are 128 bytes a token and row: 1280 bytes are 10 tokens of one row, 5 of two."""
    monkeypatch.setattr(module, "MOST_KV_BYTES", 1280)
    assert [sdpa_backend(part(), SHAPE, rows=rows, query=1, masked=False)["context_tokens"] for rows in (1, 2)] == [10, 5]


def test_what_torch_does_not_say_is_none_with_its_words(monkeypatch):
    """The function is torch's own and not promised: it may refuse, or be gone."""

    def refuse(*arguments, **options):
        raise RuntimeError("No available kernel. Aborting execution.\nand more")

    monkeypatch.setattr(torch, "_fused_sdp_choice", refuse)
    found = sdpa_backend(part(), SHAPE, rows=1, query=1, masked=False)
    assert found["backend"] is None and found["reason"] == "torch does not say: No available kernel. Aborting execution."
    monkeypatch.delattr(torch, "_fused_sdp_choice")
    assert sdpa_backend(part(), SHAPE, rows=1, query=1, masked=False)["backend"] is None


def model(commit=None, tokenizer=None):
    """A loaded model, as far as its fingerprint goes."""
    config = SimpleNamespace(_commit_hash=commit)
    return SimpleNamespace(module=SimpleNamespace(config=config), shape=SHAPE, tokenizer=tokenizer)


def test_revision_and_tokenizer_are_named_or_said_to_be_missing():
    """A hub model has a commit; a random one has neither; eager attention calls no SDPA."""
    found = fingerprint(part(), model("abc", SimpleNamespace(digest="12")))
    assert (found["model_revision"], found["tokenizer_sha256"]) == ("abc", "12") and found["sdpa"]
    found = fingerprint(part(session="plain", attention="eager"), model())
    for name in ("model_revision", "tokenizer_sha256", "sdpa"):
        assert found[name] is None and found[f"{name}_reason"]
    assert "attention: eager" in found["sdpa_reason"]


def test_a_tokenizers_digest_is_that_of_its_file():
    """Two loads agree, and a changed token changes it."""
    import hashlib

    tokenizer = AutoTokenizer.from_pretrained(REFERENCE_DIR / "sbd")
    before = TextTokenizer(tokenizer).digest
    assert before == TextTokenizer(AutoTokenizer.from_pretrained(REFERENCE_DIR / "sbd")).digest
    assert before == hashlib.sha256(tokenizer.backend_tokenizer.to_str().encode()).hexdigest()
    tokenizer.add_tokens(["<never seen>"])
    assert TextTokenizer(tokenizer).digest != before
    assert TextTokenizer(object()).digest is None


def test_cudnn_is_left_out_on_a_gpu_before_anything_runs_there(monkeypatch):
    """As a session is opened, of whatever kind, and where torch is asked what it would pick."""
    asked, told = [], []
    backends = SimpleNamespace(enable_cudnn_sdp=asked.append)
    for device in ("cpu", "cuda", torch.device("cuda:1")):
        choose_kernels(device, backends)
    assert asked == [False, False]
    for place in (sessions, module):
        monkeypatch.setattr(place, "choose_kernels", lambda device: told.append(str(device)))
    for session in ("static", "plain"):
        open_session(LlamaForCausalLM(tiny_config()), session, "sdpa", "eager")
    sdpa_backend(part(), SHAPE, rows=1, query=1, masked=False)
    assert told == ["cpu"] * 3


@pytest.mark.parametrize(
    ("attention", "dtype", "kernel"),
    [
        ("sdpa", "bfloat16", "aten::_flash_attention_forward (flash attention 2)"),
        ("sdpa", "float32", "scaled_dot_product_attention over whole rows"),
        ("flex", "bfloat16", "torch FlexAttention"),
    ],
)
def test_graphs_name_the_kernel_that_was_captured(attention, dtype, kernel):
    """Not what scaled_dot_product_attention would have picked, which their decode passes never ask."""
    found = fingerprint(part(device="cuda", execution="graphs", dtype=dtype, attention=attention), model())
    assert found["captured_attention"].startswith(kernel) and found["captured_attention_reason"] is None
    assert found["sdpa"] is None and "captured_attention" in found["sdpa_reason"]
    assert "cudnn" in found["sdpa_kernels_reason"] and "math" in found["sdpa_kernels"]


def test_without_graphs_none_was():
    """Every pass asks scaled_dot_product_attention, and any kernel may be its choice on a CPU."""
    found = fingerprint(part(execution="eager"), model())
    assert found["captured_attention"] is None and found["captured_attention_reason"] and found["sdpa"]
    assert "flash_attention" in found["sdpa_kernels"] and found["sdpa_kernels_reason"] is None
    with sdpa_kernel(SDPBackend.MATH):
        assert fingerprint(part(execution="eager"), model())["sdpa_kernels"] == ["math"]
