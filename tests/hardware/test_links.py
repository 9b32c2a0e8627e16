"""Links between devices: every shipped profile has a known one or is asked for one; bridges are pairs, meshes have wires."""

from __future__ import annotations

import pytest

from harness.errors import UserError
from harness.hardware.links import LINKS, ask_for_link, link_called, link_of
from harness.hardware.profile import known_profiles, load_profile


def test_every_board_with_pcie_is_joined() -> None:
    """Of the shipped profiles only Apple's chips, GB10 and the unnamed CPU have no link to another one."""
    unknown = {name for name, profile in known_profiles().items() if link_of(profile, 2) is None}
    assert unknown == {"cpu-amx", "gb10", "m2-ultra", "m3-ultra", "m4", "m4-max", "m4-pro"}


@pytest.mark.parametrize(
    ("name", "devices", "gb_per_s", "topology"),
    [
        ("h100-sxm", 2, 450.0, "switch"),
        ("h100-sxm", 8, 450.0, "switch"),
        ("h100-sxm", 16, 63.0, "host"),
        ("h100-pcie", 2, 300.0, "bridge"),
        ("h100-pcie", 4, 63.0, "host"),  # bridge pairs are pairs
        ("a100-80-pcie", 4, 31.5, "host"),
        ("h200-nvl", 4, 450.0, "bridge"),
        ("rtx-3090", 2, 56.25, "bridge"),
        ("l4", 2, 31.5, "host"),
        ("rtx-5090", 8, 63.0, "host"),
        ("gb200", 72, 900.0, "switch"),
        # Seven wires of 64 GB/s in one direction: two devices have one of them, eight have all.
        ("mi300x", 2, 64.0, "mesh"),
        ("mi300x", 8, 448.0, "mesh"),
        ("mi300x", 4, 192.0, "mesh"),
    ],
)
def test_what_joins_so_many(name: str, devices: int, gb_per_s: float, topology: str) -> None:
    """In one direction, worked from the datasheets: NVLink is published for both, PCIe 5 x16 is 32 GT/s x 16 x 128/130 / 8."""
    link = link_of(load_profile(name), devices)
    assert link is not None and link.topology == topology
    assert link.rate(devices) / 1e9 == pytest.approx(gb_per_s, rel=2e-3)
    assert 1e-7 < link.latency_s < 1e-5


def test_links_by_name_and_by_rate() -> None:
    """A kind in any capitals, or GB/s; anything else is refused with what is near."""
    assert link_called("NVLink4").rate(16) == 450e9  # named, it is taken to reach
    assert link_called("50").rate(2) == link_called("50GB/s").rate(8) == 50e9
    with pytest.raises(UserError, match=r"did you mean nvlink5 or nvlink4|did you mean nvlink4 or nvlink"):
        link_called("nvlink9")
    for wrong in ("", "-3", "inf", "nan", "fast"):
        with pytest.raises(UserError, match="--link") as refused:
            link_called(wrong)
        assert all(name in str(refused.value) for name in LINKS)


def test_unknown_links_are_asked_for() -> None:
    """With why they are unknown and how to name one."""
    asked = ask_for_link(load_profile("gb10"), 2)
    assert "what joins 2 of gb10 is not known" in asked and "200 Gbit/s network" in asked and "--link nvlink3" in asked
