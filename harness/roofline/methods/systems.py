"""The published systems of systems.yaml: the figures each reports, with their sources, and the trace they give.

No system here was run: its published figures are put into a trace and priced. A figure that no source gives is absent with
the reason; then the system has no trace of its own, but may have one over a stated range of that figure. A recipe names the
figures that it needs and makes the model calls.

A range is an assumption and is labelled so. All assumed figures of a system go from their worst end to their best together;
a *share* is how far they are, from 0 to 1. Where both ends are equal, the figure is a setting that is held.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from inspect import signature
from pathlib import Path
from typing import Any, Self

from pydantic import Field, model_validator

from harness.config_file import StrictModel, Text, read_yaml
from harness.errors import InvariantError, UserError
from harness.frozen import frozen
from harness.hardware.figures import SourcedFigure
from harness.models import ModelShape
from harness.models.shape import with_layers
from harness.roofline.methods.calls import MethodTrace, PricedAt, at_least, probability, whole_widths
from harness.roofline.methods.set_block import (
    approximate_cache,
    block_diffusion,
    chunks,
    longest_prefix,
    next_block,
    next_token,
    over_a_link,
    pruned_decoding,
    set_block,
    verified_set_block,
    whole_sequence,
    with_auxiliary,
)
from harness.roofline.methods.speculative import PricedDrafter, caught_up, copied_state, hierarchy, speculative, tree_drafting
from harness.roofline.pricing import SummedPrice

STEPS = 24
"""Parts of a range that are priced; where it begins to pay is then halved in on."""
HALVINGS = 20


class AssumedFigure(StrictModel):
    """The ends of a range, and why these: ``worst`` and ``best`` for the system's speed."""

    worst: float = Field(ge=0)
    best: float = Field(ge=0)
    why: Text

    @model_validator(mode="after")
    def _labelled(self) -> Self:
        if not self.why.startswith("assumption: "):
            raise ValueError(f"got the reason {self.why!r}; it begins with 'assumption: ', since no source gives the figure")
        return self

    def at(self, share: float) -> float:
        """The figure at a share of the way from the worst end to the best."""
        return self.worst + share * (self.best - self.worst)


def figures_at(assumed: Mapping[str, AssumedFigure], share: float) -> dict[str, float]:
    """Every assumed figure at that share."""
    return {name: figure.at(share) for name, figure in assumed.items()}


@frozen
class PricedRange:
    """A system at the worst and the best end, and the prices between. ``faster``: spans of shares where it beats the other
    system by expected seconds per token; None where it is compared with none.
    """

    worst: MethodTrace
    best: MethodTrace
    prices: tuple[SummedPrice, ...]
    faster: tuple[tuple[float, float], ...] | None


def priced_range(
    trace: Callable[[float], MethodTrace],
    price: Callable[[MethodTrace], SummedPrice],
    other: Callable[[float], SummedPrice] | None,
) -> PricedRange:
    """Price ``trace`` at shares from 0 to 1; ``other``: the price to beat at a share."""
    shares = [step / STEPS for step in range(STEPS + 1)]
    return PricedRange(
        worst=trace(0.0),
        best=trace(1.0),
        prices=tuple(price(trace(share)) for share in shares),
        faster=None if other is None else spans(lambda share: price(trace(share)).expected_s < other(share).expected_s, shares),
    )


def spans(holds: Callable[[float], bool], shares: list[float]) -> tuple[tuple[float, float], ...]:
    """(from, to) of every stretch of the rising ``shares`` on which ``holds``; ends between two shares are halved in on."""
    stretches: list[tuple[float, float]] = []
    begun: float | None = None
    holding = [holds(share) for share in shares]
    for number, (share, now) in enumerate(zip(shares, holding, strict=True)):
        if now and begun is None:
            begun = share if number == 0 else _turn(holds, shares[number - 1], share)
        elif not now and begun is not None:
            stretches.append((begun, _turn(holds, share, shares[number - 1])))
            begun = None
    return (*stretches, (begun, shares[-1])) if begun is not None else tuple(stretches)


def _turn(holds: Callable[[float], bool], outside: float, inside: float) -> float:
    """The end of a stretch, where it still holds."""
    for _ in range(HALVINGS):
        middle = (outside + inside) / 2
        outside, inside = (outside, middle) if holds(middle) else (middle, inside)
    return inside


class Recipe:
    """A method as a function of the figures it takes, which are its parameters after the setting.

    ``needs``: figures without which there is no trace; ``may_have``: refinements, which have a default; ``auxiliary``: whether
    it takes a second model's shape. A figure is a whole number where its parameter is annotated so.
    """

    def __init__(self, build: Callable[..., MethodTrace]) -> None:
        _, *taken = signature(build).parameters.values()
        figures = [parameter for parameter in taken if parameter.name != "auxiliary"]
        self.build = build
        self.needs = tuple(parameter.name for parameter in figures if parameter.default is parameter.empty)
        self.may_have = tuple(parameter.name for parameter in figures if parameter.name not in self.needs)
        self.auxiliary = len(figures) < len(taken)
        self._whole = {parameter.name for parameter in figures if parameter.annotation.startswith("int")}

    def trace(self, at: PricedAt, figures: Mapping[str, float], auxiliary: ModelShape | None) -> MethodTrace:
        """The model calls at these figures."""
        given: dict[str, Any] = {name: round(value) if name in self._whole else value for name, value in figures.items()}
        return self.build(at, **given, **({"auxiliary": auxiliary} if self.auxiliary else {}))


def _set_block(at: PricedAt, *, block_size: int, nfe_speedup: float) -> MethodTrace:
    return set_block(at, block_size=block_size, passes_per_block=block_size / nfe_speedup)


def _hierarchy(
    at: PricedAt,
    *,
    large_draft_share_of_layers: float,
    large_draft_tokens: int,
    large_draft_acceptance: float,
    small_draft_share_of_layers: float,
    small_draft_tokens: int,
    small_draft_acceptance: float,
) -> MethodTrace:
    drafters = []
    for name, share, tokens, acceptance in (
        ("large_draft", large_draft_share_of_layers, large_draft_tokens, large_draft_acceptance),
        ("small_draft", small_draft_share_of_layers, small_draft_tokens, small_draft_acceptance),
    ):
        layers = max(1, round(at.target.layers * probability(f"{name}_share_of_layers", share)))
        drafters.append(PricedDrafter(shape=with_layers(at.target, layers), drafted_tokens=tokens, acceptance=acceptance))
    return hierarchy(at, tuple(drafters))


def _copied_state(at: PricedAt, *, mean_exit_share_of_layers: float) -> MethodTrace:
    """The two layers around the published mean exit; in a batch the row that goes further decides."""
    mean = at.target.layers * probability("mean exit as a share of the layers", mean_exit_share_of_layers)
    exits = whole_widths(max(1.0, mean))
    last = () if exits[-1][0] == at.target.layers else ((at.target.layers, 0.0),)
    return copied_state(at, (*exits, *last))


def _caught_up(at: PricedAt, *, exit_share_of_layers: float, early_share: float) -> MethodTrace:
    early = probability("early share of the tokens", early_share)
    layer = min(at.target.layers - 1, max(1, round(at.target.layers * exit_share_of_layers)))
    return caught_up(at, ((layer, early), (at.target.layers, 1 - early)), verified=False)


def _verified_exits(
    at: PricedAt, *, exit_heads: int, early_share_1: float, early_share_2: float, early_share_3: float, rejected: float
) -> MethodTrace:
    shares = (early_share_1, early_share_2, early_share_3)[:exit_heads]
    if exit_heads > len(shares):
        raise UserError(f"exit heads: given were {exit_heads}, but the shares of {len(shares)}")
    step = at_least("layers between exits", at.target.layers // (exit_heads + 1), 1)
    exits = [(int(step) * (number + 1), share) for number, share in enumerate(shares)]
    return caught_up(at, (*exits, (at.target.layers, 1 - sum(shares))), verified=True, rejected=rejected)


METHODS: dict[str, Callable[..., MethodTrace]] = {
    "next_token": next_token,
    "set_block": _set_block,
    "verified_set_block": verified_set_block,
    "next_block": next_block,
    "over_a_link": over_a_link,
    "tree": tree_drafting,
    "draft_model": speculative,
    "hierarchy": _hierarchy,
    "copied_state": _copied_state,
    "caught_up": _caught_up,
    "verified_exits": _verified_exits,
    "chunks": chunks,
    "pruned": pruned_decoding,
    "whole_sequence": whole_sequence,
    "approximate_cache": approximate_cache,
    "block_diffusion": block_diffusion,
    "longest_prefix": longest_prefix,
    "with_auxiliary": with_auxiliary,
}
RECIPES = {name: Recipe(method) for name, method in METHODS.items()}

MARK = "priced, not run"
NOT_PUBLISHED = "not published"
"""The mark of what is priced over a range that was assumed."""
_FILE = Path(__file__).with_name("systems.yaml")


class PublishedSpeedup(SourcedFigure):
    """A wall speedup as published: over what, on which hardware, with which model; None where the source does not say."""

    over: Text
    hardware: Text | None = None
    model: Text | None = None


class System(StrictModel):
    """One published system. ``figures`` are what its recipe needs, ``auxiliary`` a second model with its source.

    ``lossless``: the reference whose output is unchanged, or how the output differs. ``assumed``: a range for each figure
    that no source gives. ``against``: the listed system to which the range is held; where that one is assumed too, both are
    taken at the same share of their ranges.
    """

    name: Text
    reference: Text
    lossless: Text
    recipe: Text
    figures: dict[str, SourcedFigure] = Field(default_factory=dict)
    assumed: dict[str, AssumedFigure] = Field(default_factory=dict)
    against: Text = "SBD, low gamma"
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
        unknown = [name for name, figure in self.figures.items() if figure.value is None]
        if self.assumed and set(self.assumed) != set(unknown):
            raise ValueError(
                f"assumed are [{', '.join(self.assumed)}]; a range is for every figure without a value: [{', '.join(unknown)}]"
            )
        if recipe.auxiliary != (self.auxiliary is not None) or (self.auxiliary is None) != (self.auxiliary_source is None):
            wanted = "an auxiliary model with auxiliary_source" if recipe.auxiliary else "no auxiliary model"
            raise ValueError(f"recipe {self.recipe!r} takes {wanted}")
        return self

    @property
    def missing(self) -> dict[str, str]:
        """Every figure that keeps the system from being priced, and why no source gives it."""
        needs = {name: self.figures[name] for name in RECIPES[self.recipe].needs}
        return {name: figure.source for name, figure in needs.items() if figure.value is None}

    @property
    def grade(self) -> str | None:
        """The weakest grade among the figures that the trace rests on (V, R, S, U); None where it rests on none."""
        grades = [figure.grade for figure in self.figures.values() if figure.grade is not None]
        return max(grades, key="VRSU".index, default=None)

    def trace(self, at: PricedAt) -> MethodTrace | None:
        """Its model calls on the model of ``at``, with its own published acceptance; None where a figure is missing.

        Raises:
            UserError: the figures make no sense on this model.
        """
        return None if self.missing else self._trace(at, {})

    def assumed_trace(self, at: PricedAt, share: float) -> MethodTrace:
        """Its model calls with the figures that no source gives at a share of their assumed ranges.

        Raises:
            UserError: the figures make no sense on this model.
        """
        return self._trace(at, figures_at(self.assumed, share))

    def _trace(self, at: PricedAt, assumed: Mapping[str, float]) -> MethodTrace:
        given = {name: figure.value for name, figure in self.figures.items() if figure.value is not None}
        return RECIPES[self.recipe].trace(at, {**given, **assumed}, self.auxiliary)


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
    return read_yaml(path, UserError, "list systems as in the shipped systems.yaml").value(Systems).systems


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
