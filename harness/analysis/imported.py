"""What limits the figures of an imported run, in words beside every figure."""

from __future__ import annotations

from harness.formatting import count
from harness.record.imported import Imported

STARTS = "each file counts as a process: whether its server was started anew, no file tells"
SAID = ("passes", "output_ids", "machine")
NO_PRICE = "an imported run has no passes to price"


def limits(origin: Imported) -> tuple[str, ...]:
    """A phrase for each limit: whose clock, how requests are paired, what ran beside, what a process is, what is lacking."""
    whose = f"imported from files of {origin.tool}: its clock, and its count of tokens"
    found = [whose, origin.pairing_words, _beside(origin), STARTS]
    if failed := sum(one.failed for one in origin.files):
        every = sum(one.requests for one in origin.files)
        found.append(f"{count(failed)} of {count(every)} requests failed and have no time")
    found += [f"{name.replace('_', ' ')}: {why}" for name, why in origin.lacks.items() if name in SAID]
    return tuple(found)


def _beside(origin: Imported) -> str:
    if origin.concurrency == 1:
        return "one request at a time"
    most = "an unknown number" if origin.concurrency is None else f"up to {origin.concurrency}"
    return f"{most} of requests were in flight together, so the time of each one holds waiting for others"
