"""sbd verify: which claims are judged, what is printed, and the exit code."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from harness.analysis.judge.judgement import JUDGEMENT_VERSION
from tests.helpers import synthetic_run as synthetic
from tests.helpers.command import Cli
from tests.helpers.environments import with_claims
from tests.helpers.two_runs import stored

RUN = synthetic.build(jitter=0.05, prompts=12)
SLOW = "SBD k=16 γ=0.1"


@pytest.mark.parametrize(
    ("claim", "policy", "code"),
    [
        ("wall_speedup >= 2 in this process", "report", 0),
        ("wall_speedup >= 50 in this process", "report", 1),
        ("wall_speedup >= 2", "report", 3),
        ("same accuracy", "report", 3),
        ("same accuracy", "pass", 0),
        ("same accuracy", "fail", 1),
        ("joules_per_token <= 1", "report", 4),
        ("joules_per_token <= 1", "pass", 4),
        ("wall_speedup > 2", "report", 2),
    ],
)
def test_every_outcome_has_its_exit_code(cli: Cli, tmp_path: Path, claim: str, policy: str, code: int) -> None:
    """Confirmed 0, refuted 1, a mistake 2, inconclusive 3 unless told otherwise, void 4."""
    said = f"{claim} at arm='{SLOW}'"
    assert cli(f"verify {stored(RUN, tmp_path / 'r')} --inconclusive {policy} --claim", said) == code
    assert (SLOW in cli.out) == (code != 2) and (claim in cli.err) == (code == 2) and "Traceback" not in cli.err


def metrics(cli: Cli) -> list[str]:
    """The metrics that were judged, from the JSON on stdout."""
    data = json.loads(cli.out)
    assert data["version"] == JUDGEMENT_VERSION
    return [one["metric"] for one in data["judgements"]]


def test_which_claims_are_judged(cli: Cli, tmp_path: Path) -> None:
    """Those that are given, else those of the record, else the program's question, the paper's and ours."""
    directory = stored(RUN, tmp_path / "plain")
    cli(f"verify --json {directory}")
    assert metrics(cli) == ["wall_speedup", "nfe_speedup", "wall_over_nfe", "accuracy_loss_points"]
    own = with_claims(RUN, {"metric": "tokens_per_s", "min": 1.0, "scope": "this process"})
    claimed = stored(own, tmp_path / "own")
    assert cli(f"verify --json {claimed}") == 0
    assert metrics(cli) == ["tokens_per_s"]
    file = tmp_path / "mine.yaml"
    file.write_text("claims: [{metric: latency_p50_s, max: 10, scope: this process}]\n")
    claim = "wall_speedup >= 1 in this process"
    assert cli(f"verify {claimed} --json --claims {file} --claim", claim) == 0
    assert metrics(cli) == ["wall_speedup", "latency_p50_s"]


def test_mistakes_are_named(cli: Cli, tmp_path: Path) -> None:
    """No such file of claims, and no run: 2 and 5, with a message."""
    directory = stored(RUN, tmp_path / "r")
    assert "shipped name: ours, paper" in cli.refusal(f"verify --claims papers {directory}")
    assert cli(f"verify {tmp_path}/none") == 5
    assert "there is no run here" in cli.err


def test_a_record_whose_claims_cannot_be_read(cli: Cli, tmp_path: Path) -> None:
    """The record is at fault, not the user."""
    broken = stored(with_claims(RUN, {"metric": "charm", "min": 1.0}), tmp_path / "r")
    assert cli(f"verify {broken}") == 5
    assert "the claims of the record cannot be read" in cli.err
