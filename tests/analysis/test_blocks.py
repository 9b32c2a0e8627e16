"""What became of the blocks: a trace worked by hand, published records, and what a record without positions still says."""

from __future__ import annotations

import pytest

from harness.analysis.evidence.blocks import NO_DECODE, NO_POSITIONS, block_passes, decoded_blocks, timeline
from harness.record.store import read_run
from tests.helpers import DATA
from tests.helpers.block_run import STOP, run, sample

RECORDS = DATA / "records"


def test_blocks_by_hand() -> None:
    """Which pass decided which position, when each token became final, and where the answer ends."""
    first, second = decoded_blocks(sample(), 0)
    assert (first.passes, first.decided_in, first.final_in, first.stops) == (2, (1, 2, 2, 1), (1, 2, 2, 2), False)
    assert (second.passes, second.decided_in, second.final_in, second.stops) == (2, (2, 1, 1, None), (2, 2), True)
    assert second.output_ids == (15, STOP)
    (only,) = decoded_blocks(sample(), 1)
    assert (only.passes, only.decided_in, only.final_in, only.stops) == (3, (2, 1, 3, 3), (2, 2, 3, 3), True)
    assert decoded_blocks(sample(slots=False), 0) == NO_POSITIONS


def test_heat_map_by_hand() -> None:
    """Three blocks: shares of the blocks in which a position was decided, every column adding up to 1; the last block of row
    0 never decides position 4. A warm-up counts nothing, and of a decode taken twice the later counts once.
    """
    found = block_passes(run(sample(warmup=True), sample(slots=False), sample()), ["c"])
    assert (found.blocks, found.reached, found.decided_tokens) == (3, (3, 3, 1), (5, 4, 2))
    assert found.decided == ((1, 2, 1, 1), (2, 1, 1, 0), (0, 0, 1, 1))
    assert found.shares == ((1 / 3, 2 / 3, 1 / 3, 1 / 2), (2 / 3, 1 / 3, 1 / 3, 0), (0, 0, 1 / 3, 1 / 2))
    assert found.reached_share == (1, 1, 1 / 3) and found.mean_decided == (5 / 3, 4 / 3, 2)


def test_without_positions_counts_are_left() -> None:
    """A record before version 5: passes and tokens as above, no positions, and why; no decode at all is said too."""
    found = block_passes(run(sample(slots=False)), ["c"])
    assert (found.reached, found.decided_tokens) == ((3, 3, 1), (5, 4, 2))
    assert found.decided is None and found.shares is None and found.reason == NO_POSITIONS
    half = block_passes(run(sample(), sample(slots=False, group=1)), ["c"])
    assert half.decided is None, "half of the positions are not the whole picture"
    assert block_passes(run(sample()), ["other"]) == NO_DECODE


def test_timeline_takes_the_first_decode_and_the_texts_of_its_part() -> None:
    """Cases in the arm's order, groups in theirs; texts of other parts stay out; as many blocks as were asked for."""
    texts = [{"event": "token_texts", "part": part, "texts": {"11": text}} for part, text in (("a", "<b>"), ("b", "no"))]
    samples = (sample(group=1), sample(case_id="d"), sample())
    found = timeline(run(*samples, sessions=tuple(texts)), "a", ["c", "d"], 1)
    assert (found.case_id, found.prompt_id, len(found.blocks), found.blocks_in_all) == ("c", "p0", 1, 2)
    assert found.texts == {11: "<b>"}
    assert timeline(run(sample(slots=False)), "a", ["c"], 1) == NO_POSITIONS
    assert timeline(run(), "a", ["c"], 1) == NO_DECODE


@pytest.mark.parametrize("version", [6, 7, 8])
def test_published_records(version: int) -> None:
    """What a real decode left: counts agree with the trace's own columns whatever the version."""
    found = read_run(RECORDS / f"v{version}")
    (case,) = (case for case in found.header.cases if case.arm.method == "sbd")
    blocks = block_passes(found, [case.case_id])
    taken = [one for one in found.samples if one.case_id == case.case_id and not one.warmup]
    decode = [(one.passes, i) for one in taken for i, role in enumerate(one.passes.role) if role != "prefill"]
    assert sum(blocks.reached) == len(decode)
    assert sum(blocks.decided_tokens) == sum(columns.decided_tokens[i][0] for columns, i in decode)
    assert blocks.blocks == len(taken) + sum(columns.role[i] == "commit+decide" for columns, i in decode)
    told = timeline(found, "reference", [case.case_id], 9)
    assert blocks.decided is not None
    assert [sum(line) for line in blocks.decided] == list(blocks.decided_tokens)
    final = [of[0] for of, role in zip(taken[0].passes.final_tokens, taken[0].passes.role, strict=True) if role != "prefill"]
    assert [block.final_in.count(n) for block in told.blocks for n in range(1, block.passes + 1)] == final
    assert sum((block.output_ids for block in told.blocks), ()) == tuple(taken[0].rows[0].output_ids)
    assert told.blocks[-1].stops and told.texts, "its tokens are spelt out in the record"
