"""Set Block Decoding on a real language model, held against the bars that were set before it was trained.

    python -m benchmarks.real_model RUN [ARMS]

RUN: the directory of a run of scenarios/real_model.yaml, whose name is that of the result. ARMS: one of
scenarios/real_model_arms.yaml, for what was sampled.

The SBD arm is quadratic self-speculation with copies and blocks of 5, chosen on other prompts (seed 11): of 4 and 6 one was the
fastest by the clock, one made the most tokens a pass. A rival decodes without the adapter and without loss, too. The best one
is picked by its wall speedup on these very prompts, which flatters it. Figures of passes are of answers of 64 tokens or more;
those are few here, and `python -m benchmarks.real_model_passes` has them of 200 prompts.

verified_tokens_per_pass             decode tokens over all passes, a drafting one included; geometric mean over the domains of
                                     which the adapter saw other prompts
verified_tokens_per_pass_unseen      the same over the domains of which it saw none
verified_tokens_per_pass_min_domain  the lowest of a domain, and whose
verified_wall_speedup, _low          geometric mean over prompts of the decode time per token, NTP's over the arm's; 95 %
                                     interval over prompts and processes
verified_request_speedup             with the prompt's pass
best_rival_wall_speedup              of the rivals
verified_wall_speedup_varied, _repetitive  over the prompts whose NTP answer has at least REPETITIVE distinct 4-grams, and
                                     the others: repetition flatters whatever looks for it
rival_wall_speedup_varied            of the best rival
sampled_wall_speedup                 at temperature 0.7, against NTP at 0.7; sampled_tokens_per_pass over the domains seen
distinct4_median                     of NTP's own answers: the share of distinct 4-grams
identical_to_ntp                     share of answers that are NTP's token for token; bfloat16 rounds passes of other widths
                                     otherwise
prediction_error_max                 of the ex-ante wall speedup, calibrated by a few measured passes, the worst arm
trained_tokens                       masked tokens that the adapter was charged for, by the curve beside it
"""

from __future__ import annotations

import sys
from pathlib import Path
from statistics import geometric_mean

import numpy as np
import numpy.typing as npt
import pandas

from benchmarks.results_file import write_results
from harness.analysis.answer import compare
from harness.analysis.frames import RunFrames
from harness.analysis.results import ArmResult, Cell
from harness.analysis.tally.pass_arrays import TraceArrays
from harness.analysis.tally.pass_values import EX_ANTE_SHAPE
from harness.analysis.tally.tally import distinct_share
from harness.record.schema import Run
from harness.record.store import read_run
from harness.training.curve import trained_tokens
from harness.workloads.instructions.draw import TRAINED, UNSEEN

LEAST_TOKENS = 64
REPETITIVE = 0.85
ADAPTER = Path("scenarios/adapters/smollm2_135m")
BLOCK_SIZE = 5
RIVALS = ("prompt_lookup", "draft_model", "early_exit", "hierarchical", "universal_draft")
Answers = dict[str, npt.NDArray[np.float64]]
"""By domain, (decode tokens, passes) of every answer of LEAST_TOKENS or more."""


def summary_of(cells: tuple[Cell, ...], part: str) -> Cell:
    """The cell of ``part`` over all domains.

    Raises:
        SystemExit: the run has none.
    """
    for cell in cells:
        if cell.is_summary and cell.part == part:
            return cell
    raise SystemExit(f"the run has no part {part}; give a run of scenarios/real_model.yaml")


def s_per_token(samples: pandas.DataFrame, arm: ArmResult) -> pandas.Series:
    """Median over processes of the decode seconds per token, by domain and prompt."""
    own = samples[samples.case_id.isin(arm.case_ids) & ~samples.warmup & samples.void.isna()]
    return (own.decode_s / own.decode_tokens).groupby([own.task, own.group]).median()


def varied_prompts(run: Run, ntp: ArmResult) -> set[tuple[str, int]]:
    """The (domain, prompt) whose NTP answer has at least REPETITIVE distinct 4-grams."""
    task_of = {case.case_id: case.task for case in run.header.cases if case.case_id in ntp.case_ids}
    return {
        (str(task_of[sample.case_id]), sample.group)
        for sample in run.samples
        if sample.case_id in task_of and distinct_share(sample.rows[0].ids) >= REPETITIVE
    }


def answers_of(run: Run, arm: ArmResult) -> Answers:
    """Of ``arm``, warm-ups left out; a row of a batch is charged with the passes in which it was."""
    found: dict[str, list[tuple[int, int]]] = {}
    for sample in run.samples:
        if sample.case_id not in arm.case_ids or sample.warmup or sample.packed_passes is None:
            continue
        trace = TraceArrays(sample.packed_passes)
        active = trace.per_row("active").astype(bool) & trace.own[:, None]
        tokens, passes = np.where(active, trace.per_row("final_tokens"), 0).sum(axis=0), active.sum(axis=0)
        for at, row in enumerate(sample.rows):
            if row.output_tokens >= LEAST_TOKENS:
                found.setdefault(row.prompt_id.partition("/")[0], []).append((int(tokens[at]), int(passes[at])))
    return {task: np.array(pairs, dtype=float) for task, pairs in found.items()}


def by_domain(answers: Answers) -> dict[str, float]:
    """Tokens per pass of every domain: decode tokens over passes, both summed over its answers."""
    return {task: float(np.divide(*pairs.sum(axis=0))) for task, pairs in answers.items()}


def sampled_figures(directory: Path) -> dict[str, float | None]:
    """Of the arm at temperature 0.7."""
    run = read_run(directory)
    cell = summary_of(compare(run).cells, "sampled")
    arm = next(arm for arm in cell.arms if arm.method == "self_speculation")
    per = by_domain(answers_of(run, arm))
    tokens = geometric_mean([per[task] for task in TRAINED if task in per])
    return {"sampled_wall_speedup": arm.wall_speedup.value, "sampled_tokens_per_pass": tokens}


def prediction_error(cell: Cell) -> float | None:
    """The worst of ``|predicted ÷ measured - 1|`` over the arms that have a shape-calibrated prediction ex-ante."""
    errors = [one.wall_speedup_error.value for arm in cell.arms for one in arm.predictions if one.price == EX_ANTE_SHAPE]
    return max((abs(error) for error in errors if error is not None), default=None)


def main() -> None:
    """Print the table and write the figures."""
    run = read_run(Path(sys.argv[1]))
    samples, cells = RunFrames(run).samples, compare(run).cells
    cell = summary_of(cells, "time")
    [verified] = [arm for arm in cell.arms if arm.label == f"quadratic self-speculation k={BLOCK_SIZE} with copies"]
    rival = max((arm for arm in cell.arms if arm.method in RIVALS), key=lambda arm: arm.wall_speedup.value or 0.0)
    [ntp] = [arm for arm in cell.arms if arm.is_ntp]
    print("arm | tokens per pass, domains seen | unseen | wall speedup | request | as NTP | distinct-4")
    for arm in sorted(cell.arms, key=lambda one: -(one.wall_speedup.value or 1.0)):
        per = by_domain(answers_of(run, arm))
        seen, unseen = ([per[task] for task in tasks if task in per] for tasks in (TRAINED, UNSEEN))
        speed, share = arm.wall_speedup, arm.identical_to_ntp.value
        print(
            f"{arm.label} | {geometric_mean(seen):.2f} | {geometric_mean(unseen):.2f} | "
            f"{speed.value or 1:.2f} ({speed.low or 1:.2f}, {speed.high or 1:.2f}) | "
            f"{arm.figures['request_speedup'].value or 1:.2f} | {'' if share is None else f'{share:.0%}'} | "
            f"{arm.figures['distinct4_median'].value:.2f}"
        )
    per = by_domain(answers_of(run, verified))
    varied, base = varied_prompts(run, ntp), s_per_token(samples, ntp)

    def speed_of(arm: ArmResult, among_varied: bool) -> float:
        ratios = base / s_per_token(samples, arm)
        return geometric_mean([ratio for prompt, ratio in ratios.items() if (prompt in varied) == among_varied])

    figures = {
        "verified_tokens_per_pass": geometric_mean([per[task] for task in TRAINED]),
        "verified_tokens_per_pass_unseen": geometric_mean([per[task] for task in UNSEEN]),
        "verified_tokens_per_pass_min_domain": min(per.values()),
        "verified_wall_speedup": verified.wall_speedup.value,
        "verified_wall_speedup_low": verified.wall_speedup.low,
        "verified_request_speedup": verified.figures["request_speedup"].value,
        "best_rival_wall_speedup": rival.wall_speedup.value,
        "verified_wall_speedup_varied": speed_of(verified, True),
        "verified_wall_speedup_repetitive": speed_of(verified, False),
        "rival_wall_speedup_varied": speed_of(rival, True),
        "varied_prompts": len(varied),
        "distinct4_median": ntp.figures["distinct4_median"].value,
        "identical_to_ntp": verified.identical_to_ntp.value,
        "prediction_error_max": prediction_error(cell),
        "processes": verified.wall_speedup.processes,
        "trained_tokens": trained_tokens(ADAPTER),
    }
    if len(sys.argv) > 2:
        figures |= sampled_figures(Path(sys.argv[2]))
    print(f"{verified.label}; lowest: {min(per, key=lambda task: per[task])}; rival: {rival.label}")
    known = {name: value for name, value in figures.items() if value is not None}
    print(write_results(Path(sys.argv[1]).name, known, run.header.environment))


if __name__ == "__main__":
    main()
