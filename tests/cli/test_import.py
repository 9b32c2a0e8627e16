"""`sbd import`: files of other tools become a record that verify, gate, history and the page read."""

from __future__ import annotations

import json
import re
from math import exp, log
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

from harness.record.schema import RECORD_VERSION
from harness.record.store import read_run
from harness.regression.history.store import History
from tests.helpers import DATA
from tests.helpers.bench_files import LENGTHS, a_pair, vllm_result, written
from tests.helpers.command import Cli
from tests.helpers.pages import words

CONFIRMED, REFUTED, MISTAKE, OPEN, VOID = range(5)


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Cli:
    """The command line, with a home and a folder of its own."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    return Cli(monkeypatch, capsys)


def judged(cli: Cli, claim: str, code: int) -> Any:
    """The answer to a claim on the run."""
    assert cli("verify run --json --claim", claim) == code
    (one,) = json.loads(cli.out)["judgements"]
    return one


def test_a_pair_is_judged_by_the_clock(cli: Cli, tmp_path: Path) -> None:
    """Twice as fast by construction: claims below are confirmed, above refuted, of passes void; the limits stand beside."""
    assert cli("import --out run --model llama-3.1-8b --machine", "one GPU", *a_pair(tmp_path)) == 0
    run = read_run(tmp_path / "run")
    assert run.header.record_version == RECORD_VERSION and len(run.samples) == 60
    assert run.header.imported.pairing == "order" and run.header.cases[0].model is not None
    one = judged(cli, "wall_speedup >= 1.8", CONFIRMED)
    assert json.loads(cli.out)["records"] == ["sealed, not signed"] and one["sizes"] == {"prompts": 10, "processes": 3}
    assert all(words in one["reason"] for words in ("paired by order", "vllm bench serve", "at a time"))
    assert cli("verify run --claim", "wall_speedup >= 2.2 at arm='server fast'") == REFUTED
    assert cli("verify run --claim", "request_speedup >= 1.2") == CONFIRMED
    for claim in ("wall_over_nfe >= 0.5", "identical_to_ntp >= 0.9", "lossless"):
        assert cli("verify run --claim", claim) == VOID, claim
    one = judged(cli, "nfe_speedup >= 1.1", VOID)
    assert "counts drafts over all requests" in one["reason"] and "docs/servers.md" in one["remedy"]
    assert cli("verify run --claim", "wall_speedup >= 1.5 within 1 point") == VOID
    assert cli("verify run") == REFUTED  # the claim kept by default: 3x by the clock


def test_real_files_of_a_server_with_and_without_speculation(cli: Cli, tmp_path: Path) -> None:
    """The speedup is the geometric mean over requests and files of the tool's own times per token."""
    files = {kind: [DATA / "imports" / f"vllm-{kind}-{number}.json" for number in (1, 2, 3)] for kind in ("plain", "ngram")}
    results = {kind: [json.loads(file.read_text(encoding="utf-8")) for file in found] for kind, found in files.items()}
    arguments = [text for file in files["plain"] for text in ("--ntp", str(file))]
    arguments += [text for file in files["ngram"] for text in ("--arm", f"ngram={file}")]
    assert cli("import --out run", *arguments) == 0
    logs = {
        kind: [
            log((whole - first) / (tokens - 1))
            for one in found
            for whole, first, tokens in zip(one["latencies"], one["ttfts"], one["output_lens"], strict=True)
        ]
        for kind, found in results.items()
    }
    one = judged(cli, "wall_speedup >= 1", CONFIRMED)
    assert one["value"]["value"] == pytest.approx(exp(fmean(logs["plain"]) - fmean(logs["ngram"])))
    assert one["value"]["low"] > 1 and one["sizes"] == {"prompts": 12, "processes": 3}


def test_an_import_was_measured_before_any_claim(cli: Cli, tmp_path: Path) -> None:
    """One of two arms is named with the files in hand, for the record or later: judged among both, which the page says too.

    The only arm is free.
    """
    claim = "wall_speedup >= 1.5 at arm='server fast'"
    pair = a_pair(tmp_path)
    slow = [written(tmp_path, f"slow{number}.json", vllm_result(0.015, seed=40 + number)) for number in range(3)]
    both = [*pair, *(text for file in slow for text in ("--arm", f"slow={file}"))]
    for name, files, among in (("run", pair, False), ("two", both, True)):
        assert cli(f"import --out {name} --claim", claim, *files) == 0
        for asked in ([], ["--claim", claim]):
            assert cli("verify", name, "--json", *asked) == CONFIRMED
            (one,) = json.loads(cli.out)["judgements"]
            assert ("named after the run: judged among 2 arms" in one["reason"]) is among
        assert cli("report", name) == 0
        assert ("Named after the run: judged among 2 arms." in (tmp_path / name / "report.html").read_text("utf-8")) is among


def test_without_pairs_whole_files_are_compared(cli: Cli, tmp_path: Path) -> None:
    """Prompts of one length show nothing of who belongs to whom; the interval is then over files alone."""
    assert cli("import --out run", *a_pair(tmp_path, lengths=[64] * 10)) == 0
    assert read_run(tmp_path / "run").header.imported.pairing is None  # type: ignore[union-attr]
    one = judged(cli, "wall_speedup >= 1.8", CONFIRMED)
    assert "unpaired" in one["reason"] and "3 processes beside 3" in one["value"]["method"]
    assert one["value"]["low"] < 2 < one["value"]["high"] and one["sizes"]["processes"] == 3


@pytest.mark.parametrize("lengths", [LENGTHS, (64,) * 10])
def test_two_files_a_side_decide_nothing(lengths: tuple[int, ...], cli: Cli, tmp_path: Path) -> None:
    """As everywhere: a claim about time takes three processes."""
    assert cli("import --out run", *a_pair(tmp_path, files=2, lengths=lengths)) == 0
    assert cli("verify run --claim", "wall_speedup >= 1.5") == OPEN
    assert "import files of 3 runs" in cli.out.replace("\n", " ")


def test_one_arm_has_figures_and_no_speedup(cli: Cli, tmp_path: Path) -> None:
    """A file alone is shown, and kept where a place is given."""
    written(tmp_path, "a.json", vllm_result())
    assert cli("import a.json") == 0
    assert "none" not in cli.out.splitlines()[1] and not (tmp_path / "reports").exists()
    told = cli.answer("import a.json")
    assert told["run_id"] is None and told["files"][0]["figures"]["median_request_s"] > 0
    assert cli("import --out run a.json") == 0
    assert cli("verify run") == VOID and "no NTP arm" in cli.out


def test_a_contradiction_is_void_by_name(cli: Cli, tmp_path: Path) -> None:
    """The tool's own median is another than its requests have."""
    other = written(tmp_path, "other.json", vllm_result(seed=77) | {"median_tpot_ms": 5.0})
    pair = [str(other) if text.endswith("plain1.json") else text for text in a_pair(tmp_path)]
    assert cli("import --out run", *pair) == 0
    assert cli("verify run --claim", "wall_speedup >= 1.5") == VOID
    assert "the median_time_per_token_s that the tool printed" in cli.out and "other.json" in cli.out


def test_failed_requests_are_said(cli: Cli, tmp_path: Path) -> None:
    """NTP's request to the same prompt in the same process has no pair, and the verdict says how many failed."""
    lossy = written(tmp_path, "lossy.json", vllm_result(0.01, seed=5, failed=(0, 4)))
    pair = [f"fast={lossy}" if text.endswith("fast1.json") else text for text in a_pair(tmp_path)]
    assert cli("import --out run", *pair) == 0
    assert "2 of 60 requests failed" in judged(cli, "wall_speedup >= 1.5", CONFIRMED)["reason"]
    assert cli("verify run --claim", "wall_speedup >= 3") == REFUTED


def test_the_gate_judges_times_alone(cli: Cli, tmp_path: Path) -> None:
    """Alike runs pass, a slower one regresses, and two machines that nobody named are not one."""
    for first, (name, speedup) in enumerate((("base", 2.0), ("same", 2.0), ("slow", 1.0))):
        files = a_pair(tmp_path / name, files=4, speedup=speedup, first=10 * first)
        assert cli(f"import --out run-{name} --machine", "one GPU", *files) == 0
    assert cli("gate run-base run-same --margin 0.2") == CONFIRMED and "judged by times alone" in cli.out
    assert cli("gate run-base run-slow --margin 0.2") == REFUTED
    assert cli("compare run-base run-same") == 0
    assert cli("import", *a_pair(tmp_path / "new"), "--out", "unnamed") == 0
    assert cli("gate run-base unnamed") == MISTAKE and "hardware.machine" in cli.err


def test_a_history_keeps_its_figures(cli: Cli, tmp_path: Path) -> None:
    """Under the machine that was named; what is unknown has its reason."""
    assert cli("import --out run --machine", "one GPU", *a_pair(tmp_path)) == 0
    assert cli("history add run --db h.sqlite") == 0
    with History("h.sqlite") as history:
        found = history.record(read_run(tmp_path / "run").header.run_id)
    figures = {(one.arm, one.metric): one for one in found.figures}
    assert found.machine == "one GPU" and figures["server fast", "wall_speedup"].value == pytest.approx(2.0, rel=0.1)
    nfe = figures["server fast", "nfe_speedup"]
    assert nfe.value is None and "passes not at all" in nfe.reason


def test_the_page_says_what_limits_it_and_escapes_the_files_words(cli: Cli, tmp_path: Path) -> None:
    """Texts of a file are foreign: its model, its name and its prompts."""
    hostile = "<script>alert(1)</script>"
    others: dict[str, Any] = {"model_id": f"model {hostile}", "texts": [hostile] * len(LENGTHS)}
    assert cli("import", *a_pair(tmp_path / "a&<b>", **others), "--out", "run", "--machine", f"GPU {hostile}") == 0
    assert cli("report run") == 0
    page = (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    assert hostile not in page and "model &lt;script&gt;alert(1)" in page
    said = words(page)
    assert "Paired by order" in said and "The imported files" in said and "plain0.json" in said
    assert "passes: vllm bench serve counts drafts over all requests together" in said
    told = json.loads((tmp_path / "run" / "report.json").read_text(encoding="utf-8"))
    (arm,) = (arm for arm in told["cells"][0]["arms"] if not arm["is_ntp"])
    assert arm["nfe"] is None and arm["passes"] is None and arm["nfe_speedup"]["value"] is None
    assert arm["identical_to_ntp"]["value"] is None and arm["figures"]["distinct4_median"]["value"] is None


def test_alike_files_are_asked_for(cli: Cli, tmp_path: Path) -> None:
    """Of one tool, one load, each once, and as many of every arm."""
    for seed in range(3):
        written(tmp_path, f"{seed}.json", vllm_result(seed=seed))
    written(tmp_path, "busy.json", vllm_result(seed=3, max_concurrency=8))
    for arguments, said in (
        ("--ntp 0.json --arm fast=busy.json", "most requests at once differs"),
        ("--ntp 0.json --arm fast=0.json", "are the same file"),
        ("--ntp 0.json --ntp 1.json --arm fast=busy.json", "requests at once differs"),
        ("--ntp 0.json --ntp 1.json --arm fast=2.json", "different numbers of files"),
        ("0.json --ntp 1.json", "belongs to no arm"),
        ("", "no file is given"),
        ("--arm fast", "write NAME=FILE"),
        ("--arm a,b=0.json", "a name has letters"),
        ("0.json --format x", "there is no such format"),
        ("0.json --model nothing", "unknown model"),
        ("0.json --machine=", "--machine"),
        ("0.json --format guidellm", "benchmarks: the key is required"),
    ):
        assert cli(f"import {arguments}") == MISTAKE and said in cli.err, arguments


def test_the_disk_is_waited_for_once(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Thousands of requests took minutes, with a wait for each: their files are still there to be imported again."""
    waits: list[int] = []
    monkeypatch.setattr("harness.record.journal.os.fsync", waits.append)
    assert cli("import", *a_pair(tmp_path / "in"), "--out", str(tmp_path / "run")) == 0
    assert len(read_run(tmp_path / "run").samples) == 6 * len(LENGTHS)
    assert 0 < len(waits) < len(LENGTHS)


def test_a_run_of_our_own_may_lack_nothing(cli: Cli, tmp_path: Path) -> None:
    """Only an imported record has samples without ids or passes; its header says why."""
    assert cli("import --out run", *a_pair(tmp_path)) == 0
    header = tmp_path / "run" / "run.json"
    text = header.read_text(encoding="utf-8")
    header.write_text(re.sub(r'"passes": "[^"]*",\s*', "", text, count=1), encoding="utf-8")
    assert cli("verify run") != CONFIRMED and "lacks passes" in cli.err


def test_the_help_says_how(cli: Cli) -> None:
    """Every tool is named."""
    assert cli("import --help") == 0
    assert all(tool in cli.out for tool in ("AIPerf", "GuideLLM", "SGLang", "vllm bench serve"))
