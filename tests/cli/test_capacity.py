"""`sbd capacity`: one answer in three forms, nothing without its label, and mistakes that say what is allowed."""

from __future__ import annotations

import json
import statistics
from pathlib import Path

import pytest

from harness.formatting import rate
from harness.hardware.profile import known_profiles
from harness.paths import data_dir
from harness.roofline.recorded_acceptance import passes_per_block
from tests.helpers import ROOT
from tests.helpers.command import Cli
from tests.helpers.typed_figures import typed_figures

QUICKSTART = ROOT / "reports" / "quickstart"
LLAMA = "capacity --model llama-3.1-8b --nfe-speedup 3"


def planned() -> dict[str, dict[str, str]]:
    """The devices that a model of 8B parameters in bfloat16 can be planned on: those with a peak for it."""
    return {name: row for name, row in typed_figures().items() if row["bf16_tflops"]}


def test_the_table_lists_every_device(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer first; every profile has a line or a reason; figures are labelled, prices sourced, assumptions said."""
    monkeypatch.setenv("COLUMNS", "400")
    out = cli.output(f"{LLAMA} --batch 8")
    counted = f"possible with SBD on {len(planned())} of {len(typed_figures())} devices"
    assert out.startswith(f"llama-3.1-8b at context 4,096, batch 8 per replica, ragged batch, phases mixed: {counted}")
    rows = [line.split() for line in out.splitlines() if line.endswith("anchored")]
    listed = {row[0] for row in rows}
    unplanned = set(out.partition("no plan\n")[2].partition("\n\n")[0].replace(",", " ").replace(":", " ").split())
    assert listed == set(planned()) and listed | unplanned >= set(known_profiles())
    assert "h100-sxm: 3.99 (RunPod secure cloud; datareceipts/109-gpu-pricing, 2026-11-09; grade S)" in out
    assert "predicted, anchored rung, nothing was run" in out and "no row waits for another one" in out
    assert "power: the board's, an upper bound" in out and "NFE speedup 3, given by hand" in out


def test_the_three_forms_agree(cli: Cli) -> None:
    """JSON's figures stand in the CSV unrounded, device by device and arm by arm, and rounded in the table."""
    arguments = f"{LLAMA} --batch 8 --hardware h100-sxm --hardware m4 --hardware l4"
    found = cli.answer(arguments)
    assert found["version"] == 1 and found["acceptance"]["passes_per_block"] == pytest.approx(16 / 3)
    lines = cli.rows(arguments)
    table = cli.output(arguments)
    assert [(line["hardware"], line["arm"]) for line in lines] == [
        (device["hardware"], arm) for device in found["devices"] for arm in ("ntp", "sbd")
    ]
    by_name = {device["hardware"]: device for device in found["devices"]}
    for line in lines:
        device = by_name[line["hardware"]]
        arm = device[line["arm"]]
        if arm is None:
            assert line["batch"] == line["predicted"] == "" and line["reason"] == device["reason"]
            continue
        assert line["predicted"] == "anchored"
        assert float(line["tokens_per_s_per_user_low"]) == arm["tokens_per_s_per_user"]["low"]
        assert rate(arm["tokens_per_s_per_gpu"]["expected"]) in table
    usd = {line["arm"]: line["usd_per_million_tokens"] for line in lines if line["hardware"] == "l4"}
    assert usd == {"ntp": "", "sbd": ""} and by_name["l4"]["sbd"]["usd_reason"] == "price not known: no price in our sources"


def test_break_even_for_every_context(cli: Cli) -> None:
    """The four contexts and one's own, in all three forms; a context that does not fit has its reason."""
    where = "--hardware h200-sxm --hardware l4 --context 2000 --rung datasheet --tensor-parallel 1"
    arguments = f"{LLAMA} {where} --break-even"
    found = cli.answer(arguments)
    entries = {device["hardware"]: device["break_even"] for device in found["devices"]}
    contexts = [1024, 2000, 8192, 32_768, 131_072]
    assert [entry["context_tokens"] for entry in entries["h200-sxm"]] == contexts
    assert entries["l4"][-1]["largest_batch"] is None and "usable" in entries["l4"][-1]["reason"]
    lines = cli.rows(arguments)
    assert [int(line["context_tokens"]) for line in lines if line["hardware"] == "l4"] == contexts
    first = entries["h200-sxm"][0]
    (line,) = (line for line in lines if line["hardware"] == "h200-sxm" and line["context_tokens"] == "1024")
    assert line["pays"] == f"1-{first['last_batch']}" and int(line["tokens_per_pass"]) == 16 * first["last_batch"]
    table = cli.output(arguments)
    serial, overlapped = first["pays_serial"][0][1], first["pays_overlapped"][0][1]
    assert f"1..{first['last_batch']} of {first['largest_batch']}" in table and "does not fit" in table
    assert f"{16 * serial:,}..{16 * overlapped:,}" in table and serial <= first["last_batch"] <= overlapped


def test_sorting_puts_what_is_not_known_last(cli: Cli) -> None:
    """By cost the unpriced come after the priced, by speed the fastest first, and those without a plan always last."""
    found = {}
    for sort in ("cost", "speed", "name"):
        devices = cli.answer(f"{LLAMA} --batch 8 --sort {sort}")["devices"]
        assert [device["sbd"] is None for device in devices] == [False] * len(planned()) + [True] * (
            len(devices) - len(planned())
        )
        found[sort] = devices[: len(planned())]
    costs = [device["sbd"]["usd_per_million_tokens"] for device in found["cost"]]
    known = [cost["expected"] for cost in costs if cost]
    assert len(known) == len([row for row in planned().values() if row["price_usd"]]) > 0 and known == sorted(known)
    assert costs[len(known) :] == [None] * (len(costs) - len(known))
    speeds = [device["sbd"]["tokens_per_s_per_user"]["expected"] for device in found["speed"]]
    assert speeds == sorted(speeds, reverse=True)
    names = [device["hardware"] for device in found["name"]]
    assert names == sorted(names)


def test_latency_is_speed_by_another_name(cli: Cli) -> None:
    """20 ms per token are 50 tokens per second; GPUs are counted for the requests asked for."""
    request = "--prompt-tokens 1000 --output-tokens 200 --requests-per-s 500"
    shared = f"capacity --model llama-3.1-8b --table1 llama-3.1-8b/MATH500/low --hardware h100-sxm {request}"
    plan = cli.answer(f"{shared} --latency-ms 20")
    assert plan == cli.answer(f"{shared} --tokens-per-s 50")
    for arm in (plan["devices"][0]["ntp"], plan["devices"][0]["sbd"]):
        enough = 500 * 200 / arm["tokens_per_s_per_gpu"]["expected"]
        assert enough <= arm["gpus"] < enough + arm["tensor_parallel"] and arm["gpus"] <= arm["gpus_serial"]
    assert plan["workload"]["context_tokens"] == 1100 and plan["workload"]["longest_tokens"] == 1200


def test_acceptance_of_a_recorded_run(cli: Cli) -> None:
    """The mean over the blocks that the published quickstart run recorded, and its name beside it."""
    acceptance = cli.answer(f"capacity --model qwen3-8b --from-run {QUICKSTART}")["acceptance"]
    passes = passes_per_block(QUICKSTART, 16)
    assert acceptance["passes_per_block"] == pytest.approx(statistics.fmean(passes))
    assert acceptance["source"] == f"{len(passes)} blocks recorded in {QUICKSTART}"


def test_a_profile_and_a_model_of_ones_own(cli: Cli, tmp_path: Path) -> None:
    """Files stand for names on both sides."""
    own = tmp_path / "own.yaml"
    own.write_text((data_dir("hardware_profiles") / "l4.yaml").read_text(encoding="utf-8").replace("name: l4", "name: mine"))
    config = {
        "model_type": "llama",
        "num_hidden_layers": 2,
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_attention_heads": 4,
        "vocab_size": 100,
        "max_position_embeddings": 512,
    }
    (tmp_path / "tiny").mkdir()
    (tmp_path / "tiny" / "config.json").write_text(json.dumps(config))
    plan = cli.answer(f"capacity --model {tmp_path}/tiny --hardware {own} --nfe-speedup 2 --batch 1")
    assert plan["model"] == "tiny" and [device["hardware"] for device in plan["devices"]] == ["mine"]
    assert any("4,096 tokens are more than the 512 positions of tiny" in note for note in plan["notes"])


def test_lockstep_is_taken_as_given(cli: Cli) -> None:
    """Passes by batch slow SBD down, leave NTP alone, and change what is said about batches."""
    arguments = f"{LLAMA} --hardware h100-sxm --batch 8"
    lockstep = cli.answer(f"{arguments} --passes-at 8=8 --passes-at 64=10")
    slow, fast = lockstep["devices"][0], cli.answer(arguments)["devices"][0]
    assert slow["ntp"] == fast["ntp"] and slow["sbd"]["passes_per_block"] == pytest.approx(8)
    assert slow["wall_speedup"]["expected"] < fast["wall_speedup"]["expected"]
    assert any(note.startswith("lockstep:") for note in lockstep["notes"])
    assert not any("ragged" in note for note in lockstep["notes"])


def test_verified_sbd_is_planned_by_how_far_its_checks_get(cli: Cli) -> None:
    """9 tokens a check at 3 tokens a pass are 3 passes a check; the notes say so; a goal of a service is planned as well."""
    verified = f"{LLAMA} --hardware h100-sxm --tokens-per-check 9"
    found = cli.answer(f"{verified} --batch 8")
    assert found["devices"][0]["sbd"]["passes_per_block"] == pytest.approx(3)
    assert any("makes 9.00 of its 16 tokens final" in note for note in found["notes"])
    goal = "--users 20 --ttft 2 --prompt-tokens 1000 --output-tokens 200"
    ways = [
        {
            one["batch"]: one["tokens_per_s_per_user"]
            for one in cli.answer(f"{asked} {goal}")["pareto"]
            if one["method"] == "sbd" and one["tensor_parallel"] == 1
        }
        for asked in (verified, f"{LLAMA} --hardware h100-sxm")
    ]
    both = ways[0].keys() & ways[1].keys()
    assert both and all(ways[0][batch] < ways[1][batch] for batch in both), "same tokens per pass, dearer checks"


def test_help_names_every_option_of_the_question(cli: Cli) -> None:
    """With examples that can be run, and a line in the list of commands."""
    out = cli.output("capacity --help")
    for option in ("--table1", "--from-run", "--latency-ms", "--requests-per-s", "--break-even", "--tensor-parallel", "--csv"):
        assert option in out
    example = next(line for line in out.splitlines() if "--table1 llama" in line)
    assert cli.output(example.partition("sbd ")[2]) and "\n  capacity " in cli.output("--help")


def test_each_device_says_how_it_multiplies(cli: Cli) -> None:
    """FP8 weights: in FP8 on an H100, unpacked on an A100, which has no such peak; in JSON, CSV, both tables, and by device."""
    devices = "--hardware h100-sxm --hardware a100-80-sxm --sort name"
    asked = f"capacity --model qwen3-8b --nfe-speedup 3 --batch 16 --weights fp8 {devices}"
    devices = {one["hardware"]: one["arithmetic"] for one in cli.answer(asked)["devices"]}
    assert "multiplied in float8" in devices["h100-sxm"] and "unpacked first" in devices["a100-80-sxm"]
    for line in (asked, f"{asked} --break-even"):
        assert {(row["hardware"], row["arithmetic"]) for row in cli.rows(line)} == set(devices.items())
        text = " ".join(cli.output(line).split())
        assert all(said in text for said in devices.values())
