r"""Judgements for charts and alerts: Prometheus text, github-action-benchmark JSON and Bencher Metric Format.

Values that are absent or void are left out of all three, because a chart would keep them and a threshold would learn from them.

Prometheus text is for the node exporter's textfile collector (``sbd.prom``) or a push gateway. Source: prometheus.io,
"Exposition formats", text version 0.0.4. HELP and TYPE stand once per family with its samples right below. Label values have
``\``, ``"`` and newline escaped; a newline ends the text. It has no timestamps, which the textfile collector refuses. Names
follow "Metric and label naming": prefix ``sbd_``, unit last. A metric has three gauges: ``..._<unit>``, and the same with
``_low`` and ``_high`` before the unit. A fourth with ``_base`` exists where NEW's own value was compared with BASE's.
``sbd_judgement_state`` is 1 for the state that holds and 0 for the others; an alert asks for
``sbd_judgement_state{state="missed"} == 1``.

benchmark-action/github-action-benchmark reads JSON (source: its README): an array of {name, unit, value, range?, extra?}; value
is a number, the rest are strings. A file has one direction, so there are two formats: ``tool: customBiggerIsBetter`` and
``customSmallerIsBetter``. A metric that is held to equality has no better direction and is in neither. The action refuses an
empty array ("No benchmark result was found").

Bencher Metric Format is {benchmark: {measure: {value, lower_value, upper_value}}}, read by ``bencher run --adapter json``.
Source: bencher.dev, "Bencher Metric Format": value is required, the limits are optional, and null is not allowed. A measure is
named by its slug (lower-case letters, digits, hyphens, at most 64 characters), a benchmark by at most 1,024 characters. The
benchmark is the judged cell, the measure its metric; the benchmark's name says where a value was neither measured nor counted.
Where NEW's own value was compared with BASE's, BASE's is a measure beside it: ``passes`` and ``passes-base``.
"""

from __future__ import annotations

import json
import re

from harness.analysis.judge.judgement import GRAVEST_FIRST, Judgement, Judgements
from harness.formatting import one_line
from harness.reporting.exports.wording import LONGEST_NAME, details, named
from harness.scenario.metrics import Better

UNITS = {
    "x": "ratio",
    "share": "ratio",
    "s": "seconds",
    "j": "joules",
    "w": "watts",
    "b": "bytes",
    "pct": "percent",
    "%": "percent",
}
"""Units that Prometheus spells otherwise. Nothing is converted; a unit in prose stands in HELP, not in the name."""
WHAT = {"": "Value", "_low": "Lower end of the interval", "_high": "Upper end of the interval", "_base": "What BASE had"}
ESCAPES = str.maketrans({"\\": r"\\", "\n": r"\n"})
QUOTED = ESCAPES | str.maketrans({'"': r"\""})
"""Of a text, and of a label's value."""
_UNIT = re.compile("%|[a-z]+(/[a-z]+)?")
_PER = {"s": "second", "j": "joule"}
Family = tuple[str, list[tuple[dict[str, str], float]]]


def _known(judgements: Judgements) -> dict[str, Judgement]:
    """The judgements with a value, void ones apart, by their names."""
    return {name: one for name, one in named(judgements).items() if one.value.value is not None and one.state != "void"}


def prometheus_text(judgements: Judgements) -> str:
    """Families in the order of their names' first use, series in the order of the judgements."""
    families: dict[str, Family] = {}
    for name, one in _known(judgements).items():
        labels = _labels(name, one)
        for part, number in (("", one.value.value), ("_low", one.value.low), ("_high", one.value.high), ("_base", one.base)):
            if number is not None:
                about = f"{WHAT[part]} of {one_line(one.metric)} in {one_line(one.unit) or 'no unit'}, as sbd judged it."
                families.setdefault(family_name(one, part), (about, []))[1].append((labels, float(number)))
    states = [
        (_labels(name, one) | {"kind": one.kind, "metric": one_line(one.metric), "state": state}, float(one.state == state))
        for name, one in named(judgements).items()
        for state in GRAVEST_FIRST
    ]
    families["sbd_judgement_state"] = ("1 for the state of this judgement, 0 for the others.", states)
    title = {"title": one_line(judgements.title)}
    overall = [(title | {"state": state}, float(judgements.state == state)) for state in GRAVEST_FIRST]
    families["sbd_verdict_state"] = ("1 for the gravest state of all judgements, 0 for the others.", overall)
    lines = []
    for name, (about, series) in families.items():
        lines += [f"# HELP {name} {about.translate(ESCAPES)}", f"# TYPE {name} gauge"] if series else []
        for labels, number in series:
            pairs = ",".join(f'{key}="{text.translate(QUOTED)}"' for key, text in sorted(labels.items()))
            lines.append(f"{name}{{{pairs}}} {number!r}")
    return "".join(f"{line}\n" for line in lines)


def family_name(one: Judgement, part: str = "") -> str:
    """``latency_p50_s`` in s gives ``sbd_latency_p50_seconds``; a unit at the end of the name is not repeated."""
    unit = _unit_name(one.unit)
    stem = _slug(one.metric)
    own = next((end for end in (_slug(one.unit), unit) if end and (stem == end or stem.endswith(f"_{end}"))), "")
    stem = stem.removesuffix(own).rstrip("_")
    return "_".join(word for word in ("sbd", stem, part.lstrip("_"), unit) if word)


def _unit_name(unit: str) -> str:
    """``tokens/s`` gives ``tokens_per_second``; empty for a unit that is not a word or quotient of words."""
    if not _UNIT.fullmatch(unit.lower()):
        return ""
    above, _, below = unit.lower().partition("/")
    top = UNITS.get(above, above)
    return f"{top}_per_{_PER.get(below, below)}" if below else top


def _slug(text: str) -> str:
    return re.sub("[^a-z0-9]+", "_", text.lower().replace("/", "_per_")).strip("_")


def _labels(name: str, one: Judgement) -> dict[str, str]:
    """The judgement's name, basis and cell; a key of the cell does not overwrite a fixed label."""
    cell = {f"cell_{_slug(key)}": one_line(value) for key, value in one.cell.items()}
    return cell | {"judgement": name, "basis": one.basis}


def action_text(judgements: Judgements, better: Better) -> str:
    """JSON for github-action-benchmark: the judgements whose metric is better when ``better``."""
    entries = []
    for name, one in _known(judgements).items():
        if one.better != better:
            continue
        entry: dict[str, object] = {"name": name, "unit": one_line(one.unit), "value": one.value.value}
        if one.value.low is not None and one.value.high is not None:
            entry["range"] = f"{one.value.low:.6g}..{one.value.high:.6g}"
        entries.append(entry | {"extra": "\n".join([one.word, *details(one)])})
    return json.dumps(entries, indent=1, ensure_ascii=False) + "\n"


LONGEST_SLUG = 64
OF_BASE = "-base"
OF_BASIS = {"measured": "", "counted": ""}


def bencher_text(judgements: Judgements) -> str:
    """Every value by cell and metric; where two unlike values share a place, the later one's benchmark is its own name."""
    benchmarks: dict[str, dict[str, dict[str, float]]] = {}
    for name, one in _known(judgements).items():
        limits = {"value": one.value.value, "lower_value": one.value.low, "upper_value": one.value.high}
        figures = {key: number for key, number in limits.items() if number is not None}
        measure = slug(one.metric)
        benchmark = (one_line(one.subject, LONGEST_NAME) or name) + OF_BASIS.get(one.basis, f" ({one.basis})")
        beside = {} if one.base is None else {f"{measure[: LONGEST_SLUG - len(OF_BASE)]}{OF_BASE}": {"value": one.base}}
        both = {measure: figures} | beside
        if any(benchmarks.get(benchmark, {}).get(key, figure) != figure for key, figure in both.items()):
            benchmark = name
        benchmarks.setdefault(benchmark, {}).update(both)
    return json.dumps(benchmarks, indent=1, ensure_ascii=False) + "\n"


def slug(metric: str) -> str:
    """``wall_speedup`` as ``wall-speedup``."""
    return re.sub("[^a-z0-9]+", "-", metric.lower()).strip("-")[:LONGEST_SLUG].strip("-") or "metric"
