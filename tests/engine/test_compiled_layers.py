"""Decoder layers as one compiled function: one graph for all that are alike, and the numbers of the model as it is."""

from __future__ import annotations

from functools import partial

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from harness.decoding.session import Segment
from harness.engine.compiling import CompiledLayer, compiled_unit, with_compiled_layers
from harness.engine.cuda_graphs import GraphedSession
from tests.helpers.emulated_gpu import emulated_graphs

SIZES = {
    "vocab_size": 37, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 4, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 8, "initializer_range": 0.3, "max_position_embeddings": 256,
}  # fmt: skip
MODELS = {
    "llama": (transformers.LlamaConfig, transformers.LlamaForCausalLM, {}),
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
        ([fed(0, 9, "causal", 1)], 9), ([fed(9, 10, "causal", 1)], 1), ([fed(10, 11, "causal", 1)], 1),
        ([fed(11, 15, "bidirectional", 4)], 0), ([fed(11, 15, "causal", 0), fed(15, 19, "bidirectional", 4)], 4),
    ]  # fmt: skip
    session.reset(2, 40)
    found = []
    for segments, kept in calls:
        found.append(session.forward(segments).clone())
        session.keep([kept] * 2)
    return found


@pytest.mark.parametrize(("name", "graphs"), [("llama", 3), ("qwen3", 3), ("two kinds of layers", 6)])
def test_layers_that_are_alike_share_one_graph(name, graphs):
    """Three kinds of forward: one graph each, where four layers of two kinds are two. The logits are the model's own."""
    torch.compiler.reset()
    traced = torch._dynamo.utils.counters["stats"]
    traced.clear()
    model = tiny_model(name)
    expected = passes(GraphedSession(tiny_model(name), emulated_graphs()))
    assert traced["unique_graphs"] == 0
    found = passes(GraphedSession(model, emulated_graphs(compiled=True), with_compiled_layers(model, AS_TRACED)))
    assert traced["unique_graphs"] == graphs
    assert all((one - other).abs().max() < 1e-9 for one, other in zip(found, expected, strict=True))
    torch.compiler.reset()


def test_the_model_itself_stays_as_it_was():
    """Prompts and generate() go through the same modules uncompiled."""
    model = tiny_model("llama")
    view = with_compiled_layers(model, AS_TRACED)
    assert all(isinstance(one, CompiledLayer) for one in view.model.layers)
    assert not any(isinstance(one, CompiledLayer) for one in model.model.layers)
    assert view.lm_head is model.lm_head and view.config is model.config and view.device == model.device
    assert view.model.layers[2].inner is model.model.layers[2]
    assert view.model.layers[2].self_attn is model.model.layers[2].self_attn, "a layer answers for itself"
    with pytest.raises(AttributeError, match="no_such_thing"):
        _ = view.model.layers[2].no_such_thing


def test_a_model_whose_layers_are_not_found_is_compiled_whole():
    """And said so."""
    model = tiny_model("llama")
    assert compiled_unit(model, "eager") is None and compiled_unit(model, "compiled") == "decoder layer"
    with torch.device("meta"):
        away = transformers.LlamaForCausalLM(transformers.LlamaConfig(**SIZES))
    assert compiled_unit(away, "compiled") == "decoder layer"
    del away.model.layers
    assert compiled_unit(away, "compiled") == "whole forward" and with_compiled_layers(away) is None
