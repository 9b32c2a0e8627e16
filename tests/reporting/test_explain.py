"""The drawings that explain a speedup: what they say aloud is what the values say, and what is not drawn has its reason."""

from __future__ import annotations

import html
import re
import warnings
from dataclasses import replace

import pytest
from markupsafe import Markup

from harness import formatting
from harness.analysis.answer import compare
from harness.analysis.evidence.blocks import block_passes, timeline
from harness.analysis.evidence.explain import residuals, roofline_points, waterfall
from harness.analysis.results import Cell
from harness.record.schema import Run, TriedWidth, WidthChoice
from harness.record.store import read_run
from harness.reporting import figures_blocks, svg
from harness.reporting.explain import MOST_BATCHES, explain_drawings
from harness.reporting.figures_blocks import timeline_drawing, token_text
from harness.reporting.figures_roofline import MOST_LABELS, named, pass_time, telling
from harness.reporting.svg import Drawing
from harness.stats.quantity import absent
from tests.helpers import DATA
from tests.helpers import synthetic_run as synthetic
from tests.helpers.block_run import run as run_of
from tests.helpers.block_run import sample
from tests.helpers.environments import with_cases

V6 = read_run(DATA / "records" / "v6")
FULL = synthetic.build(
    synthetic.Part(jitter=0.05), synthetic.Part(jitter=0.05, batch_size=4), calibration=synthetic.calibration()
)
NOT_PER_PASS = synthetic.build(per_pass=False)
EVIL = "<script>alert(1)</script>"


def drawings(run: Run) -> dict[str, Drawing]:
    """What is drawn of the first part of ``run``, by heading."""
    comparison = compare(run)
    found, _ = explain_drawings(comparison, run, comparison.cells[0].part, "part-0")
    assert len({drawing.heading for drawing in found}) == len(found), "two drawings of one name cannot be told apart"
    return {drawing.heading: drawing for drawing in found}


def aloud(drawing: Drawing) -> str:
    """What is read out in place of the drawing."""
    found = re.search(r'role="group" aria-label="(.*?)"', drawing.image, flags=re.DOTALL)
    assert found, drawing.heading
    return html.unescape(found[1])


def drawn_text(drawing: Drawing) -> str:
    """The words in the drawing."""
    return html.unescape(" ".join(re.findall(r"<text[^>]*>(.*?)</text>", drawing.image, flags=re.DOTALL)))


def test_what_is_drawn_of_a_full_part() -> None:
    """Every drawing once, in the order of the questions; every one says its finding aloud and bears its marks."""
    found = drawings(FULL)
    assert list(found) == [
        "Speed against accuracy, batch 1",
        "Speed against accuracy, batch 4",
        "From passes to the clock",
        "Speedup by load",
        "Rows that wait for the slowest",
        "Time of a pass, batch 1",
        "Time of a pass, batch 4",
        "Passes under the roofline",
        "Bandwidth",
        "Predicted against measured",
        "What each pass of a block decides",
        "Tokens per pass",
    ]
    for heading, drawing in found.items():
        assert re.search(r"\d", aloud(drawing)) and drawing.marks, heading
    assert found["Passes under the roofline"].marks == ("measured", "modelled", "predicted")
    assert found["Bandwidth"].marks == ("modelled",)


def test_the_waterfall_says_its_values() -> None:
    """Passes, product and every factor off 1 are read out and written at the bars; so is the claim."""
    drawing = drawings(FULL)["From passes to the clock"]
    for cell in compare(FULL).cells:
        fall = waterfall(cell, cell.arms[1])
        passes, clock = formatting.ratio(fall.steps[0].factor), formatting.ratio(fall.product)
        assert f"At batch {cell.batch_size}, {passes} fewer passes became {clock} by the clock" in aloud(drawing)
        for step in (fall.steps[0], fall.steps[2], fall.steps[3]):
            assert f"×{formatting.figure(step.factor, 3)}" in drawn_text(drawing)
        if fall.measured.low is not None:
            assert f"({fall.measured.low:.2f}–{fall.measured.high:.2f})" in drawn_text(drawing)
    assert "at least 3x fewer forward passes" in aloud(drawing) and "at least 3x fewer forward passes" in drawn_text(drawing)


def test_the_roofline_says_its_values() -> None:
    """Ends of the intensities with their rates, ridge, peak and read rate."""
    drawing, points = drawings(FULL)["Passes under the roofline"], roofline_points(compare(FULL).cells)
    for one in (min(points, key=lambda p: p.intensity_flops_per_byte), max(points, key=lambda p: p.intensity_flops_per_byte)):
        giga = formatting.rate(one.attained_flops_per_s.value / 1e9)
        assert f"{one.intensity_flops_per_byte:.3g} flops per byte, {giga} GFLOP/s" in aloud(drawing)
    assert "calibrated matrix peak 240 GFLOP/s" in drawn_text(drawing) and "ridge at 38.7 flops per byte" in drawn_text(drawing)
    below = sum(one.intensity_flops_per_byte < 240 / 6.2 for one in points)
    assert 0 < below < len(points)
    assert f"{below} of {len(points)} kinds of pass lie below the ridge (38.7)" in aloud(drawing)


def test_predictions_say_their_errors() -> None:
    """Every error stands beside its line, and the range over all arms is read out."""
    drawing, found = drawings(FULL)["Predicted against measured"], residuals(compare(FULL).cells)
    for one in found:
        for error in (one.speedup_error, one.time_error):
            assert error is None or formatting.signed_percent(error) in drawn_text(drawing)
        measured, predicted = formatting.ratio(one.measured.value), formatting.ratio(one.predicted.value)
        assert f"measured {measured}, calibrated {predicted}" in aloud(drawing)
    errors = [one.speedup_error for one in found if one.speedup_error is not None]
    low, high = formatting.signed_percent(min(errors)), formatting.signed_percent(max(errors))
    assert f"off by {low} to {high} in speedup" in aloud(drawing)


@pytest.mark.parametrize(
    ("run", "said"),
    [
        (synthetic.build(), "Which pass decides which position: the record does not say which positions a pass decided"),
        (synthetic.build(), "Rows that wait for the slowest: only batch size 1 was run"),
        (synthetic.build(), "Predicted against measured: calibrated: this machine was not calibrated"),
        (synthetic.build(timed=False), "From passes to the clock: this part was not timed"),
        (NOT_PER_PASS, "From passes to the clock: the forward passes were not timed one by one"),
        (NOT_PER_PASS, "Passes under the roofline: the forward passes"),
        (synthetic.build(arms=(synthetic.NTP,)), "no arm besides NTP answers the question here"),
        (synthetic.build(), "Energy: no energy was read over these decodes"),
    ],
)
def test_what_is_not_drawn_has_its_reason(run: Run, said: str) -> None:
    """One line each."""
    comparison = compare(run)
    _, lines = explain_drawings(comparison, run, comparison.cells[0].part, "part-0")
    assert any(said in line for line in lines), lines


def test_only_a_few_batch_sizes_are_drawn_by_themselves() -> None:
    """Of five, the smallest, the middle and the largest; all five are in the figure about batches."""
    sizes = (1, 2, 3, 4, 8)
    run = synthetic.build(*(synthetic.Part(batch_size=size) for size in sizes), calibration=synthetic.calibration())
    found = drawings(run)
    assert [h for h in found if h.startswith("Time of a pass")] == [f"Time of a pass, batch {size}" for size in (1, 3, 8)]
    assert len([h for h in found if h.startswith("Speed against accuracy")]) == MOST_BATCHES
    assert re.findall(r"At batch (\d+)", aloud(found["From passes to the clock"])) == ["1", "3", "8"]
    assert re.findall(r">(\d+)</text>", found["Rows that wait for the slowest"].image)[:5] == [str(size) for size in sizes]


def test_energy_is_drawn_where_it_was_metered() -> None:
    """10 J of every decode of 65 tokens: 0.154 J per token, said and drawn; the decodes last long enough for a meter."""
    run = synthetic.build(jitter=0.01)
    drawing = drawings(synthetic.altered(run, lambda one: {"meters": {"cpu_energy_j": 10.0}, "decode_s": 8.0}))["Energy"]
    assert "NTP: 0.154 J per output token" in aloud(drawing) and "0.154" in drawn_text(drawing)


def test_heat_map_says_its_values() -> None:
    """By hand (tests/analysis/test_blocks.py): position 1 in a third of the blocks, position 4 in half, and both written."""
    found = block_passes(run_of(sample()), ["c"])
    arm = compare(FULL).cells[0].arms[1]
    drawing = figures_blocks.block_heat_map(arm, found)
    assert "position 1 in 33\u00a0% and position 4 in 50\u00a0%" in aloud(drawing)
    assert "100\u00a0% of the blocks take a second pass, the longest takes 3" in aloud(drawing)
    numbers = re.findall(r">(\d+)</text>", drawing.image)
    assert sorted(map(int, numbers)) == sorted([1, 2, 3, 4, 1, 2, 3, 33, 67, 33, 50, 67, 33, 33, 33, 50])


def cells_of(image: Markup) -> list[tuple[str, str, str]]:
    """(class, title, number under the token) of every position."""
    return re.findall(r'<li class="([^"]+)" title="([^"]+)">(?:<code>.*?</code><small>)?(.*?)(?:</small>)?</li>', image)


def test_timeline_shows_the_pass_of_every_token() -> None:
    """The hand-made row: tokens with the pass that decided them, the stop marked, what lies behind it apart."""
    found = timeline(run_of(sample()), "a", ["c"], 4)
    drawing = timeline_drawing(compare(FULL).cells[0].arms[1], found)
    cells = cells_of(drawing.image)
    assert [number for _, _, number in cells] == ["1", "2", "2", "1", "2", "1", "(1)", "–"]
    assert [kind for kind, _, _ in cells] == [
        "pass-1",
        "pass-2",
        "pass-2",
        "pass-1",
        "pass-2",
        "pass-1 stop",
        "behind",
        "behind",
    ]
    assert cells[3][1] == "decided in pass 1, final in pass 2" and cells[6][1] == "decided in pass 1, after the end"
    assert "6 tokens took 4 passes (3 in pass 1, 3 in pass 2 of their block); all blocks of this answer." in drawing.image


def test_timeline_of_a_published_record() -> None:
    """A real answer, spelt out by the record alone."""
    found = drawings(V6)
    image = found["Decoded blocks, token by token"].image
    assert "·Answer" in image and "<b>stop</b>" in image and "Which pass decides which position" in found


def test_texts_from_a_model_are_inert() -> None:
    """Markup in a token or a prompt's name is text; white space is seen, long texts are cut, an unknown token is its id."""
    texts = {"event": "token_texts", "part": "a", "texts": {"11": EVIL, "12": "\"'><img>", "13": " \n"}}
    rows = [row.model_copy(update={"prompt_id": EVIL}) for row in sample().rows]
    found = timeline(run_of(sample(rows=rows), sessions=(texts,)), "a", ["c"], 4)
    drawing = timeline_drawing(compare(FULL).cells[0].arms[1], found)
    assert "<script" not in drawing.image and "<img" not in drawing.image and "&lt;script&gt;al" in drawing.image
    assert not isinstance(drawing.caption, Markup), "the page escapes it"
    assert token_text(13, found.texts) == "·↵" and token_text(14, found.texts) == "#14"
    assert token_text(11, found.texts) == f"{EVIL[:11]}…"


def test_a_label_that_finds_no_free_place_is_left_out() -> None:
    """Of very many marks at one point a few bear their names, no two on one another; the first is among them."""
    with svg.new_axes() as (_, axes):
        axes.set(xlim=(0, 1), ylim=(0, 1))
        left_out = svg.name_points(axes, [svg.Named(text=f"a long name {i}", at=(0.5, 0.5)) for i in range(20)])
        boxes = [text.get_window_extent() for text in axes.texts]
    assert len(left_out) + len(boxes) == 20 and "a long name 0" not in left_out and len(left_out) > 5
    assert not any(a.overlaps(b) for i, a in enumerate(boxes) for b in boxes[i + 1 :])


def test_a_letter_that_the_font_lacks_is_no_warning() -> None:
    """Matplotlib's quotes it, a control character too, on the terminal of whoever reads the record."""
    with svg.new_axes() as (_, axes), warnings.catch_warnings():
        warnings.simplefilter("error")
        assert svg.name_points(axes, [svg.Named(text="a name\r\u4e2d", at=(0.5, 0.5))]) == []


def test_a_label_stands_at_its_own_mark_and_off_lines() -> None:
    """Of two marks close above each other the upper one's label is above; a line through a label's first place moves it."""
    with svg.new_axes() as (figure, axes):
        axes.set(xlim=(0, 1), ylim=(0, 1))
        axes.plot([0.1, 0.9], [0.5, 0.5], "o")
        axes.plot([0.1, 0.9], [0.53, 0.5], "o")
        axes.plot([0.5, 0.5, 0.7], [0.2, 0.25, 0.25])
        wanted = [svg.Named(text=text, at=(0.1, y)) for text, y in (("lower", 0.5), ("upper", 0.53))]
        assert svg.name_points(axes, [*wanted, svg.Named(text="beside", at=(0.5, 0.2))]) == []
        figure.draw_without_rendering()
        boxes = {text.get_text(): text.get_window_extent() for text in axes.texts}
        line = axes.transData.transform([(0.5, 0.25), (0.7, 0.25)])
        marks = {"lower": axes.transData.transform((0.1, 0.5)), "upper": axes.transData.transform((0.1, 0.53))}
    assert boxes["lower"].y1 < marks["lower"][1] < marks["upper"][1] < boxes["upper"].y0
    beside = boxes["beside"]
    assert not (beside.y0 < line[0][1] < beside.y1 and beside.x1 > line[0][0] and beside.x0 < line[1][0])


def test_a_mark_tells_its_value_and_the_first_one_can_be_reached() -> None:
    """Each as an image with its text, escaped; one of a figure is a stop of the Tab key."""
    with svg.new_axes() as (figure, axes):
        for x in range(3):
            svg.tell(axes.plot(x, x, "o")[0], f'{EVIL}" {x}')
        image = svg.to_inline(figure, "said")
    told = re.findall(r'<g class="told" role="img" tabindex="(-?\d)" aria-label="([^"]*)"><title>', image)
    assert [stop for stop, _ in told] == ["0", "-1", "-1"]
    assert [html.unescape(text) for _, text in told] == [f'{EVIL}" {x}' for x in range(3)] and "<script" not in image


def many_kinds() -> Cell:
    """NTP's pass, verifying at 2 to 14 tokens, the wider the rarer, drafts by another model, and one rare pass of 272."""
    cell = compare(FULL).cells[0]
    ntp, width = cell.pass_widths[0], cell.pass_widths[1]
    own = [replace(width, method="m", role="verify", query_tokens=n, count=100 - n) for n in range(2, 15)]
    drafts = [replace(width, method="m", role="draft by small", query_tokens=1, count=900)]
    again = [replace(width, method="other", role="decide", query_tokens=3, count=500)]
    widest = [replace(width, method="m", role="verify+draft", query_tokens=272, count=1)]
    return replace(cell, pass_widths=(ntp, *drafts, *own, *again, *widest))


def test_of_very_many_kinds_of_pass_the_telling_ones_bear_names() -> None:
    """NTP, the most frequent widths of the model itself, each once, and the widest; the others are counted."""
    cell = many_kinds()
    found = [(width.method == "ntp", width.role, width.query_tokens) for width in telling(cell)]
    assert found == [
        (True, "decide", 1),
        (False, "verify", 2),
        (False, "verify", 4),
        (False, "decide", 3),
        (False, "verify+draft", 272),
    ]
    drawing = pass_time(cell)
    assert "12 other kinds of pass are in the table" in drawing.caption
    assert "272 query tokens (verify+draft) take" in drawing.caption and "draft by small" not in aloud(drawing)
    few = replace(cell, pass_widths=cell.pass_widths[:9])
    assert telling(few) == list(few.pass_widths)
    *others, last = cell.pass_widths
    without = replace(cell, pass_widths=(*(replace(one, measured_s=absent("no time")) for one in others), last))
    assert telling(without) == [last], "what has no time is not drawn, and not named"


def test_of_very_many_points_under_the_roofline_ntp_and_the_ends_bear_names() -> None:
    """At every batch size, however many there are."""
    points = roofline_points([replace(many_kinds(), batch_size=size) for size in range(1, 12)])
    ordered = sorted(points, key=lambda point: point.intensity_flops_per_byte)
    found = named(points)
    assert len(found) <= MOST_LABELS and ordered[0] in found and ordered[-1] in found
    assert any(point.width.method == "ntp" for point in found)
    assert named(points[:MOST_LABELS]) == points[:MOST_LABELS]


def chosen(label: str) -> Run:
    """FULL, whose SBD arms have a width that was chosen, and that name."""
    tried = [(4, 12.0, 0.012, 2.5), (8, 40.0, 0.030, 3.0)]
    widths = [TriedWidth(width=k, prompts=8, query_tokens=q, pass_s=s, tokens_per_pass=n) for k, q, s, n in tried]
    ntp = TriedWidth(width=1, prompts=8, query_tokens=1, pass_s=0.008, tokens_per_pass=1)
    choice = WidthChoice(ntp=ntp, tried=widths, prompt_digests=["0123456789abcdef"])
    return with_cases(FULL, lambda case: {} if case.arm.method == "ntp" else {"label": label, "width": choice})


def test_the_width_that_the_machine_chose_is_drawn_and_said() -> None:
    """12 tokens at 12 ms over NTP's 8 ms are 1.50x, and 12 / 2.5 against 8 ms a token 1.67x; 30 / 3.0 would be slower."""
    drawn = drawings(chosen("SBD k=auto γ=0.1"))["Width chosen by the machine, batch 1"]
    said = "SBD k=auto γ=0.1 is 4: a pass of 12 tokens costs 1.50x and makes 2.50, expected 1.67x NTP's speed"
    assert drawn.caption == aloud(drawn) == f"{said}. Chosen before the first sample, on prompts that are not timed."
    assert f"<title>{said}</title>" in html.unescape(str(drawn.image))
    assert "SBD k=auto γ=0.1" in drawn_text(drawn) and drawn.marks == ("measured",)
    assert EVIL not in drawings(chosen(EVIL))["Width chosen by the machine, batch 1"].image
    assert not any(heading.startswith("Width") for heading in drawings(FULL))
