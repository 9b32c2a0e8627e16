"""Compares one bound with one figure: met where the whole interval meets it, missed where the whole interval misses it.

* Void: a slow baseline, a figure that is an input of the run, no times left, or processes of unlike weights or machines.
* An arm that the claim does not name was picked on these decodes. It is judged at the simultaneous level of all candidates.
* What a claim names after the run is judged at the simultaneous level of all that it could have named.
* A run that may end when it is decided is judged at the level of its last look (harness.stats.looks).
* Times of fewer than three processes decide only a claim about these processes.
"""

from __future__ import annotations

from functools import partial

from harness.analysis.evidence.best_settings import faster
from harness.analysis.figures.accuracy import CANNOT_TELL, untold
from harness.analysis.figures.arms import MOST_LOST, TOTALS
from harness.analysis.judge.highlight import CellNotFound, ClaimedCell, in_words
from harness.analysis.judge.judgement import Judgement, State
from harness.analysis.judge.remedy import more_prompts
from harness.analysis.results import OWN, ArmResult, Comparison
from harness.analysis.trust.health import CLOCKLESS, QUIET, STREAM, UNCOUNTED
from harness.record.identity import Mix
from harness.scenario.claims import Bound
from harness.scenario.metrics import Basis
from harness.stats.quantity import FEWEST_PROCESSES, Quantity, absent, simultaneous_confidence, wilson_interval

REAL = "claim it of a run with real acceptance"
CONTINUE = "finish the run (the same sbd run continues it), or claim something about what it has"
SHOW_BASELINE = "show that NTP keeps up with generate(): raise baseline_check, or take more processes"
ESTIMATOR_WORDS = {"geometric_mean": "geometric mean", "ratio_of_totals": "ratio of totals"}
MEETS = {"met": "all of it", "missed": "none of it", "inconclusive": "part of it"}
MORE_PROCESSES = (
    f"run it in {FEWEST_PROCESSES} fresh processes (processes: {FEWEST_PROCESSES}), or claim it of these alone "
    "(scope: this process)"
)
MORE_FILES = f"import files of {FEWEST_PROCESSES} runs of each arm, or claim it of these alone (scope: this process)"
COUNT_PASSES = "let sbd run the servers (docs/servers.md): it counts their passes and keeps their tokens"
KEEP_ALL = (
    f"a new run that loses at most {MOST_LOST:.0%} of each arm's decodes: mend what failed (sbd report names it); {QUIET}"
)
NAME_IT = "a new run whose scenario claims it and names this arm (where: arm) judges it at its own level"

MEND_CHECK = "mend the answers, the check or its pattern, or take prompts that NTP answers in part"

REMEDIES = CLOCKLESS | {CANNOT_TELL: MEND_CHECK, UNCOUNTED: STREAM}
NO_FIGURE = absent("this comparison holds no such figure")
NO_REQUESTS = absent("no server decoded this arm, or its record is older than version 8: no request has times of its own")
Why = tuple[str, str | None]
"""A reason, and what to do about it."""


def figure(arm: ArmResult, bound: Bound) -> Quantity:
    """The figure that the bound is about, by its estimator."""
    name = _name(bound)
    found: Quantity = getattr(arm, name) if name in OWN else arm.figures.get(name, _no_figure(bound))
    return found


def judged_figure(place: ClaimedCell, bound: Bound, family: int = 1) -> Quantity:
    """The figure that decides: at the simultaneous level of all that was picked or named from, of all looks, and of ``family``
    claims.
    """
    own, among, arm = figure(place.arm, bound), (place.picked_from or 1) * family * place.looks, place.arm
    if among == 1 or own.value is None:
        return own
    level, kept = simultaneous_confidence(among), arm.simultaneous
    if bound.metric == "lossless":  # a share of prompts that servers' answers give; no decode holds it
        return wilson_interval(own.value * own.n, own.n, level)
    if kept and kept.confidence == level:
        return kept.figures.get(_name(bound), _no_figure(bound))
    return arm.at(_name(bound), level) if arm.at else _no_figure(bound)


def _no_figure(bound: Bound) -> Quantity:
    return NO_REQUESTS if bound.definition.of_requests else NO_FIGURE


def _name(bound: Bound) -> str:
    return bound.metric + (TOTALS if bound.estimator == "ratio_of_totals" else "")


def state_of(bound: Bound, value: Quantity) -> State:
    """Whether the whole interval is within the limits, or the whole of it outside; an end on a limit meets it."""
    low, high = bound.limits
    if value.value is None:
        return "void"
    if value.low is None or value.high is None:
        return "inconclusive"
    if (low is not None and value.high < low) or (high is not None and value.low > high):
        return "missed"
    return "met" if (low is None or value.low >= low) and (high is None or value.high <= high) else "inconclusive"


def judge(bound: Bound, place: ClaimedCell | CellNotFound, comparison: Comparison, scope: str | None = None) -> Judgement:
    """Compare the bound with the figure of ``place``. ``scope``: of the claim (Claim); None is any process."""
    metric = bound.definition
    answer = partial(
        Judgement,
        subject=in_words(place.names) or "this run",
        metric=bound.metric,
        kind="claim",
        cell=place.names,
        unit=metric.unit,
        better=metric.better,
        bound=bound.words,
    )
    if isinstance(place, CellNotFound):
        nothing, why = absent(place.reason), place.reason
        return answer(state="void", value=nothing, basis="measured", sizes={}, reason=why, remedy=CONTINUE)
    arm = place.arm
    value, judged = figure(arm, bound), judged_figure(place, bound)
    why_void = _why_mixed(place, comparison) or _why_void(bound, place, value) or _why_absent(bound, place, value)
    seen: State = "void" if why_void else state_of(bound, judged)
    decided, few = seen in ("met", "missed"), metric.clock and scope is None and (value.processes or 0) < FEWEST_PROCESSES
    # A slowness of NTP that the check did not exclude could change the outcome.
    unshown = metric.to_ntp and place.cell.baseline_check.state == "not_shown" and not _below(bound, value)
    state: State = "inconclusive" if decided and (few or unshown) else seen
    sizes = {_unit(bound, place): value.n} | ({"processes": value.processes} if value.processes else {})
    weak = [f"a claim about time is decided from {FEWEST_PROCESSES} processes on"] if few else []
    weak += [one.weakness for one in _mixes(place, comparison) if one.weakness]
    reason, remedy = why_void or ("; ".join([_reason(bound, place, value, judged, seen), *weak]), None)
    if state == "inconclusive":
        found = [MORE_FILES if place.cell.imported else MORE_PROCESSES] if few else []
        found += [SHOW_BASELINE] if decided and unshown else []
        found += [] if decided else [_remedy(bound, place, value)]
        remedy = "; ".join(found)
    basis: Basis = "replayed" if arm.replayed and not arm.is_ntp else metric.basis
    levels = tuple(filter(None, (place.named, "looked at after several processes" if place.looks > 1 else None)))
    return answer(state=state, value=value, basis=basis, sizes=sizes, reason=reason, remedy=remedy, levels=levels)


def _lost(bound: Bound, place: ClaimedCell) -> str | None:
    metric = bound.definition
    return (place.arm.lost_requests if metric.whole else place.arm.lost_times) if metric.clock else None


def _remedy(bound: Bound, place: ClaimedCell, value: Quantity) -> str:
    """What would decide the claim. Naming the arm before the run removes the simultaneous level."""
    if _lost(bound, place):
        return KEEP_ALL
    own = state_of(bound, value)
    more = more_prompts(bound, value, place.arm.figures.get("accuracy_loss_sd_points"), place.cell.unit_of_times)
    if place.picked_from is None:
        return more
    return NAME_IT if own != "inconclusive" else f"{NAME_IT}; for it: {more}"


def _mixes(place: ClaimedCell, comparison: Comparison) -> list[Mix]:
    """Those of the part and of the part that is its baseline."""
    return [one for one in comparison.mixes if one.part in (place.cell.part, place.cell.baseline_part)]


def _why_mixed(place: ClaimedCell, comparison: Comparison) -> Why | None:
    """Why nothing of the part is judged: sbd itself never goes on so without a word in the record."""
    words = [f"part {one.part}: {one.why_void}" for one in _mixes(place, comparison) if one.why_void]
    return ("; ".join(words), "take the processes of one run with one model, program and machine") if words else None


def _why_void(bound: Bound, place: ClaimedCell, value: Quantity) -> Why | None:
    """Why a figure that exists is not judged, and what to do."""
    check, arm, metric = place.cell.baseline_check, place.arm, bound.definition
    if arm.is_ntp and (metric.to_ntp or metric.either_way or metric.of_prompts or bound.metric == "nfe_speedup"):
        return "NTP is what the other arms are compared with", "name another arm"
    if bound.metric == "nfe_speedup" and arm.replayed:
        return "the acceptance is replayed: how many passes are saved was given to this run, it is no finding of it", REAL
    ntp = next((one.accuracy for one in place.cell.arms if one.is_ntp), NO_FIGURE)
    loss = bound.max if bound.metric == "accuracy_loss_points" else None
    if loss and (why := untold((ntp.value or 0.0) * ntp.n, ntp.n, ntp.n, loss / 100)):
        return why, MEND_CHECK
    if metric.to_ntp and arm.paired.one_sided:
        return arm.wall_speedup.reason or "one side lacks prompts of the other", CONTINUE
    if metric.to_ntp and check.state == "different_tokens":
        return f"{check.reason}: the baseline did other work, so no speedup is claimed", (
            "find out which of the two decodes wrongly; the record has the output_ids of both"
        )
    if metric.to_ntp and check.state == "slow" and not _below(bound, value):
        speed = check.best_speed.value if check.best_speed else None
        beside = f": NTP ran at {speed:.2f}x the speed of {check.best}" if speed is not None else ""
        rival = check.best if check.has_engines else "generate()"
        return f"against a slow baseline{beside}; no speedup is claimed", (
            f"make NTP keep up with {rival} first (session: static, execution: auto)"
        )
    return None


def _below(bound: Bound, value: Quantity) -> bool:
    """Whether the whole interval is below the claimed minimum. A slow baseline raises a speedup, so this holds with any."""
    return bound.min is not None and value.high is not None and value.high < bound.min


def _why_absent(bound: Bound, place: ClaimedCell, value: Quantity) -> Why | None:
    """Why the figure is absent; void samples are named by the rules they broke."""
    if value.value is not None:
        return None
    for side in place.cell.sides(place.arm) if bound.definition.clock else ():
        voids = side.voids
        if 0 < voids.timed == voids.void:
            todo = "; ".join(dict.fromkeys(REMEDIES.get(rule, QUIET) for rule in voids.reasons))
            return f"all {voids.timed} timed samples of {side.label} were void: {'; '.join(voids.reasons)}", todo
    said = place.cell.void_words(place.arm)
    remedy = next((one for words, one in REMEDIES.items() if words in f"{value.reason} {said}"), None)
    if bound.definition.clock and not place.cell.timed:
        remedy = "run it with timed: true"
    elif place.cell.imported and not bound.definition.clock:
        remedy = COUNT_PASSES
    elif bound.definition.of_prompts and place.arm.replayed:
        remedy = REAL
    beside = f"; {said}" if said and bound.definition.clock else ""
    return f"{value.reason or 'there is no figure'}{beside}", remedy


def _reason(bound: Bound, place: ClaimedCell, value: Quantity, judged: Quantity, state: State) -> str:
    """The interval beside the bound, its basis, and every weakness."""
    by = f"{ESTIMATOR_WORDS[bound.estimator]}, " if bound.definition.averaged else ""
    population = "" if bound.definition.of_requests else place.cell.population
    ground = f"{by}{value.n:,} {_unit(bound, place)} {population}".rstrip()
    if value.low is None or value.high is None:
        found = f"{_number(value.value)}, no interval ({value.reason or 'none is known for it'}; {ground})"
    else:
        ends = f"{_number(value.low)} to {_number(value.high)}"
        found = f"{_number(value.value)}, 95 % interval {ends} ({ground})"
        found += "" if place.level else f": {MEETS[state]} {bound.words}"
    if place.level:
        level = f"{place.level} at a simultaneous 95 % level"
        if judged.low is None or judged.high is None:
            found += f"; {level}, at which there is no interval ({judged.reason})"
        else:
            found += f"; {level}, {_number(judged.low)} to {_number(judged.high)}: {MEETS[state]} {bound.words}"
    return "; ".join([found, *_remarks(bound, place, value)])


def _remarks(bound: Bound, place: ClaimedCell, value: Quantity) -> list[str]:
    """Beside a decode speedup that of the request, prompt included, and the time to the first token; then every weakness."""
    check, metric = place.cell.baseline_check, bound.definition
    speed, first = place.arm.request_speedup.value, place.arm.first_token_s.value
    found = []
    if bound.metric == "wall_speedup" and speed is not None:
        beside = "" if first is None else f", first token after {first:.3g} s"
        found.append(f"request speedup (prompt included) {_number(speed)}x{beside}")
    if bound.metric.endswith("speedup"):
        found += filter(None, [faster(place.cell, place.arm)])
    if place.arm.replayed and not place.arm.is_ntp:
        found.append("given this acceptance (replayed)")
    if metric.clock and place.arm.decode_time_estimated:
        found.append(place.arm.decode_time_estimated)
    if (lost := _lost(bound, place)) and lost not in (value.reason or ""):
        found.append(f"{lost}: an interval holds them at their slowest and at their fastest")
    if value.these_processes_only:
        found.append(value.these_processes_only)
    if metric.to_ntp:
        baseline = {
            "unchecked": f"NTP was not held against generate(): {check.reason}",
            "not_shown": "these decodes do not show that NTP keeps up with generate(), so they confirm nothing",
            "slow": "against a slow baseline, which lifts the figure: it falls short all the same",
        }
        found += filter(None, [baseline.get(check.state), check.ceiling.words if check.ceiling else None])
    if metric.either_way and value.method:
        found.append(value.method.partition(";")[0])
    if metric.clock and (void := place.cell.void_words(place.arm)):
        found.append(void)
    return [*found, *(place.cell.imported if metric.clock else ())]


def _unit(bound: Bound, place: ClaimedCell) -> str:
    """The unit of counting: prompts for grades and outputs, requests where they are what is counted, else that of times."""
    metric = bound.definition
    if metric.of_requests:
        return "requests"
    return "prompts" if metric.of_prompts else place.cell.unit_of_times.partition(" ")[0]


def _number(value: float | None) -> str:
    if value is None:
        return "none"
    return f"{value:.4g}" if abs(value) < 1000 else f"{value:,.0f}"
