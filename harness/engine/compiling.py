"""torch.compile around a model's forward: every kind of forward becomes one graph, whatever the context's length."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, wraps
from typing import Any

import torch
from transformers import PreTrainedModel

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
