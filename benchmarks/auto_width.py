"""What the width that the machine chose (``block_size: auto``) costs, beside the fixed widths of the same run.

    python -m benchmarks.auto_width RUN [RUN ...]

RUN: the directory of a finished run of scenarios/real_model.yaml, or of another one whose arms of one method have a list of
widths with auto among them. Figures are of the first part with such an arm, each with the name of its run's folder in front:

auto_width                         the width that was chosen
auto_expected_over_best            expected time of a token at that width over the least of a fixed one: the cost of a pass from
                                   the choice, t(q), over the tokens of a pass counted on the timed prompts; 1 is the best
auto_clock_over_best, _low, _high  decode time per token of the fixed arm that is fastest by the clock over the auto arm's:
                                   geometric mean over prompts, of each the median over processes; 95 % interval over prompts.
                                   The fixed arm is picked on these very samples, which flatters it
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt
from scipy.stats import t

from benchmarks.real_model import s_per_token, summary_of
from benchmarks.results_file import write_results
from harness.analysis.frames import RunFrames
from harness.record.schema import CaseHeader, Run, WidthChoice
from harness.record.store import read_run

LOWER, UPPER = 0.025, 0.975


def expected_s(choice: WidthChoice, tokens_per_pass: Mapping[int, float]) -> dict[int, float]:
    """Seconds of a token by width, where its tokens per pass were counted: t(q) of the choice over these."""
    return {one.width: one.pass_s / tokens_per_pass[one.width] for one in choice.tried if one.width in tokens_per_pass}


def excess(choice: WidthChoice, tokens_per_pass: Mapping[int, float]) -> float:
    """Expected time at the chosen width over that of the best one; both must have been counted."""
    expected = expected_s(choice, tokens_per_pass)
    return expected[choice.best.width] / min(expected.values())


def with_interval(logs: npt.NDArray[np.float64]) -> tuple[float, float, float]:
    """(value, low, high): the geometric mean of prompts with their logarithms, by Student's t."""
    half = t.ppf(UPPER, len(logs) - 1) * logs.std(ddof=1) / np.sqrt(len(logs))
    return tuple(float(np.exp(logs.mean() + side * half)) for side in (0, -1, 1))  # type: ignore[return-value]


def widths_of(run: Run) -> tuple[CaseHeader, dict[int, str]]:
    """The first case with auto, and the labels of the fixed arms that differ from it in nothing but the width.

    Raises:
        SystemExit: the run has none.
    """
    for auto in run.header.cases:
        if auto.width is not None:
            key = str(auto.arm.values["auto"])
            same = {name: value for name, value in auto.arm.values.items() if name not in ("auto", key)}
            beside = [one for one in run.header.cases if (one.part, one.batch_size) == (auto.part, auto.batch_size)]
            return auto, {
                int(str(one.arm.values[key])): one.label
                for one in beside
                if one.arm.values == same | {key: one.arm.values.get(key)}
            }
    raise SystemExit("the run has no arm with auto; give a run of scenarios/real_model.yaml")


def figures_of(run: Run, name: str) -> dict[str, float]:
    """The figures of a run, as a table on the way."""
    auto, fixed = widths_of(run)
    frames = RunFrames(run)
    arms = {arm.label: arm for arm in summary_of(frames.comparison.cells, auto.part).arms}
    assert auto.width is not None
    counted = {}
    for width, label in {auto.width.best.width: auto.label, **fixed}.items():
        own = frames.samples[frames.samples.case_id.isin(arms[label].case_ids) & ~frames.samples.warmup]
        counted[width] = own.decode_tokens.sum() / own.passes.sum()
    times = {label: s_per_token(frames.samples, arms[label]) for label in (auto.label, *fixed.values())}
    logs = {label: np.log((times[label] / times[auto.label]).dropna().to_numpy()) for label in fixed.values()}
    clock = {label: with_interval(found) for label, found in logs.items() if len(found) > 1}  # void samples have no times
    print(f"{name}: {auto.label} is {auto.width.best.width}, chosen on {len(auto.width.prompt_digests)} prompts")
    print("width | query tokens | t(q)/t(1) | tokens a pass, spare prompts | timed prompts | over the auto arm by the clock")
    for one in auto.width.tried:
        ratio = "{:.3f} ({:.3f}, {:.3f})".format(*clock[fixed[one.width]]) if fixed.get(one.width) in clock else ""
        print(
            f"{one.width} | {one.query_tokens:.1f} | {one.pass_s / auto.width.ntp.pass_s:.2f} | {one.tokens_per_pass:.3f} | "
            f"{counted.get(one.width, float('nan')):.3f} | {ratio}"
        )
    figures = {"auto_width": auto.width.best.width, "auto_expected_over_best": excess(auto.width, counted)}
    if clock:
        names = ("auto_clock_over_best", "auto_clock_over_best_low", "auto_clock_over_best_high")
        figures |= dict(zip(names, min(clock.values()), strict=True))
    return {f"{name}_{key}": value for key, value in figures.items()}


def main() -> None:
    """Print the tables and write the figures."""
    figures: dict[str, float] = {}
    for folder in map(Path, sys.argv[1:]):
        run = read_run(folder)
        figures |= figures_of(run, folder.name)
    print(write_results("auto_width", figures, run.header.environment))


if __name__ == "__main__":
    main()
