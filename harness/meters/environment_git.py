"""What git knows of a checkout. It is asked, never told anything; what it does not answer is None, with why."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from harness.meters.environment_host import Reading

COMMIT = re.compile("[0-9a-f]{7,64}")


def ask_git(root: Path, *arguments: str) -> Reading:
    """One line or more that git prints about the checkout at ``root``, or why it does not."""
    try:
        done = subprocess.run(["git", "-C", str(root), *arguments], capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return None, f"git did not answer: {error}"
    return (done.stdout.strip(), None) if done.returncode == 0 else (None, f"git: {done.stderr.strip().partition(chr(10))[0]}")


def committed_at(root: Path, commit: str) -> str | None:
    """When ``commit`` was made (ISO 8601), if the checkout at ``root`` has it."""
    if COMMIT.fullmatch(commit) is None:
        return None
    time, _ = ask_git(root, "show", "--no-patch", "--format=%cI", f"{commit}^{{commit}}")
    return time or None


def branch_at(root: Path, commit: str) -> str | None:
    """The branch that is checked out at ``root``, if it stands at ``commit``."""
    head, _ = ask_git(root, "rev-parse", "HEAD")
    branch, _ = ask_git(root, "symbolic-ref", "--quiet", "--short", "HEAD")
    return branch if head is not None and COMMIT.fullmatch(commit) and head.startswith(commit) else None
