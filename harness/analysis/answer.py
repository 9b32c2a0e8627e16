"""The walk from a run to its answer: ``compare(run) -> Comparison``, each value made once.

Run to trust, run to tallies, tallies to figures, figures and trust to judgements. Whoever shows an answer makes none of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from harness.analysis.cells import cells_of
from harness.analysis.figures.baseline import ceiling_check
from harness.analysis.judge.highlight import answer
from harness.analysis.judge.verdict import recorded_claims, verdict
from harness.analysis.parallel import MANY_SAMPLES, parallel_map
from harness.analysis.results import COMPARISON_VERSION, ArmResult, Cell, Comparison, to_json
from harness.analysis.tally.by_request import tallies_by_case
from harness.analysis.tally.prices import read_calibration
from harness.analysis.tally.pricing import pricers_of
from harness.analysis.tally.served import partings_of, served_counts
from harness.analysis.tally.traffic import counters
from harness.analysis.trust.health import Voids, together, without_void_times
from harness.analysis.trust.imported import limits
from harness.analysis.trust.integrity import integrity_of
from harness.record.by_machine import of_one_machine
from harness.record.identity import mixes
from harness.record.schema import REMARK, Run
from harness.scenario.claims import Claims
from harness.stats.quantity import absent

__all__ = ["COMPARISON_VERSION", "Comparison", "compare", "to_json"]

IMPOSSIBLE = 1.05
"""A server's pass for several tokens is no faster than one for a token; what is shown to be faster was not timed."""


def compare(run: Run, claims: Claims | None = None) -> Comparison:
    """Derive every value of ``run`` and judge what is claimed of it.

    Warm-up samples and void times are left out; of a sample recorded twice the later counts.

    Args:
        claims: what is judged; None: the claims of the record.

    Raises:
        UserError: the samples are of several kinds of machine.
    """
    run = of_one_machine(run)
    # 1. Run to trust: seal, contradictions, answers graded again, times that are void
    integrity = integrity_of(run)
    run, health = without_void_times(run)
    # 2. Run to tallies: one a decode, made when a cell first asks for it
    pricers, counter_of = pricers_of(run), counters(run)
    tallies = tallies_by_case(run, pricers, counter_of)
    # 3. Tallies to the figures of every part and batch size, with the arm that stands for it
    places = dict.fromkeys((case.part, case.batch_size) for case in run.header.cases)
    pieces = [partial(cells_of, run, tallies, pricers, counter_of[part], part, size) for part, size in places]
    found = parallel_map(pieces, len(run.samples) >= MANY_SAMPLES)
    voids = {case_id: of_case for of_part in health for case_id, of_case in of_part.cases.items()}
    comparison = Comparison(
        run_id=run.header.run_id,
        cells=tuple(_told(cell, voids, run) for cells, _ in found for cell in cells),
        highlights=tuple(highlight for _, highlight in found),
        answers=tuple(answer(cells[0], highlight, run.header) for cells, highlight in found),
        outcomes=tuple(outcome.model_dump() for outcome in run.outcomes),
        health=health,
        integrity=integrity,
        mixes=mixes(run),
    )
    # 4. Figures and trust to judgements
    claims, unread = recorded_claims(run.header) if claims is None else (claims, None)
    return replace(comparison, judgements=verdict(comparison, claims, run.header), unread=unread)


def _told(cell: Cell, voids: Mapping[str, Voids], run: Run) -> Cell:
    """The cell with the void samples of every arm and with NTP's share of the read rate."""
    told = tuple(
        _served(cell, replace(arm, voids=together(voids[one] for one in arm.case_ids if one in voids)), run)
        for arm in cell.arms
    )
    if run.header.imported is not None:
        return replace(cell, arms=told, imported=limits(run.header.imported))
    case = next(case for case in run.header.cases if (case.part, case.batch_size) == (cell.part, cell.batch_size))
    ceiling = ceiling_check(cell, case, read_calibration(run.header, case))
    remarks = tuple(dict.fromkeys(one[REMARK] for one in run.events(REMARK, cell.part)))
    return replace(cell, arms=told, baseline_check=replace(cell.baseline_check, ceiling=ceiling), remarks=remarks)


def _served(cell: Cell, arm: ArmResult, run: Run) -> ArmResult:
    """The arm with what its server counted and how its answers part from NTP's, if a server decoded it."""
    if not run.header.written(cell.part).servers:
        return arm
    counts = served_counts(run, cell.part, arm.case_ids)
    parted = partings_of(run, cell.part, arm.case_ids)
    arm = replace(arm, served=counts, figures=arm.figures | ({"lossless": parted.lossless} if parted else {}))
    over = arm.figures["wall_over_nfe"]
    if (over.low or over.value or 0.0) < IMPOSSIBLE:
        return arm
    none = absent(f"the clock saves {over.value:.2f}x of what the passes save, so its times are no times of passes")
    return replace(arm, wall_speedup=none, wall_speedup_totals=none, figures=arm.figures | {"wall_over_nfe": none})
