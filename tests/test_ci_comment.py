"""The recipe that keeps one comment on a pull or merge request: its shell in docs/ci, against a fake `gh` and `glab`.

tests/integration/test_ci_gate.py runs the whole action and component.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from harness.reporting.exports import export
from harness.reporting.exports.review import marker
from tests.helpers import ROOT
from tests.helpers.ci_steps import bash, component_job
from tests.helpers.fake_forge import BOT, Forge, forge
from tests.helpers.forge_client import written
from tests.helpers.synthetic_judgements import answer, of

pytestmark = pytest.mark.skipif(shutil.which("jq") is None, reason="the recipe needs jq, as the platforms' runners have it")

CI = ROOT / "docs" / "ci"
ACTION = yaml.safe_load((CI / "action.yml").read_text(encoding="utf-8"))
[ON_GITHUB] = [step for step in ACTION["runs"]["steps"] if step["name"] == "Comment"]
_, ON_GITLAB = component_job(CI / "gitlab-component.yml", {"prepare": ["true"], "name": "counts"})
EVE = {"id": 5, "login": "eve", "username": "eve", "type": "User"}
ME = {"id": 9, "login": "me", "username": "project_9_bot", "type": "User"}
FIRST = "<!-- sbd judgements: counts -->"
DONE = subprocess.CompletedProcess[str]


@pytest.fixture
def server() -> Iterator[Forge]:
    """A forge with an app's token, which may not ask whose it is."""
    with forge() as made:
        yield made


def on_github(folder: Path, made: Forge, state: str = "met") -> DONE:
    """The step of the action after a gate with this answer."""
    (folder / "sbd-gate").mkdir(exist_ok=True)
    (folder / "sbd-gate" / "gate.md").write_text(export(of(answer(state)), "markdown"))
    environment = {
        "PATH": written(folder / "bin"),
        "FORGE": made.address,
        "NAME": "counts",
        "FOLDER": str(folder / "sbd-gate"),
        "NUMBER": "7",
        "COMMIT": "0123456789abcdef",
        "GH_TOKEN": "secret",
        "GITHUB_REPOSITORY": "team/model",
        "GITHUB_SERVER_URL": "https://github.test",
        "GITHUB_RUN_ID": "42",
    }
    assert set(ON_GITHUB["env"]) - set(environment) == {"GH_ENTERPRISE_TOKEN"}
    return bash(ON_GITHUB["run"], folder, environment)


def on_gitlab(folder: Path, made: Forge, token: str = "secret", path: str | None = None) -> DONE:
    """What runs after the component's job."""
    (folder / "sbd-gate").mkdir(exist_ok=True)
    (folder / "sbd-gate" / "gate.md").write_text(export(of(answer("met")), "markdown"))
    environment = {
        "PATH": path or written(folder / "bin"),
        "FORGE": made.address,
        "SBD_COMMENT": "true",
        "SBD_COMMENT_TOKEN": token,
        "SBD_NAME": "counts",
        "CI_SERVER_URL": "https://gitlab.test",
        "CI_MERGE_REQUEST_PROJECT_ID": "11",
        "CI_MERGE_REQUEST_IID": "3",
        "CI_JOB_URL": "https://gitlab.test/job/5",
        "CI_COMMIT_SHA": "0123456789abcdef",
    }
    return bash("\n".join(ON_GITLAB["after_script"]), folder, environment)


def test_the_first_line_is_that_of_the_exporter() -> None:
    """A comment that an older version posted is found too."""
    assert marker("counts") == FIRST


def test_github_s_comment_is_posted_once_and_then_rewritten(tmp_path: Path, server: Forge) -> None:
    """A stranger's comment with our first line is left alone, and so is another gate's of the same bot."""
    stranger, other = server.add(f"{FIRST}\nmine", EVE), server.add("<!-- sbd judgements: times -->\ntimes")
    done = on_github(tmp_path, server)
    assert done.returncode == 0 and "posted" in done.stdout, done
    ours = server.comments[2]["body"]
    assert ours.startswith(f"{FIRST}\n\n**confirmed**") and ours.count("<!--") == 1
    assert ours.endswith("\n[The job](https://github.test/team/model/actions/runs/42), of 0123456789ab.\n")
    done = on_github(tmp_path, server, "missed")
    assert "rewrote" in done.stdout and len(server.comments) == 3 and "**refuted**" in server.comments[2]["body"]
    assert stranger["body"].endswith("mine") and other["body"].endswith("times")
    assert {headers["Authorization"] for _, _, headers in server.asked} == {"Bearer secret"}


def test_github_s_own_comment_is_found_among_many_and_with_line_ends_of_windows(tmp_path: Path, server: Forge) -> None:
    """On the third page; GitHub may keep what was typed in a browser with carriage returns."""
    for _ in range(230):
        server.add("another", EVE)
    ours = server.add(f"{FIRST}\r\nold", BOT)
    assert "rewrote" in on_github(tmp_path, server).stdout
    assert len(server.comments) == 231 and "old" not in ours["body"]


def test_a_token_of_a_user_finds_that_user_s_comment(tmp_path: Path) -> None:
    """Not that of a bot."""
    with forge(user=ME) as made:
        bot, own = made.add(f"{FIRST}\nbot", BOT), made.add(f"{FIRST}\nown", ME)
        assert "rewrote" in on_github(tmp_path, made).stdout
        assert bot["body"].endswith("bot") and "own" not in own["body"]


def test_without_the_right_to_write_the_step_is_green_and_says_what_to_do(tmp_path: Path, server: Forge) -> None:
    """A fork's pull request."""
    server.refusal = 403
    done = on_github(tmp_path, server)
    assert done.returncode == 0 and "::warning title=sbd comment::" in done.stdout and "pull-requests: write" in done.stdout
    assert server.comments == [] and "secret" not in done.stdout + done.stderr


def test_without_an_answer_nothing_is_posted(tmp_path: Path, server: Forge) -> None:
    """The gate failed before it could write."""
    environment = {"FOLDER": str(tmp_path), "NAME": "counts", "FORGE": server.address}
    done = bash(ON_GITHUB["run"], tmp_path, environment | dict.fromkeys(("GITHUB_SERVER_URL", "GITHUB_REPOSITORY"), ""))
    assert "nothing to post" in done.stdout and server.asked == []


def test_gitlab_s_note_is_found_by_line_and_owner(tmp_path: Path) -> None:
    """On the second page; another's note with our first line is left alone."""
    with forge(user=ME) as made:
        for _ in range(100):
            made.add("another", EVE)
        stranger = made.add(f"{FIRST}\nmine", EVE)
        assert "posted a comment" in on_gitlab(tmp_path, made).stdout
        done = on_gitlab(tmp_path, made)
        assert done.returncode == 0 and "rewrote the comment" in done.stdout, done
        assert len(made.comments) == 102 and stranger["body"].endswith("mine")
        assert made.comments[101]["body"].startswith(f"{FIRST}\n\n**confirmed**")
        assert "[The job](https://gitlab.test/job/5), of 0123456789ab." in made.comments[101]["body"]
        assert {headers["Private-Token"] for _, _, headers in made.asked} == {"secret"}


def test_gitlab_without_a_token_or_its_program_says_so(tmp_path: Path) -> None:
    """Without glab, and where the platform refuses."""
    with forge(user=ME) as made:
        assert "SBD_COMMENT_TOKEN is not set" in on_gitlab(tmp_path, made, token="").stdout
        made.refusal = 403
        assert "no comment; it needs glab" in on_gitlab(tmp_path, made).stdout
        (tmp_path / "few").mkdir()
        for name in ("bash", "tail", "jq"):
            (tmp_path / "few" / name).symlink_to(shutil.which(name) or "")
        assert "no comment; it needs glab" in on_gitlab(tmp_path, made, path=str(tmp_path / "few")).stdout
        assert made.comments == []
