"""One adjustable model between the paper's roofline and the project's own: their differences are changed one at a time.

An AdjustableModel with its defaults is the paper's model as printed (harness.roofline.paper). With all corrections it is the
datasheet rung of harness.roofline.pricing. Tests check both ends. It prices all layers of a pass: their number cancels in
the paper's ratios only until a pass does something once. harness.roofline.paper_steps holds the order of the corrections.
"""

from __future__ import annotations

from dataclasses import dataclass

from harness.models import KNOWN_SHAPES
from harness.models.deployment import element_bytes
from harness.record.trace import ForwardPass
from harness.roofline import paper
from harness.roofline.operation import Operation, linear
from harness.roofline.operations import forward_operations, sampler_operation
from harness.roofline.speedup import describe_pass

# The model whose hidden width, heads and head width the paper's constants are (fig. 11; published: config.json).
MODEL = KNOWN_SHAPES["llama-3.1-8b"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AdjustableModel:
    """The differences between the two rooflines; the defaults are the paper's.

    ``ffn_width``         inner width of the feed-forward network
    ``kv_width``          width of the K projection, and of the V projection
    ``dtype``             of weights, activations and KV cache
    ``linear_flops_per_s``, ``attention_flops_per_s``  peaks of matrix products and of attention
    ``gated_ffn``         a third matrix, the gate
    ``inputs_read_once``  Q, K and V are one operation, and so is the feed-forward network: a shared input is read once
    ``own_tokens``        attention also covers the tokens of the pass itself, and K and V of those that stay are written; the
                          first pass of a block feeds the block before again and does not find it in the cache
    ``lm_head``, ``elementwise``, ``sampler``  priced, or left out
    ``cache_bytes``       last-level cache, in which activations stay as far as they fit; None: all are moved
    ``overlap``           of memory and arithmetic: 1 side by side, 0 one after the other
    ``lockstep``          a block takes the passes of its slowest row, instead of the mean
    """

    ffn_width: int = paper.HIDDEN * paper.FFN
    kv_width: int = paper.HEADS * paper.KV_HEADS
    bandwidth_bytes_per_s: float = paper.BANDWIDTH_BYTES_PER_S
    dtype: str = "float8"
    linear_flops_per_s: float = paper.PEAK_FLOPS_PER_S
    attention_flops_per_s: float = paper.ATTENTION_PEAK_FLOPS_PER_S
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
        q, k, v, o, *ups, down = self._products(forward_pass)
        qkv, ffn = ([q, k, v], [*ups, down])
        if self.inputs_read_once:
            qkv, ffn = [self._joined(qkv, 2, forward_pass)], [self._joined(ffn, len(ups) - 1, forward_pass)]
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

    def _joined(self, products: list[Operation], repeated: int, forward_pass: ForwardPass) -> Operation:
        """One operation that reads the hidden state once, where the products alone read it ``repeated`` times more."""
        lines = forward_pass.rows * forward_pass.padded_query
        saved = repeated * MODEL.layers * lines * MODEL.hidden * element_bytes(self.dtype)
        return Operation(
            name="joined",
            kind="linear",
            tokens=lines,
            flops=sum(product.flops for product in products),
            weight_bytes=sum(product.weight_bytes for product in products),
            activation_bytes=sum(product.activation_bytes for product in products) - saved,
            pieces=MODEL.layers,
        )

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


@dataclass(frozen=True, slots=True, kw_only=True)
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


def _three_passes_s(model: AdjustableModel, cell: PaperCell) -> tuple[float, float, float]:
    """Seconds of an NTP pass, of the first pass of a block and of a later one."""
    batch, context, k = cell.batch_size, cell.kv_length, cell.block_size
    previous = min(k, context) if model.own_tokens else k
    cached = context - previous if model.own_tokens else context
    ntp = describe_pass("decide", batch, 1, context, logits=1, kept=1)
    first = describe_pass("commit+decide", batch, previous + k, cached, logits=k, kept=previous)
    later = describe_pass("decide", batch, k, context, logits=k)
    return model.pass_s(ntp), model.pass_s(first), model.pass_s(later)
