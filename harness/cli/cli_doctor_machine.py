"""What `sbd doctor` says of the machine beside its meters: the counter's scale, the attention kernel, the fingerprint."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from harness.hardware.counter_scale import BandwidthScale

MODEL, DTYPE, CONTEXT_TOKENS, WIDTHS = "llama-3.1-8b", "bfloat16", 1024, (1, 16)
"""Whose shapes the attention kernel is asked about; a run asks, and records, for its own."""


def machine_facts(device: str, scale: BandwidthScale | str) -> dict[str, Any]:
    """Plain JSON values; what is None has its reason beside it."""
    from harness.meters.environment import snapshot

    return {
        "bandwidth_scale": None if isinstance(scale, str) else scale.model_dump(mode="json"),
        "bandwidth_scale_reason": scale if isinstance(scale, str) else None,
        "attention": _attention(device),
        "environment": snapshot(),
    }


def machine_lines(found: dict[str, Any]) -> list[str]:
    """The same as text."""
    return [*_scale_lines(found), *_attention_lines(found["attention"]), *_environment_lines(found["environment"])]


def _attention(device: str) -> list[dict[str, Any]]:
    """The kernel torch picks for one sequence of an 8B model, per width, with and without a mask."""
    from harness.engine.fingerprint import sdpa_backend
    from harness.models import KNOWN_SHAPES
    from harness.scenario.scenario import Part

    part = Part.model_validate({
        "name": "doctor", "model": {"random": MODEL}, "device": device, "dtype": DTYPE, "arms": [{"method": "ntp"}],
        "workload": {"synthetic": {"prompt_tokens": CONTEXT_TOKENS}, "prompts": 1, "max_new_tokens": 1},
    })  # fmt: skip
    return [
        {"model": MODEL, "dtype": DTYPE, **sdpa_backend(part, KNOWN_SHAPES[MODEL], rows=1, query=width, masked=masked)}
        for width in WIDTHS for masked in (False, True)
    ]  # fmt: skip


def _scale_lines(found: dict[str, Any]) -> list[str]:
    from harness.hardware.counter_scale import BandwidthScale

    lines = ["", "one percent of the memory counter"]
    if found["bandwidth_scale"] is None:
        return [*lines, f"  not known: {found['bandwidth_scale_reason']}"]
    scale = BandwidthScale.model_validate(found["bandwidth_scale"])
    theoretical = scale.theoretical_bytes_per_s_per_percent
    by_bus = scale.interface_reason if theoretical is None else f"{theoretical / 1e9:.4g} GB/s"
    by_copy = f"{scale.bytes_per_s_per_percent / 1e9:.4g} GB/s by a copy of known bytes"
    lines.append(f"  {scale.counter}: {by_copy}; by memory clock and bus: {by_bus}")
    return [*lines, *([f"  beware: {scale.disagreement()}"] if scale.disagreement() else [])]


def _attention_lines(answers: list[dict[str, Any]]) -> list[str]:
    first = answers[0]
    lines = ["", f"attention kernel for {first['model']}, {first['dtype']}, {first['context_tokens']} tokens of context"]
    for one in answers:
        mask = "with a mask" if one["masked"] else "without a mask"
        lines.append(f"  {one['query_tokens']:3} tokens {mask:16}{one['backend'] or one['reason']}")
    return lines


def _environment_lines(environment: dict[str, Any]) -> list[str]:
    """Every fact of the snapshot, or why it is not known; a list of GPUs with one line each."""
    reasons, lines = environment["reasons"], ["", "machine"]
    for name, value in environment.items():
        if name == "reasons":
            continue
        reason = f"none: {reasons.get(name)}" if value is None else f"({reasons[name]})" if name in reasons else ""
        many = isinstance(value, list) and bool(value) and isinstance(value[0], dict)
        shown = "" if value is None or many else json.dumps(value, ensure_ascii=False)
        lines.append(f"  {name:26}{' '.join(word for word in (shown, reason) if word)}")
        lines += [f"    {json.dumps(one, ensure_ascii=False)}" for one in value] if many else []
    return lines
