"""Servers of a part: an acceptance that is given to one makes its arm a replayed one, whatever the engine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from harness.errors import ScenarioError, in_words
from harness.scenario.loading import load_scenario
from harness.scenario.servers import Server, given_acceptance
from tests.helpers.plans import PART, plan_of
from tests.helpers.scenarios import write

FORCED = '{"method": "ngram", "rejection_sample_method": "synthetic", "synthetic_acceptance_rates": [0.5]}'


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


def test_a_given_acceptance_is_labelled_replayed() -> None:
    """NTP beside it is not, and both write all their tokens, whatever those are."""
    servers = {"plain": {"engine": "vllm"}, "fast": {"engine": "vllm", "arguments": ["--speculative-config", FORCED]}}
    arms = [{"method": "ntp", "server": "plain"}, {"method": "served", "server": "fast"}]
    ntp, fast = plan_of(model={"reference": "sbd"}, servers=servers, arms=arms).cases
    assert (ntp.replay, ntp.label, fast.label) == (None, "NTP", "server fast replayed")
    assert fast.replay.source == {"given": FORCED} and not fast.replay.assumed
    assert fast.part.replayed and fast.case_id.endswith("served-fast-t0")


def test_a_found_acceptance_stands_in_another_part() -> None:
    """One stops where its answer ends, the other does not."""
    forced = {"engine": "vllm", "arguments": ["--speculative-config", FORCED]}
    servers = {"plain": {"engine": "vllm"}, "fast": forced, "real": {"engine": "vllm"}}
    arms = [{"method": "ntp", "server": "plain"}, {"method": "served", "server": ["fast", "real"]}]
    with pytest.raises(ValidationError, match="give the replayed arms their own part"):
        plan_of(model={"reference": "sbd"}, servers=servers, arms=arms)


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"engine": "sglang", "arguments": ["--forward-hooks", "[]"]}, "can load code"),
        ({"engine": "sglang", "arguments": ["--custom-weight-loader", "a.b"]}, "can load code"),
        ({"engine": "sglang", "environment": {"SGLANG_EXTERNAL_MODEL_PACKAGE": "a"}}, "no switch"),
        ({"engine": "vllm", "arguments": ["--trust-remote"]}, "can load code"),
        ({"engine": "vllm", "arguments": ["--hf-over={}"]}, "can load code"),
        ({"engine": "sglang", "arguments": ["--model-path", "x"]}, "is set by sbd"),
        ({"engine": "vllm", "arguments": ["--api-key", "sk-hidden"]}, "api-key"),
        ({"engine": "vllm", "arguments": ["--api-k=sk-hidden"]}, "api-key"),
        ({"engine": "sglang", "arguments": ["--admin-api-key=sk-hidden"]}, "api-key"),
        ({"engine": "llama_cpp", "arguments": ["--hf-token", "hf_hidden"]}, "hf-token"),
        ({"engine": "sglang", "arguments": ["--ssl-keyfile-password=hidden"]}, "password"),
        ({"engine": "vllm", "environment": {"VLLM_API_KEY": "sk-hidden"}}, "VLLM_API_KEY is no switch"),
        ({"engine": "llama_cpp", "environment": {"LLAMA_ARG_HF_TOKEN": "hf_hidden"}}, "no switch"),
        ({"engine": "vllm", "environment": {"HF_TOKEN": "hf_hidden"}}, "no switch"),
    ],
)
def test_no_engine_is_told_to_load_code_or_given_a_key(keys: dict[str, Any], words: str) -> None:
    """An option's beginning is the option, for argparse. A key would stand in the record."""
    with pytest.raises(ValidationError, match=words) as refused:
        Server.model_validate(keys)
    assert "hidden" not in in_words(refused.value.errors()[0])


@pytest.mark.parametrize(
    "url",
    [
        "http://user:hidden@127.0.0.1:8000",
        "https://hidden@host",
        "http://host:8000?api_key=hidden",
        "http://host#hidden",
        "http://host:8000/v1/hidden",
        "http://user:hid den@host",
        "http://host:hidden",
        "hidden",
        "http://host:65536/hidden",
        "ftp://user:hidden@host",
        "http://host:8000\nhidden",
        "//user:hidden@host",
        "http://h\u00f6st:hidden",
    ],
)
def test_a_key_in_an_address_is_refused_and_not_repeated(url: str, tmp_path: Path) -> None:
    """By file and line, with what to do."""
    part = PART | {"servers": {"far": {"engine": "vllm", "url": url}}, "arms": [{"method": "ntp", "server": "far"}]}
    file = write(tmp_path, yaml.safe_dump({"version": 1, "name": "s", "parts": [part]}))
    with pytest.raises(ScenarioError, match=r"s\.yaml:\d+: parts\.0\.servers\.far\.url: .* SBD_SERVER_AUTH_NAME") as refused:
        load_scenario(file)
    assert "hid" not in str(refused.value)
    line = file.read_text().splitlines()[int(str(refused.value).split(":")[1]) - 1]
    assert line.strip().startswith("url:")


@pytest.mark.parametrize(
    "url",
    ["http://127.0.0.1:8000", "http://localhost", "https://gpu-3.example.org:443/", "http://[::1]:65535", "http://vllm_1:1"],
)
def test_an_address_is_a_host_and_a_port(url: str) -> None:
    """Of every kind that is in use."""
    assert Server.model_validate({"engine": "vllm", "url": url}).url == url
