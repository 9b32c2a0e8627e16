"""The arithmetic of benchmarks.engines on numbers worked by hand, llama-bench by a stand-in, and a real short round."""

from __future__ import annotations

import ctypes
import itertools
import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks.engines import __main__ as command
from benchmarks.engines import others, own
from benchmarks.engines.figures import FIGURES, NotMeasured, Rounds, best_engine, derived, ratio_interval
from benchmarks.engines.starts import waits_of
from benchmarks.results_file import RESULTS
from harness.kernels.library import why_not_built
from tests.helpers import ROOT

MISSING = {"vllm_135m": "SBD_VLLM_PYTHON is not set"}


def rounds(*taken: dict[str, dict[str, float]]) -> Rounds:
    """Of measurements by name; vLLM is not installed."""
    return Rounds(taken=taken, absent=MISSING)


def test_the_interval_of_a_ratio_by_hand() -> None:
    """The logarithms 0.09531 and 0.19062 have mean 0.14297 and standard error 0.04766; t(0.975, 1) is 12.706."""
    assert ratio_interval([1.1, 1.21]) == pytest.approx((1.15369, 0.62968, 2.11378), rel=1e-4)
    assert ratio_interval([1.3, 1.3, 1.3]) == pytest.approx((1.3, 1.3, 1.3))


def test_ratios_pair_rounds_and_medians_stand_behind_them() -> None:
    """1.1 and 1.21 in the rounds that both measured; the median tokens/s of ours are of all three."""
    found, reasons = derived(
        rounds(
            {"ours_135m": {"tokens_per_s": 110.0}, "llama_cpp_135m": {"tokens_per_s": 100.0}},
            {"ours_135m": {"tokens_per_s": 500.0}},
            {"ours_135m": {"tokens_per_s": 121.0}, "llama_cpp_135m": {"tokens_per_s": 100.0}},
        ),
        ["ntp_over_best_engine_135m"],
    )
    assert not reasons and found == {
        "ntp_over_best_engine_135m": 1.1537,
        "ntp_over_best_engine_135m_low": 0.6297,
        "ntp_over_best_engine_135m_high": 2.1138,
        "ours_135m_tokens_per_s": 121.0,
        "llama_cpp_135m_tokens_per_s": 100.0,
    }


def test_the_best_engine_is_that_of_the_highest_median() -> None:
    """One lucky round does not make an engine the best."""
    speeds = [(100.0, 90.0), (100.0, 90.0), (100.0, 300.0)]
    taken = [{"llama_cpp_250m": {"tokens_per_s": a}, "vllm_250m": {"tokens_per_s": b}} for a, b in speeds]
    assert best_engine(rounds(*taken), "250m") == "llama_cpp_250m"


def test_what_is_not_installed_is_none_with_a_reason() -> None:
    """Of every engine; other figures stay."""
    taken = rounds({"ours_135m": {"tokens_per_s": 110.0, "pass_s_1": 0.008, "pass_s_12": 0.012}})
    found, reasons = derived(taken, ["ntp_over_best_engine_135m", "pass12_over_pass1_135m"])
    assert found["ntp_over_best_engine_135m"] is None and found["pass12_over_pass1_135m"] == 1.5
    assert reasons == {
        "ntp_over_best_engine_135m": "llama_cpp: llama_cpp_135m has measured no tokens_per_s; vllm: SBD_VLLM_PYTHON is not set"
    }


def test_shares_and_passes_by_hand() -> None:
    """36 of 40 GB/s are 90 %, of 45 they are 80 %; 24 ms over 12 ms are twice the tokens/s."""
    taken = rounds(
        {
            "ours_250m": {"bytes_per_s": 36e9, "ceiling_bytes_per_s": 40e9, "fastest_bytes_per_s": 45e9},
            "ours_135m": {"pass_s_8": 0.012, "rest_share_pct": 9.5},
            "llama_cpp_135m": {"pass_s_8": 0.024},
        }
    )
    names = ["ntp_read_share_pct_250m", "ntp_read_share_of_fastest_pct_250m", "pass8_over_llama_cpp", "rest_share_pct_135m"]
    found, _ = derived(taken, names)
    assert [found[name] for name in names] == pytest.approx([90, 80, 2.0, 9.5])


def test_a_bar_is_reached_or_not() -> None:
    """A low end that is asked for and not known reaches none."""
    ratio, share = FIGURES["ntp_over_best_engine_135m"], FIGURES["rest_share_pct_135m"]
    assert ratio.bar == "at least 1.05, low end at least 1" and share.bar == "at most 12"
    assert [ratio.reached(1.06, low) for low in (1.0, 0.99, None)] == [True, False, False]
    assert share.reached(12, None) and not share.reached(12.1, None)
    assert all(one.values.__doc__ for one in FIGURES.values())


def test_rounds_are_taken_in_turns_and_a_failure_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    """Forwards and backwards; what fails leaves its round out, and its reason stays."""
    order: list[str] = []

    def once(name: str) -> dict[str, float]:
        order.append(name)
        if order == ["a", "b"]:
            raise NotMeasured("b broke off")
        return {"value": float(len(order))}

    absent: dict[str, str] = {}
    found = command.take({name: lambda name=name: once(name) for name in "ab"}, 2, absent)  # type: ignore[misc]
    assert order == ["a", "b", "b", "a"] and absent == {"b": "b broke off"} and "none: b broke off" in capsys.readouterr().out
    assert found.of("a", "value") == {0: 1.0, 1: 4.0} and found.of("b", "value") == {1: 3.0}


def test_the_closest_ratios_are_taken_forwards_and_backwards_within_a_round() -> None:
    """Of 2 and 5, 3 and 4 the geometric means; whatever stands around them is taken once."""
    taken: list[str] = []

    def once(name: str) -> dict[str, float]:
        taken.append(name)
        return {"value": float(len(taken))}

    names = ("ours_135m", "ours_250m", "llama_cpp_250m", "start_135m")
    found = command.take({name: lambda name=name: once(name) for name in names}, 2, {})  # type: ignore[misc]
    assert taken[:6] == ["ours_135m", "ours_250m", "llama_cpp_250m", "llama_cpp_250m", "ours_250m", "start_135m"]
    assert taken[6:] == ["start_135m", "llama_cpp_250m", "ours_250m", "ours_250m", "llama_cpp_250m", "ours_135m"]
    assert found.of("ours_250m", "value")[0] == pytest.approx(10**0.5)
    assert found.of("llama_cpp_250m", "value")[0] == pytest.approx(12**0.5)


def sample(case: str, start: float, end: float) -> Any:
    """A decode by its monotonic clock."""
    return SimpleNamespace(case_id=case, started_clock_s=start, ended_clock_s=end)


def test_waits_for_first_samples_by_hand() -> None:
    """NTP ends 7 s after the start; the second arm waits 1 s and the third 2.5 s, their own decode included."""
    samples = [
        sample("ntp", 105.0, 107.0),
        sample("sbd", 107.25, 108.0),
        sample("lookup", 110.0, 110.5),
        sample("sbd", 120.0, 129.0),
    ]
    assert waits_of(samples, {"ntp"}, begun_s=100.0) == {"first_sample_s": 7.0, "next_arm_s": 2.5}
    with pytest.raises(NotMeasured, match="no sample of NTP"):
        waits_of(samples[1:], {"ntp"}, begun_s=100.0)


def test_calls_of_a_library_are_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each by the clock around it, whatever is called; results come through."""
    ticks = itertools.count()
    monkeypatch.setattr(own, "perf_counter", lambda: float(next(ticks)))
    monkeypatch.setattr(own.ClockedKernels, "spent_s", 0.0)
    library: Any = ctypes.CDLL(None)
    library.__class__ = own.ClockedKernels
    assert (library.abs(-3), library.abs(4), library.labs(-5)) == (3, 4, 5) and library.spent_s == 3.0


FAKE = """#!{python}
import json, sys
words = dict(zip(sys.argv[1::2], sys.argv[2::2]))
tests = [
    {{"n_threads": int(t), "flash_attn": int(fa in ("on", "1")), "n_prompt": int(p), "n_gen": int(words["-n"]),
      "samples_ns": [1e6 * max(1, int(p)) * (3 - int(t)) * (1 if fa in ("on", "1") else 2)] * int(words["-r"])}}
    for t in words["-t"].split(",") for fa in words["-fa"].split(",") for p in words["-p"].split(",")
]
print(json.dumps(tests))
"""
"""A llama-bench of 3 minus threads ms a token, twice that without flash attention."""


def test_llama_cpp_runs_at_its_best_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Two threads with flash attention are fastest: 1 ms for 64 tokens, and a millisecond for each token of a pass."""
    bench = tmp_path / "llama-bench"
    bench.write_text(FAKE.format(python=sys.executable), encoding="utf-8")
    bench.chmod(0o755)
    monkeypatch.setenv("SBD_LLAMA_SERVER", str(tmp_path / "llama-server"))
    monkeypatch.setattr(others, "gguf_of", lambda name, program: tmp_path / "model.gguf")
    monkeypatch.setattr(others, "thread_counts", lambda: [1, 2])
    engine = others.LlamaCpp("135m", smoke=True)
    assert engine.settings == {"ntp": "-t 2 -fa 1", "passes": "-t 2 -fa 1"}
    assert engine.measured() == pytest.approx(
        {"tokens_per_s": 64e3, "threads": 2, "pass_s_8": 8e-3, "pass_s_16": 16e-3, "pass_s_32": 32e-3}
    )
    bench.write_text("#!/bin/sh\necho 'no such model' >&2; exit 1\n", encoding="utf-8")
    with pytest.raises(NotMeasured, match="llama-bench: no such model"):
        engine.measured()


def test_a_program_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """With what to do."""
    monkeypatch.setenv("SBD_LLAMA_SERVER", str(tmp_path / "llama-server"))
    with pytest.raises(NotMeasured, match="there is no llama-bench; run `make llama-ready`"):
        others.program("llama-bench")


def test_tokens_of_a_stream_are_counted_behind_its_first_chunk() -> None:
    """65 tokens, the first alone: 64 in half a second."""
    chunks = [SimpleNamespace(at_s=10.0, ids=(1,)), SimpleNamespace(at_s=10.25, ids=(2,) * 32)]
    chunks.append(SimpleNamespace(at_s=10.5, ids=(3,) * 32))
    answer: Any = SimpleNamespace(chunks=chunks, ids=tuple(one for chunk in chunks for one in chunk.ids))
    assert others.tokens_per_s(answer) == pytest.approx(128)


@pytest.mark.long
@pytest.mark.skipif(why_not_built() is not None, reason="nothing builds the kernels here")
def test_a_smoke_round_of_our_engine_writes_nothing() -> None:
    """The reference model, in a fresh process; the figure is told with its bar."""
    stored = RESULTS / "engines.json"
    before = stored.read_bytes() if stored.exists() else None
    words = [sys.executable, "-m", "benchmarks.engines", "--smoke", "--only", "rest_share_pct_reference"]
    done = subprocess.run(words, capture_output=True, text=True, cwd=ROOT, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    first, last = done.stdout.splitlines()
    assert 0 < json.loads(first.partition(": ")[2])["rest_share_pct"] < 100
    assert last.startswith("rest_share_pct_reference | ") and "| at most 40 |" in last
    assert before == (stored.read_bytes() if stored.exists() else None)
