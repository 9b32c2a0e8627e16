"""Are captured bfloat16 passes right on this device: flash attention, empty pieces of a buffer, buffers that grow?

Against float32 without graphs. The last line says right or WRONG, the exit status 0 or 1; nothing else that a GPU says counts
before it is right. On a CPU it is the same work with plain arithmetic.

Usage: python -m benchmarks.flash_probe cuda
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable
from typing import Any

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from harness.decoding.session import Segment, Visibility
from harness.modeling.capturing import by_calling_again, cuda_graphs
from harness.modeling.graphed_session import GraphedSession
from harness.modeling.static_session import StaticSession

LARGEST_ERROR = 0.06
"""Relative, of the logits; rounding to bfloat16 alone leaves less."""
BUFFERS = ((1, 200), (1, 900), (4, 900), (1, 5000))
"""(rows, capacity): each but the first drops the graphs and captures anew."""
CONTEXT, BLOCK, PROMPT = 100, 16, 160


def probe(device: str, say: Callable[[str], None]) -> bool:
    """Whether every pass of every kind, as it is captured and as it is replayed, has the logits of float32."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=512, hidden_size=512, intermediate_size=512, num_hidden_layers=2, num_attention_heads=8,
        num_key_value_heads=2, head_dim=128, initializer_range=0.05,
    )  # fmt: skip
    model: Any = LlamaForCausalLM(config)
    exact = model.to(device).eval()
    capture = cuda_graphs() if device.startswith("cuda") else by_calling_again
    fast, plain = GraphedSession(copy.deepcopy(exact).to(torch.bfloat16), capture), StaticSession(exact)
    errors = [error for rows, capacity in BUFFERS for error in _errors(fast, plain, rows, capacity, device, say)]
    return all(error < LARGEST_ERROR for error in errors)  # a NaN is not


def _errors(
    fast: GraphedSession, plain: StaticSession, rows: int, capacity: int, device: str, say: Callable[[str], None]
) -> list[float]:
    tokens = torch.randint(512, (rows, PROMPT), device=device)

    def part(start: int, end: int, visibility: Visibility, logits: int) -> Segment:
        places = torch.arange(start, end, device=device).expand(rows, -1)
        return Segment(tokens=tokens[:, start:end], positions=places, visibility=visibility, logits=logits)

    after = CONTEXT + 1
    block, next_block = (after, after + BLOCK), (after + BLOCK, after + 2 * BLOCK)
    for session in (fast, plain):
        session.reset(rows, capacity)
        session.forward([part(0, CONTEXT, "causal", 1)])
        session.keep([CONTEXT] * rows)
    errors = []
    for name, parts, kept in (
        ("1", [part(CONTEXT, after, "causal", 1)], 1),
        ("16", [part(*block, "bidirectional", BLOCK)], 0),
        ("16+16", [part(*block, "causal", 0), part(*next_block, "bidirectional", BLOCK)], BLOCK),
    ):
        for how in ("captured", "replayed"):
            got, want = fast.forward(parts).float(), plain.forward(parts)
            errors.append(((got - want).norm() / want.norm()).item())
            say(f"rows {rows} capacity {capacity} queries {name} {how}: {errors[-1]:.1e}")
        for session in (fast, plain):
            session.keep([kept] * rows)
    return errors


def main() -> None:
    """Probe the device that is named."""
    right = probe(sys.argv[1], print)
    print("right" if right else "WRONG")
    sys.exit(not right)


if __name__ == "__main__":
    main()
