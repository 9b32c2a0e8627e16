"""The cells of one part and batch size: its cases paired with NTP, every arm's values, and what the arms share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import replace

from pydantic import ValidationError

from harness.analysis.arm_results import arm_result
from harness.analysis.evidence.pass_widths import curves, pass_widths
from harness.analysis.figures import accuracy as on_accuracy
from harness.analysis.figures.arms import ArmBesideNtp, CellContext, beside_ntp
from harness.analysis.figures.baseline import baseline_check, ceiling_check
from harness.analysis.judge.highlight import picked
from harness.analysis.results import ArmResult, BaselineCheck, Cell, Highlight, Simultaneous
from harness.analysis.tally.by_request import Tallies
from harness.analysis.tally.prices import read_calibration
from harness.analysis.tally.pricing import Pricer
from harness.analysis.trust.imported import limits
from harness.record.schema import NO_PASSES, REMARK, CaseHeader, Run
from harness.record.written import WrittenPart, WrittenWork
from harness.scenario.load import recorded_load
from harness.scenario.part import Part
from harness.stats.looks import nominal_levels
from harness.stats.quantity import simultaneous_confidence


def cells_of(tallies: Tallies, part: str, batch_size: int) -> tuple[list[Cell], Highlight]:
    """The cells of one part and batch size and their highlight. The summary over tasks is first, then one cell per task where
    there are several. The highlighted arm has its figures at the simultaneous level too.
    """
    cases = _cases(tallies.run, part, batch_size)
    place = _place(cases, tallies)
    tasks = tuple(dict.fromkeys(case.task for case in cases))
    arms = _arms(cases, tallies, place)
    summary = _summary(_cell(cases, arms, tasks, tallies, place), arms, place, tallies.pricers[cases[0].case_id][1])
    highlight, looks = picked(summary, arms), looks_of(tallies.run)
    cells = [_with_pick(summary, arms, highlight, looks)]
    for task in tasks if len(tasks) > 1 else ():
        members = [case for case in cases if case.task == task]
        of_task = _arms(members, tallies, place)
        cells.append(_with_pick(_cell(members, of_task, tasks, tallies, place), of_task, highlight, looks))
    return cells, highlight


def looks_of(run: Run) -> float:
    """As Comparison has it: of the look after the processes that are there, or the first one."""
    looks = run.header.looks
    if looks is None:
        return 1.0
    count = 1 + max((sample.process for sample in run.samples if not sample.warmup), default=0)
    levels = nominal_levels(looks.first, max(looks.first, looks.last), looks.error)
    return looks.error / levels[min(max(count, looks.first), max(levels))]


def beside(tallies: Tallies, cell: Cell) -> list[ArmBesideNtp]:
    """The arms of ``cell`` in its order, for their figures at further levels."""
    cases = _cases(tallies.run, cell.part, cell.batch_size)
    return _arms([case for case in cases if cell.is_summary or case.task == cell.task], tallies, _place(cases, tallies))


def _cases(run: Run, part: str, batch_size: int) -> list[CaseHeader]:
    return [case for case in run.cases if (case.part, case.batch_size) == (part, batch_size)]


def _place(cases: Sequence[CaseHeader], tallies: Tallies) -> CellContext:
    """What the arms share; the baseline is the NTP arm of the part that the scenario names (same batch size if it has one)."""
    run, first = tallies.run, cases[0]
    written, imported = run.header.written(first.part), run.header.imported
    ntp = [case for case in run.cases if case.part == written.baseline and case.arm.method == "ntp"]
    same = [case for case in ntp if case.batch_size == first.batch_size]
    return CellContext(
        ladder=tallies.pricers[first.case_id][0],
        counter_scale=tallies.counters[first.part].scale,
        timed=any(case.timed for case in cases),
        baseline_part=written.baseline,
        load=recorded_load(written, first.batch_size),
        baseline_grades=on_accuracy.grades([one for other in same or ntp for one in tallies(other.case_id)]),
        why_unchecked=_why_unchecked(written),
        voids=tallies.voids,
        calibration=read_calibration(run.header, first),
        remarks=() if imported else tuple(dict.fromkeys(one[REMARK] for one in run.events(REMARK, first.part))),
        imported=limits(imported) if imported else (),
        files=imported.files if imported else (),
        lacks=imported.lacks if imported else _untold(run, {case.case_id for case in cases}),
        unpaired=imported.pairing_words if imported and imported.pairing is None else None,
        widest=max(file.requests for file in imported.files) if imported else 1,
    )


def _untold(run: Run, case_ids: Collection[str]) -> dict[str, str]:
    """Why a server's passes are unknown, where the samples of one of these cases lack them."""
    of_cases = (one for one in run.samples if one.case_id in case_ids and one.packed_passes is None)
    return next(({"passes": one.meter_reasons[NO_PASSES]} for one in of_cases if NO_PASSES in one.meter_reasons), {})


def _why_unchecked(part: WrittenPart) -> str:
    """Why the part's NTP arm was not compared with generate(), by the recorded scenario."""
    if "baseline_check" in part.values:
        with suppress(ValidationError):
            return Part.model_validate(part.values).unchecked_baseline or "no sample of generate() was finished"
    return "this run did not decode with generate()"


def _summary(cell: Cell, arms: Sequence[ArmBesideNtp], place: CellContext, pricer: Pricer | None) -> Cell:
    """The cell over all tasks; it also carries the pass times and the roofline's line through them."""
    sizes = [one.arm.spec.block_size for one in arms if one.arm.spec.block_size is not None]
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
    first, results = cases[0], _distinct_labels([arm_result(one) for one in arms])
    check = baseline_check(cases, tallies, [one.arm for one in arms], place.why_unchecked)
    if check.state == "unchecked":
        check = _checked_in_another_part(first, tallies) or check
    bounded = place.timed and not place.imported
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
        arms=results,
        counter_scale=place.counter_scale,
        baseline_check=replace(check, ceiling=ceiling_check(results, first, place.calibration)) if bounded else check,
        rung_reasons=place.ladder.reasons,
        imported=place.imported,
        remarks=place.remarks,
        population=_population(tallies.run.header.written(first.part).workload, len({case.task for case in cases})),
    )


def _checked_in_another_part(first: CaseHeader, tallies: Tallies) -> BaselineCheck | None:
    """NTP of the same engine and batch size beside generate(), where another part of the run has both."""
    engine = ("batch_size", "model", "dtype", "device", "attention", "session", "execution", "tensor_parallel")
    for case in tallies.run.cases:
        if case.arm.method == "ntp" and all(getattr(case, name) == getattr(first, name) for name in engine):
            cases = _cases(tallies.run, case.part, case.batch_size)
            check = baseline_check(cases, tallies, [arm for arm, _ in beside_ntp(cases, tallies)], "")
            if check.state != "unchecked":
                return replace(check, part=case.part)
    return None


def _population(work: WrittenWork, tasks: int) -> str:
    """What the prompts of so many tasks stand for (Cell)."""
    if work.cluster or tasks < 2:
        return f"related by {work.cluster}" if work.cluster else ""
    kind = "domains" if "instructions" in work.values else "tasks"
    return f"over {kind} such as these {tasks}" if work.generalise_over else f"over these {tasks} {kind}"


def _arms(cases: Sequence[CaseHeader], tallies: Tallies, place: CellContext) -> list[ArmBesideNtp]:
    found = beside_ntp(cases, tallies)
    wrong = {prompt for arm, _ in found for prompt, grade in arm.grades.items() if grade < 1}
    return [ArmBesideNtp(arm=arm, ntp=ntp, place=replace(place, wrong=len(wrong))) for arm, ntp in found]


def _distinct_labels(arms: Sequence[ArmResult]) -> tuple[ArmResult, ...]:
    """Arms whose short label is taken get the last part of their case id beside it."""
    taken = Counter(arm.label for arm in arms)
    return tuple(
        replace(arm, label=f"{arm.label} ({arm.case_ids[0].rpartition('/')[2]})") if taken[arm.label] > 1 else arm
        for arm in arms
    )


def _with_pick(cell: Cell, arms: Sequence[ArmBesideNtp], highlight: Highlight, looks: float) -> Cell:
    """The cell with the picked arm's figures at the level of verdicts, where several arms were contenders."""
    count, level = highlight.picked_from, simultaneous_confidence(highlight.picked_from * looks)
    if count < 2:
        return cell
    results = (
        replace(result, simultaneous=Simultaneous(picked_from=count, confidence=level, figures=arm.figures(level)))
        if result.label == highlight.label
        else result
        for result, arm in zip(cell.arms, arms, strict=True)
    )
    return replace(cell, arms=tuple(results))
