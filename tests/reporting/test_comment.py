"""What `sbd comment` refuses before it asks anybody; tests/integration/test_ci_gate.py has the platforms' answers."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from harness.errors import UserError
from harness.reporting.exports.comment import MOST_CHARACTERS, post_comment
from harness.reporting.exports.review import marker
from tests.helpers.command import Cli

GITHUB = {
    "GITHUB_ACTIONS": "true",
    "GITHUB_TOKEN": "secret",
    "GITHUB_API_URL": "file:///etc/passwd",
    "GITHUB_REPOSITORY": "a/b",
    "GITHUB_EVENT_PATH": "event.json",
}
GITLAB = {"GITLAB_CI": "true", "SBD_COMMENT_TOKEN": "secret", "CI_MERGE_REQUEST_IID": "1", "CI_API_V4_URL": ""}
PULL = {"pull_request": {"number": 1, "head": {"sha": "0123456789abcdef"}}}


@pytest.mark.parametrize(
    ("environment", "event", "text", "told"),
    [
        ({}, PULL, marker("a"), "no job of GitHub Actions or GitLab CI"),
        (GITHUB | {"GITHUB_TOKEN": ""}, PULL, marker("a"), "GITHUB_TOKEN is not set"),
        (GITHUB, {"ref": "refs/heads/main"}, marker("a"), "no pull request"),
        (GITHUB, PULL, marker("a"), "'file:///etc/passwd' is no address"),
        (GITHUB, PULL, "# Results\n", "its first line names no comment"),
        (GITHUB, PULL, marker("a") + "\n" + "x" * MOST_CHARACTERS, "fit a comment"),
        (GITLAB | {"SBD_COMMENT_TOKEN": ""}, PULL, marker("a"), "project access token"),
        (GITLAB | {"CI_MERGE_REQUEST_IID": ""}, PULL, marker("a"), "no merge request"),
        (GITLAB, PULL, marker("a"), "'' is no address"),
    ],
)
def test_what_cannot_be_posted_is_told(
    cli: Cli, environment: dict[str, str], event: object, text: str, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exit code 2, and the token stands in no message."""
    monkeypatch.chdir(tmp_path)
    for key in ("GITHUB_ACTIONS", "GITLAB_CI"):
        monkeypatch.delenv(key, raising=False)
    for key, value in environment.items():
        monkeypatch.setenv(key, value)
    Path("event.json").write_text(json.dumps(event))
    Path("gate.md").write_text(text)
    assert cli("comment", "gate.md") == 2
    said = cli.err
    assert told in said and "secret" not in said


def test_a_file_that_is_not_there_or_no_text_is_told(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As for every command."""
    monkeypatch.chdir(tmp_path)
    for key, value in GITLAB.items():
        monkeypatch.setenv(key, value)
    monkeypatch.delenv("GITHUB_ACTIONS", raising=False)
    assert cli("comment", "nothing.md") == 2
    Path("gate.md").write_bytes(b"\xff\xfe")
    assert cli("comment", "gate.md") == 2


@pytest.mark.parametrize("title", ["-->", "--!>", "> a", "a\nb", "<!-- x -->", "é"])
def test_a_first_line_ends_where_it_should(title: str) -> None:
    """A browser ends a comment at the first --> or --!>, and one that begins with > at once."""
    line = marker(title)
    assert line.count("\n") == 0 and line.endswith(" -->")
    assert not re.search("--!?>", line[4:-3]) and not line[4:].lstrip().startswith(">")


def test_no_answer_is_told_with_what_to_do(tmp_path: Path) -> None:
    """A port that nobody listens at."""
    (tmp_path / "gate.md").write_text(marker("a"))
    environment = GITLAB | {"CI_API_V4_URL": "http://127.0.0.1:9"}
    with pytest.raises(UserError, match="no answer from"):
        post_comment(tmp_path / "gate.md", None, environment)
