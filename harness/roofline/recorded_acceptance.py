"""What a recorded run says about acceptance, to be replayed on a model without an SBD checkpoint or for other batches.

Unchecked SBD gives the passes per block, also row by row. Checked drafts give the passes in which a block was drafted, and
how far the next-token head agreed with it. So does what an inference server's speculation accepted, pass by pass, in a served
run or a file of vLLM's answers with their ``per_step_accepted``. A pass without a draft accepted nothing. So a replay makes as
many tokens a pass as the server did, whatever its drafts' lengths were. How the server made its drafts is not replayed: in our
engine the model drafts them itself, in one pass.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from harness.config_file import read_text
from harness.errors import RecordError
from harness.frozen import frozen
from harness.record.schema import CaseHeader, PassColumns, Run
from harness.record.store import read_run
from harness.record.written import WrittenArm
from harness.roofline.batches import RecordedRow

Way = tuple[str, str | None, bool]
"""A method, its form, and whether its drafts copy: what a replay and what it replays have in common."""
SBD: Way = ("sbd", None, False)
VERIFIED_SBD: Way = ("sbd_verified", None, False)
SERVED = "served"
"""The method of an arm that a server decodes."""
WANTED = "metrics.speculative_decoding.per_step_accepted and usage.completion_tokens"
Accepted = tuple[int, bool]
"""Drafts that one decode pass accepted, and whether the answer's end cut it, so that more is unknown."""


@frozen
class RecordedArm:
    """An SBD case of a run with its prompts, each decoded once."""

    case: CaseHeader
    rows: tuple[RecordedRow, ...]


def passes_per_block(run_dir: Path, block_size: int) -> list[int]:
    """Passes of each finished block of each row in a run's SBD samples, in recorded order.

    Verified blocks are left out, because a verified block may be finished in part.

    Raises:
        RecordError: the run holds no full block of this size.
    """
    run = read_run(run_dir)
    whole = [
        passes
        for columns, row in _rows_of(run, _cases(run, SBD, block_size))
        for passes, decided in blocks_of_row(columns, row)
        if decided == block_size
    ]
    if not whole:
        raise RecordError(
            f"{run_dir}: no full block of size {block_size} in its samples (block sizes there: {_known(run)}); replay with one "
            "of those, or give an nfe_speedup"
        )
    return whole


def recorded_arms(run: Run, block_size: int) -> tuple[RecordedArm, ...]:
    """The SBD cases of a run with real acceptance and blocks of this size, prompt by prompt.

    Only the first repeat in the first process counts. A row's passes do not depend on the other rows. So for an arm at several
    batch sizes, or both lockstep and ragged, the case with the smallest batches is taken.

    Raises:
        RecordError: the run holds no such sample.
    """
    taken: dict[str, list[RecordedRow]] = {}
    for sample in run.samples:
        if not sample.warmup and sample.repeat == sample.process == 0:
            taken.setdefault(sample.case_id, []).extend(
                RecordedRow(
                    passes=tuple(passes for passes, _ in blocks_of_row(sample.passes, row) if passes),
                    output_tokens=result.output_tokens,
                )
                for row, result in enumerate(sample.rows)
            )
    smallest: dict[str, CaseHeader] = {}
    for case in sorted(_cases(run, SBD, block_size), key=lambda case: case.batch_size):
        if case.case_id in taken:
            arm = {name: value for name, value in case.arm.values.items() if name != "batching"}
            smallest.setdefault(repr((case.part, case.task, sorted(arm.items()))), case)
    if not smallest:
        raise RecordError(
            f"{run.header.run_id}: no SBD sample with real acceptance and block size {block_size} (block sizes there: "
            f"{_known(run)}); give another run, or one of those block sizes"
        )
    return tuple(RecordedArm(case=case, rows=tuple(taken[case.case_id])) for case in smallest.values())


def blocks_of_row(passes: PassColumns, row: int) -> Iterator[tuple[int, int]]:
    """(passes, decided tokens) of every block of a row, the last one included; a block ends in the pass before it is committed.

    In lockstep a row that has ended still commits blocks, which have no pass.
    """
    taken = decided = 0
    for index, role in enumerate(passes.role):
        if role == "prefill":
            continue
        if passes.kept_tokens[index][row]:
            yield taken, decided
            taken = decided = 0
        taken += passes.active[index][row]
        decided += passes.decided_tokens[index][row]
    yield taken, decided


def way_of(arm: WrittenArm) -> Way:
    """Of an arm with one value on every axis."""
    return arm.method, arm.form, bool(arm.copies)


def _cases(run: Run, way: Way, block_size: int | None = None, label: str | None = None) -> Iterator[CaseHeader]:
    """The cases that decoded or checked whole blocks and chose by themselves what to accept; with a size or label, of that."""
    for case in run.header.cases:
        whole = case.replayed is None and way_of(case.arm) == way and case.arm.least_confidence is None
        if whole and block_size in (None, case.arm.block_size) and label in (None, case.label):
            yield case


def _rows_of(run: Run, cases: Iterable[CaseHeader]) -> Iterator[tuple[PassColumns, int]]:
    """Every row of the samples of these cases after their warm-up; a served one whose ways of counting disagree is left out."""
    ids = {case.case_id for case in cases}
    for sample in run.samples:
        if sample.case_id in ids and not sample.warmup and not sample.meters.get("served_ways_disagree"):
            for row in range(len(sample.rows)):
                yield sample.passes, row


def _known(run: Run) -> str:
    sizes = {case.arm.block_size for case in _cases(run, SBD)}
    return ", ".join(sorted({str(size) for size in sizes if size})) or "none"


@frozen
class RecordedChecks:
    """``draft_passes`` of each whole block, the check of the block before included where it also drafted this one.

    ``misses``: at each of the k-1 drafts, the share of the blocks right so far in which that draft was wrong.
    """

    draft_passes: tuple[int, ...]
    misses: tuple[float, ...]


@frozen
class Check:
    """One check of one row: ``agreed`` drafts of a block that took ``draft_passes``.

    ``last``: the answer ended in it, so further agreement is not known.
    """

    draft_passes: int
    agreed: int
    last: bool


def recorded_checks(source: Path, block_size: int, label: str | None, way: Way = VERIFIED_SBD) -> RecordedChecks:
    """The checks of all rows of a run's samples decoded this way with blocks of this size; with ``label``, of that arm alone.

    Where a run has none, its served arms stand in, and so does a file of vLLM's answers: a
    block then is drafted in one pass, and at most its k-1 drafts are accepted.

    Raises:
        RecordError: there is no such sample, or no block in it was checked to its end.
    """
    if source.is_file():
        checks = _served_checks(accepted_in_file(source))
        there = "it has no pass"
    else:
        run = read_run(source)
        # The first pass of the quadratic form checks a block of masks, as its replay does.
        undrafted = int(way[1] == "quadratic")
        checks = [
            check
            for columns, row in _rows_of(run, _cases(run, way, block_size, label))
            for check in islice(checks_of_row(columns, row, block_size), undrafted, None)
        ] or _served_checks(accepted_in_run(run, label))
        served = (case for case in run.header.cases if case.arm.method == SERVED)
        there = f"{_words(way)} there: {_labels(_cases(run, way))}; served: {_labels(served)}"
    whole = tuple(check.draft_passes for check in checks if not check.last)
    if not whole:
        wanted = "" if label is None else f" and label {label!r}"
        raise RecordError(
            f"{source}: no block of size {block_size}{wanted} that the next-token head checked to its end, and no pass that a "
            f"server did; {there}"
        )
    return RecordedChecks(draft_passes=whole, misses=miss_rates(checks, block_size - 1))


def _words(way: Way) -> str:
    method, form, copies = way
    name = "verified SBD" if way == VERIFIED_SBD else " ".join(filter(None, (form, method.replace("_", "-"))))
    return f"{name} with copies" if copies else name


def _served_checks(accepted: Iterable[Accepted]) -> list[Check]:
    return [Check(draft_passes=1, agreed=drafts, last=cut) for drafts, cut in accepted]


def checks_of_row(passes: PassColumns, row: int, block_size: int) -> Iterator[Check]:
    """Every check of a row, in order.

    The pass over the prompt, or a check that accepts the whole block before, also counts as the block's first draft pass.
    """
    own = [index for index, role in enumerate(passes.role) if role != "prefill" and passes.active[index][row]]
    drafted = int(passes.role[0] == "prefill" and passes.logit_tokens[0][row] > 1)
    for index in own:
        kept = passes.kept_tokens[index][row]
        if not kept:
            drafted += 1
            continue
        yield Check(draft_passes=drafted, agreed=kept - 1, last=index == own[-1])
        drafted = int(kept == block_size)


def miss_rates(checks: Sequence[Check], drafts: int) -> tuple[float, ...]:
    """At each of ``drafts`` places, the share of drafts that were wrong where all before them were right.

    Drafts after the end of an answer are unknown and not counted (Kaplan and Meier, 1958). A place that no draft reached
    takes the rate of the place before.
    """
    rates: list[float] = []
    for place in range(drafts):
        missed = sum(check.agreed == place and not check.last for check in checks)
        reached = missed + sum(check.agreed > place for check in checks)
        rates.append(missed / reached if reached else rates[-1])
    return tuple(rates)


def accepted_in_run(run: Run, label: str | None = None) -> Iterator[Accepted]:
    """Of every row of the run's served samples with an acceptance of their own; with ``label``, of that arm alone."""
    served = (case for case in run.header.cases if case.arm.method == SERVED and case.replayed is None)
    for columns, row in _rows_of(run, (case for case in served if label in (None, case.label))):
        yield from accepted_of_row(columns, row)


def accepted_of_row(passes: PassColumns, row: int) -> Iterator[Accepted]:
    """Of every decode pass that checks: its tokens, less the one that is the model's own. The last one is cut."""
    final = [
        tokens[row]
        for role, tokens, active in zip(passes.role, passes.final_tokens, passes.active, strict=True)
        if role in ("verify", "decide") and active[row]
    ]
    for place, tokens in enumerate(final, start=1):
        yield tokens - 1, place == len(final)


def accepted_in_file(file: Path) -> Iterator[Accepted]:
    """Of every answer of vLLM in a file: one JSON object a line, or one in all. vLLM counts what lies after an answer's end.

    Raises:
        RecordError: a line is no answer, or lacks what is needed.
    """
    text = read_text(file, "answers of vLLM", RecordError)
    try:
        answers = [json.loads(text)]
    except ValueError:
        answers = [_line(file, number, line) for number, line in enumerate(text.splitlines(), start=1) if line.strip()]
    for number, answer in enumerate(answers, start=1):
        for accepted in _accepted(answer, f"{file}: answer {number}"):
            yield accepted, False


def _line(file: Path, number: int, line: str) -> Any:
    try:
        return json.loads(line)
    except ValueError as error:
        raise RecordError(f"{file}:{number}: is no JSON ({error}); give one answer of vLLM a line") from error


def _accepted(answer: Any, where: str) -> tuple[int, ...]:
    """Its listed passes, and those without a draft, which vLLM does not list: the other decode tokens, one a pass."""
    try:
        listed = [int(drafts) for drafts in answer["metrics"]["speculative_decoding"]["per_step_accepted"]]
        decoded = int(answer["usage"]["completion_tokens"]) - 1  # the prompt gave the first
    except (KeyError, TypeError, ValueError) as error:
        raise RecordError(
            f"{where}: lacks {WANTED}; ask vLLM with --enable-per-request-metrics --per-request-spec-decode-metrics detailed"
        ) from error
    return (*listed, *(0,) * max(0, decoded - sum(drafts + 1 for drafts in listed)))


def _labels(cases: Iterable[CaseHeader]) -> str:
    return ", ".join(map(repr, dict.fromkeys(case.label for case in cases))) or "none"
