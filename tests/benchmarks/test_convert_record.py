"""A record of an old version becomes one that is read, value by value, and says that it was converted."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from benchmarks.convert_record import CONVERTED, convert
from harness.analysis.answer import compare
from harness.errors import RecordError, UserError
from harness.record.store import read_run
from tests.helpers import synthetic_run as synthetic


def test_version_2_is_read_again_with_the_digests_of_the_original(tmp_path: Path) -> None:
    """Lists of columns without a sampler's time, no process: the same samples, with what was not known left unknown."""
    run = synthetic.build()
    old = tmp_path / "old"
    old.mkdir()
    header = json.loads(run.header.model_dump_json()) | {"record_version": 2}
    (old / "run.json").write_text(json.dumps(header))
    lines = []
    for sample in run.samples:
        line = json.loads(sample.model_dump_json()) | {"passes": sample.passes.model_dump(exclude={"sampler_s"})}
        del line["process"]
        lines.append(json.dumps(line) + "\n")
    (old / "samples.jsonl").write_text("".join(lines))
    outcome = {"case_id": header["cases"][0]["case_id"], "outcome": "failed", "reason": "it did"}
    events = [{"session": {"event": "start", "cpu_model": "x"}}, {"outcome": outcome}]
    (old / "events.jsonl").write_text("".join(json.dumps(one) + "\n" for one in events))
    with pytest.raises(RecordError, match="format version 2 is none of 6 to 8"):
        read_run(old)
    found = read_run(convert(old, tmp_path / "new"))
    assert found.header == run.header.model_copy(update={"record_version": 6}) and found.outcomes[0].reason == "it did"
    untold = [one.model_copy(update={"passes": one.passes.model_copy(update={"sampler_s": None})}) for one in run.samples]
    assert found.samples == untold and found.seal is not None and found.seal.state == "sealed"
    marked = next(one for one in found.sessions if one["event"] == CONVERTED)
    assert marked["from_version"] == 2 and marked["originals"] == {
        name: hashlib.sha256((old / name).read_bytes()).hexdigest() for name in ("run.json", "samples.jsonl", "events.jsonl")
    }
    assert any("converted from format version 2" in remark for remark in compare(found).cells[0].remarks)
    with pytest.raises(UserError, match="is read as it is"):
        convert(tmp_path / "new", tmp_path / "again")
