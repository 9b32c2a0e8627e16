"""Where the program's shipped files are, installed or in a checkout, and those it keeps for its user.

In a wheel they are force-included as ``harness/_data/<kind>``; in a checkout they are the folders of the same name beside
the package.
"""

from __future__ import annotations

import os
from pathlib import Path

from harness.errors import InvariantError, UserError

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


def home() -> Path:
    """The user's home folder.

    Raises:
        UserError: nothing names one, as in a container that runs under a number.
    """
    try:
        return Path.home()
    except RuntimeError as error:
        raise UserError("this user has no home folder, where sbd keeps its files; set HOME to a folder") from error


def user_data_dir(kind: str) -> Path:
    """Folder of the user's own files of ``kind``: ``$XDG_DATA_HOME/sbd/<kind>``, or under ``~/.local/share``. May not exist."""
    root = os.environ.get("XDG_DATA_HOME")
    return (Path(root) if root else home() / ".local" / "share") / "sbd" / kind


def cache_dir() -> Path:
    """What can be made again: ``$XDG_CACHE_HOME/sbd``, or ``~/.cache/sbd``. May not exist."""
    root = os.environ.get("XDG_CACHE_HOME")
    return (Path(root) if root else home() / ".cache") / "sbd"
