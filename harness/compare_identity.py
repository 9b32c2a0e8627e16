"""Whether an arm wrote the very tokens that NTP wrote, prompt by prompt. Knows no time, no grade and no page."""

from __future__ import annotations

from collections.abc import Sequence

from harness.compare_tally import Tally
from harness.stats import Quantity, absent, wilson_interval


def identical_outputs(ntp: Sequence[Tally], arm: Sequence[Tally], why_none: str) -> Quantity:
    """Share of prompts of which every decode wrote what NTP wrote in the same repeat and process, with its Wilson interval;
    prompts that only one of the two decoded are left out.
    """
    of_ntp = {
        (tally.key, prompt): output for tally in ntp for prompt, output in zip(tally.prompts, tally.outputs, strict=True)
    }
    same: dict[tuple[str, str], bool] = {}
    for tally in arm:
        for prompt, output in zip(tally.prompts, tally.outputs, strict=True):
            if (tally.key, prompt) in of_ntp:
                same[prompt] = same.get(prompt, True) and output == of_ntp[tally.key, prompt]
    return wilson_interval(sum(same.values()), len(same)) if same else absent(why_none)
