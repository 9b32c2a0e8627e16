"""How the forwards of a part run here; and torch.compile around a model's forward, or its decoder layers as one function.

A whole forward is compiled for generate() on a CPU, and on a GPU where the layers are not found. The compiled function of a
layer takes its weights, its KV, and what all layers are given. torch.compile takes a module's weights as inputs, so layers that
are built alike share one graph. Layers of another kind (a sliding window, experts) get another graph. The KV is an argument
because a graph that reads the layer's number holds for that layer alone. Linear layers that read the same are one product. The
final norm and the LM head are one function.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Sequence
from functools import cache, partial, wraps
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from harness.engine.gated_adapter import GatedLinear
from harness.engine.kv_cache import SlotLayout, UsedKv
from harness.engine.native_forward import why_not_native
from harness.errors import ScenarioError
from harness.models.choice import shape_of
from harness.scenario.part import Execution, Part

KINDS_OF_FORWARD = 128
"""Graphs of one model before torch.compile silently falls back to eager; a run needs about twenty."""
ONE_TOKEN = {"coordinate_descent_tuning": True}
"""Inductor's options for a forward of a single token: it writes products with a vector itself, fused with what is around them,
and tries how to split each. Wider products are left to cuBLAS.
"""
KNOWN_INSIDE = ("llama", "mistral", "qwen2", "qwen3")
"""Types of models whose LM head reads what the final norm gives, untouched, and whose layers call READ_ALIKE in this order."""
READ_ALIKE = {"self_attn": ("q_proj", "k_proj", "v_proj"), "mlp": ("gate_proj", "up_proj")}
"""Linear layers with one input, by the module of a decoder layer that calls them."""


def execution_of(part: Part) -> Execution:
    """How the forwards of a part run here: as it asks; for auto, graphs on a GPU and native on a CPU. auto is eager on a CPU
    where the kernels are not built, or do not take the model.

    Raises:
        ScenarioError: it asks for what this device cannot do, or for compiled forwards without the tool chain.
    """
    kind, asked = part.device.partition(":")[0], part.execution
    if asked == "eager" or part.session == "plain":
        return "eager"
    if kind == "cpu":
        why = why_without_kernels(part)
        if why is None:
            return "native"
        if asked == "auto":
            return "eager"
        said = f", and the kernels cannot be used here: {why}" if asked == "native" else ""
        raise ScenarioError(f"part {part.name}: execution: {asked}, but the device is cpu{said}; use execution: auto or eager")
    if asked == "native":
        raise ScenarioError(f"part {part.name}: execution: native is for CPUs; the device is {part.device}: use graphs or auto")
    if asked in ("graphs", "auto"):
        return "graphs"
    if part.tensor_parallel == 1 and can_compile(kind):
        return "compiled"
    raise ScenarioError(
        f"part {part.name}: execution: compiled, but torch.compile does not work for {kind} here; "
        "install g++ and Python's headers (python3-dev), or use execution: auto or eager"
    )


def why_without_kernels(part: Part) -> str | None:
    """Why no kernel of ours runs the forwards of a part; None where they do."""
    if part.may_be_native:
        return why_not_native(shape_of(part.model)[0], part.dtype)
    asked = f"a {part.session} session with execution: {part.execution} on {part.tensor_parallel} x {part.device}"
    return f"they are for one CPU process, not for {asked}"


def allow_kinds_of_forward() -> None:
    """Set torch.compile's limit of graphs per function; one graph more is an error, not a slow forward."""
    settings: Any = torch._dynamo.config
    settings.recompile_limit = KINDS_OF_FORWARD
    settings.fail_on_recompile_limit_hit = True


def compiled(model: PreTrainedModel, dynamic: bool = True) -> Callable[..., Any]:
    """The model's forward, compiled at its first call. ``dynamic`` makes lengths symbolic, so a growing context compiles
    nothing anew; fixed shapes do not need it.
    """
    allow_kinds_of_forward()
    return torch.compile(model.forward, dynamic=dynamic)


def compiled_steps(model: PreTrainedModel) -> Callable[..., Any]:
    """The model's forward: compiled where it feeds one token a row, uncompiled where it reads a prompt."""
    whole, step = model.forward, compiled(model)

    @wraps(whole)
    def forward(*arguments: Any, input_ids: torch.Tensor, **options: Any) -> Any:
        call = step if input_ids.shape[1] == 1 else whole
        return call(*arguments, input_ids=input_ids, **options)

    return forward


@cache
def can_compile(kind: str = "cpu") -> bool:
    """Whether torch.compile works for a ``kind`` of device, cpu or cuda; it compiles one line to find out. It needs a C++
    compiler, Python's headers and, for CUDA, Triton.
    """
    try:
        torch.compile(lambda x: x + 1)(torch.zeros(2, device=kind))
    except Exception:  # whatever the tool chain lacks
        return False
    return True


def call(module: nn.Module, hidden: Tensor, **options: Any) -> Any:
    """The function that is compiled: one decoder layer of any model, or the final norm and the LM head."""
    return module(hidden, **options)


class CompiledLayer(nn.Module):
    """Takes the place of a decoder layer of a model; ``run`` is ``call``, compiled."""

    def __init__(self, inner: nn.Module, number: int, run: Callable[..., Any]) -> None:
        super().__init__()
        self.inner, self._number, self._run = inner, number, run

    def __getattr__(self, name: str) -> Any:
        """The attributes that a model asks of its layers are those of the layer itself."""
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__("inner"), name)

    def forward(self, hidden: Tensor, *, layout: SlotLayout | UsedKv, **options: Any) -> Any:
        """Give the layer its own part of the layout."""
        return self._run(self.inner, hidden, kv=layout.of_layer(self._number), **options)


class Joined(nn.Module):
    """A linear layer that has its ``product`` in common with others of the same input. The first that is called makes the
    shares of all, ``sizes`` wide; each takes the next one.
    """

    def __init__(self, inner: nn.Linear, product: Callable[[Tensor], Tensor], sizes: list[int], shares: list[Tensor]) -> None:
        super().__init__()
        self.inner, self._product, self._sizes, self._shares = inner, product, sizes, shares

    def forward(self, input: Tensor) -> Tensor:
        """(B, Q, out) of (B, Q, in)."""
        if not self._shares:
            self._shares.extend(torch.split(self._product(input), self._sizes, dim=-1))
        out = self._shares.pop(0)
        return self.inner.adapted(out, input) if isinstance(self.inner, GatedLinear) else out


def joined(parts: Sequence[nn.Parameter]) -> Tensor:
    """The rows of all ``parts`` in one tensor. From then on the parts are views of it, so that no weight is held twice."""
    first, ends = parts[0], [*accumulate(map(len, parts), initial=0)]
    places = [(part.untyped_storage()._cdata, part.storage_offset()) for part in parts]
    if places != [(places[0][0], before * first.stride(0)) for before in ends[:-1]]:
        whole = torch.cat([part.data for part in parts])
        for part, before, end in zip(parts, ends, ends[1:], strict=False):
            part.data = whole[before:end]
    return first.data.as_strided((ends[-1], *first.shape[1:]), first.stride())


def _with_products(layer: nn.Module) -> nn.Module:
    """A view of a decoder layer whose linear layers with one input are one product."""
    view: nn.Module = _view(layer)
    for name, names in READ_ALIKE.items():
        holder = _view(getattr(layer, name))
        apart: list[Any] = [getattr(holder, own, None) for own in names]
        if all(type(linear) in (nn.Linear, GatedLinear) for linear in apart):
            weight, bias = joined([linear.weight for linear in apart]), [linear.bias for linear in apart]
            product = partial(nn.functional.linear, weight=weight, bias=None if bias[0] is None else joined(bias))
            sizes, shares = [linear.out_features for linear in apart], list[Tensor]()
            holder._modules |= {own: Joined(linear, product, sizes, shares) for own, linear in zip(names, apart, strict=True)}
        setattr(view, name, holder)
    return view


def layers_of(model: PreTrainedModel) -> nn.ModuleList | None:
    """A model's decoder layers, where models of the Llama family have them; else None."""
    found = getattr(model.base_model, "layers", None)
    config: Any = model.config
    return found if isinstance(found, nn.ModuleList) and len(found) == config.num_hidden_layers else None


def with_compiled_layers(model: PreTrainedModel, compile_one: Callable[..., Any] | None = None) -> PreTrainedModel | None:
    """A view of ``model`` that shares all its weights and runs its layers compiled; None where its layers are not found. Shapes
    are fixed, so each kind of forward is compiled anew: once for all layers of a kind.

    Args:
        compile_one: in place of torch.compile; takes inductor's ``options``.
    """
    layers = layers_of(model)
    if layers is None:
        return None
    allow_kinds_of_forward()
    compile_one = compile_one or partial(torch.compile, dynamic=False)
    one, many = compile_one(call, options=ONE_TOKEN), compile_one(call)

    def run(module: nn.Module, hidden: Tensor, **options: Any) -> Any:
        return (one if hidden.shape[:-1].numel() == 1 else many)(module, hidden, **options)

    config: Any = model.config
    body: Any = _view(model.base_model)
    view: Any = _view(model)
    inners: Iterable[nn.Module] = layers
    if config.model_type in KNOWN_INSIDE:
        inners = map(_with_products, layers)
        body.norm, ending = nn.Identity(), nn.Sequential(body.norm, view.lm_head)
        del view.lm_head  # a module's place takes modules alone
        view.lm_head = partial(run, ending)
    body.layers = nn.ModuleList(CompiledLayer(inner, number, run) for number, inner in enumerate(inners))
    setattr(view, model.base_model_prefix, body)
    torch.cuda.empty_cache()  # what the weights lay in before they were joined
    found: PreTrainedModel = view
    return found


def compiled_unit(model: PreTrainedModel, execution: Execution) -> str | None:
    """What torch.compile compiles at a time: a decoder layer, where they are found, or the whole forward; None: nothing."""
    if execution != "compiled":
        return None
    return "whole forward" if layers_of(model) is None else "decoder layer"


def _view(module: Any) -> Any:
    """The same module with a list of children of its own."""
    view = copy.copy(module)
    view.__dict__["_modules"] = dict(module._modules)
    return view
