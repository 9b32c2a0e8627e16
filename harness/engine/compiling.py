"""torch.compile around a model's forward: every kind of forward becomes one graph, whatever the context's length.

A model whose decoder layers are one compiled function: of a layer's weights, its KV, and what all layers are given.

Compiling a forward as a whole takes a minute per layer and per shape, because its graph holds every layer. Here the layer is
an argument: torch.compile takes weights of a module as inputs, so layers that are built alike share one graph, and layers of
another kind (a sliding window, experts) get another one. A layer's KV comes as an argument too, because a graph that read the
layer's number would hold for that layer alone.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import cache, partial, wraps
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from harness.engine.kv_cache import KvLayout, LayerKv
from harness.errors import ScenarioError
from harness.scenario.scenario import Execution, Part

KINDS_OF_FORWARD = 64
"""Graphs of one model before torch.compile would silently fall back to eager; a run needs about ten."""


def execution_of(part: Part) -> Execution:
    """How the forwards of a part are run here: what it asks for, or, where that is auto, graphs on a GPU and compiled on a CPU.

    Where nothing can be compiled, or the model is split over processes, auto is eager on a CPU.

    Raises:
        ScenarioError: it asks for what this device cannot do, or for compiled forwards and the tool chain is missing.
    """
    kind = part.device.partition(":")[0]
    if part.execution == "eager" or part.session == "plain":
        return "eager"
    if part.execution == "graphs":
        if kind == "cpu":
            raise ScenarioError(
                f"part {part.name}: execution: graphs are CUDA graphs, but the device is {part.device}; "
                "use device: cuda, or execution: auto, compiled or eager"
            )
        return "graphs"
    if part.execution == "auto" and kind == "cuda":
        return "graphs"
    if part.tensor_parallel == 1 and can_compile(kind):
        return "compiled"
    if part.execution == "auto":
        return "eager"
    raise ScenarioError(
        f"part {part.name}: execution: compiled, but torch.compile does not work for {kind} here; "
        "install g++ and Python's headers (python3-dev), or use execution: auto or eager"
    )


def allow_kinds_of_forward() -> None:
    """Set torch.compile's number of graphs of one function; going over it is an error, not a slow forward."""
    settings: Any = torch._dynamo.config
    settings.recompile_limit = KINDS_OF_FORWARD
    settings.fail_on_recompile_limit_hit = True


def compiled(model: PreTrainedModel, dynamic: bool = True) -> Callable[..., Any]:
    """The model's forward, compiled when first called. Lengths are symbolic where ``dynamic``, so a growing context compiles
    nothing anew; where shapes never change they need not be.
    """
    allow_kinds_of_forward()
    return torch.compile(model.forward, dynamic=dynamic)


def compiled_steps(model: PreTrainedModel) -> Callable[..., Any]:
    """The model's forward, compiled where it feeds one token a row, and as it is where it reads a prompt."""
    whole, step = model.forward, compiled(model)

    @wraps(whole)
    def forward(*arguments: Any, input_ids: torch.Tensor, **options: Any) -> Any:
        call = step if input_ids.shape[1] == 1 else whole
        return call(*arguments, input_ids=input_ids, **options)

    return forward


@cache
def can_compile(kind: str = "cpu") -> bool:
    """Whether torch.compile works here for a ``kind`` of device, cpu or cuda: it wants a C++ compiler, Python's headers and,
    for CUDA, Triton, so one line is tried.
    """
    try:
        torch.compile(lambda x: x + 1)(torch.zeros(2, device=kind))
    except Exception:  # whatever the tool chain lacks
        return False
    return True


Compile = Callable[[Callable[..., Any]], Callable[..., Any]]


def layer(module: nn.Module, hidden: Tensor, kv: LayerKv, options: dict[str, Any]) -> Any:
    """One decoder layer of any model: what is compiled."""
    return module(hidden, kv=kv, **options)


class CompiledLayer(nn.Module):
    """Stands where a decoder layer of a model stood; ``run`` is ``layer``, compiled."""

    def __init__(self, inner: nn.Module, number: int, run: Callable[..., Any]) -> None:
        super().__init__()
        self.inner, self._number, self._run = inner, number, run

    def __getattr__(self, name: str) -> Any:
        """A model may ask its layers what they are: the layer itself answers."""
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__("inner"), name)

    def forward(self, hidden: Tensor, *, layout: KvLayout, **options: Any) -> Any:
        """Of the whole layout, the layer is given its own part."""
        return self._run(self.inner, hidden, layout.of_layer(self._number), options)


def layers_of(model: PreTrainedModel) -> nn.ModuleList | None:
    """A model's decoder layers, where models of the Llama family have them; None where they are not there."""
    found = getattr(model.base_model, "layers", None)
    config: Any = model.config
    return found if isinstance(found, nn.ModuleList) and len(found) == config.num_hidden_layers else None


def with_compiled_layers(model: PreTrainedModel, compile_one: Compile | None = None) -> PreTrainedModel | None:
    """A view of ``model`` that shares all its modules and runs its layers compiled; None where its layers are not found.

    Shapes are fixed, so each kind of forward is compiled anew: once for all layers of a kind.

    Args:
        compile_one: in place of torch.compile.
    """
    layers = layers_of(model)
    if layers is None:
        return None
    allow_kinds_of_forward()
    run = (compile_one or partial(torch.compile, dynamic=False))(layer)
    body: Any = _view(model.base_model)
    view: PreTrainedModel = _view(model)
    body.layers = nn.ModuleList(CompiledLayer(one, number, run) for number, one in enumerate(layers))
    setattr(view, model.base_model_prefix, body)
    return view


def compiled_unit(model: PreTrainedModel, execution: Execution) -> str | None:
    """What of a model is compiled at a time where a part runs so: a decoder layer, or, on a CPU and where no layers are to
    be found, the whole forward; None where nothing is.
    """
    if execution != "compiled":
        return None
    return "whole forward" if model.device.type == "cpu" or layers_of(model) is None else "decoder layer"


def _view(module: Any) -> Any:
    """The same module with a list of children of its own."""
    view = copy.copy(module)
    view.__dict__["_modules"] = dict(module._modules)
    return view
