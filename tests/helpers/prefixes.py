"""The largest prefix by brute force."""

from __future__ import annotations

import itertools


def largest_prefix(entropies: list[float], masked: list[bool], gamma: float) -> set[int]:
    """All subsets that are lowest-entropy sets, the largest whose sum without its last member is within the bound."""
    slots = [i for i, m in enumerate(masked) if m]
    best: set[int] = set()
    for size in range(1, len(slots) + 1):
        for subset in itertools.combinations(slots, size):
            rest = [i for i in slots if i not in subset]
            lowest = all((entropies[i], i) < (entropies[j], j) for i in subset for j in rest)
            last = max(subset, key=lambda i: (entropies[i], i))
            charged = sum(entropies[i] for i in subset if i != last)
            if lowest and charged <= gamma and size > len(best):
                best = set(subset)
    return best
