"""Wrong types, infinite and absurd figures in the open objects of a record: refused when it is read, with the file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from harness.analysis.answer import compare
from harness.errors import RecordError
from harness.record.store import EVENTS, HEADER, SAMPLES, read_run
from tests.helpers.records import changed_record, small_record


@pytest.mark.parametrize(
    ("name", "keys", "value", "words"),
    [
        (EVENTS, ("session", "cpu_model"), {}, "cpu_model: got {}, a text is needed"),
        (EVENTS, ("session", "taken_at"), {}, "taken_at: got {}, a text is needed"),
        (EVENTS, ("session", "process"), "x", "process: got 'x', a whole number is needed"),
        (EVENTS, ("session", "isa_flags"), 1, "isa_flags: got 1, a list is needed"),
        (EVENTS, ("session", "node"), ["x"], "node: got"),
        (EVENTS, ("session", "load_average", 0), "@infinite@", "not finite"),
        (EVENTS, ("session", "load_average", 0), "@long@", "not finite"),
        (EVENTS, ("session", "texts"), {"x": "a"}, "texts: the texts of tokens stand under their numbers"),
        (EVENTS, ("session", "event"), "ceilings", "part: an event 'ceilings' says whose it is"),
        (HEADER, ("environment", "memory_total_bytes"), "@long@", "not finite"),
        (HEADER, ("environment", "steal_ticks"), "@infinite@", "not finite"),
        (HEADER, ("scenario", "parts", 0, "workload"), "x", "workload: got 'x', an object is needed"),
        (HEADER, ("scenario", "parts", 0, "workload"), {"synthetic": "x"}, "synthetic: got 'x'"),
        (HEADER, ("scenario", "parts", 0, "devices"), 1, "devices: got 1, a list is needed"),
        (HEADER, ("cases", 0, "batch_size"), 10**9, "less than or equal to 65536"),
        (HEADER, ("cases", 0, "tensor_parallel"), -1, "greater than or equal to 1"),
        (HEADER, ("cases", 0, "model", "vocab"), "@long@", "less than 2147483648"),
        (HEADER, ("cases", 0, "model", "layers"), 10**6, "less than or equal to 65536"),
        (SAMPLES, ("decode_s",), "@infinite@", "decode_s"),
    ],
)
def test_what_no_run_writes_is_refused(name: str, keys: tuple[Any, ...], value: Any, words: str, tmp_path: Path) -> None:
    """Most of these ended a command with a TypeError, an OverflowError or a MemoryError."""
    with pytest.raises(RecordError) as refusal:
        read_run(changed_record(tmp_path, small_record(7), (name, 0, *keys), value))
    assert words in str(refusal.value) and name in str(refusal.value)


def test_other_keys_hold_what_they_hold(tmp_path: Path) -> None:
    """An event that later versions write is kept, and a time without a zone is one in UTC."""
    later = {"a": [1, None, {"b": True}]}
    found = read_run(changed_record(tmp_path, small_record(7), (EVENTS, 0, "session", "later"), later))
    assert found.sessions[0]["later"] == later and compare(found).cells
    naive = changed_record(tmp_path, small_record(7), (SAMPLES, 0, "started_at"), "2026-11-20T10:00:00")
    assert read_run(naive).samples[0].started_at == "2026-11-20T10:00:00+00:00"
