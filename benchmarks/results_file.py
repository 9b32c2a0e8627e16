"""The one form of a benchmark's result: {"name", "machine", "commit", "date", "by", "figures": {key: number}, "sources"}.

    python -m benchmarks.results_file --stale        the results that are older than their sources; exit code 1 if there are any

A figure that is not known is null; "reasons" then says why, by key. "date" is the day of the measurement, "by" the benchmark's
module. "sources" has the digest of every package, file and record that it depends on (benchmarks.sources); it is empty where
nobody knows them any more.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.sources import ROOT, sources_of
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

    ``commits``: of the pieces that a measurement was gathered from, by name. The sources are those of the calling module, and
    the records in reports/ that the command line names.
    """
    state = dict(environment or snapshot())
    machine = f"{state['cpu_model']}, {state['logical_cores']} cores"
    target = RESULTS / f"{name}.json"
    target.parent.mkdir(exist_ok=True)
    by = sys._getframe(1).f_globals["__spec__"].name
    result = {"name": name, "machine": machine, "commit": state["commit"], "date": str(state["taken_at"])[:10], "by": by}
    result |= {"figures": figures}
    result |= {"reasons": reasons} if reasons else {}
    result |= {"commits": commits} if commits else {}
    records = [word.rstrip("/") for word in sys.argv[1:] if word.startswith("reports/")]
    target.write_text(json.dumps(result | {"sources": sources_of(by, records)}, indent=1) + "\n")
    return target


def stored() -> dict[str, dict[str, Any]]:
    """Every result by its name."""
    return {file.stem: json.loads(file.read_text(encoding="utf-8")) for file in sorted(RESULTS.glob("*.json"))}


def why_stale(result: Mapping[str, Any], root: Path = ROOT) -> str:
    """What has changed since a result was measured, by path; empty where nothing has."""
    then = result["sources"]
    try:
        now = sources_of(result["by"], (path for path in then if path.startswith("reports/")), root)
    except FileNotFoundError as error:
        return str(error)
    changed = ", ".join(path for path in sorted(then.keys() | now.keys()) if then.get(path) != now.get(path))
    return changed if then else f"commit {result['commit'][:8]} is not in the history, so its sources are not known"


def main() -> int:
    """Print what is stale; 1 where something is."""
    if sys.argv[1:] != ["--stale"]:
        sys.exit(__doc__)
    found = [f"{name} ({one['date']}): {why}" for name, one in stored().items() if (why := why_stale(one))]
    print(*found, sep="\n")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
