"""Whether this checkout says what an earlier commit said, number for number: of every published run, plan and prediction.

    python -m benchmarks.golden COMMIT [WORD]

Both programs answer the same questions about the same records: `report` of one run and of two (JSON, page and Markdown),
`verify` and `gate` with what they export, `compare`, `import`, `history`, `check`, `plan`, `capacity` and `roofline`. Numbers
of JSON are held path by path, those of other text in their order. Words may differ; so may paths that golden_moves.json
lists. WORD: only the questions of this command.
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
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.results_file import write_results

ROOT = Path(__file__).resolve().parent.parent
FILES = ROOT / "tests" / "data" / "imports"
TOLERANCE = 1e-9
"""Relative: sums may be taken in another order."""
MOVES: dict[str, str] = json.loads((ROOT / "benchmarks" / "golden_moves.json").read_text(encoding="utf-8"))
"""Paths of JSON that have moved since: a pattern of the old path, and what takes its place."""
MOST_SHOWN = 20
CODES = (0, 1, 2, 3, 4)
"""A verdict's, and 2 for a refusal, which both must give."""
NUMBER = re.compile(r"(?<![\w#.])-?\d[\d,\u202f]*(?:\.\d+)?(?:e[+-]?\d+)?")
ROOFLINES = ("--paper", "--paper --explain", "--methods", "--anchors", "--model llama-3.1-8b --hardware h100-sxm --batch 8")
SHARED = "--prompt-tokens 2000 --output-tokens 500"
ON_H100 = "--model llama-3.1-8b --nfe-speedup 2.5 --hardware h100-sxm"
CAPACITIES = (
    "--model llama-3.1-8b --table1 llama-3.1-8b/GSM8K/low --batch 8",
    f"--model qwen3-30b-a3b --nfe-speedup 3 {SHARED} --tokens-per-s 50 --requests-per-s 20",
    "--model llama-3.1-70b --nfe-speedup 3 --hardware h100-sxm --break-even",
    f"{ON_H100} --latency-ms 20",
    f"{ON_H100} --passes-at 1=6 --passes-at 16=9 --batching lockstep",
    f"{ON_H100} --users 200 --tokens-per-s 30 --ttft 1 {SHARED}",
    f"{ON_H100} --requests-per-s 20 --ttft 1 --chunk 512 {SHARED}",
    "--model llama-3.1-8b --from-run quickstart --hardware a100-sxm-80gb --batch 4",
)
PAIRS = ("quickstart quickstart_native", "real_model real_model_epyc", "served_vllm served_load", "quickstart quickstart")
ALLOWED = "--allow hardware,versions,scenario,model,cases,prompts,record_version"
EXPORTS = ("json", "junit", "markdown", "github", "bigger-is-better", "smaller-is-better", "bencher", "prometheus")
IMPORTED = {"vllm": "vllm-{}-1.json", "aiperf": "aiperf-{}.jsonl", "guidellm": "guidellm-{}.json", "sglang": "sglang-{}.jsonl"}
Figures = list[tuple[str, float | str]]


@dataclass(frozen=True, slots=True)
class Question:
    """A command line, and the file that it writes its answer to; none: standard output."""

    words: str
    file: str = ""

    @property
    def name(self) -> str:
        """What it is called in the table."""
        return f"{self.words} -> {self.file}" if self.file else self.words


def questions(records: list[str]) -> Iterator[Question]:
    """All of them, in their order; paths are below the folder with the ``records``."""
    for run in records:
        yield Question(f"report {run}", f"{run}/report.html")
        yield Question(f"report {run} --json")
        yield Question(f"report {run} --markdown -")
        yield Question(f"verify {run} --json")
        yield from exports("verify", run)
    for pair in PAIRS:
        yield Question(f"report {pair} --out beside.html", "beside.html")
        yield Question(f"report {pair} --json")
        yield Question(f"compare {pair} --all --json {ALLOWED}")
        yield Question(f"gate {pair} --all --json {ALLOWED}")
        yield from exports("gate", f"{pair} {ALLOWED}")
    for tool, file in IMPORTED.items():
        files = f"--ntp {FILES / file.format('plain')} --arm fast={FILES / file.format('ngram')}"
        yield Question(f"import {files} --json")
        yield Question(f"import {files} --out imported_{tool}")
        yield Question(f"verify imported_{tool} --json")
        yield Question(f"report imported_{tool} --json")
    yield Question(f"history add {' '.join(records)} --db kept.db")
    yield Question("history list --json --limit 99 --db kept.db")
    yield Question("history rebuild --db kept.db")
    yield Question("history trend --json --html trend.html --db kept.db")
    yield Question("history trend --html trend.html --db kept.db", "trend.html")
    yield Question("check --dry-run --out check --minutes 0.1", "check/cells.json")
    for scenario in sorted((ROOT / "scenarios").glob("*.yaml")):
        yield Question(f"plan {scenario} --hardware h100-sxm --json")
    yield from (Question(f"roofline {words} --json") for words in ROOFLINES)
    yield from (Question(f"capacity {words} --json") for words in CAPACITIES)
    yield from (Question(f"capacity {words} --csv") for words in CAPACITIES)


def exports(command: str, words: str) -> Iterator[Question]:
    """A question for each format."""
    yield from (Question(f"{command} {words} --to {one}=exported.{one}", f"exported.{one}") for one in EXPORTS)


def answer(tree: Path, runs: Path, asked: Question) -> Figures:
    """The figures that the program in ``tree`` answers, the exit code among them."""
    command = [sys.executable, "-m", "harness", *asked.words.split()]
    settings = os.environ | {"PYTHONPATH": str(tree), "COLUMNS": "200"}
    done = subprocess.run(command, cwd=runs, env=settings, capture_output=True, text=True)
    if done.returncode not in CODES:
        raise SystemExit(f"{tree}: sbd {asked.words} ended with {done.returncode}: {done.stderr[-2000:]}")
    written = runs / asked.file
    text = written.read_text(encoding="utf-8") if asked.file and written.exists() else done.stdout
    code: Figures = [("exit code", float(done.returncode))]
    try:
        return code + list(figures(json.loads(text)))
    except json.JSONDecodeError:
        return code + list(of_text(text))


def figures(value: Any, place: str = "") -> Iterator[tuple[str, float | str]]:
    """(path, number) of every number in a JSON value; whether something is there or true counts as one."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from figures(inner, f"{place}/{key}")
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from figures(inner, f"{place}/{index}")
    elif value is None or isinstance(value, bool | int | float):
        yield place, str(value) if value is None or isinstance(value, bool) else float(value)


def of_text(text: str) -> Iterator[tuple[str, float | str]]:
    """(ordinal, number) of every number that a page or another text shows or carries, scripts and styles apart."""
    text = re.sub(r"<(script|style)\b.*?</\1>", "", text, flags=re.S)
    for index, found in enumerate(NUMBER.findall(text)):
        yield str(index), float(re.sub(r"[,\u202f]", "", found))


def moved(path: str) -> str:
    """Where a path of the old program stands in the new one."""
    for pattern, place in MOVES.items():
        path = re.sub(pattern, place, path)
    return path


def differing(old: Figures, new: Figures) -> list[str]:
    """In words, figure by figure."""
    before, after = {moved(path): value for path, value in old}, dict(new)
    found = [f"{key}: gone, was {before[key]}" for key in before if key not in after]
    found += [f"{key}: new, {after[key]}" for key in after if key not in before]
    both = [key for key in before if key in after]
    return found + [f"{key}: {before[key]} -> {after[key]}" for key in both if not same(before[key], after[key])]


def same(one: float | str, other: float | str) -> bool:
    """Equal, or numbers that rounding alone tells apart."""
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=TOLERANCE, abs_tol=1e-15) or (math.isnan(one) and math.isnan(other))
    return one == other


def records_into(folder: Path) -> list[str]:
    """Copies of all published runs, by name."""
    for record in sorted((ROOT / "reports").glob("*/run.json")):
        shutil.copytree(record.parent, folder / record.parent.name)
    return sorted(one.name for one in folder.iterdir())


def main() -> None:
    """Ask both, compare, write. A dry `check` is measured once; both derive its cells."""
    commit, *only = sys.argv[1:]
    wrong, told = {}, {"answers": 0, "numbers": 0}
    with tempfile.TemporaryDirectory() as folder:
        tree, old_runs, new_runs = (Path(folder) / name for name in ("tree", "old", "new"))
        subprocess.run(["git", "worktree", "add", "-q", "--detach", str(tree), commit], cwd=ROOT, check=True)
        try:
            asked = [one for one in questions(records_into(old_runs)) if not only or one.words.split()[0] in only]
            if any(one.words.startswith("check") for one in asked):
                answer(tree, old_runs, Question("check --dry-run --out check --minutes 4"))
            shutil.copytree(old_runs, new_runs)
            for number, one in enumerate(asked, 1):
                old, new = answer(tree, old_runs, one), answer(ROOT, new_runs, one)
                found = differing(old, new)
                told = {"answers": told["answers"] + 1, "numbers": told["numbers"] + len(old)}
                print(f"{number}/{len(asked)} {one.name}: {len(old):,} figures, {len(found):,} differ", flush=True)
                if found:
                    wrong[one.name] = found
                    print("  " + "\n  ".join(found[:MOST_SHOWN]), flush=True)
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", str(tree)], cwd=ROOT, check=True)
    told["differing"] = sum(map(len, wrong.values()))
    print(f"against {commit}: {told}")
    if not only:
        print(write_results("golden", told))


if __name__ == "__main__":
    main()
