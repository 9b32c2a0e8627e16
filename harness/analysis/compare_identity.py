"""Whether an arm wrote the very tokens that NTP wrote, prompt by prompt. Knows no time, no grade and no page."""

from __future__ import annotations

from collections.abc import Sequence

from harness.analysis.sample_totals import Key, Tally
from harness.analysis.stats.quantity import CONFIDENCE, Quantity, absent, wilson_interval

Outputs = dict[tuple[Key, tuple[str, str]], list[int]]
"""Which decode, and task and prompt id -> what was written."""


def outputs(tallies: Sequence[Tally]) -> Outputs:
    """What every prompt of every decode was answered."""
    written = ((tally.key, zip(tally.prompts, tally.outputs, strict=True)) for tally in tallies)
    return {(key, prompt): output for key, answers in written for prompt, output in answers}


def identical_outputs(
    of_ntp: Outputs, arm: Sequence[Tally], why_none: str, confidence: float = CONFIDENCE
) -> Quantity:
    """Share of prompts of which every decode wrote what NTP wrote in the same repeat and process, with its Wilson interval;
    prompts that only one of the two decoded are left out.
    """
    same: dict[tuple[str, str], bool] = {}
    for tally in arm:
        for prompt, output in zip(tally.prompts, tally.outputs, strict=True):
            expected = of_ntp.get((tally.key, prompt))
            if expected is not None:
                same[prompt] = same.get(prompt, True) and output == expected
    return wilson_interval(sum(same.values()), len(same), confidence) if same else absent(why_none)
