"""The page: self-contained, escaped, and every number equal to the comparison's."""

import html
import json
import re
from base64 import b64encode
from functools import cache
from hashlib import sha256
from itertools import pairwise
from pathlib import Path

import pytest

from harness.analysis.answer import COMPARISON_VERSION, compare
from harness.record.schema import CaseOutcome, Run
from harness.record.store import RunStore
from harness.reporting import write_report
from harness.reporting.page import render
from tests.helpers import synthetic_run as synthetic
from tests.helpers.pages import FULL, headlines, words


def page(run: Run) -> str:
    """The report of ``run``."""
    return render(run, compare(run))


@cache
def full_page() -> str:
    """That of the run which has everything, made once."""
    return page(FULL)


def test_answer_says_the_measured_speed_its_interval_accuracy_and_prediction() -> None:
    """The card holds the comparison's own figures, and says why the passes saved are not the time saved."""
    run, text = FULL, words(full_page())
    cell = compare(run).summary("reference", 1)
    arm = cell.arms[1]
    wall, predicted, parts = arm.wall_speedup, arm.predictions[0].wall_speedup, arm.factors
    assert wall.value is not None and parts.product != wall.value
    assert headlines(full_page())[0].split() == [f"{wall.value:.2f}x", "faster", "by", "the", "clock"]
    whole = f"whole request {arm.request_speedup.value:.2f}x"
    assert (
        f"95 % interval {wall.low:.2f}–{wall.high:.2f}, 16 prompts over these 2 tasks, this process only; {whole} measured"
        in text
    )
    became = f"{arm.figures['nfe_speedup'].value:.2f}x fewer passes became {wall.value:.2f}x by the clock"
    assert f"{became}, because a 16-token pass costs 1.30 one-token passes" in text
    assert "block size 16 and bound γ=0.1" in text
    assert f"the calibrated roofline predicted {predicted.value:.2f}x. The number of passes" in text, "without interval"
    assert "16 prompts cannot show that accuracy stays within 1 point" in text and "are void" not in text


def test_a_slower_arm_is_called_slower() -> None:
    """With 16 passes per block every pass yields one token and costs more: the page must not say faster."""
    slow = synthetic.Arm(label="SBD slow", gamma=0.0, passes_per_block=16)
    run = synthetic.build(arms=(synthetic.NTP, slow), jitter=0.02)
    wall = compare(run).cells[0].arms[1].wall_speedup.value
    assert wall < 0.8
    assert headlines(page(run)) == [f" {wall:.2f}x the speed of NTP: slower by the clock "]


def test_a_speed_that_costs_the_answers_is_no_headline() -> None:
    """Where every arm lost more accuracy than the margin, the card says so in large type and gives the speed with its cost."""
    text = page(synthetic.build(arms=(synthetic.NTP, synthetic.ARMS[2])))
    [large] = headlines(text)
    said = r" No arm keeps NTP's accuracy the fastest is [\d.]+x by the clock and changes accuracy by -[\d.]+.points "
    assert re.fullmatch(said, large)
    assert "No arm kept its observed accuracy within 1 point" in words(text)


def test_a_part_with_ntp_alone_has_no_card_but_a_line() -> None:
    """NTP alone answers nothing: a card that says none would be read as a failure."""
    alone = synthetic.Part(name="checkpoint", arms=(synthetic.NTP,), timed=False)
    text = page(synthetic.build(synthetic.Part(), alone))
    assert len(headlines(text)) == 1 and "no answer" not in text
    assert re.search(r"Part checkpoint \(batch 1\) decodes toy-60m \(.*?\) by NTP alone: 87.5 %", words(text))


def test_an_arm_that_was_planned_and_left_no_sample_keeps_its_card() -> None:
    """Nothing to say is said where the answer would stand, and the run is called unfinished."""
    without = frozenset(case.case_id for case in synthetic.build().header.cases if "sbd" in case.case_id)
    text = page(synthetic.build(without=without))
    assert headlines(text) == [" No answer "]
    assert "2 of 3 cases have no sample yet: the run is not finished" in words(text)


def test_page_asks_nothing_of_the_network() -> None:
    """No script but its own, and no address in src, href, url() or @import but data inside the page and places on it."""
    text = full_page()
    assert not re.search(r"<(link|iframe|img|object|embed|base|form)\b", text) and "src=" not in text
    assert set(re.findall(r"<script\b[^>]*>", text)) == {"<script>"}
    links = re.findall(r"""\b(?:href|action)\s*=\s*["']?\s*([^\s>]{5})""", text)
    assert links and all(link.startswith("#") or link == "data:" for link in links)
    assert not re.search(r"url\(\s*[\"']?(?!#)", text) and "@import" not in text
    assert "http://" not in text and "https://" not in text
    assert len(text) < 2_000_000


def test_policy_allows_the_page_s_own_style_and_scripts_by_hash_and_nothing_else() -> None:
    """What a browser needs to refuse everything else, reckoned here from the page as it stands."""
    text = full_page()
    found = re.search(r'<meta http-equiv="Content-Security-Policy" content="([^"]*)">', text)
    policy = html.unescape(found.group(1)).split("; ")

    def hashes(tag: str) -> str:
        inside = re.findall(rf"<{tag}>(.*?)</{tag}>", text, flags=re.DOTALL)
        return " ".join(f"'sha256-{b64encode(sha256(one.encode()).digest()).decode()}'" for one in inside)

    assert policy[0] == "default-src 'none'"
    assert f"script-src {hashes('script')}" in policy and f"style-src-elem {hashes('style')}" in policy
    assert [rule for rule in policy if "unsafe" in rule] == ["style-src-attr 'unsafe-inline'"]


def test_headings_go_down_one_step_at_a_time() -> None:
    """A screen reader's table of contents: one h1, and no level left out."""
    levels = [int(level) for level in re.findall(r"<h([1-6])\b", full_page())]
    assert levels[0] == 1 and levels.count(1) == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))


def test_ids_are_unique() -> None:
    """Several drawings in one document do not share ids, and every reference has its target."""
    text = full_page()
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
        model=shape,
        arms=arms,
        tasks=(evil,),
        name=evil,
        outcomes=(outcome,),
        question=evil,
        calibration=synthetic.calibration(),
    )
    text = page(run)
    assert "<img" not in text and text.count("<script") == full_page().count("<script")
    assert "onerror=alert(2)&gt;" in text
    assert "alert(1)" in words(text)


@pytest.mark.parametrize(
    ("run", "said"),
    [
        (synthetic.build(), "No calibrated prediction: this machine was not calibrated for this part"),
        (synthetic.build(graded=False), "nothing is said about accuracy: the prompts have no answers"),
        (synthetic.build(calibration=synthetic.calibration(False)), "the model's own size reads 40 % faster than 4 GiB"),
        (synthetic.build(prompts=1), "no interval: one prompt only"),
    ],
)
def test_page_renders_what_is_missing_with_its_reason(run: Run, said: str) -> None:
    """Each incomplete run gives a page that says what is absent and why, and never the words nan or None."""
    text = words(page(run))
    assert said in text
    assert not re.search(r"\b(nan|None)\b", text.split("Evidence")[0])


def test_write_report_writes_page_and_json(tmp_path: Path) -> None:
    """From a run directory on disk: report.html and report.json by default, elsewhere on request; rendered twice the same."""
    run = FULL
    with RunStore(tmp_path / "run") as store:  # at its end the record is sealed
        store.create(run.header)
        for sample in run.samples:
            store.append(sample)
        for entry in run.sessions:
            store.append_session(entry)
    written = write_report(tmp_path / "run")
    assert written == tmp_path / "run" / "report.html"
    own = r"<a download.*?</a>( .\d+ kB.)?|Record: [^<]*|<meta name=.sbd-record[^>]*>\n"
    shown = [re.sub(own, "", page, flags=re.S) for page in (written.read_text("utf-8"), full_page())]
    assert shown[0] == shown[1] and "Record: sealed, not signed." in written.read_text("utf-8")
    data = json.loads((tmp_path / "run" / "report.json").read_text(encoding="utf-8"))
    assert data["version"] == COMPARISON_VERSION and data["run_id"] == run.header.run_id
    assert f'<meta name="sbd-record" content="{data["integrity"]["record_sha256"]}">' in written.read_text("utf-8")
    other = write_report(tmp_path / "run", tmp_path / "other.html")
    assert other.is_file() and (tmp_path / "other.json").is_file()
