"""Real files of the four tools: our medians are those that the tool printed, to the last printed digit."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from harness.record.imports.formats import FORMATS, read_file
from harness.record.imports.measured import figures
from harness.record.imports.samples import Placed, pairing_of
from tests.helpers import DATA

MADE = DATA / "imports"
LATENCIES = {"first_token_s": "TTFT", "time_per_token_s": "TPOT", "gap_s": "ITL", "request_s": "E2EL"}
IN_LINES = {name: rf"Median {short} \(ms\): +([\d.]+)" for name, short in LATENCIES.items()}
IN_TABLE = {
    "first_token_s": "Time to First Token (ms)",
    "time_per_token_s": "Inter Token Latency (ms)",
    "request_s": "Request Latency (ms)",
}
P50 = 6
"""Its column in AIPerf's table: name, avg, min, max, p99, p90, p50, std."""


def lines_of(text: str) -> dict[str, str]:
    """Medians in milliseconds as vLLM and SGLang print them."""
    found = {name: re.search(pattern, text) for name, pattern in IN_LINES.items()}
    return {name: one.group(1) for name, one in found.items() if one}


def table_of(text: str) -> dict[str, str]:
    """Medians in milliseconds from AIPerf's table."""
    rows = [[cell.strip() for cell in line.strip("│ ").split("│")] for line in text.splitlines() if line.startswith("│")]
    by_name = {row[0]: row for row in rows}
    return {name: by_name[head][P50].replace(",", "") for name, head in IN_TABLE.items()}


def columns_of(text: str) -> dict[str, str]:
    """Medians from GuideLLM's table; its request latency is in seconds, and printed with a single digit."""
    (row,) = (line for line in text.splitlines() if line.startswith("| synchronous"))
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    return {"request_s": cells[2], "first_token_s": cells[5], "time_per_token_s": cells[11]}


PRINTED = {"vllm": lines_of, "sglang": lines_of, "aiperf": table_of, "guidellm": columns_of}
TOLD = {
    "vllm": set(LATENCIES),
    "sglang": {"first_token_s", "gap_s"},
    "aiperf": set(IN_TABLE),
    "guidellm": {"request_s", "first_token_s", "time_per_token_s"},
}
FILES = sorted(path for path in MADE.iterdir() if path.suffix in (".json", ".jsonl"))


@pytest.mark.parametrize("file", FILES, ids=lambda path: path.stem)
def test_our_medians_are_those_that_the_tool_printed(file: Path) -> None:
    """Rounded as it printed them. SGLang's own median of requests has the end of the stream, which its file does not keep."""
    kind = file.name.partition("-")[0]
    measured = read_file(file)
    assert measured.format == kind in FORMATS
    ours = figures(measured.requests, measured.rule)
    told = PRINTED[kind](file.with_suffix(".printed.txt").read_text(encoding="utf-8"))
    assert TOLD[kind] <= set(told)
    for name in TOLD[kind]:
        digits = len(told[name].partition(".")[2])
        scale = 1 if (kind, name) == ("guidellm", "request_s") else 1000
        assert f"{ours[f'median_{name}'] * scale:.{digits}f}" == told[name], name


@pytest.mark.parametrize("file", FILES, ids=lambda path: path.stem)
def test_the_figures_in_the_file_are_those_of_its_requests(file: Path) -> None:
    """Exactly, but for rounding; AIPerf's records hold their times per token alone."""
    measured = read_file(file)
    assert measured.printed
    for name, theirs in measured.printed.items():
        if name in measured.figures:
            assert measured.figures[name] == pytest.approx(theirs, rel=1e-9), name


def test_the_end_of_the_stream_is_all_that_sglang_keeps_beside() -> None:
    """Its request is longer than the pieces of its stream, by little."""
    measured = read_file(MADE / "sglang-plain.jsonl")
    with_end = measured.printed["mean_request_to_the_end_s"]
    assert measured.figures["mean_request_s"] <= with_end <= 1.05 * measured.figures["mean_request_s"]


def test_the_counts_of_drafts_are_those_of_the_file() -> None:
    """Over all requests together, so they are shown, and no passes are made of them."""
    measured = read_file(MADE / "vllm-ngram-1.json")
    written = json.loads((MADE / "vllm-ngram-1.json").read_text(encoding="utf-8"))
    assert measured.counted["accepted_tokens"] == written["spec_decode_accepted_tokens"] > 0
    assert not read_file(MADE / "vllm-plain-1.json").counted


@pytest.mark.parametrize(
    ("kind", "paired"), [("vllm", "order"), ("guidellm", "prompts"), ("aiperf", "order"), ("sglang", "order")]
)
def test_two_runs_of_one_seed_are_paired(kind: str, paired: str) -> None:
    """Both sides were asked the same; GuideLLM alone keeps the prompts that show it."""
    files = [path for path in FILES if path.name.startswith(kind)]
    placed = [Placed(case_id=path.name, process=0, file=read_file(path)) for path in files]
    assert pairing_of(placed)[0] == paired
