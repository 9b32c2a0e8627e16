"""`sbd roofline --model --hardware`: what people type is understood, what cannot be is said, with what to do."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from harness.models import KNOWN_MODELS
from tests.helpers.command import Cli

WHAT_IF = "roofline --model llama-3.1-8b --hardware h100-sxm"


def test_what_people_type_is_understood(cli: Cli) -> None:
    """A repository's name, short dtypes, capitals; the same as written out."""
    typed, plain = (
        cli.answer(f"roofline --tensor-parallel 2 --model {words}")
        for words in (
            "meta-llama/Llama-3.1-70B --hardware H100-SXM --dtype FP8 --kv-dtype BF16 --weights INT4-G128 --link NVLINK4",
            "llama-3.1-70b --hardware h100-sxm --dtype float8 --kv-dtype bfloat16 --weights int4-g128 --link nvlink4",
        )
    )
    assert {**typed, "hardware": "h100-sxm"} == plain
    assert (plain["model"], plain["weights"], plain["split"], plain["devices"]) == ("llama-3.1-70b", "int4-g128", "TP 2", 2)


def test_what_does_not_fit_has_no_speed(cli: Cli) -> None:
    """64 rows of a million tokens need 8.4 TB: exit 3, the reason, which also counts positions, and no figure of time."""
    words = f"{WHAT_IF} --batch 64 --context 1000000"
    assert cli(f"{words} --json") == 3
    found = json.loads(cli.out)
    assert "131,072 positions" in found["does_not_fit"] and "batch 64 needs" in found["does_not_fit"]
    assert "0 such rows fit" in found["does_not_fit"]
    fitting = cli.answer(f"{WHAT_IF} --batch 8")
    prices = {name for name in fitting if name.endswith(("_pass", "_per_s")) or "speedup" in name or name == "prefill"}
    assert len(prices) == 11 and {found[name] for name in prices - {"nfe_speedup"}} == {None}
    assert cli(words) == 3
    out = cli.out
    assert f"does not fit            {found['does_not_fit'][:30]}" in out and not re.search("tokens/s| ms|wall", out)
    assert fitting["does_not_fit"] is None
    beyond = cli.answer(f"{WHAT_IF} --weights fp8 --kv-dtype fp8 --context 140000")
    assert "131,072 positions" in beyond["does_not_fit"] and beyond["wall_speedup"] > 1, "memory holds it"


@pytest.mark.parametrize("hardware", ["h100-sxm", "h200-sxm", "l40s", "rtx-4090", "mi300x", "b200-sxm"])
@pytest.mark.parametrize("weights", ["fp8", "float8-block128", "int8"])
def test_eight_bits_never_cost_time_where_a_device_multiplies_them(cli: Cli, hardware: str, weights: str) -> None:
    """First token, NTP and SBD of a batch of 16: all faster than in 16 bits, and the answer says in what it multiplies."""
    words = f"roofline --model llama-3.1-8b --hardware {hardware} --context 256 --batch 16"
    plain, eight = cli.answer(words), cli.answer(f"{words} --weights {weights}")
    assert eight["prefill"]["expected_s"] < plain["prefill"]["expected_s"]
    for name in ("ntp", "sbd"):
        assert eight[f"{name}_tokens_per_s"] > plain[f"{name}_tokens_per_s"]
    native = {"fp8": "float8", "float8-block128": "float8", "int8": "int8"}[weights]
    assert f"multiplied in {native}" in eight["arithmetic"] and plain["arithmetic"] == "all matrix products in bfloat16"
    assert eight["arithmetic"] in cli.output(f"{words} --weights {weights}")


@pytest.mark.parametrize(
    ("hardware", "weights"),
    [("a100-80-sxm", "fp8"), ("rtx-3090", "fp8"), ("h100-sxm", "w8a16"), ("h100-sxm", "int4-g64"), ("b300-sxm", "int8")],
)
def test_other_weights_are_unpacked_and_said_so(cli: Cli, hardware: str, weights: str) -> None:
    """Without a peak of their own, or with a slower one; the KV cache in 8 bits changes no arithmetic and costs no time."""
    words = f"roofline --model llama-3.2-3b --hardware {hardware} --context 2000 --weights {weights}"
    found, small = cli.answer(words), cli.answer(f"{words} --kv-dtype fp8")
    assert "unpacked first" in found["arithmetic"] and "0.45 of the bfloat16 peak" in found["arithmetic"]
    assert small["arithmetic"] == found["arithmetic"] and small["ntp_tokens_per_s"] > found["ntp_tokens_per_s"]


def test_a_quantised_checkpoint_is_not_planned_for_as_if_it_were_not(cli: Cli, tmp_path: Path) -> None:
    """A config.json with quantization_config asks for a format; with one it is the plain shape in that format."""
    config = {**KNOWN_MODELS["qwen3-8b"].config, "quantization_config": {"quant_method": "awq", "bits": 4, "group_size": 128}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    words = f"--model {tmp_path} --hardware h100-sxm"
    told = cli.refusal(f"roofline {words}")
    assert "config.json" in told and "'awq'" in told and "--weights float8" in told
    found = cli.answer(f"roofline {words} --weights int4-g128")
    known = cli.answer("roofline --model qwen3-8b --hardware h100-sxm --weights int4-g128")
    assert found == {**known, "model": tmp_path.name}
    assert "--weights float8" in cli.refusal(f"capacity {words} --nfe-speedup 3")


@pytest.mark.parametrize("batching", ["ragged", "lockstep"])
def test_large_blocks_have_a_price(cli: Cli, batching: str) -> None:
    """A binomial coefficient of 1050 is too large for a float; the answer is finite all the same."""
    found = cli.answer(f"{WHAT_IF} -k 1050 --batch 8 --batching {batching}")
    assert 0 < found["wall_speedup"] < 3 and found["passes_per_block"] >= 350


def test_no_plan_is_not_success(cli: Cli) -> None:
    """405B parameters on one L4: exit 3, with the reason; an unknown link is asked for."""
    plan = "capacity --model meta-llama/Llama-3.1-405B --nfe-speedup 3 --batch 1"
    assert cli(f"{plan} --hardware l4 --tensor-parallel 1") == 3
    assert "no plan with SBD on any of 1 devices" in " ".join(cli.out.split())
    assert cli(f"{plan} --hardware gb10 --tensor-parallel 8") == 3
    assert "name it: --link" in " ".join(cli.out.split())
    # 405B in 4 bits are 220 GB: four of 128 GB hold them once their network is named.
    named = "--hardware gb10 --tensor-parallel 4 --weights nvfp4 --context 1000 --link 25GB/s"
    assert cli(f"{plan} {named}") == 0
