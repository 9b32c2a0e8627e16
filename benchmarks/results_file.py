"""The one form of a benchmark's result: {"name", "machine", "commit", "figures": {key: number}}, committed.

A figure that is not known is null; "reasons" then says why, by key.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from harness.meters.environment import snapshot
from harness.record.written import Environment

RESULTS = Path(__file__).parent / "results"


def write_results(
    name: str,
    figures: Mapping[str, float | None],
    environment: Environment | None = None,
    reasons: Mapping[str, str] | None = None,
    commits: Mapping[str, str] | None = None,
) -> Path:
    """Write the figures with the machine they were measured on: this one, or the one in a record's ``environment``.

    ``commits``: of the pieces that a measurement was gathered from, by name.
    """
    state = environment or snapshot()
    machine = f"{state['cpu_model']}, {state['logical_cores']} cores"
    target = RESULTS / f"{name}.json"
    target.parent.mkdir(exist_ok=True)
    result = {"name": name, "machine": machine, "commit": state["commit"], "figures": figures}
    result |= {"reasons": reasons} if reasons else {}
    result |= {"commits": commits} if commits else {}
    target.write_text(json.dumps(result, indent=1) + "\n")
    return target
