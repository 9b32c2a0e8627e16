"""Synthetic runs as pages, and what a reader sees of them."""

from __future__ import annotations

import html
import re

from tests.helpers import synthetic_run as synthetic

REPLAYED = synthetic.Arm(label="SBD k=16 replayed 4x", gamma=0.1, passes_per_block=4, replayed={"nfe_speedup": 4.0})
FULL = synthetic.build(
    synthetic.Part(jitter=0.05, tasks=("word_problems", "record_to_json")),
    synthetic.Part(name="bandwidth_bound", arms=(synthetic.NTP, REPLAYED), graded=False),
    calibration=synthetic.calibration(),
)


def words(text: str) -> str:
    """What a reader sees: no tags, style or drawings, white space as single spaces."""
    text = re.sub(r"<(style|svg|script)\b.*?</\1>", " ", text, flags=re.DOTALL)
    return re.sub(r"\s+", " ", html.unescape(re.sub(r"<[^>]+>", " ", text)))


def headlines(text: str) -> list[str]:
    """The figures in large type with their units."""
    return [words(found) for found in re.findall(r'<p class="big[^"]*">.*?</p>', text, flags=re.DOTALL)]
