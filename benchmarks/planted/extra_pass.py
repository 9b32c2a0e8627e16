"""sbd whose Set Block Decoding makes one pass more per block: the first one decides nothing. Every output stays the same.

    python -m benchmarks.planted.extra_pass run gate --out DIR --no-report
"""

from __future__ import annotations

from typing import Any

import torch

from harness.cli import main
from harness.decoding import set_block

_opened = False
_open_blocks, _sample = set_block._open_blocks, set_block._sample


def open_blocks(rows: Any, *arguments: Any) -> Any:
    """Blocks that are opened now get a pass for nothing."""
    global _opened
    _opened = not any(row.deciding for row in rows)
    return _open_blocks(rows, *arguments)


def sample(logits: Any, blocks: Any, *arguments: Any) -> Any:
    """Nothing decided in the first pass of a block; acceptance is not asked either, for a replayed one counts its passes."""
    if _opened:
        return torch.full_like(blocks.masked, -1, dtype=torch.long)
    return _sample(logits, blocks, *arguments)


if __name__ == "__main__":
    set_block._open_blocks, set_block._sample = open_blocks, sample
    main()
