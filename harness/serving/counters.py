"""A server's Prometheus counters, read before and after a batch: their growth by the names that this program uses.

Several engines share one schema of counters under their own prefix (vLLM, llama.cpp and LMDeploy: spec_decode_num_*).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from prometheus_client.parser import text_string_to_metric_families


@dataclass(frozen=True, slots=True, kw_only=True)
class Counter:
    """What a counter is called there, the unit, and what it says."""

    name: str
    unit: str
    words: str


def read_counters(text: str, wanted: Mapping[str, Counter]) -> dict[str, float]:
    """The wanted counters of an exposition, summed over their labels; one that is not there is left out.

    Args:
        text: in Prometheus' text format.
        wanted: by this program's name.
    """
    sums: dict[str, float] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            sums[sample.name] = sums.get(sample.name, 0.0) + sample.value
    return {own: sums[counter.name] for own, counter in wanted.items() if counter.name in sums}


def growth(before: Mapping[str, float], after: Mapping[str, float]) -> dict[str, float]:
    """What was added in between; a counter that came up in between began at 0."""
    return {name: value - before.get(name, 0.0) for name, value in after.items()}
