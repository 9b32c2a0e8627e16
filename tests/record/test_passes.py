"""Passes come out of their packing as they went in, are read by the documented form alone, and damage is refused."""

from __future__ import annotations

import base64
import json
import random
import zlib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from harness.analysis.tally.pass_arrays import ROLES, TraceArrays
from harness.errors import RecordError
from harness.record.passes import COLUMNS, PER_PASS, PER_ROW, pack, read_passes
from harness.record.publication import publish
from harness.record.schema import PassColumns, Sample
from harness.record.store import RunStore, read_run
from tests.helpers import synthetic_run as synthetic
from tests.helpers.environments import with_header
from tests.helpers.two_runs import stored
from tests.helpers.unpacked import unpacked_by_hand

COUNT = st.integers(0, 300) | st.sampled_from((0, 255, 256, 65_535, 65_536, 1 << 24))


@st.composite
def pass_columns(draw: st.DrawFn) -> PassColumns:
    """Any passes of one to four rows, of every width of integers, with or without durations and slots."""
    count, rows = draw(st.integers(0, 6)), draw(st.integers(1, 4))
    luck = random.Random(draw(st.integers(0, 2**32)))
    values = draw(st.lists(COUNT, min_size=1, max_size=4))

    def per_row(of: Any) -> list[list[Any]]:
        return [[of() for _ in range(rows)] for _ in range(count)]

    data: dict[str, Any] = {name: per_row(lambda: luck.choice(values)) for name in PER_ROW if name != "active"}
    data |= {name: [luck.choice(values) for _ in range(count)] for name in PER_PASS}
    data |= {"role": [luck.choice(ROLES) for _ in range(count)], "active": per_row(lambda: luck.random() < 0.5)}
    if draw(st.booleans()):
        data["decided_slots"] = [
            [[luck.choice(values) for _ in range(luck.randint(0, 3))] for _ in range(rows)] if luck.random() < 0.7 else None
            for _ in range(count)
        ]
    for name in ("forward_s", "sampler_s"):
        if draw(st.booleans()):
            data[name] = [luck.choice((0.0, 5e-324, 1e-9, 0.1, 1 / 3, 1e6)) for _ in range(count)]
    return PassColumns(**data)


@given(pass_columns())
def test_what_goes_in_comes_out(columns: PassColumns) -> None:
    """To the bit: packed, stored as JSON and read again."""
    packed = read_passes(columns)
    assert packed.spelt() == columns and len(packed) == len(columns.role)
    again = read_passes(json.loads(json.dumps(packed.stored())))
    assert again == packed
    assert again.spelt().passes() == columns.passes()
    assert packed.untimed().spelt() == columns.untimed()


@given(pass_columns())
def test_arrays_are_the_columns(columns: PassColumns) -> None:
    """What is counted and priced by the million is what stands in the columns."""
    trace = TraceArrays(read_passes(columns))
    assert [ROLES[code] for code in trace.role] == columns.role
    assert trace.decode.tolist() == [role != "prefill" for role in columns.role]
    for name in PER_ROW:
        assert trace.per_row(name).tolist() == getattr(columns, name)
        assert trace.over_rows(name).tolist() == [sum(row) for row in getattr(columns, name)]
    for name in PER_PASS:
        assert trace.per_pass(name).tolist() == getattr(columns, name)
    for name in ("forward_s", "sampler_s"):
        seconds = trace.seconds(name)
        assert (None if seconds is None else seconds.tolist()) == getattr(columns, name)


def test_every_column_has_a_place() -> None:
    """A column that PassColumns gains and the packing does not know would be lost in silence."""
    assert {name for name in COLUMNS if not name.startswith("slot")} == set(PassColumns.model_fields) - {"decided_slots"}


def test_the_documented_form_is_the_form(tmp_path: Path) -> None:
    """A line of a record, unpacked without our code."""
    run = synthetic.build()
    folder = stored(run, tmp_path / "run")
    for line, sample in zip((folder / "samples.jsonl").read_text().splitlines(), run.samples, strict=True):
        found, columns = unpacked_by_hand(json.loads(line)["passes"]), sample.passes
        assert found["role"] == columns.role
        assert (found["forward_s"], found["sampler_s"]) == (columns.forward_s, columns.sampler_s)
        assert found["kept_tokens"] == [row[0] for row in columns.kept_tokens] and found["padded_query"] == columns.padded_query


def test_a_record_stays_in_the_version_it_was_begun_in(tmp_path: Path) -> None:
    """What an older program began is continued, and published, in its own form: lines without hashes, which it can read."""
    run = synthetic.build()
    older = with_header(run, record_version=6)
    folder = stored(synthetic.with_samples(older, []), tmp_path / "old")
    with RunStore(folder) as store:
        store.resume(run.header.scenario, run.header.scenario_digest)
        for sample in run.samples:
            store.append(sample)
    lines = [json.loads(line) for line in (folder / "samples.jsonl").read_text().splitlines()]
    assert len(lines) == len(run.samples) and not any("before" in line for line in lines)
    assert read_run(folder).samples == run.samples
    assert read_run(publish(folder, tmp_path / "kept")).samples == run.samples
    assert json.loads((tmp_path / "kept" / "run.json").read_text())["record_version"] == 6


SOUND = read_passes(synthetic.columns(synthetic.ARMS[1], 1, 1, 1.0, True)).stored()
COLUMN_LISTS = synthetic.columns(synthetic.ARMS[1], 1, 1, 1.0, True)


def repacked(change: bytes) -> str:
    """The data of SOUND with its first bytes overwritten."""
    plain = zlib.decompress(base64.b64decode(SOUND["data"]))
    return base64.b64encode(zlib.compress(change + plain[len(change) :])).decode()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"count": 4}, "take .* bytes"),
        ({"count": 10**30}, "take .* bytes"),
        ({"rows": 2}, "take .* bytes"),
        ({"count": -1}, "cannot be"),
        ({"rows": 0}, "cannot be"),
        ({"count": 5.0}, "whole numbers"),
        ({"types": "d" * 12}, "types"),
        ({"types": SOUND["types"][:3]}, "types"),
        ({"types": SOUND["types"] + "BBBBB"}, "types"),
        ({"types": "Z" * 12}, "types"),
        ({"roles": ["prefill", "guess"]}, "guess"),
        ({"roles": ["prefill"]}, "not listed"),
        ({"roles": [["prefill"], 1]}, "roles"),
        ({"data": SOUND["data"][:-8]}, "damaged|cut off"),
        ({"data": "!"}, "damaged"),
        ({"data": repacked(b"\x09")}, "not listed"),
        ({"data": repacked(b"") + "AAAA"}, "damaged|after its end"),
        ({"more": 1}, "keys"),
    ],
)
def test_damage_is_refused(change: dict[str, Any], words: str) -> None:
    """Nothing that does not add up becomes a sample."""
    with pytest.raises(ValueError, match=words):
        read_passes(SOUND | change)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"role": COLUMN_LISTS.role[:-1]}, "not as many"),
        ({"query_tokens": [[1, 2]] * len(COLUMN_LISTS.role)}, "numbers of rows|not as many"),
        ({"query_tokens": [[-1]] * 5}, "whole numbers"),
        ({"query_tokens": []}, "numbers of rows|not as many"),
        ({"forward_s": [float("inf")] * 5}, "duration"),
        ({"forward_s": [-1.0] * 5}, "duration"),
        ({"forward_s": [0.1]}, "not as many"),
        ({"kept_tokens": [[(1 << 24) + 1]] * 5}, "more than"),
        ({"kept_tokens": [[1 << 40]] * 5}, "whole numbers"),
        ({"decided_slots": [[[1], [2]]] * 5}, "numbers of rows"),
        ({"decided_slots": [None]}, "not as many"),
    ],
)
def test_lists_that_do_not_fit_are_refused(change: dict[str, Any], words: str) -> None:
    """Columns of unlike length, and counts or durations that cannot be."""
    assert len(COLUMN_LISTS.role) == 5
    with pytest.raises(ValueError, match=words):
        pack(COLUMN_LISTS.model_copy(update=change))


def test_a_record_of_lists_is_no_longer_read() -> None:
    """Versions below 6 had one list for each column; and what is no object is damage."""
    with pytest.raises(ValueError, match="packed passes have the keys"):
        read_passes(json.loads(COLUMN_LISTS.model_dump_json()))
    with pytest.raises(ValueError, match="an object"):
        read_passes([1])


def test_a_sample_has_the_rows_of_its_passes(tmp_path: Path) -> None:
    """Passes of two rows in a sample of one; and a line of it is a damaged record, not a traceback."""
    sample = synthetic.build().samples[0]
    two = synthetic.columns(synthetic.NTP, 1, 2, 1.0, True)
    with pytest.raises(ValidationError, match="the passes are of 2 rows, the sample has 1"):
        Sample.model_validate(sample.model_dump() | {"passes": two})
    folder = stored(synthetic.build(), tmp_path / "run")
    line = json.loads(sample.model_dump_json()) | {"passes": read_passes(two).stored()}
    (folder / "samples.jsonl").write_text(json.dumps(line) + "\n")
    with pytest.raises(RecordError, match="of 2 rows, the sample has 1"):
        read_run(folder)


def test_copies_take_passes_in_any_form() -> None:
    """``model_copy(update={"passes": ...})`` would else leave the packed ones as they were."""
    sample = synthetic.build().samples[-1]
    other = sample.passes.untimed()
    assert sample.model_copy(update={"passes": other}).passes == other
    assert sample.model_copy(update={"passes": read_passes(other).stored()}).passes == other
    assert sample.passes.forward_s is not None and other.forward_s is None
