"""The fast model session: KV buffers allocated once, written in place, read as far as they are used; the same for every arm.

A batch that is decoded anew need not read its prompts again. Decoding writes after the prompts only, so their keys and values
are still in the buffers, to the last bit, without memory of their own. Axes: B rows, Q tokens of a forward, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from harness.decoding.session import Segment, upload
from harness.engine.attention_masks import folded_mask, inside, validity, wanted_logits
from harness.engine.gated_adapter import adapted_columns, adapter_on
from harness.engine.kv_cache import NAME, SlotLayout
from harness.engine.native_forward import NativeForward
from harness.frozen import positional
from harness.scenario.part import Execution


@positional
class HeldPrompts:
    """The prompts in a session's buffers. ``logits`` (B, m, V) came of ``segment``, fed alone with nothing before it."""

    segment: Segment
    logits: Tensor
    lengths: tuple[int, ...]

    @classmethod
    def of(cls, segments: Sequence[Segment], logits: Tensor) -> HeldPrompts | None:
        """What a forward with nothing before it leaves; None unless it was over prompts alone."""
        segment = segments[0]
        if len(segments) > 1 or segment.visibility != "causal" or segment.logits > 1 or segment.read is not None:
            return None
        rows, width = segment.tokens.shape
        lengths = (width,) * rows if segment.valid is None else tuple(segment.valid.sum(dim=1).tolist())
        # The caller may write to the segment and to the logits.
        return cls(replace(segment, tokens=segment.tokens.clone()), logits.clone(), lengths)

    def answers(self, segments: Sequence[Segment]) -> bool:
        """Whether a forward over ``segments``, with nothing before them, is the one that is held."""
        held, asked = self.segment, segments[0]
        return (
            len(segments) == 1
            and all(getattr(asked, name) == getattr(held, name) for name in ("visibility", "logits", "read", "adapted"))
            and all(_same(getattr(asked, name), getattr(held, name)) for name in ("valid", "positions", "tokens"))
        )


def _same(one: Tensor | None, other: Tensor | None) -> bool:
    return one is other if one is None or other is None else torch.equal(one, other)


CPU = torch.device("cpu")
MOST_READ = 3 / 4
"""Of the rows of a batch: where more are read, all are computed."""


class StaticSession:
    """A harness.decoding.session.ModelSession over one loaded model of the Llama family. With several ``ranks`` it is over this
    one's share of the heads.

    Buffers are kept between batches and allocated anew only where a batch needs more rows or slots. ``execution``: native
    forwards after a prompt; prompts are always read eagerly. ``leaves_out``: prompts that are still in the buffers are not
    read again, and eager forwards skip rows that nobody reads. A timed batch never does that.
    """

    def __init__(
        self, model: PreTrainedModel, execution: Execution = "eager", ranks: int = 1, leaves_out: bool = False
    ) -> None:
        self._model = model
        self._ranks = ranks
        self._shared = model.config.num_attention_heads // model.config.num_key_value_heads
        model.set_attn_implementation(NAME)
        self._native = NativeForward(model) if execution == "native" else None
        self._leaves_out = leaves_out
        self._keys: list[Tensor] = []
        self._values: list[Tensor] = []
        self._lengths: list[int] = []
        self._held: HeldPrompts | None = None
        self._fed: Tensor | None = None
        self._query = 0
        # A mask of four dimensions is what transformers passes on untouched; ours travels in the layout.
        self._placeholder = torch.zeros(1, 1, 1, 1, dtype=torch.bool, device=model.device)

    @property
    def context_tokens(self) -> tuple[int, ...]:
        """Committed KV entries of each row."""
        return tuple(self._lengths)

    @property
    def context_width(self) -> int:
        """Cache slots that a forward reads per row, its own tokens not counted."""
        return max(self._lengths, default=0)

    def reset(self, rows: int, capacity: int) -> None:
        """Forget what is committed and make room for ``rows`` rows of ``capacity`` tokens, one slot more for padding; no rows
        give the buffers back.
        """
        self._lengths = [0] * rows
        if not rows:
            self._release()
        held = self._keys[0].shape if self._keys else (0, 0, 0, 0)
        if rows and (held[0] != rows or held[2] <= capacity):
            config: Any = self._model.config
            heads = config.num_key_value_heads // self._ranks
            self._allocate(config.num_hidden_layers, rows, heads, capacity + 1, head_dim_of(config))
            if self._native is not None:
                self._native.use(self._keys, self._values)

    def _release(self) -> None:
        """Drop the buffers and all that refers to them."""
        self._keys, self._values, self._held = [], [], None

    def _allocate(self, layers: int, rows: int, heads: int, slots: int, width: int) -> None:
        """New buffers; their content does not matter, but no value may be NaN."""
        self._release()
        shape = (rows, heads, slots, width)
        self._keys, self._values = (
            [torch.zeros(shape, dtype=self._model.dtype, device=self._model.device) for _ in range(layers)] for _ in range(2)
        )

    @torch.no_grad()
    def forward(self, segments: Sequence[Segment]) -> Tensor:
        """Run one forward pass; (B, m, V) logits of the wanted tokens, m their number."""
        tokens = torch.cat([s.tokens for s in segments], dim=1)
        positions = torch.cat([s.positions for s in segments], dim=1)
        self._query = tokens.shape[1]
        self._fed = validity(segments)
        held, self._held = self._held, None  # a failed forward leaves undefined content
        if any(self._lengths):
            logits = self._computed(segments, tokens, positions)
            # After what is committed of each row, no prompt is written over.
            kept = held is not None and all(own <= now for own, now in zip(held.lengths, self._lengths, strict=True))
            self._held = held if kept else None
        elif held is not None and held.answers(segments):
            logits, self._held = held.logits.clone(), held
        else:
            logits = self._computed(segments, tokens, positions)
            self._held = HeldPrompts.of(segments, logits) if self._leaves_out else None
        return logits

    def _computed(self, segments: Sequence[Segment], tokens: Tensor, positions: Tensor) -> Tensor:
        """``tokens`` and ``positions``, (B, Q), are those of the segments."""
        columns, wanted = adapted_columns(segments), wanted_logits(segments, tokens.device)
        if self._native is not None and any(self._lengths):
            return self._native(tokens, positions, self._lengths, inside(segments), self._fed, columns, wanted)
        rows = self._rows_read(segments) if self._leaves_out else None
        if rows is not None:
            tokens, positions = tokens[rows], positions[rows]
        layout = self._layout(segments, rows, tokens.device)
        with adapter_on(self._model, columns):
            out = self._model(
                input_ids=tokens,
                position_ids=positions,
                attention_mask=self._placeholder,
                use_cache=False,
                logits_to_keep=wanted,
                layout=layout,
            )
        logits: Tensor = out.logits
        if rows is None:
            return logits
        return logits.new_zeros(len(self._lengths), *logits.shape[1:]).index_copy_(0, rows, logits)

    def _rows_read(self, segments: Sequence[Segment]) -> Tensor | None:
        """The rows that feed anything whose logits are read. None for nearly all rows: copying their KV out of the buffers then
        costs more than it saves.
        """
        read = torch.ones(len(self._lengths), dtype=torch.bool) if self._fed is None else self._fed.any(dim=1)
        for segment in segments:
            if segment.read is not None:
                read = read & torch.tensor(segment.read)
        return None if int(read.sum()) > MOST_READ * len(read) else upload(read.nonzero()[:, 0], self._placeholder.device)

    def keep(self, tokens: Sequence[int]) -> None:
        """Commit, per row, the KV of the first so many tokens of the last forward; the next one writes over the rest."""
        for row, count in enumerate(tokens):
            self._lengths[row] += count if self._fed is None else int(self._fed[row, :count].sum())

    def drop(self, tokens: Sequence[int]) -> None:
        """Forget, per row, the newest so many committed tokens; the next forward writes over them."""
        for row, count in enumerate(tokens):
            self._lengths[row] -= count

    def read(self, tokens: Tensor) -> list[list[int]]:
        """The sampler's tokens, on the host."""
        return tokens.tolist()

    def _layout(self, segments: Sequence[Segment], rows: Tensor | None, device: torch.device) -> SlotLayout:
        lengths, fed, query = self._lengths, self._fed, self._query
        if rows is not None:
            lengths, fed = [lengths[row] for row in rows.tolist()], None if fed is None else fed[rows.cpu()]
        even = len(set(lengths)) == 1
        start = lengths[0] if even and fed is None and rows is None else None
        width = max(lengths) + query
        slots = self._slots(lengths, fed, device) if start is None else torch.empty(0, dtype=torch.long, device=device)
        alone = start is not None and len(segments) == 1
        open_ = alone and (query == 1 or segments[0].visibility == "bidirectional")
        causal = 0 if open_ or any(lengths) else _prompt_tokens(segments)
        places = mask = None
        if causal and fed is not None:
            places = upload(places_of(fed[:, :causal]), device)
        if causal < query and not open_ and (fed is not None or not causal):
            visible = visible_slots(lengths, fed, segments, width, causal, device)
            mask = folded_mask(visible, self._shared, self._model.dtype)
        return SlotLayout(
            keys=self._keys,
            values=self._values,
            rows=rows,
            start=start,
            slots=slots,
            width=width,
            causal=causal,
            places=places,
            mask=mask,
        )

    def _slots(self, lengths: Sequence[int], fed: Tensor | None, device: torch.device) -> Tensor:
        """(B, Q): after the row's committed tokens, in the order fed; padding to the last slot."""
        trash = self._keys[0].shape[2] - 1
        before = torch.tensor(lengths)[:, None]
        if fed is None:
            return upload(before + torch.arange(self._query), device)
        return upload(torch.where(fed, before + fed.cumsum(1) - 1, trash), device)


def head_dim_of(config: Any) -> int:
    """D of a transformers configuration; older ones do not name it."""
    width: int = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    return width


def _prompt_tokens(segments: Sequence[Segment]) -> int:
    """Tokens of a causal run that is fed alone or before a block that sees all of it, which takes no mask; else 0."""
    first, *rest = segments
    plain = first.visibility == "causal" and (not rest or (len(rest) == 1 and rest[0].visibility == "bidirectional"))
    return first.tokens.shape[1] if plain else 0


def places_of(real: Tensor) -> Tensor:
    """(B, n): where each token of a row of ``real`` (B, n) bool comes when the real ones stand before the padding."""
    padding = ~real
    return torch.where(real, real.cumsum(1), real.sum(1, keepdim=True) + padding.cumsum(1)) - 1


def visible_slots(
    lengths: Sequence[int],
    fed: Tensor | None,
    segments: Sequence[Segment],
    width: int,
    first: int = 0,
    device: torch.device = CPU,
) -> Tensor:
    """(B, Q - first, width) bool, on ``device``: what each fed token from ``first`` on may look at. See Segment for the rule.

    A padding token looks at slot 0, so that no row of the softmax is empty; what it yields is not used.
    """
    own = upload(inside(segments, first), device)
    asked, query = own.shape
    if fed is None and len(set(lengths)) == 1:
        committed = torch.ones(asked, lengths[0], dtype=torch.bool, device=device)
        return torch.cat([committed, own], dim=1).expand(len(lengths), -1, -1)
    real = torch.ones(len(lengths), query, dtype=torch.bool, device=device) if fed is None else upload(fed, device)
    # (B, width): slots after the committed ones
    offset = torch.arange(width, device=device)[None, :] - upload(lengths, device)[:, None]
    # The n-th slot after them holds the row's n-th real token; which of the fed tokens is that?
    order = real.logical_not().to(torch.uint8).argsort(dim=1, stable=True)
    token = order.gather(1, offset.clamp(0, query - 1))
    written = (offset >= 0) & (offset < real.sum(dim=1, keepdim=True))
    mask = own[:, token].transpose(0, 1) & written[:, None] | (offset < 0)[:, None]
    if fed is not None:
        mask &= real[:, first:, None]
        mask[:, :, 0] |= ~real[:, first:]
    return mask
