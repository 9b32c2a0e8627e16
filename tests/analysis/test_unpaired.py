"""Files without common prompts are compared as wholes: the ratio, and its interval by mean squares of a fitted linear model."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy import stats as scipy_stats

from harness.analysis.cells import cells_of
from harness.analysis.figures.of_files import speedups_of_files, whole
from harness.analysis.tally.by_request import Tallies
from harness.analysis.tally.tally import Tally, tally
from harness.record.imports.formats import read_file
from harness.record.schema import Run
from harness.scenario.imported import About, ImportedArm, imported_run
from harness.stats.two_runs import ratio_of_files
from tests.helpers import DATA
from tests.helpers.bench_files import cut, written
from tests.helpers.synthetic_run import build

RUN = build()
CASES = {case.case_id: case for case in RUN.header.cases}
ONE = tally(CASES[RUN.samples[0].case_id], RUN.samples[0], None)


def request(process: int, decode_s: float, tokens: int, prompt_s: float = 0.1, group: int = 0) -> Tally:
    """A request of a file by its times alone."""
    return replace(
        ONE,
        key=("requests", group, 0, process),
        decode_s=decode_s,
        decode_tokens=tokens,
        output_tokens=tokens + 1,
        prompt_s=prompt_s,
        latency_s=prompt_s + decode_s,
    )


def test_two_files_a_side_have_no_interval() -> None:
    """Their spread over processes is unknown, and no prompt pairs them."""
    found = ratio_of_files([{0: 1.0}, {0: 1.1}], [{0: 0.5}, {0: 0.5}])
    assert found.value == pytest.approx(math.exp(0.55)) and found.low is None and "takes 3" in str(found.reason)
    same = ratio_of_files([{0: 1.0, 1: 1.0}] * 3, [{0: 0.5, 1: 0.5}] * 3)
    assert same.low is None and "no spread" in str(same.reason)
    apart = ratio_of_files([{file: 1.0 + file} for file in range(3)], [{0: 0.5 + file} for file in range(3)])
    assert apart.low is None and "at the same places" in str(apart.reason)


def test_means_of_files_by_hand() -> None:
    """Geometric mean of a file's times per token, and its time by its tokens; requests without decode tokens are left out."""
    ntp = [request(0, 1.0, 10), request(0, 4.0, 10, group=1), request(0, 1.0, 0, group=2), request(1, 2.0, 10, group=3)]
    arm = [request(0, 0.5, 10), request(1, 0.5, 10, group=3)]
    mean, totals = speedups_of_files(ntp, arm, "decode_s", "decode_tokens", 3, 0.95)
    assert mean.value == pytest.approx(math.sqrt(math.sqrt(0.1 * 0.4) * 0.2) / 0.05)
    assert totals.value == pytest.approx(math.sqrt(5.0 / 20 * 0.2) / 0.05)
    whole_requests, _ = speedups_of_files([request(0, 0.9, 9)], [request(0, 0.4, 9)], "latency_s", "output_tokens", 1, 0.95)
    assert whole_requests.value == pytest.approx(1.0 / 0.5)


def test_a_side_without_times_has_no_ratio() -> None:
    """It is absent with its reason, and never a division by nothing."""
    assert speedups_of_files([request(0, 1.0, 0)], [request(0, 1.0, 5)], "decode_s", "decode_tokens", 1, 0.95)[0].reason


def test_a_whole_file_is_the_sum_of_its_requests() -> None:
    """Times and tokens add up; the prompt's time is the median."""
    found = whole([request(0, 1.0, 10, 0.1), request(0, 2.0, 30, 0.3), request(0, 4.0, 5, 0.2)])
    assert (found.decode_s, found.decode_tokens, found.output_tokens, found.prompt_s) == (7.0, 45, 48, 0.2)


def half_by_mean_squares(sides: Sequence[np.ndarray]) -> float:
    """Half of the interval of the difference of two tables' means (places, files), each with both factors random: variances of
    (MS places + MS files - MS residual) / cells by least squares, the files' part at least 0, and degrees by Satterthwaite.
    """
    total, terms = 0.0, 0.0
    for table in sides:
        n, files = table.shape
        place, file = (np.eye(count)[where.ravel()] for count, where in zip(table.shape, np.indices(table.shape), strict=True))

        def left(*designs: np.ndarray, values: np.ndarray = table) -> float:
            design, values = np.column_stack([np.ones(values.size), *designs]), values.ravel()
            return float(((values - design @ np.linalg.lstsq(design, values, rcond=None)[0]) ** 2).sum())

        residual = left(place, file) / ((n - 1) * (files - 1)) / table.size
        of_places = (left(file) - left(place, file)) / (n - 1) / table.size
        of_files = (left(place) - left(place, file)) / (files - 1) / table.size
        value, degrees = of_places, n - 1.0
        if of_files > residual:
            value += of_files - residual
            squares = of_places**2 / (n - 1) + of_files**2 / (files - 1) + residual**2 / ((n - 1) * (files - 1))
            degrees = max(value**2 / squares, min(n, files) - 1)
        total, terms = total + value, terms + value**2 / degrees
    return float(scipy_stats.t.ppf(0.975, total**2 / terms)) * math.sqrt(total)


def test_prompts_that_the_files_of_a_side_repeat_are_a_sample_too(tmp_path: Path) -> None:
    """Three real files a side, cut so that the sides were asked other prompts, each side the same ones thrice."""
    keep = {"plain": range(8), "ngram": range(4, 12)}
    arms, sides = [], []
    for name, places in keep.items():
        results = [cut(json.loads((DATA / f"imports/vllm-{name}-{i}.json").read_text()), places) for i in (1, 2, 3)]
        files = tuple(read_file(written(tmp_path, f"{name}{i}.json", one)) for i, one in enumerate(results))
        arms.append(ImportedArm(name=name, is_ntp=name == "plain", files=files))
        logs = [
            [
                math.log((end - first) / (tokens - 1))
                for end, first, tokens in zip(one["latencies"], one["ttfts"], one["output_lens"], strict=True)
            ]
            for one in results
        ]
        sides.append(np.array(logs).T)
    header, samples = imported_run(arms, About(model=None, machine=None, claims=(), command="sbd import"))
    assert header.imported is not None and header.imported.pairing is None
    run = Run(header=header, samples=samples, outcomes=[], sessions=[])
    cell = cells_of(Tallies(run), "imported", 1)[0][0]
    found = next(one for one in cell.arms if not one.is_ntp).wall_speedup
    middle, half = float(sides[0].mean() - sides[1].mean()), half_by_mean_squares(sides)
    assert (found.low, found.value, found.high) == pytest.approx(tuple(math.exp(middle + by * half) for by in (-1, 0, 1)))


@pytest.mark.parametrize("same", [True, False])
@pytest.mark.parametrize("files", [3, 5, 10])
def test_a_claim_at_the_truth_is_rarely_confirmed(files: int, same: bool) -> None:
    """Of equal sides with prompts of their own, in all files of a side the same, or other ones in each: 95 % hold 1."""
    drawn, runs = np.random.default_rng(files), 400
    above, holds = 0, 0
    for _ in range(runs):
        sides = [
            drawn.normal(0, 0.02, files) + drawn.normal(0, 0.1, (50, files)) + drawn.normal(0, 0.2, (50, 1 if same else files))
            for _ in range(2)
        ]
        found = ratio_of_files(*([dict(enumerate(file)) for file in side.T.tolist()] for side in sides))
        above += found.low is not None and found.low > 1
        holds += found.low is not None and found.high is not None and found.low <= 1 <= found.high
    assert above <= 0.045 * runs and 0.92 * runs <= holds <= 0.99 * runs
