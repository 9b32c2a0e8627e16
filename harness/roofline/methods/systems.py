"""The published systems of systems.yaml: the figures each reports, with their sources, and the trace they give.

No system here was run: its published figures are put into a trace and priced. A figure that no source gives is absent with
the reason, and then the system has no trace. A recipe names the figures that it needs and makes the model calls.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Self

from pydantic import Field, ValidationError, model_validator

from harness.config_file import StrictModel, Text, read_yaml
from harness.errors import InvariantError, UserError
from harness.hardware.figures import SourcedFigure
from harness.models import ModelShape
from harness.models.shape import with_layers
from harness.roofline.methods.calls import MethodTrace, Setting, at_least, probability, whole_widths
from harness.roofline.methods.diffusion import (
    approximate_cache,
    block_diffusion,
    longest_prefix,
    whole_sequence,
    with_auxiliary,
)
from harness.roofline.methods.set_block import chunks, next_token, pruned, pruned_decoding, set_block, verified_set_block
from harness.roofline.methods.speculative import (
    Drafter,
    caught_up,
    copied_state,
    hierarchy,
    small_drafter,
    speculative,
    tree_drafting,
)

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
    """The two layers around the published mean exit; in a batch the row that goes further decides."""
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


MARK = "priced, not run"
_FILE = Path(__file__).with_name("systems.yaml")


class PublishedSpeedup(SourcedFigure):
    """A wall speedup as published: over what, on which hardware, with which model; None where the source does not say."""

    over: Text
    hardware: Text | None = None
    model: Text | None = None


class System(StrictModel):
    """One published system. ``figures`` are what its recipe needs, ``auxiliary`` a second model with its source.

    ``lossless``: the reference whose output is unchanged, or how the output differs.
    """

    name: Text
    reference: Text
    lossless: Text
    recipe: Text
    figures: dict[str, SourcedFigure] = Field(default_factory=dict)
    auxiliary: ModelShape | None = None
    auxiliary_source: Text | None = None
    speedup: PublishedSpeedup
    notes: Text | None = None

    @model_validator(mode="after")
    def _fits_its_recipe(self) -> Self:
        recipe = RECIPES.get(self.recipe)
        if recipe is None:
            raise ValueError(f"unknown recipe {self.recipe!r}; allowed: {', '.join(RECIPES)}")
        absent = [name for name in recipe.needs if name not in self.figures]
        extra = [name for name in self.figures if name not in (*recipe.needs, *recipe.may_have)]
        if absent or extra:
            raise ValueError(
                f"recipe {self.recipe!r}: missing are [{', '.join(absent)}], unknown are [{', '.join(extra)}]; it needs "
                f"[{', '.join(recipe.needs)}], each with null and the reason where no source gives it"
            )
        if recipe.auxiliary != (self.auxiliary is not None) or (self.auxiliary is None) != (self.auxiliary_source is None):
            wanted = "an auxiliary model with auxiliary_source" if recipe.auxiliary else "no auxiliary model"
            raise ValueError(f"recipe {self.recipe!r} takes {wanted}")
        return self

    @property
    def missing(self) -> tuple[str, ...]:
        """``figure: why no source gives it`` for every figure that keeps the system from being priced."""
        needs = RECIPES[self.recipe].needs
        return tuple(f"{name}: {self.figures[name].source}" for name in needs if self.figures[name].value is None)

    @property
    def grade(self) -> str | None:
        """The weakest grade among the figures that the trace rests on (V, R, S, U); None where it rests on none."""
        grades = [figure.grade for figure in self.figures.values() if figure.grade is not None]
        return max(grades, key="VRSU".index, default=None)

    def trace(self, at: Setting) -> MethodTrace | None:
        """Its model calls on the model of ``at``, with its own published acceptance; None where a figure is missing.

        Raises:
            UserError: the figures make no sense on this model.
        """
        if self.missing:
            return None
        given = {name: figure.value for name, figure in self.figures.items() if figure.value is not None}
        return RECIPES[self.recipe].build(at, given, self.auxiliary)


class Systems(StrictModel):
    """The file: every system once."""

    systems: tuple[System, ...]

    @model_validator(mode="after")
    def _once(self) -> Self:
        names = [system.name for system in self.systems]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"listed twice: {', '.join(twice)}; keep one of each")
        return self


def read_systems(path: Path) -> tuple[System, ...]:
    """The systems of one file.

    Raises:
        UserError: the file is refused, with file and line.
    """
    document = read_yaml(path, UserError, "list systems as in the shipped systems.yaml")
    try:
        return Systems.model_validate(document.data).systems
    except ValidationError as error:
        raise UserError(document.describe(error)) from error


@cache
def known_systems() -> tuple[System, ...]:
    """The shipped systems, NTP first.

    Raises:
        InvariantError: the shipped file is refused.
    """
    try:
        return read_systems(_FILE)
    except UserError as error:
        raise InvariantError(str(error)) from error
