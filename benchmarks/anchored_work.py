"""The work behind published speeds as one table of operations, priced at once: what benchmarks.anchored fits constants to.

The arithmetic is that of harness.roofline.pricing on the anchored rung; tests hold the two together.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from harness.hardware.figures import MemoryType
from harness.hardware.links import link_of
from harness.hardware.profile import HardwareProfile
from harness.models.deployment import WeightFormat, element_bytes
from harness.roofline.anchor_values import Anchor, AnchorTable
from harness.roofline.anchored import US, is_metal
from harness.roofline.anchors import block_counts, counts_of
from harness.roofline.feed_forward import expected_experts
from harness.roofline.operation import PassCounts
from harness.roofline.operations import count_operations, sampler_operation
from harness.roofline.pricing import UNMEASURED_OVERLAP

Array = NDArray[Any]
CONTEXTS = 8
"""Contexts at which the passes of a long decode are priced in the fit; a price is almost linear in the context."""


@dataclass(frozen=True)
class Constant:
    """A constant: what is known of it before any anchor (``prior``, a relative standard deviation ``sd``) and its bounds.

    Priors keep a constant in place where what is left in says nothing about it; together they weigh as little as a few rows.
    """

    prior: float
    sd: float
    low: float
    high: float


# Copies that others measured reach 0.76 (L40S) to 0.92 of the datasheet; the rest is known to a factor of 1.5 to e.
CONSTANTS: dict[str, Constant] = {
    **{f"copy_{memory}": Constant(0.85, 0.08, 0.3, 1.0) for memory in get_args(MemoryType)},
    "matrix_float16": Constant(0.7, 0.4, 0.05, 1.0),
    "matrix_float8": Constant(0.6, 0.4, 0.05, 1.0),
    # Not fitted: 141 of 312 TFLOP/s on an A100, vLLM's Marlin (https://github.com/vllm-project/vllm/pull/2497).
    "matrix_weight_only": Constant(0.45, 1.0, 0.4499, 0.4501),
    # Kept from the fit in which it stood for all weights that are unpacked; llama.cpp's speeds alone give 0.17.
    "matrix_unpacked": Constant(0.221, 1.0, 0.2209, 0.2211),
    "overlap": Constant(0.5, 1.0, 0.0, 1.0),
    "layer_us": Constant(15.0, 1.0, 0.01, 200.0),
    "routing_layer_us": Constant(40.0, 1.0, 0.01, 300.0),
    "metal_routing_layer_us": Constant(70.0, 1.0, 0.01, 600.0),
    "metal_attention": Constant(0.8, 1.0, 0.02, 1.0),
    "all_reduce_us": Constant(15.0, 1.0, 0.01, 200.0),
    "expert_reuse": Constant(1.0, 0.2, 0.3, 1.0),
}
NAMES = list(CONSTANTS)
PRIOR_WEIGHT = 0.1
START = np.array([one.prior for one in CONSTANTS.values()])
# The datasheet rung, the latency of its links apart.
DATASHEET = np.array([1.0 if name.startswith(("copy", "matrix", "metal_att", "expert")) else 0.0 for name in NAMES])
DATASHEET[NAMES.index("overlap")] = UNMEASURED_OVERLAP


@dataclass
class Work:
    """All operations of all figures in one table: ``of`` says which figure's time (``part``) an operation belongs to."""

    anchors: list[Anchor]
    of: list[int] = field(default_factory=list)
    count: list[float] = field(default_factory=list)
    memory_s: list[float] = field(default_factory=list)  # at the datasheet's bandwidth
    compute_s: list[float] = field(default_factory=list)  # at the datasheet's peak
    link_s: list[float] = field(default_factory=list)
    copy: list[int] = field(default_factory=list)
    rate: list[int] = field(default_factory=list)
    attention: list[bool] = field(default_factory=list)
    # Seconds of the experts' weights, how many there are, how many a token visits, tokens.
    experts: list[tuple[float, int, int, int]] = field(default_factory=list)
    fixed: list[Array] = field(default_factory=list)  # per part: how often each constant in microseconds is paid
    pairs: list[tuple[int, int]] = field(default_factory=list)  # per anchor: its part, and the one it is divided by or -1

    def arrays(self) -> dict[str, Array]:
        """The columns."""
        names = ("of", "count", "memory_s", "compute_s", "link_s", "copy", "rate", "attention", "experts", "fixed", "pairs")
        return {name: np.array(getattr(self, name)) for name in names}


def tabulate(table: AnchorTable, profiles: dict[str, HardwareProfile]) -> Work:
    """Every anchor's operations."""
    work = Work(list(table.anchors))
    for anchor in table.anchors:
        if anchor.block is None:
            work.pairs.append((_add(work, table, anchor, profiles[anchor.device], counts_of(anchor)), -1))
            continue
        parts = [_add(work, table, anchor, profiles[anchor.device], [_mean_block(anchor, k)]) for k in _blocks(anchor)]
        work.pairs.append((parts[0], parts[1]))
    return work


def _blocks(anchor: Anchor) -> tuple[int, int]:
    assert anchor.block is not None
    return anchor.block, anchor.block_base


def _mean_block(anchor: Anchor, tokens: int) -> PassCounts:
    counts = block_counts(anchor, tokens)
    return PassCounts(rows=1, query=tokens, context=int(np.mean(counts.context)), logits=0, kept=tokens, causal=True)


def _add(work: Work, table: AnchorTable, anchor: Anchor, profile: HardwareProfile, passes: Sequence[PassCounts]) -> int:
    shape, deployment = table.shape_of(anchor), table.deployment_of(anchor)
    peaks = {str(name): one.value for name, one in profile.peak_flops_per_s.items()}
    bandwidth, link = profile.bandwidth_bytes_per_s.value, link_of(profile, deployment.tensor_parallel)
    link_bytes_per_s = math.inf if link is None else link.rate(deployment.tensor_parallel)
    assert bandwidth is not None and profile.memory_type is not None
    part, metal, total = len(work.fixed), is_metal(profile), 0.0
    for many in passes:
        for weight, counts in _thinned(many):
            total += weight
            sampler = sampler_operation(shape, counts)
            for one in (*count_operations(shape, deployment, counts), *([sampler] if sampler else [])):
                work.of.append(part)
                work.count.append(weight)
                work.memory_s.append(one.memory_bytes(profile.cache_bytes.value) / bandwidth)
                rate, of_peak = _rate(anchor, deployment.stored(one.name), peaks)
                work.compute_s.append(one.flops / of_peak)
                work.link_s.append(one.link_bytes / link_bytes_per_s)
                work.copy.append(NAMES.index(f"copy_{profile.memory_type}"))
                work.rate.append(NAMES.index(rate))
                work.attention.append(metal and one.kind == "attention")
                routed = shape.moe if one.name == "experts" else None
                sizes = (routed.experts, routed.experts_per_token, counts.lines) if routed else (2, 1, 1)
                work.experts.append((one.weight_bytes / bandwidth if routed else 0.0, *sizes))
    fixed = np.zeros(len(NAMES))
    fixed[NAMES.index("layer_us")] = total * shape.layers
    routing = "metal_routing_layer_us" if metal else "routing_layer_us"
    fixed[NAMES.index(routing)] = total * (shape.moe.layers if shape.moe else 0)
    fixed[NAMES.index("all_reduce_us")] = total * 2 * shape.layers * (deployment.tensor_parallel > 1)
    work.fixed.append(fixed)
    return part


def _rate(anchor: Anchor, stored: WeightFormat | None, peaks: dict[str, float | None]) -> tuple[str, float]:
    """The constant of an operation's weights, and the peak that it is a share of."""
    peak = peaks[anchor.rate_dtype] or math.inf
    if stored is None or stored.bits >= 8 * element_bytes(anchor.rate_dtype):
        return "matrix_float8" if anchor.rate_dtype == "float8" else "matrix_float16", peak
    if (native := peaks.get(stored.native)) is not None:
        return "matrix_float8", native
    return "matrix_unpacked" if anchor.engine == "llama.cpp" else "matrix_weight_only", peak


def _thinned(counts: PassCounts) -> list[tuple[float, PassCounts]]:
    """Passes at so many contexts of an array, each with how many it stands for."""
    contexts = np.atleast_1d(counts.context)
    pieces = np.array_split(contexts, min(CONTEXTS, len(contexts)))
    fields: dict[str, Any] = {name: getattr(counts, name) for name in ("rows", "query", "logits", "kept", "causal")}
    return [(float(len(piece)), PassCounts(context=round(float(np.mean(piece))), **fields)) for piece in pieces]


def predicted(columns: dict[str, Array], x: Array) -> Array:
    """Seconds of every anchor, or its ratio of block passes, with the constants ``x``: the arithmetic of price_counts."""
    experts_s, experts, per_token, lines = columns["experts"].T
    independent, found = (
        expected_experts(1, per_token / experts, lines**reuse) for reuse in (1.0, x[NAMES.index("expert_reuse")])
    )
    memory = (columns["memory_s"] + experts_s * (found / independent - 1)) / x[columns["copy"]]
    memory = np.where(columns["attention"], memory / x[NAMES.index("metal_attention")], memory)
    compute = columns["compute_s"] / x[columns["rate"]]
    longer, shorter = np.maximum(memory, compute), np.minimum(memory, compute)
    each = longer + (1 - x[NAMES.index("overlap")]) * shorter + columns["link_s"]
    parts = np.bincount(columns["of"], columns["count"] * each, len(columns["fixed"])) + US * columns["fixed"] @ x
    first, second = columns["pairs"].T
    ratios: Array = np.where(second < 0, parts[first], parts[first] / parts[second])
    return ratios
