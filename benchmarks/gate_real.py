"""Real gates on this machine with the reference model: twenty of a revision against itself, and two planted regressions.

Up to an hour and a half on a quiet machine: a gate takes up to 24 processes of ten seconds, twice that where it re-runs. Every
run is kept under the work folder, and the same call goes on where it was stopped.

    python -m benchmarks.gate_real WORK [--gates 20] [--aa-pairs 12] [--pairs 12]

--aa-pairs caps the gates of a revision against itself (fewer: quicker, and more end inconclusive), --pairs the planted ones.

aa_failed         A/A gates that ended in a regression, of aa_gates; aa_inconclusive and aa_void that ended so
slowdown_found    1 if the planted slowdown fails the speedup of the SBD arm, whose pairs are a process's own, and nothing of
                  NTP; slowdown_found_by_time 1 if its time across processes, which is noisier, fails too
extra_pass_found  1 if the planted passes fail by their count, of the SBD arm alone and on the first pair, its output unchanged
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.results_file import write_results
from harness.cli.progress import TerminalProgress
from harness.processes.kept import Launcher
from harness.progress import Progress
from harness.regression.gate.judge import GateOptions, gate_revisions
from harness.regression.gate.noise import known_floors
from harness.regression.gate.procedure import plan_of
from harness.regression.gate.revisions import ANSWER, OUT, RevisionCommands, Revisions

ROOT = Path(__file__).resolve().parent.parent
GATES, PAIRS = 20, 12
Answer = dict[str, Any]


def command(module: str = "harness") -> str:
    """One fresh process of this checkout on the gate scenario, as ``module`` plays the command line."""
    return f"cd {shlex.quote(str(ROOT))} && {shlex.quote(sys.executable)} -m {module} run gate --no-report --out {OUT}"


def gated(work: Path, new: str, pairs: int, progress: Progress, launcher: Launcher | None = None) -> Answer:
    """The judgements of a gate of this checkout against ``new``, as JSON; a finished one is read."""
    if not (work / ANSWER).exists():
        revisions = Revisions(RevisionCommands(base=command(), new=new), work, progress, launcher)
        gate_revisions(revisions, GateOptions(plan=plan_of(pairs)), known_floors, progress)
    answer: Answer = json.loads((work / ANSWER).read_text(encoding="utf-8"))
    print(f"{work.name}: {answer['state']}", *(f"  {words(one)}" for one in answer["judgements"] if noteworthy(one)), sep="\n")
    return answer


def noteworthy(one: Answer) -> bool:
    """All that was timed, and of what was counted only what changed."""
    return bool(one["kind"] == "timed" or one["state"] != "met")


def words(one: Answer) -> str:
    """One judgement in a line."""
    return f"{one['word']}: {one['metric']} of {one['subject']}: {one['reason']}"


def missed(answer: Answer) -> set[tuple[str, str]]:
    """(metric, SBD or NTP) of everything that failed."""
    return {(one["metric"], one["cell"]["arm"].split()[0]) for one in answer["judgements"] if one["state"] == "missed"}


def slowdown_found(answer: Answer) -> bool:
    """Failed, and named correctly."""
    return ("wall_speedup", "SBD") in missed(answer) <= {("decode_s_per_token", "SBD"), ("wall_speedup", "SBD")}


def extra_pass_found(answer: Answer, work: Path) -> bool:
    """Failed by count, with what follows from it and no more, before a second pair was taken."""
    followed = {"final_tokens_per_pass", "modelled_bytes"}
    found = missed(answer)
    one_pair = not (work / "pair-02").exists()
    return ("passes", "SBD") in found and found <= {("passes", "SBD"), *((name, "SBD") for name in followed)} and one_pair


def figures(
    work: Path, gates: int, aa_pairs: int, pairs: int, progress: Progress, launcher: Launcher | None = None
) -> dict[str, float]:
    """Run what is not there yet; the figures."""
    same = [gated(work / f"aa-{number:02d}", command(), aa_pairs, progress, launcher) for number in range(1, gates + 1)]
    slow = gated(work / "slow-sampler", command("benchmarks.planted.slow_sampler"), pairs, progress, launcher)
    extra = gated(work / "extra-pass", command("benchmarks.planted.extra_pass"), pairs, progress, launcher)
    states = [answer["state"] for answer in same]
    return {
        "aa_gates": gates,
        "aa_pairs": aa_pairs,
        "aa_failed": states.count("missed"),
        "aa_inconclusive": states.count("inconclusive"),
        "aa_void": states.count("void"),
        "slowdown_found": float(slowdown_found(slow)),
        "slowdown_found_by_time": float(("decode_s_per_token", "SBD") in missed(slow)),
        "extra_pass_found": float(extra_pass_found(extra, work / "extra-pass")),
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("work", type=Path)
    parser.add_argument("--gates", type=int, default=GATES)
    parser.add_argument("--aa-pairs", type=int, default=PAIRS)
    parser.add_argument("--pairs", type=int, default=PAIRS)
    given = parser.parse_args(arguments)
    found = figures(given.work, given.gates, given.aa_pairs, given.pairs, TerminalProgress(sys.stderr, what="runs"))
    print(found)
    print(write_results("gate_real", found))


if __name__ == "__main__":
    main()
