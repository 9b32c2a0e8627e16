"""Lines of a record carry the hash of the line before, its end is sealed and may be signed; honest ones are never broken."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import random
import shutil
import subprocess
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from harness.errors import RecordError, UserError
from harness.record.publication import publish
from harness.record.schema import RECORD_VERSION
from harness.record.seal import Seal
from harness.record.signature import signer
from harness.record.store import RunStore, read_run
from tests.helpers.begun_runs import begun, make_header, make_sample, resumed
from tests.helpers.records import RECORDS

NEEDS_TOOL = pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="ssh-keygen is not installed")


def gone_on(folder: Path, *groups: int) -> None:
    """Take these samples, and an event for each."""
    with resumed(folder) as store:
        for group in groups:
            store.append(make_sample(group))
            store.append_session({"group": group})


def seal_of(folder: Path) -> Seal:
    """As read."""
    found = read_run(folder).seal
    assert found is not None
    return found


def test_every_line_carries_the_hash_of_the_line_before(tmp_path: Path) -> None:
    """By hand: the first line that of run.json, every other that of the whole line before it."""
    folder = begun(tmp_path / "run", samples=3)
    before = hashlib.sha256((folder / "run.json").read_bytes()).hexdigest()
    for line in (folder / "samples.jsonl").read_bytes().splitlines():
        assert json.loads(line)["before"] == before
        before = hashlib.sha256(line).hexdigest()
    assert seal_of(folder).words == "sealed, not signed"


def test_every_change_of_a_sealed_record_is_seen(tmp_path: Path) -> None:
    """One byte of any file made another: the seal is broken, or the file cannot be read at all."""
    folder, luck = begun(tmp_path / "run", samples=3), random.Random(1)
    gone_on(folder, 3)
    for name in ("run.json", "samples.jsonl", "events.jsonl", "seal.json"):
        whole = (folder / name).read_bytes()
        for _ in range(60):
            place = luck.randrange(len(whole) - 1)
            other = luck.choice([one for one in b'0a{" ' if one != whole[place]])
            (folder / name).write_bytes(whole[:place] + bytes([other]) + whole[place + 1 :])
            with suppress(RecordError):
                assert seal_of(folder).state == "broken", (name, place, other)
        (folder / name).write_bytes(whole)
    assert seal_of(folder).state == "sealed"


def test_a_record_that_was_killed_or_gone_on_with_is_never_broken(tmp_path: Path) -> None:
    """200 kills at any byte of either file, each gone on with; between them it is unsealed, in the end sealed."""
    luck = random.Random(7)
    folder = begun(tmp_path / "run", samples=2)
    for trial in range(200):
        with resumed(folder) as store:
            kept = {name: (folder / name).stat().st_size for name in ("samples.jsonl", "events.jsonl")}
            for group in range(luck.randint(0, 2)):
                store.append(make_sample(10 * trial + group))
                store.append_session({"trial": trial})
            store._origin = None  # killed: nobody seals it
        for name, size in kept.items():
            with (folder / name).open("rb+") as file:
                file.truncate(luck.randint(size, (folder / name).stat().st_size))
        if trial % 40 == 20:
            publish(folder, folder)
            assert seal_of(folder).state == "sealed"
        assert seal_of(folder).state != "broken", trial
    gone_on(folder)
    assert seal_of(folder).state == "sealed" and len(read_run(folder).samples) > 20


def test_a_child_goes_on_with_the_chain_and_its_sender_after_it(tmp_path: Path) -> None:
    """The lent journal links to the sender's last line, and the sender to the child's; only the owner seals."""
    folder = begun(tmp_path / "run", samples=1)
    with resumed(folder) as sender:
        sender.append(make_sample(1))
        with resumed(folder, sender.hold()) as child:
            child.append(make_sample(2))
        assert seal_of(folder).words == "unsealed (2 lines were written after it was sealed)"
        sender.append(make_sample(3))
    assert seal_of(folder).state == "sealed" and len(read_run(folder).samples) == 4


def test_a_record_without_its_seal_is_unsealed_and_not_broken(tmp_path: Path) -> None:
    """One of format 6, and one whose seal.json is gone."""
    assert seal_of(RECORDS / "v6").words == "unsealed (records of format 6 carried no seal)"
    folder = begun(tmp_path / "run", samples=1)
    (folder / "seal.json").unlink()
    assert seal_of(folder).words == "unsealed (its run has not ended)"
    assert seal_of(RECORDS / "v7").state == "sealed"


def test_a_header_made_older_does_not_hide_a_broken_chain(tmp_path: Path) -> None:
    """Lines that carry hashes under a header of format 6 were not written so."""
    folder = begun(tmp_path / "run", samples=2)
    header = (folder / "run.json").read_text().replace(f'"record_version": {RECORD_VERSION}', '"record_version": 6')
    (folder / "run.json").write_text(header)
    (folder / "seal.json").unlink()
    assert seal_of(folder).state == "broken"


def test_an_older_record_is_sealed_as_it_is_published(tmp_path: Path) -> None:
    """By the bytes of its lines: a change of one figure is seen, and a broken record is not published."""
    target = publish(RECORDS / "v6", tmp_path / "kept")
    assert seal_of(target).state == "sealed"
    events = gzip.decompress((target / "events.jsonl.gz").read_bytes()).replace(b'"process": 0', b'"process": 1', 1)
    (target / "events.jsonl.gz").write_bytes(gzip.compress(events))
    assert seal_of(target).state == "broken"
    with pytest.raises(UserError, match=r"its seal is broken .*restore the record as the run wrote it"):
        publish(target, tmp_path / "again")


def lines_of(file: Path, change: Callable[[list[bytes]], list[bytes]]) -> None:
    """Write the file anew with its lines changed."""
    file.write_bytes(b"".join(change(file.read_bytes().splitlines(keepends=True))))


BREAKS: dict[str, Callable[[Path], object]] = {
    "a line cut from the start": lambda run: lines_of(run / "samples.jsonl", lambda held: held[1:]),
    "a line cut from the middle": lambda run: lines_of(run / "samples.jsonl", lambda held: held[:1] + held[2:]),
    "a line cut from the end": lambda run: lines_of(run / "samples.jsonl", lambda held: held[:-1]),
    "half a line cut from the end": lambda run: os.truncate(run / "samples.jsonl", (run / "samples.jsonl").stat().st_size - 9),
    "all samples cut": lambda run: (run / "samples.jsonl").unlink(),
    "lines swapped": lambda run: lines_of(run / "samples.jsonl", lambda held: [held[1], held[0], *held[2:]]),
    "a line doubled": lambda run: lines_of(run / "samples.jsonl", lambda held: [*held, held[-1]]),
    "a figure edited": lambda run: lines_of(run / "samples.jsonl", lambda held: [held[0].replace(b"0.25", b"0.75"), *held[1:]]),
    "the header edited": lambda run: (run / "run.json").write_text((run / "run.json").read_text().replace('"?"', '"R?"')),
    "events cut": lambda run: os.truncate(run / "events.jsonl", 0),
    "a seal that is none": lambda run: (run / "seal.json").write_text("{}"),
    "another's signature": lambda run: (run / "seal.json.sig").write_text("none"),
    "a signature without its seal": lambda run: [(run / "seal.json.sig").write_text("none"), (run / "seal.json").unlink()],
}


NAMED = {
    "a line cut from the start": "samples.jsonl:1 ",
    "a line cut from the middle": "samples.jsonl:2 ",
    "a line cut from the end": "the first 5 lines, of 4",
    "lines swapped": "samples.jsonl:1 ",
}


@pytest.mark.parametrize("kind", NAMED)
def test_lines_taken_out_or_moved_are_named(tmp_path: Path, kind: str) -> None:
    """The file and the line are named from which on the record is another."""
    folder = begun(tmp_path / "run", samples=5)
    BREAKS[kind](folder)
    assert seal_of(folder).state == "broken" and NAMED[kind] in seal_of(folder).reason


@pytest.mark.parametrize("kind", BREAKS)
def test_a_broken_record_is_neither_gone_on_with_nor_published_onto(tmp_path: Path, kind: str) -> None:
    """Each way: nothing is written, so what it shows is not mended by the next seal."""
    folder = begun(tmp_path / "run", samples=4)
    gone_on(folder, 9)
    whole = publish(folder, tmp_path / "whole")
    BREAKS[kind](folder)
    before = {file.name: file.read_bytes() for file in folder.iterdir()}
    with pytest.raises(UserError, match=r"its seal is broken \(.*nothing was written"):
        gone_on(folder, 10)
    with pytest.raises(UserError, match=r"its seal is broken \(.*nothing was written"), RunStore(folder) as store:
        store.seal()
    for target in (folder, tmp_path / "new"):
        with pytest.raises(UserError, match="its seal is broken"):
            publish(folder, target)
    with pytest.raises(UserError, match=r"its seal is broken|holds \d+ events|holds \d+ samples"):
        publish(whole, folder)
    assert {file.name: file.read_bytes() for file in folder.iterdir()} == before and not (tmp_path / "new").exists()


def test_a_run_whose_header_is_gone_is_not_begun_anew(tmp_path: Path) -> None:
    """Its samples would stand before those of the new one, and break its chain."""
    folder = begun(tmp_path / "run", samples=2)
    (folder / "run.json").unlink()
    with pytest.raises(UserError, match=r"holds lines of a run whose run.json is gone"), RunStore(folder) as store:
        store.create(make_header())
    assert not (folder / "run.json").exists()


def test_a_signature_that_cannot_be_checked_breaks_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a machine without ssh-keygen."""
    folder = begun(tmp_path / "run", samples=2)
    (folder / "seal.json.sig").write_text("a signature")
    monkeypatch.setenv("PATH", "")
    assert seal_of(folder).words == "sealed, signed, not checked: ssh-keygen is not there"


@pytest.fixture
def keys(tmp_path: Path) -> dict[str, Path]:
    """Two keys without a passphrase."""
    found = {name: tmp_path / name for name in ("mine", "other")}
    for name, file in found.items():
        command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", name, "-f", str(file)]
        subprocess.run(command, check=True, stdin=subprocess.DEVNULL)
    return found


@NEEDS_TOOL
def test_a_signature_names_its_key_and_fits_one_seal_only(tmp_path: Path, keys: dict[str, Path]) -> None:
    """Signed, gone on with and sealed anew (the signature is gone), signed again; another seal's signature breaks it."""
    folder = publish(begun(tmp_path / "run", samples=2), tmp_path / "kept", keys["mine"])
    found = seal_of(folder)
    assert found.signature.valid and found.words.startswith("sealed, signed by ED25519 key SHA256:")
    old, told = (folder / "seal.json.sig").read_bytes(), found.words
    copy = publish(folder, tmp_path / "copy")
    assert seal_of(copy).words == told, "a copy of the same record keeps its signature"
    gone_on(folder, 5)
    assert seal_of(folder).words == "sealed, not signed" and not (folder / "seal.json.sig").exists()
    (folder / "seal.json.sig").write_bytes(old)
    assert seal_of(folder).state == "broken" and "the signature does not fit" in seal_of(folder).reason


@NEEDS_TOOL
def test_only_an_allowed_signer_is_named(tmp_path: Path, keys: dict[str, Path]) -> None:
    """By the file of allowed signers; another key, another namespace and another content are nobody's."""
    folder = publish(begun(tmp_path / "run", samples=1), tmp_path / "kept", keys["mine"])
    head, signature = (folder / "seal.json").read_bytes(), (folder / "seal.json.sig").read_bytes()
    allowed = tmp_path / "allowed"

    def named(line: str, content: bytes = head) -> str | None:
        allowed.write_text(line)
        return signer(content, signature, allowed)

    mine, other = (keys[name].with_suffix(".pub").read_text() for name in ("mine", "other"))
    assert named(f"me@here {mine}") == "me@here"
    assert named(f'me@here namespaces="sbd-record" {mine}') == "me@here"
    assert named(f"them@there {other}") is None
    assert named(f'me@here namespaces="git" {mine}') is None
    assert named(f"me@here {mine}", head + b" ") is None
    with pytest.raises(UserError, match="there is no such file"):
        signer(head, signature, tmp_path / "absent")


@NEEDS_TOOL
def test_a_key_that_signs_nothing_is_the_users_mistake(tmp_path: Path) -> None:
    """No key at all, and a file that is none."""
    (tmp_path / "none").write_text("not a key")
    for key in (tmp_path / "absent", tmp_path / "none"):
        with pytest.raises(UserError, match=r"--sign .*ssh-keygen refused"):
            publish(begun(tmp_path / f"run-{key.name}", samples=1), tmp_path / f"kept-{key.name}", key)
