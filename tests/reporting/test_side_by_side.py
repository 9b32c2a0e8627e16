"""Several runs on one page: changes have the direction that was put in, likeness comes first, every number has its place."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from harness import formatting
from harness.errors import UserError
from harness.regression.side_by_side import SideBySide, compare_several, to_json
from harness.reporting.side_by_side import render
from tests.helpers import synthetic_run as synthetic
from tests.helpers.command import Cli
from tests.helpers.page_numbers import Walk, resolve
from tests.helpers.two_pages import BASE, FOUND, SLOWER, named
from tests.helpers.two_runs import at_commit, in_processes, slower, stored, two_arms


def outcomes(found: SideBySide, number: int = 0) -> dict[str, str]:
    """What became of every figure, by its key."""
    one = found.against[number]
    return {change.key: change.outcome for change in one.compared.changes}


def test_a_planted_slowdown_is_worse_and_what_was_left_alone_is_not() -> None:
    """SBD's times are 20 % longer in every process, those of NTP vary by luck alone; no count changes."""
    found = outcomes(FOUND)
    arm = "sbd-k16-g0.1-t0-entropy_bounded"
    assert found[f"decode_s_per_token:reference/b1/{arm}"] == "worse" and found[f"prefill_s:reference/b1/{arm}"] == "worse"
    assert found["decode_s_per_token:reference/b1/ntp"] == "unclear"
    assert {
        word for key, word in found.items() if key.partition(":")[0] not in ("decode_s_per_token", "prefill_s", "wall_speedup")
    } == {"same"}


def test_more_passes_are_a_change_of_counts_and_likeness_is_told() -> None:
    """A count that must be equal is changed, not better or worse; the other processor is named, and hides nothing."""
    found = outcomes(FOUND, 1)
    assert found["passes:reference/word_problems/b1/sbd-k16-g0.1-t0-entropy_bounded"] == "changed"
    assert found["passes:reference/word_problems/b1/ntp"] == "same"
    assert [one.key for one in FOUND.against[1].unlike] == ["hardware.cpu_model"] and FOUND.against[0].unlike == ()


def test_every_number_has_its_place_in_the_json() -> None:
    """Each keyed value of the page is found under its key; no table cell shows a figure without one."""
    data = json.loads(json.dumps(to_json(FOUND), allow_nan=False))
    walk = Walk()
    walk.feed(render(FOUND))
    keyed = [one for one in walk.found if "data-key" in one.attrs]
    assert len(keyed) > 60
    for one in keyed:
        found = resolve(data, one.attrs["data-key"])
        plain = found["value"] if isinstance(found, dict) else found
        assert float(one.attrs["data-value"]) == plain
        if one.attrs["data-key"].endswith("/ratio"):
            assert one.text.strip() == formatting.signed_percent(plain - 1)
            if "data-low" in one.attrs:
                assert float(one.attrs["data-low"]) == found["low"] and float(one.attrs["data-high"]) == found["high"]
                assert (
                    one.small
                    == f"{formatting.signed_percent(found['low'] - 1)} to {formatting.signed_percent(found['high'] - 1)}"
                )


def test_how_the_runs_are_unlike_stands_before_what_changed() -> None:
    """A reader learns first that a difference need not be the code's; runs that are alike are called so."""
    page = render(FOUND)
    said = page.index("Runs A and C are not alike")
    assert said < page.index("hardware.cpu_model") < page.index("A to C:") < page.index("From A to B")
    assert "Runs A and B are alike" in page and "Runs A and B are not alike" not in page
    assert "Other CPU" in page[said : page.index("A to C:")]


def test_one_process_is_not_taken_for_more() -> None:
    """Where an interval is about the measured processes alone the page says so, in the table and under it."""
    one = compare_several([two_arms(jitter=0.05, prompts=8), named(slower(two_arms(jitter=0.02, prompts=8), 1.2), "run-b")])
    page = render(one)
    assert "this process only" in page and "is about these alone" in page and "A hollow mark" in page
    assert {change.outcome for change in one.against[0].compared.changes if change.kind == "timed"} == {"unclear"}
    assert "of 5 timed figures, 5 unclear" in page and "1 process of BASE, 1 process of NEW" in page
    assert "`processes: 3`" in page and "no time is shown to be better or worse" in page
    assert "is about these alone" not in render(compare_several([BASE, SLOWER]))


def test_runs_on_one_page_share_what_may_be_chance() -> None:
    """What two runs show, hardly, is not shown where NEW stands among nine that are held against the same BASE."""
    luck = (1.03, 1.04, 1.045)
    barely = [named(in_processes(two_arms(jitter=0.05, prompts=8), *luck), f"run-{i}") for i in range(9)]
    base = in_processes(two_arms(jitter=0.05, prompts=8), 1.0, 0.995, 1.005)
    alone, among = compare_several([base, barely[0]]), compare_several([base, *barely])
    key = "decode_s_per_token:reference/b1/ntp"
    assert outcomes(alone)[key] == "worse" and outcomes(among)[key] == "unclear"


def test_the_verdict_of_each_run_is_its_own_page_s() -> None:
    """Word and tally are those of the run's own claims."""
    page = render(FOUND)
    for side in FOUND.sides:
        assert side.judgements.runs == (side.header.run_id,)
    assert page.count('class="state missed"') + page.count('class="state inconclusive"') + page.count('class="state void"') == 3


def test_a_run_beside_itself_is_refused() -> None:
    """Nothing can differ, and the letters would not tell which is which."""
    with pytest.raises(UserError, match="each once"):
        compare_several([BASE, BASE])
    with pytest.raises(UserError, match="two or more"):
        compare_several([BASE])


def test_hostile_text_is_inert() -> None:
    """Markup in question, label, processor and commit is text."""
    evil = '<script>alert(1)</script>"><img src=x onerror=alert(2)>'
    arms = (synthetic.NTP, synthetic.Arm(label=f"SBD {evil}", gamma=0.1, passes_per_block=4))
    base = synthetic.build(arms=arms, jitter=0.05, name=f"part {evil}", question=evil)
    page = render(compare_several([base, at_commit(named(base, evil, cpu_model=evil), evil)]))
    assert "<script" not in page and "<img" not in page and "&lt;script&gt;" in page
    assert re.search(r"https?://", page) is None


@pytest.fixture
def cli(cli: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Cli:
    """The command line, in a folder with two runs."""
    monkeypatch.chdir(tmp_path)
    stored(BASE, tmp_path / "a")
    stored(SLOWER, tmp_path / "b")
    return cli


def test_report_puts_two_runs_on_one_page(cli: Cli, tmp_path: Path) -> None:
    """In the last run's directory, or where --out says; --each gives every run its own page as before."""
    assert cli.output("report a b") == "report  b/side_by_side.html\n"
    assert (tmp_path / "b" / "side_by_side.html").read_text() == render(compare_several([BASE, SLOWER]))
    assert not (tmp_path / "a" / "report.html").exists()
    assert cli("report a b --out x.html") == 0
    assert json.loads((tmp_path / "x.json").read_text()) == cli.answer("report a b")
    assert cli("report --each a b") == 0
    assert (tmp_path / "a" / "report.html").exists() and (tmp_path / "b" / "report.html").exists()


def test_report_prints_json(cli: Cli, tmp_path: Path) -> None:
    """Versioned; of one run its comparison and judgements, of two both and what changed; no page is written."""
    one = cli.answer("report a")
    assert one["version"] == 1 and one["comparison"]["run_id"] == BASE.header.run_id
    judged = json.loads(json.dumps(to_json(FOUND)))["runs"][0]["judgements"]
    assert one["judgements"] == judged | {"records": ["unsealed (its run has not ended)"]}
    two = cli.answer("report a b")
    assert [run["letter"] for run in two["runs"]] == ["A", "B"] and two["against"][0]["outcomes"].count("worse") == 2
    assert not list(tmp_path.glob("*/*.html"))


def test_the_markdown_has_the_words_on_top_of_the_page(cli: Cli, tmp_path: Path) -> None:
    """One list of claims, printed, in a file, as JSON and on the page; without claims of the run's own no counts on top."""
    printed = cli.output("report a --markdown -")
    assert cli("report a --markdown v.md") == 0
    assert (tmp_path / "v.md").read_text() in printed
    told = re.findall(r"^\| (confirmed|refuted|void|inconclusive) \| ([^|]*) \|", printed, re.MULTILINE)
    judged = cli.answer("report a")["judgements"]
    states = {"confirmed": "met", "refuted": "missed", "void": "void", "inconclusive": "inconclusive"}
    listed = sorted((states[word], metric.replace("\\", "")) for word, metric in told)
    assert listed == sorted((one["state"], one["metric"]) for one in judged["judgements"])
    page = (tmp_path / "a" / "report.html").read_text()
    assert sorted(re.findall(r'class="claim (\w+)"', page)) == [state for state, _ in listed]
    assert len(told) == 4 and "each shown below: 3-5x by the clock" in page


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("a b --markdown v.md", "sbd gate"),
        ("a --history h.sqlite", "sbd history trend"),
        ("a b --each --out x.html", "--each writes 2"),
        ("a a", "each once"),
    ],
)
def test_mistakes_are_told(cli: Cli, arguments: str, words: str) -> None:
    """With what to do instead, before anything is written."""
    assert words in cli.refusal(f"report {arguments}")


def test_the_trend_is_that_of_these_runs(cli: Cli, tmp_path: Path) -> None:
    """Series that one of the runs is a point of are drawn; a history without them says how to add them."""
    for number in range(3):
        run = named(slower(two_arms(jitter=0.05, prompts=8), 1 + number / 10), f"{number:032x}")
        stored(run, tmp_path / str(number))
    assert cli("report 0 1 --history h.sqlite --out x.html") == 0
    assert "sbd history add" in (tmp_path / "x.html").read_text()
    assert cli("history add --db h.sqlite 0 1 2") == 0
    assert cli("report 0 1 --history h.sqlite --out x.html") == 0
    page = (tmp_path / "x.html").read_text()
    trend = page[page.index('id="trend"') :]
    assert trend.count("<svg") >= 3 and "sbd history add" not in trend
