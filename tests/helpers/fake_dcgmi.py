"""Writes a program that stands in for dcgmi: prints what a script says, in dmon's own form, when it is told to.

The form (two head lines again and again, a row per GPU in columns of 16 and 13, N/A for a value that is not there yet, each
row flushed at once, faults on either stream and a status that is not 0) is that of dcgmi/DeviceMonitor.cpp in NVIDIA/DCGM 4.6.
"""

from __future__ import annotations

import sys
from pathlib import Path

HEAD = "#Entity         DRAMA        \nID                           \n"
_PROGRAM = """#!{python}
import json, signal, sys, time
from pathlib import Path
folder = Path({folder!r})
(folder / "asked").write_text(json.dumps(sys.argv[1:]))
signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
done = 0
while True:
    lines = (folder / "script").read_text().splitlines()
    for line in lines[done:]:
        kind, _, text = line.partition(" ")
        if kind == "exit":
            sys.exit(int(text))
        print(text.replace("|", chr(10)), end=chr(10), flush=True, file=sys.stderr if kind == "err" else sys.stdout)
        done += 1
        (folder / "done").write_text(str(done))
    time.sleep(0.005)
"""


class FakeDcgmi:
    """``say`` adds to the script; it returns once the program has printed it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / "dcgmi"
        (folder / "script").write_text("")
        self.path.write_text(_PROGRAM.format(python=sys.executable, folder=str(folder)))
        self.path.chmod(0o755)

    def script(self, *lines: str) -> None:
        """Add lines: ``out TEXT``, ``err TEXT``, ``exit STATUS``."""
        with (self.folder / "script").open("a") as file:
            file.write("".join(f"{line}\n" for line in lines))

    def rows(self, *values: str) -> tuple[str, ...]:
        """Rows of GPU 0 as dmon writes them."""
        return tuple(f"out {'GPU 0':16}{value:13}" for value in values)
