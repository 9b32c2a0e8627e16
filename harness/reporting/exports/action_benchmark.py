"""The JSON that benchmark-action/github-action-benchmark reads: ``tool: customBiggerIsBetter`` or ``customSmallerIsBetter``.

Its README: an array of {name, unit, value, range?, extra?}; value is a number, the rest are strings. It takes one direction
per file, so there are two formats. What is held to equality has no better direction and stands in neither; nor does a value
that is absent or void, for a chart would keep it. The action refuses an empty array ("No benchmark result was found").
"""

from __future__ import annotations

import json
from typing import Any

from harness.analysis.judgement import Better, Judgements
from harness.reporting.exports.plain import one_line
from harness.reporting.exports.wording import details, names


def bigger_text(judgements: Judgements) -> str:
    """The judgements whose metric is better when higher."""
    return _entries(judgements, "higher")


def smaller_text(judgements: Judgements) -> str:
    """The judgements whose metric is better when lower."""
    return _entries(judgements, "lower")


def _entries(judgements: Judgements, better: Better) -> str:
    entries = []
    for name, one in zip(names(judgements), judgements.judgements, strict=True):
        if one.better != better or one.value.value is None or one.state == "void":
            continue
        entry: dict[str, Any] = {"name": name, "unit": one_line(one.unit), "value": one.value.value}
        if one.value.low is not None and one.value.high is not None:
            entry["range"] = f"{one.value.low:.6g}..{one.value.high:.6g}"
        entries.append(entry | {"extra": "\n".join([one.word, *details(one)])})
    return json.dumps(entries, indent=1, ensure_ascii=False) + "\n"
