"""The yardstick of our own baseline: the same prompts decoded by transformers' ``generate()``, untouched.

If our NTP arm were slower than what anybody gets by typing ``model.generate()``, every speedup over it would be a lie. So
generate() keeps its own attention and cache; we only forbid the tokens that our arms may not emit either, and note when
the prompt was read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Literal

import torch
from torch import Tensor
from transformers import GenerationConfig, LogitsProcessor, PreTrainedModel

from harness.decoding.next_token import step_pass
from harness.decoding.prefill import prefill_pass
from harness.decoding.request import DecodeRequest
from harness.trace import Generation

Cache = Literal["dynamic", "static"]


class _Watcher(LogitsProcessor):
    """Counts the forwards, says when the first is over, and makes the suppressed ids impossible."""

    def __init__(self, suppressed: Tensor, prefilled: Callable[[], None]) -> None:
        self._suppressed = suppressed
        self._prefilled = prefilled
        self.forwards = 0

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        """One call per forward, with (B, V) float32 logits that are generate()'s own copy."""
        if self.forwards == 0:
            self._prefilled()
        self.forwards += 1
        return scores.index_fill_(-1, self._suppressed, float("-inf"))


def generate(
    model: PreTrainedModel,
    request: DecodeRequest,
    *,
    cache: Cache,
    attention: str,
    prefilled: Callable[[], None],
    forward: Callable[..., Any] | None = None,
) -> Generation:
    """Decode greedily; ``prefilled`` is called once, when the prompt's logits are there and no token is chosen yet.

    ``forward`` stands in for the model's own, compiled for example; transformers itself compiles a static cache on a GPU.

    The trace is what generate() does, one token a pass; that it made so many passes is counted.

    Raises:
        ValueError: the request stops at text, or is not greedy.
    """
    if request.stop.ends_text is not None or request.temperature != 0:
        raise ValueError("generate() is the yardstick of greedy decoding that stops at token ids")
    watcher = _Watcher(torch.tensor(request.suppressed_ids, dtype=torch.long, device=request.device), prefilled)
    ids, mask = _padded(request)
    untyped_config: Any = GenerationConfig
    settings = untyped_config(
        max_new_tokens=request.max_new_tokens,
        do_sample=False,
        # generate() takes the model's own stop where it is given none; one past the vocabulary is never written.
        eos_token_id=sorted(request.stop.token_ids) or model.config.vocab_size,
        pad_token_id=0,
        cache_implementation=None if cache == "dynamic" else cache,
    )
    with _borrowed(model, attention, forward):
        untyped: Any = model
        out = untyped.generate(ids, attention_mask=mask, generation_config=settings, logits_processor=[watcher])
    return _as_generation(request, out[:, ids.shape[1] :].tolist(), watcher.forwards, cache)


@contextmanager
def _borrowed(model: PreTrainedModel, attention: str, forward: Callable[..., Any] | None) -> Iterator[None]:
    """The model with another attention and forward, and as it was afterwards."""
    ours = model.config._attn_implementation
    model.set_attn_implementation(attention)
    if forward is not None:
        model.forward = forward
    try:
        yield
    finally:
        if forward is not None:
            del model.forward
        model.set_attn_implementation(ours)


def _padded(request: DecodeRequest) -> tuple[Tensor, Tensor]:
    """(B, W) ids and attention mask of the prompts, padded on the left."""
    width = max(map(len, request.prompts))
    ids = [[0] * (width - len(p)) + list(p) for p in request.prompts]
    mask = [[0] * (width - len(p)) + [1] * len(p) for p in request.prompts]
    return torch.tensor(ids, device=request.device), torch.tensor(mask, device=request.device)


def _as_generation(request: DecodeRequest, written: list[list[int]], forwards: int, cache: Cache) -> Generation:
    """Cut every row at its stop and describe the passes."""
    outputs = []
    for row in written:
        stop = request.stop.stops_at(row, 0)
        outputs.append(tuple(row if stop is None else row[: stop + 1]))
    lengths = tuple(map(len, request.prompts))
    width, room = max(lengths), max(lengths) + request.max_new_tokens
    steps = [
        step_pass(
            context=tuple(n + made for n in lengths),
            width=room if cache == "static" else width + made,
            active=tuple(len(output) > made + 1 for output in outputs),
        )
        for made in range(forwards - 1)
    ]
    return Generation(
        passes=(prefill_pass(lengths, final_tokens=1), *steps),
        prompt_tokens=lengths,
        output_ids=tuple(outputs),
        stop_reasons=tuple(
            "stop" if request.stop.stops_at(output, len(output) - 1) is not None else "length" for output in outputs
        ),
    )
