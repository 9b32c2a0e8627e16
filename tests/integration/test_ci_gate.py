"""The GitHub Action and the GitLab component of docs/ci in a scratch repository: green, red, one comment that is rewritten.

Their scripts are run by bash as they stand in the files, with a real `sbd` in processes, against a forge on this machine.
"""

from __future__ import annotations

import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import yaml

from tests.helpers import ROOT
from tests.helpers.ci_steps import component_job, run_action, run_job
from tests.helpers.fake_forge import BOT, Forge, forge
from tests.helpers.forge_client import written
from tests.helpers.synthetic_run import NTP
from tests.helpers.two_runs import MORE_PASSES, stored, two_arms

pytestmark = pytest.mark.long

CI = ROOT / "docs" / "ci"
STEPS = ("Gate", "Comment", "Keep the answers")
AGAIN = (
    "import sys; from pathlib import Path; from harness.record.store import read_run; "
    "from tests.helpers.two_runs import begun_now, stored; stored(begun_now(read_run(Path(sys.argv[1]))), Path(sys.argv[2]))"
)
MEASURE = f"PYTHONPATH={ROOT} {sys.executable} -c {shlex.quote(AGAIN)}"
BASE_CMD, NEW_CMD = f"{MEASURE} base/run {{out}}", f"{MEASURE} run {{out}}"
"""What stands here for an `sbd run` of each revision: the run that lies in its checkout, taken anew."""
SLOWER = (NTP, MORE_PASSES)
"""SBD takes four passes more per block."""


class Repository:
    """A scratch repository: the first commit has a run, the change has the same or one with more passes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        self._git("init", "-q", "-b", "main")
        self.program = folder.parent / "sbd"
        self.program.write_text(f'#!/bin/sh\nPYTHONPATH={ROOT} exec {sys.executable} -m harness "$@"\n')
        self.program.chmod(0o755)
        stored(two_arms(jitter=0.05), folder / "run")
        self.base = self._commit("base")

    def change(self, **changes: Any) -> None:
        """A commit with another run in the place of the first."""
        stored(two_arms(jitter=0.05, **changes), self.folder / "new")
        subprocess.run(["rm", "-rf", "run"], cwd=self.folder, check=True)
        (self.folder / "new").rename(self.folder / "run")
        (self.folder / "note").write_text("changed")
        self._commit("change")

    def _commit(self, message: str) -> str:
        self._git("add", "-A")
        self._git("-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "-m", message)
        return self._git("rev-parse", "HEAD").strip()

    def _git(self, *words: str) -> str:
        return subprocess.run(["git", *words], cwd=self.folder, check=True, capture_output=True, text=True).stdout

    def worktree(self) -> None:
        """The revision before, beside the change, as the workflow's own line makes it."""
        jobs = yaml.safe_load((CI / "github-actions.yml").read_text())["jobs"]
        [script] = [step["run"] for step in jobs["deterministic"]["steps"] if "worktree" in step.get("run", "")]
        subprocess.run(["bash", "-c", script.partition("\n")[0]], cwd=self.folder, check=True, capture_output=True)


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    """With one commit."""
    return Repository(tmp_path / "scratch")


@pytest.fixture
def github() -> Iterator[Forge]:
    """GITHUB_TOKEN is an app's token: it may not ask whose it is."""
    with forge() as made:
        yield made


def github_environment(repository: Repository, made: Forge, event: str = "pull_request") -> dict[str, str]:
    """The variables of a job that the action and the program read."""
    where = repository.folder.parent
    (where / "output").write_text("")
    return {
        "PATH": written(where / "bin"),
        "FORGE": made.address,
        "GITHUB_REPOSITORY": "team/model",
        "TOKEN": "secret",
        "GITHUB_EVENT_NAME": event,
        "GITHUB_SERVER_URL": "https://github.test",
        "GITHUB_RUN_ID": "42",
        "GITHUB_OUTPUT": str(where / "output"),
        "GITHUB_STEP_SUMMARY": str(where / "summary.md"),
        "RUNNER_TEMP": str(where),
    }


def gated(repository: Repository, made: Forge, event: str = "pull_request", **inputs: str) -> tuple[int, dict[str, str]]:
    """Code and prints of the action in the repository."""
    told = {"sbd": str(repository.program), "name": "counts", "base-cmd": BASE_CMD, "new-cmd": NEW_CMD}
    code, outputs, printed = run_action(
        CI / "action.yml", told | inputs, repository.folder, github_environment(repository, made, event)
    )
    assert outputs["exit-code"] == str(code)
    return code, printed


def test_green_then_red_in_one_comment(repository: Repository, github: Forge) -> None:
    """One comment of ours after both, with the last answer; a stranger's comment with our first line is left alone."""
    repository.change()
    repository.worktree()
    stranger = github.add("<!-- sbd judgements: counts -->\nmine", {"id": 5, "login": "eve", "type": "User"})
    code, printed = gated(repository, github)
    assert code == 0 and list(printed) == list(STEPS), printed
    assert printed["Keep the answers"].startswith("actions/upload-artifact@")
    [ours] = [one for one in github.comments if one["user"] == BOT]
    assert ours["body"].startswith("<!-- sbd judgements: counts -->\n\n**unchanged**")
    assert "[The job](https://github.test/" in ours["body"]
    assert "**unchanged**" in (repository.folder.parent / "summary.md").read_text()

    stored(two_arms(arms=SLOWER, jitter=0.05), repository.folder / "slow")
    code, printed = gated(repository, github, options="--margin\n0.05\n", **{"new-cmd": f"{MEASURE} slow {{out}}"})
    assert code == 1 and "::error" in printed["Gate"] and "rewrote" in printed["Comment"]
    assert len(github.comments) == 2 and "**changed**" in ours["body"] and stranger["body"].endswith("mine")
    suite = ElementTree.parse(repository.folder.parent / "counts" / "gate.xml")
    assert any((case.get("name") or "").startswith("passes: ") for case in suite.findall(".//testcase[failure]"))
    assert all(headers["Authorization"] == "Bearer secret" for _, _, headers in github.asked)


def test_without_the_right_to_write_the_verdict_stands(repository: Repository, github: Forge) -> None:
    """A fork's token: the comment is refused with what to do, the job's colour is the gate's. A push has no comment."""
    repository.change()
    repository.worktree()
    github.refusal = 403
    code, printed = gated(repository, github)
    assert code == 0 and "::warning title=sbd comment::" in printed["Comment"] and "pull-requests: write" in printed["Comment"]
    code, printed = gated(repository, github, event="push", base="base/run", new="run", **{"base-cmd": "", "new-cmd": ""})
    assert code == 0 and "Comment" not in printed


def test_the_gitlab_component_is_green_then_red_with_one_note(repository: Repository) -> None:
    """The job of the ready file with its own first lines of preparation; the note is found by line and owner."""
    repository.change(arms=SLOWER)
    included = yaml.safe_load((CI / "gitlab-ci.yml").read_text())["include"][0]["inputs"]
    prepare = [line for line in included["prepare"] if line.startswith(("rm ", "git "))]
    told = included | {"prepare": prepare, "sbd": str(repository.program), "base-cmd": BASE_CMD}
    with forge(user={"id": 9, "username": "project_9_bot"}) as gitlab:
        environment = {
            "PATH": written(repository.folder.parent / "bin"),
            "FORGE": gitlab.address,
            "CI_SERVER_URL": "https://gitlab.test",
            "CI_MERGE_REQUEST_IID": "3",
            "CI_MERGE_REQUEST_PROJECT_ID": "11",
            "CI_JOB_URL": "https://gitlab.test/job/5",
            "CI_COMMIT_SHA": "0123456789abcdef",
            "SBD_COMMENT_TOKEN": "secret",
            "CI_MERGE_REQUEST_DIFF_BASE_SHA": repository.base,
        }
        for _ in range(100):  # the note is on the second page
            gitlab.add("another", {"id": 1, "username": "eve"})
        codes = {}
        for colour, new in (("green", BASE_CMD), ("red", NEW_CMD)):
            name, body = component_job(CI / "gitlab-component.yml", told | {"new-cmd": new})
            codes[colour], printed = run_job(body, repository.folder, environment)
        assert name == included["name"] and codes == {"green": 0, "red": 1}, printed
        [note] = gitlab.comments[100:]
        assert "**changed**" in note["body"] and "rewrote the comment" in printed
        assert {headers["Private-Token"] for _, _, headers in gitlab.asked} == {"secret"}
        code, printed = run_job(body, repository.folder, environment | {"SBD_COMMENT_TOKEN": ""})
        assert code == 1 and "SBD_COMMENT_TOKEN is not set" in printed and len(gitlab.comments) == 101
    assert ElementTree.parse(repository.folder / body["artifacts"]["reports"]["junit"]).findall(".//testcase[failure]")
