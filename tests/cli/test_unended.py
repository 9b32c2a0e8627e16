"""A run that was stopped decides nothing until it is finished, and a run that was repeated says so."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from harness.record.publication import repeated
from harness.record.schema import Run
from harness.record.store import HEADER
from tests.helpers.command import Cli
from tests.helpers.cut_records import stopped
from tests.helpers.published import published
from tests.helpers.records import RECORDS
from tests.helpers.sealed_lines import reseal

OPEN = "the run has not ended (part reference, process 3 of 3)"


@pytest.mark.parametrize("claim", ["wall_speedup >= 0.1", "wall_speedup >= 50", "nfe_speedup >= 1.5", "wall_speedup >= 1.6"])
def test_a_stopped_run_decides_nothing(cli: Cli, tmp_path: Path, claim: str) -> None:
    """The published quickstart, killed in its third process: it confirmed the first and the third, and refuted the second."""
    folder = stopped("quickstart", tmp_path / "stopped", process=2, kept=40)
    assert cli(f"verify {folder} --json --claim", claim) == 3
    data = json.loads(cli.out)
    (found,) = data["judgements"]
    assert found["state"] == "inconclusive" and found["reason"].startswith(f"{OPEN}, so nothing is decided; until now ")
    assert found["remedy"].startswith("finish the run") and data["records"][0].endswith(f"; {OPEN}")


def test_what_is_void_stays_void(cli: Cli, tmp_path: Path) -> None:
    """A longer run would not mend it."""
    folder = stopped("quickstart", tmp_path / "stopped", process=2, kept=40)
    assert cli(f"verify {folder} --claim", "joules_per_token <= 1") == 4


def with_events(run: Run, *events: dict[str, object]) -> Run:
    """The run with these events in place of its own begins and ends."""
    others = [one for one in run.sessions if one.get("event") not in ("start", "end")]
    return run.model_copy(update={"sessions": [*others, *events]})


def mark(event: str, process: int | None, **more: object) -> dict[str, object]:
    """A begin or an end of a process of quickstart's only part."""
    return {"event": event, "part": "reference"} | ({} if process is None else {"process": process}) | more


ENDED = [mark(event, process) for process in range(3) for event in ("start", "end")]


@pytest.mark.parametrize(
    ("events", "ended"),
    [
        (ENDED, True),
        (ENDED[:5], False),
        (ENDED[:4], False),
        ([*ENDED[:5], *ENDED[4:]], True),
        ([*ENDED, mark("start", 1)], False),
        ([*ENDED[:5], {"event": "end"}], True),
        ([one | {"node": "a"} for one in ENDED], False),
        ([*(one | {"node": "a"} for one in ENDED), {"event": "end"}], True),
        ([], True),
    ],
)
def test_every_planned_process_comes_to_its_end(events: list[dict[str, object]], ended: bool) -> None:
    """Killed, not begun, begun again, begun anew, ended as a whole, which a run over nodes needs; a record without any."""
    assert (with_events(published("quickstart"), *events).unended is None) is ended


@pytest.mark.parametrize("name", ["quickstart", "verified_250m", "claim_llama31_8b_h200", "real_model_identity"])
def test_published_runs_have_ended(name: str) -> None:
    """Of several versions, one part or more, in fresh processes or none, continued ones too."""
    assert published(name).unended is None


def test_a_repeated_run_says_which_it_is(cli: Cli, tmp_path: Path) -> None:
    """Of the runs of one scenario in a folder, by when they began; copies, other scenarios and damaged records do not count."""
    runs, small = tmp_path / "runs", RECORDS / "v8"
    for number, name in enumerate(("b", "c", "a", "other")):
        shutil.copytree(small, runs / name)
        header = json.loads((small / HEADER).read_text())
        header |= {"run_id": f"run-{number}", "created_at": f"2026-01-0{number + 1}T00:00:00+00:00"}
        header |= {"scenario_digest": "0" * 64} if name == "other" else {}
        (runs / name / HEADER).write_text(json.dumps(header))
        reseal(runs / name)
    shutil.copytree(runs / "b", runs / "copy")
    (runs / "damaged").mkdir()
    (runs / "damaged" / HEADER).write_text("{")
    places = {name: repeated(runs / name) for name in ("a", "b", "c", "other")}
    said = {name: f"run {place} of 3 of this scenario here" for name, place in (("a", 3), ("b", 1), ("c", 2))}
    assert places == said | {"other": None} and repeated(runs / "a" / HEADER) == said["a"]
    cli(f"verify {runs}/a")
    assert f"record  {said['a']}\n" in cli.out
    assert cli(f"gallery {runs}") == 0 and f", {said['a']}</p>" in (runs / "index.html").read_text()
    assert cli(f"history add {runs}/a {runs}/b {runs}/c --db {tmp_path}/h.sqlite") == 0
    assert cli(f"history show run-1 --db {tmp_path}/h.sqlite") == 0 and ", 3 runs here" in cli.out
