"""One published figure with its source and its bounds; and what `sbd calibrate` measured on a device, apart from these.

The bounds are wider than any device of the last ten years: they refuse a wrong unit, not a surprising value. Every measured
figure has grade R. Its source says how it was measured, on which machine and when. A figure that was not measured is None with
its reason.
"""

from __future__ import annotations

from typing import Annotated, Literal, Self, get_args

from pydantic import AfterValidator, Field, PositiveInt, model_validator

from harness.config_file import Flag, NonNegative, StrictModel, Text

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


MeasuredDtype = Literal["bfloat16", "float16", "float32", "float64"]
Rate = Annotated[float, Field(gt=0, allow_inf_nan=False)]

BEYOND_CACHE = 4
"""A buffer this many times the last-level cache is read from memory (measurement notes, section 4)."""


class MeasuredFigure(StrictModel):
    """One figure. ``value`` is None where it could not be measured, and then ``source`` says why."""

    value: NonNegative | None
    source: Text
    grade: Literal["R"]
    date: Text


class MeasuredPoint(StrictModel):
    """One point of a curve, ``at`` so many bytes or tokens; None was not measured, for the ``reason`` given."""

    at: PositiveInt
    value: Rate | None
    reason: Text | None = None

    @model_validator(mode="after")
    def _explained(self) -> MeasuredPoint:
        if (self.value is None) != (self.reason is not None):
            raise ValueError("a point has a value, or a reason why it has none")
        return self


class MeasuredCurve(StrictModel):
    """A figure that depends on a size, its points in the order of that size."""

    points: tuple[MeasuredPoint, ...] = Field(min_length=1)
    source: Text
    grade: Literal["R"]
    date: Text

    @model_validator(mode="after")
    def _sorted(self) -> MeasuredCurve:
        sizes = [point.at for point in self.points]
        if sizes != sorted(set(sizes)):
            raise ValueError(f"the points stand at {sizes}; sort them by size, each size once")
        return self

    @property
    def known(self) -> tuple[tuple[int, float], ...]:
        """(size, value) of the points that were measured."""
        return tuple((point.at, point.value) for point in self.points if point.value is not None)


class MeasuredCeilings(StrictModel):
    """The ceilings of one machine, with the versions that reached them.

    ``read_bytes_per_s``       best rate by buffer size (bytes)
    ``copy_bytes_per_s``       the same for a copy, bytes read and bytes written counted
    ``matrix_flops_per_s``     per dtype by tokens m: a matrix product whose weight stays in the cache
    ``attention_flops_per_s``  per dtype by queries that share a KV head: attention whose keys and values stay in the cache;
                               empty on a GPU and in older surveys
    ``streaming_s_per_byte``   per dtype by tokens m: a linear layer whose weights come from memory, seconds per weight byte
    ``fixed_s_per_pass``, ``fixed_s_per_layer``  cost of a forward pass besides bytes and flops, by ``engine`` (in words);
                               ``fixed_hidden``: it runs beside the device's arithmetic and adds nothing to it
    ``cache_bytes``, ``memory_bytes``, ``multiprocessors``  as the system reports them (a CPU has no multiprocessors)
    """

    device_name: Text
    device: Text
    threads: PositiveInt | None
    multiprocessors: PositiveInt | None
    measured_at: Text
    program_version: Text
    torch_version: Text
    engine: Text
    load_1min: NonNegative | None
    read_bytes_per_s: MeasuredCurve
    copy_bytes_per_s: MeasuredCurve
    matrix_flops_per_s: dict[MeasuredDtype, MeasuredCurve]
    attention_flops_per_s: dict[MeasuredDtype, MeasuredCurve] = Field(default_factory=dict)
    streaming_s_per_byte: dict[MeasuredDtype, MeasuredCurve]
    fixed_s_per_pass: MeasuredFigure
    fixed_s_per_layer: MeasuredFigure
    fixed_hidden: Flag
    sampler_s_per_logit: MeasuredFigure
    cache_bytes: MeasuredFigure
    memory_bytes: MeasuredFigure

    @property
    def largest_read(self) -> tuple[int, float] | None:
        """(buffer bytes, bytes per second) of the largest buffer that was read."""
        return self.read_bytes_per_s.known[-1] if self.read_bytes_per_s.known else None

    @property
    def read_is_memory(self) -> tuple[bool, str]:
        """Whether that buffer was too large for the cache, so that the rate is memory's; and why, in words."""
        cache, largest = self.cache_bytes.value, self.largest_read
        if largest is None:
            return False, "no buffer was read"
        read = f"{largest[1] / 1e9:.1f} GB/s read at {largest[0] / 2**20:,.0f} MiB"
        if cache is None:
            return False, f"{read}, which cannot be told memory from cache: {self.cache_bytes.source}"
        apart = f"{largest[0] / cache:.1f} times the last-level cache" if cache else "there is no cache"
        if largest[0] < BEYOND_CACHE * cache:
            return False, f"{read}, {apart}: less than {BEYOND_CACHE} times does not show that it came from memory"
        return True, f"{read}, {apart}"
