"""The plain model session: any transformers causal LM of the Llama family with a DynamicCache, eager execution.

It avoids these errors (transformers 5): ``past_key_values`` always writes, so every forward is cropped back;
``crop`` takes negative numbers only; a maskless call is causal unless ``is_causal=False`` is passed; boolean masks under
eager attention are added, not applied. Axes: B rows, Q tokens of a forward, W committed cache slots, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from transformers import DynamicCache, PreTrainedModel

from harness.decoding.session import Segment
from harness.engine.attention_masks import attention_input, inside, validity, wanted_logits
from harness.engine.gated_adapter import adapted_columns, adapter_on


class TransformersSession:
    """A harness.decoding.session.ModelSession over one loaded model.

    Cache slot j of row b counts only where ``_valid[b, j]``. Nothing attends to the other slots: left padding, and slots that a
    row did not keep. So rows may commit different numbers of tokens.
    """

    def __init__(self, model: PreTrainedModel, attention: str) -> None:
        self._model = model
        self._attention = attention
        self.reset(0, 0)

    @property
    def context_tokens(self) -> tuple[int, ...]:
        """Committed KV entries of each row, padding not counted."""
        return tuple(self._valid.sum(dim=1).tolist())

    @property
    def context_width(self) -> int:
        """Cache slots that a forward reads per row."""
        return self._valid.shape[1]

    def reset(self, rows: int, capacity: int) -> None:
        """Forget everything and make room for ``rows`` rows; this cache grows as needed, whatever its ``capacity``."""
        self._cache = DynamicCache(config=self._model.config)
        self._valid = torch.empty(rows, 0, dtype=torch.bool)
        self._holes = False

    @torch.no_grad()
    def forward(self, segments: Sequence[Segment]) -> Tensor:
        """Run one forward pass; (B, m, V) logits of the wanted tokens, m their number."""
        tokens = torch.cat([s.tokens for s in segments], dim=1)
        valid = validity(segments)
        self._fed_valid = torch.ones(tokens.shape, dtype=torch.bool) if valid is None else valid
        options: dict[str, object] = {}
        if self._needs_mask(segments):
            visible = visibility(self._valid, segments).to(tokens.device)
            options["attention_mask"] = attention_input(visible, self._attention, self._model.dtype)
        elif segments[0].visibility == "bidirectional":
            options["is_causal"] = False
        with adapter_on(self._model, adapted_columns(segments)):
            out = self._model(
                input_ids=tokens,
                position_ids=torch.cat([s.positions for s in segments], dim=1),
                use_cache=True,
                past_key_values=self._cache,
                logits_to_keep=wanted_logits(segments, tokens.device),
                **options,
            )
        logits: Tensor = out.logits
        return logits

    def keep(self, tokens: Sequence[int]) -> None:
        """Commit, per row, the KV of the first so many tokens of the last forward; drop the rest of it."""
        fed, kept = self._fed_valid.shape[1], max(tokens)
        if kept < fed:
            self._cache.crop(kept - fed)
        if kept:
            accepted = torch.arange(kept)[None, :] < torch.tensor(list(tokens))[:, None]
            self._valid = torch.cat([self._valid, self._fed_valid[:, :kept] & accepted], dim=1)
            self._holes = not bool(self._valid.all())

    def drop(self, tokens: Sequence[int]) -> None:
        """Forget, per row, the newest so many committed tokens; slots that no row still holds at the end are cut off."""
        newer = self._valid.flip(1).cumsum(1).flip(1)  # committed tokens of the row from this slot on
        self._valid = self._valid & (newer > torch.tensor(list(tokens))[:, None])
        held = int(self._valid.any(dim=0).nonzero().max()) + 1 if self._valid.any() else 0
        if held < self.context_width:
            self._cache.crop(held - self.context_width)
            self._valid = self._valid[:, :held]
        self._holes = not bool(self._valid.all())

    def read(self, tokens: Tensor) -> list[list[int]]:
        """The sampler's tokens, on the host."""
        return tokens.tolist()

    def _needs_mask(self, segments: Sequence[Segment]) -> bool:
        """False where the attention kernel's own rule (all, or plain causal without a past) is already the right one."""
        first = segments[0]
        if self._holes or len(segments) > 1 or first.valid is not None:
            return True
        if first.tokens.shape[1] == 1:
            return False
        after_others = first.visibility == "causal" and self.context_width > 0
        return after_others or first.visibility == "explicit" or self._attention == "eager"


def visibility(context_valid: Tensor, segments: Sequence[Segment]) -> Tensor:
    """What each fed token may attend to: (B, Q, W+Q) bool, on the CPU. See Segment for the rule.

    A padding token sees itself, so that no row of the softmax is empty; nothing sees it.
    """
    own = inside(segments)
    total, rows = own.shape[0], context_valid.shape[0]
    context = context_valid[:, None, :].expand(rows, total, -1)
    fed = own[None].expand(rows, total, total)
    valid = validity(segments)
    if valid is not None:
        fed = (fed & valid[:, None, :]) | (torch.eye(total, dtype=torch.bool)[None] & ~valid[:, :, None])
    return torch.cat([context, fed], dim=2)
