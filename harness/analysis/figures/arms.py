"""The arms of a cell beside NTP, and the table of their figures: each row of harness.scenario.metrics has its function.

At batch sizes above 1 a batch takes the place of a prompt. A ratio of sums has two estimates. Its name alone is the geometric
mean over prompts; its name with ``_totals`` is the ratio of totals.

Example:
    @figure("tokens_per_s")
    def tokens_per_s(one: ArmBesideNtp, level: float) -> Figures:
        terms = [Term(tally, tally.decode_tokens, tally.decode_s or 0.0) for tally in one.timed]
        return both("tokens_per_s", terms, one.why_untimed, level)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from harness.analysis.figures import accuracy as on_accuracy
from harness.analysis.figures.accuracy import Clusters, Grades, Outputs
from harness.analysis.figures.arm_metrics import NO_PASS, Pair, Term, both_estimates, filled, one_sided, pair_up
from harness.analysis.tally.by_request import Tallies
from harness.analysis.tally.prices import Ladder, Missing
from harness.analysis.tally.requests import Window, why_unsettled
from harness.analysis.tally.tally import GroupKey, Tally, charged
from harness.analysis.tally.traffic import CounterScale
from harness.analysis.trust.health import Voids, arm_values
from harness.frozen import frozen
from harness.hardware.profile import Calibration
from harness.record.schema import CaseHeader, ImportedFile
from harness.record.written import WrittenArm
from harness.scenario.load import Load
from harness.scenario.metrics import METRICS, Metric
from harness.stats.quantity import CONFIDENCE, Quantity, absent

TOTALS = "_totals"
MOST_LOST, MOST_APART = 0.02, 0.01
"""Share of an arm's decodes without a time, and its distance from that of NTP, up to which times speak for all decodes."""
FILLED = {"wall_speedup", "wall_over_nfe"}
NOT_TIMED = "this part was not timed"
NO_TIMES = "no sample of this arm has a time: every one was void"
NO_CHOICE = "no decode pass was made: every answer of NTP is one token long, which the prompt's own pass gives"
NTP_VOID = "no sample of NTP has a time: every one was void"
ONE_DRAW = "all processes had the same arrivals and prompts: no interval over others; a new run draws them anew in each process"
SAME_PROMPTS = "the same prompts in another order in each"
NO_NTP = "no NTP arm in this part decoded the same prompts"
NOT_GRADED = "NTP was not graded on the same prompts"


@dataclass(frozen=True, kw_only=True)  # no slots: cached_property needs __dict__
class Arm:
    """The cases of one arm in one cell (one per task) with their tallies."""

    cases: tuple[CaseHeader, ...]
    tallies: tuple[Tally, ...]

    @property
    def spec(self) -> WrittenArm:
        """The arm's values on every axis, as the scenario resolved them."""
        return self.cases[0].arm

    @property
    def method(self) -> str:
        """``ntp`` or ``sbd``."""
        return self.spec.method

    @property
    def temperature(self) -> float:
        """Sampling temperature; a scenario that names none samples greedily."""
        return self.spec.temperature or 0.0

    @property
    def replayed(self) -> Mapping[str, object] | None:
        """Source of the acceptance, for an arm whose acceptance was replayed."""
        return next((case.replayed for case in self.cases if case.replayed is not None), None)

    @cached_property
    def grades(self) -> Grades:
        """The grades of its answers; a replayed acceptance gives none."""
        return {} if self.replayed else on_accuracy.grades(self.tallies)

    @cached_property
    def accuracy(self) -> Quantity:
        """Share of correct prompts with its interval."""
        return on_accuracy.accuracy(self.grades, self.tallies, self.replayed is not None)

    @cached_property
    def related(self) -> Clusters:
        """The clusters of its prompts."""
        return on_accuracy.clusters(self.tallies)

    @cached_property
    def draws(self) -> dict[tuple[int, int | None], Window]:
        """The steady parts of its samples, by process and seed."""
        return {(tally.key[3], one.window.seed): one.window for tally in self.tallies for one in tally.requests}

    @cached_property
    def why_unsettled(self) -> str | None:
        """Why its load was never steady."""
        return why_unsettled(list(self.draws.values()))

    @cached_property
    def prompts_again(self) -> bool:
        """Whether processes share prompts."""
        prompts = {(tally.prompts, tally.key[3]) for tally in self.tallies}
        return len({one for one, _ in prompts}) < len(prompts)

    @cached_property
    def outputs(self) -> Outputs:
        """Its output ids, decode by decode."""
        return on_accuracy.outputs(self.tallies)


def beside_ntp(cases: Sequence[CaseHeader], tallies: Tallies) -> list[tuple[Arm, Arm | None]]:
    """Every arm with NTP of its part and batch size, itself for NTP; arms that left no sample are left out.

    Cases that differ in nothing but the task are one arm. NTP is that at the same temperature, else the first one. Decode times
    include the time of the prompts' pass beyond NTP's.
    """
    gathered: dict[tuple[str, int, str, str], list[CaseHeader]] = {}
    for case in cases:
        if not case.is_check:  # generate() is no arm: the baseline is compared with it
            gathered.setdefault((case.part, case.batch_size, case.label, arm_values(case)), []).append(case)
    every = [
        Arm(cases=tuple(members), tallies=tuple(one for case in members for one in tallies(case.case_id)))
        for members in gathered.values()
    ]
    arms = [arm for arm in every if arm.tallies]
    places = [_ntp_for(arm, arms) for arm in arms]
    whole = [
        replace(arm, tallies=charged(arm.tallies, () if place is None else arms[place].tallies))
        for arm, place in zip(arms, places, strict=True)
    ]
    return [(arm, None if place is None else whole[place]) for arm, place in zip(whole, places, strict=True)]


def _ntp_for(arm: Arm, arms: Sequence[Arm]) -> int | None:
    """The place of its NTP among ``arms``."""
    cell = (arm.cases[0].part, arm.cases[0].batch_size)
    found = [i for i, one in enumerate(arms) if one.method == "ntp" and (one.cases[0].part, one.cases[0].batch_size) == cell]
    same = [i for i in found if arms[i].temperature == arm.temperature]
    return next(iter(same or found), None)


@frozen
class CellContext:
    """What all arms of a cell share.

    ``voids``: of its cases that were timed, by case id. ``calibration``: of its machine, or why it is absent. ``remarks``: what
    is odd about its prompts. ``imported``: what limits the figures of an imported run. ``lacks``: why such a run has no ids,
    passes or grades, by names of harness.record.imported. ``unpaired``: why its requests have no pairs; None where they have.
    ``files``: of an imported run; ``widest``: most requests of one of them. ``wrong``: prompts that some arm answers wrongly.
    """

    ladder: Ladder
    counter_scale: CounterScale
    timed: bool
    baseline_part: str | None
    load: Load | None
    baseline_grades: Grades
    why_unchecked: str
    voids: Mapping[str, Voids]
    calibration: Calibration | Missing
    remarks: tuple[str, ...]
    imported: tuple[str, ...]
    lacks: Mapping[str, str]
    unpaired: str | None
    widest: int = 1
    files: Sequence[ImportedFile] = ()
    wrong: int = 0


@dataclass(frozen=True, kw_only=True)  # no slots: cached_property needs __dict__
class ArmBesideNtp:
    """One arm of a cell and the NTP arm that it is compared with: itself for NTP, None where the cell has no such arm."""

    arm: Arm
    ntp: Arm | None
    place: CellContext
    _made: dict[tuple[Maker, float], Figures] = field(default_factory=dict, compare=False)

    def figure(self, name: str, level: float = CONFIDENCE) -> Quantity:
        """The figure of a row of METRICS, by either estimator, with its interval at ``level``."""
        return self._by(FIGURES[name.removesuffix(TOTALS)], level)[name]

    def figures(self, level: float = CONFIDENCE) -> Figures:
        """All of them, with those that stand beside them; of requests only where requests have times."""
        return {name: one for make in dict.fromkeys(FIGURES.values()) for name, one in self._by(make, level).items()}

    def _by(self, make: Maker, level: float) -> Figures:
        """Each is made once a level."""
        if (make, level) not in self._made:
            found = {name: self._under_load(name, one) for name, one in make(self, level).items()}
            self._made[make, level] = found | self._weakened(make, found, level)
        return self._made[make, level]

    def _under_load(self, name: str, found: Quantity) -> Quantity:
        """No figure by the clock of a load that did not settle; no interval where all processes repeat one draw of requests."""
        metric, load = _by_clock(name), self.place.load
        if load is None or load.trace or metric is None:
            return found
        if len({seed for _, seed in self.arm.draws}) < len(self.arm.draws):
            return found.without_interval(ONE_DRAW)  # nor is one draw, several times, a test of a queue that grows
        for arm in (self.arm, self.reference if metric.to_ntp else None):
            if arm and arm.why_unsettled:
                return absent(arm.why_unsettled)
        again = found.method and self.arm.prompts_again
        return replace(found, method=f"{found.method}, {SAME_PROMPTS}") if again else found

    def _weakened(self, make: Maker, found: Figures, level: float) -> Figures:
        """The clock's figures without intervals where times are in doubt; FILLED with what the lost decodes may have taken."""
        weak = {}
        for name, one in found.items():
            metric = _by_clock(name)
            if metric and metric.claimed and (why := self.lost_requests if metric.whole else self.lost_times):
                weak[name] = one.without_interval(f"{why}: no interval")
        if self.pairs and not FILLED.isdisjoint(weak):
            slow, fast = (make(self._filled(end), level) for end in (True, False))
            for name in weak:
                low, high = (found[name].low, slow[name].low), (found[name].high, fast[name].high)
                if all(low) and all(high):
                    weak[name] = replace(found[name], low=min(filter(None, low)), high=max(filter(None, high)))
        return weak

    def _filled(self, slow: bool) -> ArmBesideNtp:
        other = replace(self, _made={})
        vars(other)["pairs"] = filled(self.pairs, (self.ntp or self.arm).tallies, self.arm.tallies, slow)
        return other

    @cached_property
    def lost_times(self) -> str | None:
        """Why times of decodes are in doubt: many have none, or more of one side, and they may be the slow ones."""
        return self._lost("decode_s")

    @cached_property
    def lost_requests(self) -> str | None:
        """Why times of whole requests are."""
        return self._lost("latency_s")

    def _lost(self, time: str) -> str | None:
        """A request that a load does not count is not lost."""
        sides, shares = (self.arm, self.ntp or self.arm), list[float]()
        for arm in sides:
            asked = sum(file.requests for file in self.place.files for case in arm.cases if case.case_id == file.case_id)
            timed = sum(getattr(one, time) is not None or not all(each.counted for each in one.requests) for one in arm.tallies)
            asked = asked or max(len(one.tallies) for one in sides)
            shares.append((asked - timed) / asked)
        own, ntp = shares
        if not self.place.timed or (own <= MOST_LOST and abs(own - ntp) <= MOST_APART):
            return None
        return f"{own:.1%} of its decodes and {ntp:.1%} of NTP's failed or are void"

    @property
    def reference(self) -> Arm | None:
        """NTP, for an arm that is another one."""
        return None if self.ntp is self.arm else self.ntp

    @property
    def compared(self) -> list[Pair]:
        """The pairs of an arm besides NTP; none where prompts have no pair."""
        return self.pairs if self.reference and not self.lost else []

    @property
    def why_uncompared(self) -> str:
        """Why there are none."""
        return (self.why_lost or self.why_unpaired) if self.timed else self.why_untimed

    @property
    def why_no_passes(self) -> str:
        """Why no decode pass is known."""
        return self.place.lacks.get("passes", NO_PASS)

    @cached_property
    def timed(self) -> list[Tally]:
        """Its samples with a time, which void ones lack."""
        return [tally for tally in self.arm.tallies if self.place.timed and tally.decode_s is not None]

    @cached_property
    def pairs(self) -> list[Pair]:
        """Its timed samples, each with NTP's; none where the files of an imported run hold other prompts."""
        return pair_up(self.ntp.tallies, self.timed) if self.ntp and self.place.unpaired is None else []

    @cached_property
    def lost(self) -> list[GroupKey]:
        """(task, group) that only one of the two decoded."""
        pairs = self.ntp is not None and self.place.timed and self.place.unpaired is None
        return one_sided(self.ntp.tallies, self.arm.tallies) if self.ntp and pairs else []

    @property
    def why_unpaired(self) -> str:
        """Why no decode has NTP's beside it."""
        if self.ntp is None:
            return NO_NTP
        if not any(one.decode_tokens for one in self.ntp.tallies):
            return NO_CHOICE
        return NO_NTP if any(one.decode_s is not None for one in self.ntp.tallies) else NTP_VOID

    @property
    def why_lost(self) -> str | None:
        """Why there is no interval where prompts have no pair."""
        if not self.lost:
            return None
        task, group = self.lost[0]
        return (
            f"{len(self.lost)} prompts were decoded by NTP alone or by this arm alone (first: {task}, number {group}): "
            "no interval over the others, for what is left out of one side flatters it; "
            "the same command continues an unfinished run"
        )

    @property
    def why_untimed(self) -> str:
        """Why none of its samples has a time."""
        return NO_TIMES if self.place.timed else NOT_TIMED

    @property
    def why_ungraded(self) -> str:
        """Why its accuracy cannot be compared with NTP's."""
        return self.arm.accuracy.reason or NOT_GRADED


def _by_clock(name: str) -> Metric | None:
    """The row of METRICS of a figure, where that rests on times."""
    metric = METRICS.get(name.removesuffix(TOTALS))
    return metric if metric and metric.clock else None


Figures = dict[str, Quantity]
Maker = Callable[[ArmBesideNtp, float], Figures]
"""From an arm and the level of intervals to one figure, or to several that are made together."""
FIGURES: dict[str, Maker] = {}
"""The function of each row of METRICS that is derived from an arm."""


def figure(*rows: str) -> Callable[[Maker], Maker]:
    """Let the function make the figures of these rows of METRICS."""

    def register(make: Maker) -> Maker:
        FIGURES.update(dict.fromkeys(rows, make))
        return make

    return register


def both(row: str, terms: Sequence[Term], why_none: str, level: float, clock: bool = True) -> Figures:
    """A ratio by either estimator, over the terms that are positive."""
    mean, totals = both_estimates([term for term in terms if min(term[1:]) > 0], why_none, level, clock)
    return {row: mean, row + TOTALS: totals}
