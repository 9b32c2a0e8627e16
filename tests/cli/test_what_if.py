"""`sbd roofline --model --hardware`: what people type is understood, what cannot be is said, with what to do."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.helpers.command import sbd

WHAT_IF = ("roofline", "--model", "llama-3.1-8b", "--hardware", "h100-sxm")


def answered(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    """The JSON of a command that must succeed."""
    assert sbd(monkeypatch, *words, "--json") == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def refused(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """What a command that must fail says on stderr, without a traceback and with stdout empty."""
    assert sbd(monkeypatch, *words) == 2
    out, err = capsys.readouterr()
    assert out == "" and "Traceback" not in err
    return err


def test_what_people_type_is_understood(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """A repository's name, short dtypes, capitals; the same as written out."""
    typed = answered(
        monkeypatch, capsys, "roofline", "--model", "meta-llama/Llama-3.1-70B", "--hardware", "H100-SXM", "--dtype", "FP8",
        "--kv-dtype", "BF16", "--weights", "INT4-G128", "--tensor-parallel", "2", "--link", "NVLINK4",
    )  # fmt: skip
    plain = answered(
        monkeypatch, capsys, "roofline", "--model", "llama-3.1-70b", "--hardware", "h100-sxm", "--dtype", "float8",
        "--kv-dtype", "bfloat16", "--weights", "int4-g128", "--tensor-parallel", "2", "--link", "nvlink4",
    )  # fmt: skip
    assert {**typed, "hardware": "h100-sxm"} == plain
    assert (plain["model"], plain["weights"], plain["split"], plain["devices"]) == ("llama-3.1-70b", "int4-g128", "TP 2", 2)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--model", "lama-3.1-8b"), "did you mean llama-3.1-8b"),
        (("--hardware", "h100"), "did you mean h100-nvl, h100-pcie, h100-sxm"),
        (("--weights", "int4-g12"), "did you mean int4-g128"),
        (("--dtype", "bfloat17"), "did you mean bfloat16"),
        (("--tensor-parallel", "2", "--link", "nvlnk4"), "did you mean nvlink4"),
        (("--tensor-parallel", "3"), "32 attention heads, which cannot be split evenly over 3 devices"),
        (("--tensor-parallel", "2", "--expert-parallel"), "has no experts to share out"),
        (("--tensor-parallel", "0"), "at least 1 device"),
        (("--tensor-parallel", "2", "--hardware", "gb10"), "what joins 2 of gb10 is not known"),
        (("--paper", "--kv-dtype", "fp8"), "--kv-dtype is about a what-if"),
        (("--methods", "--tensor-parallel", "2"), "--tensor-parallel is about a what-if"),
    ],
)
def test_what_cannot_be_is_said(
    words: tuple[str, ...], said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit 2, with the nearest names where a name is not known."""
    assert said in refused(monkeypatch, capsys, *WHAT_IF, *words)


def test_a_context_that_does_not_fit_is_said(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """64 rows of a million tokens need 8.4 TB; the figures stand beside the sentence, which also counts positions."""
    words = (*WHAT_IF, "--batch", "64", "--context", "1000000")
    found = answered(monkeypatch, capsys, *words)
    assert "131,072 positions" in found["does_not_fit"] and "batch 64 needs" in found["does_not_fit"]
    assert "0 such rows fit" in found["does_not_fit"]
    assert sbd(monkeypatch, *words) == 0
    assert f"does not fit            {found['does_not_fit'][:30]}" in capsys.readouterr().out
    assert answered(monkeypatch, capsys, *WHAT_IF, "--batch", "8")["does_not_fit"] is None


@pytest.mark.parametrize("batching", ["ragged", "lockstep"])
def test_large_blocks_have_a_price(
    batching: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A binomial coefficient of 1050 is too large for a float; the answer is finite all the same."""
    found = answered(monkeypatch, capsys, *WHAT_IF, "-k", "1050", "--batch", "8", "--batching", batching)
    assert 0 < found["wall_speedup"] < 3 and found["passes_per_block"] >= 350


def test_no_plan_is_not_success(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """405B parameters on one L4: exit 3, with the reason; an unknown link is asked for."""
    plan = ("capacity", "--model", "meta-llama/Llama-3.1-405B", "--nfe-speedup", "3", "--batch", "1")
    assert sbd(monkeypatch, *plan, "--hardware", "l4", "--tensor-parallel", "1") == 3
    assert "no plan with SBD on any of 1 devices" in " ".join(capsys.readouterr().out.split())
    assert sbd(monkeypatch, *plan, "--hardware", "gb10", "--tensor-parallel", "8") == 3
    assert "name it: --link" in " ".join(capsys.readouterr().out.split())
    # 405B in 4 bits are 220 GB: four of 128 GB hold them once their network is named.
    named = ("--hardware", "gb10", "--tensor-parallel", "4", "--weights", "nvfp4", "--context", "1000", "--link", "25GB/s")
    assert sbd(monkeypatch, *plan, *named) == 0
