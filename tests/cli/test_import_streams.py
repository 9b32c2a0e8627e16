"""`sbd import` of files whose streams tell no times, or that hold answers without a token: refused or void by name."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from tests.helpers import DATA
from tests.helpers.bench_files import vllm_result
from tests.helpers.command import Cli

MISTAKE, VOID = 2, 4
Lines = list[dict[str, Any]]
Change = Callable[[Lines], None]
Said = Callable[..., tuple[int, str]]
"""Of a command: its exit code and all that it says."""
PLAIN = {
    "vllm": "vllm-plain-1.json",
    "sglang": "sglang-plain.jsonl",
    "aiperf": "aiperf-plain.jsonl",
    "guidellm": "guidellm-plain.json",
}


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, cli: Cli, tmp_path: Path) -> Said:
    """Runs a command in a folder of its own: its exit code and all that it says, on long lines."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "2000")

    def one(*arguments: str) -> tuple[int, str]:
        return cli(*arguments), cli.out + cli.err

    return one


def changed(file: str, name: str, *changes: Change) -> str:
    """A copy of a real file with these changes, in the current folder."""
    lines = [json.loads(line) for line in (DATA / "imports" / file).read_text(encoding="utf-8").splitlines()]
    for change in changes:
        change(lines)
    Path(name).write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    return name


def requests_of(lines: Lines) -> Lines:
    """Those of a GuideLLM file that were answered."""
    return lines[0]["benchmarks"][0]["requests"]["successful"]


def timings(lines: Lines) -> Lines:
    """Of every request of a GuideLLM file."""
    return [one["info"]["timings"] for one in requests_of(lines)]


def summary(lines: Lines) -> None:
    """GuideLLM's own figures, anew from its requests: the smallest value that half do not exceed, and plain means."""
    found = lines[0]["benchmarks"][0]
    requests = requests_of(lines)
    of = {
        "time_to_first_token_ms": [(1000 * (t["first_token_iteration"] - t["request_start"]), 1) for t in timings(lines)],
        "request_latency": [(t["request_end"] - t["request_start"], 1) for t in timings(lines)],
        "inter_token_latency_ms": [
            (1000 * (t["last_token_iteration"] - t["first_token_iteration"]) / behind, behind)
            for one, t in zip(requests, timings(lines), strict=True)
            if (behind := one["output_tokens"] - 1)
        ],
    }
    for name, values in of.items():
        each = sorted(value for value, weight in values for _ in range(weight))
        found["metrics"][name]["successful"] |= {"median": each[(len(each) - 1) // 2], "mean": sum(each) / len(each)}


def thinking(lines: Lines) -> None:
    """400 tokens of reasoning before the first one of content, 20 ms each; only content counts as a piece."""
    for one, times in zip(requests_of(lines), timings(lines), strict=True):
        one["output_tokens"] += 400
        for name in ("first_token_iteration", "last_token_iteration", "last_request_iteration", "request_end"):
            times[name] += 8.0
    lines[0]["benchmarks"][0]["duration"] += 64.0
    summary(lines)


def test_the_first_token_of_content_is_not_that_of_the_answer(cli: Cli, run: Said) -> None:
    """GuideLLM: neither the file of NTP nor that of an arm shows a time per token, and the request's is there."""
    plain, fast = (changed(f"guidellm-{kind}.json", f"{kind}.json", thinking) for kind in ("plain", "ngram"))
    for file in (plain, fast):
        (shown,) = cli.answer(f"import {file}")["files"]
        assert not any("token_s" in name for name in shown["figures"])
        assert shown["figures"]["median_request_s"] > 8
        assert "its stream has fewer pieces than tokens: 8" in run(f"import {file}")[1]
    assert cli(f"import --ntp {plain} --arm fast={fast} --out R") == 0
    code, told = run("verify R --claim", "wall_speedup >= 0.1 in this process")
    assert code == VOID and "fewer pieces than tokens" in told and "time every token, those of reasoning too" in told
    assert cli("verify R --claim", "request_speedup >= 0.5 in this process") != VOID


def test_several_tokens_a_piece_are_what_speculation_does(cli: Cli, run: Said) -> None:
    """An arm of GuideLLM with three tokens in each piece, the first of which came at once."""

    def three(lines: Lines) -> None:
        for one in requests_of(lines):
            one["output_tokens"] *= 3
        summary(lines)

    told = cli.answer("import", changed("guidellm-plain.json", "spec.json", three))
    assert told["void"] == [] and told["files"][0]["figures"]["median_time_per_token_s"] > 0
    told = cli.answer("import --ntp spec.json")
    assert "fewer pieces than tokens" in told["void"][0], "NTP makes one a pass"


def no_answer(lines: Lines) -> None:
    """The second request was answered without a token."""
    if "benchmarks" in lines[0]:
        requests_of(lines)[1]["output_tokens"] = 0
        timings(lines)[1] |= {"first_token_iteration": None, "last_token_iteration": None}
    elif "metrics" in lines[0]:
        lines[1]["metrics"]["output_sequence_length"]["value"] = 0
    else:
        for name, none in (("ttfts", 0.0), ("itls", []), ("output_lens", 1), ("latencies", 0.0)):
            lines[0].get(name, {1: None})[1] = none


def no_stream(lines: Lines) -> None:
    """The tool has no time of a first token."""
    if "benchmarks" in lines[0]:
        for times in timings(lines):
            times |= {"first_token_iteration": None, "last_token_iteration": None}
    elif "metrics" in lines[0]:
        for one in lines:
            one["metrics"]["time_to_first_token"] = None
    else:
        lines[0]["ttfts"] = [None] * len(lines[0]["ttfts"])


@pytest.mark.parametrize("change", [no_answer, no_stream])
@pytest.mark.parametrize("tool", PLAIN)
def test_answers_without_a_first_token_are_refused(tool: str, change: Change, run: Said) -> None:
    """By every reader, with what to do; a median over zeros is never shown."""
    code, told = run("import", changed(PLAIN[tool], "bad.json", change))
    assert code == MISTAKE and "stream" in told and "bad.json" in told and "median" not in told


def at_once(lines: Lines) -> None:
    """Every answer came as one piece: the time of its first token is that of the request."""
    if "benchmarks" in lines[0]:
        for times in timings(lines):
            times["first_token_iteration"] = times["last_token_iteration"]
        summary(lines)
    elif "metrics" in lines[0]:
        for one in lines:
            one["metrics"]["time_to_first_token"] = one["metrics"]["request_latency"]
            one["metrics"] = {name: one["metrics"][name] for name in one["metrics"] if not name.startswith("inter_")}
    else:
        (one,) = lines
        whole = one.get("latencies") or [first + sum(gaps) for first, gaps in zip(one["ttfts"], one["itls"], strict=True)]
        one |= {"ttfts": whole, "itls": [[] for _ in whole]}
        for name in [name for name in one if name.endswith(("ttft_ms", "itl_ms", "tpot_ms"))]:
            one.pop(name)


@pytest.mark.parametrize("tool", PLAIN)
def test_whole_answers_in_one_piece_tell_the_request_alone(tool: str, cli: Cli, run: Said) -> None:
    """As an arm of every tool: no time per token is shown or judged, and whole requests are."""
    fast = changed(PLAIN[tool], "fast.json", at_once)
    told = cli.answer(f"import {fast}")
    assert not any("token_s" in name for name in told["files"][0]["figures"])
    assert "pieces of its answers came together" in told["void"][0] and len(told["void"]) == 1
    plain = changed(PLAIN[tool], "plain.json")
    assert cli(f"import --ntp {plain} --arm fast={fast} --out R") == 0
    code, told = run("verify R --claim", "wall_speedup >= 1 in this process")
    assert code == VOID and "connect to the server itself" in told
    assert cli("verify R --claim", "request_speedup >= 0.9 in this process") != VOID


def test_pieces_of_one_pass_are_no_proxys(cli: Cli, run: Said) -> None:
    """A server may send the tokens of a pass one by one. Pairs of pieces that come together void NTP, and no arm."""
    result = vllm_result()
    for gaps in result["itls"]:
        gaps[1::2] = [0.0] * len(gaps[1::2])
    result["latencies"] = [first + sum(gaps) for first, gaps in zip(result["ttfts"], result["itls"], strict=True)]
    result |= {f"{statistic}_{name}_ms": None for statistic in ("median", "mean", "p99") for name in ("tpot", "itl", "e2el")}
    Path("pairs.json").write_text(json.dumps(result), encoding="utf-8")
    assert cli.answer("import pairs.json")["void"] == []
    assert "came together: 10" in cli.answer("import --ntp pairs.json")["void"][0]


def test_an_older_version_is_named_as_such(run: Said) -> None:
    """GuideLLM 0.3 kept its times beside the request, not in `info`."""

    def older(lines: Lines) -> None:
        for one in requests_of(lines):
            one |= {"first_token_time": 1.0, "last_token_time": 2.0}
            one.pop("info")

    code, told = run("import", changed("guidellm-plain.json", "old.json", older))
    assert code == MISTAKE and "an older version of a tool lacks it" in told and "add it" not in told


@pytest.mark.parametrize("tool", PLAIN)
def test_a_warm_cache_is_named(tool: str, cli: Cli, run: Said) -> None:
    """The first token of one file comes 30 times sooner; of like files the limit is said all the same."""

    def warm(lines: Lines) -> None:
        if "benchmarks" in lines[0]:
            for times in timings(lines):
                times["request_start"] += 29 / 30 * (times["first_token_iteration"] - times["request_start"])
            summary(lines)
            return
        if "metrics" in lines[0]:
            for one in lines:
                first, whole = (one["metrics"][name] for name in ("time_to_first_token", "request_latency"))
                whole["value"] -= 29 / 30 * first["value"]
                first["value"] /= 30
            return
        (one,) = lines
        sooner = [29 / 30 * first for first in one["ttfts"]]
        for name in ("ttfts", "latencies"):
            one[name] = [time - less for time, less in zip(one.get(name, sooner), sooner, strict=True)]
        for name in [name for name in one if name.endswith(("ttft_ms", "e2el_ms", "e2e_latency_ms"))]:
            one[name] = median(one["ttfts"]) * 1000 if name == "median_ttft_ms" else None if tool == "vllm" else one[name]
        if tool == "sglang":
            del one["latencies"], one["mean_ttft_ms"], one["p99_ttft_ms"]

    changed(PLAIN[tool], "cold.json")
    changed(PLAIN[tool], "warm.json", warm)
    assert cli("import --ntp cold.json --arm fast=warm.json --out R") == 0
    (judged,) = json.loads(run("verify R --json --claim", "request_speedup >= 1 in this process")[1])["judgements"]
    assert "prefix cache has the prompts of some" in judged["reason"] and "ms by file" in judged["reason"]
    assert "whether a prefix cache had prompts, no file tells" in run("import cold.json")[1]


def test_what_contradicts_itself_is_said_at_once(run: Said) -> None:
    """`sbd import FILE` holds every figure that it shows against the file's own."""

    def other(lines: Lines) -> None:
        lines[0]["benchmarks"][0]["metrics"]["inter_token_latency_ms"]["successful"]["median"] *= 2

    told = run("import", changed("guidellm-plain.json", "other.json", other))[1]
    assert "void: its requests do not give the median_time_per_token_s that the tool printed (other.json" in told

    def other_tokens(lines: Lines) -> None:
        for one in lines:
            one["metrics"]["output_sequence_length"]["value"] *= 2

    told = run("import", changed("aiperf-plain.jsonl", "twice.jsonl", other_tokens))[1]
    assert "void: its requests do not give the median_time_per_token_s" in told

    def sooner(lines: Lines) -> None:
        lines[0]["median_e2e_latency_ms"] *= 0.8

    told = run("import", changed("sglang-plain.jsonl", "sooner.jsonl", sooner))[1]
    assert "void: its requests do not give the median_request_to_the_end_s" in told
    assert "void" not in run("import", changed("sglang-plain.jsonl", "good.jsonl"))[1]
