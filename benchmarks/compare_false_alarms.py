"""How often `sbd compare` calls a figure of one code better or worse than itself, and how often it finds a true change.

Two runs of the same prompts are drawn with known truth and judged by the functions that `sbd compare` and a page of several
runs call: timed_changes and judge_changes of harness.regression.changes. One record is built,
read by harness.regression.timed.processes_of; each trial replaces the times in it. A run has NTP and one SBD arm:
five timed figures.

log time = prompt (sd 0.25) + process + prompt × process (sd 0.01). What a process differs in is half common to all figures,
half each figure's own. A machine of two states has each process slow (NTP and prefill by 10 %, SBD by 5 %) or not, by a coin.

    flagged_pct_max            A/A: figures called better or worse, of all timed figures; the worst cell
    comparisons_flagged_pct_max  A/A: comparisons with any such figure (Holm promises 5); the worst cell
    flagged_pct_*p*_*          the same by cell: prompts, processes of BASE and NEW, noise of a process
    found_pct_8_percent_*_processes  SBD's time per token is 8 % longer at 1 % process noise: called worse
    found_pct_..._20_arms      the same where 20 SBD arms, all of them slower, make 62 figures
    comparisons_flagged_pct_20_arms  A/A of 62 figures, 5 processes a side: comparisons with any flagged
    same_pct_5_processes       A/A at 1 % noise: figures called the same (within 2 %)
    run_state_flagged_pct      A/A where a whole run is slower or faster by 2 %: what no comparison of two runs in a row can
                               notice; not in the maximum

    python -m benchmarks.compare_false_alarms
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace

# Before numpy is loaded: one core.
os.environ.update(dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1"))

import numpy as np
from numpy.typing import NDArray

from benchmarks.results_file import write_results
from harness.regression.changes import Change, judge_changes, timed_changes
from harness.regression.metrics import CellMetric, timed_metrics
from harness.regression.timed import Process, processes_of
from tests.helpers.synthetic_run import NTP, Arm, Part, build

TRIALS = {16: 2_000, 200: 300}
"""By prompts."""
FINDING_TRIALS = 1_000
PROMPT_SD, CELL_SD, CHANGE = 0.25, 0.01, 0.08
SLOW_STATE = {"ntp": (0.10, 0.10), "sbd": (0.10, 0.05)}
"""What a slow process adds to the prefill and the decode of each."""
SIDES = ((1, 1), (2, 2), (2, 10), (3, 3), (3, 10), (5, 5), (10, 10))
USUAL_S = {"ntp": (0.02, 0.010), "sbd": (0.02, 0.003)}
"""Prefill, and decode by token."""
Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Luck:
    """How the processes of one code differ: log standard deviation, or a machine of two states; ``run_sd`` of whole runs."""

    name: str
    process_sd: float = 0.005
    states: bool = False
    run_sd: float = 0.0

    def drawn(self, drawn: np.random.Generator, processes: int, slow: Array) -> Array:
        """Log factors of shape (processes, figures); ``slow``: what the slow state adds to each figure."""
        common, own = drawn.normal(0, 1, (processes, 1)), drawn.normal(0, 1, (processes, len(slow)))
        found: Array = self.process_sd * (common + own) / np.sqrt(2) + self.run_sd * drawn.normal()
        return found + np.log1p(slow) * (drawn.random((processes, 1)) < 0.5) if self.states else found


LUCKS = (Luck(name="noise_1", process_sd=0.01), Luck(name="noise_10", process_sd=0.10), Luck(name="two_states", states=True))


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """One record read once: its metrics, its only process, and its cases as ``ntp`` or ``sbd``, in their order."""

    metrics: tuple[CellMetric, ...]
    process: Process
    cases: dict[str, str]
    prompts: int

    def side(
        self, luck: Luck, processes: int, of_prompts: Array, drawn: np.random.Generator, slower: float = 0.0
    ) -> list[Process]:
        """The processes of one run, their times drawn; SBD decodes ``slower`` (log) by as much."""
        kinds = list(self.cases.values())
        factors = luck.drawn(drawn, processes, np.array([SLOW_STATE[kind] for kind in kinds]).ravel())
        factors += np.array([(0.0, slower if kind == "sbd" else 0.0) for kind in kinds]).ravel()
        logs = factors[:, :, None] + drawn.normal(0, CELL_SD, (*factors.shape, self.prompts)) + of_prompts
        seconds = np.exp(logs) * np.array([USUAL_S[kind] for kind in kinds]).reshape(-1, 1)
        return [self._process(one.reshape(len(kinds), 2, self.prompts).tolist()) for one in seconds]

    def _process(self, seconds: list[list[list[float]]]) -> Process:
        of_case = {case_id: iter(zip(*one, strict=True)) for case_id, one in zip(self.cases, seconds, strict=True)}
        decodes = {}
        for place, tally in self.process.decodes.items():
            prefill_s, per_token_s = next(of_case[place[0]])
            decode_s = per_token_s * tally.decode_tokens
            decodes[place] = replace(tally, decode_s=decode_s, latency_s=prefill_s + decode_s)
        return replace(self.process, decodes=decodes)


def bench(prompts: int, arms: int = 1) -> Bench:
    """A record of NTP and so many SBD arms."""
    gammas = [(i + 1) / 10 for i in range(arms)]
    of_sbd = tuple(Arm(label=f"SBD k=16 γ={gamma:g}", gamma=gamma, passes_per_block=4) for gamma in gammas)
    run = build(Part(arms=(NTP, *of_sbd), prompts=prompts, blocks=1, per_pass=False))
    cases = {case.case_id: str(case.arm.method) for case in run.header.cases}
    return Bench(metrics=timed_metrics(run), process=processes_of(run)[0], cases=cases, prompts=prompts)


def compared(
    of: Bench, luck: Luck, sides: tuple[int, int], drawn: np.random.Generator, slower: float = 0.0
) -> tuple[Change, ...]:
    """One comparison of a code with itself, or with one whose SBD arms are slower."""
    prompts = drawn.normal(0, PROMPT_SD, of.prompts)
    base, new = of.side(luck, sides[0], prompts, drawn), of.side(luck, sides[1], prompts, drawn, slower)
    return judge_changes(timed_changes(of.metrics, base, new))


def flagged(changes: Sequence[Change]) -> list[bool]:
    """Whether each figure is called better or worse."""
    return [change.outcome in ("better", "worse") for change in changes]


def of_one_code(of: Bench, luck: Luck, sides: tuple[int, int], trials: int, seed: int = 0) -> tuple[float, float, float]:
    """Percent of the figures flagged, of comparisons with any, and of the figures called the same."""
    drawn = np.random.default_rng((seed, of.prompts, *sides))
    found = [compared(of, luck, sides, drawn) for _ in range(trials)]
    flags = [flagged(one) for one in found]
    same = [change.outcome == "same" for one in found for change in one]
    return 100 * float(np.mean(flags)), 100 * float(np.mean([any(one) for one in flags])), 100 * float(np.mean(same))


def found_pct(of: Bench, processes: int, trials: int) -> float:
    """Percent of comparisons that call the first SBD arm's time per token worse, at 1 % process noise."""
    drawn = np.random.default_rng((1, of.prompts, processes))
    count = 0
    for _ in range(trials):
        changes = compared(of, LUCKS[0], (processes, processes), drawn, float(np.log1p(CHANGE)))
        count += next(one for one in changes if one.metric == "decode_s_per_token" and "/sbd" in one.key).outcome == "worse"
    return 100 * count / trials


def false_alarms() -> dict[str, float]:
    """Every cell, and the worst of them."""
    figures: dict[str, float] = {}
    worst = {"flagged_pct_max": 0.0, "comparisons_flagged_pct_max": 0.0}
    for prompts, trials in TRIALS.items():
        of = bench(prompts)
        for luck in LUCKS:
            for sides in SIDES:
                some, any_, same = of_one_code(of, luck, sides, trials)
                key = f"{prompts}p_{sides[0]}x{sides[1]}_{luck.name}"
                figures[f"flagged_pct_{key}"] = some
                worst["flagged_pct_max"] = max(worst["flagged_pct_max"], some)
                worst["comparisons_flagged_pct_max"] = max(worst["comparisons_flagged_pct_max"], any_)
                print(f"{key}: {some:.2f} % of figures, {any_:.2f} % of comparisons flagged; {same:.1f} % the same", flush=True)
                if (prompts, sides, luck.name) == (16, (5, 5), "noise_1"):
                    figures["same_pct_5_processes"] = same
    return worst | figures


def main() -> None:
    """Simulate, print, write."""
    figures = false_alarms()
    of = bench(16)
    for processes in (3, 5):
        figures[f"found_pct_8_percent_{processes}_processes"] = found_pct(of, processes, FINDING_TRIALS)
    figures["found_pct_8_percent_5_processes_20_arms"] = found_pct(bench(16, arms=20), 5, 100)
    figures["comparisons_flagged_pct_20_arms"] = of_one_code(bench(16, arms=20), LUCKS[0], (5, 5), 300)[1]
    figures["run_state_flagged_pct"] = of_one_code(of, Luck(name="runs", process_sd=0.01, run_sd=0.02), (5, 5), 500)[0]
    shown = {key: round(value, 2) for key, value in figures.items()}
    print({key: value for key, value in shown.items() if "p_" not in key})
    print(write_results("compare_false_alarms", shown))


if __name__ == "__main__":
    main()
