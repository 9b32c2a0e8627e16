"""torch.compile around a model's forward: every kind of forward becomes one graph, whatever the context's length."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import torch
from torch._inductor.cpp_builder import get_cpp_compiler
from torch._inductor.exc import InvalidCxxCompiler
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
        return "compiled" if on_cpu and _has_compiler() else "eager"
    if on_cpu and not _has_compiler():
        raise ScenarioError(
            f"part {part.name}: execution: compiled needs a C++ compiler, and torch finds none here; "
            "install g++, or use execution: auto or eager"
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


def _has_compiler() -> bool:
    try:
        get_cpp_compiler()
    except InvalidCxxCompiler:
        return False
    return True
