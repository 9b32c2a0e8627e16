"""Energy of CPU packages by RAPL, where Linux lets this user read it: root only since 5.10, absent in most virtual machines."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from harness.meters.window import Absent, Figure

_FIGURES = {"cpu_energy_j": Figure(unit="J", source="RAPL packages, /sys/class/powercap/*/energy_uj")}


class RaplMeter:
    """The sum over packages; a counter that ran past its end is unwound once."""

    figures: Mapping[str, Figure] = _FIGURES

    def __init__(self, packages: tuple[Path, ...]) -> None:
        self._packages = packages
        self._before: list[int] = []

    def open(self) -> None:
        """Read every package's counter (µJ)."""
        self._before = [_read(package, "energy_uj") for package in self._packages]

    def close(self) -> Mapping[str, float]:
        """Joules since."""
        total = 0
        for package, before in zip(self._packages, self._before, strict=True):
            grown = _read(package, "energy_uj") - before
            total += grown if grown >= 0 else grown + _read(package, "max_energy_range_uj")
        return {"cpu_energy_j": total / 1e6}


def find_rapl(root: Path = Path("/sys/class/powercap")) -> RaplMeter | Absent:
    """The meter, or why there is none."""
    packages = tuple(sorted(p for p in root.glob("*rapl:*") if p.name.count(":") == 1 and (p / "energy_uj").exists()))
    names = tuple(_FIGURES)
    if not packages:
        return Absent(
            figures=names, reason=f"{root} lists no RAPL package", remedy="use a machine whose kernel exposes RAPL (bare metal)"
        )
    try:
        for package in packages:
            _read(package, "energy_uj")
    except OSError as error:
        return Absent(
            figures=names,
            reason=f"RAPL is there but cannot be read: {error.strerror}",
            remedy=f"run as root, or let this user read {packages[0]}/energy_uj",
        )
    return RaplMeter(packages)


def _read(package: Path, name: str) -> int:
    return int((package / name).read_text())
