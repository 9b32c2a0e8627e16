"""What limits the figures of an imported run, in words beside every figure."""

from __future__ import annotations

from harness.formatting import count, seconds
from harness.record.imported import Imported

STARTS = "each file counts as a process: whether its server was started anew, no file tells"
WARM = 3.0
"""Of the same prompts no start is so much slower to the first token than another."""
SAID = ("passes", "output_ids", "machine")
NO_PRICE = "an imported run has no passes to price"


def limits(origin: Imported) -> tuple[str, ...]:
    """A phrase for each limit: whose clock, how requests are paired, what ran beside, what a process is, what is lacking."""
    whose = f"imported from files of {origin.tool}: its clock, and its count of tokens"
    found = [whose, origin.pairing_words, _beside(origin), STARTS, cached(origin)]
    if failed := sum(one.failed for one in origin.files):
        every = sum(one.requests for one in origin.files)
        found.append(f"{count(failed)} of {count(every)} requests failed and have no time")
    found += [f"{name.replace('_', ' ')}: {why}" for name, why in origin.lacks.items() if name in SAID]
    return tuple(found)


def cached(origin: Imported) -> str:
    """Whether a cache may have had prompts: the same prompts take like times to the first token in every file and arm."""
    first_s = [one.figures["median_first_token_s"] for one in origin.files]
    if max(first_s) <= WARM * min(first_s):
        return "whether a prefix cache had prompts, no file tells"
    ends = f"{seconds(min(first_s))} to {seconds(max(first_s))}"
    return f"the median first token takes {ends} by file, as where a prefix cache has the prompts of some: requests tell it too"


def _beside(origin: Imported) -> str:
    if origin.concurrency == 1:
        return "one request at a time"
    most = "an unknown number" if origin.concurrency is None else f"up to {origin.concurrency}"
    return f"{most} of requests were in flight together, so the time of each one holds waiting for others"
