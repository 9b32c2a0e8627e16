"""A prompt that a workload holds several times is one unit, in times, passes and accuracy: as if each stood there once."""

from __future__ import annotations

from dataclasses import replace

import pytest

from harness.analysis.answer import compare
from harness.analysis.results import ArmResult
from harness.record.schema import Run
from harness.regression.changes import compare_runs
from tests.helpers import synthetic_run as synthetic

DISTINCT = 6
LABEL = synthetic.ARMS[2].label
WRONG = frozenset({1, 4})


def asked(part: synthetic.Part, digests: dict[int, str | None]) -> Run:
    """A run whose prompt ``p{i}`` has the digest ``digests[i]``."""
    return synthetic.with_rows(synthetic.build(part), lambda _, row: {"prompt_digest": digests[int(row.prompt_id[1:])]})


def copies(times: int, known: bool = True) -> Run:
    """``times`` copies of six prompts, one behind the other; each copy is decoded as the first one was."""
    count = DISTINCT * times
    wrong = frozenset(i for i in range(count) if i % DISTINCT in WRONG)
    arms = tuple(replace(arm, wrong=wrong if arm.gamma == 0.6 else frozenset()) for arm in synthetic.ARMS)
    part = synthetic.Part(prompts=count, jitter=0.1, arms=arms)
    run = asked(part, {i: f"{i % DISTINCT:016x}" if known else None for i in range(count)})
    times_of = {(one.case_id, one.group): one for one in run.samples}

    def as_the_first(one):
        first = times_of[one.case_id, one.group % DISTINCT]
        return one.model_copy(update={"decode_s": first.decode_s, "prefill_s": first.prefill_s, "passes": first.passes})

    return synthetic.with_samples(run, (as_the_first(one) for one in run.samples))


def fast(run: Run) -> ArmResult:
    """The fastest arm of a run."""
    return synthetic.arm_of(compare(run), LABEL)


FIGURES = ("wall_speedup", "wall_speedup_totals", "accuracy", "accuracy_difference", "identical_to_ntp")
CLAIMED = (
    "nfe_speedup",
    "request_speedup",
    "wall_over_nfe",
    "tokens_per_s",
    "latency_p50_s",
    "accuracy_loss_points",
    "accuracy_loss_sd_points",
    "distinct4_median",
)


def test_copies_change_no_figure() -> None:
    """Five copies of six prompts have the values, intervals and counts of the six; counted apart they would look surer."""
    once, often = fast(copies(1)), fast(copies(5))
    assert fast(copies(5, known=False)).wall_speedup.low > once.wall_speedup.low
    assert often.prompts == once.prompts == DISTINCT and often.samples == 5 * once.samples
    for name in FIGURES:
        assert getattr(often, name) == pytest_like(getattr(once, name)), name
    for name in CLAIMED:
        assert often.figures[name] == pytest_like(once.figures[name]), name
    assert (often.paired.p10, often.paired.p90) == pytest.approx((once.paired.p10, once.paired.p90))


class pytest_like:
    """Equal to a quantity with the same count whose numbers are the same but for rounding."""

    def __init__(self, wanted) -> None:
        self.wanted = wanted

    def __eq__(self, found: object) -> bool:
        numbers = ("value", "low", "high")
        same = all(getattr(found, name) == pytest.approx(getattr(self.wanted, name)) for name in numbers)
        return same and (found.n, found.processes) == (self.wanted.n, self.wanted.processes)  # type: ignore[attr-defined]

    def __repr__(self) -> str:
        return repr(self.wanted)


def test_a_record_without_digests_counts_every_prompt() -> None:
    """An earlier record does not know: as it was judged when it was written."""
    assert fast(copies(5, known=False)).wall_speedup.n == 5 * DISTINCT


@pytest.mark.parametrize(
    ("digests", "units"), [("ab cd ef gh", 4), ("ab ab cd cd", 2), ("ab bc de fg", 3), ("aa aa aa aa", 1), ("ab ba ab ba", 1)]
)
def test_batches_that_share_a_prompt_are_one_unit(digests: str, units: int) -> None:
    """At batch 2, by the digests of each batch's prompts."""
    letters = digests.replace(" ", "")
    run = asked(synthetic.Part(prompts=8, batch_size=2, jitter=0.1), dict(enumerate(letters)))
    found = fast(run)
    assert found.wall_speedup.n == found.figures["nfe_speedup"].n == units
    assert found.prompts == len(set(letters))


def test_two_tasks_may_hold_the_same_prompt() -> None:
    """Two tasks of four prompts each, one of them in both: seven in all."""
    run = synthetic.build(tasks=("one", "two"), prompts=4, jitter=0.1)
    task = {case.case_id: case.task for case in run.header.cases}

    def named(sample, row):
        name = f"{task[sample.case_id]}/{row.prompt_id}"
        return {"prompt_id": name, "prompt_digest": "both" if name.endswith("p0") else name}

    found = fast(synthetic.with_rows(run, named))
    assert (found.prompts, found.accuracy.n, found.wall_speedup.n, found.figures["nfe_speedup"].n) == (7, 7, 7, 7)


def test_two_runs_are_compared_over_distinct_prompts() -> None:
    """Times and grades of copies: as many pairs as there are prompts; an earlier record beside it is still compared."""
    for base in (copies(5), copies(5, known=False)):
        changes = {one.key: one for one in compare_runs(base, copies(5)).changes}
        assert {one.ratio.n for one in changes.values() if one.metric == "wall_speedup"} == {DISTINCT}
        assert {one.difference.n for one in changes.values() if one.difference} == {DISTINCT}
