"""Real files of the four tools: our medians are those that the tool printed, and its files are recognised."""

from __future__ import annotations

from tests.helpers import DATA

MADE = DATA / "imports"
PRINTED = {
    "vllm": {
        "median_first_token_s": r"Median TTFT \(ms\): +([\d.]+)", "median_time_per_token_s": r"Median TPOT \(ms\): +([\d.]+)",
        "median_gap_s": r"Median ITL \(ms\): +([\d.]+)", "median_request_s": r"Median E2EL \(ms\): +([\d.]+)",
    },
    "sglang": {
        "median_first_token_s": r"Median TTFT \(ms\): +([\d.]+)", "median_gap_s": r"Median ITL \(ms\): +([\d.]+)",
    },
}  # fmt: skip
