"""The published systems of systems.yaml: what each reports of itself, figure by figure with its source.

No system here was run: its published figures are put into a trace and priced. A figure that no source gives is absent with
the reason, and then the system has no trace.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Self

from pydantic import Field, ValidationError, model_validator

from harness.config_file import Frozen, Text
from harness.errors import InvariantError, UserError
from harness.hardware.figures import Figure
from harness.models import ModelShape
from harness.roofline.methods.calls import MethodTrace, Setting
from harness.roofline.methods.recipes import RECIPES
from harness.yaml_lines import read_yaml

MARK = "priced, not run"
_FILE = Path(__file__).with_name("systems.yaml")


class PublishedSpeedup(Figure):
    """A wall speedup as published: over what, on which hardware, with which model; None where the source does not say."""

    over: Text
    hardware: Text | None = None
    model: Text | None = None


class System(Frozen):
    """One published system. ``figures`` are what its recipe needs, ``auxiliary`` a second model with its source.

    ``lossless``: compared with what the output is unchanged, or how it differs.
    """

    name: Text
    reference: Text
    lossless: Text
    recipe: Text
    figures: dict[str, Figure] = Field(default_factory=dict)
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


class Systems(Frozen):
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
