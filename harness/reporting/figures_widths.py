"""Why an arm has the width that it has: what a pass of each width costs, and the one that the machine chose (``auto``)."""

from __future__ import annotations

from itertools import cycle

from harness.analysis.results import Cell
from harness.formatting import ratio
from harness.record.schema import RunHeader, WidthChoice
from harness.reporting import svg
from harness.reporting.svg import Drawing


def cost_by_width(header: RunHeader, cell: Cell, name: str, where: str) -> Drawing | None:
    """Time of a pass over that of NTP's against its query tokens, a line for each arm; the choice is a diamond."""
    choices = {
        case.label: case.width
        for case in header.cases
        if case.width is not None and (case.part, case.batch_size) == (cell.part, cell.batch_size)
    }
    if not choices:
        return None
    with svg.new_axes() as (figure, axes):
        for colour, (label, choice) in zip(cycle(svg.SERIES), choices.items(), strict=False):
            places = {one.width: (one.query_tokens, one.pass_s / choice.ntp.pass_s) for one in (choice.ntp, *choice.tried)}
            axes.plot(*zip(*places.values(), strict=True), ".-", color=colour, label=label)
            (mark,) = axes.plot(*places[choice.best.width], "D", color=colour)
            svg.tell(mark, _words(label, choice))
        axes.set(xlabel="query tokens of a pass", ylabel="time of a pass over NTP's", ylim=0)
        svg.key(axes)
        caption = (
            f"{'; '.join(_words(*one) for one in choices.items())}. "
            "Chosen before the first sample, on prompts that are not timed."
        )
        return svg.drawing(figure, name, f"Width chosen by the machine{where}", caption, ("measured",))


def _words(label: str, choice: WidthChoice) -> str:
    """``SBD k=auto is 3: a pass of 12 tokens costs 1.62x and makes 2.21, expected 1.36x NTP's speed``."""
    best = choice.best
    return (
        f"{label} is {best.width}: a pass of {best.query_tokens:.3g} tokens costs {ratio(best.pass_s / choice.ntp.pass_s)} and "
        f"makes {best.tokens_per_pass:.2f}, expected {ratio(choice.gain)} NTP's speed"
    )
