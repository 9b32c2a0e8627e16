"""`sbd capacity` for a service: one answer in three forms and at 80 columns, and mistakes that say what is allowed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from harness.formatting import rate
from tests.helpers.command import Cli

SERVICE = "capacity --model llama-3.1-8b --tokens-per-s 30 --ttft 1 --hardware h100-sxm"
LENGTHS = "--prompt-tokens 2000 --output-tokens 300"
USERS = f"{SERVICE} {LENGTHS} --users 500"


def test_the_three_forms_agree(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """JSON's figures stand in the CSV unrounded and in the table rounded; the assumed acceptance is said."""
    monkeypatch.setenv("COLUMNS", "80")
    arguments = f"{USERS} --hardware l40s --chunk 1024"
    found = cli.answer(arguments)
    assert found["version"] == 1 and "the lower end of the claim" in found["acceptance"]["source"]
    assert any("the lower end of the claim" in note for note in found["notes"])
    lines = cli.rows(arguments)
    table = cli.output(arguments)
    assert max(map(len, table.splitlines())) <= 80
    deployments = [line for line in lines if line["line"] == "deployment"]
    assert len(deployments) == len(found["ntp"]) + len(found["sbd"]) == 4 and {line["version"] for line in lines} == {"1"}
    for line, one in zip(deployments, (*found["ntp"], *found["sbd"]), strict=True):
        assert (line["hardware"], int(line["gpus"]), line["method"]) == (one["hardware"], one["gpus"], one["method"])
        assert float(line["usd_per_million_tokens"]) == one["usd_per_million_tokens"]
        assert rate(one["usd_per_million_tokens"]) in table and one["chunk_tokens"] == 1024
    assert len(lines) - 4 == len(found["pareto"]) > 0 and "Pareto front of steady batches" in table
    assert table.index("NTP, predicted") < table.index("SBD, predicted")


def test_weights_in_eight_bits_need_no_more_gpus(cli: Cli) -> None:
    """200 users of an 8B on H100s: no more than in bfloat16, at a lower price; the arithmetic stands in all three forms."""
    arguments = f"{SERVICE} {LENGTHS} --users 200 --chunk 2048"
    small = f"{arguments} --weights fp8"
    plain, eight = cli.answer(arguments), cli.answer(small)
    for method in ("ntp", "sbd"):
        (before,), (after,) = plain[method], eight[method]
        assert after["gpus"] <= before["gpus"] and after["usd_per_million_tokens"] < before["usd_per_million_tokens"]
        assert after["arithmetic"] == "float8 weights multiplied in float8; attention and LM head in bfloat16"
    assert {row["arithmetic"] for row in cli.rows(small)} == {eight["ntp"][0]["arithmetic"], ""}, (
        "a point of the front has none"
    )
    text = " ".join(cli.output(small).split())
    assert eight["ntp"][0]["arithmetic"] in text and eight["ntp"][0]["arithmetic"] in eight["notes"]


def test_a_rate_and_a_trace(cli: Cli, tmp_path: Path) -> None:
    """Poisson arrivals, and the lengths of a file in Mooncake's form."""
    found = cli.answer(f"{SERVICE} {LENGTHS} --requests-per-s 5")
    assert found["goal"]["requests_per_s"] == 5 and found["ntp"][0]["gpus"] >= 1
    trace = tmp_path / "trace.jsonl"
    lines = [{"timestamp": 200 * i, "input_length": 500 + 37 * (i % 40), "output_length": 1 + i % 200} for i in range(300)]
    trace.write_text("\n".join(map(json.dumps, lines)))
    traced = cli.answer(f"{SERVICE} --trace {trace}")
    assert traced["goal"]["trace"] == {"requests": 300, "requests_per_s": pytest.approx(5.0)}
    assert traced["sbd"][0]["simulated"] is True


def test_a_goal_that_nobody_keeps(cli: Cli) -> None:
    """Exit code 3, with what comes closest and by how much it fails."""
    out = " ".join(cli.output(USERS.replace(" 30 ", " 1e7 "), code=3).split())
    assert "no deployment keeps this; SBD on h100-sxm comes closest" in out and "a lone request has at most" in out
