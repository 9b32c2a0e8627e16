"""Flash attention by torch's operator: called as torch 2.11 has it, and refused before anything starts where it is another."""

from __future__ import annotations

import inspect
import sys
from types import ModuleType, SimpleNamespace

import pytest
import torch
import transformers

from harness.engine import flash_attention
from harness.engine.captured_attention import captured_kernel, option_of
from harness.engine.cuda_graphs import GraphedSession
from harness.engine.flash_attention import Runs
from harness.errors import ScenarioError
from tests.helpers.emulated_gpu import emulated_flash, emulated_graphs, flash_forward
from tests.helpers.tiny_model import tiny_config

# As torch 2.11 declares it; 2.13 adds block_table and num_splits behind.
SCHEMA = (
    "aten::_flash_attention_forward(Tensor query, Tensor key, Tensor value, Tensor? cum_seq_q, Tensor? cum_seq_k, "
    "SymInt max_q, SymInt max_k, float dropout_p, bool is_causal, bool return_debug_mask, *, float? scale=None, "
    "SymInt? window_size_left=None, SymInt? window_size_right=None, Tensor? seqused_k=None, Tensor? alibi_slopes=None) -> "
    "(Tensor output, Tensor softmax_logsumexp, Tensor rng_state, Tensor unused, Tensor debug_attn_mask)"
)
OTHERS = {
    "no used lengths": SCHEMA.replace("Tensor? seqused_k=None, ", ""),
    "no scale": SCHEMA.replace("float? scale=None, ", ""),
    "another order": SCHEMA.replace("SymInt max_q, SymInt max_k", "SymInt max_k, SymInt max_q"),
    "one more that must be given": SCHEMA.replace("bool return_debug_mask, *", "bool return_debug_mask, *, Tensor sink"),
    "no log-sum-exp": SCHEMA.replace("Tensor output, Tensor softmax_logsumexp", "Tensor output, Tensor other"),
}
CPU = torch.device("cpu")


def varlen_of_torch_2_11():
    """torch.nn.attention.varlen as torch 2.11 has it: no enable_gqa and no seqused_k, and an error where heads differ."""

    def varlen_attn(query, key, value, cu_seq_q, cu_seq_k, max_q, max_k, *, return_aux=None, scale=None, window_size=(-1, -1)):
        raise AssertionError("it can take neither shared KV heads nor used lengths")

    module = ModuleType("torch.nn.attention.varlen")
    module.varlen_attn, module.AuxRequest = varlen_attn, SimpleNamespace
    return module


@pytest.mark.parametrize("shared", [1, 4])
def test_it_needs_no_more_than_torch_2_11_has(monkeypatch, shared):
    """The operator with the arguments that 2.11 declares, over runs that overlap and one without keys, against arithmetic."""
    monkeypatch.setitem(sys.modules, "torch.nn.attention.varlen", varlen_of_torch_2_11())
    torch.manual_seed(2)
    query = torch.randn(5, 2 * shared, 8).bfloat16()
    keys, values = (torch.randn(16, 2, 8).bfloat16() for _ in range(2))
    int32 = {"dtype": torch.int32}
    runs = Runs(
        asked=torch.tensor([0, 2, 4, 5], **int32),
        starts=torch.tensor([3, 0, 2, 16], **int32),
        used=torch.tensor([5, 0, 8], **int32),
        widest=2,
        longest=8,
        empty=torch.tensor([False, False, True, True, False]),
    )
    given = []
    real = torch.ops.aten._flash_attention_forward

    def spy(*arguments, **options):
        given.append((arguments, options))
        return real(*arguments, **options)

    with emulated_flash():
        monkeypatch.setattr(torch.ops.aten, "_flash_attention_forward", spy)
        out, lse = flash_attention.attend(query, keys, values, runs, None)
    for token, (start, used) in enumerate([(3, 5), (3, 5), (0, 0), (0, 0), (2, 8)]):
        seen, said = (one[start : start + used].double().repeat_interleave(shared, dim=1) for one in (keys, values))
        scores = torch.einsum("hd,thd->ht", query[token].double(), seen) * 8**-0.5
        expected = torch.einsum("ht,thd->hd", scores.softmax(dim=-1), said)
        assert not used or (out[token] - expected).abs().max() < 2e-2
        assert not used or (lse[:, token] - scores.logsumexp(dim=-1)).abs().max() < 1e-5
    names = {one.name for one in torch._C.parse_schema(SCHEMA).arguments}
    [(arguments, options)] = given
    assert len(arguments) == len(flash_attention.TAKES) and options.keys() <= names


def test_the_installed_torch_and_2_11_are_taken():
    """By the declaration alone."""
    flash_attention.refuse_what_lacks_it(CPU)
    flash_attention.refuse_what_lacks_it(CPU, torch._C.parse_schema(SCHEMA))


@pytest.mark.parametrize("name", OTHERS)
def test_another_operator_is_refused(name):
    """With what it is and what to do instead."""
    with pytest.raises(ScenarioError, match=r"install torch 2\.11") as refused:
        flash_attention.refuse_what_lacks_it(CPU, torch._C.parse_schema(OTHERS[name]))
    assert "_flash_attention_forward(" in str(refused.value) and "dtype: float32" in str(refused.value)


@pytest.mark.parametrize(("capability", "taken"), [((7, 5), False), ((8, 0), True), ((9, 0), True)])
def test_a_gpu_older_than_the_kernels_is_refused(capability, taken):
    """Turing has no bfloat16 and no flash attention 2."""
    cuda = SimpleNamespace(get_device_capability=lambda device: capability)
    if taken:
        flash_attention.refuse_what_lacks_it(torch.device("cuda"), cuda=cuda)
        return
    with pytest.raises(ScenarioError, match=r"capability 8\.0; cuda has 7\.5"):
        flash_attention.refuse_what_lacks_it(torch.device("cuda"), cuda=cuda)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_a_session_asks_as_it_is_opened(monkeypatch, dtype):
    """Before anything is decoded, and only where flash attention is what it will call."""
    model = transformers.LlamaForCausalLM(tiny_config()).to(dtype)
    older = SimpleNamespace(default=SimpleNamespace(_schema=torch._C.parse_schema(OTHERS["no used lengths"])))
    with emulated_flash():
        monkeypatch.setattr(torch.ops.aten, "_flash_attention_forward", older)
        if dtype == torch.float32:
            GraphedSession(model, emulated_graphs())
            return
        with pytest.raises(ScenarioError, match="another aten::_flash_attention_forward"):
            GraphedSession(model, emulated_graphs())


@pytest.mark.parametrize(
    ("device", "dtype", "head_dim", "taken"),
    [
        ("cuda", torch.bfloat16, 128, True),
        ("cuda:1", torch.float16, 64, True),
        ("cpu", torch.bfloat16, 128, False),
        ("cuda", torch.float32, 128, False),
        ("cuda", torch.bfloat16, 320, False),
        ("cuda", torch.bfloat16, 100, False),
    ],
)
def test_what_it_takes(device, dtype, head_dim, taken):
    """Half precision on a GPU, heads of up to 256 in steps of 8; everything else is plain arithmetic."""
    assert flash_attention.takes_flash(torch.device(device), dtype, head_dim) is taken


def test_rocms_operator_is_not_called_with_the_used_lengths_that_it_refuses(monkeypatch):
    """It declares them, so only its first call would tell; captured passes attend under a mask there."""
    like_llama = torch.device("cuda"), torch.bfloat16, 128
    assert option_of("sdpa", *like_llama) == "flash"
    monkeypatch.setattr(torch.version, "hip", "6.4.43482")
    assert option_of("sdpa", *like_llama) == "masked" and "under a mask" in captured_kernel("sdpa", *like_llama)


def test_the_emulation_takes_what_the_operator_declares():
    """Name by name, so that a call it accepts is one that torch accepts."""
    taken = [name for name in inspect.signature(flash_forward).parameters if name != "others"]
    declared = [one.name for one in torch.ops.aten._flash_attention_forward.default._schema.arguments]
    assert taken[: len(flash_attention.TAKES)] == list(flash_attention.TAKES) and set(taken) <= set(declared)
