"""What the passes of a public block model's arm are at most: how wide, and how many where every pass decides one slot."""

from __future__ import annotations

from typing import Any

from harness.record.trace import ForwardPass
from harness.roofline.speedup import describe_pass
from harness.scenario.arms_public import protocol_of

Arm = dict[str, Any]


def widest_pass(arm: Arm, prompt_tokens: int, new_tokens: int) -> tuple[int, int]:
    """(query tokens, logits) of the widest decode pass of a row."""
    protocol, block = protocol_of(arm), int(arm["block_size"])
    if protocol.layout == "canvas":
        return prompt_tokens + new_tokens, new_tokens + (protocol.prediction == "shifted")
    wider = protocol.layout == "window" or protocol.commit == "merged"
    return (2 * block if wider else block), block


def slowest_passes(arm: Arm, rows: int, prompt_tokens: int, new_tokens: int) -> list[tuple[ForwardPass, float]]:
    """The kinds of pass of one decode, one slot decided a pass, at the context in its middle; with how many there are."""
    protocol, block = protocol_of(arm), int(arm["block_size"])
    context, blocks = prompt_tokens + new_tokens // 2, new_tokens / block
    if protocol.layout == "canvas":
        query, logits = widest_pass(arm, prompt_tokens, new_tokens)
        return [(describe_pass("decide", rows, query, 0, logits=logits), new_tokens)]
    if protocol.layout == "window":
        return [(describe_pass("commit+decide", rows, 1 + block, context, logits=block, kept=1), new_tokens)]
    decide = describe_pass("decide", rows, block, context, logits=block)
    if protocol.commit == "merged":
        first = describe_pass("commit+decide", rows, 2 * block, context, logits=block, kept=block)
        return [(decide, new_tokens - blocks), (first, blocks)]
    logits = int(protocol.first_slot == "committed")
    return [(decide, new_tokens), (describe_pass("commit+decide", rows, block, context, logits=logits, kept=block), blocks)]
