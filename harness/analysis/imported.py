"""What limits the figures of an imported run, in words beside every figure."""

from __future__ import annotations

from harness.formatting import count
from harness.record.imported import Imported

NO_PRICE = "an imported run has no passes to price"


def limits(origin: Imported) -> tuple[str, ...]:
    """One phrase a limit: whose clock it is, how requests are paired, what ran beside, what failed, what the files lack."""
    found = [f"imported from files of {origin.tool}: its clock, and its count of tokens", origin.pairing_words, _beside(origin)]
    if failed := sum(one.failed for one in origin.files):
        every = sum(one.requests for one in origin.files)
        found.append(f"{count(failed)} of {count(every)} requests failed and have no time")
    found += [f"{name.replace('_', ' ')}: {why}" for name, why in origin.lacks.items() if name in ("output_ids", "machine")]
    return tuple(found)


def _beside(origin: Imported) -> str:
    if origin.concurrency == 1:
        return "one request at a time"
    most = "an unknown number" if origin.concurrency is None else f"up to {origin.concurrency}"
    return f"{most} of requests were in flight together, so the time of each one holds waiting for others"
