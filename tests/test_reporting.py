"""The page: self-contained, escaped, and every number equal to the comparison's."""

import html
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from harness.compare import COMPARISON_VERSION, compare
from harness.record import CaseOutcome, Run
from harness.reporting import write_report
from harness.reporting.page import render
from harness.store import RunStore
from tests import synthetic_run as synthetic

REPLAYED = synthetic.Arm(label="SBD k=16 replayed 4x", gamma=0.1, passes_per_block=4, replayed={"nfe_speedup": 4.0})
FULL = synthetic.build(
    synthetic.Part(jitter=0.05, tasks=("word_problems", "record_to_json")),
    synthetic.Part(name="bandwidth_bound", arms=(synthetic.NTP, REPLAYED), graded=False),
    calibration=synthetic.calibration(),
)


def page(run: Run) -> str:
    """The report of ``run``."""
    return render(run, compare(run))


def words(text: str) -> str:
    """What a reader sees: no tags, style or drawings, white space as single spaces."""
    text = re.sub(r"<(style|svg)\b.*?</\1>", " ", text, flags=re.DOTALL)
    return re.sub(r"\s+", " ", html.unescape(re.sub(r"<[^>]+>", " ", text)))


class _Rows(HTMLParser):
    """Collects (column, text, data-value) of every row, table by table."""

    def __init__(self) -> None:
        super().__init__()
        self.tables: list[list[list[tuple[str, str | None]]]] = []
        self.inside = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "table":
            self.tables.append([])
        elif tag == "tr":
            self.tables[-1].append([])
        elif tag in ("td", "th"):
            self.tables[-1][-1].append(("", dict(attrs).get("data-value")))
            self.inside = True
        elif tag in ("small", "span", "sup"):
            self.inside = False

    def handle_endtag(self, tag: str) -> None:
        if tag in ("td", "th"):
            self.inside = False

    def handle_data(self, data: str) -> None:
        if self.inside:
            text, value = self.tables[-1][-1][-1]
            self.tables[-1][-1][-1] = (text + data, value)


def test_numbers_of_the_arms_table_are_the_comparisons() -> None:
    """Row by row, column by column, the value behind the text equals the Quantity it came from."""
    run = FULL
    cells = [cell for cell in compare(run).cells if cell.part == "reference"]
    parser = _Rows()
    parser.feed(page(run))
    head, *rows = parser.tables[0]
    columns = [text for text, _ in head]
    rows = [row for row in rows if len(row) > 1]
    arms = [arm for cell in cells for arm in cell.arms]
    assert len(rows) == len(arms) == 9
    for row, arm in zip(rows, arms, strict=True):
        shown = {name.strip(): value for name, (_, value) in zip(columns, row, strict=True)}
        assert row[0][0].strip() == arm.label
        for name, quantity in {
            "NFE speedup": arm.nfe_speedup,
            "Wall speedup": arm.wall_speedup,
            "Ratio of totals": arm.wall_speedup_totals,
            "Tokens/s": arm.tokens_per_s,
            "Accuracy": arm.accuracy,
            "Against NTP": arm.accuracy_difference,
            "GB/s": arm.modelled_bandwidth_bytes_per_s,
            "Share of ceiling": arm.ceiling_share,
            "Query tokens per pass": arm.query_tokens_per_pass,
            "Request latency": arm.latency_s,
        }.items():
            assert (None if shown[name] is None else float(shown[name] or "")) == quantity.value, name
        assert int(shown["NFE"] or 0) == arm.nfe


def test_answer_says_the_measured_speed_its_interval_accuracy_and_prediction() -> None:
    """The sentence on top holds the comparison's own figures."""
    run, text = FULL, words(page(FULL))
    cell = compare(run).summary("reference", 1)
    arm = cell.arms[1]
    wall, predicted = arm.wall_speedup, arm.predictions[0].wall_speedup
    assert "needed 4.00x fewer forward passes" in text and "block size 16 and bound γ=0.1" in text
    assert f"ran {wall.value:.2f}x faster by the clock (95 % interval {wall.low:.2f}–{wall.high:.2f}, 16 prompts" in text
    assert f"roofline predicted {predicted.value:.2f}x ({predicted.low:.2f}–{predicted.high:.2f})" in text
    assert "a 16-token pass costs 1.30 one-token passes" in text
    assert "16 prompts cannot show that accuracy stays within 1 point" in text


def test_a_slower_arm_is_called_slower() -> None:
    """With 16 passes per block every pass yields one token and costs more: the page must not say faster."""
    slow = synthetic.Arm(label="SBD slow", gamma=0.0, passes_per_block=16)
    run = synthetic.build(synthetic.Part(arms=(synthetic.NTP, slow), jitter=0.02))
    text, wall = words(page(run)), compare(run).cells[0].arms[1].wall_speedup.value
    assert wall is not None and wall < 0.8
    assert f"ran slower, at {wall:.2f}x the speed of NTP" in text and "faster by the clock" not in text.split("Evidence")[0]


def test_a_speed_that_costs_the_answers_is_no_headline() -> None:
    """Where every arm lost more accuracy than the margin, the card says none in large type and gives the speed in its text."""
    said = words(page(synthetic.build(synthetic.Part(arms=(synthetic.NTP, synthetic.ARMS[2])))))
    assert re.search(r"batch 1 none no arm keeps the accuracy of NTP", said)
    assert "No arm kept its observed accuracy within 1 point" in said


def test_page_asks_nothing_of_the_network() -> None:
    """No script, no link, and no address in src, href, url() or @import; drawings refer only to themselves."""
    text = page(FULL)
    assert not re.search(r"<(script|link|iframe|img|object|embed)\b", text)
    assert not re.search(r"""(src|href|action)\s*=\s*["']?\s*(?!["']?#)[^\s>]*""", text)
    assert not re.search(r"url\(\s*[\"']?(?!#)", text) and "@import" not in text
    assert "http://" not in text and "https://" not in text
    assert len(text) < 2_000_000


def test_ids_are_unique() -> None:
    """Several drawings in one document do not share ids, and every reference has its target."""
    text = page(FULL)
    ids = re.findall(r'\bid="([^"]+)"', text)
    assert len(ids) == len(set(ids))
    assert set(re.findall(r'href="#([^"]+)"', text)) | set(re.findall(r"url\(#([^)]+)\)", text)) <= set(ids)


def test_hostile_names_are_inert() -> None:
    """Markup in model, question, label, reason and environment is text on the page, in drawings too."""
    evil = '<script>alert(1)</script>"><img src=x onerror=alert(2)>'
    shape = synthetic.SHAPE.model_copy(update={"name": evil})
    arms = (synthetic.NTP, synthetic.Arm(label=f"SBD {evil} $x$", gamma=0.1, passes_per_block=4))
    outcome = CaseOutcome(case_id=evil, outcome="failed", reason=evil)
    run = synthetic.build(
        synthetic.Part(model=shape, arms=arms, tasks=(evil,), name=evil),
        outcomes=(outcome,),
        question=evil,
        calibration=synthetic.calibration(),
    )
    text = page(run)
    assert not re.search(r"<(script|img)", text) and "onerror=alert(2)&gt;" in text
    assert "alert(1)" in words(text)


@pytest.mark.parametrize(
    ("run", "said"),
    [
        (synthetic.build(synthetic.Part(arms=(synthetic.NTP, REPLAYED), graded=False)), "replayed: given, not found"),
        (synthetic.build(synthetic.Part(timed=False)), "this says nothing about the clock"),
        (synthetic.build(), "No calibrated prediction: this machine was not calibrated for this part"),
        (synthetic.build(synthetic.Part(per_pass=False)), "the forward passes were not timed one by one"),
        (synthetic.build(synthetic.Part(graded=False)), "nothing is said about accuracy: the prompts have no answers"),
        (synthetic.build(calibration=synthetic.calibration(False)), "the model's own size reads 40 % faster than 4 GiB"),
        (
            synthetic.build(
                without=frozenset(case.case_id for case in synthetic.build().header.cases),
                outcomes=(CaseOutcome(case_id="reference/b1/ntp", outcome="does_not_fit", reason="needs 90 GB of 16 GB"),),
            ),
            "did not fit into memory: needs 90 GB of 16 GB",
        ),
        (synthetic.build(synthetic.Part(prompts=1)), "no interval: one prompt only"),
    ],
    ids=["replayed", "untimed", "no calibration", "no pass times", "ungraded", "not dram bound", "does not fit", "one prompt"],
)
def test_page_renders_what_is_missing_with_its_reason(run: Run, said: str) -> None:
    """Each incomplete run gives a page that says what is absent and why, and never the words nan or None."""
    text = words(page(run))
    assert said in text
    assert not re.search(r"\b(nan|None)\b", text.split("Evidence")[0])


def test_write_report_writes_page_and_json(tmp_path: Path) -> None:
    """From a run directory on disk: report.html and report.json by default, elsewhere on request."""
    run = FULL
    with RunStore(tmp_path / "run") as store:
        store.create(run.header)
        for sample in run.samples:
            store.append(sample)
        for snapshot in run.sessions:
            store.append_session(snapshot)
    written = write_report(tmp_path / "run")
    assert written == tmp_path / "run" / "report.html" and written.read_text(encoding="utf-8") == page(run)
    data = json.loads((tmp_path / "run" / "report.json").read_text(encoding="utf-8"))
    assert data["version"] == COMPARISON_VERSION and data["run_id"] == run.header.run_id
    other = write_report(tmp_path / "run", tmp_path / "other.html")
    assert other.is_file() and (tmp_path / "other.json").is_file()


def test_same_record_same_page() -> None:
    """Rendering twice gives the same bytes: nothing of the clock or of a random id is in the page."""
    assert page(FULL) == page(FULL)
