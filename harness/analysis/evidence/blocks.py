"""The blocks that an SBD arm decoded: which pass decided which position, as recorded.

A block of a row begins with the row's first decode pass and with every pass that commits the block before it. Samples with void
times count too: decisions do not depend on the clock.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import accumulate

from harness.analysis.tally.prices import Missing
from harness.frozen import frozen
from harness.record.schema import PassColumns, Run, Sample

NO_POSITIONS = "the record does not say which positions a pass decided (it is older than version 5, or made by another decoder)"
NO_DECODE = "no decode of this arm is in the record"


@frozen
class DecodedBlock:
    """One block of one row. Passes count from 1, without those in which the row only waited.

    ``decided_in``  per position the pass that decided its token; None: none did, the position is after the end
    ``output_ids``  the output tokens of the block, which come first; later positions are after the end
    ``stops``       whether the last output token is the row's stop
    """

    passes: int
    decided_in: tuple[int | None, ...]
    output_ids: tuple[int, ...]
    stops: bool

    @property
    def final_in(self) -> tuple[int, ...]:
        """Per output token the pass in which it became final: it and every token before it are known."""
        known = [one if one is not None else self.passes for one in self.decided_in[: len(self.output_ids)]]
        return tuple(accumulate(known, max))


@frozen
class Timeline:
    """The first blocks of one row, the number of all its blocks, and texts of tokens by id as far as recorded."""

    case_id: str
    prompt_id: str
    blocks: tuple[DecodedBlock, ...]
    blocks_in_all: int
    texts: dict[int, str]


@frozen
class BlockPasses:
    """All blocks of one arm by pass, entry 0 for the first: how many blocks took that pass, and the positions it decided.

    ``decided[n][slot]``: blocks whose pass n + 1 decided that position; None with a ``reason`` where only counts are known.
    """

    blocks: int
    reached: tuple[int, ...]
    decided_tokens: tuple[int, ...]
    decided: tuple[tuple[int, ...], ...] | None
    reason: Missing | None

    @property
    def reached_share(self) -> tuple[float, ...]:
        """Share of the blocks that take this many passes or more."""
        return tuple(count / self.blocks for count in self.reached)

    @property
    def mean_decided(self) -> tuple[float, ...]:
        """Positions that such a pass decides, on average over the blocks that take it."""
        return tuple(tokens / count for tokens, count in zip(self.decided_tokens, self.reached, strict=True))

    @property
    def shares(self) -> tuple[tuple[float, ...], ...] | None:
        """``decided`` ÷ the number of blocks that decided the position: every column adds up to 1."""
        if self.decided is None:
            return None
        totals = [sum(column) or 1 for column in zip(*self.decided, strict=True)]
        return tuple(tuple(count / total for count, total in zip(row, totals, strict=True)) for row in self.decided)


def block_passes(run: Run, case_ids: Sequence[str]) -> BlockPasses | Missing:
    """The blocks of one arm (its cases), warm-up left out."""
    reached, tokens, slots = Counter[int](), Counter[int](), Counter[tuple[int, int]]()
    sizes: dict[int, int] = {}
    all_named = True
    for sample in _samples(run, case_ids):
        columns = sample.passes
        for row in range(len(sample.rows)):
            for index, number in _passes_of(columns, row):
                reached[number] += 1
                tokens[number] += columns.decided_tokens[index][row]
                sizes.setdefault(number, columns.logit_tokens[index][row])
                named = columns.decided_slots[index] if columns.decided_slots else None
                all_named = all_named and named is not None
                slots.update((number, slot) for slot in (named[row] if named else ()))
    if not reached:
        return NO_DECODE
    decided = tuple(tuple(slots[number, slot] for slot in range(size)) for number, size in sorted(sizes.items()))
    return BlockPasses(
        blocks=reached[1],
        reached=tuple(reached[number] for number in sorted(reached)),
        decided_tokens=tuple(tokens[number] for number in sorted(reached)),
        decided=decided if all_named else None,
        reason=None if all_named else NO_POSITIONS,
    )


def timeline(run: Run, part: str, case_ids: Sequence[str], most_blocks: int) -> Timeline | Missing:
    """The first ``most_blocks`` blocks of the first row of an arm's first decode."""
    sample = next(_samples(run, case_ids), None)
    if sample is None:
        return NO_DECODE
    blocks = decoded_blocks(sample, 0)
    if isinstance(blocks, Missing):
        return blocks
    spelt = [event.get("texts") or {} for event in run.events("token_texts", part)]
    return Timeline(
        case_id=sample.case_id,
        prompt_id=sample.rows[0].prompt_id,
        blocks=blocks[:most_blocks],
        blocks_in_all=len(blocks),
        texts={int(token): str(text) for texts in spelt for token, text in texts.items()},
    )


def decoded_blocks(sample: Sample, row: int) -> tuple[DecodedBlock, ...] | Missing:
    """Every block of one row of a decode."""
    columns = sample.passes
    slots_of = columns.decided_slots
    if slots_of is None:
        return NO_POSITIONS
    decided: list[tuple[int, dict[int, int]]] = []
    size = 0
    for index, number in _passes_of(columns, row):
        known = {} if number == 1 else decided.pop()[1]
        size = columns.logit_tokens[index][row]
        decided.append((number, known | dict.fromkeys((slots_of[index] or [[]] * (row + 1))[row], number)))
    output, stopped = sample.rows[row].ids, sample.rows[row].stop_reason == "stop"
    return tuple(
        DecodedBlock(
            passes=count,
            decided_in=tuple(known.get(slot) for slot in range(size)),
            output_ids=tuple(output[i * size : (i + 1) * size]),
            stops=stopped and i * size < len(output) <= (i + 1) * size,
        )
        for i, (count, known) in enumerate(decided)
    )


def _passes_of(columns: PassColumns, row: int) -> Iterator[tuple[int, int]]:
    """(index in the columns, number in its block from 1) of every decode pass in which ``row`` was active."""
    number = 0
    for index, role in enumerate(columns.role):
        if role == "prefill" or not columns.active[index][row]:
            continue
        number = 1 if columns.kept_tokens[index][row] else number + 1
        yield index, number


def _samples(run: Run, case_ids: Sequence[str]) -> Iterator[Sample]:
    """An arm's decodes in the order of its cases and keys; of a sample recorded twice the later one."""
    wanted = set(case_ids)
    found = {sample.key: sample for sample in run.samples if sample.case_id in wanted and not sample.warmup}
    return iter(sorted(found.values(), key=lambda one: (case_ids.index(one.case_id), one.process, one.repeat, one.group)))
