"""The walk from a run to its answer: ``Derived(run).comparison``, each value made once.

Run to trust, run to tallies, tallies to figures, figures and trust to judgements. Whoever shows an answer makes none of them.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache, cached_property, partial

from harness.analysis.cells import beside, cells_of, looks_of
from harness.analysis.judge.highlight import answer
from harness.analysis.judge.verdict import recorded_claims, verdict
from harness.analysis.parallel import MANY_SAMPLES, parallel_map
from harness.analysis.results import COMPARISON_VERSION, ArmResult, Cell, Comparison, to_json
from harness.analysis.tally.by_request import Tallies
from harness.analysis.tally.served import partings_of, served_counts
from harness.analysis.trust.integrity import Integrity, integrity_of
from harness.record.by_machine import of_one_machine
from harness.record.identity import mixes
from harness.record.schema import Run
from harness.scenario.claims import Claims
from harness.stats.quantity import Quantity, absent

__all__ = ["COMPARISON_VERSION", "Comparison", "Derived", "compare", "to_json"]

IMPOSSIBLE = 1.05
"""A server's pass for several tokens is no faster than one for a token; what is shown to be faster was not timed."""


class Derived:
    """A run as it was read, and what is derived of it: each value is made once, when it is first asked for.

    Example: Derived(read_run(path)).comparison
    """

    def __init__(self, run: Run, claims: Claims | None = None) -> None:
        """``claims``: what is judged; None: the claims of the record."""
        self._read, self._claims = run, claims

    @cached_property
    def run(self) -> Run:
        """With a header that describes the machine of its samples. Raises UserError: they are of several kinds of machine."""
        return of_one_machine(self._read)

    @cached_property
    def integrity(self) -> Integrity:
        """What the record proves about itself: its seal, contradictions, answers graded again."""
        return integrity_of(self.run)

    @cached_property
    def tallies(self) -> Tallies:
        """One a decode, without void times, made when a cell first asks for it."""
        return Tallies(self.run)

    @cached_property
    def comparison(self) -> Comparison:
        """Everything that is derived of the run, and what is claimed of it judged."""
        header, integrity, tallies = self.run.header, self.integrity, self.tallies
        # Tallies to the figures of every part and batch size, with the arm that stands for it
        places = dict.fromkeys((case.part, case.batch_size) for case in header.cases)
        pieces = [partial(cells_of, tallies, part, size) for part, size in places]
        found = parallel_map(pieces, len(self.run.samples) >= MANY_SAMPLES)
        comparison = Comparison(
            run_id=header.run_id,
            cells=tuple(_whole(cell, tallies) for cells, _ in found for cell in cells),
            highlights=tuple(highlight for _, highlight in found),
            answers=tuple(answer(cells[0], highlight, header) for cells, highlight in found),
            outcomes=tuple(outcome.model_dump() for outcome in self.run.outcomes),
            health=tallies.health,
            integrity=integrity,
            mixes=mixes(self.run),
            looks=looks_of(self.run),
        )
        # Figures and trust to judgements
        claims, unread = recorded_claims(header) if self._claims is None else (self._claims, None)
        return replace(comparison, judgements=verdict(comparison, claims, header), unread=unread)


def compare(run: Run) -> Comparison:
    """Derive every value of ``run`` and judge the claims of its record.

    Raises:
        UserError: the samples are of several kinds of machine.
    """
    return Derived(run).comparison


def _whole(cell: Cell, tallies: Tallies) -> Cell:
    """With what servers counted and how their answers part from NTP's, where servers decoded it, and figures at every level.

    Another level takes the cell's arms once more from their decodes, when it is first asked for.
    """
    again, run = cache(partial(beside, tallies, cell)), tallies.run

    def at(place: int, name: str, level: float) -> Quantity:
        return again()[place].figure(name, level)

    arms = [replace(arm, at=partial(at, place)) for place, arm in enumerate(cell.arms)]
    if run.header.written(cell.part).servers:
        arms = [_served_arm(arm, run, cell.part) for arm in arms]
    return replace(cell, arms=tuple(arms))


def _served_arm(arm: ArmResult, run: Run, part: str) -> ArmResult:
    parted = partings_of(run, part, arm.case_ids)
    figures = arm.figures | ({"lossless": parted.lossless} if parted else {})
    arm = replace(arm, served=served_counts(run, part, arm.case_ids), figures=figures)
    over = figures["wall_over_nfe"]
    if (over.low or over.value or 0.0) < IMPOSSIBLE:
        return arm
    none = absent(f"the clock saves {over.value:.2f}x of what the passes save, so its times are no times of passes")
    return replace(arm, wall_speedup=none, wall_speedup_totals=none, figures=figures | {"wall_over_nfe": none})
