"""A question about measurements and its answer: a claim about a run, or a metric of one run compared with another.

Claims (``verdict``) and regression gates share these values, so that output formats and the exit code are defined once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Literal

from harness.analysis.trust.integrity import AS_WRITTEN, FINISH, Integrity
from harness.errors import EXIT_INCONCLUSIVE, EXIT_OK, EXIT_REGRESSION, EXIT_VOID
from harness.frozen import frozen
from harness.scenario.claims import Claim
from harness.scenario.metrics import Basis, Better
from harness.stats.quantity import Quantity

JUDGEMENT_VERSION = 3
"""Version of the JSON form. 3: has ``levels`` and ``together``; 2: a deterministic metric's value is NEW's own, ``base`` beside
it; 1: the difference."""

State = Literal["met", "missed", "inconclusive", "void"]
Kind = Literal["claim", "deterministic", "timed"]

WORDS: dict[Kind, dict[State, str]] = {
    "claim": {"met": "confirmed", "missed": "refuted", "inconclusive": "inconclusive", "void": "void"},
    "deterministic": {"met": "unchanged", "missed": "changed", "inconclusive": "inconclusive", "void": "void"},
    "timed": {"met": "passed", "missed": "regressed", "inconclusive": "inconclusive", "void": "void"},
}
EXIT_CODES: dict[State, int] = {"met": EXIT_OK, "missed": EXIT_REGRESSION, "inconclusive": EXIT_INCONCLUSIVE, "void": EXIT_VOID}
GRAVEST_FIRST: tuple[State, ...] = ("missed", "void", "inconclusive", "met")


@frozen
class Judgement:
    """One question and its answer.

    ``subject``   what was asked, in words: "SBD k=16 γ=0.35, part bandwidth, batch 1"
    ``metric``    the name of the figure, the same in every run: ``wall_speedup``
    ``cell``      where it was looked up: part, batch_size, task, arm
    ``value``     the figure with its interval in ``unit``; of a timed gate the ratio NEW to BASE, of a deterministic one NEW's
    ``base``      of a deterministic gate BASE's figure in the same unit; None elsewhere
    ``bound``     what it was compared with, in words: "at least 3"
    ``sizes``     independent units behind it: {"prompts": 40, "processes": 3}
    ``reason``    why the state is what it is; ``remedy`` what would decide it, None where no action is needed
    ``together``  whether a confirmed claim stays so at the family-wise 95 % level; None elsewhere, and of one without others
    ``levels``    clauses of the reason: what it was named among, and ``together`` in words
    """

    subject: str
    metric: str
    kind: Kind
    state: State
    cell: dict[str, str]
    value: Quantity
    unit: str
    better: Better
    bound: str
    basis: Basis
    sizes: dict[str, int]
    reason: str
    remedy: str | None = None
    base: float | None = None
    together: bool | None = None
    levels: tuple[str, ...] = ()

    @property
    def word(self) -> str:
        """The state in the words of its kind: confirmed, regressed, ..."""
        return WORDS[self.kind][self.state]


@frozen
class Judgements:
    """All answers to one call: ``sbd verify`` over a run, ``sbd gate`` over two.

    ``records``: how the record of each run is sealed. ``claims``: the claim that each judgement is about; none of a gate.
    """

    title: str
    runs: tuple[str, ...]
    judgements: tuple[Judgement, ...]
    records: tuple[str, ...] = ()
    version: int = JUDGEMENT_VERSION
    claims: tuple[Claim, ...] = ()

    @property
    def state(self) -> State:
        """The gravest state among them; void where nothing was judged."""
        found = {one.state for one in self.judgements} or {"void"}
        return next(state for state in GRAVEST_FIRST if state in found)

    def exit_code(self, inconclusive: Literal["report", "pass", "fail"] = "report") -> int:
        """For the command line; ``inconclusive`` as pass or fail turns that outcome into 0 or 1."""
        if self.state == "inconclusive" and inconclusive != "report":
            return EXIT_OK if inconclusive == "pass" else EXIT_REGRESSION
        return EXIT_CODES[self.state]


def by_records(judgements: Judgements, records: Sequence[Integrity]) -> Judgements:
    """The judgements beside what their records prove: all void where one of these proves nothing, none decided where the run
    of one has not ended.
    """
    void = next(filter(None, (one.void for one in records)), None)
    open_ = next(filter(None, (one.unended for one in records)), None)

    def judged(one: Judgement) -> Judgement:
        undecided = replace(one, together=None, levels=())
        if void:
            return replace(undecided, state="void", reason=void, remedy=AS_WRITTEN)
        if open_ and one.state != "void":
            reason = f"{open_}, so nothing is decided; until now {one.reason}"
            return replace(undecided, state="inconclusive", reason=reason, remedy=FINISH)
        return one

    told = tuple(map(judged, judgements.judgements))
    return replace(judgements, records=tuple(one.words for one in records), judgements=told)


def to_json(judgements: Judgements) -> dict[str, object]:
    """As plain JSON values with their ``version``; the state is there with its word too."""
    plain = [asdict(one) | {"word": one.word} for one in judgements.judgements]
    data = asdict(replace(judgements, claims=(), judgements=()))
    del data["claims"]
    return data | {"judgements": plain, "state": judgements.state, "exit_code": judgements.exit_code()}
