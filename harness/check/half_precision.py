"""Whether bfloat16 graphs compute on a device what float32 without graphs computes.

The passes use flash attention over buffers with empty pieces, buffers that grow, and one to four rows. Every kind of pass is
captured and then replayed. `python -m harness.check.half_precision DEVICE` prints every pass, then "right" or "WRONG" (exit
code 1).
"""

from __future__ import annotations

import copy
import math
import sys
from collections.abc import Iterator, Sequence
from typing import Any, Literal

import torch
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM

from harness.decoding.session import ModelSession, Segment, Visibility
from harness.engine.captured_attention import choose_kernels
from harness.engine.cuda_graphs import Capture, CudaGraphs, GraphedSession, by_calling_again
from harness.engine.static_session import StaticSession
from harness.errors import EXIT_OK, EXIT_REGRESSION
from harness.frozen import frozen

MOST_ERROR = 0.04
"""Of the norm of a pass's logits: on a CPU rounding to bfloat16 gives 0.012 to 0.018, one token more or less 0.08."""
BATCHES = ((1, 200), (1, 900), (2, 900), (3, 900), (4, 900), (1, 5000))
"""(rows, capacity in tokens), consecutive on one session, so that each but the first captures again."""
PROMPT, BLOCK, VOCABULARY = 100, 16, 512


@frozen
class HalfPrecisionPass:
    """One pass of the graphs. ``error``: norm of the difference to float32's logits over their norm; None: not a number."""

    rows: int
    capacity: int
    tokens: str
    run: Literal["captured", "replayed"]
    error: float | None

    @property
    def right(self) -> bool:
        """Whether the difference is that of rounding; none at all says that nothing was rounded."""
        return self.error is not None and 0 < self.error < MOST_ERROR

    def __str__(self) -> str:
        found = "no number" if self.error is None else f"{self.error:.1e}"
        return f"rows {self.rows}, capacity {self.capacity}, tokens {self.tokens}, {self.run}: {found}"


@torch.no_grad()
def half_precision(
    device: str, capture: Capture | None = None, batches: Sequence[tuple[int, int]] = BATCHES
) -> list[HalfPrecisionPass]:
    """Every pass of ``batches`` on ``device``, by ``capture``, else CUDA graphs on a GPU, else by calling the work again.

    Raises:
        ScenarioError: torch or the GPU lacks flash attention.
    """
    choose_kernels(device)
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=512,
        intermediate_size=512,
        num_hidden_layers=2,
        num_attention_heads=8,
        num_key_value_heads=2,
        head_dim=128,
        initializer_range=0.05,
    )
    model: Any = LlamaForCausalLM(config)
    exact = model.to(device=device, dtype=torch.bfloat16).eval()
    if capture is None:
        capture = CudaGraphs() if device.startswith("cuda") else by_calling_again
    fast = GraphedSession(copy.deepcopy(exact), capture)
    plain = StaticSession(exact.float())  # the rounded weights
    return [result for rows, capacity in batches for result in _batch(fast, plain, rows, capacity, torch.device(device))]


def _batch(
    fast: ModelSession, plain: ModelSession, rows: int, capacity: int, device: torch.device
) -> Iterator[HalfPrecisionPass]:
    """A prompt, then each kind of pass twice; both sessions continue from what they kept."""
    tokens = torch.randint(VOCABULARY, (rows, PROMPT + 4 * BLOCK), device=device)
    for session in (fast, plain):
        session.reset(rows, capacity)
        session.forward([_segment(tokens, 0, PROMPT, "causal", 1)])
        session.keep([PROMPT] * rows)
    for name, segments, kept in _passes(tokens):
        for run in ("captured", "replayed"):
            found, wanted = fast.forward(segments).float(), plain.forward(segments)
            error = float((found - wanted).norm() / wanted.norm())
            yield HalfPrecisionPass(
                rows=rows, capacity=capacity, tokens=name, run=run, error=error if math.isfinite(error) else None
            )
        for session in (fast, plain):
            session.keep(kept)


def _passes(tokens: Tensor) -> Iterator[tuple[str, list[Segment], list[int]]]:
    """Next-token prediction, a block, a block that commits the one before, and one in which the first row commits none.

    Yields name, segments fed, and tokens kept per row.
    """
    rows, at = tokens.shape[0], PROMPT
    yield "1", [_segment(tokens, at, at + 1, "causal", 1)], [1] * rows
    at += 1
    yield f"{BLOCK}", [_segment(tokens, at, at + BLOCK, "bidirectional", BLOCK)], [0] * rows

    def both(start: int) -> list[Segment]:
        committed = _segment(tokens, start, start + BLOCK, "causal", BLOCK)
        return [committed, _segment(tokens, start + BLOCK, start + 2 * BLOCK, "bidirectional", BLOCK)]

    yield f"{BLOCK}+{BLOCK}", both(at), [BLOCK] * rows
    if rows > 1:
        waits = both(at + BLOCK)
        waits[0].logits = 0  # logits of padding have no meaning
        waits[0].valid = (torch.arange(rows) > 0)[:, None].expand(-1, BLOCK)
        yield f"{BLOCK}+{BLOCK}, one row waits", waits, [0] + [BLOCK] * (rows - 1)


def _segment(tokens: Tensor, start: int, end: int, visibility: Visibility, logits: int) -> Segment:
    places = torch.arange(start, end, device=tokens.device).expand(tokens.shape[0], -1)
    return Segment(tokens=tokens[:, start:end], positions=places, visibility=visibility, logits=logits)


def main(device: str) -> int:
    """Print every pass in a line, then the word; returns the exit code."""
    found = half_precision(device)
    for each in found:
        print(each)
    right = all(each.right for each in found)
    print("right" if right else "WRONG")
    return EXIT_OK if right else EXIT_REGRESSION


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
