"""Makes version 6 of the format of a record of version 1 to 5, which sbd no longer reads.

    python -m benchmarks.convert_record OLD NEW

OLD: a run directory; NEW: where the converted record is published, sealed. Every value stays as it was. The passes of a sample,
one list for each column, are packed; the header names version 6; values that the older version did not have are written as
unknown. An event ``converted`` names the older version and the SHA-256 of each of the original's files, and a remark on every
part says so on the page.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

from harness.errors import SbdError, UserError
from harness.record.journal import packed, whole_lines
from harness.record.publication import publish
from harness.record.schema import OLDEST_READ, REMARK, CaseOutcome, RunHeader, Sample
from harness.record.seal import digest
from harness.record.store import EVENTS, HEADER, SAMPLES, RunStore
from harness.record.trace import PassColumns

BY = "benchmarks/convert_record.py"
CONVERTED = "converted"
"""The event."""


def convert(old: Path, new: Path) -> Path:
    """Write the record of ``old`` to ``new``, which must be empty; returns it.

    Raises:
        UserError: it is of a version that is read, or ``new`` holds a run.
        RecordError, StorageError: as RunStore does.
    """
    header = json.loads((old / HEADER).read_bytes())
    version = header["record_version"]
    if version >= OLDEST_READ:
        raise UserError(f"{old}: format version {version} is read as it is; only versions below {OLDEST_READ} are converted")
    names = (HEADER, SAMPLES, packed(Path(SAMPLES)).name, EVENTS)
    originals = {name: digest((old / name).read_bytes()) for name in names if (old / name).exists()}
    with tempfile.TemporaryDirectory() as folder, RunStore(Path(folder) / "run") as store:
        store.create(RunHeader.model_validate(header | {"record_version": OLDEST_READ}))
        for line in whole_lines(old / SAMPLES):
            sample = json.loads(line)
            passes = PassColumns.model_validate(sample["passes"])
            store.append(Sample.model_validate(sample | {"passes": passes}), sync=False)
        for line in whole_lines(old / EVENTS):
            event = json.loads(line)
            if event.get("outcome"):
                store.append_outcome(CaseOutcome.model_validate(event["outcome"]))
            else:
                store.append_session(event["session"])
        store.append_session({"event": CONVERTED, "from_version": version, "by": BY, "originals": originals})
        words = f"the record was converted from format version {version} by {BY}; its event {CONVERTED} has the digests"
        for part in dict.fromkeys(case["part"] for case in header["cases"]):
            store.append_session({"event": REMARK, "part": part, REMARK: words})
        return publish(store.directory, new)


def main() -> None:
    """Convert one record."""
    try:
        print(convert(*map(Path, sys.argv[1:3])))
    except SbdError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
