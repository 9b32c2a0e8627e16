"""A decoding method as one descriptor, from its keys in a scenario to the name of its decoder.

A new method is a descriptor and a decoder; plan, run, record, report and verdict need nothing else. The decoder is a dotted
name that the engine resolves, so no torch is loaded. harness.scenario.methods has the table of all methods.
``with_plugins`` adds what installed packages offer by an entry point group.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import asdict
from functools import reduce
from importlib.metadata import entry_points
from itertools import product
from math import prod
from operator import or_
from typing import Annotated, Any, ClassVar, Generic, Literal, Self, TypeVar

from pydantic import ConfigDict, Discriminator, Tag

from harness.config_file import Count, StrictModel, one_or_several
from harness.errors import UserError
from harness.frozen import frozen
from harness.record.trace import Role
from harness.record.written import WrittenArm

PassesOfBlock = Callable[[int], float]
"""Passes of a block with so many tokens to decide: at most one a token, or the replayed number."""
GREEDY = 0.0
"""Temperature of taking the likeliest token."""
AUTO = "auto"
"""A width that the machine chooses in the run; and the key of an arm of a case that says which of its keys it stands for."""
WIDTHS = (2, 3, 4, 5, 6, 8, 12, 16)
"""The widths that ``auto`` chooses from."""
Width = Annotated[
    Annotated[Count, Tag("count")] | Annotated[Literal["auto"], Tag(AUTO)],
    Discriminator(lambda value: AUTO if value == AUTO else "count"),
]
Widths = Annotated[tuple[Width, ...], *one_or_several(Width)]


MOST_CASES = 10_000
MOST_SAMPLES = 10_000_000


def refuse_many(count: int, what: str, most: int = MOST_CASES) -> None:
    """Refuse what no run would ever finish, before the list of it is made.

    Raises:
        ValueError: ``count`` is above ``most``.
    """
    if count > most:
        raise ValueError(f"{count:,} {what}, allowed are {most:,}; give the axes that multiply fewer values, or split the file")


def lossless_against(temperature: float) -> str:
    """What an arm that decodes without loss is lossless against, in exact arithmetic."""
    if temperature == GREEDY:
        return "greedy NTP, same weights"
    return f"NTP at temperature {temperature:.12g}, same weights, in distribution"


def widths(arm: StrictModel, key: str) -> tuple[int, ...]:
    """The values of a key of widths, with the widest one that ``auto`` may choose; empty for an arm without the key."""
    return tuple(WIDTHS[-1] if value == AUTO else value for value in getattr(arm, key, ()))


class ArmSettings(WrittenArm):
    """An arm of a case, one value on every axis: what its decoder reads, and, as ``values``, what a record keeps.

    A method with settings of its own has a class with these fields.
    """

    model_config = ConfigDict(strict=False)

    temperature: float = GREEDY
    auto: str | None = None
    """The key of a width that the machine chooses, chosen or not."""
    batching: Literal["lockstep", "ragged"] | None = None

    def at_width(self, width: int) -> Self:
        """With this width where the machine chooses one."""
        return self | {self.auto: width} if self.auto else self

    @property
    def written(self) -> WrittenArm:
        """As a record has it."""
        return WrittenArm.model_validate(self.values)


class BlockSettings(ArmSettings):
    """Of an arm that decodes in blocks."""

    block_size: int

    @property
    def k(self) -> str:
        """The block size in ids and labels; ``auto`` before and after the choice of a width."""
        return AUTO if self.auto else str(self.block_size)


class ArmKeys(StrictModel):
    """The keys of an arm in a scenario; a list on one of them is an axis of the plan.

    ``axes``: the keys of a variant after ``method``, in order; one that is not dumped is left out. ``lossless``: whether the
    output is identical to that of NTP, or, in words, to what. A replayed arm writes nothing that could be identical.
    ``models``: the keys that hold models, each one value: a variant has them as they were read, with what was granted to them.
    ``settings``: the class of a variant.
    """

    axes: ClassVar[tuple[str, ...]] = ("temperature",)
    models: ClassVar[tuple[str, ...]] = ()
    lossless: ClassVar[bool | str] = False
    settings: ClassVar[type[ArmSettings]] = ArmSettings

    def axis(self, name: str, dumped: Any) -> list[dict[str, Any]]:
        """The keys of a variant at each point of one axis; ``auto`` is the widest that may be chosen until it is."""
        values = dumped if isinstance(dumped, list) and name not in self.models else [dumped]
        return [{name: WIDTHS[-1], AUTO: name} if value == AUTO else {name: value} for value in values]

    def variants(self) -> list[ArmSettings]:
        """The settings of every point."""
        models = {name: getattr(self, name) for name in self.models}
        return [self.settings.model_validate(point).model_copy(update=models) for point in self.points()]

    def points(self) -> list[dict[str, Any]]:
        """One mapping per point of the product of the axes, every key with a single value, as a record has it."""
        dumped = {"settings": None} | self.model_dump(mode="json")
        axes = [self.axis(name, dumped[name]) for name in self.axes if name in dumped]
        refuse_many(prod(map(len, axes)), "settings of one arm")
        points = [reduce(or_, point, {"method": dumped["method"]}) for point in product(*axes)]
        if not self.lossless or dumped.get("acceptance", "real") != "real":
            return points
        told = self.lossless if isinstance(self.lossless, str) else None
        return [{**point, "lossless": told or lossless_against(point["temperature"])} for point in points]


@frozen
class ReplaySpec:
    """What a replayed arm replays. ``mean_passes_per_block`` is None where a recorded trace gives the passes.

    ``assumed``: the distribution of passes per block is assumed, and at batch > 1 so are all figures derived from it.
    """

    source: dict[str, Any]
    nfe_speedup: float | None
    mean_passes_per_block: float | None
    assumed: bool

    def to_dict(self) -> dict[str, Any]:
        """Its form in the record."""
        return asdict(self)


@frozen
class PlannedPass:
    """A kind of decode pass of one row: tokens fed, context, tokens kept; and ``count`` of them."""

    role: Role
    query_tokens: int
    context_tokens: int
    logits: int
    kept: int = 0
    count: float = 1


S = TypeVar("S", bound=ArmSettings)


@frozen
class Method(Generic[S]):
    """One decoding method, with settings of the type ``S``.

    ``name``     the value of an arm's key ``method``; other methods may share ``arm``
    ``arm``      its keys in a scenario, which also name the class of its settings
    ``arm_id``   its part of a case id, which never changes once a run was recorded
    ``label``    what tables and figures call it, without the temperature
    ``decoder``  dotted name, ``module:function``, of a function from harness.engine.decoders.Decoding to the decoder
    ``passes``   the decode passes of one sample, at most, by prompt tokens, new tokens and passes per block
    ``widest``   (query tokens, logits) of a row's widest decode pass, by prompt tokens and new tokens; left out: by ``passes``
    ``rival``    whether it stands beside another method to be compared with it, so that no answer is about it first
    """

    name: str
    arm: type[ArmKeys]
    arm_id: Callable[[S, ReplaySpec | None], str]
    label: Callable[[S, ReplaySpec | None], str]
    decoder: str
    passes: Callable[[S, int, int, PassesOfBlock], Iterable[PlannedPass]]
    widest: Callable[[S, int, int], tuple[int, int]] | None = None
    rival: bool = False

    def widest_of(self, arm: S, prompt_tokens: int, new_tokens: int) -> tuple[int, int]:
        """As ``widest``."""
        if self.widest is not None:
            return self.widest(arm, prompt_tokens, new_tokens)
        planned = list(self.passes(arm, prompt_tokens, new_tokens, float))
        return max(one.query_tokens for one in planned), max(one.logits for one in planned)


def per_token(prompt_tokens: int, steps: int, *passes: tuple[Role, int, int, int]) -> Iterable[PlannedPass]:
    """``passes``, (role, query tokens, tokens kept, count), between any two of ``steps`` tokens, at the context half way."""
    context = prompt_tokens + steps // 2
    for role, query, kept, count in passes:
        yield PlannedPass(role=role, query_tokens=query, context_tokens=context, logits=query, kept=kept, count=steps * count)


def number(value: float) -> str:
    """The number as ids and labels write it."""
    return format(value, ".12g")


def confidence_bound(least_confidence: float | None, prefix: str) -> str:
    """An arm's ``least_confidence`` in ids and labels, after ``prefix``; empty for one that has none."""
    return "" if least_confidence is None else f"{prefix}{number(least_confidence)}"


T = TypeVar("T")


def with_plugins(own: dict[str, T], group: str, kind: type[T]) -> dict[str, T]:
    """``own``, then what the entry points of ``group`` give, each under the entry point's name.

    Raises:
        UserError: one cannot be loaded, is no ``kind``, or has a name that is already taken.
    """
    found = dict(own)
    for entry in entry_points(group=group):
        where = f"the entry point {entry.name} = {entry.value} ({group}) of {entry.dist.name if entry.dist else 'a package'}"
        try:
            given = entry.load()
        except Exception as error:
            raise UserError(f"{where} cannot be loaded: {type(error).__name__}: {error}; mend or uninstall it") from error
        if not isinstance(given, kind):
            raise UserError(f"{where} gives a {type(given).__name__}; allowed is a {kind.__module__}.{kind.__name__}")
        if entry.name in found:
            raise UserError(f"{where} takes a name that is taken; rename it, or uninstall one of the two packages")
        found[entry.name] = given
    return found
