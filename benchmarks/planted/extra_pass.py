"""sbd whose Set Block Decoding makes one pass more per block: the first one decides nothing. Every output stays the same.

python -m benchmarks.planted.extra_pass run gate --out DIR --no-report
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from harness.cli import main
from harness.decoding import set_block
from harness.decoding.open_blocks import BlockRow, OpenBlocks

_opened = False
_open, _sample, _decide = OpenBlocks.open, set_block._sample, BlockRow.decide


def open_(self: OpenBlocks, opened: Sequence[bool], commits: Sequence[int]) -> None:
    """Blocks that all rows open now get a pass for nothing."""
    global _opened
    _opened = all(opened)
    _open(self, opened, commits)


def sample(logits: Any, blocks: Any, *arguments: Any) -> Any:
    """Nothing decided in the first pass of a block; acceptance is not asked either, for a replayed one counts its passes."""
    global _opened
    if _opened:
        _opened = False
        return torch.full_like(blocks.masked, -1, dtype=torch.long)
    return _sample(logits, blocks, *arguments)


def decide(self: BlockRow, tokens: Sequence[int]) -> int:
    """A pass that decides nothing is the fault of some logits elsewhere; here it is planted."""
    if any(token != -1 for token in tokens):
        return _decide(self, tokens)
    self.decided, self.cut = (), False
    return 0


if __name__ == "__main__":
    vars(set_block)["_sample"] = sample
    for of, name, planted in ((OpenBlocks, "open", open_), (BlockRow, "decide", decide)):
        setattr(of, name, planted)
    main()
