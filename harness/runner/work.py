"""What a unit of a run has still to take: the missing samples of a whole run, of one process or of a cluster node."""

from __future__ import annotations

from dataclasses import field
from statistics import median

from harness.errors import CaseError, DoesNotFitError, NoTokenError, NotPossibleError
from harness.frozen import frozen
from harness.record.schema import Run
from harness.runner.estimates import what_would_fit
from harness.runner.job import Job
from harness.runner.options import RunOptions
from harness.runner.recorder import Failure
from harness.runner.stopping_rule import StoppingRule, missing_slots
from harness.runner.widths import with_widths
from harness.scenario.plan import Case, Share, Slot


@frozen
class Work:
    """What to take, by the stopping rule: all samples, or a ``share``, with the rest left to ``later`` processes.

    ``node``: the node in a run over a cluster. ``planned``: all samples of the plan, with those that are there. ``known_s``:
    seconds of a sample by case, from those that are there. ``begun_at``: when the run was (ISO 8601). ``calibrations``: of this
    machine, by part. ``options``: what the run was asked for besides its scenario.
    """

    missing: list[Slot]
    pace: StoppingRule
    options: RunOptions
    share: Share | None
    later: tuple[Slot, ...]
    planned: int
    node: str | None
    begun_at: str
    known_s: dict[str, float]
    free_bytes: dict[str, int | None] = field(default_factory=dict)
    calibrations: dict[str, object]

    @property
    def process(self) -> int:
        """The process number of the samples."""
        return self.share.process if self.share else 0

    def event(self, name: str, part: str | None = None) -> dict[str, object]:
        """The first fields of an entry about a part or about this whole process."""
        about = part or (self.share.part if self.share else None)
        whose = {"event": name, "part": about, "process": self.process, "node": self.node}
        return {key: value for key, value in whose.items() if value is not None}

    def failure(self, case: Case, error: CaseError, final: bool = False) -> Failure:
        """That of a case that could not run now; it is left out from here on."""
        self.pace.leave_out(case.case_id)
        reason = str(error)
        if isinstance(error, DoesNotFitError):
            reason += what_would_fit(case, self.free_bytes.get(case.part.name))
        return Failure(
            case_id=case.case_id,
            outcome=error.outcome,
            reason=reason,
            final=final or isinstance(error, NotPossibleError | NoTokenError),  # a second try would fail too
            part=case.part.name,
            process=self.process,
            node=self.node,
        )


def work_of(job: Job, held: Run, share: Share | None = None, node: str | None = None) -> Work:
    """The missing work of a run, or of a share, with the widths that the run chose when it began."""
    plan = with_widths(job.plan, {case.case_id: case.width for case in held.header.cases})
    pace = StoppingRule(plan, held)
    missing = missing_slots(plan, held, pace)
    after: list[Share] = []
    if share is not None and share.batch_size is None:  # fresh processes run one after the other, in the order of the plan
        order = list(dict.fromkeys(slot.share for slot in missing))
        after = order[order.index(share) + 1 :] if share in order else []
    return Work(
        missing=[slot for slot in missing if share is None or share.holds(slot)],
        pace=pace,
        options=job.options,
        share=share,
        later=tuple(slot for slot in missing if slot.share in after),
        planned=sum(1 for _ in plan.slots()),
        node=node,
        begun_at=held.header.created_at,
        known_s=_seconds_of_samples(held),
        calibrations={} if node else dict(held.header.calibration or {}),
    )


def _seconds_of_samples(held: Run) -> dict[str, float]:
    """Medians by case; warm-ups left out, which may compile."""
    found: dict[str, list[float]] = {}
    for one in held.samples:
        if not one.warmup and one.clock_span_s is not None:
            found.setdefault(one.case_id, []).append(one.clock_span_s)
    return {case_id: median(took) for case_id, took in found.items()}
