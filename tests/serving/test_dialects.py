"""The dialects on streams and counters of each engine; the first line of every file says where it is from.

Those of vLLM and llama.cpp were recorded. The others are made from the released sources, field by field, because their engines
cannot run here; what they hold is worked by hand in their second line.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from harness.errors import MissingExtraError, NotPossibleError, RequestError
from harness.scenario.servers import Server
from harness.serving.counts import arrivals, count_passes, passes_of_round
from harness.serving.dialects import DIALECTS
from harness.serving.dialects.dialect import Dialect, Rounds, ServerFacts, ServerRequest
from harness.serving.dialects.llama_cpp import gguf_of
from harness.serving.served_model import growth, read_counters
from harness.serving.stream import ServedAnswer, answer_of
from tests.helpers import ROOT

DATA = ROOT / "tests" / "data" / "serving"
ASKED = ServerRequest(ids=(5, 6, 7), max_tokens=9, temperature=0.0, seed=1 << 40, salt="s")


def lines(name: str) -> list[str]:
    """Of a file, without its comments."""
    text = (DATA / name).read_text(encoding="utf-8")
    assert text.startswith(("# source-derived from ", "# recorded from "))
    return [line for line in text.splitlines() if not line.startswith("# ") or line.startswith(("# TYPE", "# HELP"))]


def answer(engine: str, name: str) -> ServedAnswer:
    """The stream of a file, an event a second."""
    arrived = [(float(second), line) for second, line in enumerate(lines(name), start=1)]
    return answer_of(0.0, arrived, DIALECTS[engine])  # type: ignore[index]


def counted(engine: str, *names: str) -> dict[str, float]:
    """The counters of one file, or their growth between two."""
    found = [read_counters("\n".join(lines(name)) + "\n", DIALECTS[engine].counters) for name in names]  # type: ignore[index]
    return growth(*found) if len(found) == 2 else found[0]


def sglang_rounds(kind: str) -> Rounds:
    """How a SGLang of that startup configuration decodes."""
    about = ServerFacts.model_validate_json("".join(lines(f"sglang_{kind}_info.json")))
    return DIALECTS["sglang"].rounds(about, Server(engine="sglang"))


def test_sglang_eagle_by_hand() -> None:
    """3 passes checked drafts; the headline of 8 / 3 has the prompt's token in it, 7 decode tokens over 3 passes have not."""
    got = answer("sglang", "sglang_eagle.jsonl")
    ways = count_passes(got, {}, alone=True, rounds=sglang_rounds("eagle"))
    assert ways.counts == (3, 3, 3)
    assert got.said["headline"] == pytest.approx(8 / 3) and got.stop_reason == "length" and got.prompt_tokens == 5
    assert [one.fed for one in arrivals(0, got, 5, one_by_one=False, width=sglang_rounds("eagle").fed)] == [5, 5, 5]
    assert "drafted" not in got.said, "spec_num_proposed_drafts is a product, not a count"


def test_sglang_uno_makes_two_passes_a_round() -> None:
    """3 rounds are 6 passes, so 8 decode tokens are 1.33 a pass where the engine says 3."""
    rounds, got = sglang_rounds("uno"), answer("sglang", "sglang_uno.jsonl")
    ways = count_passes(got, {}, alone=True, rounds=rounds)
    assert ways.counts == (6, 6, 6)
    assert got.said["headline"] == 3 and (len(got.ids) - 1) / 6 == pytest.approx(4 / 3)
    passes = [one for of_round in arrivals(0, got, 5, False, rounds.fed) for one in passes_of_round([of_round], 1, 2)]
    assert [one.role for one in passes] == ["draft", "verify"] * 3
    assert [one.final_tokens for one in passes] == [(0,), (5,), (0,), (2,), (0,), (1,)]
    assert all(one.query_tokens[0] >= 4 and one.model is None for one in passes), "the served model makes both"


def test_sglang_without_speculation_accepts_nothing_and_its_diffusion_tells_nothing() -> None:
    """Two ways agree for the first; the second has a reason in place of passes."""
    plain = count_passes(answer("sglang", "sglang_plain.jsonl"), {}, alone=False, rounds=sglang_rounds("plain"))
    assert (plain.steps, plain.accepted, plain.chunks) == (None, 2, 2)
    rounds = sglang_rounds("dllm")
    untold = count_passes(answer("sglang", "sglang_dllm.jsonl"), {}, alone=True, rounds=rounds)
    assert untold.counts == () and rounds.passes is None and "diffusion" in rounds.untold
    unknown = DIALECTS["sglang"].rounds(ServerFacts(), Server(engine="sglang"))
    assert count_passes(answer("sglang", "sglang_plain.jsonl"), {}, alone=True, rounds=unknown).counts == (2,)


def test_sglang_counters() -> None:
    """By our names; its counter of verify calls is not among them, for each request tells its own."""
    assert counted("sglang", "sglang.prom") == {"requests": 3, "cached": 16, "preempted": 0, "read_bytes": 5e9}


def test_vllm_as_recorded() -> None:
    """24 tokens: one of the prompt's pass, six passes that accepted 4 1 4 4 1 4, of which the last wrote 4 of its 5 tokens."""
    got = answer("vllm", "vllm_ngram.jsonl")
    assert got.sizes == (1, 5, 2, 5, 5, 2, 4) and got.said["accepted_by_round"] == [4, 1, 4, 4, 1, 4]
    grown = counted("vllm", "vllm_before.prom", "vllm_after.prom")
    ways = count_passes(got, grown, alone=True)
    assert ways.counts == (6, 6, 6)
    assert got.said["headline"] == 4 and grown["requests"] == 1 and grown["cached"] == 0


def test_llama_cpp_as_recorded() -> None:
    """24 events of a token each came from the prompt's pass and five that checked drafts: llama_decode was called 6 times."""
    got = answer("llama_cpp", "llama_cpp_ngram.jsonl")
    assert len(got.ids) == 24 and got.sizes == (1, 5, 5, 5, 5, 3) and got.stop_reason == "length"
    assert (got.said["drafted_by_round"], got.said["accepted_by_round"]) == ([4, 4, 4, 4, 2], [4, 4, 4, 4, 2])
    grown = counted("llama_cpp", "llama_cpp_before.prom", "llama_cpp_after.prom")
    ways = count_passes(got, grown, alone=True)
    assert ways.counts == (5, 5, 5)
    assert grown["rounds"] == 5 and got.said["cached"] == 0 and got.prompt_tokens == 43


def test_lmdeploy_joins_the_end_to_its_pass() -> None:
    """Its last pass wrote two tokens in two events; all three ways say 3."""
    got = answer("lmdeploy", "lmdeploy_eagle3.jsonl")
    assert got.sizes == (1, 3, 1, 2) and got.stop_reason == "stop"
    ways = count_passes(got, counted("lmdeploy", "lmdeploy_before.prom", "lmdeploy_after.prom"), alone=True)
    assert ways.counts == (3, 3, 3)
    assert answer("lmdeploy", "lmdeploy_plain.jsonl").sizes == (1, 1, 1), "the end alone is a pass of its own"
    cut = answer("lmdeploy", "lmdeploy_length.jsonl")
    assert cut.sizes == (1, 1) and cut.stop_reason == "length"
    dllm = Server(engine="lmdeploy", arguments=("--dllm-block-length", "4"))
    assert DIALECTS["lmdeploy"].rounds(ServerFacts(), dllm).passes is None


def test_tensorrt_llm_takes_the_prompts_iteration_off() -> None:
    """10 tokens in 4 iterations, 2.5 each; 9 decode tokens in 3 passes are 3 each."""
    got = answer("tensorrt_llm", "tensorrt_llm.jsonl")
    ways = count_passes(got, {}, alone=False)
    assert (ways.steps, ways.accepted, ways.chunks) == (3, None, 3)
    assert got.said["headline"] == 2.5 and got.said["cached"] == 0


@pytest.mark.parametrize("engine", list(DIALECTS))
def test_a_request_and_a_broken_answer(engine: str) -> None:
    """Every engine is asked for ids by ids, greedily, with nothing shared; an error in a stream is one."""
    dialect: Dialect = DIALECTS[Server.model_validate({"engine": engine}).engine]
    body = dialect.body(ASKED, "m")
    assert [5, 6, 7] in (body.get("prompt"), body.get("input_ids")) and body["temperature"] == 0 and body["stream"] is True
    assert 9 in (body.get("max_tokens"), body.get("n_predict")) and body["ignore_eos"] is False
    assert body.get("seed", 0) < 1 << 31
    with pytest.raises(RequestError, match="broke off: planted"):
        dialect.read({"error": {"message": "planted"}})


def test_an_answer_that_the_server_broke_off_is_no_answer() -> None:
    """Aborted, in SGLang's words."""
    event = json.loads(lines("sglang_plain.jsonl")[2])
    event["choices"][0]["finish_reason"] = "abort"
    with pytest.raises(RequestError, match="the answer was ended: abort"):
        DIALECTS["sglang"].read(event)


def test_engines_that_are_not_here_say_how_to_reach_them(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """By their variable, or by url."""
    for name in ("SBD_VLLM_PYTHON", "SBD_LLAMA_SERVER", "SBD_SGLANG_PYTHON", "SBD_LMDEPLOY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    for engine in ("vllm", "llama_cpp", "sglang", "lmdeploy"):
        with pytest.raises(MissingExtraError, match=r"SBD_.* url"):
            DIALECTS[engine].command(Server.model_validate({"engine": engine}), "m", 1, "bfloat16")  # type: ignore[index]
    with pytest.raises(NotPossibleError, match="start it yourself"):
        DIALECTS["tensorrt_llm"].command(Server(engine="tensorrt_llm"), "m", 1, "bfloat16")


def test_llama_cpp_takes_the_file_of_the_dtype(tmp_path: Path) -> None:
    """A folder without one says how to make it; a file is itself."""
    with pytest.raises(NotPossibleError, match=r"convert_hf_to_gguf\.py .* --outtype bf16"):
        gguf_of(str(tmp_path), "bfloat16")
    (tmp_path / "model-bf16.gguf").touch()
    assert gguf_of(str(tmp_path), "bfloat16") == str(tmp_path / "model-bf16.gguf")
    assert gguf_of("/some/file.gguf", "float32") == "/some/file.gguf"
