"""Every text file of a user is read by one function: what is no such file is refused, by its name."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from harness import config_file
from harness.config_file import read_text, read_yaml
from harness.errors import BenchmarkFileError, RecordError, SbdError, ScenarioError, UserError
from harness.record.imports.formats import read_file
from harness.roofline.recorded_acceptance import accepted_in_file
from harness.training.fine_tuning import read_pairs
from harness.workloads import arrivals, prompts
from harness.workloads.arrivals import read_trace
from harness.workloads.prompts import read_prompts

READERS: dict[str, tuple[Callable[[Path], object], type[SbdError]]] = {
    "prompts": (read_prompts, ScenarioError),
    "trace": (read_trace, ScenarioError),
    "yaml": (read_yaml, ScenarioError),
    "pairs": (read_pairs, UserError),
    "answers": (lambda file: list(accepted_in_file(file)), RecordError),
    "result": (read_file, BenchmarkFileError),
}


@pytest.mark.parametrize("kind", READERS)
def test_what_is_no_file_is_neither_waited_for_nor_read_for_ever(kind: str, tmp_path: Path) -> None:
    """A pipe that nobody writes to, a device without an end, a folder, a link to itself, and nothing."""
    read, refusal = READERS[kind]
    for name, make in {
        "pipe": os.mkfifo,
        "folder": os.mkdir,
        "none": lambda at: None,
        "loop": lambda at: os.symlink(at, at),
        "zero": lambda at: os.symlink("/dev/zero", at),
    }.items():
        file = tmp_path / f"{name}.jsonl"
        make(file)
        with pytest.raises(refusal, match=rf"{name}\.jsonl:1: cannot read the .*; give the path of a readable file"):
            read(file)


@pytest.mark.parametrize("kind", READERS)
def test_what_is_no_text_is_refused(kind: str, tmp_path: Path) -> None:
    """UTF-16, half a character, a NUL; with the file's name."""
    read, refusal = READERS[kind]
    for content in ('{"prompt": "x"}'.encode("utf-16"), b'{"prompt": "\xff"}', b"\x00", b"\xed\xa0\x80"):
        file = tmp_path / "a.jsonl"
        file.write_bytes(content)
        with pytest.raises(refusal, match=r"a\.jsonl"):
            read(file)


def test_a_long_file_is_refused_with_the_most_that_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In bytes, in what its values would need, and in prompts."""
    file = tmp_path / "a.jsonl"
    file.write_text('{"prompt": "x"}\n' * 11, encoding="utf-8")
    assert len(read_prompts(file)) == 11
    with pytest.raises(ScenarioError, match=r"a\.jsonl:1: cannot read the file: it has more than 100 bytes; split it"):
        read_text(file, "file", most_bytes=100)
    monkeypatch.setattr(prompts, "MOST_ROWS", 10)
    with pytest.raises(ScenarioError, match=r"a\.jsonl: holds more than 10 prompts"):
        read_prompts(file)
    monkeypatch.setattr(config_file, "MOST_PARSED", 1000)
    with pytest.raises(ScenarioError, match=r"a\.jsonl:1: its values would need .* split the file"):
        read_prompts(file)


def test_a_trace_of_one_endless_field_or_too_many_lines_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The library of CSV raised an error of its own for a field of more than 131,072 characters."""
    file = tmp_path / "a.csv"
    file.write_text("x" * 200_000, encoding="utf-8")
    with pytest.raises(ScenarioError, match=r"a\.csv:1: begins with"):
        read_trace(file)
    file.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n" + "2023-11-16 18:17:03.97,1,1\n" * 11, encoding="utf-8")
    assert len(read_trace(file)) == 11
    monkeypatch.setattr(arrivals, "MOST_BYTES", 100)
    with pytest.raises(ScenarioError, match=r"a\.csv:1: cannot read the trace: it has more than 100 bytes; split it"):
        read_trace(file)
