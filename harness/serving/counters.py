"""A server's Prometheus counters, read before and after a batch: their growth by the names that this program uses.

Several engines share one schema of counters under their own prefix (vLLM, llama.cpp and LMDeploy: spec_decode_num_*).
"""

from __future__ import annotations

from collections.abc import Mapping

from prometheus_client.parser import text_string_to_metric_families

LONGEST = 200_000
"""Characters of all series of the wanted counters; 64 engines behind one address write half as many."""


def read_counters(text: str, wanted: Mapping[str, str]) -> dict[str, float]:
    """The wanted counters of an exposition, summed over their labels; one that is not there is left out.

    Args:
        text: in Prometheus' text format; no other series than those of the wanted counters are parsed.
        wanted: what each is called there, by this program's name.

    Raises:
        ValueError, LookupError, ArithmeticError: a series is malformed, there twice, or no count (negative, not finite, 1e18).
    """
    theirs = "\n".join(line for line in text.split("\n") if line.startswith(tuple(wanted.values())))
    if len(theirs) > LONGEST:
        raise ValueError("longer than any engine's")
    sums: dict[str, float] = {}
    seen = set[str]()
    for family in text_string_to_metric_families(theirs):
        for sample in family.samples:
            if (series := f"{sample.name} {sorted(sample.labels.items())}") in seen or not 0 <= sample.value < 1e18:
                raise ValueError(series)
            seen.add(series)
            sums[sample.name] = sums.get(sample.name, 0.0) + sample.value
    return {own: sums[name] for own, name in wanted.items() if name in sums}


def growth(before: Mapping[str, float], after: Mapping[str, float]) -> dict[str, float]:
    """What was added in between, where any were read before. A counter that came up began at 0; one that fell is left out."""
    grown = ((name, value - before.get(name, 0.0)) for name, value in after.items() if before)
    return {name: value for name, value in grown if value >= 0}
