"""What separates the paper's roofline from the project's, in the order in which it is put right, each with its reason.

Faults first, while the model is still the paper's; then what the paper leaves out or takes otherwise. Only values: what a
correction changes is a field of AdjustableModel.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

from harness.roofline import paper
from harness.roofline.adjustable import MODEL
from harness.roofline.ceilings import Ceilings
from harness.roofline.operations import SAMPLER_SWEEPS, element_bytes

Kind = Literal["fault", "omission", "choice"]
CONFIG = f"config.json of {MODEL.name}"
OPS = "harness/roofline/operations.py"


@dataclass(frozen=True, slots=True, kw_only=True)
class Correction:
    """One difference. ``changes`` are fields of AdjustableModel.

    ``fault``     the paper's code does not compute what its text says
    ``omission``  a pass does this work, and the paper leaves it out
    ``choice``    another assumption, where the paper's is not wrong
    """

    name: str
    kind: Kind
    reason: str
    source: str
    changes: dict[str, Any] = field(default_factory=dict)


def corrections(ceilings: Ceilings) -> tuple[Correction, ...]:
    """All corrections in order; the last value of each field is that of the project's own pricing on ``ceilings``."""
    return (*_faults(ceilings), *_what_is_priced(ceilings), *_what_is_left_out())


def _faults(ceilings: Ceilings) -> Iterator[Correction]:
    bandwidth = ceilings.bandwidth_bytes_per_s
    excess = paper.BANDWIDTH_BYTES_PER_S / bandwidth - 1
    yield Correction(
        name="FFN width",
        kind="fault",
        reason=f"the code's inner width is hidden * (4 * hidden) where 4 * hidden = {paper.FFN} is meant, so the feed-forward "
        f"network weighs {paper.HIDDEN} times too much and hides everything else",
        source="paper, fig. 11",
        changes={"ffn_width": paper.FFN},
    )
    yield Correction(
        name="K/V width",
        kind="fault",
        reason=f"K and V are projected to head_dim * kv_heads = {paper.HEAD_DIM * paper.KV_HEADS} elements, not to "
        f"heads * kv_heads = {paper.HEADS * paper.KV_HEADS}",
        source="paper, fig. 11",
        changes={"kv_width": paper.HEAD_DIM * paper.KV_HEADS},
    )
    yield Correction(
        name="decimal bandwidth",
        kind="fault",
        reason=f"the part reads {bandwidth:.4g} bytes/s; 3.35 * 1024^4 is {excess:.0%} more",
        source=f"paper, fig. 11; hardware profile {ceilings.device_name}",
        changes={"bandwidth_bytes_per_s": bandwidth},
    )


def _what_is_priced(ceilings: Ceilings) -> Iterator[Correction]:
    peak, size = ceilings.matrix_flops_per_s(1), element_bytes(ceilings.dtype)
    yield Correction(
        name="gate",
        kind="omission",
        reason="the feed-forward network has three matrices, gate, up and down, where the paper prices two",
        source=f"{CONFIG}; arXiv 2002.05202",
        changes={"gated_ffn": True},
    )
    yield Correction(
        name="FFN of the model",
        kind="choice",
        reason=f"beside a gate the model's inner width is {MODEL.intermediate}; the paper takes 4 * hidden = {paper.FFN}",
        source=f"paper, fig. 11; {CONFIG}",
        changes={"ffn_width": MODEL.intermediate},
    )
    yield Correction(
        name="fused projections",
        kind="choice",
        reason="Q, K and V are one operation and so is the feed-forward network: each reads the hidden state once, and its "
        "memory and arithmetic overlap as a whole",
        source=OPS,
        changes={"inputs_read_once": True},
    )
    yield Correction(
        name=f"{ceilings.dtype} throughout",
        kind="choice",
        reason=f"weights, activations and KV cache take {size} byte{'s' * (size > 1)} an element, and linear layers and "
        f"attention run at {peak:.4g} FLOP/s; the paper takes 1 byte (FP8), {paper.PEAK_FLOPS_PER_S:.4g} FLOP/s, and "
        f"{paper.ATTENTION_PEAK_FLOPS_PER_S:.4g} in attention",
        source=f"paper, section 4 and fig. 11; hardware profile {ceilings.device_name}",
        changes={"dtype": ceilings.dtype, "linear_flops_per_s": peak, "attention_flops_per_s": peak},
    )


def _what_is_left_out() -> Iterator[Correction]:
    yield Correction(
        name="LM head",
        kind="omission",
        reason=f"every pass multiplies each position it decides by a vocabulary of {MODEL.vocab}; it does so once, so the "
        f"{MODEL.layers} layers no longer cancel",
        source=f"{CONFIG}; {OPS}",
        changes={"lm_head": True},
    )
    yield Correction(
        name="norms, elementwise",
        kind="omission",
        reason="norms, residual additions, rotation, activation and the embedding look-up read and write activations",
        source=OPS,
        changes={"elementwise": True},
    )
    yield Correction(
        name="tokens of the pass",
        kind="omission",
        reason="attention covers the pass's own tokens too and writes the K and V that stay; the first pass of a block feeds "
        "the block before again (2k tokens) and so finds that much less in the cache",
        source=f"paper, algorithm 2; {OPS}",
        changes={"own_tokens": True},
    )
    yield Correction(
        name="sampler",
        kind="omission",
        reason=f"softmax, entropy and argmax go over the float32 logits of every position {SAMPLER_SWEEPS} times",
        source=f"paper, algorithm 3; {OPS}",
        changes={"sampler": True},
    )
    yield Correction(
        name="slowest row",
        kind="omission",
        reason="a batch in lockstep makes the passes of its slowest row where the paper takes the mean; how rows spread is "
        "assumed (1 + binomial), and one row, or Table 3, has nothing to wait for",
        source="harness/runner/estimates.py",
        changes={"lockstep": True},
    )
