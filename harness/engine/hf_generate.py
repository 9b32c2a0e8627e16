"""The check of our own baseline: the same prompts decoded by transformers' ``generate()``, unmodified.

An NTP arm slower than ``model.generate()`` would make every speedup over it wrong. generate() keeps its own attention and
cache. We only forbid the tokens that our arms may not emit either, and note when the prompt was read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor
from transformers import GenerationConfig, LogitsProcessor, PreTrainedModel, StoppingCriteria

from harness.decoding.next_token import step_pass
from harness.decoding.request import DecodeRequest, left_padded, prefill_pass
from harness.record.trace import Generation

Cache = Literal["dynamic", "static"]
UNTYPED_SETTINGS: Any = GenerationConfig


@dataclass
class _Suppress(LogitsProcessor):
    """Makes the suppressed ids impossible and counts the forwards."""

    suppressed: Tensor
    forwards: int = 0

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        """One call per forward, with (B, V) float32 logits that are generate()'s own copy."""
        self.forwards += 1
        return scores.index_fill_(-1, self.suppressed, float("-inf"))


@dataclass
class _FirstToken(StoppingCriteria):
    """Stops nothing; marks when the first token of every row is chosen."""

    mark: Callable[[], None]
    marked: bool = False

    def __call__(self, input_ids: Tensor, scores: Any, **options: Any) -> Any:
        """One call per token, after its choice; on a GPU perhaps some tokens late, to generate()'s advantage."""
        if not self.marked:
            self.mark()
            self.marked = True
        return torch.zeros(input_ids.shape[0], dtype=torch.bool, device=input_ids.device)


def generate(
    model: PreTrainedModel,
    request: DecodeRequest,
    *,
    cache: Cache,
    attention: str,
    mark: Callable[[], None],
    forward: Callable[..., Any] | None = None,
) -> Generation:
    """Decode greedily; ``mark`` is called twice: when the first token of every row is chosen, and at the end.

    ``forward`` replaces the model's own, compiled for example; transformers itself compiles a static cache on a GPU. The trace
    describes generate(), one token a pass; the number of passes is counted.

    Raises:
        ValueError: the request stops at text, or is not greedy.
    """
    if request.stop.ends_text is not None or request.temperature != 0:
        raise ValueError("generate() is the yardstick of greedy decoding that stops at token ids")
    suppress = _Suppress(torch.tensor(request.suppressed_ids, dtype=torch.long, device=request.device))
    ids, real = (tensor.to(request.device) for tensor in left_padded(request.prompts))
    settings = UNTYPED_SETTINGS(
        max_new_tokens=request.max_new_tokens,
        do_sample=False,
        eos_token_id=sorted(request.stop.token_ids) or None,
        pad_token_id=0,
        cache_implementation=None if cache == "dynamic" else cache,
    )
    untyped: Any = model
    with _borrowed(model, attention, forward):
        out = untyped.generate(
            ids,
            attention_mask=real.long(),
            generation_config=settings,
            logits_processor=[suppress],
            stopping_criteria=[_FirstToken(mark)],
        )
        mark()
        slots = getattr(model, "_previous_max_cache_length", None) if cache == "static" else None
    return _as_generation(request, out[:, ids.shape[1] :].tolist(), suppress.forwards, slots)


@contextmanager
def _borrowed(model: PreTrainedModel, attention: str, forward: Callable[..., Any] | None) -> Iterator[None]:
    """The model with another attention and forward and without its own generation settings; restored afterwards.

    Settings that are not given come from the checkpoint otherwise (a repetition penalty, say). A static cache is made as long
    as the longest that the model ever had. A fresh generate() does not do that, so the length is reset each time.
    """
    ours, settings = model.config._attn_implementation, model.generation_config
    model.set_attn_implementation(attention)
    model.generation_config = UNTYPED_SETTINGS()
    if hasattr(model, "_previous_max_cache_length"):
        del model._previous_max_cache_length
    if forward is not None:
        model.forward = forward
    try:
        yield
    finally:
        if forward is not None:
            del model.forward
        model.generation_config = settings
        model.set_attn_implementation(ours)


def _as_generation(request: DecodeRequest, written: list[list[int]], forwards: int, slots: int | None) -> Generation:
    """Cut every row at its stop and describe the passes; a static cache is read to its end, all its ``slots``."""
    outputs, ending = [], request.stop.ending
    for row in written:
        stop = request.stop.stops_at(row, 0)
        outputs.append(tuple(row if stop is None else row[: stop + 1]))
    lengths = tuple(map(len, request.prompts))
    width = max(lengths)
    steps = [
        step_pass(
            context=tuple(n + made for n in lengths),
            width=width + made if slots is None else slots,
            active=tuple(len(output) > made + 1 for output in outputs),
        )
        for made in range(forwards - 1)
    ]
    return Generation(
        passes=(prefill_pass(lengths, final_tokens=1), *steps),
        prompt_tokens=lengths,
        output_ids=tuple(outputs),
        stop_reasons=tuple(reason for output in outputs if (reason := ending(output, request.max_new_tokens)) is not None),
    )
