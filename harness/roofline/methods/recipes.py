"""How the published figures of a system become a trace: per recipe the figures it needs, by name, and the call it makes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from harness.models import ModelShape
from harness.roofline.methods.calls import MethodTrace, Setting, at_least, probability, whole_widths, with_layers
from harness.roofline.methods.set_block import chunks, next_token, pruned, pruned_decoding, set_block
from harness.roofline.methods.diffusion import (
    approximate_cache,
    block_diffusion,
    longest_prefix,
    whole_sequence,
    with_auxiliary,
)
from harness.roofline.methods.exits import caught_up, copied_state
from harness.roofline.methods.speculative import Drafter, hierarchy, speculative
from harness.roofline.methods.tree import small_drafter, tree_drafting
from harness.roofline.methods.verified import verified_set_block

Given = Mapping[str, float]
Build = Callable[[Setting, Given, ModelShape | None], MethodTrace]


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """``needs``: figures without which there is no trace; ``may_have``: refinements; ``auxiliary``: a second model's shape."""

    build: Build
    needs: tuple[str, ...] = ()
    may_have: tuple[str, ...] = ()
    auxiliary: bool = False


def _next_token(at: Setting, _: Given, __: ModelShape | None) -> MethodTrace:
    return next_token(at)


def _set_block(at: Setting, given: Given, _: ModelShape | None) -> MethodTrace:
    block = int(given["block_size"])
    return set_block(at, block_size=block, passes_per_block=block / given["nfe_speedup"])


def _verified_set_block(at: Setting, given: Given, _: ModelShape | None) -> MethodTrace:
    return verified_set_block(
        at, block_size=int(given["block_size"]), draft_passes=given["draft_passes"], acceptance=given["acceptance"]
    )


def _tree(at: Setting, given: Given, _: ModelShape | None) -> MethodTrace:
    layers = given.get("drafter_layers")
    drafter = None
    if layers is not None:
        drafter = small_drafter(
            at.target, layers=int(layers), intermediate_of_hidden=given.get("drafter_intermediate_of_hidden")
        )
    return tree_drafting(
        at, tree_tokens=int(given["tree_tokens"]), tokens_per_pass=given["tokens_per_pass"], drafter=drafter,
        drafter_passes=int(given.get("drafter_passes", 1)) if drafter else 0,
        drafter_query=int(given.get("drafter_query_tokens", 1)),
    )  # fmt: skip


def _draft_model(at: Setting, given: Given, auxiliary: ModelShape | None) -> MethodTrace:
    assert auxiliary is not None  # the reader of systems.yaml refuses an entry without it
    return speculative(at, draft=auxiliary, drafted_tokens=int(given["drafted_tokens"]), acceptance=given["acceptance"])


def _hierarchy(at: Setting, given: Given, _: ModelShape | None) -> MethodTrace:
    drafters = []
    for name in ("large_draft", "small_draft"):
        share = probability(f"{name}_share_of_layers", given[f"{name}_share_of_layers"])
        layers = max(1, round(at.target.layers * share))
        drafters.append(
            Drafter(
                shape=with_layers(at.target, layers),
                drafted_tokens=int(given[f"{name}_tokens"]),
                acceptance=given[f"{name}_acceptance"],
            )
        )
    return hierarchy(at, tuple(drafters))


def _copied_state(at: Setting, given: Given, _: ModelShape | None) -> MethodTrace:
    """Only the mean exit is asked of a publication: the two layers around it, in a batch by the row that goes further."""
    mean = at.target.layers * probability("mean exit as a share of the layers", given["mean_exit_share_of_layers"])
    exits = whole_widths(max(1.0, mean))
    last = () if exits[-1][0] == at.target.layers else ((at.target.layers, 0.0),)
    return copied_state(at, (*exits, *last), head_at_every_exit=False)


def _caught_up(at: Setting, given: Given, _: ModelShape | None) -> MethodTrace:
    early = probability("early share of the tokens", given["early_share"])
    return caught_up(at, ((_exit_layer(at, given), early), (at.target.layers, 1 - early)), verified=False)


def _verified_exits(at: Setting, given: Given, _: ModelShape | None) -> MethodTrace:
    count = int(given["exit_heads"])
    step = at_least("layers between exits", at.target.layers // (count + 1), 1)
    shares = [given[f"early_share_{number}"] for number in range(1, count + 1)]
    exits = [(int(step) * (number + 1), share) for number, share in enumerate(shares)]
    return caught_up(at, (*exits, (at.target.layers, 1 - sum(shares))), verified=True, rejected=given["rejected"])


def _exit_layer(at: Setting, given: Given) -> int:
    return min(at.target.layers - 1, max(1, round(at.target.layers * given["exit_share_of_layers"])))


def _chunks(at: Setting, given: Given, _: ModelShape | None) -> MethodTrace:
    return chunks(at, chunk_tokens=int(given["tokens_per_pass"]))


def _pruned(at: Setting, given: Given, _: ModelShape | None) -> MethodTrace:
    return pruned_decoding(at, decoder=pruned(at.target, width_share=given["width_share"]))


def _whole_sequence(at: Setting, given: Given, _: ModelShape | None) -> MethodTrace:
    return whole_sequence(at, new_tokens=int(given["new_tokens"]), passes=given["passes"])


def _approximate_cache(at: Setting, given: Given, _: ModelShape | None) -> MethodTrace:
    return approximate_cache(
        at, new_tokens=int(given["new_tokens"]), block_size=int(given["block_size"]),
        passes_per_block=given["passes_per_block"], cached="prefix",
    )  # fmt: skip


def _block_diffusion(at: Setting, given: Given, _: ModelShape | None) -> MethodTrace:
    return block_diffusion(
        at, block_size=int(given["block_size"]), decide_passes=given["passes_per_block"] - 1, drafts=int(given["drafts"])
    )


def _longest_prefix(at: Setting, given: Given, _: ModelShape | None) -> MethodTrace:
    return longest_prefix(at, block_size=int(given["block_size"]), tokens_per_pass=given["tokens_per_pass"])


def _with_auxiliary(at: Setting, given: Given, auxiliary: ModelShape | None) -> MethodTrace:
    assert auxiliary is not None  # the reader of systems.yaml refuses an entry without it
    return with_auxiliary(
        at, auxiliary=auxiliary, window=int(given["window"]), lookahead=int(given["lookahead"]),
        tokens_per_pass=given["tokens_per_pass"],
    )  # fmt: skip


_DRAFT = ("share_of_layers", "tokens", "acceptance")
RECIPES: dict[str, Recipe] = {
    "next_token": Recipe(build=_next_token),
    "set_block": Recipe(build=_set_block, needs=("block_size", "nfe_speedup")),
    "verified_set_block": Recipe(build=_verified_set_block, needs=("block_size", "draft_passes", "acceptance")),
    "tree": Recipe(
        build=_tree,
        needs=("tree_tokens", "tokens_per_pass"),
        may_have=("drafter_layers", "drafter_intermediate_of_hidden", "drafter_passes", "drafter_query_tokens"),
    ),
    "draft_model": Recipe(build=_draft_model, needs=("drafted_tokens", "acceptance"), auxiliary=True),
    "hierarchy": Recipe(
        build=_hierarchy, needs=tuple(f"{size}_draft_{figure}" for size in ("large", "small") for figure in _DRAFT)
    ),
    "copied_state": Recipe(build=_copied_state, needs=("mean_exit_share_of_layers",)),
    "caught_up": Recipe(build=_caught_up, needs=("exit_share_of_layers", "early_share")),
    "verified_exits": Recipe(
        build=_verified_exits, needs=("exit_heads", "early_share_1", "early_share_2", "early_share_3", "rejected")
    ),
    "chunks": Recipe(build=_chunks, needs=("tokens_per_pass",)),
    "pruned": Recipe(build=_pruned, needs=("width_share",)),
    "whole_sequence": Recipe(build=_whole_sequence, needs=("new_tokens", "passes")),
    "approximate_cache": Recipe(build=_approximate_cache, needs=("new_tokens", "block_size", "passes_per_block")),
    "block_diffusion": Recipe(build=_block_diffusion, needs=("block_size", "passes_per_block", "drafts")),
    "longest_prefix": Recipe(build=_longest_prefix, needs=("block_size", "tokens_per_pass")),
    "with_auxiliary": Recipe(build=_with_auxiliary, needs=("window", "lookahead", "tokens_per_pass"), auxiliary=True),
}
