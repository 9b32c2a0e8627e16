"""A model that stays as it is, with a gated adapter that is trained: the forward over masked blocks, and their loss.

The model is no submodule of TrainedAdapter. So an optimizer, a checkpoint and a process group see the adapter alone. Axes: B
answers, L clean tokens, G blocks of k slots, Q = G k, V vocabulary, H width.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from transformers import DynamicCache

from harness.engine.attention_masks import attention_input
from harness.engine.gated_adapter import Adapter, GatedLinear, LowRank, adapter_on, attach
from harness.engine.training.masked_blocks import MaskedBlocks, who_sees
from harness.engine.training.noising import IGNORE
from harness.engine.training.recipe import AdapterSettings
from harness.engine.training.trainer import FLOAT32_ATTENTION
from harness.errors import UnknownModelError


class TrainedAdapter(nn.Module):
    """``forward`` takes the tensors of MaskedBlocks by name. ``charged``: masked slots that a loss was taken of, so far."""

    def __init__(self, model: Any, settings: AdapterSettings, mask_id: int) -> None:
        """Attach a fresh adapter to ``model``: its terms are 0, its mask embedding is the mean of all embeddings.

        Raises:
            UnknownModelError: the model has none of the layers named.
        """
        super().__init__()
        self._settings, self._mask_id = settings, mask_id
        for parameter in model.parameters():
            parameter.requires_grad_(False)
        scale, found = settings.alpha / settings.rank, {}
        for name, module in model.named_modules():
            if isinstance(module, nn.Linear) and name.rpartition(".")[2] in settings.layers and ".layers." in f".{name}":
                down = torch.empty(settings.rank, module.in_features)
                nn.init.kaiming_uniform_(down, a=5**0.5)  # as PEFT begins
                found[name] = LowRank(down, torch.zeros(module.out_features, settings.rank), 1.0)
        if not found:
            raise UnknownModelError(f"the model has no linear layer named {', '.join(settings.layers)}; name its own")
        attach(model, Adapter(found))
        self._scale = scale
        self.names = list(found)
        modules = dict(model.named_modules())
        linear = [modules[name] for name in found]
        # In float32, because bfloat16 would lose most of an update; autocast rounds them where they are used.
        self.down = nn.ParameterList(nn.Parameter(term.down.to(model.device)) for term in found.values())
        self.up = nn.ParameterList(nn.Parameter(term.up.to(model.device)) for term in found.values())
        for module, down, up in zip(linear, self.down, self.up, strict=True):
            assert isinstance(module, GatedLinear)
            module.down, module.up = down, up
        self.charged: Tensor
        self.register_buffer("charged", torch.zeros((), dtype=torch.long))
        self.mask_embedding = nn.Parameter(model.get_input_embeddings().weight.float().mean(dim=0))
        model.set_attn_implementation(FLOAT32_ATTENTION)
        self._held = (model,)

    def adapter(self) -> Adapter:
        """The adapter as it is now, in bfloat16."""
        terms = {
            name: LowRank(down.detach().bfloat16(), up.detach().bfloat16(), 1.0)
            for name, down, up in zip(self.names, self.down, self.up, strict=True)
        }
        return Adapter(terms, self._mask_id, self.mask_embedding.detach().bfloat16())

    def forward(self, **tensors: Tensor) -> dict[str, Tensor]:
        """The mean loss of the masked slots in nats, weighted by slot."""
        made = MaskedBlocks(**tensors)
        logits = self.logits(made)
        each = nn.functional.cross_entropy(
            logits.flatten(0, 1).float(), made.targets.flatten(), ignore_index=IGNORE, reduction="none"
        ).view_as(made.targets)
        charged = made.targets != IGNORE
        self.charged += charged.sum()
        weights = charged * self._settings.slot_decay ** torch.arange(made.slots.shape[2], device=each.device)
        return {"loss": (each * weights).sum() / weights.sum().clamp(min=1)}

    def logits(self, made: MaskedBlocks) -> Tensor:
        """(B, Q, V) of the slots; the clean half is read first, without gradient and without the adapter."""
        [model] = self._held
        past = self.clean_half(made.clean)
        positions, visible = who_sees(made)
        fed = made.slots.flatten(1)
        embeddings = model.get_input_embeddings()(fed)
        embeddings = torch.where((fed == self._mask_id)[..., None], self.mask_embedding.to(embeddings), embeddings)
        with adapter_on(model, ((0, fed.shape[1]),)):
            out = model(
                inputs_embeds=embeddings, position_ids=positions, past_key_values=DynamicCache(past), use_cache=True,
                attention_mask=attention_input(visible, FLOAT32_ATTENTION, model.dtype),
            )  # fmt: skip
        logits: Tensor = out.logits
        return logits

    @torch.no_grad()
    def clean_half(self, clean: Tensor) -> Sequence[tuple[Tensor, Tensor]]:
        """Keys and values of every layer, (B, KV heads, L, D) each. Right padding is behind all that anybody sees."""
        [model] = self._held
        cache: Any = DynamicCache()  # a union of layers, though plain attention makes one kind alone
        # Without the head: behind frozen weights torch would copy them for every row.
        model.get_decoder()(input_ids=clean, past_key_values=cache, use_cache=True)
        return [(layer.keys, layer.values) for layer in cache.layers]
