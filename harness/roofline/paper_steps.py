"""From a figure the paper published to the project's own for the same cell, one correction at a time, each with its reason.

Every step evaluates the whole model again with one more correction. So a step's share depends on those before it; the two
ends do not. The order is faults first, then what the paper leaves out or takes otherwise. What a correction changes is a
field of AdjustableModel.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Literal

from harness.errors import UserError
from harness.frozen import frozen, positional
from harness.models.deployment import element_bytes
from harness.roofline import paper
from harness.roofline.batches import slowest_row_passes
from harness.roofline.ceilings import Ceilings
from harness.roofline.operations import SAMPLER_SWEEPS
from harness.roofline.paper import (
    MODEL,
    AdjustableModel,
    PaperCell,
    published_slowdowns,
    published_speedups,
    slowdown,
    wall_speedup,
)
from harness.roofline.pricing import UNMEASURED_OVERLAP
from harness.roofline.step import DecodeArm, SpeedupPrediction, price_three_steps

StepKind = Literal["fault", "omission", "choice"]
CONFIG = f"config.json of {MODEL.name}"
OPS = "harness/roofline/operations.py"


@positional
class Correction:
    """One difference. ``changes`` are fields of AdjustableModel.

    ``fault``     the paper's code does not compute what its text says
    ``omission``  a pass does this work, and the paper leaves it out
    ``choice``    another assumption, where the paper's is not wrong
    """

    name: str
    kind: StepKind
    changes: dict[str, Any]
    source: str
    reason: str


Corrections = tuple[Correction, ...]


def corrections(ceilings: Ceilings) -> Corrections:
    """All corrections in order; the last value of each field is that of the project's own pricing on ``ceilings``."""
    return (*_faults(ceilings), *_what_is_priced(ceilings), *_what_is_left_out(), *_what_is_shared(ceilings))


def _faults(ceilings: Ceilings) -> Corrections:
    bandwidth = ceilings.bandwidth_bytes_per_s
    excess = paper.BANDWIDTH_BYTES_PER_S / bandwidth - 1
    return (
        Correction(
            "FFN width",
            "fault",
            {"ffn_width": paper.FFN},
            "paper, fig. 11",
            f"the code's inner width is hidden * (4 * hidden) where 4 * hidden = {paper.FFN} is meant, so the feed-forward "
            f"network weighs {paper.HIDDEN} times too much and hides everything else",
        ),
        Correction(
            "K/V width",
            "fault",
            {"kv_width": paper.HEAD_DIM * paper.KV_HEADS},
            "paper, fig. 11",
            f"K and V are projected to head_dim * kv_heads = {paper.HEAD_DIM * paper.KV_HEADS} elements, not to "
            f"heads * kv_heads = {paper.HEADS * paper.KV_HEADS}",
        ),
        Correction(
            "decimal bandwidth",
            "fault",
            {"bandwidth_bytes_per_s": bandwidth},
            f"paper, fig. 11; hardware profile {ceilings.device_name}",
            f"the part reads {bandwidth:.4g} bytes/s; 3.35 * 1024^4 is {excess:.0%} more",
        ),
    )


def _what_is_priced(ceilings: Ceilings) -> Corrections:
    peak, size = ceilings.matrix_flops_per_s(1), element_bytes(ceilings.dtype)
    return (
        Correction(
            "gate",
            "omission",
            {"gated_ffn": True},
            f"{CONFIG}; arXiv 2002.05202",
            "the feed-forward network has three matrices, gate, up and down, where the paper prices two",
        ),
        Correction(
            "FFN of the model",
            "choice",
            {"ffn_width": MODEL.intermediate},
            f"paper, fig. 11; {CONFIG}",
            f"beside a gate the model's inner width is {MODEL.intermediate}; the paper takes 4 * hidden = {paper.FFN}",
        ),
        Correction(
            "fused projections",
            "choice",
            {"inputs_read_once": True},
            OPS,
            "Q, K and V are one operation and so is the feed-forward network: each reads the hidden state once, and its "
            "memory and arithmetic overlap as a whole",
        ),
        Correction(
            f"{ceilings.dtype} throughout",
            "choice",
            {"dtype": ceilings.dtype, "linear_flops_per_s": peak, "attention_flops_per_s": peak},
            f"paper, section 4 and fig. 11; hardware profile {ceilings.device_name}",
            f"weights, activations and KV cache take {size} byte{'s' * (size > 1)} an element, and linear layers and "
            f"attention run at {peak:.4g} FLOP/s; the paper takes 1 byte (FP8), {paper.PEAK_FLOPS_PER_S:.4g} FLOP/s, and "
            f"{paper.ATTENTION_PEAK_FLOPS_PER_S:.4g} in attention",
        ),
    )


def _what_is_left_out() -> Corrections:
    return (
        Correction(
            "LM head",
            "omission",
            {"lm_head": True},
            f"{CONFIG}; {OPS}",
            f"every pass multiplies each position it decides by a vocabulary of {MODEL.vocab}; it does so once, so the "
            f"{MODEL.layers} layers no longer cancel",
        ),
        Correction(
            "norms, elementwise",
            "omission",
            {"elementwise": True},
            OPS,
            "norms, residual additions, rotation, activation and the embedding look-up read and write activations",
        ),
        Correction(
            "tokens of the pass",
            "omission",
            {"own_tokens": True},
            f"paper, algorithm 2; {OPS}",
            "attention covers the pass's own tokens too and writes the K and V that stay; the first pass of a block feeds "
            "the block before again (2k tokens) and so finds that much less in the cache",
        ),
        Correction(
            "sampler",
            "omission",
            {"sampler": True},
            f"paper, algorithm 3; {OPS}",
            f"softmax, entropy and argmax go over the float32 logits of every position {SAMPLER_SWEEPS} times",
        ),
    )


def _what_is_shared(ceilings: Ceilings) -> Corrections:
    cache = "of unknown size" if ceilings.cache_bytes is None else f"of {ceilings.cache_bytes / 1e6:g} MB"
    return (
        Correction(
            "activations on the chip",
            "choice",
            {"cache_bytes": ceilings.cache_bytes},
            f"{OPS}; hardware profile {ceilings.device_name}",
            f"what one fused operation hands to the next stays in the last-level cache {cache} as far as it fits; the paper "
            "moves all of it, which costs a block of k tokens k times what it costs one",
        ),
        Correction(
            "overlap",
            "choice",
            {"overlap": UNMEASURED_OVERLAP},
            "harness/roofline/pricing.py",
            "how far memory and arithmetic overlap was not measured, so the middle of the two ends is expected; the paper "
            "takes the optimistic end",
        ),
        Correction(
            "slowest row",
            "omission",
            {"lockstep": True},
            "harness/runner/estimates.py",
            "a batch in lockstep makes the passes of its slowest row where the paper takes the mean; how rows spread is "
            "assumed (1 + binomial), and one row, or Table 3, has nothing to wait for",
        ),
    )


@frozen
class CorrectedStep:
    """One correction and the figure before and after it. ``after`` is None where it cannot be priced; ``reason`` says why."""

    name: str
    kind: Literal["reproduction"] | StepKind
    reason: str
    source: str
    before: float
    after: float | None

    @property
    def factor(self) -> float | None:
        """How many times larger the figure becomes; None where it cannot be priced."""
        return None if self.after is None else self.after / self.before


@frozen
class PaperWaterfall:
    """The steps from ``published`` to ``ours``, which is harness.roofline.step's answer and not the last step's.

    ``nfe_speedup`` and ``passes_per_block``, those of the slowest row, are None in Table 3, which knows no passes.
    """

    figure: Literal["slowdown", "wall_speedup"]
    cell: PaperCell
    nfe_speedup: float | None = None
    passes_per_block: float | None = None
    published: float
    steps: tuple[CorrectedStep, ...]
    ours: float

    @property
    def factor_by_kind(self) -> dict[str, float]:
        """Product of the factors of each kind of step; all of them together lead from ``published`` to ``ours``."""
        products: dict[str, float] = dict.fromkeys((step.kind for step in self.steps), 1.0)
        for step in self.steps:
            products[step.kind] *= 1.0 if step.factor is None else step.factor
        return products


def explain_slowdown(cell: PaperCell, ceilings: Ceilings) -> PaperWaterfall:
    """Table 3, time(k) / time(1): from the published cell to ``ceilings``, which must be of the datasheet rung.

    Raises:
        UserError: Table 3 has no such cell, or the ceilings are of another rung.
    """
    published = _published(3, (cell.batch_size, cell.kv_length, cell.block_size), published_slowdowns())
    steps = _steps(published, lambda model: slowdown(model, cell), ceilings)
    priced = _priced(cell, 1, ceilings)
    ours = priced.later.expected_s / priced.ntp.expected_s
    return PaperWaterfall(figure="slowdown", cell=cell, published=published, steps=steps, ours=ours)


def explain_speedup(cell: PaperCell, nfe_speedup: float, ceilings: Ceilings) -> PaperWaterfall:
    """Table 4, the wall speedup: from the published cell to ``ceilings``, which must be of the datasheet rung.

    The paper gives every row block size / ``nfe_speedup`` passes per block. Here that is the mean, and in a batch the slowest
    row decides (slowest_row_passes has the assumed spread).

    Raises:
        UserError: Table 4 has no such cell, or the ceilings are of another rung.
    """
    published = _published(4, (cell.batch_size, cell.kv_length, cell.block_size, nfe_speedup), published_speedups())
    mean_passes = cell.block_size / nfe_speedup
    slowest_passes = slowest_row_passes(cell.block_size, mean_passes, cell.batch_size)
    steps = _steps(published, lambda model: wall_speedup(model, cell, mean_passes, slowest_passes), ceilings)
    return PaperWaterfall(
        figure="wall_speedup",
        cell=cell,
        nfe_speedup=nfe_speedup,
        passes_per_block=slowest_passes,
        published=published,
        steps=steps,
        ours=_priced(cell, slowest_passes, ceilings).wall_speedup,
    )


def _priced(cell: PaperCell, passes_per_block: float, ceilings: Ceilings) -> SpeedupPrediction:
    arm = DecodeArm(block_size=cell.block_size, passes_per_block=passes_per_block, batching="lockstep")
    return price_three_steps(MODEL, ceilings.dtype, ceilings, arm, cell.batch_size, cell.kv_length)


def _steps(published: float, figure: Callable[[AdjustableModel], float], ceilings: Ceilings) -> tuple[CorrectedStep, ...]:
    if ceilings.rung != "datasheet":
        raise UserError(f"the paper's figures are explained on a datasheet, not on the {ceilings.rung} rung")
    model = AdjustableModel()
    before = figure(model)
    steps = [
        CorrectedStep(
            name="as printed",
            kind="reproduction",
            reason="the paper's own model, evaluated again; the published figure is this one to three decimals (in four cells "
            "of Table 4 it is one less in the last)",
            source="paper, section 4, fig. 11, eq. 16",
            before=published,
            after=before,
        )
    ]
    for correction in corrections(ceilings):
        model = replace(model, **correction.changes)
        after = figure(model)
        steps.append(
            CorrectedStep(
                name=correction.name,
                kind=correction.kind,
                reason=correction.reason,
                source=correction.source,
                before=before,
                after=after,
            )
        )
        before = after
    reason = f"not priced: {ceilings.fixed_reason}, and every pass of either arm pays it; a calibration measures it"
    steps.append(
        CorrectedStep(
            name="launches", kind="omission", reason=reason, source="harness/roofline/ceilings.py", before=before, after=None
        )
    )
    return tuple(steps)


def _published(table: int, key: tuple[float, ...], figures: Mapping[Any, float]) -> float:
    if key in figures:
        return figures[key]
    names = ("batch size", "KV length", "block size", "NFE speedup")[: len(key)]
    given = ", ".join(f"{name} {value:g}" for name, value in zip(names, key, strict=True))
    columns = zip(names, zip(*figures, strict=True), strict=True)
    allowed = "; ".join(f"{name} {', '.join(map(str, sorted(set(values))))}" for name, values in columns)
    raise UserError(f"Table {table} of the paper has no cell with {given}; it has: {allowed}")
