"""A model that stays as it is, with a gated adapter that is trained: the forward over masked blocks, and their loss.

The model is no submodule of TrainedAdapter. So an optimizer, a checkpoint and a process group see the adapter alone. Axes: B
answers, L clean tokens, G blocks of k slots, Q = G k, V vocabulary, H width.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import DynamicCache

from harness.decoding.in_turn import Bigram
from harness.engine.adapter_files import read_adapter
from harness.engine.attention_masks import attention_input
from harness.engine.gated_adapter import Adapter, LowRank, adapter_on, attach, linear_layers
from harness.errors import UnknownModelError
from harness.training.masked_blocks import MaskedBlocks, who_sees
from harness.training.noising import IGNORE
from harness.training.recipe import AdapterSettings
from harness.training.trainer import FLOAT32_ATTENTION

AVERAGED = 0.1
"""Share of all steps over which weights are averaged, about: the average age of what is in it."""


class TrainedAdapter(nn.Module):
    """``forward`` takes the tensors of MaskedBlocks by name. ``charged``: masked slots that a loss was taken of, so far.
    ``means``: averages of the weights, in the order of the parameters.
    """

    def __init__(self, model: Any, settings: AdapterSettings, mask_id: int) -> None:
        """Attach an adapter to ``model``: that of ``settings.start``, or a fresh one. Its terms are then 0, and its mask
        embedding is the mean of all embeddings.

        Raises:
            UnknownModelError: the model has none of the layers named, or the adapter to start from is of others.
        """
        super().__init__()
        self._settings, self._mask_id = settings, mask_id
        for parameter in model.parameters():
            parameter.requires_grad_(False)
        begun = started(settings) or fresh(model, settings)
        attach(model, Adapter(begun.terms))
        self.names = list(begun.terms)
        modules = dict(model.named_modules())
        # In float32, because bfloat16 would lose most of an update; autocast rounds them where they are used.
        self.down = nn.ParameterList(_parameter(term.down, model) for term in begun.terms.values())
        self.up = nn.ParameterList(_parameter(term.up, model) for term in begun.terms.values())
        for name, down, up in zip(self.names, self.down, self.up, strict=True):
            modules[name].down, modules[name].up = down, up
        self.charged: Tensor
        self.register_buffer("charged", torch.zeros((), dtype=torch.long))
        embeddings = model.get_input_embeddings().weight.float()
        mean = embeddings.mean(dim=0)
        self.mask_embedding = _parameter(mean if begun.mask_embedding is None else begun.mask_embedding, model)
        if settings.bigram_rank:
            width = embeddings.shape[1]
            # The first term of an embedding is of size 1 in every direction.
            down = torch.randn(settings.bigram_rank, width) / embeddings.norm(dim=1).mean().cpu()
            bigram = begun.bigram or LowRank(down, torch.zeros(width, settings.bigram_rank), 1.0)
            self.bigram_down, self.bigram_up = _parameter(bigram.down, model), _parameter(bigram.up, model)
        self.means = nn.ParameterList(
            nn.Parameter(weights.detach().clone(), requires_grad=False) for weights in self.parameters()
        )
        model.set_attn_implementation(FLOAT32_ATTENTION)
        self._held = (model,)

    @property
    def bigram(self) -> Bigram | None:
        """The bigram term as it is now, None where none is trained."""
        if not self._settings.bigram_rank:
            return None
        [model] = self._held
        before, head = model.get_input_embeddings().weight, model.get_output_embeddings().weight
        return Bigram(before=before, head=head, down=self.bigram_down, up=self.bigram_up)

    def adapter(self) -> Adapter:
        """The adapter as it is now, in bfloat16."""
        terms = {name: _saved(down, up) for name, down, up in zip(self.names, self.down, self.up, strict=True)}
        bigram = _saved(self.bigram_down, self.bigram_up) if self._settings.bigram_rank else None
        return Adapter(terms, self._mask_id, self.mask_embedding.detach().bfloat16(), bigram)

    def _averages(self) -> Iterator[tuple[Tensor, Tensor]]:
        return zip((weights for weights in self.parameters() if weights.requires_grad), self.means, strict=True)

    @torch.no_grad()
    def average(self, step: int) -> None:
        """Take the weights after ``step`` (from 1) into their average: exponential, over the last AVERAGED of all steps."""
        kept = (1 - 1 / step) ** (1 / AVERAGED)
        for weights, mean in self._averages():
            mean.lerp_(weights, 1 - kept)

    @contextmanager
    def averaged(self) -> Iterator[None]:
        """Within it the weights are their average."""
        self._swap()
        try:
            yield
        finally:
            self._swap()

    def _swap(self) -> None:
        for weights, mean in self._averages():
            weights.data, mean.data = mean.data, weights.data

    def forward(self, **tensors: Tensor) -> dict[str, Tensor]:
        """The mean loss of the masked slots in nats, weighted by slot."""
        made = MaskedBlocks(**tensors)
        hidden = self.hidden(made)
        if (bigram := self.bigram) is not None:
            before = made.targets.roll(1, dims=2).clamp(min=0)
            drawn = made.in_turn[..., None] & (torch.arange(before.shape[2], device=before.device) > 0)
            hidden = hidden + (bigram.told(before) * drawn[..., None]).view_as(hidden)
        # Two dimensions: behind frozen weights torch would copy the head for every row of three.
        each = nn.functional.cross_entropy(
            self.head(hidden.flatten(0, 1)).float(), made.targets.flatten(), ignore_index=IGNORE, reduction="none"
        ).view_as(made.targets)
        charged = made.targets != IGNORE
        self.charged += charged.sum()
        weights = charged * self._settings.slot_decay ** torch.arange(made.slots.shape[2], device=each.device)
        return {"loss": (each * weights).sum() / weights.sum().clamp(min=1)}

    def logits(self, made: MaskedBlocks) -> Tensor:
        """(B, Q, V) of the slots, without the bigram term."""
        hidden = self.hidden(made)
        return self.head(hidden.flatten(0, 1)).view(*hidden.shape[:2], -1)

    def head(self, hidden: Tensor) -> Tensor:
        """(n, V) of (n, H)."""
        [model] = self._held
        logits: Tensor = model.get_output_embeddings()(hidden)
        return logits

    def hidden(self, made: MaskedBlocks) -> Tensor:
        """Last hidden states of the slots (B, Q, H); the clean half is read first, without gradient and without the adapter."""
        [model] = self._held
        past: Any = DynamicCache()  # a union of layers, though plain attention makes one kind alone
        with torch.no_grad():  # without the head: behind frozen weights torch would copy them for every row
            model.get_decoder()(input_ids=made.clean, past_key_values=past, use_cache=True)
        positions, visible = who_sees(made)
        fed = made.slots.flatten(1)
        embeddings = model.get_input_embeddings()(fed)
        embeddings = torch.where((fed == self._mask_id)[..., None], self.mask_embedding.to(embeddings), embeddings)
        with adapter_on(model, ((0, fed.shape[1]),)):
            out = model.get_decoder()(
                inputs_embeds=embeddings,
                position_ids=positions,
                past_key_values=DynamicCache([(layer.keys, layer.values) for layer in past.layers]),
                use_cache=True,
                attention_mask=attention_input(visible, FLOAT32_ATTENTION, model.dtype),
            )
        last: Tensor = out.last_hidden_state
        return last


def fresh(model: Any, settings: AdapterSettings) -> Adapter:
    """Terms that add nothing yet.

    Raises:
        UnknownModelError: the model has none of the layers named.
    """
    terms = {}
    for name, layer in linear_layers(model, settings.layers).items():
        down = torch.empty(settings.rank, layer.in_features)
        nn.init.kaiming_uniform_(down, a=5**0.5)  # as PEFT begins
        terms[name] = LowRank(down, torch.zeros(layer.out_features, settings.rank), 1.0)
    if not terms:
        raise UnknownModelError(f"the model has no linear layer named {', '.join(settings.layers)}; name its own")
    return Adapter(terms)


def started(settings: AdapterSettings) -> Adapter | None:
    """The adapter to go on from, in float32, its scales in ``up``; its rank and layers are those of ``settings``.

    Raises:
        UnknownModelError: it is not there, is broken, or has another rank or other layers.
    """
    if settings.start is None:
        return None
    read = read_adapter(Path(settings.start))
    ranks = sorted({term.down.shape[0] for term in read.terms.values()})
    layers = {name.rpartition(".")[2] for name in read.terms}
    if ranks != [settings.rank] or layers != set(settings.layers):
        raise UnknownModelError(
            f"{settings.start}: its rank is {', '.join(map(str, ranks))}, of {', '.join(sorted(layers))}; the recipe says rank "
            f"{settings.rank}, of {', '.join(sorted(settings.layers))}: make them the same"
        )
    terms = {name: LowRank(term.down.float(), term.up.float() * term.scale, 1.0) for name, term in read.terms.items()}
    return Adapter(terms, read.mask_id, read.mask_embedding, read.bigram)


def _parameter(values: Tensor, model: Any) -> nn.Parameter:
    return nn.Parameter(values.float().to(model.device))


def _saved(down: Tensor, up: Tensor) -> LowRank:
    return LowRank(down.detach().bfloat16(), up.detach().bfloat16(), 1.0)
