"""What one forward pass computes and moves, operation by operation, in exact counts; no hardware and no time.

Every weight is read once per pass. Rows are padded to equal length, so the matrices have rows * padded_query lines and
attention covers padded_context + padded_query keys for every query: that is what dense kernels compute. Counted are the
bytes that a pass cannot avoid (weights, KV cache) and the activations each operation reads and writes; what a particular
implementation moves on top (a repeated K/V, a copied cache) is not.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from harness.errors import UserError
from harness.modelshape import DTYPE_BYTES, ModelShape
from harness.trace import ForwardPass

OperationKind = Literal["linear", "attention", "memory", "sampler"]

LOGIT_BYTES = 4  # the sampler works in float32 whatever the model's dtype
# Sweeps over the logits: write as float32, softmax (read, write), entropy (read), argmax (read). A fused sampler needs fewer.
SAMPLER_SWEEPS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One operation of one pass, summed over the layers.

    ``tokens`` are the lines m of its matrix product (per row for attention), which decide the matrix rate it can reach;
    ``logits`` are set for the sampler only.
    """

    name: str
    kind: OperationKind
    tokens: int
    flops: int = 0
    weight_bytes: int = 0
    kv_bytes: int = 0
    activation_bytes: int = 0
    logits: int = 0

    @property
    def bytes_(self) -> int:
        """All bytes this operation reads or writes."""
        return self.weight_bytes + self.kv_bytes + self.activation_bytes


def element_bytes(dtype: str) -> int:
    """Bytes of one element.

    Raises:
        UserError: the dtype is not one the arithmetic knows.
    """
    if dtype not in DTYPE_BYTES:
        raise UserError(f"unknown dtype {dtype!r}; known are {', '.join(DTYPE_BYTES)}")
    return DTYPE_BYTES[dtype]


def forward_operations(shape: ModelShape, dtype: str, forward_pass: ForwardPass) -> tuple[Operation, ...]:
    """The operations of one forward pass, in the order they run. The sampler is not part of a forward pass.

    The weight bytes add up to ``shape.streamed_params``. The LM head runs for as many positions in every row as in the
    row with most, and is left out where no logits are wanted.

    Raises:
        UserError: unknown dtype.
    """
    size = element_bytes(dtype)
    lines = forward_pass.rows * forward_pass.padded_query
    operations = [
        _qkv(shape, size, lines),
        _attention(shape, size, forward_pass),
        _kv_write(shape, size, forward_pass),
        _output_projection(shape, size, lines),
        _ffn(shape, size, lines),
        _elementwise(shape, size, lines),
    ]
    if logit_lines(forward_pass):
        operations.append(_lm_head(shape, size, logit_lines(forward_pass)))
    return tuple(operations)


def sampler_operation(shape: ModelShape, forward_pass: ForwardPass) -> Operation | None:
    """Softmax, entropy and argmax over the logits of a pass; None where the pass wants no logits."""
    logits = logit_lines(forward_pass) * shape.vocab
    if not logits:
        return None
    moved = SAMPLER_SWEEPS * LOGIT_BYTES * logits
    return Operation(name="sampler", kind="sampler", tokens=logit_lines(forward_pass), activation_bytes=moved, logits=logits)


def logit_lines(forward_pass: ForwardPass) -> int:
    """Lines of the LM head's product: rows times the most logits wanted in a row."""
    return forward_pass.rows * max(forward_pass.logit_tokens, default=0)


def _qkv(shape: ModelShape, size: int, lines: int) -> Operation:
    width = (shape.heads + 2 * shape.kv_heads) * shape.head_dim
    weights = shape.hidden * width + (width if shape.qkv_bias else 0)
    return Operation(
        name="qkv",
        kind="linear",
        tokens=lines,
        flops=2 * shape.layers * lines * shape.hidden * width,
        weight_bytes=shape.layers * weights * size,
        activation_bytes=shape.layers * lines * (shape.hidden + width) * size,
    )


def _attention(shape: ModelShape, size: int, forward_pass: ForwardPass) -> Operation:
    """Scores and weighted sum: 2 * 2 flops per query, key and head element. Reads the cached K and V of every row once."""
    query, rows = forward_pass.padded_query, forward_pass.rows
    keys = forward_pass.padded_context + query
    q_width, kv_width = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    return Operation(
        name="attention",
        kind="attention",
        tokens=query,
        flops=4 * shape.layers * rows * query * keys * q_width,
        kv_bytes=2 * shape.layers * rows * forward_pass.padded_context * kv_width * size,
        activation_bytes=2 * shape.layers * rows * query * (q_width + kv_width) * size,
    )


def _kv_write(shape: ModelShape, size: int, forward_pass: ForwardPass) -> Operation:
    kept = sum(forward_pass.kept_tokens)
    written = 2 * shape.layers * kept * shape.kv_heads * shape.head_dim * size
    return Operation(name="kv_write", kind="memory", tokens=kept, kv_bytes=written)


def _output_projection(shape: ModelShape, size: int, lines: int) -> Operation:
    width = shape.heads * shape.head_dim
    return Operation(
        name="o",
        kind="linear",
        tokens=lines,
        flops=2 * shape.layers * lines * width * shape.hidden,
        weight_bytes=shape.layers * width * shape.hidden * size,
        activation_bytes=shape.layers * lines * (width + shape.hidden) * size,
    )


def _ffn(shape: ModelShape, size: int, lines: int) -> Operation:
    inputs = 2 if shape.gated_ffn else 1
    return Operation(
        name="ffn",
        kind="linear",
        tokens=lines,
        flops=2 * shape.layers * lines * shape.ffn_params,
        weight_bytes=shape.layers * shape.ffn_params * size,
        activation_bytes=shape.layers * lines * (2 * shape.hidden + (inputs + 1) * shape.intermediate) * size,
    )


def _elementwise(shape: ModelShape, size: int, lines: int) -> Operation:
    """Norms (read, write), residual additions (two reads, a write), rotation of Q and K, activation; the embedding look-up.

    A fused implementation moves less; it is small either way, and its arithmetic is not counted.
    """
    rotated = 2 * (shape.heads + shape.kv_heads) * shape.head_dim
    activated = (3 if shape.gated_ffn else 2) * shape.intermediate
    per_layer = (2 * 2 + 2 * 3) * shape.hidden + rotated * (2 if shape.qk_norm else 1) + activated
    norm_weights = shape.layers * (2 * shape.hidden + (2 * shape.head_dim if shape.qk_norm else 0)) + shape.hidden
    moved = lines * (shape.layers * per_layer + (2 + 2) * shape.hidden)
    return Operation(
        name="elementwise", kind="memory", tokens=lines, weight_bytes=norm_weights * size, activation_bytes=moved * size
    )


def _lm_head(shape: ModelShape, size: int, lines: int) -> Operation:
    return Operation(
        name="lm_head",
        kind="linear",
        tokens=lines,
        flops=2 * lines * shape.hidden * shape.vocab,
        weight_bytes=shape.embedding_params * size,
        activation_bytes=lines * (shape.hidden + shape.vocab) * size,
    )
