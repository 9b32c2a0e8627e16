"""Servers of a part: an acceptance that is given to one makes its arm a replayed one, whatever the engine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from harness.errors import ScenarioError
from harness.scenario.loading import load_scenario
from harness.scenario.plan import Plan, make_plan
from harness.scenario.servers import Server, given_acceptance

FORCED = '{"method": "ngram", "rejection_sample_method": "synthetic", "synthetic_acceptance_rates": [0.5]}'


def planned(folder: Path, servers: dict[str, Any], arms: list[dict[str, Any]]) -> Plan:
    """A part with these servers."""
    part = {
        "name": "p", "model": {"reference": "sbd"}, "dtype": "float32", "servers": servers, "arms": arms,
        "workload": {"synthetic": {"prompt_tokens": 4}, "prompts": 2, "max_new_tokens": 8},
    }  # fmt: skip
    file = folder / "s.yaml"
    file.write_text(yaml.safe_dump({"version": 1, "name": "s", "parts": [part]}), encoding="utf-8")
    return make_plan(load_scenario(file))


@pytest.mark.parametrize(
    ("keys", "given"),
    [
        ({"engine": "vllm", "arguments": ["--speculative-config", FORCED]}, FORCED),
        ({"engine": "llama_cpp", "arguments": ["--spec-synth-rates", "0.5,0.2"]}, "--spec-synth-rates 0.5,0.2"),
        ({"engine": "sglang", "environment": {"SGLANG_SIMULATE_ACC_LEN": "2.5"}}, "SGLANG_SIMULATE_ACC_LEN=2.5"),
        ({"engine": "vllm", "arguments": ["--speculative-config", '{"method": "ngram"}']}, None),
        ({"engine": "lmdeploy"}, None),
    ],
)
def test_what_gives_an_acceptance_is_seen(keys: dict[str, Any], given: str | None) -> None:
    """In arguments and switches."""
    assert given_acceptance(Server.model_validate(keys)) == given


def test_a_given_acceptance_is_labelled_replayed(tmp_path: Path) -> None:
    """NTP beside it is not, and both write all their tokens, whatever those are."""
    servers = {"plain": {"engine": "vllm"}, "fast": {"engine": "vllm", "arguments": ["--speculative-config", FORCED]}}
    arms = [{"method": "ntp", "server": "plain"}, {"method": "served", "server": "fast"}]
    ntp, fast = planned(tmp_path, servers, arms).cases
    assert (ntp.replay, ntp.label, fast.label) == (None, "NTP", "server fast replayed")
    assert fast.replay is not None and fast.replay.source == {"given": FORCED} and not fast.replay.assumed
    assert fast.part.replayed and fast.case_id.endswith("served-fast-t0")


def test_a_found_acceptance_stands_in_another_part(tmp_path: Path) -> None:
    """One stops where its answer ends, the other does not."""
    forced = {"engine": "vllm", "arguments": ["--speculative-config", FORCED]}
    servers = {"plain": {"engine": "vllm"}, "fast": forced, "real": {"engine": "vllm"}}
    arms = [{"method": "ntp", "server": "plain"}, {"method": "served", "server": ["fast", "real"]}]
    with pytest.raises(ScenarioError, match="give the replayed arms their own part"):
        planned(tmp_path, servers, arms)


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"engine": "sglang", "arguments": ["--forward-hooks", "[]"]}, "can load code"),
        ({"engine": "sglang", "arguments": ["--custom-weight-loader", "a.b"]}, "can load code"),
        ({"engine": "sglang", "environment": {"SGLANG_EXTERNAL_MODEL_PACKAGE": "a"}}, "no switch"),
        ({"engine": "vllm", "arguments": ["--trust-remote"]}, "can load code"),
        ({"engine": "vllm", "arguments": ["--hf-over={}"]}, "can load code"),
        ({"engine": "sglang", "arguments": ["--model-path", "x"]}, "is set by sbd"),
    ],
)
def test_no_engine_is_told_to_load_code(keys: dict[str, Any], words: str) -> None:
    """An option's beginning is the option, for argparse."""
    with pytest.raises(ValueError, match=words):
        Server.model_validate(keys)
