"""The run directory survives kills at every byte, full disks and other processes, and refuses to mix runs."""

from __future__ import annotations

import errno
import fcntl
import gzip
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.errors import RecordError, StorageError, UserError
from harness.record import journal
from harness.record.journal import Journal, whole_lines
from harness.record.publication import publish
from harness.record.schema import RECORD_VERSION, CaseOutcome
from harness.record.store import RunStore, finished_keys, read_run
from tests.helpers import ROOT
from tests.helpers.begun_runs import begun, full_disk, make_header, make_sample, resumed


def resume(folder: Path) -> list[int]:
    """Continue the run and close it again; returns the groups it holds."""
    with RunStore(folder) as store:
        return [sample.group for sample in store.resume(make_header().scenario, "d1").samples]


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    """Header, samples, outcomes and sessions come back equal and in order."""
    with RunStore(tmp_path / "run") as store:
        store.create(make_header())
        store.append(make_sample(0, "é\r\n\u2028"))
        store.append_outcome(CaseOutcome(case_id="c", outcome="does_not_fit", reason="16 GB"))
        store.append_session({"load": 0.5})
        store.append(make_sample(1))
    run = read_run(tmp_path / "run")
    assert run.header == make_header() and run.samples == [make_sample(0, "é\r\n\u2028"), make_sample(1)]
    assert run.outcomes[0].reason == "16 GB" and run.sessions == [{"load": 0.5}]
    assert finished_keys(run) == {("c", 0, 0, False, 0), ("c", 1, 0, False, 0)}
    assert read_run(tmp_path / "run" / "run.json") == run


def test_a_sample_is_on_the_disk_when_append_returns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every append ends with an fsync of a file that already holds the line."""
    folder = begun(tmp_path / "run")
    sizes: list[int] = []
    monkeypatch.setattr(os, "fsync", lambda descriptor: sizes.append(os.fstat(descriptor).st_size))
    with resumed(folder) as store:
        for group in range(3):
            store.append(make_sample(group))
            assert sizes[-1] == (folder / "samples.jsonl").stat().st_size > 0
        assert len(sizes) == 3


def read_lines(path: Path) -> list[object]:
    """The whole lines of a journal, parsed."""
    return [json.loads(line) for line in whole_lines(path)]


@settings(max_examples=80, deadline=None)
@given(data=st.data())
def test_a_file_cut_at_any_byte_keeps_every_whole_line(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    """Cut anywhere: the whole lines before the cut are read; continuing removes the rest and appends cleanly."""
    value = st.text(max_size=5) | st.integers() | st.dictionaries(st.text(max_size=2), st.integers(), max_size=2)
    values = data.draw(st.lists(value))
    lines = [json.dumps(value).encode() + b"\n" for value in values]
    whole = b"".join(lines)
    cut = data.draw(st.integers(0, len(whole)))
    kept = next(n for n in range(len(lines), -1, -1) if len(b"".join(lines[:n])) <= cut)
    file = tmp_path_factory.mktemp("cut") / "samples.jsonl"
    file.write_bytes(whole[:cut])
    assert read_lines(file) == values[:kept]
    journal = Journal(file)
    journal.append('"new"')
    journal.close()
    assert read_lines(file) == [*values[:kept], "new"]


def test_a_block_of_zeros_at_the_end_is_torn_too(tmp_path: Path) -> None:
    """After a power cut the last line may have its newline but not its bytes."""
    folder = begun(tmp_path / "run", samples=1)
    file = folder / "samples.jsonl"
    file.write_bytes(file.read_bytes() + b"\0" * 20 + b"\n")
    assert resume(folder) == [0]


def test_damage_in_the_middle_is_named_not_skipped(tmp_path: Path) -> None:
    """Only the end may be torn; a bad line before it is an error with file and line."""
    folder = begun(tmp_path / "run", samples=2)
    file = folder / "samples.jsonl"
    file.write_bytes(b"{broken\n" + file.read_bytes())
    with pytest.raises(RecordError, match=r"samples.jsonl:1: damaged line"):
        read_run(folder)


@pytest.mark.parametrize("line", ["{}", '{"session": null}', '{"outcome": null, "session": null}'])
def test_an_event_that_says_nothing_is_none(line: str, tmp_path: Path) -> None:
    """A million of them, 3 MiB, took half a gigabyte."""
    folder = begun(tmp_path / "run", samples=1)
    (folder / "events.jsonl").write_text(f"{line}\n" * 3, encoding="utf-8")
    with pytest.raises(RecordError, match=r"events.jsonl:1: .*holds neither an outcome nor a session"):
        read_run(folder)


@pytest.mark.parametrize(
    "junk", [{"rows": [[]] * 20_000}, {"meters": {str(i): "" for i in range(20_000)}}, {str(i): 0 for i in range(20_000)}]
)
def test_very_many_wrong_values_are_counted(junk: dict[str, Any], tmp_path: Path) -> None:
    """A million errors, each with its place and words, took 1.5 GB."""
    folder = begun(tmp_path / "run", samples=1)
    file = folder / "samples.jsonl"
    line = json.loads(file.read_bytes().splitlines()[0])
    file.write_text(json.dumps(line | junk) + "\n")
    with pytest.raises(RecordError, match=r"samples.jsonl:1: does not fit format version \d+: 20,00\d values do not fit"):
        read_run(folder)


WRITER = """
import sys
sys.path[:0] = {path!r}
from pathlib import Path
from tests.helpers.begun_runs import make_header, make_sample
from harness.record.store import RunStore
with RunStore(Path({folder!r})) as store:
    store.create(make_header())
    group = 0
    while True:
        store.append(make_sample(group, "x" * 20000))
        print(group, flush=True)
        group += 1
"""


def test_kill_9_in_the_middle_loses_nothing_finished(tmp_path: Path) -> None:
    """A writer killed by SIGKILL: every sample it had reported is there, and the run continues."""
    root = str(ROOT)
    program = WRITER.format(path=[root], folder=str(tmp_path / "run"))
    writer = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, cwd=root)
    reported = [int(writer.stdout.readline()) for _ in range(5)]
    time.sleep(0.003)
    writer.send_signal(signal.SIGKILL)
    rest = writer.stdout.read()
    writer.stdout.close()
    writer.wait()
    assert writer.returncode == -signal.SIGKILL
    reported += [int(line) for line in rest.split("\n")[:-1]]
    groups = resume(tmp_path / "run")
    assert groups[: len(reported)] == reported and len(groups) <= len(reported) + 1
    with resumed(tmp_path / "run") as store:
        store.append(make_sample(len(groups)))
    assert len(read_run(tmp_path / "run").samples) == len(groups) + 1


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EROFS, errno.EACCES, errno.EIO])
@pytest.mark.parametrize("call", ["write", "fsync"])
def test_a_disk_that_refuses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, call: str) -> None:
    """A half-written sample is taken back; the message says what to do; earlier samples stay and later ones still go."""
    folder = begun(tmp_path / "run", samples=1)
    real = getattr(os, call)

    def refuse(descriptor: int, *data: memoryview) -> int:
        if call == "write":
            real(descriptor, data[0][:10])
        raise OSError(code, os.strerror(code))

    with resumed(folder) as store:
        with monkeypatch.context() as patched, pytest.raises(StorageError, match=r"(?s)samples.jsonl.*free space.*kept"):
            patched.setattr(os, call, refuse)
            store.append(make_sample(1))
        assert [sample.group for sample in read_run(folder).samples] == [0]
        store.append(make_sample(2))
    assert resume(folder) == [0, 2]


def test_short_writes_are_completed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The system may take only part of a line per call."""
    folder = begun(tmp_path / "run")
    real = os.write
    with resumed(folder) as store:
        monkeypatch.setattr(os, "write", lambda descriptor, data: real(descriptor, data[:7]))
        store.append(make_sample(0))
    assert read_run(folder).samples == [make_sample(0)]


def test_a_directory_that_cannot_be_made(tmp_path: Path) -> None:
    """A file stands where the run should go."""
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="another --out"):
        RunStore(tmp_path / "file" / "run").create(make_header())


def test_a_full_disk_at_the_header(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The header is there whole or not at all."""
    with monkeypatch.context() as patched, pytest.raises(StorageError, match="No space"), RunStore(tmp_path / "run") as store:
        patched.setattr(os, "fsync", full_disk)
        store.create(make_header())
    assert not RunStore(tmp_path / "run").exists
    begun(tmp_path / "run", samples=1)


def test_another_scenario_is_not_mixed_in(tmp_path: Path) -> None:
    """Continuing with another scenario is refused, with the keys that differ; a second beginning is refused too."""
    folder = begun(tmp_path / "run")
    with pytest.raises(UserError, match=r"another scenario \(seed, parts.0.name\)"):
        RunStore(folder).resume({"seed": 2, "parts": [{"name": "q"}]}, "d2")
    with pytest.raises(UserError, match="holds a run already"):
        RunStore(folder).create(make_header())


def test_one_writer_at_a_time(tmp_path: Path) -> None:
    """A second process on the same directory is refused instead of interleaving lines; afterwards it is free again."""
    folder = begun(tmp_path / "run")
    with resumed(folder), pytest.raises(StorageError, match="another sbd run is writing here"):
        resume(folder)
    assert resume(folder) == []


def test_a_lent_lock_is_shared_and_outlives_the_lender(tmp_path: Path) -> None:
    """The borrower writes while nobody else may, even behind the lender's end; a torn line of a killed one is mended."""
    file = tmp_path / "samples.jsonl"
    lender = Journal(file)
    lender.append("1")
    first = Journal(file, lender.descriptor)
    first.append("2")
    os.write(first.descriptor, b'{"torn')
    first.close()
    second = Journal(file, lender.descriptor)
    second.append("3")
    assert read_lines(file) == [1, 2, 3]
    lender.close()
    with pytest.raises(StorageError, match="another sbd run is writing here"):
        Journal(file)
    second.close()
    Journal(file).close()


def test_a_lender_that_writes_again_takes_back_no_line_of_the_borrower(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk cuts the file back to where this line began, not to where the lender had left it."""
    file = tmp_path / "samples.jsonl"
    lender = Journal(file)
    borrower = Journal(file, lender.descriptor)
    borrower.append("1")
    borrower.close()
    with monkeypatch.context() as patched, pytest.raises(StorageError):
        patched.setattr(os, "fsync", full_disk)
        lender.append("2")
    assert read_lines(file) == [1]
    lender.close()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "not the header"),
        ("[]", "not the header"),
        ('{"record_version": 6}', "run_id"),
        ('{"record_version": 99}', "newer"),
        ('{"record_version": 5}', "convert_record"),
        ('{"record_version": "1"}', "newer"),
    ],
)
def test_a_bad_header_is_refused(tmp_path: Path, text: str, words: str) -> None:
    """Damage and records of a newer version are said as such; a directory without a run too."""
    (tmp_path / "run.json").write_text(text)
    with pytest.raises(RecordError, match=words):
        read_run(tmp_path)
    with pytest.raises(RecordError, match="no run here"):
        read_run(tmp_path / "nothing")


def test_a_dtype_that_nothing_can_price_is_refused(tmp_path: Path) -> None:
    """It is damage: no plan names one that the arithmetic does not know."""
    file = begun(tmp_path / "run") / "run.json"
    file.write_text(file.read_text().replace("bfloat16", "float7"))
    with pytest.raises(RecordError, match=r"cases\.0\.dtype: .*got 'float7', allowed are float64"):
        read_run(file.parent)


def test_a_sample_of_another_format_is_refused(tmp_path: Path) -> None:
    """A line that is JSON but no sample names the first field that does not fit."""
    folder = begun(tmp_path / "run")
    (folder / "samples.jsonl").write_text('{"case_id": "c"}\n')
    with pytest.raises(RecordError, match=f"format version {RECORD_VERSION}: group"):
        read_run(folder)


def test_a_sample_of_a_case_that_the_header_lacks_is_refused(tmp_path: Path) -> None:
    """Nothing can be said of it, and it must not be passed over; the line is named."""
    file = begun(tmp_path / "run", samples=2) / "samples.jsonl"
    file.write_text(file.read_text().replace('"case_id":"c","group":1', '"case_id":"d","group":1'))
    with pytest.raises(RecordError, match=r"samples.jsonl:2: a sample of case 'd', which run.json does not list"):
        read_run(file.parent)


def test_publishing_gives_the_same_run_and_the_same_bytes(tmp_path: Path) -> None:
    """The published run reads back equal without its torn line; published twice, every file is the same."""
    folder = begun(tmp_path / "run", samples=3)
    (folder / "report.html").write_text("<p>")
    with (folder / "samples.jsonl").open("ab") as file:
        file.write(b'{"torn')
    one, two = publish(folder, tmp_path / "one"), publish(folder, tmp_path / "two")
    assert read_run(one) == read_run(folder) and not (one / "samples.jsonl").exists()
    files = sorted(path.name for path in one.iterdir())
    assert files == ["events.jsonl.gz", "report.html", "run.json", "samples.jsonl.gz", "seal.json"]
    assert all((one / name).read_bytes() == (two / name).read_bytes() for name in files)
    assert (one / "samples.jsonl.gz").read_bytes()[4:8] == b"\0" * 4, "the archive's time stamp is none"
    assert publish(one, tmp_path / "three") and read_run(tmp_path / "three") == read_run(one)


def test_samples_that_unpack_without_end_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bomb is unpacked up to the limit and no further; what packs as well as samples do is read."""
    monkeypatch.setattr(journal, "ALWAYS_UNPACKED", 1000)
    (tmp_path / "s.gz").write_bytes(gzip.compress(b"[]\n" * 300))
    assert len(read_lines(tmp_path / "s")) == 300
    (tmp_path / "s.gz").write_bytes(gzip.compress(b"[]\n" * 1_000_000))
    with pytest.raises(RecordError, match=r"s\.gz: holds more than"):
        read_lines(tmp_path / "s")


@pytest.mark.parametrize("name", ["samples.jsonl", "events.jsonl", "samples.jsonl.gz"])
def test_a_line_without_end_is_refused_before_it_is_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """A file of holes as long as a disk, and one that unpacks to such: a bounded part of it is read."""
    folder = begun(tmp_path / "run", samples=1)
    monkeypatch.setattr(journal, "LONGEST_LINE", 5000)
    if name.endswith("gz"):
        (folder / name).write_bytes(gzip.compress(b"0" * 100_000))
    else:
        os.truncate(folder / name, 1 << 42)
    with pytest.raises(RecordError, match=rf"{name}: holds more than .*5,000 in a line, so it is no record"):
        read_run(folder)


def test_lines_of_another_kind_are_refused_at_the_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the lines behind it none is read, however many there are."""
    folder, read = begun(tmp_path / "run", samples=1), [0]
    monkeypatch.setattr("harness.record.store.unlinked", lambda line: [line, read.append(1)][0])
    (folder / "samples.jsonl").write_bytes(b"{}\n" * 1000)
    with pytest.raises(RecordError, match=r"samples.jsonl:1: does not fit"):
        read_run(folder)
    assert len(read) == 2


def test_files_of_a_run_are_bounded(tmp_path: Path) -> None:
    """A header, a seal and a signature of any length once filled the memory."""
    for name in ("run.json", "seal.json", "seal.json.sig"):
        folder = begun(tmp_path / f"run-{name}", samples=1)
        (folder / name).touch()
        os.truncate(folder / name, 1 << 42)
        with pytest.raises(UserError, match=f"{name}: has more than .* bytes"):
            read_run(folder)


def test_publishing_never_overwrites_another_run(tmp_path: Path) -> None:
    """A folder that holds another run cannot be the target."""
    begun(tmp_path / "run", samples=1)
    with RunStore(tmp_path / "other") as store:
        store.create(make_header(run_id="r2"))
    with pytest.raises(UserError, match="holds another run"):
        publish(tmp_path / "run", tmp_path / "other")
    assert publish(tmp_path / "run", tmp_path / "target") == publish(tmp_path / "run", tmp_path / "target")


def test_a_damaged_archive_is_a_record_error(tmp_path: Path) -> None:
    """A truncated gzip file is named, not half read."""
    begun(tmp_path / "run", samples=2)
    publish(tmp_path / "run", tmp_path / "p")
    packed = tmp_path / "p" / "samples.jsonl.gz"
    assert gzip.decompress(packed.read_bytes()).count(b"\n") == 2
    packed.write_bytes(packed.read_bytes()[:-12])
    for _ in range(2):
        with pytest.raises(RecordError, match="cannot be read"):
            read_run(tmp_path / "p")
        with pytest.raises(RecordError, match="cannot be read"):
            resume(tmp_path / "p")


def test_a_published_run_can_be_gone_on_with(tmp_path: Path) -> None:
    """What it holds is not taken again; what is new stands behind it, and is packed with it by publishing in place."""
    begun(tmp_path / "run", samples=3)
    folder = publish(tmp_path / "run", tmp_path / "p")
    archive = (folder / "samples.jsonl.gz").read_bytes()
    assert resume(folder) == [0, 1, 2]
    assert publish(tmp_path / "run", folder) == folder, "nothing was taken there yet"
    with resumed(folder) as store:
        store.append(make_sample(3))
        for source in (folder, tmp_path / "run"):
            with pytest.raises(StorageError, match="another sbd run is writing here"):
                publish(source, folder)
    with (folder / "samples.jsonl").open("ab") as file:
        file.write(b'{"torn')
    assert resume(folder) == [0, 1, 2, 3] and (folder / "samples.jsonl.gz").read_bytes() == archive
    with pytest.raises(UserError, match=r"p: holds 1 samples that .*run lacks"):
        publish(tmp_path / "run", folder)
    taken, whole = (folder / "samples.jsonl").read_bytes(), read_run(folder)
    for _ in range(2):
        assert read_run(publish(folder, folder)) == whole and not (folder / "samples.jsonl").exists()
    with pytest.raises(UserError, match=r"p: holds 1 samples that .*run lacks"):
        publish(tmp_path / "run", folder)
    (folder / "samples.jsonl").write_bytes(taken)  # as a kill before it was gone would leave it
    assert read_run(folder) == whole
    assert read_run(publish(folder, tmp_path / "other")) == whole
    with resumed(folder) as store:
        store.append(make_sample(4))
    assert resume(folder) == [0, 1, 2, 3, 4]


def test_a_writer_that_waits_for_the_packing_does_not_write_to_what_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has opened the file before it was packed, and locks it after."""
    file, locks = tmp_path / "samples.jsonl", fcntl.flock
    monkeypatch.setattr(fcntl, "flock", lambda *arguments: (file.unlink(), locks(*arguments)))
    with pytest.raises(StorageError, match="another sbd run is writing here"):
        Journal(file)


def test_publishing_nothing_leaves_nothing(tmp_path: Path) -> None:
    """A mistyped name is not made a folder."""
    with pytest.raises(RecordError, match="there is no run here"):
        publish(tmp_path / "none", tmp_path / "p")
    with pytest.raises(RecordError, match="there is no run here"):
        publish(tmp_path, tmp_path)
    assert not list(tmp_path.iterdir())


def test_what_stands_behind_a_torn_archive_is_read(tmp_path: Path) -> None:
    """Somebody packed a run that a kill had torn."""
    folder = begun(tmp_path / "run", samples=3)
    (folder / "seal.json").unlink()
    file = folder / "samples.jsonl"
    (folder / "samples.jsonl.gz").write_bytes(gzip.compress(file.read_bytes()[:-9]))
    file.unlink()
    assert resume(folder) == [0, 1]
    with resumed(folder) as store:
        store.append(make_sample(2))
    assert resume(folder) == [0, 1, 2]
