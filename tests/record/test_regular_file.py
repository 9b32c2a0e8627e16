"""A run's folder is written and read as the regular files it holds: a link, a device or a pipe in it is refused by name."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.errors import StorageError, UserError
from harness.record.journal import Journal
from harness.record.publication import publish
from harness.record.regular_file import open_regular, read_regular, refuse_irregular, write_whole
from harness.record.store import RunStore, read_run
from tests.helpers.begun_runs import begun, full_disk, make_sample, resumed

SECRET = "the user's own file"


def link(path: Path, target: Path) -> None:
    """A symbolic link."""
    path.symlink_to(target)


def pipe(path: Path, target: Path) -> None:
    """A named pipe, whose other end nobody opens."""
    os.mkfifo(path)


LAID = pytest.mark.parametrize("lay", [link, pipe])


@LAID
@pytest.mark.parametrize("name", ["run.json", "samples.jsonl", "samples.jsonl.gz", "events.jsonl"])
def test_a_record_is_not_read_through_a_link_or_a_pipe(tmp_path: Path, name: str, lay: Callable[[Path, Path], None]) -> None:
    """Nor is it waited for: each is the user's mistake, and the message names the file."""
    folder = begun(tmp_path / "run")
    own = folder / name
    kept = tmp_path / "own"
    own.rename(kept) if own.exists() else kept.write_bytes(b"")
    lay(own, kept)
    with pytest.raises(UserError, match=f"{name}: is a (symbolic link|pipe)"):
        read_run(folder)


@pytest.mark.parametrize("name", ["samples.jsonl", "events.jsonl", ".begun"])
def test_nothing_of_a_run_is_written_through_a_link(tmp_path: Path, name: str) -> None:
    """The user's file that the link names stays as it was."""
    folder = begun(tmp_path / "run")
    mine = tmp_path / "mine"
    mine.write_text(SECRET)
    (folder / name).unlink(missing_ok=True)
    (folder / name).symlink_to(mine)
    with pytest.raises(UserError, match="symbolic link"), RunStore(folder) as store:
        store.hold()
        store.mark("case")
    assert mine.read_text() == SECRET


@pytest.mark.parametrize("name", ["report.html", "report.json"])
def test_publishing_copies_no_file_that_a_link_names(tmp_path: Path, name: str) -> None:
    """A link to a secret in somebody's run does not put the secret into a folder that is published."""
    begun(tmp_path / "run")
    (tmp_path / "mine").write_text(SECRET)
    (tmp_path / "run" / name).symlink_to(tmp_path / "mine")
    with pytest.raises(UserError, match=f"{name}: is a symbolic link"):
        publish(tmp_path / "run", tmp_path / "published")
    assert not (tmp_path / "published").exists()


def test_a_target_that_is_a_link_to_itself_is_refused_in_words(tmp_path: Path) -> None:
    """There is nothing that it leads to."""
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    with pytest.raises((UserError, StorageError)):
        publish(begun(tmp_path / "run"), tmp_path / "loop")


def test_a_device_is_not_replaced(tmp_path: Path) -> None:
    """As root `--out /dev/null` once replaced the device; a pipe of the user's stands for it here."""
    os.mkfifo(tmp_path / "device")
    for path, kind in ((tmp_path / "device", "a pipe"), (tmp_path, "a folder")):
        with pytest.raises(UserError, match=f"is {kind}"):
            write_whole(path, b"page")
    with pytest.raises(UserError, match="is a device"):
        refuse_irregular(Path(os.devnull))
    assert stat.S_ISFIFO(os.stat(tmp_path / "device").st_mode)


def test_a_partial_file_is_no_way_in_and_leaves_no_trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A link laid where the partial file will be is removed, not followed; a write that fails frees what it took."""
    mine, page = tmp_path / "mine", tmp_path / "report.html"
    mine.write_text(SECRET)
    (tmp_path / f".report.html.{os.getpid()}.partial").symlink_to(mine)
    write_whole(page, b"page")
    assert page.read_bytes() == b"page" and mine.read_text() == SECRET
    monkeypatch.setattr(os, "fsync", full_disk)
    with pytest.raises(StorageError, match="No space left"):
        write_whole(page, b"another")
    assert sorted(file.name for file in tmp_path.iterdir()) == ["mine", "report.html"] and page.read_bytes() == b"page"


def test_a_regular_file_opens_as_ever(tmp_path: Path) -> None:
    """New with O_CREAT, absent without; what was written is read."""
    with pytest.raises(FileNotFoundError):
        open_regular(tmp_path / "new", os.O_RDONLY)
    os.close(open_regular(tmp_path / "new", os.O_WRONLY | os.O_CREAT))
    assert read_regular(tmp_path / "new", 10) == b""
    Journal(tmp_path / "new").close()


def test_a_target_with_other_values_under_the_same_keys_keeps_them(tmp_path: Path) -> None:
    """Two copies of a run that each took the missing sample: neither replaces the other's."""
    begun(tmp_path / "run")
    one, two = publish(tmp_path / "run", tmp_path / "one"), publish(tmp_path / "run", tmp_path / "two")
    for folder, decode_s in ((one, 1.0), (two, 2.0)):
        with resumed(folder) as store:
            store.append(make_sample(7).model_copy(update={"decode_s": decode_s}))
    with pytest.raises(UserError, match=r"holds 1 samples that .*one lacks or took with other values"):
        publish(one, two)
    assert [sample.decode_s for sample in read_run(two).samples if sample.group == 7] == [2.0]


def test_a_file_with_another_name_is_read_and_not_written(tmp_path: Path) -> None:
    """A hard link in somebody's folder may be a file of the user's."""
    (tmp_path / "mine").write_text("mine")
    os.link(tmp_path / "mine", tmp_path / "samples.jsonl")
    assert read_regular(tmp_path / "samples.jsonl", 10) == b"mine"
    with pytest.raises(UserError, match="hard link"):
        open_regular(tmp_path / "samples.jsonl", os.O_RDWR)
