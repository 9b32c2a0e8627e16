"""Files without common prompts are compared as wholes: the ratio and its interval, held against scipy's t test on the logs."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from harness.analysis.figures.arm_figures import speedups_of_files, whole
from harness.analysis.tally.tally import Tally, tally
from harness.stats.two_runs import ratio_of_processes
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
    found = ratio_of_processes([1.0, 1.1], [0.5, 0.5], 8)
    assert found.value is not None and found.low is None and "takes 3" in found.reason
    same = ratio_of_processes([1.0] * 3, [0.5] * 3, 8)
    assert same.low is None and "no spread" in same.reason


def test_means_of_files_by_hand() -> None:
    """Geometric mean of a file's times per token, and its time by its tokens; requests without decode tokens are left out."""
    ntp = [request(0, 1.0, 10), request(0, 4.0, 10), request(0, 1.0, 0), request(1, 2.0, 10)]
    arm = [request(0, 0.5, 10), request(1, 0.5, 10)]
    mean, totals = speedups_of_files(ntp, arm, "decode_s", "decode_tokens", 0.95)
    assert mean.value == pytest.approx(math.sqrt(math.sqrt(0.1 * 0.4) * 0.2) / 0.05)
    assert totals.value == pytest.approx(math.sqrt(5.0 / 20 * 0.2) / 0.05)
    whole_requests, _ = speedups_of_files([request(0, 0.9, 9)], [request(0, 0.4, 9)], "latency_s", "output_tokens", 0.95)
    assert whole_requests.value == pytest.approx(1.0 / 0.5)


def test_a_side_without_times_has_no_ratio() -> None:
    """It is absent with its reason, and never a division by nothing."""
    assert speedups_of_files([request(0, 1.0, 0)], [request(0, 1.0, 5)], "decode_s", "decode_tokens", 0.95)[0].reason


def test_a_whole_file_is_the_sum_of_its_requests() -> None:
    """Times and tokens add up; the prompt's time is the median."""
    found = whole([request(0, 1.0, 10, 0.1), request(0, 2.0, 30, 0.3), request(0, 4.0, 5, 0.2)])
    assert (found.decode_s, found.decode_tokens, found.output_tokens, found.prompt_s) == (7.0, 45, 48, 0.2)
