"""sbd with a sampler of Set Block Decoding that does extra work: a tenth of each pass's own time, whatever the machine.

python -m benchmarks.planted.slow_sampler run gate --out DIR --no-report
"""

from __future__ import annotations

import time
from typing import Any

from harness.cli import main
from harness.decoding import set_block
from harness.decoding.sampling import entropy

SHARE = 0.1
_began_s = 0.0
_pass, _sample = set_block._pass, set_block._sample


def begin_pass(*arguments: Any) -> Any:
    """A pass that remembers when it began."""
    global _began_s
    _began_s = time.perf_counter()
    return _pass(*arguments)


def slow_sample(logits: Any, *arguments: Any) -> Any:
    """The right answer, after computing entropies for nothing as long as a tenth of what the pass took so far."""
    found = _sample(logits, *arguments)
    now_s = time.perf_counter()
    until_s = now_s + SHARE * (now_s - _began_s)
    while time.perf_counter() < until_s:
        entropy(logits[:, :1], 0.0)
    return found


if __name__ == "__main__":
    vars(set_block).update(_pass=begin_pass, _sample=slow_sample)
    main()
