"""KV buffers that are allocated once and written in place, and the attention that reads their used part.

transformers lets a model take its attention from outside (AttentionInterface); ours also keeps the cache. Any model whose
layers call that interface runs unmodified, without a Cache object and without a copy of the context per pass. Slot j of row b
holds the row's j-th committed token: rows have no holes, whatever each of them kept.

SlotLayout gives slots by number and a mask, anew for every forward. UsedKv keeps the used length of each row in tensors, so a
graph captured once serves every context length. A slot is written before anything is read. Each fed token sees the first so
many slots of its row, whatever the visibility. What depends on shapes alone is made once per capture, what depends on the used
lengths once per forward. harness.engine.captured_attention has the kernels that read.

Axes: B rows, H query heads, G KV heads, Q fed tokens of all parts, C slots of a row, D head dimension.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface

from harness.decoding.session import upload
from harness.errors import UnknownModelError
from harness.frozen import positional

NAME = "sbd_used_kv"


@dataclass(slots=True)
class SlotLayout:
    """Slots by number and, where one is needed, a mask: made anew for every forward. Goes from the session through transformers
    to ``attend``.

    ``keys``, ``values``  one (B, G, C, D) buffer per layer
    ``rows``              (B,) the buffers' rows that this forward is about, which then each have ``slots``; None: all
    ``start``             first slot written, where all rows write the same run of slots; None: each row its own ``slots``
    ``slots``             (B, Q) slot of every fed token; padding goes to the last slot, which nothing reads
    ``width``             slots read: the longest row's committed and fed tokens
    ``causal``            how many of the first tokens look at themselves and what was fed before them: those of a prompt,
                          before which nothing is committed
    ``places``            (B, causal) where each of these comes among its row's real ones, padding after them; None: as fed
    ``mask``              what the others may look at, see attention_masks.folded_mask; None: every slot read
    """

    keys: list[Tensor]
    values: list[Tensor]
    rows: Tensor | None
    start: int | None
    slots: Tensor
    width: int
    causal: int
    places: Tensor | None
    mask: Tensor | None

    def of_layer(self, layer: int) -> LayerSlots:
        """The same of one layer, by its number."""
        return LayerSlots(self.keys[layer], self.values[layer], self)


def causal_attention(query: Tensor, keys: Tensor, values: Tensor, places: Tensor | None, scaling: float | None) -> Tensor:
    """Causal attention without a mask: the n-th real query of a row sees its first n keys. Query (B, H, Q, D), keys and values
    (B, G, Q, D), result (B, H, Q, D). ``places``: see SlotLayout; the result of padding has no meaning.
    """
    index = None if places is None else places[:, None, :, None].expand_as(query)
    asked = query if index is None else torch.empty_like(query).scatter_(2, index, query)
    out = nn.functional.scaled_dot_product_attention(
        asked, keys, values, is_causal=True, scale=scaling, enable_gqa=query.shape[1] != keys.shape[1]
    )
    return out if index is None else out.gather(2, index)


@dataclass(slots=True)
class LayerSlots:
    """One layer of a SlotLayout."""

    keys: Tensor
    values: Tensor
    layout: SlotLayout

    def attend(self, query: Tensor, key: Tensor, value: Tensor, scaling: float | None) -> Tensor:
        """Write the fed keys and values (B, G, Q, D), attend to the first ``width`` slots: query (B, H, Q, D), result
        (B, Q, H, D).
        """
        layout, keys, values = self.layout, self.keys, self.values
        if layout.start is not None:
            end = layout.start + key.shape[2]
            keys[:, :, layout.start : end] = key
            values[:, :, layout.start : end] = value
        else:
            rows = (torch.arange(key.shape[0], device=key.device) if layout.rows is None else layout.rows)[:, None]
            keys[rows, :, layout.slots] = key.transpose(1, 2)
            values[rows, :, layout.slots] = value.transpose(1, 2)
        every = slice(None) if layout.rows is None else layout.rows
        keys, values = keys[every, :, : layout.width], values[every, :, : layout.width]
        outs = []
        if layout.causal:
            asked, seen, said = (tensor[:, :, : layout.causal] for tensor in (query, keys, values))
            outs.append(causal_attention(asked, seen, said, layout.places, scaling))
        if layout.causal < query.shape[2]:
            outs.append(folded_attention(query[:, :, layout.causal :], keys, values, layout.mask, scaling))
        out = outs[0] if len(outs) == 1 else torch.cat(outs, dim=2)
        return out.transpose(1, 2).contiguous()


def folded_attention(query: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None, scaling: float | None) -> Tensor:
    """Attention with the heads that share a KV head as further queries of it, so that each KV head is read once.

    Query (B, H, Q, D), keys and values (B, G, W, D), result (B, H, Q, D). ``mask``: of attention_masks.folded_mask, or None.
    With one query a row this is five to seven times as fast on a CPU as leaving the sharing to the kernel. In half precision a
    single query with a KV head of its own is asked twice. The kernel then takes half as long (bfloat16; float16: six sevenths).
    """
    rows, heads, queries, width = query.shape
    groups = keys.shape[1]
    shared = heads // groups
    folded = query.reshape(rows, groups, shared * queries, width)
    alone = folded.shape[2] == 1 and query.device.type == "cpu" and query.dtype.itemsize == 2
    if alone:
        folded = folded.expand(-1, -1, 2, -1)
    out = nn.functional.scaled_dot_product_attention(folded, keys, values, attn_mask=mask, scale=scaling)
    return out[:, :, : shared * queries].reshape(rows, heads, queries, width)


READ = {"kv", "layout", "output_router_logits", "position_ids", "scaling", "use_cache"}
"""What an attention of ours reads, or what changes nothing where it is called."""


def refuse_options(options: Mapping[str, object]) -> None:
    """Refuse what a model asks of its attention and ours would leave out, such as the soft cap of Gemma 2.

    Raises:
        UnknownModelError: an option is not READ, and not off.
    """
    asked = [name for name, value in options.items() if name not in READ and (isinstance(value, Tensor) or value)]
    if asked:
        raise UnknownModelError(
            f"the model's attention asks for {', '.join(asked)}, which this program's does not have; give another model, or "
            "in a scenario session: plain and attention: eager, which is the model's own attention"
        )


def attend(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, **options: Any
) -> tuple[Tensor, None]:
    """transformers' attention interface; result (B, Q, H, D). The options hold the forward's ``layout``, or ``kv``, which is
    already of this layer; others are refused.
    """
    refuse_options(options)
    kv: LayerSlots | UsedLayer = options["kv"] if "kv" in options else options["layout"].of_layer(module.layer_idx)
    return kv.attend(query, key, value, options.get("scaling")), None


AttentionInterface.register(NAME, attend)
AttentionMaskInterface.register(NAME, lambda *arguments, **options: None)  # the layout brings the mask


@positional
class ForwardKind:
    """The shapes of one kind of forward. ``parts``: every run of fed tokens as (tokens, whether it is causal within itself)."""

    parts: tuple[tuple[int, bool], ...]
    rows: int
    heads: int
    groups: int
    slots: int
    dtype: torch.dtype
    device: torch.device

    @property
    def shared(self) -> int:
        """Query heads of a KV head."""
        return self.heads // self.groups


class Attending(Protocol):
    """What one forward reads, the same in all its layers."""

    def attend(self, query: Tensor, keys: Tensor, values: Tensor, scaling: float | None) -> Tensor:
        """Query (B, H, Q, D) over what it sees of keys and values (B * C, G, D); result (B, Q, H, D)."""


class CapturedAttention(Protocol):
    """Reads the buffers; made once for a kind of forward."""

    def read(self, used: Tensor) -> Attending:
        """``used`` (parts, B) int32: the slots that a part sees from the start of its row. They include a bidirectional part
        itself, not a causal one. Uses operations on the device alone.
        """


@positional
class UsedLayer:
    """One layer's buffers, (B * C, G, D), and what the forward knows."""

    keys: Tensor
    values: Tensor
    places: Tensor
    reading: Attending

    def attend(self, query: Tensor, key: Tensor, value: Tensor, scaling: float | None) -> Tensor:
        """As LayerSlots.attend. The buffers are written to in place, also under torch.compile: a copy would be all of them."""
        self.keys[self.places] = key.transpose(1, 2).flatten(0, 1)
        self.values[self.places] = value.transpose(1, 2).flatten(0, 1)
        return self.reading.attend(query, self.keys, self.values, scaling)


@positional
class UsedKv:
    """``keys``, ``values``: one (B * C, G, D) buffer per layer; ``places`` (B * Q,): where in it each fed token's KV goes."""

    keys: list[Tensor]
    values: list[Tensor]
    places: Tensor
    reading: Attending

    def of_layer(self, layer: int) -> UsedLayer:
        """The same of one layer, by its number."""
        return UsedLayer(self.keys[layer], self.values[layer], self.places, self.reading)


class SeenSlots:
    """The number of slots of its row that every fed token of a kind of forward sees."""

    def __init__(self, fed: ForwardKind) -> None:
        part = [number for number, (width, _) in enumerate(fed.parts) for _ in range(width)]
        own = [token + 1 if causal else 0 for width, causal in fed.parts for token in range(width)]
        self._part = upload(part, fed.device, torch.long)
        self._own = upload(own, fed.device, torch.int32)

    def of(self, used: Tensor) -> Tensor:
        """(B, Q) int32 from (parts, B): a token also sees its own causal part up to itself."""
        return used.T[:, self._part] + self._own
