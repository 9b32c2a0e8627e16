"""Hardware profiles: every shipped file is readable and sourced, and a device is matched or refused, never guessed."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness import datafiles
from harness.datafiles import data_dir
from harness.errors import InvariantError, UnknownHardwareError
from harness.hardware import Figure, known_profiles, load_profile, match_profile

MIB = 1 << 20


def test_known_profiles_are_named_as_their_files():
    """The name in a profile is the name of its file, so that a path and a name mean the same thing."""
    files = {path.stem for path in data_dir("hardware_profiles").glob("*.yaml")}
    assert set(known_profiles()) == files
    assert {"h100-sxm", "h200-sxm", "b200-sxm", "a100-80-sxm", "l40s", "l4", "rtx-4090", "mi300x"} <= files


@pytest.mark.parametrize("name", sorted(known_profiles()))
def test_dense_peaks_are_ordered(name: str):
    """Dense rates grow as the type narrows, and every price has a date (published sparse figures would break the order)."""
    profile = known_profiles()[name]
    peaks = {dtype: figure.value for dtype, figure in profile.peak_flops_per_s.items() if figure.value is not None}
    assert peaks["float32"] <= peaks["tf32"] < peaks["bfloat16"] == peaks["float16"]
    assert peaks.get("float8", peaks["bfloat16"] * 2) == pytest.approx(2 * peaks["bfloat16"], rel=0.02)
    assert profile.price_usd_per_hour.value is None or profile.price_usd_per_hour.date


def test_ridge_points_equal_the_published_ones():
    """Peak over bandwidth of three profiles against ridge points computed elsewhere (FLOP per byte)."""
    for name, ridge in (
        ("h100-sxm", 295),
        ("h200-sxm", 206),
        ("a100-80-sxm", 153),
        ("l40s", 419),
        ("l4", 403),
        ("mi300x", 247),
    ):
        profile = known_profiles()[name]
        assert profile.peak_flops_per_s["bfloat16"].value / profile.bandwidth_bytes_per_s.value == pytest.approx(ridge, abs=0.6)


@pytest.mark.parametrize(
    ("device_name", "memory_mib", "expected"),
    [
        ("NVIDIA H200", 143771, "h200-sxm"),
        ("NVIDIA H20", 97871, None),
        ("NVIDIA H200 NVL", 143771, None),
        ("NVIDIA GH200 144G HBM3e", 147456, None),
        ("NVIDIA H100 80GB HBM3", 81559, "h100-sxm"),
        ("NVIDIA H100 PCIe", 81559, None),
        ("NVIDIA H100 80GB HBM3 MIG 1g.10gb", 9984, None),
        ("NVIDIA A100-SXM4-80GB", 81920, "a100-80-sxm"),
        ("NVIDIA A100-SXM4-40GB", 40960, None),
        ("NVIDIA GB200", 189471, None),
        ("NVIDIA B200", 183359, "b200-sxm"),
        ("NVIDIA L40S", 46068, "l40s"),
        ("NVIDIA L40", 46068, None),
        ("NVIDIA L4", 23034, "l4"),
        ("NVIDIA GeForce RTX 4090", 24564, "rtx-4090"),
        ("NVIDIA GeForce RTX 4090 Laptop GPU", 16376, None),
        ("AMD Instinct MI300X", 196592, "mi300x"),
        ("Tesla T4", 15360, None),
    ],
)
def test_match_by_name_and_memory(device_name: str, memory_mib: int, expected: str | None):
    """Names that contain one another are kept apart, and a part with other memory is not matched."""
    found = match_profile(device_name, memory_mib * MIB)
    assert (found and found.name) == expected


def test_name_alone_suffices_where_it_is_unique():
    """Without a memory size a unique name still matches."""
    found = match_profile("NVIDIA H200", None)
    assert found is not None
    assert found.name == "h200-sxm"


def test_unknown_name_lists_the_known_ones():
    """The refusal says what was given and what is there."""
    with pytest.raises(UnknownHardwareError, match=r"'h300'.*a100-80-sxm.*rtx-4090"):
        load_profile("h300")


def test_own_profile_by_path(tmp_path: Path):
    """A file in the shipped form is accepted by path; a fault in it is named with its place."""
    text = (data_dir("hardware_profiles") / "l4.yaml").read_text(encoding="utf-8")
    own = tmp_path / "own.yaml"
    own.write_text(text.replace("name: l4", "name: own"), encoding="utf-8")
    assert load_profile(str(own)).name == "own"
    own.write_text(text.replace("power_w:", "power:"), encoding="utf-8")
    with pytest.raises(UnknownHardwareError, match=r"own\.yaml.*power_w"):
        load_profile(str(own))
    own.write_text("name: [", encoding="utf-8")
    with pytest.raises(UnknownHardwareError, match="not a YAML file"):
        load_profile(str(own))
    with pytest.raises(UnknownHardwareError, match="cannot be read"):
        load_profile(str(tmp_path / "none.yaml"))


def test_value_needs_a_grade():
    """A figure without a grade is refused; an absent one needs a reason."""
    with pytest.raises(ValueError, match="needs a grade"):
        Figure(value=1.0, source="somewhere")
    with pytest.raises(ValueError, match="source"):
        Figure.model_validate({"value": None})


def test_installed_data_come_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """In a wheel the data lie inside the package; where both are missing the installation is called incomplete."""
    package = tmp_path / "harness"
    (tmp_path / "scenarios").mkdir()
    monkeypatch.setattr(datafiles, "_PACKAGE", package)
    assert data_dir("scenarios") == tmp_path / "scenarios"
    (package / "_data" / "scenarios").mkdir(parents=True)
    assert data_dir("scenarios") == package / "_data" / "scenarios"
    with pytest.raises(InvariantError, match="hardware_profiles"):
        data_dir("hardware_profiles")
