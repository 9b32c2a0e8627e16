"""Passes of a real language model with its adapter, counted on 200 prompts in float32, where no rounding parts the answers.

    python -m benchmarks.real_model_passes RUN

RUN: the directory of a run of scenarios/real_model_passes.yaml. Tokens per pass are decode tokens over all passes, the drafting
ones included, of answers of LEAST_TOKENS or more; a geometric mean over domains. Intervals are 95 %: prompts are drawn anew
within each domain.

Of quadratic self-speculation with copies and blocks of 5; with the prefix verified_sbd_ or lookup_ of those arms:

tokens_per_pass, _low, _high         over the domains of which the adapter saw other prompts; answers counts them
unseen_tokens_per_pass, _low, _high  over the domains of which it saw none; unseen_answers counts them
nfe_speedup, _low, _high             of all domains and answers, as the page has it
identical_to_ntp                     share of answers that are NTP's token for token
"""

from __future__ import annotations

import sys
from pathlib import Path
from statistics import geometric_mean

import numpy as np
import numpy.typing as npt

from benchmarks.real_model import LEAST_TOKENS, summary_of
from benchmarks.results_file import write_results
from harness.analysis.comparison import compare
from harness.analysis.pass_arrays import TraceArrays
from harness.analysis.results import ArmResult
from harness.record.schema import Run
from harness.record.store import read_run
from harness.workloads.instructions import TRAINED, UNSEEN

DRAWS = 2000
PREFIX = {"self_speculation": "", "sbd_verified": "verified_sbd_", "prompt_lookup": "lookup_"}
Answers = dict[str, npt.NDArray[np.float64]]
"""By domain, (decode tokens, passes) of every answer that is long enough."""


def answers_of(run: Run, arm: ArmResult) -> Answers:
    """Of ``arm``; a row of a batch is charged with the passes in which it was."""
    found: dict[str, list[tuple[int, int]]] = {}
    for sample in run.samples:
        if sample.case_id not in arm.case_ids or sample.packed_passes is None:
            continue
        trace = TraceArrays(sample.packed_passes)
        active = trace.per_row("active").astype(bool) & (trace.decode & trace.own)[:, None]
        tokens, passes = np.where(active, trace.per_row("final_tokens"), 0).sum(axis=0), active.sum(axis=0)
        for at, row in enumerate(sample.rows):
            if row.output_tokens >= LEAST_TOKENS:
                found.setdefault(row.prompt_id.partition("/")[0], []).append((int(tokens[at]), int(passes[at])))
    return {task: np.array(pairs, dtype=float) for task, pairs in found.items()}


def tokens_per_pass(answers: Answers, tasks: tuple[str, ...]) -> tuple[float, float, float]:
    """(value, low, high) of the geometric mean over ``tasks``."""
    drawn = np.random.default_rng(0)

    def mean(samples: list[npt.NDArray[np.float64]]) -> float:
        return geometric_mean([float(one[:, 0].sum() / one[:, 1].sum()) for one in samples])

    samples = [answers[task] for task in tasks]
    means = [mean([one[drawn.integers(len(one), size=len(one))] for one in samples]) for _ in range(DRAWS)]
    low, high = np.quantile(means, [0.025, 0.975])
    return mean(samples), float(low), float(high)


def main() -> None:
    """Print the table by domain; write the figures."""
    run = read_run(Path(sys.argv[1]))
    cell = summary_of(compare(run).cells, "float32")
    figures: dict[str, float | None] = {}
    for arm in cell.arms:
        if arm.method not in PREFIX:
            continue
        answers, prefix = answers_of(run, arm), PREFIX[arm.method]
        per_task = {task: f"{pairs[:, 0].sum() / pairs[:, 1].sum():.2f} of {len(pairs)}" for task, pairs in answers.items()}
        print(f"{arm.label}: {per_task}")
        for tasks, which in ((TRAINED, ""), (UNSEEN, "unseen_")):
            name = f"{prefix}{which}tokens_per_pass"
            figures[name], figures[f"{name}_low"], figures[f"{name}_high"] = tokens_per_pass(answers, tasks)
            figures[f"{prefix}{which}answers"] = sum(len(answers[task]) for task in tasks)
        figures |= {f"{prefix}nfe_speedup": arm.nfe_speedup.value, f"{prefix}identical_to_ntp": arm.identical_to_ntp.value}
        figures |= {f"{prefix}nfe_speedup_low": arm.nfe_speedup.low, f"{prefix}nfe_speedup_high": arm.nfe_speedup.high}
    known = {name: value for name, value in figures.items() if value is not None}
    print(write_results("real_model_passes", known, run.header.environment))


if __name__ == "__main__":
    main()
