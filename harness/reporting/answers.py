"""The plain-language answer on top of the page: the values of a comparison put into sentences, nothing computed.

Every card is built from the highlighted arm of one part and batch size; where a value is absent its reason is said.
"""

from __future__ import annotations

from dataclasses import dataclass

from harness import units
from harness.compare_values import ArmResult, Cell, Comparison, Highlight
from harness.record import RunHeader
from harness.reporting import wording
from harness.stats import Quantity

SAME = 0.03
"""A factor closer to 1 than this is not worth a word."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One card: ``figure`` with its unit in large type, its interval, sentences, and marks as text badges."""

    title: str
    figure: str
    figure_unit: str
    interval: str
    sentences: tuple[str, ...]
    marks: tuple[str, ...]


def answers(comparison: Comparison, header: RunHeader) -> list[Answer]:
    """One answer per part and batch size, in the order of the scenario."""
    return [_answer(comparison.summary(found.part, found.batch_size), found, header) for found in comparison.highlights]


def _answer(cell: Cell, highlight: Highlight, header: RunHeader) -> Answer:
    where = f"On {wording.machine(header, cell.device)}, for {wording.model(cell)}"
    title = f"{cell.part}: {cell.model}, batch {cell.batch_size}"
    arm = next((arm for arm in cell.arms if arm.label == highlight.label), None)
    if arm is None:
        said = f"{where}, nothing can be said: {highlight.reason}."
        return Answer(title=title, figure="none", figure_unit="no answer", interval="", sentences=(said,), marks=())
    ntp = next((other for other in cell.arms if other.is_ntp), None)
    sentences = [
        _timed(where, cell, arm, ntp) if cell.timed else _untimed(where, arm, ntp),
        _why(cell, arm),
        _other_arms(cell, arm),
        _ground(highlight, arm),
        _against_baseline(cell, ntp),
        _against_generate(cell),
    ]
    kept = tuple(sentence for sentence in sentences if sentence)
    if highlight.basis == "none":  # a speed that costs the answers is not an answer: say so in large type
        no = "no arm keeps the accuracy of NTP"
        return Answer(title=title, figure="none", figure_unit=no, interval="", sentences=kept, marks=_marks(cell, arm))
    speed = arm.wall_speedup if cell.timed else arm.nfe_speedup
    return Answer(
        title=title,
        figure=units.ratio(speed.value) if speed.value is not None else "none",
        figure_unit=_verdict(speed, cell) if cell.timed else "fewer forward passes; not timed",
        interval=_interval(speed) if cell.timed else "",
        sentences=kept,
        marks=_marks(cell, arm),
    )


def _marks(cell: Cell, arm: ArmResult) -> tuple[str, ...]:
    marks = ["measured" if cell.timed else "not timed"]
    if arm.replayed:
        marks.append("replayed")
    if arm.predictions:
        marks.append("predicted")
    return tuple(marks)


def _verdict(speed: Quantity, cell: Cell) -> str:
    if speed.value is None:
        return "no wall-clock figure"
    if cell.baseline_check.state == "slow":
        return "the speed of a slow baseline"
    if speed.low is not None and speed.high is not None and speed.low <= 1 <= speed.high:
        return "the speed of NTP: no clear difference"
    return "faster by the clock" if speed.value > 1 else "the speed of NTP: slower by the clock"


def _interval(speed: Quantity) -> str:
    if speed.low is None or speed.high is None:
        return f"no interval: {speed.reason}" if speed.reason else ""
    return f"95\u00a0% interval {speed.low:.2f}–{speed.high:.2f}"


def _needed(arm: ArmResult) -> str:
    if arm.nfe_speedup.value is None:
        return f"has no NFE speedup ({arm.nfe_speedup.reason})"
    passes = f"{units.ratio(arm.nfe_speedup.value)} fewer forward passes"
    return f"needed {passes}" if not arm.replayed else f"was made to need {passes} (replayed: given, not found)"


def _timed(where: str, cell: Cell, arm: ArmResult, ntp: ArmResult | None) -> str:
    return f"{where}, {wording.arm(arm)} {_needed(arm)} and {_ran(arm, cell)}, {_accuracy(arm, ntp)}{_predicted(arm)}."


def _untimed(where: str, arm: ArmResult, ntp: ArmResult | None) -> str:
    prompts = units.count(arm.prompts)
    said = f"{where}, {wording.arm(arm)} {_needed(arm)}, {_accuracy(arm, ntp)}, over {prompts} prompts."
    return f"{said} It was not timed: this says nothing about the clock."


def _ran(arm: ArmResult, cell: Cell) -> str:
    wall = arm.wall_speedup
    if wall.value is None:
        return f"has no wall-clock figure ({wall.reason})"
    if cell.baseline_check.state == "slow":
        return f"ran at {units.ratio(wall.value)} the speed of a slow baseline ({_interval(wall)})"
    unit = "prompts" if cell.batch_size == 1 else f"batches of {cell.batch_size}"
    ground = ", ".join(text for text in (_interval(wall), f"{wall.n} {unit}", wording.processes(wall)) if text)
    if wall.value >= 1:
        return f"ran {units.ratio(wall.value)} faster by the clock ({ground})"
    return f"ran slower, at {units.ratio(wall.value)} the speed of NTP by the clock ({ground})"


def _accuracy(arm: ArmResult, ntp: ArmResult | None) -> str:
    if arm.accuracy.value is None:
        return f"with no accuracy ({arm.accuracy.reason})"
    beside = f" (NTP {units.percent(ntp.accuracy.value)})" if ntp and ntp.accuracy.value is not None else ""
    return f"at {units.percent(arm.accuracy.value)} accuracy{beside}"


def _predicted(arm: ArmResult) -> str:
    if not arm.predictions:
        return ""
    rung, speed = arm.predictions[0].rung, arm.predictions[0].wall_speedup
    if speed.value is None or speed.low is None or speed.high is None:
        return f"; the {rung} roofline gives no prediction ({speed.reason})"
    return f"; the {rung} roofline predicted {units.ratio(speed.value)} ({speed.low:.2f}–{speed.high:.2f})"


def _why(cell: Cell, arm: ArmResult) -> str:
    """Why the passes saved are not the time saved."""
    parts, size = arm.factors, arm.block_size or 0
    widths = {w.query_tokens: w for w in cell.pass_widths if w.method == arm.method and w.query_tokens in (size, 2 * size)}
    costs = [(tokens, widths[tokens].cost.value) for tokens in sorted(widths) if widths[tokens].cost.value is not None]
    if parts is None or not costs:
        return ""
    said = f"a {costs[0][0]}-token pass costs {costs[0][1]:.2f} one-token passes on this machine"
    if len(costs) > 1:
        said += f" and a {costs[1][0]}-token pass {costs[1][1]:.2f}"
    if abs(parts.overhead - 1) >= SAME:
        said += f"; work around the passes changes it by a factor of {parts.overhead:.2f}"
    if abs(parts.rows_per_pass - 1) >= SAME:
        said += f"; rows that wait for the slowest of their batch by a factor of {parts.rows_per_pass:.2f}"
    clock = units.ratio(parts.product)
    return f"{units.ratio(parts.passes)} fewer passes became {clock} by the clock (ratio of totals), because {said}."


def _other_arms(cell: Cell, highlighted: ArmResult) -> str:
    """Replayed arms differ in what was given, so all of them belong to the answer."""
    if not highlighted.replayed or not cell.timed:
        return ""
    others = [arm for arm in cell.arms if not arm.is_ntp and arm is not highlighted and arm.wall_speedup.value is not None]
    said = [
        f"{units.ratio(arm.wall_speedup.value or 0)} with {units.ratio(arm.nfe_speedup.value or 0)} fewer passes"
        for arm in others
    ]
    return f"By the clock also {'; '.join(said)}." if said else ""


def _ground(highlight: Highlight, arm: ArmResult) -> str:
    """On what ground this arm was picked and not another."""
    margin, difference = f"{100 * highlight.margin:g} point", arm.accuracy_difference
    prompts, observed = units.count(highlight.pairs), units.points(difference.value or 0)
    if highlight.basis == "shown" and difference.low is not None:
        bound = f"one-sided 95 % lower bound {units.points(difference.low)}, {prompts} prompts"
        return f"{arm.label} is the fastest arm that is shown to lose less than {margin} of accuracy ({bound})."
    if highlight.basis == "observed":
        cannot = f"{prompts} prompts do not show for any arm that accuracy stays within {margin} of NTP"
        if highlight.pairs < highlight.pairs_needed:
            enough = f"that takes at least {highlight.pairs_needed}"
            cannot = f"{prompts} prompts cannot show that accuracy stays within {margin} of NTP ({enough})"
        return f"{cannot}; {arm.label} is the fastest whose observed accuracy does ({observed}, observed)."
    if highlight.basis == "none":
        return f"No arm kept its observed accuracy within {margin} of NTP; {arm.label} is the fastest of all ({observed})."
    if highlight.basis == "replayed":
        return f"{arm.label} is the fastest arm; replayed acceptance says nothing about accuracy."
    return f"{arm.label} is the fastest arm; nothing is said about accuracy: {arm.accuracy.reason}."


def _against_generate(cell: Cell) -> str:
    """Whether the NTP arm, to which every speedup is a ratio, is itself fast."""
    check, speed = cell.baseline_check, cell.baseline_check.best_speed
    if not cell.timed:
        return ""
    if speed is None or speed.value is None:
        return f"The NTP arm was not held against transformers' generate(): {check.reason}."
    ground = ", ".join(text for text in (_interval(speed), check.best) if text)
    ran = f"The NTP arm ran at {units.ratio(speed.value)} the speed of transformers' own generate() at its best ({ground})"
    if check.state == "kept_up":
        return f"{ran}."
    if check.state == "slow":
        return f"{ran}: every ratio here is against a slow baseline, and no speedup is claimed."
    return f"{ran}; these samples do not show that it keeps up with every mode."


def _against_baseline(cell: Cell, ntp: ArmResult | None) -> str:
    found = ntp.baseline_difference if ntp else None
    if found is None:
        return ""
    if found.value is None or found.low is None:
        return f"No comparison with part {cell.baseline_part}: {found.reason}."
    bound = f"one-sided 95 % lower bound {units.points(found.low)}, {units.count(found.n)} prompts"
    return f"NTP decoding of this model against part {cell.baseline_part}: {units.points(found.value)} ({bound})."
