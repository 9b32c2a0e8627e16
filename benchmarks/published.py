"""Brings back a published record that the tree no longer holds, from the commit that does.

    python -m benchmarks.published              the records that are not in the tree
    python -m benchmarks.published NAME ...     writes them beside their pages, each file held to its SHA-256
    python -m benchmarks.published --leave NAME writes reports/NAME/elsewhere.json; `git rm` the record's files after it

Records above 1 MB stay in the tree only if a scenario, a benchmark or a test reads them. The others are in the history of this
repository: reports/NAME/elsewhere.json says which commit holds one. git does not track what is written here.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from harness.errors import RecordError, SbdError, UserError
from harness.record.journal import packed
from harness.record.regular_file import write_whole
from harness.record.seal import SEAL, digest
from harness.record.store import EVENTS, HEADER, JOURNALS, SIGNATURE
from harness.reporting.gallery import ELSEWHERE, Elsewhere, read_elsewhere, row_of

ROOT = Path(__file__).resolve().parent.parent
FILES = (HEADER, *(packed(Path(name)).name for name in JOURNALS), EVENTS, SEAL, SIGNATURE)
"""Of a published record."""


def restore(name: str, root: Path = ROOT) -> Path:
    """Write the record's files into reports/NAME, all or none; returns the folder.

    Raises:
        UserError: this clone lacks the commit that holds it.
        RecordError: nothing says where it is, or a file of the commit has another digest.
    """
    folder = root / "reports" / name
    card = read_elsewhere(folder)
    contents = {file: _at(card.commit, f"reports/{name}/{file}", root) for file in card.files}
    for file, wanted in card.files.items():
        if (found := digest(contents[file])) != wanted:
            raise RecordError(f"{folder / file}: has SHA-256 {found} at commit {card.commit}, {wanted} is expected")
    for file, content in contents.items():
        write_whole(folder / file, content)
    return folder


def leave(name: str, root: Path = ROOT) -> Path:
    """Write where the record is and what the gallery says of it; returns that file. Its pages must name the record.

    Raises:
        UserError: the last commit of the folder does not hold the record as it is.
        RecordError: there is none.
    """
    folder = root / "reports" / name
    row, seal = row_of(folder)
    paths = (f"reports/{name}/{file}" for file in FILES)
    last_written = ("log", "-1", "--diff-filter=AM", "--format=%H", "--", *paths)  # the commit that removes them is not meant
    commit = _git(*last_written, root=root).decode().strip()
    held = {file: (folder / file).read_bytes() for file in FILES if (folder / file).exists()}
    for file, content in held.items():
        if _at(commit, f"reports/{name}/{file}", root) != content:
            raise UserError(f"{folder / file}: is not what commit {commit} holds; commit it first")
    card = Elsewhere(
        restored_by=f"python -m benchmarks.published {name}",
        commit=commit,
        files={file: digest(content) for file, content in held.items()},
        record=seal.record if seal else "",
        row=row,
    )
    write_whole(folder / ELSEWHERE, card.model_dump_json(indent=1).encode() + b"\n")
    return folder / ELSEWHERE


def _at(commit: str, path: str, root: Path) -> bytes:
    """A file as a commit holds it."""
    try:
        return _git("show", f"{commit}:{path}", root=root)
    except subprocess.CalledProcessError as error:
        raise UserError(
            f"{path}: this clone lacks it at commit {commit}, as shallow ones do; fetch it: git fetch origin {commit}, or all: "
            "git fetch --unshallow"
        ) from error


def _git(*arguments: str, root: Path) -> bytes:
    return subprocess.run(["git", *arguments], cwd=root, capture_output=True, check=True).stdout


def main() -> None:
    """List, restore or leave."""
    names = sys.argv[1:]
    try:
        if not names:
            for card in sorted((ROOT / "reports").glob(f"*/{ELSEWHERE}")):
                print(card.parent.name, "is here" if (card.parent / HEADER).exists() else "is not here")
        elif names[0] == "--leave":
            print(*map(leave, names[1:]), sep="\n")
        else:
            print(*map(restore, names), sep="\n")
    except SbdError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
