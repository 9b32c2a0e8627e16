"""Keys and values written to slots of fixed buffers, and what a captured forward knows of them before it reaches a layer.

How much of each row is used stands in tensors, so a graph captured once serves every context length. Slot j of a row holds
its j-th token and is written before anything is read, so each fed token sees the first so many slots of its row, whatever the
visibility of its segment. What depends on shapes alone is made once per capture, what depends on the used lengths once per
forward; a layer writes, and reads. Ways of reading: harness.engine.captured_attention.
Axes: B rows, Q query tokens of all parts, H query heads, G KV heads, D head dimension, C slots of a row.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from harness.decoding.uploading import upload
from harness.engine.kv_cache import KvLayout, LayerKv


@dataclass(frozen=True, slots=True)
class Fed:
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


class Reading(Protocol):
    """What one forward reads, the same in all its layers."""

    def attend(self, query: Tensor, keys: Tensor, values: Tensor, scaling: float | None) -> Tensor:
        """Query (B, H, Q, D) over what it sees of keys and values (B * C, G, D); result (B, Q, H, D)."""


class CapturedAttention(Protocol):
    """A way of reading the buffers, made once for a kind of forward."""

    def read(self, used: Tensor) -> Reading:
        """``used`` (parts, B) int32: the slots that a part sees from the start of its row, with the part itself where it is
        bidirectional, without it where it is causal. Made of operations on the device alone.
        """


@dataclass(frozen=True, slots=True)
class UsedLayer(LayerKv):
    """One layer's buffers, (B * C, G, D), and what the forward knows."""

    keys: Tensor
    values: Tensor
    places: Tensor
    reading: Reading

    def attend(self, query: Tensor, key: Tensor, value: Tensor, scaling: float | None) -> Tensor:
        """See LayerKv. The buffers are written to in place, which torch.compile keeps so: a copy would be all of them."""
        self.keys[self.places] = key.transpose(1, 2).flatten(0, 1)
        self.values[self.places] = value.transpose(1, 2).flatten(0, 1)
        return self.reading.attend(query, self.keys, self.values, scaling)


@dataclass(frozen=True, slots=True)
class UsedKv(KvLayout):
    """``keys``, ``values``: one (B * C, G, D) buffer per layer; ``places`` (B * Q,): where in it each fed token's KV goes."""

    keys: list[Tensor]
    values: list[Tensor]
    places: Tensor
    reading: Reading

    def of_layer(self, layer: int) -> UsedLayer:
        """See KvLayout."""
        return UsedLayer(self.keys[layer], self.values[layer], self.places, self.reading)


class SeenSlots:
    """Tells, of every fed token of a kind of forward, how many slots of its row it sees."""

    def __init__(self, fed: Fed) -> None:
        part = [number for number, (width, _) in enumerate(fed.parts) for _ in range(width)]
        own = [token + 1 if causal else 0 for width, causal in fed.parts for token in range(width)]
        self._part = upload(part, fed.device, torch.long)
        self._own = upload(own, fed.device, torch.int32)

    def of(self, used: Tensor) -> Tensor:
        """(B, Q) int32 from (parts, B): what a token sees of its own causal part comes on top of what the part sees."""
        return used.T[:, self._part] + self._own
