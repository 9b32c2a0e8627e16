"""The figures of the shipped profiles against a table typed on its own, and every way in which a file is refused."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.errors import UnknownHardwareError
from harness.hardware.figures import SourcedFigure
from harness.hardware.profile import HardwareProfile, known_profiles, load_profile
from harness.paths import data_dir
from tests.helpers.typed_figures import typed_figures

TERA, GIGA, MEGA = 1e12, 1e9, 1e6


def figures(profile: HardwareProfile) -> Iterator[tuple[str, float, SourcedFigure | None]]:
    """(column of the table, its unit, the figure) for everything the table has of a profile."""
    peaks, ceilings = profile.peak_flops_per_s, profile.published_ceilings
    yield "bf16_tflops", TERA, peaks["bfloat16"]
    yield "bf16_tflops", TERA, peaks["float16"]  # the published rate is one for both
    yield "fp8_tflops", TERA, peaks["float8"]
    yield "int8_tops", TERA, peaks["int8"]
    yield "tf32_tflops", TERA, peaks["tf32"]
    yield "fp32_tflops", TERA, peaks["float32"]
    yield "memory_gb", GIGA, profile.memory_bytes
    yield "seen_mib", 1, profile.memory_seen_mib
    yield "bandwidth_gb_s", GIGA, profile.bandwidth_bytes_per_s
    yield "cache_mb", MEGA, profile.cache_bytes
    yield "link_gb_s", GIGA, profile.link_bytes_per_s
    yield "power_w", 1, profile.power_w
    yield "multiprocessors", 1, profile.multiprocessors
    yield "price_usd", 1, profile.price_usd_per_hour
    yield "matmul_bf16_tflops", TERA, ceilings.matrix_flops_per_s.get("bfloat16")
    yield "matmul_fp8_tflops", TERA, ceilings.matrix_flops_per_s.get("float8")
    yield "copy_gb_s", GIGA, ceilings.copy_bytes_per_s


def values(figure: SourcedFigure | None) -> list[float]:
    """The value and those of other sources; empty where nothing is known."""
    if figure is None or figure.value is None:
        return []
    return [figure.value, *(other.value for other in figure.also)]


def test_the_table_and_the_folder_hold_the_same_devices():
    """Every profile has a row, every row a profile."""
    assert sorted(typed_figures()) == sorted(known_profiles())


@pytest.mark.parametrize("name", sorted(known_profiles()))
def test_every_figure_equals_the_typed_one(name: str):
    """The same values in the same order, or unknown in both; a slip of a digit or a unit on either side is seen here."""
    row, profile = typed_figures()[name], known_profiles()[name]
    for column, unit, figure in figures(profile):
        typed = [float(value) * unit for value in row[column].split("|") if value]
        assert values(figure) == pytest.approx(typed, rel=1e-12), column
    assert profile.price_usd_per_hour.date == (row["price_date"] or None)
    assert set(profile.published_ceilings.matrix_flops_per_s) <= {"bfloat16", "float8"}, "a ceiling without a column"


def fit_one_another(peaks: dict[str, float]) -> bool:
    """Dense rates grow as the type narrows; float8 is twice bfloat16 wherever it exists (a sparse one would be four times)."""
    half = peaks["bfloat16"]
    grow = peaks.get("float32", 0) <= peaks.get("tf32", half) < half * 1.0001
    return grow and peaks["float16"] == half and abs(peaks.get("float8", 2 * half) / half - 2) < 0.04


def test_rates_of_a_device_fit_one_another():
    """Of every profile that has them; a rate eight times as large does not fit."""
    by_name = {
        name: {dtype: figure.value for dtype, figure in one.peak_flops_per_s.items() if figure.value is not None}
        for name, one in known_profiles().items()
    }
    assert [name for name, peaks in by_name.items() if "bfloat16" in peaks and not fit_one_another(peaks)] == []
    h100 = by_name["h100-sxm"]
    assert [dtype for dtype in h100 if fit_one_another(h100 | {dtype: 8 * h100[dtype]})] == ["int8"]


def test_ridge_points_equal_the_published_ones():
    """Peak over bandwidth against ridge points computed elsewhere (FLOP per byte); None where a figure is unknown."""
    published = {
        "h100-sxm": 295,
        "h200-sxm": 206,
        "a100-80-sxm": 153,
        "l40s": 419,
        "l4": 403,
        "a10g": 117,
        "rtx-4090": 164,
        "rtx-5090": 117,
        "b200-sxm": 292,
        "mi300x": 247,
        "mi355x": 312,
        "h20": 37,
    }
    for name, ridge in published.items():
        assert known_profiles()[name].ridge_flops_per_byte() == pytest.approx(ridge, abs=0.6), name
    assert known_profiles()["m4"].ridge_flops_per_byte() is None
    assert known_profiles()["a100-80-sxm"].ridge_flops_per_byte("float8") is None


H100 = (data_dir("hardware_profiles") / "h100-sxm.yaml").read_text(encoding="utf-8")
INT8_LINE = next(line for line in H100.splitlines(keepends=True) if line.startswith("  int8:"))
RTX = (data_dir("hardware_profiles") / "rtx-4090.yaml").read_text(encoding="utf-8")
# (shipped text, what stands in it, what is written instead, what the message must say after file:line:)
SLIPS = [
    (
        H100,
        "{value: 3350e+9",
        "{value: 3350",
        r"bandwidth_bytes_per_s: got 3350 bytes/s, allowed are 1e\+09 to 1e\+14; check the unit: 3350",
    ),
    (H100, "{value: 3350e+9", "{value: 3350e+12", r"bandwidth_bytes_per_s: got 3.35e\+15 bytes/s, allowed"),
    (
        H100,
        "{value: 3350e+9",
        "{value: 3350e+6",
        r"bandwidth_bytes_per_s: the bfloat16 peak is 295343 FLOP per byte of it, allowed are 3",
    ),
    (H100, "{value: 80e+9", "{value: 80", r"memory_bytes: got 80 bytes, allowed are 1e\+09"),
    (H100, "{value: 50e+6", "{value: 50", r"cache_bytes: got 50 bytes, allowed are 100000"),
    (H100, "{value: 900e+9", "{value: 900", r"link_bytes_per_s: got 900 bytes/s"),
    (H100, "{value: 700,", "{value: 0.7e-1,", r"power_w: got 0.07 W, allowed are 1 to 10000"),
    (H100, "{value: 132,", "{value: 16896,", r"multiprocessors: got 16896 multiprocessors, allowed are 1 to 10000"),
    (H100, "{value: 3.99,", "{value: 3990,", r"price_usd_per_hour: got 3990 USD per device and hour, allowed are 0.01 to 1000"),
    (H100, "{value: 12.29,", "{value: 12290,", r"price_usd_per_hour: got 12290 USD"),
    (H100, ', date: "2026-11-09", source: "RunPod', ', source: "RunPod', r"price_usd_per_hour: a price needs the date"),
    (
        H100,
        "bfloat16: {value: 989.4e+12",
        "bfloat16: {value: 989.4",
        r"peak_flops_per_s.bfloat16: got 989.4 FLOP/s, allowed are 1e\+10 to 1e\+17",
    ),
    (
        H100,
        "  float8: {value: 1979e+12",
        "  float8: {value: 3958e+12",
        r"peak_flops_per_s.float8: got 3.958e\+15 FLOP/s, 4 times the 9.894e\+14 of bfloat16, allowed is 2 .*halve it",
    ),
    (H100, "int8: {value: 1979e+12", "int8: {value: 3958e+12", r"peak_flops_per_s.int8: got 3.958e\+15 FLOP/s, 4 times"),
    (
        H100,
        "tf32: {value: 494.7e+12",
        "tf32: {value: 989e+12",
        r"peak_flops_per_s.tf32: got 9.89e\+14 FLOP/s, 1 times .* allowed is 0.5",
    ),
    (
        RTX,
        "halved_in_float32: true\n",
        "",
        r"peak_flops_per_s.int8: got 6.606e\+14 FLOP/s, 4 times .*say halved_in_float32: true",
    ),
    (H100, "  int8: {value", "  int4: {value", r"peak_flops_per_s.int4: got 'int4', should be 'bfloat16', .*choose one"),
    (H100, INT8_LINE, "", r"peak_flops_per_s: int8 is missing; add it, as {value: null"),
    (H100, "power_w:", "power:", r"power: unknown key power; .*did you mean 'power_w'"),
    (H100, "name: h100-sxm\n", "name: h100 sxm\n", r"name: got 'h100 sxm', .*pattern"),
    (H100, "kind: gpu", "kind: tpu", r"kind: got 'tpu', should be 'gpu' or 'cpu'; choose one"),
    (H100, "{value: 700, grade: V,", "{value: 700,", r"power_w: a figure with a value needs a grade"),
    (H100, "{value: 700, grade: V,", "{value: 700, grade: A,", r"power_w.grade: got 'A', should be 'V', 'R', 'S' or 'U'"),
    (H100, "{value: 700, grade: V,", "{value: -700, grade: V,", r"power_w.value: got -700, should be greater than 0"),
    (H100, "{value: 700, grade: V,", "{value: lots, grade: V,", r"power_w.value: got 'lots', should be a valid number"),
    (
        H100,
        'multiprocessors: {value: 132, grade: V, source: "',
        'multiprocessors: {value: 132, grade: V, source: "", notes: "',
        r"multiprocessors.notes: unknown key notes",
    ),
    (H100, "{value: 2.4,", "{value: 3.99,", r"price_usd_per_hour: 'also' lists values unlike 'value'"),
    (
        H100,
        "bfloat16: {value: 794.5e+12",
        "bfloat16: {value: 1794.5e+12",
        r"published_ceilings.matrix_flops_per_s.bfloat16: got 1.7945e\+15, measured, above the published peak 9.894e\+14",
    ),
    (
        H100,
        "published_ceilings:\n",
        'published_ceilings:\n  copy_bytes_per_s: {value: 4300e+9, grade: S, source: "x"}\n',
        r"published_ceilings.copy_bytes_per_s: got 4.3e\+12, measured, above",
    ),
    (
        H100,
        "cache_bytes:",
        'memory_seen_mib: {value: 143771, grade: S, source: "x"}\ncache_bytes:',
        r"memory_seen_mib: got 143771 MiB, more than 12% away",
    ),
]


def line_of(text: str, path: str) -> int:
    """The line (from 1) of the key at ``path``, found by looking for one key after the other."""
    place = 0
    for key in path.split("."):
        place = text.index(f"{key}:", place)
    return text[:place].count("\n") + 1


@pytest.mark.parametrize(("text", "given", "instead", "message"), SLIPS)
def test_a_wrong_figure_is_refused_with_file_and_line(tmp_path: Path, text: str, given: str, instead: str, message: str):
    """One slip in a shipped file: the message has the line where it was made, what was given and what is allowed."""
    assert given in text, f"the shipped profile no longer says {given!r}"
    file = tmp_path / "own.yaml"
    file.write_text(text.replace(given, instead, 1), encoding="utf-8")
    line = line_of(file.read_text(encoding="utf-8"), message.partition(":")[0])
    with pytest.raises(UnknownHardwareError, match=rf"own\.yaml:{line}: {message}"):
        load_profile(str(file))


def test_a_key_given_twice_is_refused(tmp_path: Path):
    """The second of two bandwidths does not silently win; the message has the lines of both."""
    file = tmp_path / "own.yaml"
    first = line_of(H100, "bandwidth_bytes_per_s")
    file.write_text(H100.replace("memory_bytes:", 'bandwidth_bytes_per_s: {value: null, source: "x"}\nmemory_bytes:'))
    message = rf"own\.yaml:{first + 1}: bandwidth_bytes_per_s: .* first on line {first}; keep one"
    with pytest.raises(UnknownHardwareError, match=message):
        load_profile(str(file))


@pytest.mark.parametrize("key", [line.partition(":")[0] for line in H100.splitlines() if line[0] not in " #"])
def test_a_missing_key_is_refused_by_name(tmp_path: Path, key: str):
    """A profile without a required figure is not read; the optional ones are those that a device may lack."""
    lines = H100.splitlines(keepends=True)
    start = next(number for number, line in enumerate(lines) if line.startswith(f"{key}:"))
    end = next((n for n in range(start + 1, len(lines)) if not lines[n].startswith(" ")), len(lines))
    file = tmp_path / "own.yaml"
    file.write_text("".join([*lines[:start], *lines[end:]]), encoding="utf-8")
    if key in {"links", "multiprocessors", "published_ceilings", "memory_type"}:
        assert load_profile(str(file)).name == "h100-sxm"
        return
    with pytest.raises(UnknownHardwareError, match=rf"own\.yaml:\d+: {key}: the key is required and missing; add it"):
        load_profile(str(file))


def test_all_slips_of_a_file_are_told_at_once(tmp_path: Path):
    """Two wrong units, two lines of message."""
    file = tmp_path / "own.yaml"
    file.write_text(H100.replace("{value: 80e+9", "{value: 80").replace("{value: 50e+6", "{value: 50"), encoding="utf-8")
    with pytest.raises(UnknownHardwareError) as caught:
        load_profile(str(file))
    assert [line.split(": ")[1] for line in str(caught.value).splitlines()] == ["memory_bytes", "cache_bytes"]


def test_a_profile_recorded_earlier_stays_readable():
    """What a file may not say any more, a recorded run may: a GeForce recorded before halved_in_float32 existed."""
    recorded = known_profiles()["rtx-4090"].model_dump(mode="json")
    later = ("halved_in_float32", "memory_seen_mib", "multiprocessors", "published_ceilings")
    earlier = {key: value for key, value in recorded.items() if key not in later}
    assert HardwareProfile.model_validate(earlier).name == "rtx-4090"
    assert HardwareProfile.model_validate(recorded) == known_profiles()["rtx-4090"]


def test_an_absent_figure_needs_a_reason():
    """A value without a grade is refused, and an unknown without a source."""
    with pytest.raises(ValueError, match="needs a grade"):
        SourcedFigure(value=1.0, source="somewhere")
    with pytest.raises(ValueError, match="source"):
        SourcedFigure.model_validate({"value": None})
    with pytest.raises(ValueError, match="at least 1 character"):
        SourcedFigure(value=None, source="")
