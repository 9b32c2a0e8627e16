"""One published figure with its source, and the bounds within which a figure of each kind must lie.

The bounds are wider than any device of the last ten years: they refuse a wrong unit, not a surprising value.
"""

from __future__ import annotations

from typing import Annotated, Literal, Self, get_args

from pydantic import AfterValidator, Field, model_validator

from harness.config_file import StrictModel, Text

MemoryType = Literal["hbm", "gddr", "lpddr"]
Grade = Literal["V", "R", "S", "U"]
PeakDtype = Literal["bfloat16", "float16", "float8", "int8", "tf32", "float32"]
# Not strict: YAML reads 3350e+9, without a point, as text.
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class OtherValue(StrictModel):
    """A value that another source gives for the same figure."""

    value: Positive
    source: Text
    grade: Grade
    date: Text | None = None


class SourcedFigure(StrictModel):
    """One published figure. ``value`` is None where it is not known, and then ``source`` says why.

    ``grade``: V verified in a vendor's or project's source, R measured by us, S secondary, U unverified.
    ``also``: values of other sources that do not agree; predictions use ``value``.
    """

    value: Positive | None
    source: Text
    grade: Grade | None = None
    date: Text | None = None
    also: tuple[OtherValue, ...] = ()

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if self.value is not None and self.grade is None:
            raise ValueError("a figure with a value needs a grade: V verified, R measured by us, S secondary, U unverified")
        if self.also and self.value in {None, *(other.value for other in self.also)}:
            raise ValueError("'also' lists values unlike 'value'; leave it out where sources agree or have no figure")
        return self


def within(low: float, high: float, unit: str, example: str) -> AfterValidator:
    """A check that every value of a figure lies in [low, high]; ``example`` shows how a figure is written in ``unit``."""

    def check(figure: SourcedFigure) -> SourcedFigure:
        for value in (figure.value, *(other.value for other in figure.also)):
            if value is not None and not low <= value <= high:
                raise ValueError(f"got {value:g} {unit}, allowed are {low:g} to {high:g}; check the unit: {example}")
        return figure

    return AfterValidator(check)


def dated(figure: SourcedFigure) -> SourcedFigure:
    """A price is refused without the date it was seen."""
    if figure.value is not None and figure.date is None:
        raise ValueError('a price needs the date it was seen; add date: "2026-11-09"')
    return figure


def every_dtype(peaks: dict[PeakDtype, SourcedFigure]) -> dict[PeakDtype, SourcedFigure]:
    """Every dtype has its rate or the reason why none is known."""
    for dtype in get_args(PeakDtype):
        if dtype not in peaks:
            raise ValueError(f"{dtype} is missing; add it, as {{value: null, source: why}} where none is published")
    return peaks


Peak = Annotated[SourcedFigure, within(1e10, 1e17, "FLOP/s", "989.4 TFLOP/s is 989.4e+12")]
Peaks = Annotated[dict[PeakDtype, Peak], AfterValidator(every_dtype)]
Bandwidth = Annotated[SourcedFigure, within(1e9, 1e14, "bytes/s", "3350 GB/s is 3350e+9")]
Memory = Annotated[SourcedFigure, within(1e9, 1e13, "bytes", "80 GB is 80e+9")]
MemoryMib = Annotated[SourcedFigure, within(1e3, 1e7, "MiB", "as nvidia-smi prints it: 143771")]
Cache = Annotated[SourcedFigure, within(1e5, 1e10, "bytes", "50 MB is 50e+6")]
Power = Annotated[SourcedFigure, within(1, 1e4, "W", "700 W is 700")]
Price = Annotated[SourcedFigure, within(0.01, 1e3, "USD per device and hour", "3.99 USD is 3.99"), AfterValidator(dated)]
Multiprocessors = Annotated[SourcedFigure, within(1, 1e4, "multiprocessors", "132")]
