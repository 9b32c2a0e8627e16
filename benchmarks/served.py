"""A real vLLM beside itself: how often the ways of counting agree, and how often a gate finds a change where there is none.

    python -m benchmarks.served RUN AA [DELAYED]

RUN: of scenarios/served_vllm.yaml. AA: of benchmarks/served_aa.yaml, two equal servers, ten starts each.
DELAYED: four starts, one of the two behind a proxy that makes its answers 10 % later (benchmarks/served_delayed.yaml).

counts_agree_pct  of the requests that were sent alone, those for which two ways or more counted the same passes
aa_false          of 20 gates between disjoint halves of the starts of AA, those that found a change; plus a claimed speedup
delay_found       1 if DELAYED claims the delayed server slower than NTP, 0 if not
"""

from __future__ import annotations

import random
import sys
from collections.abc import Collection
from pathlib import Path

from benchmarks.results_file import write_results
from harness.analysis.answer import compare
from harness.analysis.results import ArmResult
from harness.record.schema import Run
from harness.record.store import read_run
from harness.regression.gate.counts import judge_counted
from harness.regression.gate.judge import judge_timed, judged_metric
from harness.regression.metrics import timed_metrics
from harness.regression.timed import processes_of

GATES, SEED = 20, 1


def arms_of(run: Run) -> list[ArmResult]:
    """Of the cell over all domains."""
    return [arm for cell in compare(run).cells if cell.is_summary for arm in cell.arms]


def starts_of(run: Run) -> list[int]:
    """The processes that left samples."""
    return sorted({one.process for one in run.samples})


def of_starts(run: Run, wanted: Collection[int]) -> Run:
    """The run as if it had these starts alone, numbered anew."""
    number = {process: place for place, process in enumerate(sorted(wanted))}
    samples = [one.model_copy(update={"process": number[one.process]}) for one in run.samples if one.process in number]
    sessions = [one | {"process": number[one["process"]]} for one in run.sessions if one.get("process") in number]
    return run.model_copy(update={"samples": samples, "sessions": sessions})


def changes_found(base: Run, new: Run) -> list[str]:
    """Figures of a gate of ``new`` against ``base`` that are called changed: the count of passes, NTP's time, the speedup."""
    wanted = [one for one in timed_metrics(base) if one.name in ("decode_s_per_token", "wall_speedup")]
    judged = [judged_metric(one, {}, min(len(starts_of(base)), len(starts_of(new)))) for one in wanted]
    answers = (*judge_timed(processes_of(base), processes_of(new), judged), *judge_counted(base, new))
    return [f"{one.metric} of {one.subject}: {one.reason}" for one in answers if one.state == "missed"]


def main() -> None:
    """Print what was found and write the figures."""
    run, aa = read_run(Path(sys.argv[1])), read_run(Path(sys.argv[2]))
    counts = [arm.served for arm in arms_of(run) if arm.served is not None]
    requests = sum(one.requests for one in counts)
    drawn, false = random.Random(SEED), 0
    for gate in range(GATES):
        half = drawn.sample(starts_of(aa), len(starts_of(aa)) // 2)
        rest = [one for one in starts_of(aa) if one not in half]
        found = changes_found(of_starts(aa, half), of_starts(aa, rest))
        false += bool(found)
        print(f"gate {gate}: starts {sorted(half)} against {rest}: {'; '.join(found) or 'no change'}")
    for arm in arms_of(aa):
        speed = arm.wall_speedup
        if not arm.is_ntp and speed.low is not None and speed.high is not None:
            print(f"A/A {arm.label}: {speed.value:.3f} ({speed.low:.3f}, {speed.high:.3f})")
            false += not speed.low <= 1 <= speed.high
    figures = {
        "counts_agree_pct": 100 * sum(one.agreeing for one in counts) / requests,
        "requests": requests,
        "aa_false": false,
        "aa_gates": GATES,
        "aa_starts": len(starts_of(aa)),
    }
    if len(sys.argv) > 3:
        [slow] = [arm for arm in arms_of(read_run(Path(sys.argv[3]))) if not arm.is_ntp]
        figures["delay_found"] = int(slow.wall_speedup.high is not None and slow.wall_speedup.high < 1)
        figures["delayed_wall_speedup"] = slow.wall_speedup.value or 0.0
    print(write_results("served", figures))


if __name__ == "__main__":
    main()
