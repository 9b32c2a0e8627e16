"""Traces of arrivals and lengths: both forms, what is refused, and prompts exactly as long as they say."""

from __future__ import annotations

import csv
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from harness.errors import ScenarioError
from harness.workloads.arrivals import AZURE_HEAD, CUT, of_lengths, read_trace
from harness.workloads.loader import PromptItem

REQUESTS = st.lists(st.tuples(st.integers(0, 10_000_000), st.integers(1, 5000), st.integers(1, 900)), min_size=1, max_size=20)
Requests = list[tuple[int, int, int]]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(REQUESTS, st.booleans())
def test_both_forms_give_what_was_written(tmp_path: Path, requests: Requests, azure: bool) -> None:
    """Written by the standard library: milliseconds, or times of day; the first request is at 0."""
    requests.sort(key=lambda one: one[0])
    begin = datetime(2023, 11, 16, 18, 17, 3, tzinfo=UTC)
    file = tmp_path / ("trace.csv" if azure else "trace.jsonl")
    with file.open("w", encoding="utf-8", newline="") as opened:
        if azure:
            rows = ((begin + timedelta(milliseconds=at), prompt, output) for at, prompt, output in requests)
            csv.writer(opened).writerows([AZURE_HEAD, *((f"{at:%Y-%m-%d %H:%M:%S.%f}0", *rest) for at, *rest in rows)])
        else:
            names = ("timestamp", "input_length", "output_length")
            opened.writelines(json.dumps(dict(zip(names, one, strict=True))) + "\n" for one in requests)
    found = read_trace(file)
    wanted = [((at - requests[0][0]) / 1000, prompt, output) for at, prompt, output in requests]
    assert [(pytest.approx(one.after_s, abs=1e-4), one.prompt_tokens, one.output_tokens) for one in found] == wanted
    assert [one.line for one in found] == list(range(1 + azure, len(found) + 1 + azure))


def test_the_published_lines_of_both_forms(tmp_path: Path) -> None:
    """As Mooncake's and Azure's files write them, hash ids, seven digits and a zone included."""
    mooncake, azure = tmp_path / "m.jsonl", tmp_path / "a.csv"
    mooncake.write_text(
        '{"timestamp": 0, "input_length": 6755, "output_length": 500, "hash_ids": [0, 1, 2]}\n'
        '{"timestamp": 3052, "input_length": 2287, "output_length": 316, "hash_ids": [0, 42]}\n'
    )
    azure.write_text(
        "TIMESTAMP,ContextTokens,GeneratedTokens\n"
        "2023-11-16 18:17:03.9799600,4808,10\n2023-11-16 18:17:04.0319600+00:00,3180,8\n"
    )
    assert [(one.after_s, one.prompt_tokens, one.output_tokens) for one in read_trace(mooncake)] == [
        (0.0, 6755, 500),
        (3.052, 2287, 316),
    ]
    first, second = read_trace(azure)
    assert (first.prompt_tokens, first.output_tokens, second.prompt_tokens) == (4808, 10, 3180)
    assert second.after_s == pytest.approx(0.052, abs=1e-6)


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("t.jsonl", "", "has 0 requests"),
        ("t.jsonl", "\n{not json}\n", r"t\.jsonl:2: not JSON"),
        ("t.jsonl", '{"timestamp": 0, "input_length": 1}\n', r"t\.jsonl:1: output_length: .*required"),
        ("t.jsonl", '{"timestamp": 0, "input_length": "9", "output_length": 1}\n', r"jsonl:1: input_length: .*integer"),
        ("t.jsonl", '{"timestamp": NaN, "input_length": 9, "output_length": 1}\n', r"jsonl:1: timestamp"),
        ("t.jsonl", '{"timestamp": 0, "input_length": 9, "output_length": 1, "chat_id": 3}\n', "1: .*key chat_id"),
        ("t.jsonl", f'{{"timestamp": 0, "input_length": {10**9}, "output_length": 1}}\n', "input_length: .*less"),
        ("t.csv", "Timestamp,Request tokens\n", r"t\.csv:1: begins with 'Timestamp,Request tokens'"),
        ("t.csv", ",".join(AZURE_HEAD) + "\nyesterday,1,1\n", r"t\.csv:2: 'yesterday' is no time"),
        ("t.csv", ",".join(AZURE_HEAD) + "\n2023-11-16 18:17:03,1\n", r"t\.csv:2: has 2 columns"),
        ("t.csv", ",".join(AZURE_HEAD) + "\n2023-11-16 18:17:03,1,-1\n", r"t\.csv:2: output_length: .*integer"),
        ("t.csv", ",".join(AZURE_HEAD) + "\n2023-11-16 18:17:03,1,0\n", "csv:2: output_length: .*greater"),
        ("t.json", "[]", r"ends in \.jsonl or \.csv"),
    ],
)
def test_what_is_no_trace_is_refused_by_file_and_line(tmp_path: Path, name: str, text: str, words: str) -> None:
    """A trace in seconds (chat_id, as in another form) is not taken for one in milliseconds."""
    (tmp_path / name).write_text(text, encoding="utf-8")
    with pytest.raises(ScenarioError, match=words):
        read_trace(tmp_path / name)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.lists(st.integers(0, 9), min_size=1, max_size=12), min_size=1, max_size=5),
    st.lists(st.integers(1, 60), min_size=1, max_size=12),
)
def test_prompts_have_exactly_the_lengths_of_the_trace(tmp_path: Path, prompts: list[list[int]], lengths: list[int]) -> None:
    """Each ends as prompt i does, taken in turn, and what is in front of it are the prompts before."""
    items = [PromptItem(prompt_id=f"p{number}", ids=tuple(ids)) for number, ids in enumerate(prompts)]
    lines = "".join(json.dumps({"timestamp": 0, "input_length": length, "output_length": 1}) + "\n" for length in lengths)
    file = tmp_path / "t.jsonl"
    file.write_text(lines)
    found = of_lengths(items, read_trace(file))
    assert [len(one.ids) for one in found] == lengths
    endless = [token for _ in range(80) for ids in prompts for token in ids]
    for number, one in enumerate(found):
        whole = [token for ids in prompts[: number % len(prompts) + 1] for token in ids]
        assert one.ids == tuple((endless + whole)[-len(one.ids) :])
        assert one.grade is None and one.ungraded_reason == CUT
    assert len({one.prompt_id for one in found}) == len(found), "a prompt that is taken twice has two names"
