"""A run in which every case fails: no command takes its record for a measurement, and each says why."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.errors import DoesNotFitError, NoTokenError
from harness.models import KNOWN_SHAPES
from harness.runner.runner import run
from tests.helpers.command import Cli, fake_runner, sbd
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
    error: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`sbd run` ends with the code of void, and so does whatever judges its record; what only shows it refuses."""
    monkeypatch.setenv("COLUMNS", "400")
    file = tmp_path / "fake.yaml"
    file.write_text(SCENARIO)
    folder = str(run(file, tmp_path / "out", machine=fake_machine(Failing(KNOWN_SHAPES["llama-250m"], error=error))))
    fake_runner(monkeypatch, Path(folder))
    for arguments, code in (
        (("run", str(file), "--no-report"), VOID),
        (("run", str(file)), VOID),
        (("verify", folder), VOID),
        (("gate", folder, folder), VOID),
        (("compare", folder, folder), MISTAKE),
        (("report", folder), 0),
        (("history", "add", folder, "--db", str(tmp_path / "h.sqlite")), MISTAKE),
    ):
        assert sbd(monkeypatch, *arguments) == code, arguments
        told = capsys.readouterr()
        assert "nothing was measured: 4 of 4 cases failed" in told.out + told.err, arguments
        assert str(error) in told.out + told.err and "one/synthetic/b1/ntp" in told.out + told.err, arguments
    assert "nothing was measured: 4 of 4 cases failed" in (Path(folder) / "report.html").read_text(encoding="utf-8").lower()


def test_a_run_with_one_good_case_is_a_measurement(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other case is an outcome of the record."""
    file = tmp_path / "fake.yaml"
    file.write_text(SCENARIO)
    engine = FakeEngine(KNOWN_SHAPES["llama-250m"], too_big=2, error=DoesNotFitError("needs 9 GB"))
    fake_runner(monkeypatch, run(file, tmp_path / "out", machine=fake_machine(engine)))
    assert cli(f"run --no-report {file}") == 0
    assert "nothing was measured" not in cli.err
