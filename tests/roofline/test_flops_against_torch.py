"""Counts against real transformers modules: matrix flops as torch counts them, weight bytes as the pass touches them.

torch counts nothing for its fused attention and for grouped experts on a CPU, so attention and experts are eager here. The
weights a pass touches are found by watching every operator that runs for the parameters among its inputs.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
import transformers
from torch.utils import _python_dispatch as python_dispatch
from torch.utils import _pytree as pytree
from torch.utils import flop_counter

from harness.models import shape_from_config
from harness.roofline.operation import describe_pass
from harness.roofline.operations import forward_operations

TINY = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "vocab_size": 50,
    "max_position_embeddings": 256,
}
EXPERTS = {"num_experts": 16, "num_experts_per_tok": 2, "moe_intermediate_size": 20}
MODELS: dict[str, dict[str, Any]] = {
    "llama": {"attention_bias": True, "mlp_bias": True},
    "qwen2": {"head_dim": None},
    "qwen3": {"tie_word_embeddings": True},
    "qwen3_moe": EXPERTS | {"mlp_only_layers": [1]},
    "mixtral": {"num_local_experts": 8, "num_experts_per_tok": 2},
    "mistral": {"sliding_window": 12},
    "gemma3_text": {"sliding_window": 12, "sliding_window_pattern": 3},
}
LATENT = {
    "head_dim": None,
    "num_key_value_heads": 4,
    "q_lora_rank": 6,
    "kv_lora_rank": 10,
    "qk_nope_head_dim": 12,
    "qk_rope_head_dim": 4,
    "v_head_dim": 14,
    "n_routed_experts": 8,
    "n_group": 2,
    "topk_group": 1,
    "n_shared_experts": 2,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 20,
    "first_k_dense_replace": 1,
}


class Witness(python_dispatch.TorchDispatchMode):
    """Notes which parameters the operators of a pass read; of stacked experts, which ones were selected."""

    def __init__(self, module: Any) -> None:
        super().__init__()
        self.whole = {parameter.data_ptr(): parameter for parameter in module.parameters()}
        self.read: dict[tuple[int, int], int] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Views (an expert picked out of its stack, a transposition) read nothing; what computes on them does."""
        if not func.is_view:
            for tensor in pytree.tree_leaves((args, kwargs or {})):
                if isinstance(tensor, torch.Tensor):
                    storage, offset = tensor.untyped_storage().data_ptr(), tensor.storage_offset()
                    if storage in self.whole and "embedding" not in str(func):  # a look-up reads a few lines only
                        self.read[storage, offset] = tensor.numel()
        return func(*args, **(kwargs or {}))

    @property
    def bytes_(self) -> int:
        """Float32 bytes of everything read, each piece once."""
        return 4 * sum(self.read.values())

    def experts(self, stacks: list[Any]) -> int:
        """Distinct experts read, of all the stacks together."""
        pointers = {stack.untyped_storage().data_ptr() for stack in stacks}
        return sum(storage in pointers for storage, _ in self.read)


def tiny(family: str, changes: dict[str, Any]) -> Any:
    """A model of the family with random weights, eager throughout."""
    torch.manual_seed(0)
    fields = {key: value for key, value in (TINY | changes).items() if value is not None}
    config = transformers.AutoConfig.for_model(family, **fields)
    options = {"experts_implementation": "eager"} if "num_experts_per_tok" in changes else {}
    return transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager", **options).eval()


def observe(model: Any, rows: int, query: int, context: int, logits: int) -> tuple[int, Witness]:
    """Flops and touched weights of one pass of ``query`` tokens after ``context`` cached ones."""
    torch.set_num_threads(1)
    ids = torch.randint(0, TINY["vocab_size"], (rows, context + query), generator=torch.Generator().manual_seed(1))
    cache = transformers.DynamicCache(config=model.config)
    with torch.no_grad():
        if context:
            model(input_ids=ids[:, :context], past_key_values=cache)
        counter = flop_counter.FlopCounterMode(display=False)
        with counter, Witness(model) as witness:
            model(input_ids=ids[:, context:], past_key_values=cache, logits_to_keep=logits)
    return counter.get_total_flops(), witness


def agree(family: str, changes: dict[str, Any], query: int, context: int, logits: int, kept: int = 0, buffers: int = 0) -> None:
    """A pass of two rows takes the operations and reads the weights that are priced, and ``buffers`` bytes more are priced."""
    model = tiny(family, changes)
    flops, witness = observe(model, 2, query, context, logits)
    shape = shape_from_config("tiny", model.config.to_dict())
    stacks = [parameter for name, parameter in model.named_parameters() if name.endswith("experts.down_proj")]
    visited = witness.experts(stacks) if stacks else None
    described = describe_pass("decide", 2, query, context, logits=logits, kept=kept)
    operations = forward_operations(shape, "float32", described, visited_experts=visited)
    assert sum(operation.flops for operation in operations) == flops
    assert sum(operation.weight_bytes for operation in operations) == witness.bytes_ + buffers
    if visited is not None:
        assert shape.moe is not None
        assert shape.moe.layers * 2 <= visited <= shape.moe.layers * min(2 * 2 * query, shape.moe.experts)


@pytest.mark.parametrize("context", [0, 9, 40])
@pytest.mark.parametrize("query", [1, 7, 16, 32])
@pytest.mark.parametrize("family", MODELS)
def test_flops_and_weight_bytes_are_those_of_the_module(family: str, query: int, context: int) -> None:
    """Exactly, at two rows; a window of 12 is longer or shorter than what is cached. Experts: those really visited."""
    agree(family, MODELS[family], query, context, min(query, 3))


@pytest.mark.parametrize("query", [1, 7, 32])
def test_latent_attention_without_context(query: int) -> None:
    """DeepSeek-V3 in a prefill: every matrix of the two steps, the routing and the shared experts.

    With a context transformers expands the whole cached latent in every pass, which no decoding engine does; that form is
    not ours and is not compared. The eager module computes all pairs; a buffer of routing biases is not known to the witness.
    """
    agree("deepseek_v3", LATENT, query, 0, 1, kept=query, buffers=4 * 2 * LATENT["n_routed_experts"])


def test_the_witness_sees_what_is_not_read() -> None:
    """A pass of one token touches the experts of that token and no other; an unread weight is not counted."""
    model = tiny("qwen3_moe", EXPERTS)
    _, witness = observe(model, 1, 1, 0, 1)
    everything = 4 * sum(parameter.numel() for parameter in model.parameters())
    embedding, expert = 4 * 50 * 32, 4 * 3 * 32 * 20
    assert witness.bytes_ == everything - embedding - 3 * (16 - 2) * expert
