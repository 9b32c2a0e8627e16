"""What a record proves about itself: its seal, its own contradictions, its answers graded again.

A broken seal or a contradiction leaves no verdict. A record without a seal is judged, and said to have none.
"""

from __future__ import annotations

from harness.analysis.trust.cross_checks import contradictions
from harness.analysis.trust.regrading import regrade
from harness.formatting import count
from harness.frozen import frozen
from harness.record.schema import Run
from harness.record.seal import SealState

AS_WRITTEN = "judge the record as the run wrote it, or run again"


@frozen
class Contradiction:
    """Two figures of a record that cannot both be true: in words, in how many ``places``, and the ``first`` of these."""

    words: str
    places: int
    first: str


@frozen
class Integrity:
    """``demanded``: why a demanded signature is not there. ``not_graded``: why some answers could not be graded again.
    ``unmeasured``: why no arm has a sample. ``record_sha256``: the digest of what the record holds, that its pages carry.
    """

    seal: SealState = "unsealed"
    seal_words: str = "unsealed (it was not read from a record)"
    signed: bool = False
    contradictions: tuple[Contradiction, ...] = ()
    graded_again: int = 0
    not_graded: tuple[str, ...] = ()
    demanded: str | None = None
    unmeasured: str | None = None
    record_sha256: str | None = None

    @property
    def void(self) -> str | None:
        """Why nothing is judged by this record; None where something is."""
        if self.demanded is not None:
            return f"a signature was demanded: {self.demanded}"
        if self.seal == "broken":
            return f"the record's seal is {self.seal_words}"
        if self.unmeasured is not None:
            return self.unmeasured
        if self.contradictions:
            first, more = self.contradictions[0], len(self.contradictions) - 1
            others = f", and {more} more contradictions" if more else ""
            return f"the record contradicts itself: {first.words} ({first.first}; {count(first.places)} places){others}"
        return None

    @property
    def words(self) -> str:
        """One line for people."""
        return self.void or self.seal_words


def integrity_of(run: Run) -> Integrity:
    """Check a run as it was read; one that was made here has no record that could be wrong."""
    if run.seal is None:
        return Integrity()
    regraded = regrade(run)
    found = contradictions(run) | regraded.wrong
    return Integrity(
        seal=run.seal.state,
        seal_words=run.seal.words,
        signed=run.seal.signature is not None and run.seal.signature.valid is True,
        contradictions=tuple(Contradiction(words=one, places=len(at), first=at[0]) for one, at in found.items()),
        graded_again=regraded.again,
        not_graded=tuple(sorted(regraded.reasons)),
        unmeasured=run.unmeasured,
        record_sha256=run.seal.record or None,
    )
