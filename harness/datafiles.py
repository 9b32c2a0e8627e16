"""Where the files that travel with the program lie, installed or in a checkout.

In a wheel they are force-included as ``harness/_data/<kind>``; in a checkout they are the folders of the same name beside
the package. This module knows no file format and opens nothing.
"""

from __future__ import annotations

from pathlib import Path

from harness.errors import InvariantError

_PACKAGE = Path(__file__).resolve().parent


def data_dir(kind: str) -> Path:
    """Folder of ``kind`` ("scenarios", "hardware_profiles"): the wheel's own copy first, else the checkout's.

    Raises:
        InvariantError: neither exists; the installation is broken.
    """
    candidates = (_PACKAGE / "_data" / kind, _PACKAGE.parent / kind)
    for candidate in candidates:
        if candidate.is_dir():
            return candidate
    looked = " and ".join(str(candidate) for candidate in candidates)
    raise InvariantError(
        f"the data folder {kind!r} is missing (looked in {looked}); the installation is incomplete, reinstall sbd"
    )
