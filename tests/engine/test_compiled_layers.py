"""Decoder layers as one compiled function: one graph for all that are alike, and the numbers of the model as it is."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import partial

import pytest
import torch
import transformers

from harness.decoding.request import NEVER
from harness.decoding.session import Segment
from harness.engine.compiling import ONE_TOKEN, CompiledLayer, compiled_unit, joined, with_compiled_layers
from harness.engine.cuda_graphs import GraphedSession, by_calling_again
from harness.engine.gated_adapter import attach
from harness.engine.static_session import StaticSession
from tests.helpers.adapters import random_adapter
from tests.helpers.emulated_gpu import emulated_graphs
from tests.helpers.few_words import MASK_ID as MASK_OF_FEW
from tests.helpers.few_words import METHODS, decoder, few_words, some_work
from tests.helpers.tiny_model import drain

SIZES = {
    "vocab_size": 37,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "initializer_range": 0.3,
    "max_position_embeddings": 256,
}
MODELS = {
    "llama": (transformers.LlamaConfig, transformers.LlamaForCausalLM, {}),
    "qwen2": (transformers.Qwen2Config, transformers.Qwen2ForCausalLM, {"attention_bias": True}),
    "qwen3": (transformers.Qwen3Config, transformers.Qwen3ForCausalLM, {}),
    "two kinds of layers": (transformers.LlamaConfig, transformers.LlamaForCausalLM, {}),
}
# Dynamo's graphs, run as they are: what is compiled of them is inductor's matter.
AS_TRACED = partial(torch.compile, backend="eager", dynamic=False)


def tiny_model(name):
    """A random model of 4 layers, float64."""
    config, model, more = MODELS[name]
    torch.manual_seed(7)
    made = model(config(**SIZES | more)).double().eval()
    if name == "two kinds of layers":
        for layer in made.model.layers[1::2]:
            layer.mlp.act_fn = torch.nn.GELU()
    return made


def passes(session):
    """The logits of a prompt of two rows, two one-token passes, a block and a pass that commits it."""
    tokens = torch.arange(2 * 30).reshape(2, 30) % 37

    def fed(start, end, visibility, logits):
        places = torch.arange(start, end).expand(2, -1)
        return Segment(tokens=tokens[:, start:end], positions=places, visibility=visibility, logits=logits)

    calls = [
        ([fed(0, 9, "causal", 1)], 9),
        ([fed(9, 10, "causal", 1)], 1),
        ([fed(10, 11, "causal", 1)], 1),
        ([fed(11, 15, "bidirectional", 4)], 0),
        ([fed(11, 15, "causal", 0), fed(15, 19, "bidirectional", 4)], 4),
    ]
    session.reset(2, 40)
    found = []
    for segments, kept in calls:
        found.append(session.forward(segments).clone())
        session.keep([kept] * 2)
    return found


@pytest.mark.parametrize(("name", "kinds"), [("llama", 1), ("qwen2", 1), ("qwen3", 1), ("two kinds of layers", 2)])
def test_layers_that_are_alike_share_one_graph(name, kinds):
    """Three kinds of forward: one graph each, where four layers of two kinds are two, and one for norm and head. The logits are
    the model's own.
    """
    torch.compiler.reset()
    traced = torch._dynamo.utils.counters["stats"]
    traced.clear()
    model = tiny_model(name)
    expected = passes(GraphedSession(tiny_model(name), emulated_graphs()))
    assert traced["unique_graphs"] == 0
    found = passes(GraphedSession(model, emulated_graphs(compiled=True), with_compiled_layers(model, AS_TRACED)))
    assert traced["unique_graphs"] == 3 * (kinds + 1)
    assert all((one - other).abs().max() < 1e-9 for one, other in zip(found, expected, strict=True))
    torch.compiler.reset()


def test_the_model_itself_stays_as_it_was():
    """Prompts and generate() go through the same modules uncompiled."""
    model = tiny_model("llama")
    inside = [type(one) for one in model.modules()]
    view = with_compiled_layers(model, AS_TRACED)
    assert all(isinstance(one, CompiledLayer) for one in view.model.layers)
    assert [type(one) for one in model.modules()] == inside
    assert view.config is model.config and view.device == model.device
    assert view.model.layers[2].self_attn.o_proj is model.model.layers[2].self_attn.o_proj, "a layer answers for itself"
    with pytest.raises(AttributeError, match="no_such_thing"):
        _ = view.model.layers[2].no_such_thing


def test_weights_are_joined_once_and_held_once():
    """The model's own weights are views of what is multiplied with: nothing is doubled, however many sessions there are."""
    model = tiny_model("qwen2")
    before = {name: one.clone() for name, one in model.state_dict().items()}
    attention, mlp = model.model.layers[1].self_attn, model.model.layers[1].mlp
    projections = attention.q_proj, attention.k_proj, attention.v_proj
    for _ in range(2):
        with_compiled_layers(model, AS_TRACED)
    after = model.state_dict()
    assert list(after) == list(before) and all(torch.equal(after[name], one) for name, one in before.items())
    of_projections = [one.weight for one in projections], [one.bias for one in projections]
    for parts in (*of_projections, [mlp.gate_proj.weight, mlp.up_proj.weight]):
        held = parts[0].untyped_storage()
        assert held.nbytes() == sum(one.nbytes for one in parts)
        assert all(one.untyped_storage().data_ptr() == held.data_ptr() for one in parts)
        assert torch.equal(joined(parts), torch.cat(list(parts))) and joined(parts).data_ptr() == held.data_ptr()


def test_products_with_one_input_are_one_and_only_one_token_is_tuned():
    """Seven products of a layer are four, beside the head's; a single token goes to the function with inductor's options."""
    called = Counter()

    def note(function, options=None):
        def call(*arguments, **named):
            called["one token" if options == ONE_TOKEN else "more"] += 1
            return function(*arguments, **named)

        return call

    model = tiny_model("llama")
    session = GraphedSession(model, by_calling_again, with_compiled_layers(model, note))
    session.reset(1, 40)
    places = torch.arange(30)[None]
    for start, end in ((0, 9), (9, 10), (10, 14)):
        fed = Segment(tokens=places[:, start:end], positions=places[:, start:end], visibility="causal", logits=end - start)
        called.clear()
        with Products() as products:
            session.forward([fed])
        session.keep([end - start])
        functions = {9: {}, 1: {"one token": 5}, 4: {"more": 5}}[end - start]
        assert called == functions and products.count == (4 if functions else 7) * 4 + 1


class Products(torch.overrides.TorchFunctionMode):
    """Counts the products with weights."""

    count = 0

    def __torch_function__(self, func, types, args=(), kwargs=None):
        """Count and call."""
        self.count += func is torch.nn.functional.linear
        return func(*args, **(kwargs or {}))


@pytest.mark.long
def test_what_inductor_makes_writes_what_eager_forwards_write():
    """Every method, compiled by inductor for a CPU, in batches of one and of several ragged rows; then with an adapter. In
    bfloat16 a fused kernel rounds less often than eager operations do, so ties may go another way.
    """
    torch.compiler.reset()
    for prompts, adapted in ((1, False), (3, False), (3, True)):
        model = few_words("llama", 5).float()
        if adapted:
            attach(model, random_adapter(model, MASK_OF_FEW))
        request = replace(some_work(5, prompts).request(), max_new_tokens=16, stop=NEVER)
        eager, compiled = StaticSession(model), GraphedSession(model, by_calling_again, with_compiled_layers(model))
        for method in METHODS:
            answers = [drain(decoder(method, one, request, block_size=4)).output_ids for one in (eager, compiled)]
            assert answers[0] == answers[1], (method, prompts, adapted)
            assert len(answers[0][-1]) == 16
    torch.compiler.reset()


def test_a_model_whose_layers_are_not_found_is_compiled_whole():
    """And said so."""
    model = tiny_model("llama")
    assert compiled_unit(model, "eager") is None and compiled_unit(model, "compiled") == "decoder layer"
    with torch.device("meta"):
        away = transformers.LlamaForCausalLM(transformers.LlamaConfig(**SIZES))
    assert compiled_unit(away, "compiled") == "decoder layer"
    del away.model.layers
    assert compiled_unit(away, "compiled") == "whole forward" and with_compiled_layers(away) is None
