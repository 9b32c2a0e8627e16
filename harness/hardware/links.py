"""How devices are joined: NVLink through a switch or a bridge, Infinity Fabric, PCIe; how fast, and how many.

A profile has the rate of a device's own link, or none where the part has only PCIe, how many devices that joins, and what joins
more of them. A link that nobody knows is asked for.
"""

from __future__ import annotations

import difflib
from dataclasses import replace

from harness.errors import UserError
from harness.frozen import frozen
from harness.hardware.profile import HardwareProfile, Interconnect, Topology, known_profiles, match_profile

GB = 1e9


@frozen
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
OWN = {"mesh": ("xgmi", XGMI_S), "bridge": ("bridge", NVLINK_S), "switch": ("nvlink", NVLINK_S)}
"""Name and latency of a device's own link, by its topology."""


def link_of(profile: HardwareProfile, devices: int) -> Link | None:
    """What joins ``devices`` devices of this kind: their own link as far as it reaches, else PCIe; None: not known.

    A ring over several bridged groups runs at the rate of the PCIe between them. The link of a profile that does not say how
    many it joins is taken to join any number.
    """
    own, joined = profile.link_bytes_per_s.value, _joined(profile)
    host = LINKS.get(joined.host or "")
    if own is None:
        return host
    name, latency_s = OWN.get(joined.topology or "", (f"link of {profile.name}", NVLINK_S))
    link = Link(
        name=name,
        bytes_per_s=own / 2,  # published for both directions together
        latency_s=latency_s,
        topology=joined.topology or "switch",
        joins=joined.joins,
    )
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


def _joined(profile: HardwareProfile) -> Interconnect:
    """How devices of this kind are joined; a machine's own profile, or one of an older record, has it from the shipped one."""
    if profile.links is not None:
        return profile.links
    measured = profile.measured
    if measured is None:
        published = known_profiles().get(profile.name)
    else:
        published = match_profile(measured.device_name, None, measured.multiprocessors)
    return (published and published.links) or Interconnect()
