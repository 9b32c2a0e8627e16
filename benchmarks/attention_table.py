"""The table of ways of attending alone, as `sbd check` writes it, on a device where nothing else of that check may be run.

Usage: python -m benchmarks.attention_table cuda|cpu
"""

from __future__ import annotations

import sys
import time

import torch

from harness.check.attention import compare_ways
from harness.check.cells import attention_table
from harness.check.grid import attention_cells, attention_heads
from harness.meters.clock import Clock, CudaClock, HostClock

MOST_S = 50.0
"""Ways that are not timed by then are listed as not run."""


def main(device: str) -> None:
    """Print it. On a CPU the shapes are those of the dry run."""
    dry = device == "cpu"
    clock: Clock = HostClock() if dry else CudaClock(device)
    deadline_s = time.monotonic() + MOST_S
    print(attention_table(compare_ways(device, torch.bfloat16, attention_heads(dry), attention_cells(dry), clock, deadline_s)))


if __name__ == "__main__":
    main(*sys.argv[1:])
