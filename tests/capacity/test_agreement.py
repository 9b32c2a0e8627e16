"""`sbd roofline` and `sbd capacity` give one answer, to the last digit, where they ask the same."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from harness.hardware.profile import known_profiles, load_profile
from harness.models import KNOWN_SHAPES
from tests.helpers.command import Cli


def drawn(seed: int) -> dict[str, Any]:
    """A question: any model, device, format, split, batch, acceptance and context, of either batching; "" sets a flag."""
    chosen = random.Random(seed)
    shape = KNOWN_SHAPES[chosen.choice(sorted(KNOWN_SHAPES))]
    size = chosen.choice([1, 2, 4, 8, 16, 32, 64])
    degrees = [n for n in (1, 2, 4, 8) if shape.heads % n == 0]
    return {
        "model": shape.name,
        "hardware": chosen.choice(sorted(known_profiles())),
        "dtype": chosen.choice(["bfloat16", "fp8", "BF16"]),
        "weights": chosen.choice([None, None, "int4-g128", "fp8"]),
        "kv-dtype": chosen.choice([None, "fp8"]),
        "tensor-parallel": chosen.choice(degrees),
        "pipeline-parallel": chosen.choice([1, 1, 2]),
        "dp-attention": chosen.choice([None, None, ""]),
        "expert-parallel": chosen.choice([None, ""]) if shape.moe else None,
        "link": chosen.choice([None, None, "pcie4", "25"]),
        "rung": chosen.choice([None, "datasheet", "anchored"]),
        "batching": chosen.choice(["ragged", "lockstep"]),
        "block-size": size,
        "nfe-speedup": chosen.uniform(1, size),
        "batch": chosen.choice([1, 2, 3, 7, 8, 32, 100, 256]),
        "context": chosen.choice([0, 1, 100, 4096, 10_000, 33_333, 131_072]),
    }


@pytest.mark.parametrize("questions", [100, pytest.param(200, marks=pytest.mark.full)])
def test_the_two_commands_have_one_answer(cli: Cli, questions: int) -> None:
    """The same questions, typed behind `sbd roofline` and `sbd capacity`: each number of their JSON that both print."""
    answered = 0
    for seed in range(questions):
        asked = drawn(seed)
        typed = " ".join(f"--{name} {value}" for name, value in asked.items() if value is not None)
        code = cli(f"roofline --json {typed}")
        what_if = json.loads(cli.out) if code in (0, 3) else None
        planned = cli(f"capacity --json {typed}")
        device = json.loads(cli.out)["devices"][0] if planned in (0, 3) else None
        if what_if is None:
            assert code == 2 and planned != 0, typed
            continue
        assert device is not None, typed
        if planned == 3:  # both answer only what fits; roofline also a device whose memory is not known
            unknown = load_profile(asked["hardware"]).memory_bytes.value is None
            assert unknown or (code == 3 and "needs" in str(what_if["does_not_fit"]) and what_if["wall_speedup"] is None), typed
            continue
        assert code == 0, typed
        answered += 1
        speedup = device["wall_speedup"]
        ends = (what_if["wall_speedup_overlapped"], what_if["wall_speedup_serial"], what_if["wall_speedup"])
        assert (speedup["expected"], speedup["low"], speedup["high"]) == (what_if["wall_speedup"], min(ends), max(ends)), typed
        for arm in ("ntp", "sbd"):
            per_gpu = what_if[f"{arm}_tokens_per_s"] * (1 / what_if["devices"])
            assert device[arm]["tokens_per_s_per_gpu"]["expected"] == per_gpu, typed
            assert device[arm]["devices"] == what_if["devices"] and device[arm]["batch"] == asked["batch"], typed
        assert device["sbd"]["passes_per_block"] == what_if["passes_per_block"], typed
        assert device["rung"] == what_if["rung"], typed
    assert answered >= questions / 4
