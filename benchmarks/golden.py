"""Whether this checkout says what an earlier commit said, number for number: of every published run, plan and prediction.

    python -m benchmarks.golden COMMIT

Both programs answer the same questions about the same records: `report` (JSON and page), `verify`, `plan`, `capacity` and
`roofline`. Numbers of JSON are held path by path, those of a page in their order. Words may differ; so may keys that
RENAMED lists, which older readers are told of.
"""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.results_file import write_results

ROOT = Path(__file__).resolve().parent.parent
TOLERANCE = 1e-9
"""Relative: sums may be taken in another order."""
RENAMED: dict[str, str] = {}
"""Keys of JSON that were renamed since, old to new."""
MOST_SHOWN = 20
NUMBER = re.compile(r"(?<![\w#.])-?\d[\d,\u202f]*(?:\.\d+)?(?:e[+-]?\d+)?")
PREDICTIONS = (
    ("roofline", "--paper"),
    ("roofline", "--paper", "--explain"),
    ("roofline", "--methods"),
    ("roofline", "--anchors"),
    ("roofline", "--model", "llama-3.1-8b", "--hardware", "h100-sxm", "--batch", "8"),
    ("capacity", "--model", "llama-3.1-8b", "--table1", "llama-3.1-8b/GSM8K/low", "--batch", "8"),
    ("capacity", "--model", "qwen3-30b-a3b", "--nfe-speedup", "3", "--prompt-tokens", "2000", "--output-tokens", "500",
     "--tokens-per-s", "50", "--requests-per-s", "20"),
    ("capacity", "--model", "llama-3.1-70b", "--nfe-speedup", "3", "--hardware", "h100-sxm", "--break-even"),
)  # fmt: skip


def answers(tree: Path, runs: Path) -> Iterator[tuple[str, list[tuple[str, float | str]]]]:
    """(question, its figures by place) as the program in ``tree`` answers them."""
    for run in sorted(runs.iterdir()):
        asked(tree, "report", str(run))
        yield f"report.json of {run.name}", list(figures(json.loads((run / "report.json").read_text(encoding="utf-8"))))
        yield f"report.html of {run.name}", list(of_page((run / "report.html").read_text(encoding="utf-8")))
        yield f"verify {run.name}", list(figures(json.loads(asked(tree, "verify", str(run), "--json"))))
    for scenario in sorted((ROOT / "scenarios").glob("*.yaml")):
        said = json.loads(asked(tree, "plan", str(scenario), "--hardware", "h100-sxm", "--json"))
        yield f"plan {scenario.stem}", list(figures(said))
    for words in PREDICTIONS:
        yield " ".join(words), list(figures(json.loads(asked(tree, *words, "--json"))))


def asked(tree: Path, *words: str) -> str:
    """Standard output of a command of the program in ``tree``."""
    command = [sys.executable, "-m", "harness", *words]
    done = subprocess.run(command, cwd=tree, env=os.environ | {"PYTHONPATH": str(tree)}, capture_output=True, text=True)
    if done.returncode not in (0, 1, 3, 4):  # those of a verdict
        raise SystemExit(f"{tree}: sbd {' '.join(words)} ended with {done.returncode}: {done.stderr[-2000:]}")
    return done.stdout


def figures(value: Any, place: str = "") -> Iterator[tuple[str, float | str]]:
    """(path, number) of every number in a JSON value; whether something is there or true counts as one."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from figures(inner, f"{place}/{RENAMED.get(key, key)}")
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from figures(inner, f"{place}/{index}")
    elif value is None or isinstance(value, bool | int | float):
        yield place, str(value) if value is None or isinstance(value, bool) else float(value)


def of_page(text: str) -> Iterator[tuple[str, float | str]]:
    """(ordinal, number) of every number that the page shows or carries, scripts and styles apart."""
    text = re.sub(r"<(script|style)\b.*?</\1>", "", text, flags=re.S)
    for index, found in enumerate(NUMBER.findall(text)):
        yield str(index), float(re.sub(r"[,\u202f]", "", found))


def differing(old: list[tuple[str, float | str]], new: list[tuple[str, float | str]]) -> list[str]:
    """In words, figure by figure."""
    before, after = dict(old), dict(new)
    found = [f"{key}: gone, was {before[key]}" for key in before if key not in after]
    found += [f"{key}: new, {after[key]}" for key in after if key not in before]
    both = [key for key in before if key in after]
    return found + [f"{key}: {before[key]} -> {after[key]}" for key in both if not same(before[key], after[key])]


def same(one: float | str, other: float | str) -> bool:
    """Equal, or numbers that rounding alone tells apart."""
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=TOLERANCE, abs_tol=1e-15) or (math.isnan(one) and math.isnan(other))
    return one == other


def main() -> None:
    """Ask both, compare, write."""
    [commit] = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:
        tree, runs = Path(folder) / "tree", Path(folder) / "runs"
        subprocess.run(["git", "worktree", "add", "-q", "--detach", str(tree), commit], cwd=ROOT, check=True)
        try:
            for record in sorted((ROOT / "reports").glob("*/run.json")):
                shutil.copytree(record.parent, runs / record.parent.name)
            old, new = dict(answers(tree, runs)), dict(answers(ROOT, runs))
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", str(tree)], cwd=ROOT, check=True)
    wrong = {name: found for name in old if (found := differing(old[name], new.get(name, [])))}
    for name, found in wrong.items():
        print(f"{name}: {len(found)} of {len(old[name]):,} differ\n  " + "\n  ".join(found[:MOST_SHOWN]))
    told = {"answers": len(old), "numbers": sum(map(len, old.values())), "differing": sum(map(len, wrong.values()))}
    print(f"against {commit}: {told}")
    print(write_results("golden", told))


if __name__ == "__main__":
    main()
