"""Writes the entries of a unit into the record, and decides whether a failed case is tried again.

A case whose process died, hung or ran out of memory is tried ``attempts`` times over all runs of the same directory. Each
failed try is an event with its reason; the last one is the case's outcome. A process may be lost at no case as many times.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from harness.frozen import frozen
from harness.progress import Progress
from harness.record.identity import IDENTITY, allowed_event, differences, refuse_other
from harness.record.schema import REMARK, CaseOutcome, Run, Sample
from harness.record.store import RunStore
from harness.runner.job import Job

ATTEMPT = "attempt"
"""The event of a failed try that may be repeated."""
LOST = "lost"
"""The event of a process that died or hung at no case: before its first, or while passes were measured."""


@frozen
class Begun:
    """The next step is ``what`` for this case; as the last entry, it is where the process died or hangs."""

    case_id: str
    what: str


@frozen
class Skipped:
    """A sample of the case need not, or cannot, be taken now."""

    case_id: str


@frozen
class Failure:
    """A try of a case that ended without its sample; ``final``: another try would fail too."""

    case_id: str
    outcome: Literal["does_not_fit", "failed"]
    reason: str
    final: bool = False
    part: str
    process: int
    node: str | None = None


Entry = Sample | Begun | Skipped | Failure | dict[str, object]
"""What a unit yields; a dict is an event for the record."""


@dataclass
class Recorder:
    """Writes entries into a run directory. ``held``: its earlier record; ``marks``: write the next case for a watchdog."""

    store: RunStore
    progress: Progress
    job: Job
    held: Run
    marks: bool = False

    def __post_init__(self) -> None:
        self._attempts = self.job.scenario.attempts
        self._identities: list[Mapping[str, object]] = [*self.held.events(IDENTITY)]
        self._failed = Counter(one["case_id"] for one in self.held.events(ATTEMPT))
        self._lost = Counter((one.get("part"), one.get("process")) for one in self.held.events(LOST))
        self._ended = {outcome.case_id for outcome in self.held.outcomes}
        self.again: set[str] = set()
        """Cases that failed since this was last emptied and are to be tried again."""

    def keep(self, entry: Entry) -> None:
        """Keep one entry; it is on the disk when this returns.

        Raises:
            UserError: it says that a part is measured with something else than before.
            StorageError: the disk refuses; everything before is kept.
        """
        if isinstance(entry, Sample):
            self.store.append(entry)
            self.progress.advance(entry.case_id)
        elif isinstance(entry, Failure):
            self._fail(entry)
        elif isinstance(entry, Skipped):
            self.progress.skip(entry.case_id)
        elif isinstance(entry, Begun):
            if self.marks:
                self.store.mark(entry.case_id)
        else:
            if entry.get("event") == IDENTITY:  # other weights, another machine or another program: refused, or allowed
                found = differences(self.held.header, self._identities, entry)
                refuse_other(found, entry, self.job.options.allow)
                if found:
                    self.store.append_session(allowed_event(found, entry))
                    self.progress.note(f"part {entry['part']}: --allow: {'; '.join(map(str, found))}")
                self._identities.append(entry)
            elif entry.get("event") == REMARK:
                self.progress.note(f"part {entry['part']}: {entry[REMARK]}")
            self.store.append_session(entry)

    def keep_all(self, entries: Iterable[Entry]) -> None:
        """Keep them one by one, each before the next is made."""
        for entry in entries:
            self.keep(entry)

    def lose(self, part: str, process: int, reason: str) -> bool:
        """Record that a process of this share was lost at no case; returns whether another may take the rest."""
        share = part, process
        self._lost[share] += 1
        number = self._lost[share]
        event = {"event": LOST, "part": part, "process": process, "lost": number, "of": self._attempts, "reason": reason}
        self.store.append_session(event)
        return number < self._attempts

    def _fail(self, failure: Failure) -> None:
        case_id, reason = failure.case_id, failure.reason
        if case_id in self._ended:
            return
        self._failed[case_id] += 1
        tries = self._failed[case_id]
        if not failure.final and tries < self._attempts:
            event = {"event": ATTEMPT, "part": failure.part, "process": failure.process, "case_id": case_id}
            event |= {"node": failure.node} if failure.node else {}
            self.store.append_session(event | {"attempt": tries, "of": self._attempts, "reason": reason})
            self.progress.note(f"{case_id}: {reason}; it is tried again ({tries} of {self._attempts} attempts failed)")
            self.again.add(case_id)
            return
        self._ended.add(case_id)
        self.again.discard(case_id)
        tried = f" (attempt {tries} of {self._attempts})" if tries > 1 else ""
        self.store.append_outcome(CaseOutcome(case_id=case_id, outcome=failure.outcome, reason=reason + tried))
        self.progress.note(f"{case_id}: {reason}{tried}; it is left out")
