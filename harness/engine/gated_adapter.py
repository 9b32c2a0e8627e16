"""A low-rank adapter (LoRA, arXiv 2106.09685) and a mask embedding that act on some tokens of a forward alone.

y = W x + scale B A x for the tokens that segments name (Segment.adapted), y = W x for all others. The product with W is the
same call on the same shapes as without an adapter. The low-rank term is added in place to the adapted columns. So every other
token gets the base model's arithmetic to the last bit, and so does its KV. Every row of a batch feeds the same columns, so each
kind of forward knows them as numbers, and one graph serves it. Axes: B rows, Q fed tokens, r rank, H hidden width.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, cast

import torch
from torch import Tensor, nn

from harness.decoding.in_turn import Bigram
from harness.decoding.session import Segment
from harness.errors import UnknownModelError
from harness.frozen import positional


@positional
class LowRank:
    """The term ``scale`` B A of one linear layer: ``down`` A (r, in), ``up`` B (out, r)."""

    down: Tensor
    up: Tensor
    scale: float


@positional
class Adapter:
    """``terms`` by the name of the linear layer in the model. ``mask_embedding`` (H,), or None, is read in place of the row of
    the token ``mask_id``. ``bigram``, or None, goes from H to H (harness.decoding.in_turn).
    """

    terms: Mapping[str, LowRank]
    mask_id: int | None = None
    mask_embedding: Tensor | None = None
    bigram: LowRank | None = None


Columns = tuple[tuple[int, int], ...]
"""(start, end) of runs of fed tokens, the same in every row."""


class Gate:
    """The columns of the current forward that a model's adapter acts on; none between the forwards of a session."""

    columns: Columns = ()


def adapted_columns(segments: Sequence[Segment]) -> Columns:
    """Where the tokens that segments ask the adapter for are among all fed tokens."""
    found, end = [], 0
    for segment in segments:
        end += segment.tokens.shape[1]
        if segment.adapted:
            found.append((end - segment.adapted, end))
    return tuple(found)


@contextmanager
def adapter_on(model: Any, columns: Columns) -> Iterator[None]:
    """Forwards of ``model`` within have its adapter on these columns; nothing happens to a model without one."""
    gate: Gate | None = getattr(model, "gate_of_adapter", None)
    if gate is None or not columns:
        yield
        return
    gate.columns = columns
    try:
        yield
    finally:
        gate.columns = ()


def attach(model: Any, adapter: Adapter) -> None:
    """Put ``adapter`` into ``model``, gated; the model's own forwards give what they gave.

    Raises:
        UnknownModelError: a layer is not in the model, is not a plain linear layer within a block, or has another shape.
    """
    gate = Gate()
    modules = dict(model.named_modules())
    for name, term in adapter.terms.items():
        base = modules.get(name)
        if type(base) is not nn.Linear or ".layers." not in f".{name}":
            found = "no such layer" if base is None else f"a {type(base).__name__} there"
            raise UnknownModelError(
                f"it adapts {name}, but the model has {found}; allowed are plain linear layers within a block: give the "
                "adapter of this model, trained on such layers"
            )
        rank = term.down.shape[0]
        if term.down.shape != (rank, base.in_features) or term.up.shape != (base.out_features, rank):
            raise UnknownModelError(
                f"its matrices of {name} are {tuple(term.down.shape)} and {tuple(term.up.shape)}, but that layer goes from "
                f"{base.in_features} to {base.out_features}; give the adapter of this model"
            )
        model.set_submodule(name, GatedLinear(base, term, gate))
    if adapter.mask_embedding is not None and adapter.mask_id is not None:
        embeddings = model.get_input_embeddings()
        rows, width = embeddings.weight.shape
        if type(embeddings) is not nn.Embedding or adapter.mask_embedding.shape != (width,) or adapter.mask_id >= rows:
            raise UnknownModelError(
                f"its mask embedding is of shape {tuple(adapter.mask_embedding.shape)} for the token {adapter.mask_id}, but "
                f"the model has {rows} embeddings of width {width}; give the adapter of this model"
            )
        gated = GatedEmbedding(embeddings, adapter.mask_embedding, adapter.mask_id, gate)
        head = model.get_output_embeddings()
        if head is not None and head.weight is embeddings.weight:
            # torch takes another kernel for a weight with a gradient, even where none is computed.
            head.weight = nn.Parameter(gated.weight.detach()[:rows], requires_grad=embeddings.weight.requires_grad)
        model.set_input_embeddings(gated)
    if adapter.bigram is not None:
        model.bigram_of_adapter = _bigram(model, adapter.bigram)
    model.gate_of_adapter = gate


def linear_layers(model: Any, called: Collection[str]) -> dict[str, nn.Linear]:
    """The linear layers within the blocks of ``model`` whose own name (``q_proj``) is among these, by their whole name."""
    return {
        name: module
        for name, module in model.named_modules()
        if isinstance(module, nn.Linear) and _last(name) in called and ".layers." in f".{name}"
    }


def _last(name: str) -> str:
    return name.rpartition(".")[2]


def random_like(adapter: Adapter, model: Any, mask_id: int) -> Adapter:
    """Random terms of the ranks of ``adapter``, which may be of another model, in the layers of ``model`` that its layers are
    named as. They cost what an adapter of this model would; what they say is noise.

    Raises:
        UnknownModelError: the model has none of these layers.
    """
    ranks = {_last(name): term.down.shape[0] for name, term in adapter.terms.items()}
    layers = linear_layers(model, ranks)
    if not layers:
        raise UnknownModelError(f"it adapts {', '.join(sorted(ranks))}, and the model has no such layers; give another adapter")
    terms = {name: _drawn(ranks[_last(name)], layer.in_features, layer.out_features) for name, layer in layers.items()}
    width = model.config.hidden_size
    bigram = None if adapter.bigram is None else _drawn(adapter.bigram.down.shape[0], width, width)
    embedding = None if adapter.mask_embedding is None else torch.randn(width)
    return Adapter(terms, mask_id, embedding, bigram)


def _drawn(rank: int, width: int, out: int) -> LowRank:
    return LowRank(torch.randn(rank, width) * width**-0.5, torch.randn(out, rank) * rank**-0.5, 0.01)


def _bigram(model: Any, term: LowRank) -> Bigram:
    """Raises UnknownModelError where the matrices are of another width than the model."""
    before, head = model.get_input_embeddings().weight.detach(), model.get_output_embeddings().weight.detach()
    rank, width = term.down.shape[0], head.shape[1]
    if term.down.shape != (rank, width) or term.up.shape != (width, rank):
        raise UnknownModelError(
            f"its bigram term has matrices of {tuple(term.down.shape)} and {tuple(term.up.shape)}, but the model is {width} "
            "wide; give the adapter of this model"
        )
    up = (term.up.double() * term.scale).to(head)
    return Bigram(before=before, head=head, down=term.down.to(head), up=up)


def add_low_rank(out: Tensor, input: Tensor, down: Tensor, up: Tensor, start: int, end: int) -> None:
    """Add up down x to the columns ``start`` to ``end`` of ``out`` (B, Q, out), for x of ``input`` (B, Q, in); ``down`` is
    (r, in), ``up`` (out, r).
    """
    of_columns = input[:, start:end].to(down.dtype).flatten(0, 1)
    more = nn.functional.linear(nn.functional.linear(of_columns, down), up)
    out[:, start:end].add_(more.view(out.shape[0], end - start, -1))


def put_row(ids: Tensor, mask_id: int, row: int, start: int, end: int) -> None:
    """Write ``row`` over the masks in the columns ``start`` to ``end`` of ``ids`` (B, Q)."""
    of_block = ids[:, start:end]
    of_block.masked_fill_(of_block == mask_id, row)


# To a compiler each is one operation that it cannot look into. It would else fuse the sum with what follows, and in half
# precision round the tokens beside the adapter in other places than without one.
_LIBRARY: Any = cast(Any, torch.library.Library)("sbd", "DEF")  # carries no types
_TERM = "(Tensor(a!) out, Tensor input, Tensor down, Tensor up, SymInt start, SymInt end) -> ()"
_LIBRARY.define(f"add_low_rank{_TERM}")
_LIBRARY.define("put_row(Tensor(a!) ids, SymInt mask_id, SymInt row, SymInt start, SymInt end) -> ()")
for _work in (add_low_rank, put_row):
    _LIBRARY.impl(_work.__name__, _work, "CompositeExplicitAutograd")
    torch.library.register_fake(f"sbd::{_work.__name__}", lambda *arguments: None, lib=_LIBRARY)


class GatedLinear(nn.Linear):
    """Takes the place of a linear layer and shares its weights. ``up`` holds the term's scale."""

    def __init__(self, base: nn.Linear, term: LowRank, gate: Gate) -> None:
        nn.Module.__init__(self)
        self.in_features, self.out_features = base.in_features, base.out_features
        self.weight, self.bias = base.weight, base.bias
        # On a CPU a product this small takes 5 us in float32 and 18 us in bfloat16 (oneDNN's way to its kernel).
        dtype = torch.promote_types(base.weight.dtype, torch.float32) if base.weight.device.type == "cpu" else base.weight.dtype
        down, up = term.down, term.up.double() * term.scale
        self.down = nn.Parameter(down.to(base.weight.device, dtype), requires_grad=False)
        self.up = nn.Parameter(up.to(base.weight.device, dtype), requires_grad=False)
        self._gate = gate

    def forward(self, input: Tensor) -> Tensor:
        """(B, Q, out) of (B, Q, in)."""
        return self.adapted(nn.functional.linear(input, self.weight, self.bias), input)

    def adapted(self, out: Tensor, input: Tensor) -> Tensor:
        """``out``, the base's product with ``input``, with the term in the adapted columns."""
        columns = self._gate.columns
        if not columns:
            return out
        if self.down.requires_grad and columns == ((0, input.shape[1]),):
            # In training autograd would copy what is changed in place.
            return out + nn.functional.linear(nn.functional.linear(input, self.down), self.up)
        compiling = torch.compiler.is_compiling()
        for start, end in columns:
            add = torch.ops.sbd.add_low_rank if compiling else add_low_rank
            add(out, input, self.down, self.up, start, end)
        return out


class GatedEmbedding(nn.Embedding):
    """Takes the place of the model's input embeddings: their rows, then the mask's own. Adapted masks look up that row, so that
    a compiler has the same operations to fuse as without an adapter. Output embeddings that are tied share the other rows.
    """

    def __init__(self, base: nn.Embedding, mask_embedding: Tensor, mask_id: int, gate: Gate) -> None:
        nn.Module.__init__(self)
        self.num_embeddings, self.embedding_dim, self.padding_idx = base.num_embeddings, base.embedding_dim, base.padding_idx
        own = mask_embedding.to(base.weight)[None]
        self.weight = nn.Parameter(torch.cat([base.weight.detach(), own]), requires_grad=base.weight.requires_grad)
        self.mask_id, self._gate = mask_id, gate

    def forward(self, input: Tensor) -> Tensor:
        """(B, Q, H) of ids (B, Q)."""
        columns = self._gate.columns
        if columns:
            input = input.clone()
            put = torch.ops.sbd.put_row if torch.compiler.is_compiling() else put_row
            for start, end in columns:
                put(input, self.mask_id, self.num_embeddings, start, end)
        return nn.functional.embedding(input, self.weight, self.padding_idx)
