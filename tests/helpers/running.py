"""Which processes of this machine run: one that has ended stays listed until somebody asks after it, and does not count."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path


def is_running(pid: int) -> bool:
    """Whether a process is there and has not ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def running_in(group: int) -> list[int]:
    """The processes of a group that have not ended."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(ProcessLookupError):
            if os.getpgid(pid := int(path.name)) == group and is_running(pid):
                found.append(pid)
    return found
