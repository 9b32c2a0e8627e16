"""torch.compile around a model's forward: every kind of forward becomes one graph, whatever the context's length."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, wraps
from typing import Any, Literal

import torch
from transformers import PreTrainedModel

from harness.errors import ScenarioError
from harness.scenario import Part

KINDS_OF_FORWARD = 64
"""Graphs of one model before torch.compile would silently fall back to eager; a run needs about ten."""
Execution = Literal["eager", "compiled"]


def execution_of(part: Part) -> Execution:
    """How the forwards of a part are run here: what it asks for, or, where that is auto, compiled if that can be done.

    On a GPU auto is eager: there compiling pays with CUDA graphs only, which the session does not capture yet.

    Raises:
        ScenarioError: it asks for compiled forwards and this machine has no C++ compiler.
    """
    on_cpu = part.device == "cpu"
    if part.execution == "eager" or part.session == "plain":
        return "eager"
    if part.execution == "auto":
        return "compiled" if on_cpu and can_compile() else "eager"
    if on_cpu and not can_compile():
        raise ScenarioError(
            f"part {part.name}: execution: compiled, but torch.compile does not work here; "
            "install g++ and Python's headers (python3-dev), or use execution: auto or eager"
        )
    return "compiled"


def compiled(model: PreTrainedModel) -> Callable[..., Any]:
    """The model's forward, compiled when first called. Lengths are symbolic, so a growing context compiles nothing anew.

    Going over the number of graphs is an error, not a slow forward.
    """
    settings: Any = torch._dynamo.config
    settings.recompile_limit = KINDS_OF_FORWARD
    settings.fail_on_recompile_limit_hit = True
    return torch.compile(model.forward, dynamic=True)


def compiled_steps(model: PreTrainedModel) -> Callable[..., Any]:
    """The model's forward, compiled where it feeds one token a row, and as it is where it reads a prompt."""
    whole, step = model.forward, compiled(model)

    @wraps(whole)
    def forward(*arguments: Any, input_ids: torch.Tensor, **options: Any) -> Any:
        call = step if input_ids.shape[1] == 1 else whole
        return call(*arguments, input_ids=input_ids, **options)

    return forward


@cache
def can_compile() -> bool:
    """Whether torch.compile works on this machine's CPU: it wants a C++ compiler and Python's headers, so one line is tried."""
    try:
        torch.compile(lambda x: x + 1)(torch.zeros(2))
    except Exception:  # whatever the tool chain lacks
        return False
    return True
