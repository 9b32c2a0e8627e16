"""A record that left the tree keeps its row in the gallery, and comes back as it was or not at all."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from benchmarks import published
from harness.errors import RecordError, UserError
from harness.record.publication import publish
from harness.reporting.gallery import ELSEWHERE, read_elsewhere, render
from tests.helpers.two_runs import stored, two_arms


def git(root: Path, *arguments: str) -> bytes:
    """What one call of git prints, as somebody with a name."""
    name = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "init.defaultBranch=main")
    return subprocess.run(["git", *name, *arguments], cwd=root, check=True, capture_output=True).stdout


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A repository whose last commit but one holds a record."""
    root = tmp_path / "repository"
    folder = publish(stored(two_arms(jitter=0.05), tmp_path / "run"), root / "reports" / "large")
    git(root, "init")
    git(root, "add", ".")
    git(root, "commit", "-m", "a record")
    published.leave("large", root)
    for name in published.FILES:
        (folder / name).unlink(missing_ok=True)
    git(root, "add", ".")
    git(root, "commit", "-m", "the record leaves")
    return root


def test_it_is_listed_as_before_and_comes_back_to_the_byte(root: Path) -> None:
    """The row differs in where the record is alone; restored, the gallery is that of the record."""
    folder = root / "reports" / "large"
    away = render(root / "reports")
    assert "python -m benchmarks.published large" in away and away.count("<article") == 1
    assert published.restore("large", root) == folder
    files = read_elsewhere(folder).files
    assert len(files) == 4 and all(
        git(root, "show", f"HEAD~:reports/large/{name}") == (folder / name).read_bytes() for name in files
    )
    card = (folder / ELSEWHERE).read_bytes()
    assert published.leave("large", root).read_bytes() == card, "after a new page or formula it leaves again"
    here = render(root / "reports")
    assert [line for line in here.splitlines() if "Record: " not in line] == [
        line for line in away.splitlines() if "Record: " not in line
    ]
    assert 'href="large/run.json"' in here and "benchmarks.published" not in here


def test_another_digest_and_a_page_of_another_record_are_not_taken(root: Path) -> None:
    """Nothing is written where one file differs; a page that names another record is not linked."""
    folder = root / "reports" / "large"
    card = (folder / ELSEWHERE).read_text()
    digest = read_elsewhere(folder).files["run.json"]
    (folder / ELSEWHERE).write_text(card.replace(digest, "0" * 64))
    with pytest.raises(RecordError, match=r"run\.json: has SHA-256"):
        published.restore("large", root)
    assert sorted(file.name for file in folder.iterdir()) == [ELSEWHERE]
    (folder / "report.html").write_text(f'<meta name="sbd-record" content="{"0" * 64}">')
    assert "report.html is not of this record (stale)" in render(root / "reports")
    (folder / "report.html").write_text(f'<meta name="sbd-record" content="{read_elsewhere(folder).record}">')
    assert 'href="large/report.html"' in render(root / "reports")
    (folder / ELSEWHERE).write_text("{}")
    with pytest.raises(RecordError, match="does not say where a record is"):
        published.restore("large", root)


def test_a_shallow_clone_is_told_what_to_fetch(root: Path, tmp_path: Path) -> None:
    """Its one commit does not hold the record."""
    git(tmp_path, "clone", "--depth", "1", root.as_uri(), "shallow")
    with pytest.raises(UserError, match=r"git fetch origin [0-9a-f]{40}"):
        published.restore("large", tmp_path / "shallow")


def test_a_record_that_no_commit_holds_does_not_leave(root: Path) -> None:
    """Its last commit has other bytes."""
    folder = published.restore("large", root)
    (folder / "run.json").write_bytes((folder / "run.json").read_bytes() + b"\n")
    (folder / "seal.json").unlink()
    with pytest.raises((UserError, RecordError)):
        published.leave("large", root)
