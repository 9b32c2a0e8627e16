"""What commands refuse: a message on stderr that says what is allowed, nothing on stdout, an exit code, no traceback."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.helpers.command import Cli
from tests.helpers.records import RECORDS

PLAN = "capacity --model llama-3.1-8b"
SERVICE = f"{PLAN} --ttft 1 --prompt-tokens 2000 --output-tokens 300"
WHAT_IF = "roofline --model llama-3.1-8b --hardware h100-sxm"
MISTAKES = [
    ("plan", ""),
    ("plan --colour x", ""),
    ("plan no-such-file.yaml", "no-such-file.yaml"),
    ("run no-such-file.yaml", "no-such-file.yaml"),
    ("fly", "fly"),
    ("plan quickstart --hardware tpu-v9", "tpu-v9"),
    ("report --each a b --out c.html", "--each writes 2"),
    ("run-process s.yaml", ""),
    ('run-process {"scenario":"s.yaml","directory":"o","lent":[3],"share":null}', ""),
    ("hardware h100", "did you mean h100-nvl"),
    (f"{PLAN} --nfe-speedup 3 --table1 llama-3.1-8b/GSM8K/low", "--nfe-speedup and --table1; give exactly one of"),
    (PLAN, "acceptance is given by nothing"),
    ("capacity --model gpt-5 --nfe-speedup 3", "qwen3-30b-a3b"),
    (f"{PLAN} --table1 gpt-5/GSM8K/low", "a model of llama-3.1-8b, qwen-3-8b; a task of"),
    (f"{PLAN} --nfe-speedup 20", "allowed are 1 to 16"),
    (f"{PLAN} --nfe-speedup 4 --tokens-per-check 17", "a check makes 1 to 16 tokens final"),
    (f"{PLAN} --nfe-speedup 4 --tokens-per-check 3", "tokens per check are at least the NFE speedup"),
    (f"{PLAN} --nfe-speedup 4 --tokens-per-check 9 --batching lockstep", "do not wait for one another"),
    (f"{PLAN} --table1 llama-3.1-8b/GSM8K/low --tokens-per-check 9", "give --nfe-speedup too"),
    (f"{PLAN} --nfe-speedup 3 --weights int3", "allowed are float64"),
    (f"{PLAN} --nfe-speedup 3 --dtype int3", "unknown dtype 'int3'; allowed are"),
    (f"{PLAN} --nfe-speedup 3 --kv-dtype q4", "unknown dtype 'q4'"),
    (f"{PLAN} --nfe-speedup 3 --tensor-parallel two", "allowed are auto, or a number"),
    (f"{PLAN} --nfe-speedup 3 --tensor-parallel 5", "choose a divisor of 32"),
    (f"{PLAN} --nfe-speedup 3 --hardware tpu-v9", "no hardware profile is called 'tpu-v9'"),
    (f"{PLAN} --nfe-speedup 3 --prompt-tokens 10", "together with --output-tokens"),
    (f"{PLAN} --nfe-speedup 3 --batch 8 --latency-ms 20", "give one of them"),
    (f"{PLAN} --nfe-speedup 3 --latency-ms 0", "must be more than 0"),
    (f"{PLAN} --nfe-speedup 3 --requests-per-s 2", "give its output tokens"),
    (f"{PLAN} --nfe-speedup 3 --passes-at 8:9", "write BATCH=PASSES"),
    (f"{PLAN} --nfe-speedup 3 --json --csv", "choose one"),
    (f"{PLAN} --users 5", "no time to first token was given"),
    (f"{PLAN} --users 5 --ttft 1", "needs --prompt-tokens and --output-tokens"),
    (f"{SERVICE} --users 5 --requests-per-s 2", "--users and --requests-per-s; give one of"),
    (SERVICE, "the load is given by nothing"),
    (f"{PLAN} --think-s 5 --nfe-speedup 3", "--think-s goes with --users, --trace, --ttft"),
    (f"{SERVICE} --users 5 --batch 8", "leave out --batch"),
    (f"{SERVICE} --users 5 --shared-prefix 8", "leave out --shared-prefix"),
    (f"{SERVICE} --users 5 --chunk 0", "a chunk has at least 1"),
    (f"{SERVICE} --users 5 --percentile 100", "allowed are 50 to below 100"),
    (f"{SERVICE} --trace none.jsonl", "a trace has its own lengths"),
    (f"{PLAN} --trace none.jsonl --ttft 1", "cannot read the trace"),
    (f"{PLAN} --trace none.txt --ttft 1", "a trace ends in"),
    ("roofline", ""),
    ("roofline --model lama-3.1-8b --hardware h100-sxm", "did you mean llama-3.1-8b"),
    ("roofline --model llama-3.1-8b --hardware h100", "did you mean h100-nvl, h100-pcie, h100-sxm"),
    (f"{WHAT_IF} --nfe-speedup 20", "allowed are 1 to 16"),
    (f"{WHAT_IF} -k 0", ""),
    (f"{WHAT_IF} --weights int4-g12", "did you mean int4-g128"),
    (f"{WHAT_IF} --dtype bfloat17", "did you mean bfloat16"),
    (f"{WHAT_IF} --tensor-parallel 2 --link nvlnk4", "did you mean nvlink4"),
    (f"{WHAT_IF} --tensor-parallel 3", "32 attention heads, which cannot be split evenly over 3 devices"),
    (f"{WHAT_IF} --tensor-parallel 2 --expert-parallel", "has no experts to share out"),
    (f"{WHAT_IF} --tensor-parallel 0", "at least 1 device"),
    ("roofline --model llama-3.1-8b --tensor-parallel 2 --hardware gb10", "what joins 2 of gb10 is not known"),
    (f"{WHAT_IF} --paper --kv-dtype fp8", "--kv-dtype is about a what-if"),
    (f"{WHAT_IF} --methods --tensor-parallel 2", "--tensor-parallel is about a what-if"),
    ("roofline --methods --batch 0", "batch >= 1"),
    ("roofline --methods --context -1", "context >= 0"),
    ("roofline --methods --hardware tpu-v9", "tpu-v9"),
    ("roofline --methods --model gpt-9", "gpt-9"),
    ("roofline --methods --dtype int3", "int3"),
    ("roofline --methods --systems none.yaml", "none.yaml:1: cannot read the file"),
    ("roofline --explain", "--explain was given without --paper"),
    (
        "roofline --paper --explain --context 5000",
        "KV length 16, 256, 1024, 4096, 16384, 65536, 1048576, 4194304; block size 1, 2, 4",
    ),
    ("roofline --paper --explain -k 0", "block size 0; it has"),
    ("roofline --paper --explain --nfe-speedup 0", "NFE speedup 2, 4, 8"),
    ("roofline --paper --explain --dtype int3", "int3"),
    ("roofline --paper --explain --mode corrected --hardware l4", "--mode, --hardware was given with --explain"),
    ("history trend --metric speed", "--metric speed: is not followed; known are"),
    ("history trend --db mysql://h/d", "mysql is not supported; allowed are"),
    ("history show ff", "`sbd history list` shows them"),
    (f"history add {RECORDS}/v6 --committed-at yesterday", "give one such as"),
    ("history trend --last 0", "--last"),
]


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty folder with a history of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SBD_HISTORY", str(tmp_path / "h.sqlite"))


@pytest.mark.parametrize(("line", "words"), MISTAKES)
def test_mistakes_are_the_users(cli: Cli, line: str, words: str) -> None:
    """2, with what was given or what is allowed; of a name that is not known with the nearest ones."""
    assert words in " ".join(cli.refusal(line).split()) and cli.err


@pytest.mark.parametrize(
    "line", ["capacity --model llama-3.1-8b --from-run .", "publish . kept", "verify .", "history add .", "gate . ."]
)
def test_a_folder_without_a_run_is_a_tool_error(cli: Cli, line: str) -> None:
    """5, as every command ends that cannot read a record: never 1, which is refuted or a regression."""
    assert "no run here" in cli.refusal(line, code=5)


@pytest.mark.parametrize("more", ["--model llama-3.1-70b", "--batch 1000"])
def test_methods_of_what_does_not_fit_have_no_speed(cli: Cli, more: str) -> None:
    """141 GB, or the cache of a thousand rows, on one H100."""
    assert "are usable" in cli.refusal(f"roofline --methods {more}", code=3)
