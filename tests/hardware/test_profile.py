"""Hardware profiles: every shipped file is readable and sourced, and a device is matched or refused, never guessed."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness import paths
from harness.errors import InvariantError, UnknownHardwareError
from harness.hardware.profile import known_profiles, load_profile, match_profile
from harness.paths import data_dir
from tests.helpers.typed_figures import typed_figures

MIB = 1 << 20


def test_known_profiles_are_named_as_their_files():
    """The name in a profile is the name of its file, so that a path and a name mean the same thing."""
    files = {path.stem for path in data_dir("hardware_profiles").glob("*.yaml")}
    assert set(known_profiles()) == files == {profile.name for profile in known_profiles().values()}
    assert all(load_profile(name) is profile for name, profile in known_profiles().items())


# (what a driver says, its MiB, the profile). MiB as drivers print them, or 7 % above the label where we have seen none.
DRIVER_NAMES = [
    (row["driver_name"], int(row["driver_mib"]) if row["driver_mib"] else None, name)
    for name, row in typed_figures().items()
    if row["driver_name"]
]
# Parts that no profile describes, although their names or sizes are those of one that has a profile.
STRANGERS = [
    ("NVIDIA H20-3e", 144384),
    ("NVIDIA H800", 81559),
    ("NVIDIA A10M", 20480),
    ("NVIDIA A100-SXM-64GB", 65536),
    ("NVIDIA L40G", 24576),
    ("NVIDIA L20", 46068),
    ("NVIDIA GeForce RTX 3090 Ti", 24564),
    ("NVIDIA GeForce RTX 4090 D", 24564),
    ("NVIDIA GeForce RTX 4090 Laptop GPU", 16376),
    ("NVIDIA GeForce RTX 5090 D", 32607),
    ("NVIDIA GeForce RTX 5090 Laptop GPU", 24463),
    ("NVIDIA RTX 6000", 24564),
    ("NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition", 97887),
    ("AMD Instinct MI300A", 131072),
    ("AMD Instinct MI308X", 196592),
    ("AMD Instinct MI350P", 147456),
    ("Apple M4 Ultra", None),
    ("Tesla T4", 15360),
]
SLICES = [
    ("NVIDIA H100 80GB HBM3 MIG 1g.10gb", 9984),
    ("NVIDIA H100 80GB HBM3 MIG 7g.80gb", 81559),
    ("NVIDIA H200 MIG 7g.141gb", 143771),
    ("NVIDIA A100-SXM4-40GB MIG 7g.40gb", 40960),
    ("NVIDIA L40S-48Q", 49152),
    ("NVIDIA L4-24C", 24576),
]


def matched(device_name: str, memory_mib: int | None) -> str | None:
    """Name of the profile that matches, or None."""
    found = match_profile(device_name, memory_mib and memory_mib * MIB)
    return found and found.name


@pytest.mark.parametrize(("device_name", "memory_mib", "expected"), DRIVER_NAMES)
def test_match_by_name_and_memory(device_name: str, memory_mib: int | None, expected: str):
    """Names that contain one another are kept apart; the name alone suffices; a part with half the memory is another one."""
    assert matched(device_name, memory_mib) == expected
    assert matched(device_name, None) == expected
    if memory_mib is not None:
        assert matched(device_name, memory_mib // 2) is None


def test_every_profile_of_a_gpu_is_matched_by_its_own_name_alone():
    """One driver name above per GPU profile: none is unreachable and none takes the name of another."""
    gpus = [name for name, profile in known_profiles().items() if profile.kind == "gpu"]
    assert sorted(expected for _, _, expected in DRIVER_NAMES) == sorted(gpus)


def test_memory_tells_parts_of_one_name_apart():
    """GH200 120GB is named after the memory of its CPU, as GH200 480GB is: what the GPU itself has decides, or nothing does."""
    assert matched("NVIDIA GH200 120GB", 97871) == "gh200"
    assert matched("NVIDIA GH200", 146831) == "gh200-144"
    assert matched("NVIDIA GH200 120GB", None) is None


@pytest.mark.parametrize(("device_name", "memory_mib"), STRANGERS)
def test_a_part_without_a_profile_matches_none(device_name: str, memory_mib: int | None):
    """Neither a longer name, nor a shorter one, nor equal memory makes a match; not even where memory is unknown."""
    assert matched(device_name, memory_mib) is None
    assert matched(device_name, None) is None


@pytest.mark.parametrize(("device_name", "memory_mib"), SLICES)
def test_a_slice_of_a_gpu_matches_none(device_name: str, memory_mib: int):
    """MIG and vGPU names are refused, even where the slice has all the memory, or where memory is unknown."""
    assert matched(device_name, memory_mib) is None
    assert matched(device_name, None) is None


def test_multiprocessors_confirm_where_both_sides_know_them():
    """A part of the right name and memory with fewer multiprocessors is another part; a profile without a count abstains."""
    assert match_profile("NVIDIA H200", 143771 * MIB, 132) is not None
    assert match_profile("NVIDIA H200", 143771 * MIB, 114) is None
    assert match_profile("NVIDIA L40S", 46068 * MIB, 7) is not None


def test_unknown_name_lists_the_known_ones():
    """The refusal says what was given and what is there."""
    with pytest.raises(UnknownHardwareError, match=r"'h999'; known are a10, a100-40-pcie, .*rtx-4090.*YAML file"):
        load_profile("h999")
    with pytest.raises(UnknownHardwareError, match=r"'h100' \(did you mean h100-nvl, h100-pcie, h100-sxm\?\); known are"):
        load_profile("h100")


def test_own_profile_by_path(tmp_path: Path):
    """A file in the shipped form is accepted by path; one that cannot be read at all is refused with its place."""
    own = tmp_path / "own.yaml"
    own.write_text((data_dir("hardware_profiles") / "l4.yaml").read_text(encoding="utf-8").replace("name: l4", "name: own"))
    assert load_profile(str(own)).name == "own"
    for text, message in (("name: [", r":1: not valid YAML"), ("", r":1: the file is empty; write a hardware profile")):
        own.write_text(text, encoding="utf-8")
        with pytest.raises(UnknownHardwareError, match=message):
            load_profile(str(own))
    with pytest.raises(UnknownHardwareError, match=r"none\.yaml:1: cannot read the file"):
        load_profile(str(tmp_path / "none.yaml"))


def test_installed_data_come_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """In a wheel the data lie inside the package; where both are missing the installation is called incomplete."""
    package = tmp_path / "harness"
    (tmp_path / "scenarios").mkdir()
    monkeypatch.setattr(paths, "_PACKAGE", package)
    assert data_dir("scenarios") == tmp_path / "scenarios"
    (package / "_data" / "scenarios").mkdir(parents=True)
    assert data_dir("scenarios") == package / "_data" / "scenarios"
    with pytest.raises(InvariantError, match="hardware_profiles"):
        data_dir("hardware_profiles")
