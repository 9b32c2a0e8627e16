"""A run of one hand-written block, whose every figure is known."""

from __future__ import annotations

from harness.record.schema import PassColumns, RowResult, Run, Sample
from tests.helpers import synthetic_run as synthetic

STOP = 9
# Two rows, blocks of 4. Row 0: block 1 in two passes (slots 0 and 3, then 1 and 2); block 2 in two passes, its stop at slot 1
# found first. Row 1: one block in three passes, ended there by a stop at slot 3; it waits while row 0 goes on.
SLOTS = [None, [[0, 3], [1]], [[1, 2], [0]], [[], [2, 3]], [[1, 2], []], [[0], []]]
ACTIVE = [[True, True], [True, True], [True, True], [False, True], [True, False], [True, False]]
KEPT = [[5, 5], [0, 0], [0, 0], [0, 0], [4, 4], [0, 0]]
FINAL = [[0, 0], [1, 0], [3, 2], [0, 2], [0, 0], [2, 0]]
OUTPUTS = ([11, 12, 13, 14, 15, STOP], [21, 22, 23, STOP])


def sample(slots: bool = True, **more: object) -> Sample:
    """The decode above."""
    counts = [[0, 0] if one is None else [len(row) for row in one] for one in SLOTS]
    rows = [
        RowResult(
            prompt_id=f"p{i}",
            prompt_tokens=5,
            output_tokens=len(output),
            output_ids=output,
            stop_reason="stop",
            correct=None,
            ungraded_reason="no answer",
        )
        for i, output in enumerate(OUTPUTS)
    ]
    passes = PassColumns(
        role=["prefill", "decide", "decide", "decide", "commit+decide", "decide"],
        query_tokens=[[5, 5], *[[4, 4]] * 5],
        context_tokens=[[0, 0], *[[5, 5]] * 5],
        logit_tokens=[[1, 1], *[[4, 4]] * 5],
        kept_tokens=KEPT,
        decided_tokens=counts,
        final_tokens=FINAL,
        active=ACTIVE,
        padded_query=[5] + [4] * 5,
        padded_context=[0] + [5] * 5,
        decided_slots=SLOTS if slots else None,
    )
    fields = {"case_id": "c", "group": 0, "repeat": 0, "warmup": False, "seed": 1, "rows": rows, "passes": passes}
    fields |= {"prefill_s": None, "decode_s": None, "started_at": "2026-11-20T10:00:00Z", "load_1min": None}
    return Sample(**fields | more)  # type: ignore[arg-type]


def run(*samples: Sample, sessions: tuple[dict[str, object], ...] = ()) -> Run:
    """A run of nothing but these."""
    return Run(header=synthetic.build().header, samples=list(samples), outcomes=[], sessions=list(sessions))
