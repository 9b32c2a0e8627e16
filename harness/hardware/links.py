"""How devices are joined: NVLink through a switch or a bridge, Infinity Fabric, PCIe; how fast, and how many.

A profile has the rate of a device's own link, or none where the part has only PCIe. What it does not have, this table adds:
the kind, how many devices it joins, and what joins more of them. A link that nobody knows is asked for.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass, replace
from typing import Literal

from harness.errors import UserError
from harness.hardware.profile import HardwareProfile, match_profile

Topology = Literal["switch", "mesh", "bridge", "host"]
GB = 1e9


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """What joins devices.

    ``bytes_per_s``  that one device sends to all others, in one direction
    ``latency_s``    of one transfer between two devices, the bytes apart
    ``topology``     ``switch``: any number at the full rate. ``mesh``: a wire to each of ``joins - 1`` others, so that fewer
                     devices have fewer wires. ``bridge``: fixed groups of ``joins``. ``host``: through PCIe
    ``joins``        devices that it joins at most; None: any number
    """

    name: str
    bytes_per_s: float
    latency_s: float
    topology: Topology
    joins: int | None = None

    def rate(self, devices: int) -> float:
        """Bytes per second that each of ``devices`` sends to the others, in one direction."""
        if self.topology == "mesh" and self.joins is not None:
            return self.bytes_per_s * min(devices - 1, self.joins - 1) / (self.joins - 1) if devices > 1 else self.bytes_per_s
        return self.bytes_per_s


# Latencies: NCCL 2.19 to 2.27, src/graph/tuning.cc, hwLat of the LL protocol in a tree: 0.6 us over NVLink, 1.0 us over PCI.
# RCCL's file of the same name has 0.8 us over its links. The base latency there is a kernel's launch, part of the fixed cost.
NVLINK_S, PCIE_S, XGMI_S = 0.6e-6, 1.0e-6, 0.8e-6
# Rates in one direction. NVLink: half the rate of NVIDIA's datasheets. PCIe x16: 16 or 32 GT/s x 16 lanes x 128/130 / 8 bits.
LINKS = {
    link.name: link
    for link in (
        Link(name="nvlink3", bytes_per_s=300 * GB, latency_s=NVLINK_S, topology="switch", joins=16),
        Link(name="nvlink4", bytes_per_s=450 * GB, latency_s=NVLINK_S, topology="switch", joins=8),
        Link(name="nvlink5", bytes_per_s=900 * GB, latency_s=NVLINK_S, topology="switch", joins=72),
        Link(name="xgmi", bytes_per_s=448 * GB, latency_s=XGMI_S, topology="mesh", joins=8),
        Link(name="pcie3", bytes_per_s=8e9 * 16 * 128 / 130 / 8, latency_s=PCIE_S, topology="host"),
        Link(name="pcie4", bytes_per_s=16e9 * 16 * 128 / 130 / 8, latency_s=PCIE_S, topology="host"),
        Link(name="pcie5", bytes_per_s=32e9 * 16 * 128 / 130 / 8, latency_s=PCIE_S, topology="host"),
    )
}

# Profile: kind of its own link (None: PCIe alone), how many it joins, and the PCIe behind it (None: no board with PCIe).
_SWITCHES = dict.fromkeys(("a100-40-sxm", "a100-80-sxm", "h100-sxm", "h200-sxm", "h20", "b200-sxm", "b300-sxm"), 8)
_SWITCHES |= {"gh200": 32, "gh200-144": 32, "gb200": 72, "gb300": 72}
_MESHES = dict.fromkeys(("mi300x", "mi325x", "mi350x", "mi355x"), 8)
_BRIDGES = {"a100-40-pcie": 2, "a100-80-pcie": 2, "h100-pcie": 2, "h100-nvl": 2, "h200-nvl": 4, "rtx-3090": 2}
_PCIE4 = (
    "a10",
    "a10g",
    "a100-40-pcie",
    "a100-80-pcie",
    "a100-40-sxm",
    "a100-80-sxm",
    "l4",
    "l40",
    "l40s",
    "rtx-3090",
    "rtx-4090",
    "rtx-6000-ada",
)
_PCIE5 = (
    "h100-pcie",
    "h100-nvl",
    "h100-sxm",
    "h200-nvl",
    "h200-sxm",
    "h20",
    "b200-sxm",
    "b300-sxm",
    "mi300x",
    "mi325x",
    "mi350x",
    "mi355x",
    "rtx-5090",
    "rtx-pro-6000-server",
    "rtx-pro-6000-workstation",
)
_HOSTS = dict.fromkeys(_PCIE4, LINKS["pcie4"]) | dict.fromkeys(_PCIE5, LINKS["pcie5"])


def link_of(profile: HardwareProfile, devices: int) -> Link | None:
    """What joins ``devices`` devices of this kind: their own link as far as it reaches, else PCIe; None: not known.

    A ring over several bridged groups runs at the rate of the PCIe between them. The link of a profile without an entry here is
    taken to join any number.
    """
    name, own = _published_name(profile), profile.link_bytes_per_s.value
    host = _HOSTS.get(name)
    if own is None:
        return host
    one_way, given = own / 2, f"link of {profile.name}"  # published for both directions together
    if name in _MESHES:
        link = Link(name="xgmi", bytes_per_s=one_way, latency_s=XGMI_S, topology="mesh", joins=_MESHES[name])
    elif name in _BRIDGES:
        link = Link(name="bridge", bytes_per_s=one_way, latency_s=NVLINK_S, topology="bridge", joins=_BRIDGES[name])
    elif name in _SWITCHES:
        link = Link(name="nvlink", bytes_per_s=one_way, latency_s=NVLINK_S, topology="switch", joins=_SWITCHES[name])
    else:
        link = Link(name=given, bytes_per_s=one_way, latency_s=NVLINK_S, topology="switch")
    return link if link.joins is None or devices <= link.joins else host


def link_called(text: str) -> Link:
    """The link that a user names: a kind, or GB/s in one direction (with the latency of PCIe).

    Raises:
        UserError: neither.
    """
    known = LINKS.get(text.lower())
    if known is not None:
        return replace(known, joins=None) if known.topology == "switch" else known
    try:
        rate = float(text.lower().removesuffix("gb/s"))
    except ValueError:
        rate = 0.0
    if not 0 < rate < float("inf"):
        near = difflib.get_close_matches(text.lower(), LINKS, n=2, cutoff=0.5)
        hint = f" (did you mean {' or '.join(near)}?)" if near else ""
        raise UserError(f"--link {text!r}{hint}: give {', '.join(LINKS)}, or the GB/s that a device sends in one direction")
    return Link(name=f"{rate:g} GB/s", bytes_per_s=rate * GB, latency_s=PCIE_S, topology="host")


def ask_for_link(profile: HardwareProfile, devices: int) -> str:
    """What to do where link_of knows none."""
    own = profile.link_bytes_per_s
    why = own.source if own.value is None else f"its own link joins fewer than {devices}"
    return (
        f"what joins {devices} of {profile.name} is not known ({why}); name it: --link {', '.join(LINKS)}, or the GB/s that a "
        "device sends in one direction"
    )


def _published_name(profile: HardwareProfile) -> str:
    """The name of the shipped profile; a machine's own profile has the figures of one."""
    measured = profile.measured
    if measured is None:
        return profile.name
    published = match_profile(measured.device_name, None, measured.multiprocessors)
    return profile.name if published is None else published.name
