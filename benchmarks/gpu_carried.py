"""What a GPU machine without a network is sent beside the checkout: the wheels that gpu_check.sh takes pydantic from.

Usage: python -m benchmarks.gpu_carried [--python 3.12] [--check]

Fetches them with pip into .whl, in the versions of constraints.txt, and checks each by its tag and its list of files; weighs
them and the checkout without reports/. With --check nothing is fetched. Needs no package itself.
"""

from __future__ import annotations

import argparse
import base64
import csv
import hashlib
import re
import subprocess
import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / ".whl"
WANTED = ("annotated_types", "pydantic", "pydantic_core", "typing_extensions", "typing_inspection")
MOST_BYTES = 64 * 2**20
"""Of the checkout without reports/ and the wheels together."""


def fetch(python: str, folder: Path) -> None:
    """Have pip download the wheels for a Python version on Linux with an x86-64 processor."""
    subprocess.run(
        [
            sys.executable,
            "-m",
            "pip",
            "download",
            "--disable-pip-version-check",
            "-q",
            "--no-deps",
            "--only-binary=:all:",
            "--python-version",
            python,
            "--platform",
            "manylinux2014_x86_64",
            "--platform",
            "manylinux_2_17_x86_64",
            "-c",
            str(ROOT / "constraints.txt"),
            "--dest",
            str(folder),
            *WANTED,
        ],
        check=True,
    )


def faults(folder: Path, python: str) -> list[str]:
    """Why the wheels there do not serve that version of Python, in words; nothing where they do."""
    fitting = [file for file in sorted(folder.glob("*.whl")) if fits(file.name, python)]
    found = [f"{file.name}: {fault}" for file in fitting for fault in wheel_faults(file)]
    names = [file.name.partition("-")[0] for file in fitting]
    counts = {name: names.count(name) for name in WANTED}
    found += [f"{name}: {count} wheels for Python {python}, one is needed" for name, count in counts.items() if count != 1]
    if not found:
        found = core_faults({file.name.partition("-")[0]: file for file in fitting}, python)
    return found


def fits(name: str, python: str) -> bool:
    """Whether a wheel of this name can be installed by that version on Linux with an x86-64 processor (PEP 425)."""
    own = f"cp{python.replace('.', '')}"
    interpreter, abi, platform = name.removesuffix(".whl").split("-")[-3:]
    if (abi, platform) == ("none", "any"):
        return "py3" in interpreter.split(".")
    linux = any(re.fullmatch(r"manylinux(_2_\d+|2014|2010|1)_x86_64", one) for one in platform.split("."))
    return interpreter == abi == own and linux


def wheel_faults(file: Path) -> list[str]:
    """What of a wheel's own list of files, with their digests, is not so."""
    with zipfile.ZipFile(file) as wheel:
        there = {name for name in wheel.namelist() if not name.endswith("/")}
        lists = [name for name in there if name.endswith(".dist-info/RECORD")]
        if len(lists) != 1:
            return ["it has no list of its files"]
        listed = {row[0]: row[1] for row in csv.reader(wheel.read(lists[0]).decode().splitlines())}
        missing, unlisted = sorted(listed.keys() - there), sorted(there - listed.keys())
        changed = [name for name in sorted(there & listed.keys()) if listed[name] not in ("", _digest(wheel.read(name)))]
    kinds = (("is missing", missing), ("is not listed", unlisted), ("is not what was listed", changed))
    return [f"{name} {what}" for what, names in kinds for name in names]


def core_faults(wheels: dict[str, Path], python: str) -> list[str]:
    """pydantic works with one version of its core alone, which brings a library for one version of Python."""
    version = wheels["pydantic_core"].name.split("-")[1]
    with zipfile.ZipFile(wheels["pydantic"]) as wheel:
        metadata = next(wheel.read(name).decode() for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
    wanted = re.search(r"^Requires-Dist: pydantic-core==([\w.]+)", metadata, re.MULTILINE)
    found = []
    if wanted is None or wanted[1] != version:
        found.append(f"pydantic wants pydantic_core {wanted[1] if wanted else 'of no stated version'}, here is {version}")
    library = f"pydantic_core/_pydantic_core.cpython-{python.replace('.', '')}-x86_64-linux-gnu.so"
    with zipfile.ZipFile(wheels["pydantic_core"]) as wheel:
        if library not in wheel.namelist():
            found.append(f"{wheels['pydantic_core'].name}: {library} is missing")
    return found


def carried_bytes(folder: Path) -> int:
    """Tracked files without reports/, and the wheels."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    tracked = [ROOT / name for name in listed.split("\0") if name and not name.startswith("reports/")]
    return sum(file.stat().st_size for file in [*tracked, *folder.glob("*.whl")] if file.is_file())


def main(arguments: Sequence[str] | None = None) -> int:
    """Fetch, check, weigh; 1 where something is wrong."""
    parser = argparse.ArgumentParser(description="Fetch and check what a GPU machine without a network needs.")
    parser.add_argument("--python", default="3.12", metavar="VERSION", help="of the GPU machine (default: 3.12)")
    parser.add_argument("--check", action="store_true", help="fetch nothing")
    asked = parser.parse_args(arguments)
    FOLDER.mkdir(exist_ok=True)
    if not asked.check:
        fetch(asked.python, FOLDER)
    wrong, size = faults(FOLDER, asked.python), carried_bytes(FOLDER)
    wrong += [f"{size / 2**20:.1f} MiB, {MOST_BYTES // 2**20} are allowed"] if size > MOST_BYTES else []
    print(*wrong or ["the wheels are complete"], f"{size / 2**20:.1f} MiB without reports/, wheels included", sep="\n")
    return int(bool(wrong))


def _digest(content: bytes) -> str:
    """As a wheel lists it (PEP 376, PEP 427)."""
    return "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()


if __name__ == "__main__":
    sys.exit(main())
