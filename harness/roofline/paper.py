"""The paper's own roofline model (arXiv 2509.04185v1, section 4, fig. 11, eq. 16), digit for digit, and Tables 3 and 4.

``as_printed`` keeps two faults of the printed code, because the published Tables 3 and 4 come from exactly it. The FFN's
inner width is hidden * 16384 where 16384 is meant. The K/V projections are heads * kv_heads = 256 wide where head_dim *
kv_heads = 1024 is meant. ``corrected`` changes these two dimensions only. The bandwidth (3.35 * 1024^4, 10 % above the
part's), the missing gate, LM head, launches and sampler stay as in the paper.

Each difference from the project's own roofline is a field of AdjustableModel: with its defaults it is the paper's model as
printed, with all corrections the datasheet rung of harness.roofline.pricing. It prices all layers of a pass: their number
cancels in the paper's ratios only until a pass does something once. harness.roofline.paper_steps has the order of the
corrections. The published tables, to three decimals, are the two files beside this module.
"""

from __future__ import annotations

import csv
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any, Literal

from harness.errors import UserError
from harness.frozen import frozen, positional
from harness.models import KNOWN_SHAPES
from harness.models.deployment import element_bytes
from harness.record.trace import ForwardPass
from harness.roofline.operation import Operation, describe_pass, linear
from harness.roofline.operations import forward_operations, sampler_operation

PaperMode = Literal["as_printed", "corrected"]

PEAK_FLOPS_PER_S = 1978e12
ATTENTION_PEAK_FLOPS_PER_S = 989e12
BANDWIDTH_BYTES_PER_S = 3.35 * 1024**4
HIDDEN = 4096
FFN = 4 * HIDDEN
HEADS = 32
HEAD_DIM = 128
KV_HEADS = 8

# The grid of the published tables.
BATCH_SIZES = (1, 4, 8, 16)
KV_LENGTHS = (16, 256, 1024, 4096, 16384, 65536, 1048576, 4194304)
BLOCK_SIZES = (1, 2, 4, 8, 16, 32, 64)
SPEEDUP_BATCH_SIZES = (1, 4, 8)
SPEEDUP_BLOCK_SIZES = (8, 16, 32, 64)
NFE_SPEEDUPS = (2, 4, 8)


# The model whose hidden width, heads and head width the paper's constants are (fig. 11; published: config.json).
MODEL = KNOWN_SHAPES["llama-3.1-8b"]


@frozen
class AdjustableModel:
    """The differences between the two rooflines; the defaults are the paper's.

    ``ffn_width``         inner width of the feed-forward network
    ``kv_width``          width of the K projection, and of the V projection
    ``dtype``             of weights, activations and KV cache
    ``linear_flops_per_s``, ``attention_flops_per_s``  peaks of matrix products and of attention
    ``gated_ffn``         a third matrix, the gate
    ``inputs_read_once``  Q, K and V are one operation, and so is the feed-forward network, as in the project's own counts: a
                          shared input is read once, and K and V are as wide as the model's
    ``own_tokens``        attention also covers the tokens of the pass itself, and K and V of those that stay are written; the
                          first pass of a block feeds the block before again and does not find it in the cache
    ``lm_head``, ``elementwise``, ``sampler``  priced, or left out
    ``cache_bytes``       last-level cache, in which activations stay as far as they fit; None: all are moved
    ``overlap``           of memory and arithmetic: 1 side by side, 0 one after the other
    ``lockstep``          a block takes the passes of its slowest row, instead of the mean
    """

    ffn_width: int = HIDDEN * FFN
    kv_width: int = HEADS * KV_HEADS
    bandwidth_bytes_per_s: float = BANDWIDTH_BYTES_PER_S
    dtype: str = "float8"
    linear_flops_per_s: float = PEAK_FLOPS_PER_S
    attention_flops_per_s: float = ATTENTION_PEAK_FLOPS_PER_S
    gated_ffn: bool = False
    inputs_read_once: bool = False
    own_tokens: bool = False
    lm_head: bool = False
    elementwise: bool = False
    sampler: bool = False
    cache_bytes: float | None = None
    overlap: float = 1.0
    lockstep: bool = False

    def pass_s(self, forward_pass: ForwardPass) -> float:
        """Seconds of one pass over all layers: the sum over its operations of max(bytes / bandwidth, flops / peak).

        Without full overlap a share of the smaller of the two comes on top.
        """
        shape = MODEL.model_copy(update={"intermediate": self.ffn_width, "gated_ffn": self.gated_ffn})
        ours = {operation.name: operation for operation in forward_operations(shape, self.dtype, forward_pass)}
        q, k, v, o, *ffn = self._products(forward_pass)
        qkv = [q, k, v]
        if self.inputs_read_once:
            qkv, ffn = [ours["qkv"]], [ours["ffn"]]
        attention = [ours["attention"], ours["kv_write"]] if self.own_tokens else [self._cached_attention(forward_pass)]
        once = [ours["elementwise"]] * self.elementwise + [ours["lm_head"]] * self.lm_head
        sampler = sampler_operation(shape, forward_pass) if self.sampler else None
        forward_s = sum(self._time_s(operation) for operation in (*qkv, *attention, o, *ffn, *once))
        return forward_s + (0.0 if sampler is None else self._time_s(sampler))

    def _time_s(self, operation: Operation) -> float:
        peak = self.attention_flops_per_s if operation.kind == "attention" else self.linear_flops_per_s
        memory_s: float = operation.memory_bytes(self.cache_bytes) / self.bandwidth_bytes_per_s
        compute_s = operation.flops / peak
        return max(memory_s, compute_s) + (1 - self.overlap) * min(memory_s, compute_s)

    def _products(self, forward_pass: ForwardPass) -> list[Operation]:
        """The matrix products of the layers, each reading its input and writing its output (fig. 11): Q, K, V, O, FFN."""
        query_width = MODEL.heads * MODEL.head_dim
        widths = [(MODEL.hidden, query_width), *[(MODEL.hidden, self.kv_width)] * 2, (query_width, MODEL.hidden)]
        widths += [(MODEL.hidden, self.ffn_width)] * (2 if self.gated_ffn else 1) + [(self.ffn_width, MODEL.hidden)]
        size, lines = element_bytes(self.dtype), forward_pass.rows * forward_pass.padded_query
        return [
            linear("product", MODEL.layers, lines, read * written, read * written * size, (read + written) * size)
            for read, written in widths
        ]

    def _cached_attention(self, forward_pass: ForwardPass) -> Operation:
        """Fig. 11's fused attention: Q, output, and the cache, which every query meets."""
        lines, keys = forward_pass.rows * forward_pass.padded_query, forward_pass.padded_context
        query_width, kv_width = MODEL.heads * MODEL.head_dim, MODEL.kv_heads * MODEL.head_dim
        size = element_bytes(self.dtype)
        return Operation(
            name="attention",
            kind="attention",
            tokens=forward_pass.padded_query,
            flops=4 * MODEL.layers * lines * keys * query_width,
            kv_bytes=2 * MODEL.layers * forward_pass.rows * keys * kv_width * size,
            activation_bytes=2 * MODEL.layers * lines * query_width * size,
            pieces=MODEL.layers,
        )


@positional
class PaperCell:
    """The axes of Tables 3 and 4; Table 4 has the NFE speedup as a further axis."""

    batch_size: int
    kv_length: int
    block_size: int


def slowdown(model: AdjustableModel, cell: PaperCell) -> float:
    """time(k) / time(1), Table 3."""
    ntp_s, _, later_s = _three_passes_s(model, cell)
    return later_s / ntp_s


def wall_speedup(model: AdjustableModel, cell: PaperCell, mean_passes: float, slowest_passes: float) -> float:
    """k * time(1) / (time(2k) + (l - 1) * time(k)), eq. 16 and Table 4; l is the mean of a row, or that of the slowest row."""
    ntp_s, first_s, later_s = _three_passes_s(model, cell)
    passes = slowest_passes if model.lockstep else mean_passes
    return cell.block_size * ntp_s / (first_s + (passes - 1) * later_s)


@cache
def _three_passes_s(model: AdjustableModel, cell: PaperCell) -> tuple[float, float, float]:
    """Seconds of an NTP pass, of the first pass of a block and of a later one."""
    batch, context, k = cell.batch_size, cell.kv_length, cell.block_size
    previous = min(k, context) if model.own_tokens else k
    cached = context - previous if model.own_tokens else context
    ntp = describe_pass("decide", batch, 1, context, logits=1, kept=1)
    first = describe_pass("commit+decide", batch, previous + k, cached, logits=k, kept=previous)
    later = describe_pass("decide", batch, k, context, logits=k)
    return model.pass_s(ntp), model.pass_s(first), model.pass_s(later)


MODES: dict[PaperMode, AdjustableModel] = {
    "as_printed": AdjustableModel(),
    "corrected": AdjustableModel(ffn_width=FFN, kv_width=HEAD_DIM * KV_HEADS),
}


TABLES_VERSION = 1


def paper_tables(mode: PaperMode | None) -> dict[str, Any]:
    """``{"version", "mode", "table3": 224 rows with ``slowdown``, "table4": 288 rows with ``wall_speedup``}``.

    Without a mode (``both`` in the answer) the printed figure stands under its name, beside it ``<name>_corrected``.

    Raises:
        UserError: the mode is neither ``as_printed`` nor ``corrected``.
    """
    model = MODES.get(mode or "as_printed")
    if model is None:
        raise UserError(f"the paper's model has the modes {', '.join(MODES)}; given was {mode!r}")
    table3 = [
        {"batch_size": batch, "kv_length": kv, "block_size": k, "slowdown": slowdown(model, PaperCell(batch, kv, k))}
        for batch, kv, k in product(BATCH_SIZES, KV_LENGTHS, BLOCK_SIZES)
    ]
    table4 = [
        {"batch_size": batch, "nfe_speedup": speedup, "kv_length": kv, "block_size": k}
        | {"wall_speedup": wall_speedup(model, PaperCell(batch, kv, k), k / speedup, k / speedup)}
        for batch, speedup, kv, k in product(SPEEDUP_BATCH_SIZES, NFE_SPEEDUPS, KV_LENGTHS, SPEEDUP_BLOCK_SIZES)
    ]
    if mode is None:
        corrected = paper_tables("corrected")
        for row, other in zip((*table3, *table4), (*corrected["table3"], *corrected["table4"]), strict=True):
            figure = "slowdown" if "slowdown" in row else "wall_speedup"
            row[f"{figure}_corrected"] = other[figure]
    return {"version": TABLES_VERSION, "mode": mode or "both", "table3": table3, "table4": table4}


Published = dict[tuple[int, ...], float]
"""A figure by its axes."""


@cache
def published_slowdowns() -> Published:
    """Table 3: (batch size, KV length, block size) to time(k) / time(1), 224 cells."""
    return _published("paper_table3.csv", "slowdown", "batch_size", "kv_length", "block_size")


@cache
def published_speedups() -> Published:
    """Table 4: (batch size, KV length, block size, NFE speedup) to the wall speedup, 288 cells."""
    return _published("paper_table4.csv", "speedup", "batch_size", "kv_length", "block_size", "nfe_speedup")


def _published(file: str, figure: str, *axes: str) -> Published:
    with Path(__file__).with_name(file).open(encoding="utf-8", newline="") as lines:
        return {tuple(int(row[axis]) for axis in axes): float(row[figure]) for row in csv.DictReader(lines)}
