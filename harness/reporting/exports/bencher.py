"""Bencher Metric Format: {benchmark: {measure: {value, lower_value, upper_value}}}, read by ``bencher run --adapter json``.

bencher.dev, "Bencher Metric Format": value is required, the two limits are optional; a measure is named by its slug (lower-case
letters, digits, hyphens, at most 64 characters), a benchmark by a name of at most 1,024 characters. The benchmark is the cell
that was judged, the measure its metric; what was neither measured nor counted says so in the benchmark's name. Values that are
absent or void are left out: the format has no null, and a threshold would learn from a void one. Where NEW's own value was
held against BASE's, BASE's is a measure beside it: ``passes`` and ``passes-base``.
"""

from __future__ import annotations

import json
import re

from harness.analysis.judgement import Judgement, Judgements
from harness.reporting.exports.plain import one_line
from harness.reporting.exports.wording import LONGEST_NAME, names

LONGEST_SLUG = 64
OF_BASE = "-base"
OF_BASIS = {"measured": "", "counted": ""}


def bencher_text(judgements: Judgements) -> str:
    """Every value by cell and metric; one that has the place of an unlike value takes its own name as its benchmark."""
    found: dict[str, dict[str, dict[str, float]]] = {}
    for name, one in zip(names(judgements), judgements.judgements, strict=True):
        figures = _figures(one)
        if not figures:
            continue
        measure = slug(one.metric)
        benchmark = (one_line(one.subject, LONGEST_NAME) or name) + OF_BASIS.get(one.basis, f" ({one.basis})")
        beside = {} if one.base is None else {f"{measure[: LONGEST_SLUG - len(OF_BASE)]}{OF_BASE}": {"value": one.base}}
        both = {measure: figures} | beside
        if any(found.get(benchmark, {}).get(key, figure) != figure for key, figure in both.items()):
            benchmark = name
        found.setdefault(benchmark, {}).update(both)
    return json.dumps(found, indent=1, ensure_ascii=False) + "\n"


def slug(metric: str) -> str:
    """``wall_speedup`` as ``wall-speedup``."""
    return re.sub("[^a-z0-9]+", "-", metric.lower()).strip("-")[:LONGEST_SLUG].strip("-") or "metric"


def _figures(one: Judgement) -> dict[str, float]:
    if one.value.value is None or one.state == "void":
        return {}
    limits = {"value": one.value.value, "lower_value": one.value.low, "upper_value": one.value.high}
    return {key: number for key, number in limits.items() if number is not None}
