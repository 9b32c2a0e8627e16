"""A model of the Llama family as the native kernels read it, and its forward over few tokens as one call of them.

Weights are packed once, beside the module's own. Every token's sums have one order, whatever is fed beside it, so its bits are
the same in every arm. Axes: B rows, Q fed tokens, m wanted logits, V vocabulary, G KV heads, C slots, D head dimension.
"""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from ctypes import addressof, byref, c_int64, c_void_p
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor, nn

from harness.engine.gated_adapter import Columns, GatedEmbedding, GatedLinear
from harness.errors import UnknownModelError
from harness.kernels.library import (
    NAMES,
    ForwardCall,
    PackedLayer,
    PackedModel,
    PackedProduct,
    PackedUp,
    library,
    why_not_built,
)
from harness.models import ModelShape
from harness.models.config import shape_from_config

LANES = 16
"""Outputs of a block of packed weights."""
AHEAD_BYTES = 1 << 13
"""After the last block: the kernels fetch ahead."""
ARENA_BYTES = 1 << 26
"""Of address space at least, taken at a time for packed weights; what is not written takes no memory."""
MODEL_TYPES = {"llama", "mistral", "qwen2", "qwen3"}
STATIC_ROPE = {"default", "linear", "llama3", "yarn"}
"""Kinds of RoPE whose angles do not depend on the length of the context."""


def why_not_native(shape: ModelShape | None, dtype: str) -> str | None:
    """Why the kernels do not take a model of this shape, None where they do."""
    if shape is None:
        return "the model's configuration is not on this machine"
    odd = [size for size in (shape.hidden, shape.intermediate) if size % LANES]
    reasons = {
        f"they take {', '.join(sorted(MODEL_TYPES))}, not {shape.architecture}": shape.architecture not in MODEL_TYPES,
        f"they take {' and '.join(NAMES.values())}, not {dtype}": dtype not in NAMES.values(),
        "they know no sliding window, no experts and no latent attention": bool(shape.sliding_layers or shape.moe or shape.mla),
        f"they take widths that are multiples of {LANES}, and heads of 32, 64 to 256": bool(odd or shape.head_dim % 32),
        f"heads are {shape.head_dim} wide, at most 256 are taken": shape.head_dim > 256,
    }
    return next((words for words, holds in reasons.items() if holds), None) or why_not_built()


class NativeForward:
    """One model on a CPU, packed."""

    def __init__(self, model: Any, level: str = "native") -> None:
        """``level``: of the processor, see kernels.library.

        Raises:
            UnknownModelError: the kernels do not take it. OSError, CalledProcessError: nothing builds them.
        """
        config, name = model.config, str(model.dtype).removeprefix("torch.")
        rope = (getattr(config, "rope_parameters", None) or {}).get("rope_type", "default")
        why = why_not_native(shape_from_config("the model", config.to_dict()), name)
        if rope not in STATIC_ROPE or config.hidden_act != "silu":
            why = f"they know no RoPE of type {rope} with activation {config.hidden_act}"
        if why is not None:
            raise UnknownModelError(f"native forwards of a {config.model_type} model: {why}; use execution: eager")
        kernels, self._dtype = library(level), model.dtype
        self._forward = getattr(kernels, f"sbd_forward_{NAMES[model.dtype]}")
        self._pack = getattr(kernels, f"sbd_pack_{NAMES[model.dtype]}")
        self._held: list[Any] = []
        self._free = torch.empty(0, dtype=torch.uint8)
        self._rotary = model.model.rotary_emb
        self._adapted = hasattr(model, "gate_of_adapter")
        self._model = self._packed(model)

    def use(self, keys: Sequence[Tensor], values: Sequence[Tensor]) -> None:
        """The KV buffers of every layer, (B, G, C, D) each, that the next calls are about. No position is C or more."""
        self._keys, self._values, self._slots = _addresses(keys), _addresses(values), keys[0].shape[2]
        both = self._rotary(torch.zeros(1), torch.arange(self._slots)[None])
        self._cosines, self._sines = (angles[0, :, : self._model.width // 2].contiguous() for angles in both)
        self._model.cosines, self._model.sines = self._cosines.data_ptr(), self._sines.data_ptr()

    def __call__(
        self,
        ids: Tensor,
        positions: Tensor,
        lengths: Sequence[int],
        inside: Tensor,
        fed: Tensor | None,
        columns: Columns,
        wanted: Tensor | int,
    ) -> Tensor:
        """(B, m, V) logits. ``ids``, ``positions`` (B, Q); ``lengths`` (B): committed slots of each row; ``inside`` (Q, Q) and
        ``fed`` (B, Q) bool as in attention_masks; ``wanted``: as wanted_logits gives it.
        """
        rows, tokens = ids.shape
        which = _last(tokens, wanted) if isinstance(wanted, int) else wanted
        adapted = _among(tokens, columns) if columns and self._adapted else None
        logits = torch.empty(rows, len(which), self._model.vocab, dtype=self._dtype)
        given = [None if tensor is None else tensor.contiguous() for tensor in (ids, positions, which, inside, fed, adapted)]
        ids_at, positions_at, *others = (None if tensor is None else tensor.data_ptr() for tensor in given)
        before = (c_int64 * rows)(*lengths)
        call = ForwardCall(
            rows,
            tokens,
            len(which),
            self._slots,
            torch.get_num_threads(),
            ids_at,
            positions_at,
            addressof(before),
            *others,
            addressof(self._keys),
            addressof(self._values),
            logits.data_ptr(),
        )
        self._forward(byref(self._model), byref(call))
        return logits

    def _packed(self, model: Any) -> PackedModel:
        config, body, embeddings = model.config, model.model, model.get_input_embeddings()
        head = model.get_output_embeddings()
        layers = (PackedLayer * len(body.layers))(*map(self._layer, body.layers))
        width = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        masked = isinstance(embeddings, GatedEmbedding)
        return PackedModel(
            layers=layers,
            count=len(layers),
            hidden=config.hidden_size,
            inner=config.intermediate_size,
            heads=config.num_attention_heads,
            groups=config.num_key_value_heads,
            width=width,
            vocab=head.weight.shape[0],
            eps=config.rms_norm_eps,
            scale=width**-0.5,
            last_norm=self._kept(body.norm.weight.float()),
            head=self._product([head]),
            embeddings=self._kept(embeddings.weight),
            mask_id=embeddings.mask_id if masked else -1,
            mask_row=embeddings.num_embeddings if masked else -1,
        )

    def _layer(self, layer: Any) -> PackedLayer:
        attention, inner = layer.self_attn, layer.mlp
        norms = layer.input_layernorm, layer.post_attention_layernorm, *(getattr(attention, f"{of}_norm", None) for of in "qk")
        return PackedLayer(
            self._product([attention.q_proj, attention.k_proj, attention.v_proj]),
            self._product([attention.o_proj]),
            self._product([inner.gate_proj, inner.up_proj], woven=True),
            self._product([inner.down_proj]),
            *(None if norm is None else self._kept(norm.weight.float()) for norm in norms),
        )

    def _product(self, parts: Sequence[nn.Linear], woven: bool = False) -> PackedProduct:
        """Several linear layers of one input as one product; ``woven``: their blocks of outputs in turn."""
        bias = None
        if any(part.bias is not None for part in parts):
            each = (torch.zeros(part.out_features) if part.bias is None else part.bias.float() for part in parts)
            bias = self._kept(_in_blocks(each, woven))
        weights = self._in_pairs(_in_blocks((part.weight for part in parts), woven))
        blocks = sum(-(-part.out_features // LANES) for part in parts)
        terms = [part if isinstance(part, GatedLinear) else None for part in parts]
        if not any(terms):
            return PackedProduct(weights, bias, blocks, parts[0].in_features, None, 0, None)
        downs = [_rows_to_lanes(term.down) for term in terms if term is not None]
        ups, first = [], 0
        for part, term in zip(parts, terms, strict=True):
            of_blocks = [PackedUp(None, 0, 0)] * (part.out_features // LANES)
            if term is not None:
                rank = term.up.shape[1]
                packed = term.up.view(-1, LANES, rank).transpose(1, 2).to(self._dtype).contiguous()
                begin, size = self._kept(packed), rank * LANES * packed.itemsize
                of_blocks = [PackedUp(begin + j * size, rank, first) for j in range(len(packed))]
                first += -(-rank // LANES) * LANES
            ups.append(of_blocks)
        in_order: Iterable[Sequence[PackedUp]] = zip(*ups, strict=True) if woven else ups
        every = [entry for entries in in_order for entry in entries]
        self._held.append(held := (PackedUp * len(every))(*every))
        down = torch.cat(downs).to(self._dtype)
        return PackedProduct(weights, bias, blocks, parts[0].in_features, self._in_pairs(down), len(down) // LANES, held)

    def _in_pairs(self, weight: Tensor) -> int:
        """Pack a matrix (out, in), out a multiple of LANES."""
        weight, (outputs, inputs) = weight.detach().contiguous(), weight.shape
        to = self._room((weight.numel() + AHEAD_BYTES) * weight.itemsize)
        self._pack(c_void_p(weight.data_ptr()), c_int64(outputs), c_int64(inputs), c_void_p(to.data_ptr()))
        return self._kept(to)

    def _room(self, count: int) -> Tensor:
        """So many bytes for packed weights, on large pages where Linux has some: a pass reads each weight once."""
        if len(self._free) < count:
            arena = mmap.mmap(-1, max(count, ARENA_BYTES), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
            with suppress(AttributeError, OSError):  # another system, or a kernel without them
                arena.madvise(mmap.MADV_HUGEPAGE)
            self._free = torch.frombuffer(arena, dtype=torch.uint8)
        room, self._free = self._free[:count], self._free[count:]
        return room

    def _kept(self, tensor: Tensor) -> int:
        """The address of a tensor that lives as long as this object."""
        self._held.append(tensor := tensor.detach().contiguous())
        return tensor.data_ptr()


@lru_cache(maxsize=256)
def _last(tokens: int, wanted: int) -> Tensor:
    """Indices of the last ``wanted`` of so many fed tokens; not to be written to, as what ``_among`` gives."""
    return torch.arange(tokens - wanted, tokens)


@lru_cache(maxsize=256)
def _among(tokens: int, columns: Columns) -> Tensor:
    """(tokens) bool: which of them lie in the columns."""
    found = torch.zeros(tokens, dtype=torch.bool)
    for start, end in columns:
        found[start:end] = True
    return found


def _rows_to_lanes(matrix: Tensor) -> Tensor:
    """With lines of zeros, so that their number is a multiple of LANES."""
    return nn.functional.pad(matrix, (0, 0) * (matrix.dim() - 1) + (0, -matrix.shape[0] % LANES))


def _in_blocks(parts: Iterable[Tensor], woven: bool) -> Tensor:
    """One after the other, filled up to whole blocks; ``woven``: block by block in turn."""
    each = [(full := _rows_to_lanes(part.detach())).view(-1, LANES, *full.shape[1:]) for part in parts]
    return (torch.stack(each, dim=1).flatten(0, 1) if woven else torch.cat(each)).flatten(0, 1)


def _addresses(tensors: Sequence[Tensor]) -> Any:
    return (ctypes.c_void_p * len(tensors))(*(tensor.data_ptr() for tensor in tensors))


def product_alone(inputs: Tensor, weight: Tensor) -> Callable[[], Tensor]:
    """What a pass makes of ``inputs`` (m, in) by one matrix, taken as if it were packed: the head (out, in) of a model without
    layers. Each call gives (m, out); for measuring.
    """
    (tokens, width), outputs = inputs.shape, len(weight)
    ids, norm, zeros = torch.arange(tokens), torch.ones(width), torch.zeros(tokens * tokens + 8, dtype=torch.uint8)
    found, every, none = inputs.new_empty(tokens, outputs), ids.data_ptr(), zeros.data_ptr()
    model = PackedModel(
        hidden=width,
        vocab=outputs,
        last_norm=norm.data_ptr(),
        embeddings=inputs.data_ptr(),
        mask_id=-1,
        head=PackedProduct(weight.data_ptr(), None, outputs // LANES, width),
    )
    call = ForwardCall(
        1, tokens, tokens, 1, torch.get_num_threads(), every, None, none, every, none, None, None, None, None, found.data_ptr()
    )
    forward = getattr(library(), f"sbd_forward_{NAMES[weight.dtype]}")

    def run(held: object = (inputs, weight, ids, norm, zeros)) -> Tensor:  # what the addresses lead to
        forward(byref(model), byref(call))
        return found

    return run
