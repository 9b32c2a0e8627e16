"""The sentences that explain an answer: why the passes saved are not the time saved, the accuracy, the prediction.

They put values of a comparison into words and compute nothing. A sentence without its values gives the reason or is left out.
"""

from __future__ import annotations

from harness import formatting
from harness.analysis.evidence.best_settings import faster
from harness.analysis.results import ArmResult, Cell, Highlight
from harness.analysis.tally.pass_values import price_words
from harness.record.schema import RunHeader
from harness.reporting.cells import ends
from harness.stats.quantity import Quantity

SAME = 0.03
"""A factor closer to 1 than this is not mentioned."""


def paragraphs(cell: Cell, arm: ArmResult, highlight: Highlight) -> tuple[tuple[str, str], ...]:
    """(title, text) of every paragraph about the highlighted arm."""
    ntp, counted, others, passes = _ntp(cell), "", "", arm.passes_saved.value
    if not cell.timed:
        counted = f"It has no NFE speedup ({arm.nfe_speedup.reason})"
        if passes is not None:
            prompts = formatting.count(arm.prompts)
            counted = f"It needed {formatting.ratio(passes)} fewer forward passes over {prompts} prompts"
        counted += ". It was not timed: this says nothing about the clock."
    elif arm.replayed:  # each replayed arm has its own given acceptance, so all belong to the answer
        speeds = [
            f"{formatting.ratio(one.wall_speedup.value)} with {formatting.ratio(one.passes_saved.value or 0)} fewer passes"
            for one in cell.arms
            if not one.is_ntp and one is not arm and one.wall_speedup.value is not None
        ]
        others = f"By the clock also {'; '.join(speeds)}." if speeds else ""
    told = [
        ("Why", why(cell, arm)),
        ("Whole request", _request(cell, arm, ntp)),
        ("Accuracy", f"{right(arm, ntp)} {_ground(highlight, cell, arm)}"),
        ("Counted", counted),
        ("Predicted", _predicted(arm)),
        ("Other arms", others),
        ("Against its baseline", _against_baseline(cell, ntp)),
    ]
    return tuple((title, text) for title, text in told if text)


OF_BASELINE = {
    "slow": ("every ratio here is against a slow baseline, and no speedup is claimed", "the speed of a slow baseline"),
    "different_tokens": (
        "the two did other work, and no speedup is claimed",
        "the speed of a baseline that wrote other tokens than generate()",
    ),
    "not_shown": ("these samples do not show that it keeps up with every mode, so they confirm no speedup", ""),
}
"""By the state of the baseline: what follows for every ratio, and what a speed is called then."""


def baseline(cell: Cell) -> str:
    """Whether the NTP arm, the denominator of every speedup, is itself fast, beside generate() and the engines of others."""
    check, speed = cell.baseline_check, cell.baseline_check.best_speed
    follows = OF_BASELINE.get(check.state, ("",))[0]
    if not cell.timed:
        return ""
    if check.state == "different_tokens":
        return f"{check.reason}: {follows}."
    if speed is None or speed.value is None:
        return f"The NTP arm was not held against transformers' generate(): {check.reason}."
    ground = ", ".join(text for text in (interval(speed), check.best, check.part and f"part {check.part}") if text)
    ran = f"The NTP arm ran at {formatting.ratio(speed.value)} the speed of transformers' own generate() at its best ({ground})"
    if check.has_engines:
        ran = f"NTP is {formatting.ratio(speed.value)} the best engine here ({ground})"
    if follows:
        return f"{ran}: {follows}."
    return f"{ran}. {check.tokens.words}." if check.tokens else f"{ran}."


def interval(speed: Quantity) -> str:
    """``95 % interval 2.38–2.76``, or the reason for its absence."""
    found, why = ends(speed), f"no interval: {speed.reason.removesuffix(': no interval')}" if speed.reason else ""
    return f"95\u00a0% interval {found}" if found else why


def why(cell: Cell, arm: ArmResult) -> str:
    """Why the passes saved are not the time saved: the cost of a pass, and what else changes the speedup."""
    parts, size = arm.factors, arm.block_size or 0
    widths = {w.query_tokens: w for w in cell.pass_widths if w.method == arm.method and w.query_tokens in (size, 2 * size)}
    costs = [(tokens, widths[tokens].cost.value) for tokens in sorted(widths) if widths[tokens].cost.value is not None]
    passes, clock = arm.passes_saved.value, arm.wall_speedup.value
    if parts is None or not costs or passes is None or clock is None:
        return ""
    said = f"a {costs[0][0]}-token pass costs {costs[0][1]:.2f} one-token passes on this machine"
    if len(costs) > 1:
        said += f" and a {costs[1][0]}-token pass, which also commits a block, {costs[1][1]:.2f}"
    if abs(parts.overhead - 1) >= SAME:
        said += f"; work around the passes changes it by a factor of {parts.overhead:.2f}"
    if abs(parts.rows_per_pass - 1) >= SAME:
        said += f"; rows that wait for the slowest of their batch by a factor of {parts.rows_per_pass:.2f}"
    return f"{formatting.ratio(passes)} fewer passes became {formatting.ratio(clock)} by the clock, because {said}."


def _request(cell: Cell, arm: ArmResult, ntp: ArmResult | None) -> str:
    """The speedup with the prompt's pass included, and the time to the first token."""
    if not cell.timed:
        return ""
    speed, first = arm.request_speedup, arm.first_token_s
    if speed.value is None:
        return f"There is no request speedup: {speed.reason}."
    said = f"Prompt included, {formatting.ratio(speed.value)} per output token ({interval(speed)})"
    beside = (
        f", NTP's after {formatting.seconds(ntp.first_token_s.value)}" if ntp and ntp.first_token_s.value is not None else ""
    )
    if first.value is None:
        return f"{said}."
    return f"{said}; first token after {formatting.seconds(first.value)}{beside} (medians)."


def ground(speed: Quantity, cell: Cell) -> str:
    """The basis of a speedup: interval, prompts or batches, processes and what fewer than three leave open."""
    processes = speed.these_processes_only or (f"{speed.processes} processes" if speed.processes else "")
    return ", ".join(
        text for text in (interval(speed), f"{speed.n} {cell.unit_of_times} {cell.population}".rstrip(), processes) if text
    )


def right(arm: ArmResult, ntp: ArmResult | None) -> str:
    """The share of right answers beside NTP's, or why there is none."""
    if arm.accuracy.value is None:
        return f"There is none: {arm.accuracy.reason}."
    beside = f", NTP {formatting.percent(ntp.accuracy.value)}" if ntp and ntp.accuracy.value is not None else ""
    return f"{formatting.percent(arm.accuracy.value)} of the answers are right{beside}."


def _predicted(arm: ArmResult) -> str:
    """The highest rung's prediction, ex-ante, then with what the run measured."""
    if not arm.predictions:
        return ""
    first = arm.predictions[0]
    speed, named = first.wall_speedup, price_words(first.price)
    if speed.value is None:
        return f"The {named} roofline gives no prediction ({speed.reason})."
    said = f"Ex-ante, the {first.rung} roofline predicted {_with_band(speed)}"
    later = next((one.wall_speedup for one in arm.predictions if not one.ex_ante), None)
    beside = f"; calibrated during the run, {_with_band(later)}" if later and later.value is not None else ""
    held = " Of the speedups of published runs 80 % lay within such intervals." if ends(speed) else ""
    return f"{said}{beside}.{held} The number of passes is the record's."


def _with_band(speed: Quantity) -> str:
    band = ends(speed)
    return formatting.ratio(speed.value or 0.0) + (f" ({band})" if band else "")


def _ground(highlight: Highlight, cell: Cell, arm: ArmResult) -> str:
    """Why the answer is about this arm."""
    if highlight.asked:  # by the scenario's claims
        lost, keeps = arm.accuracy_difference, _identity(arm)
        if lost.value is not None:
            bound = f", 95 % interval from {formatting.points(lost.low)}" if lost.low is not None else ""
            prompts = formatting.count(lost.n)
            keeps = f"its accuracy differs from NTP's by {formatting.points(lost.value)} ({prompts} prompts{bound})"
        return "; ".join(filter(None, (f"The scenario asks about {arm.label}", faster(cell, arm), f"{keeps}.")))
    margin, difference = f"{100 * highlight.margin:g} point", arm.accuracy_difference
    prompts, observed = formatting.count(highlight.pairs), formatting.points(difference.value or 0)
    if arm.simultaneous is not None:
        difference = arm.simultaneous.figures["accuracy_difference"]
    if highlight.basis == "shown" and difference.low is not None:
        level = "95 % interval" if arm.simultaneous is None else f"simultaneous 95 % interval of {highlight.picked_from} arms"
        bound = f"{level} from {formatting.points(difference.low)}, {prompts} prompts"
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
    return f"{arm.label} is the fastest arm; {_identity(arm)}."


def lossless(arm: ArmResult) -> str:
    """``lossless``, or ``in exact arithmetic`` where some answer is another (widths of passes round otherwise), and how many
    are NTP's; empty where none was compared.
    """
    same = same_answers(arm)
    if "NTP" not in (arm.lossless or "") or not same:
        return ""
    return f"lossless{'' if arm.identical_to_ntp.value == 1 else ' in exact arithmetic'}, {same}"


def same_answers(arm: ArmResult) -> str:
    """``30 of 30 answers are NTP's token for token``; empty where none was compared."""
    same = arm.identical_to_ntp
    if same.value is None:
        return ""
    return f"{round(same.value * same.n)} of {formatting.count(same.n)} answers are NTP's token for token"


def kept(cell: Cell, arm: ArmResult) -> str:
    """What is known of the answers: how many are NTP's, or how many are right; empty where neither is known."""
    same, lost = arm.identical_to_ntp, arm.accuracy_difference
    if arm.replayed:
        return "acceptance replayed, no answers"
    if arm.served is not None and arm.served.partings is not None:
        parted = arm.served.partings
        unclassed = f", {parted.unclassified} unclassed" if parted.unclassified else ""
        return f"{parted.errors} of {parted.compared} answers part from NTP's by an error{unclassed}"
    if same.value is not None and (arm.lossless or same.value == 1):
        return lossless(arm) or same_answers(arm)
    bound = "" if lost.low is None else f", at least {formatting.points(lost.low)} to NTP"
    return "" if arm.accuracy.value is None else right(arm, _ntp(cell)).removesuffix(".") + bound


def _ntp(cell: Cell) -> ArmResult | None:
    return next((arm for arm in cell.arms if arm.is_ntp), None)


def _identity(arm: ArmResult) -> str:
    """What stands in for an accuracy: for an arm without loss, how many of its answers are NTP's."""
    said = same_answers(arm)
    if not arm.lossless or not said:
        return f"nothing is said about accuracy: {arm.accuracy_difference.reason}"
    return f"without loss in exact arithmetic, against {arm.lossless}; here {said}"


def prompted(cell: Cell, arm: ArmResult, header: RunHeader) -> str:
    """How the prompts were put, and which answers hardly are any, with what to write into the scenario."""
    work = header.written(cell.part).workload
    chat, most, answers = work.chat_template, work.max_new_tokens, arm.figures["short_answers"].n
    if arm.replayed or work.synthetic or chat is None:
        return ""
    said = [f"prompts are in {'the' if chat else 'no'} chat template"]
    remedy = f"write {'' if chat else 'chat_template: auto, or '}other prompts"
    for name, words in (("short_answers", "one token long or empty"), ("repetitive_answers", "repetitive")):
        if (found := arm.figures[name]).value:
            said.append(f"{round(found.value * found.n)} of {found.n} answers are {words}: {remedy}")
    if arm.decode_tokens in (answers * most, answers * (most - 1)):  # the prompt's pass may give the first token of each
        said.append("every answer is cut at the limit: raise max_new_tokens")
    return "; ".join(said)


def _against_baseline(cell: Cell, ntp: ArmResult | None) -> str:
    found = ntp.baseline_difference if ntp else None
    if found is None:
        return ""
    if found.value is None or found.low is None:
        return f"No comparison with part {cell.baseline_part}: {found.reason}."
    bound = f"95 % interval from {formatting.points(found.low)}, {formatting.count(found.n)} prompts"
    return f"NTP decoding of this model against part {cell.baseline_part}: {formatting.points(found.value)} ({bound})."
