"""Opens the session that a part asks for, and steps through it for the calibration: what a pass costs besides arithmetic."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch.nn.functional import scaled_dot_product_attention
from transformers import PreTrainedModel

from harness.decoding.session import ModelSession, Segment, upload
from harness.engine.captured_attention import choose_kernels
from harness.engine.compiling import compiled, with_compiled_layers
from harness.engine.cuda_graphs import CudaGraphs, GraphedSession
from harness.engine.kv_cache import folded_attention
from harness.engine.native_forward import product_alone
from harness.engine.plain_session import TransformersSession
from harness.engine.static_session import StaticSession
from harness.hardware.profile import engine_words
from harness.kernels.walk import walk
from harness.meters.torch_bench import Stepping
from harness.scenario.part import Execution

MOST_STEPS = 256


def stepping(session: str, attention: str, execution: Execution) -> Stepping:
    """The engine that a calibration measures; can be handed to another process."""
    steps = partial(one_token_steps, session=session, attention=attention, execution=execution)
    attend = scaled_dot_product_attention if session == "plain" else partial(folded_attention, mask=None, scaling=None)
    own: Any = {"product": product_alone, "sample": partial(walk, temperature=1.0)} if execution == "native" else {}
    named = engine_words(session, execution)
    return Stepping(engine=named, eager=execution == "eager", steps=steps, attend=attend, capture=CudaGraphs, **own)


def open_session(
    module: Any, session: str, attention: str, execution: Execution, ranks: int = 1, leaves_out: bool = False
) -> ModelSession:
    """The plain session with its attention, or a static one. On a GPU a static one is captured into graphs, with its attention,
    unless it is eager. Captured forwards are compiled layer by layer where the layers are found.

    ``ranks``: the module's heads are split over so many. ``leaves_out``: an eager static one skips what need not be computed.
    """
    choose_kernels(module.device)
    if session == "plain":
        return TransformersSession(module, attention)
    if execution == "eager" or module.device.type == "cpu":
        return StaticSession(module, execution, ranks, leaves_out)
    forward: Callable[..., Any] | None = None
    if execution == "compiled":
        forward = with_compiled_layers(module) or compiled(module, dynamic=False)
    return GraphedSession(module, CudaGraphs(), forward, ranks, attention)


def one_token_steps(module: PreTrainedModel, session: str, attention: str, execution: Execution) -> Callable[[], None]:
    """Each call is one NTP pass after the one before, as a decoder makes it; at most MOST_STEPS calls."""
    opened = open_session(module, session, attention, execution)
    opened.reset(1, MOST_STEPS)
    token = torch.zeros(1, 1, dtype=torch.long, device=module.device)

    def step() -> None:
        position = upload([opened.context_tokens], module.device)
        opened.forward([Segment(tokens=token, positions=position, visibility="causal", logits=1)])
        opened.keep([1])

    return step
