"""A few examples to train on."""

from __future__ import annotations

from harness.training.noising import SpecialIds

IDS = SpecialIds(pad=90, eos=91, mask=92)
EXAMPLES = [{"input_ids": [1, 2, 3, 4, 5, 6, 7, 91], "prompt_tokens": 3}, {"input_ids": [1, 8, 9, 91], "prompt_tokens": 2}]
