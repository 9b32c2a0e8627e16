"""The gallery: the published runs, each with its own page's verdict, and the same bytes for the same runs."""

from __future__ import annotations

import html
import json
import re
import shutil
from collections.abc import Iterable
from pathlib import Path
from urllib.parse import unquote

import pytest

from harness.reporting.gallery import render, write_gallery
from tests import synthetic_run as synthetic
from tests.test_cli import sbd
from tests.two_runs import stored, two_arms

REPORTS = Path(__file__).parent.parent / "reports"


LARGE = {"every_arm_accuracy"}
"""Reading and judging its 24,064 samples takes longer than all the others together: left to the full counts."""


def copied_runs(folder: Path, leave_out: Iterable[str] = ()) -> Path:
    """The published runs alone: a checkout may hold others beside them, which git ignores."""
    for path in REPORTS.glob("*/samples.jsonl.gz"):
        if path.parent.name not in leave_out:
            shutil.copytree(path.parent, folder / path.parent.name)
    return folder


@pytest.fixture(scope="module")
def copied(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All but the large."""
    return copied_runs(tmp_path_factory.mktemp("gallery"), LARGE)


@pytest.fixture(scope="module")
def page(copied: Path) -> str:
    """Their gallery, made once: it takes the verdict of every run."""
    return render(copied)


def body(page: str) -> str:
    """The style a page was made with may be older than today's."""
    return page.partition("<body>")[2]


def articles(page: str) -> dict[str, str]:
    """By the run's folder, in order, what the page says of it; which number it has on the page does not matter."""
    found = re.findall(r"<article.*?</article>", re.sub(r"run-\d+", "run", page), re.DOTALL)
    return {re.findall(r'href="(.*?)/run.json"', one)[0]: one for one in found}


def test_the_committed_gallery_is_what_is_made_today(page: str) -> None:
    """After a new run, or a change of a formula or of words: sbd gallery reports."""
    kept = (REPORTS / "index.html").read_text(encoding="utf-8")
    assert body(kept).partition("<article")[0] == body(page).partition("<article")[0] != ""
    assert articles(kept).keys() - articles(page).keys() == LARGE
    assert [one for one in articles(kept).items() if one[0] not in LARGE] == list(articles(page).items())


@pytest.mark.full
def test_the_committed_gallery_is_what_is_made_today_of_all_runs(tmp_path: Path) -> None:
    """The large ones too."""
    assert body((REPORTS / "index.html").read_text(encoding="utf-8")) == body(render(copied_runs(tmp_path))) != ""


def test_every_run_is_listed_with_question_machine_date_and_links_that_lead_somewhere(copied: Path, page: str) -> None:
    """The newest first; a link to the page and to every file of the record; nothing else is linked."""
    heads = [json.loads(path.read_text()) for path in copied.glob("*/run.json")]
    newest_first = sorted(heads, key=lambda head: str(head["created_at"]), reverse=True)
    places = []
    for head in newest_first:
        assert head["created_at"] in page and head["environment"]["cpu_model"] in page
        places.append(html.unescape(page).index(head["question"]))
    assert places == sorted(places) and len(places) == len(heads) >= 4
    links = re.findall(r'href="([^"]*)"', page)
    assert len(links) == 5 * len(heads) and all((copied / unquote(link)).is_file() for link in links)


def test_the_verdict_is_that_of_the_run_s_own_page(
    copied: Path, page: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Word and tally as `sbd verify` says them."""
    sbd(monkeypatch, "verify", str(copied / "quickstart"))
    word, tally = re.search(r"verdict: (\w+) \((.*?); exit code", capsys.readouterr().out).groups()  # type: ignore[union-attr]
    article = page.partition("Is Set Block Decoding really faster on this machine?")[2].partition("</article>")[0]
    assert f"</span> {word}</span> {tally} (claims" in article


def test_an_empty_folder_says_how_to_publish(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing is written."""
    assert sbd(monkeypatch, "gallery", str(tmp_path)) == 2
    assert "sbd publish RUN" in capsys.readouterr().err and not (tmp_path / "index.html").exists()


def test_a_run_without_a_page_is_listed_without_a_link_and_text_is_inert(tmp_path: Path) -> None:
    """The question is text, linked only where there is a page; a folder's odd name survives in the link."""
    evil = '<script>alert(1)</script>"><img src=x onerror=alert(2)>'
    run = synthetic.build(synthetic.Part(jitter=0.05), question=evil)
    stored(run, tmp_path / "a b%&")
    stored(two_arms(jitter=0.05), tmp_path / "plain")
    (tmp_path / "plain" / "report.html").write_text("page")
    page = write_gallery(tmp_path).read_text(encoding="utf-8")
    assert "<script" not in page and "<img" not in page and html.escape(evil, quote=False)[:8] in page
    assert 'href="plain/report.html"' in page and "report.html" not in page.replace('href="plain/report.html"', "")
    assert 'href="a%20b%25%26/run.json"' in page
