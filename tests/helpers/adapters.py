"""Random adapters, and a tiny model with one, brute force: every linear layer gets the term of some tokens from outside."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager

import torch

from harness.decoding.in_turn import Bigram
from harness.engine.gated_adapter import Adapter, LowRank


def random_adapter(model, mask_id=None, rank=3, seed=5, size=0.3):
    """Terms of every linear layer of every block, and of the mask's embedding where it has an id."""
    generator = torch.Generator().manual_seed(seed)

    def drawn(*shape):
        return size * torch.randn(*shape, generator=generator, dtype=torch.float64)

    linear = {name: one for name, one in model.named_modules() if type(one) is torch.nn.Linear and "layers" in name}
    terms = {name: LowRank(drawn(rank, one.in_features), drawn(one.out_features, rank), 2.0) for name, one in linear.items()}
    return Adapter(terms, mask_id, None if mask_id is None else drawn(model.config.hidden_size))


@contextmanager
def adapted_by_hand(model, adapter, tokens, columns):
    """``model`` (plain, without a gate) with the adapter on the ``columns`` (Q,) bool of its forwards over ``tokens`` (Q,)."""

    def of_term(term):
        def more(module, inputs, out):
            low = torch.einsum("ri,bqi->bqr", term.down.to(out), inputs[0])
            full = out + term.scale * torch.einsum("or,bqr->bqo", term.up.to(out), low)
            return torch.where(columns[None, :, None], full, out)

        return more

    def mask(module, inputs, out):
        return torch.where((columns & (tokens == adapter.mask_id))[None, :, None], adapter.mask_embedding.to(out), out)

    with ExitStack() as hooks:
        for name, term in adapter.terms.items():
            hooks.enter_context(model.get_submodule(name).register_forward_hook(of_term(term)))
        if adapter.mask_embedding is not None:
            hooks.enter_context(model.get_input_embeddings().register_forward_hook(mask))
        yield


def random_bigram(words, width=4, rank=2, seed=6):
    """A term that is large enough to change what is drafted, float64."""
    generator = torch.Generator().manual_seed(seed)

    def drawn(*shape):
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    return Bigram(before=drawn(words, width), head=drawn(words, width), down=drawn(rank, width), up=drawn(width, rank))


def copies(text, words):
    """(words,) nats of each word behind ``text``: 1, 3 or 5 where the last 1, 2 or 3 words stood before it already."""
    nats = torch.zeros(words, dtype=torch.float64)
    for place in range(1, len(text)):
        alike = 0
        while alike < min(3, place) and text[place - 1 - alike] == text[-1 - alike]:
            alike += 1
        nats[text[place]] = max(float(nats[text[place]]), (0.0, 1.0, 3.0, 5.0)[alike])
    return nats
