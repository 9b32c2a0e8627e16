"""Passes of a real language model with its adapter, counted on 200 prompts in float32, where no rounding parts the answers.

    python -m benchmarks.real_model_passes RUN

RUN: the directory of a run of scenarios/real_model_passes.yaml. Tokens per pass are decode tokens over all passes, the drafting
ones included, of answers of LEAST_TOKENS or more; a geometric mean over domains. Intervals are 95 %: prompts are drawn anew
within each domain.

Of quadratic self-speculation with copies and blocks of 5; with the prefix verified_sbd_ or lookup_ of those arms:

tokens_per_pass, _low, _high         over the domains of which the adapter saw other prompts; answers counts them
unseen_tokens_per_pass, _low, _high  over the domains of which it saw none; unseen_answers counts them
nfe_speedup, _low, _high             of all domains and answers, as the page has it
nfe_speedup_totals                   decode tokens of all answers over their passes
identical_to_ntp                     share of answers that are NTP's token for token
"""

from __future__ import annotations

import sys
from pathlib import Path
from statistics import geometric_mean

import numpy as np

from benchmarks.real_model import Answers, answers_of, by_domain, summary_of
from benchmarks.results_file import write_results
from harness.analysis.answer import compare
from harness.record.store import read_run
from harness.workloads.instructions.draw import TRAINED, UNSEEN

DRAWS = 2000
PREFIX = {"self_speculation": "", "sbd_verified": "verified_sbd_", "prompt_lookup": "lookup_"}


def tokens_per_pass(answers: Answers, tasks: tuple[str, ...]) -> tuple[float, float, float]:
    """(value, low, high) of the geometric mean over ``tasks``."""
    drawn = np.random.default_rng(0)

    def anew() -> Answers:
        return {task: answers[task][drawn.integers(len(answers[task]), size=len(answers[task]))] for task in tasks}

    low, high = np.quantile([geometric_mean(by_domain(anew()).values()) for _ in range(DRAWS)], [0.025, 0.975])
    return geometric_mean(by_domain({task: answers[task] for task in tasks}).values()), float(low), float(high)


def main() -> None:
    """Print the table by domain; write the figures."""
    run = read_run(Path(sys.argv[1]))
    cell = summary_of(compare(run).cells, "float32")
    figures: dict[str, float | None] = {}
    for arm in cell.arms:
        if arm.method not in PREFIX:
            continue
        answers, prefix = answers_of(run, arm), PREFIX[arm.method]
        per_task = {task: f"{value:.2f} of {len(answers[task])}" for task, value in by_domain(answers).items()}
        print(f"{arm.label}: {per_task}")
        for tasks, which in ((TRAINED, ""), (UNSEEN, "unseen_")):
            name = f"{prefix}{which}tokens_per_pass"
            figures[name], figures[f"{name}_low"], figures[f"{name}_high"] = tokens_per_pass(answers, tasks)
            figures[f"{prefix}{which}answers"] = sum(len(answers[task]) for task in tasks)
        fewer, name = arm.figures["nfe_speedup"], f"{prefix}nfe_speedup"
        figures |= {name: fewer.value, f"{name}_low": fewer.low, f"{name}_high": fewer.high}
        figures[f"{name}_totals"] = arm.figures["nfe_speedup_totals"].value
        figures[f"{prefix}identical_to_ntp"] = arm.identical_to_ntp.value
    known = {name: value for name, value in figures.items() if value is not None}
    print(write_results("real_model_passes", known, run.header.environment))


if __name__ == "__main__":
    main()
