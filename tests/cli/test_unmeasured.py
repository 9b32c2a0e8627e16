"""A run in which every case fails: no command takes its record for a measurement, and each says why."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.errors import DoesNotFitError, NoTokenError
from harness.models import KNOWN_SHAPES
from harness.runner.runner import run
from tests.helpers.command import Cli, fake_runner
from tests.helpers.fake_machine import SCENARIO, FakeEngine, fake_machine

MISTAKE, VOID = 2, 4
ERRORS = {"no_token": NoTokenError("the logits are NaN"), "memory": DoesNotFitError("needs 9 GB")}


class Failing(FakeEngine):
    """Every decode ends in the same error; passes can be measured all the same."""

    def decode(self, case, prompts, seed):
        """Raises the error."""
        raise self.error


@pytest.mark.parametrize("error", ERRORS.values(), ids=ERRORS)
def test_a_run_that_measured_nothing_says_which_cases_failed_and_why(
    error: Exception, cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`sbd run` ends with the code of void, and so does whatever judges its record; what only shows it refuses."""
    monkeypatch.setenv("COLUMNS", "400")
    file = tmp_path / "fake.yaml"
    file.write_text(SCENARIO)
    folder = run(file, tmp_path / "out", machine=fake_machine(Failing(KNOWN_SHAPES["llama-250m"], error=error)))
    fake_runner(monkeypatch, folder)
    for line, code in (
        (f"run {file} --no-report", VOID),
        (f"run {file}", VOID),
        (f"verify {folder}", VOID),
        (f"gate {folder} {folder}", VOID),
        (f"compare {folder} {folder}", MISTAKE),
        (f"report {folder}", 0),
        (f"history add {folder} --db {tmp_path}/h.sqlite", MISTAKE),
    ):
        assert cli(line) == code, line
        told = cli.out + cli.err
        assert "nothing was measured: 4 of 4 cases failed" in told and str(error) in told and "one/synthetic/b1/ntp" in told, (
            line
        )
    assert "nothing was measured: 4 of 4 cases failed" in (folder / "report.html").read_text(encoding="utf-8").lower()


def test_a_run_with_one_good_case_is_a_measurement(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other case is an outcome of the record."""
    file = tmp_path / "fake.yaml"
    file.write_text(SCENARIO)
    engine = FakeEngine(KNOWN_SHAPES["llama-250m"], too_big=2, error=DoesNotFitError("needs 9 GB"))
    fake_runner(monkeypatch, run(file, tmp_path / "out", machine=fake_machine(engine)))
    assert cli(f"run --no-report {file}") == 0
    assert "nothing was measured" not in cli.err
