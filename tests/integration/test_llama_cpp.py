"""A real llama-server, with n-gram speculation, without, and with an acceptance that is given: counted, timed and judged.

Needs SBD_LLAMA_SERVER and the model smollm2-135m as a GGUF file in bfloat16; `make test-llama` brings both.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from harness.analysis.answer import compare
from harness.analysis.results import ArmResult, Comparison
from harness.record.schema import Run
from harness.record.store import read_run
from harness.roofline.recorded_acceptance import recorded_checks
from tests.helpers import ROOT

pytestmark = [
    pytest.mark.serving,
    pytest.mark.skipif("SBD_LLAMA_SERVER" not in os.environ, reason="no llama-server; run make test-llama"),
]
PROMPTS, DOMAINS = 3, ["rewriting", "lists", "code"]


def run_scenario(folder: Path, name: str, **changes: Any) -> Path:
    """The published scenario with fewer prompts in one process."""
    whole = yaml.safe_load((ROOT / "scenarios" / "served_llama_cpp.yaml").read_text(encoding="utf-8"))
    [part] = whole["parts"]
    del whole["claims"]
    part |= {"processes": 1} | changes
    part["workload"] |= {"prompts": PROMPTS, "max_new_tokens": 48}
    part["workload"]["instructions"]["domains"] = DOMAINS
    file = folder / f"{name}.yaml"
    file.write_text(yaml.safe_dump(whole), encoding="utf-8")
    command = [sys.executable, "-m", "harness", "run", str(file), "--out", str(folder / name)]
    subprocess.run(command, check=True, cwd=ROOT)
    return folder / name


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Run, Comparison]:
    """A whole run through the command line, with its record and comparison."""
    directory = run_scenario(tmp_path_factory.mktemp("served"), "run")
    run = read_run(directory)
    return directory, run, compare(run)


def arm_of(comparison: Comparison, label: str) -> ArmResult:
    """Of the cell over all domains."""
    return next(arm for cell in comparison.cells if cell.is_summary for arm in cell.arms if arm.label == label)


def test_three_ways_agree_and_the_headline_says_more(finished: tuple[Path, Run, Comparison]) -> None:
    """Though every token is an event of its own."""
    _, run, comparison = finished
    ntp, ngram = (arm_of(comparison, label).served for label in ("NTP", "server ngram"))
    assert ntp is not None and ngram is not None
    for counts in (ntp, ngram):
        assert counts.requests == len(DOMAINS) * PROMPTS == counts.agreeing
        assert None not in counts.passes.values() and len(set(counts.passes.values())) == 1
    assert ntp.tokens_per_pass == 1 and ntp.headline is None
    assert ngram.tokens_per_pass is not None and ngram.headline is not None and 1 < ngram.tokens_per_pass < ngram.headline
    [engine] = run.events("engine", "llama_cpp")
    assert engine["servers"]["ngram"]["version"].startswith("b") and "model-bf16.gguf" in engine["servers"]["ngram"]["command"]


def test_what_it_writes_is_what_ntp_writes_but_for_rounding(finished: tuple[Path, Run, Comparison]) -> None:
    """By our engine's weights, of which the GGUF file is a copy; and judged from the command line."""
    directory, _, comparison = finished
    served = arm_of(comparison, "server ngram").served
    assert served is not None and served.partings is not None
    assert (served.partings.errors, served.partings.unclassified) == (0, 0)
    judged = subprocess.run(
        [sys.executable, "-m", "harness", "verify", str(directory), "--claim", "lossless at arm='server ngram'", "--json"],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )
    assert json.loads(judged.stdout)["version"]


def test_its_acceptance_is_a_source_for_replays(finished: tuple[Path, Run, Comparison]) -> None:
    """As many tokens a pass as were counted, but for the last pass of an answer, which its end cuts."""
    directory, _, comparison = finished
    checks = recorded_checks(directory, 5, "server ngram")
    expected, alive = 1.0, 1.0
    for rate in checks.misses:
        alive *= 1 - rate
        expected += alive
    served = arm_of(comparison, "server ngram").served
    assert served is not None and expected == pytest.approx(served.tokens_per_pass, rel=0.05)


def test_a_given_acceptance_is_what_its_passes_have_and_is_labelled(tmp_path: Path) -> None:
    """Half of the drafts are accepted, and each of those whole: 1 token or 3 of a pass that had two drafts, 2 on average."""
    plain = {"engine": "llama_cpp", "arguments": ["--ctx-size", "1024", "--parallel", "1", "--threads", "2"]}
    forced = {
        "engine": "llama_cpp",
        "arguments": [
            *plain["arguments"],
            "--spec-type",
            "ngram-simple",
            "--spec-ngram-simple-size-n",
            "1",
            "--spec-ngram-simple-size-m",
            "2",
            "--spec-draft-n-max",
            "2",
            "--spec-synth-rates",
            "0.5,0.5",
        ],
    }
    arms = [{"method": "ntp", "server": "plain"}, {"method": "served", "server": "forced"}]
    directory = run_scenario(tmp_path, "forced", servers={"plain": plain, "forced": forced}, arms=arms)
    run = read_run(directory)
    arm = arm_of(compare(run), "server forced replayed")
    assert arm.replayed is not None and arm.replayed["source"]["given"].startswith("--spec-synth-rates 0.5,0.5")
    assert not run.events("divergences", "llama_cpp"), "nobody asks whether given drafts were right"
    forced = [sample for sample in run.samples if "forced" in sample.case_id]
    pairs = [
        (final[0], fed[0])
        for sample in forced
        for final, fed in zip(sample.passes.final_tokens[1:-1], sample.passes.query_tokens[1:-1], strict=True)
    ]
    assert all(final in (1, fed) for final, fed in pairs), "none of a draft or all of it"
    drafted = [final for final, fed in pairs if fed == 3]
    assert len(drafted) > 50 and sum(drafted) / len(drafted) == pytest.approx(2.0, abs=0.5)
    assert all(row.output_tokens == 48 for sample in run.samples for row in sample.rows), "stops are not heeded"
