"""Derives every value of a run from its samples: ``compare(run) -> Comparison``.

Cases form cells (part, task, batch size), and every arm of a cell is paired with NTP. The values of an arm are in arm_results,
arm_metrics, accuracy and pass_widths.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import Any

from pydantic import ValidationError

from harness.analysis.figures import accuracy as on_accuracy
from harness.analysis.figures.arm_figures import Arm, ArmBesideNtp, CellContext
from harness.analysis.figures.arm_results import accuracy_difference, arm_result, simultaneous
from harness.analysis.figures.baseline import baseline_check, ceiling_check
from harness.analysis.judge.places import asked_arm
from harness.analysis.trust.health import Voids, arm_values, together, without_void_times
from harness.analysis.trust.imported import NO_PRICE, limits
from harness.analysis.trust.integrity import integrity_of
from harness.analysis.parallel import parallel_map
from harness.analysis.evidence.pass_widths import curves, pass_widths
from harness.analysis.tally.prices import Ladder, feeds_masks, ladder, read_calibration, unpriced
from harness.analysis.tally.pricing import Pricer
from harness.analysis.results import COMPARISON_VERSION, ArmResult, Cell, Comparison, Highlight, to_json
from harness.analysis.tally.by_request import tallies_of
from harness.analysis.tally.tally import Tally, charged, one_name_each
from harness.analysis.tally.served import partings_of, served_counts
from harness.stats.quantity import absent, simultaneous_confidence
from harness.analysis.tally.traffic import TrafficCounter, counters
from harness.record.identity import mixes
from harness.record.machine import of_one_machine
from harness.record.schema import NO_PASSES, REMARK, CaseHeader, Run, RunHeader, Sample
from harness.scenario.load import recorded_load
from harness.scenario.methods import METHODS
from harness.scenario.part import Part

__all__ = ["COMPARISON_VERSION", "Comparison", "compare", "to_json"]

Tallies = dict[str, tuple[Tally, ...]]
"""Tallies of every case by case id; warm-up left out."""

IMPOSSIBLE = 1.05
"""A server's pass for several tokens is no faster than one for a token; what is shown to be faster was not timed."""
MANY_SAMPLES = 2000
"""From this number of samples on the cells are computed in parallel."""


def compare(run: Run) -> Comparison:
    """Derive every value of ``run``. Warm-up samples and void times are left out; of a sample recorded twice the later counts.

    Raises:
        UserError: the samples are of several kinds of machine.
    """
    run = of_one_machine(run)
    integrity = integrity_of(run)
    run, health = without_void_times(run)
    pricers, counter_of, samples = _pricers(run), counters(run), _by_case(one_name_each(run))
    tallies: Tallies = {}  # a part that is the baseline of others is tallied once in a process

    def cells_of(part: str, batch_size: int) -> tuple[list[Cell], Highlight]:
        cases = [case for case in run.header.cases if (case.part, case.batch_size) == (part, batch_size)]
        for case in (*cases, *_baseline(run, part)):
            if case.case_id not in tallies:
                pricer = pricers[case.case_id][1]
                tallies[case.case_id] = _tallied(run, case, samples[case.case_id], pricer, counter_of[case.part])
        rungs, pricer = pricers[cases[0].case_id]
        return _cells(cases, tallies, _place(run, cases, tallies, rungs, counter_of[part]), pricer)

    places = dict.fromkeys((case.part, case.batch_size) for case in run.header.cases)
    found = parallel_map([partial(cells_of, *place) for place in places], len(run.samples) >= MANY_SAMPLES)
    voids = {case_id: of_case for of_part in health for case_id, of_case in of_part.cases.items()}
    return Comparison(
        run_id=run.header.run_id,
        cells=tuple(_told(cell, voids, run) for cells, _ in found for cell in cells),
        highlights=tuple(highlight for _, highlight in found),
        answers=tuple(_answer(cells[0], highlight, run.header) for cells, highlight in found),
        outcomes=tuple(outcome.model_dump() for outcome in run.outcomes),
        health=health,
        integrity=integrity,
        mixes=mixes(run),
    )


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
    if not run.header.written(cell.part).get("servers"):
        return arm
    counts = served_counts(run, cell.part, arm.case_ids)
    parted = partings_of(run, cell.part, arm.case_ids)
    arm = replace(arm, served=counts, figures=arm.figures | ({"lossless": parted.lossless} if parted else {}))
    over = arm.figures["wall_over_nfe"]
    if (over.low or over.value or 0.0) < IMPOSSIBLE:
        return arm
    none = absent(f"the clock saves {over.value:.2f}x of what the passes save, so its times are no times of passes")
    return replace(arm, wall_speedup=none, wall_speedup_totals=none, figures=arm.figures | {"wall_over_nfe": none})


def _pricers(run: Run) -> dict[str, tuple[Ladder, Pricer | None]]:
    """Ladder and pricer per case id, shared by the cases of one part, batch size, dtype, device, model and draft models. Those
    that feed masks have their own: an adapter makes their passes dearer. The larger the batch, the fewer decodes a part has to
    average, and an interval depends on their number. No pricer for an imported run, which has no passes.
    """
    if run.header.imported is not None:
        return dict.fromkeys((case.case_id for case in run.header.cases), (unpriced(NO_PRICE), None))
    shared: dict[Any, tuple[Ladder, Pricer | None]] = {}
    found: dict[str, tuple[Ladder, Pricer | None]] = {}
    for case in run.header.cases:
        drafts = sorted(case.draft_models.items())
        place = (case.part, case.batch_size, case.model, case.dtype, case.device, feeds_masks(case), *drafts)
        if place not in shared:
            rungs = ladder(run, case)
            shared[place] = (rungs, Pricer(case, rungs.ceilings))
        found[case.case_id] = shared[place]
    return found


def _by_case(run: Run) -> dict[str, list[Sample]]:
    """The samples of every case that are not warm-ups; of one recorded twice, the later."""
    gathered: dict[str, dict[tuple[int, int, int], Sample]] = {case.case_id: {} for case in run.header.cases}
    for sample in run.samples:
        if sample.case_id in gathered and not sample.warmup:
            gathered[sample.case_id][sample.group, sample.repeat, sample.process] = sample
    return {case_id: list(found.values()) for case_id, found in gathered.items()}


def _tallied(
    run: Run, case: CaseHeader, samples: Sequence[Sample], pricer: Pricer | None, counter: TrafficCounter
) -> tuple[Tally, ...]:
    """Samples whose time counts are priced too; under a load request by request."""
    timed, load = case.timed and not case.is_check, recorded_load(run.header.written(case.part), case.batch_size)
    return tuple(
        chain.from_iterable(
            tallies_of(case, one, load, pricer if timed and one.decode_s is not None else None, counter) for one in samples
        )
    )


def _place(run: Run, cases: Sequence[CaseHeader], tallies: Tallies, rungs: Ladder, counter: TrafficCounter) -> CellContext:
    """What the arms share; the baseline is the NTP arm of the part that the scenario names (same batch size if it has one)."""
    written, found, imported = run.header.written(cases[0].part), _baseline(run, cases[0].part), run.header.imported
    same = [other for other in found if other.batch_size == cases[0].batch_size]
    return CellContext(
        ladder=rungs,
        counter_scale=counter.scale,
        timed=any(case.timed for case in cases),
        baseline_part=written.get("baseline"),
        load=recorded_load(written, cases[0].batch_size),
        baseline_grades=on_accuracy.grades([one for other in same or found for one in tallies[other.case_id]]),
        why_unchecked=_why_unchecked(written),
        lacks=imported.lacks if imported else _untold(run, {case.case_id for case in cases}),
        unpaired=imported.pairing_words if imported and imported.pairing is None else None,
    )


def _untold(run: Run, case_ids: Collection[str]) -> dict[str, str]:
    """Why a server's passes are unknown, where the samples of one of these cases lack them."""
    of_cases = (one for one in run.samples if one.case_id in case_ids and one.packed_passes is None)
    return next(({"passes": one.meter_reasons[NO_PASSES]} for one in of_cases if NO_PASSES in one.meter_reasons), {})


def _cells(
    cases: list[CaseHeader], tallies: Tallies, place: CellContext, pricer: Pricer | None
) -> tuple[list[Cell], Highlight]:
    """The cells of one part and batch size and their highlight. The summary over tasks is first, then one cell per task where
    there are several. The highlighted arm has its figures at the simultaneous level too.
    """
    tasks = tuple(dict.fromkeys(case.task for case in cases))
    arms = _arms(cases, tallies, place)
    summary = _summary(_cell(cases, arms, tasks, tallies, place), arms, place, pricer)
    highlight = _highlight(summary, arms)
    cells = [_with_pick(summary, arms, highlight)]
    for task in tasks if len(tasks) > 1 else ():
        members = [case for case in cases if case.task == task]
        of_task = _arms(members, tallies, place)
        cells.append(_with_pick(_cell(members, of_task, tasks, tallies, place), of_task, highlight))
    return cells, highlight


def _highlight(summary: Cell, arms: Sequence[ArmBesideNtp]) -> Highlight:
    """The only arm that is no rival, else the picked one: each arm's accuracy is bounded at the level of all contenders."""
    own = [arm for arm in summary.arms if not (arm.is_ntp or getattr(METHODS.get(arm.method), "rival", False))]
    if len(own) == 1 < len(summary.arms) - 1:
        return _about(summary, own[0])
    confidence = simultaneous_confidence(len(on_accuracy.contenders(summary.arms)))
    results = zip(summary.arms, arms, strict=True)
    bounds = {result.label: accuracy_difference(arm, confidence) for result, arm in results if not result.is_ntp}
    return on_accuracy.highlight(summary.part, summary.batch_size, summary.arms, bounds=bounds)


def _answer(summary: Cell, picked: Highlight, header: RunHeader) -> Highlight:
    """The arm that the scenario's claims name, else the picked one."""
    asked = asked_arm(summary, header)
    return picked if asked is None or asked.is_ntp else _about(summary, asked)


def _about(summary: Cell, asked: ArmResult) -> Highlight:
    """The answer about an arm that was named before the first sample."""
    ntp = [arm for arm in summary.arms if arm.is_ntp]
    return replace(on_accuracy.highlight(summary.part, summary.batch_size, [*ntp, asked]), asked=True)


def _with_pick(cell: Cell, arms: Sequence[ArmBesideNtp], highlight: Highlight) -> Cell:
    """The cell with the picked arm's figures at the simultaneous level, where several arms were contenders."""
    if highlight.picked_from < 2:
        return cell
    results = (
        replace(result, simultaneous=simultaneous(arm, highlight.picked_from)) if result.label == highlight.label else result
        for result, arm in zip(cell.arms, arms, strict=True)
    )
    return replace(cell, arms=tuple(results))


def _baseline(run: Run, part: str) -> list[CaseHeader]:
    """The NTP cases of the part that ``part`` names as its baseline."""
    name = run.header.written(part).get("baseline")
    return [case for case in run.header.cases if case.part == name and case.arm.get("method") == "ntp"]


def _why_unchecked(part: dict[str, Any]) -> str:
    """Why the part's NTP arm was not compared with generate(), by the recorded scenario."""
    if "baseline_check" in part:
        with suppress(ValidationError):
            return Part.model_validate(part).unchecked_baseline or "no sample of generate() was finished"
    return "this run did not decode with generate()"


def _summary(cell: Cell, arms: Sequence[ArmBesideNtp], place: CellContext, pricer: Pricer | None) -> Cell:
    """The cell over all tasks; it also carries the pass times and the roofline's line through them."""
    sizes = [int(one.arm.spec["block_size"]) for one in arms if one.arm.spec.get("block_size") is not None]
    every = [found for one in arms for found in one.arm.tallies]
    return replace(
        cell,
        task=None if len(cell.tasks) > 1 else cell.task,
        is_summary=True,
        pass_widths=pass_widths([(one.arm.method, one.arm.tallies) for one in arms]),
        curves=curves(pricer, every, cell.batch_size, max(sizes, default=None)) if pricer else (),
        roofs=place.ladder.roofs,
    )


def _cell(
    cases: Sequence[CaseHeader], arms: Sequence[ArmBesideNtp], tasks: tuple[str, ...], tallies: Tallies, place: CellContext
) -> Cell:
    first = cases[0]
    same = ("part", "task", "batch_size", "dtype", "device", "attention", "session", "execution", "tensor_parallel")
    return Cell(
        **{name: getattr(first, name) for name in same},
        tasks=tasks,
        is_summary=False,
        model=first.model.name if first.model else str(first.model_source.get("named") or "a model that no file names"),
        params=first.model.params if first.model else None,
        timed=place.timed,
        baseline_part=place.baseline_part,
        load=place.load.words(first.batch_size) if place.load else None,
        closed_loop=place.load is not None and place.load.closed,
        arms=_distinct_labels([arm_result(one) for one in arms]),
        counter_scale=place.counter_scale,
        baseline_check=baseline_check(cases, tallies, [one.arm for one in arms], place.why_unchecked),
        rung_reasons=place.ladder.reasons,
    )


def _arms(cases: Sequence[CaseHeader], tallies: Tallies, place: CellContext) -> list[ArmBesideNtp]:
    """Cases that differ in nothing but the task are one arm; arms that left no sample are left out.

    Decode times include the time of the prompts' pass beyond NTP's.
    """
    gathered: dict[tuple[str, str], list[CaseHeader]] = {}
    for case in cases:
        if not case.is_check:  # generate() is no arm: the baseline is compared with it
            gathered.setdefault((case.label, arm_values(case)), []).append(case)
    arms = [
        Arm(cases=tuple(members), tallies=tuple(one for case in members for one in tallies[case.case_id]))
        for members in gathered.values()
    ]
    reference = [(arm, _ntp_for(arm, arms)) for arm in arms if arm.tallies]
    found = [replace(arm, tallies=charged(arm.tallies, ntp.tallies if ntp else ())) for arm, ntp in reference]
    place = replace(place, wrong=len({prompt for arm in found for prompt, grade in arm.grades.items() if grade < 1}))
    return [ArmBesideNtp(arm=arm, ntp=_ntp_for(arm, found), place=place) for arm in found]


def _ntp_for(arm: Arm, arms: Sequence[Arm]) -> Arm | None:
    """The NTP arm at the same temperature, else the first one."""
    found = [other for other in arms if other.method == "ntp"]
    same = [other for other in found if other.temperature == arm.temperature]
    return next(iter(same or found), None)


def _distinct_labels(arms: Sequence[ArmResult]) -> tuple[ArmResult, ...]:
    """Arms whose short label is taken get the last part of their case id beside it."""
    taken = Counter(arm.label for arm in arms)
    return tuple(
        replace(arm, label=f"{arm.label} ({arm.case_ids[0].rpartition('/')[2]})") if taken[arm.label] > 1 else arm
        for arm in arms
    )
