"""Prints a page to PDF with an installed browser: the page's own print style, no further dependency."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from harness.errors import StorageError, UserError
from harness.record.regular_file import write_whole

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome", "microsoft-edge")
LONGEST_S = 300


def print_pdf(page: Path) -> Path:
    """Write the PDF of ``page`` beside it with a headless browser, offline.

    Raises:
        UserError: no browser of the Chromium family is installed.
        StorageError: the browser could not write it; the message ends with its own.
    """
    browser = next((found for name in BROWSERS if (found := shutil.which(name))), None)
    if browser is None:
        raise UserError(
            f"--pdf needs a browser of the Chromium family, and none of {', '.join(BROWSERS)} is on the PATH; install one "
            f"(Debian: apt install chromium), or open {page} in any browser and print it to a file"
        )
    target = page.with_suffix(".pdf")
    with tempfile.TemporaryDirectory(prefix="sbd-pdf-") as profile:
        made = Path(profile) / "page.pdf"
        # Chromium refuses its sandbox to root; the page is our own and loads nothing.
        as_root = ["--no-sandbox"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []
        command = [
            browser,
            "--headless",
            "--disable-gpu",
            "--disable-quic",
            "--disable-background-networking",
            "--no-first-run",
            f"--user-data-dir={profile}",
            "--no-pdf-header-footer",
            f"--print-to-pdf={made}",
            *as_root,
            page.resolve().as_uri(),
        ]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=LONGEST_S, check=False)
        except subprocess.TimeoutExpired as error:
            raise StorageError(f"{browser} did not print {page} within {LONGEST_S} s") from error
        if not made.is_file():
            last = (done.stderr.strip() or "it said nothing").splitlines()[-1]
            raise StorageError(f"{browser} did not print {page} (exit code {done.returncode}): {last}")
        write_whole(target, made.read_bytes())
    return target
