"""The gallery: the published runs, each with its own page's verdict, and the same bytes for the same runs."""

from __future__ import annotations

import html
import json
import os
import re
import shutil
from pathlib import Path
from urllib.parse import unquote, unquote_to_bytes

import pytest

from harness.reporting.gallery import ELSEWHERE, render, write_gallery
from tests.helpers import ROOT
from tests.helpers import synthetic_run as synthetic
from tests.helpers.command import Cli
from tests.helpers.two_runs import stored, two_arms

REPORTS = ROOT / "reports"


def published(folder: Path) -> list[Path]:
    """Runs that are committed; a checkout may hold others beside them, which git ignores."""
    return [path.parent for path in folder.glob("*/samples.jsonl.gz")]


LARGE_BYTES = 1_000_000
"""Packed samples of a run whose verdict takes a minute."""


@pytest.fixture(scope="module", params=["small", pytest.param("all", marks=pytest.mark.full)])
def copied(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The published runs alone: the small ones, or all."""
    folder = tmp_path_factory.mktemp("gallery")
    for run in published(REPORTS):
        if request.param == "all" or (run / "samples.jsonl.gz").stat().st_size < LARGE_BYTES:
            shutil.copytree(run, folder / run.name)
    return folder


@pytest.fixture(scope="module")
def page(copied: Path) -> str:
    """Their gallery, made once: it takes the verdict of every run."""
    return render(copied)


def test_the_committed_gallery_is_what_is_made_today(page: str) -> None:
    """After a new run, or a change of a formula or of words: sbd gallery reports. (The style it was made with may be older.)"""
    kept = (REPORTS / "index.html").read_text(encoding="utf-8")
    unnumbered = (re.sub(r"run-\d+", "run", one) for one in (page, kept))
    made, there = (re.findall(r"<article.*?</article>", one, flags=re.DOTALL) for one in unnumbered)
    assert len(made) >= 4 and [one for one in there if one in made] == made
    assert len(there) == len({*published(REPORTS), *(card.parent for card in REPORTS.glob(f"*/{ELSEWHERE}"))})


def test_every_run_is_listed_with_question_machine_date_and_links_that_lead_somewhere(copied: Path, page: str) -> None:
    """The newest first; a link to the page and to every file of the record; nothing else is linked."""
    heads = [json.loads((run / "run.json").read_text()) for run in published(copied)]
    newest_first = sorted(heads, key=lambda head: str(head["created_at"]), reverse=True)
    places = []
    for head in newest_first:
        place = page.index(head["created_at"])
        article = html.unescape(page[page.rindex("<article", 0, place) : page.index("</article>", place)])
        environment = head["environment"]
        on_gpu = "cuda" in {case["device"] for case in head["cases"]}
        machine = environment["gpus"][0]["name"] if on_gpu else environment["cpu_model"]
        assert head["question"] in article and machine in article
        places.append(place)
    assert places == sorted(places) and len(places) == len(heads) >= 4
    links = re.findall(r'href="([^"]*)"', page)
    assert len(links) == 4 * len(heads) and all((copied / unquote(link)).is_file() for link in links)


def test_the_verdict_is_that_of_the_run_s_own_page(cli: Cli, copied: Path, page: str) -> None:
    """The question of its page, once for each part, as `sbd verify` answers it; claims that nobody made are not counted."""
    cli(f"verify --json {copied}/quickstart")
    asked = json.loads(cli.out)["judgements"][0]
    place = page.index(json.loads((copied / "quickstart" / "run.json").read_text())["created_at"])
    article = page[page.rindex("<article", 0, place) : page.index("</article>", place)]
    assert article.count("3-5x faster by the clock: ") == 1 and asked["metric"] == "wall_speedup"
    assert asked["word"] in article and "the scenario states none" in article


def test_an_empty_folder_says_how_to_publish(cli: Cli, tmp_path: Path) -> None:
    """Nothing is written."""
    assert cli(f"gallery {tmp_path}") == 2
    assert "sbd publish RUN" in cli.err and not (tmp_path / "index.html").exists()


def test_a_run_without_a_page_is_listed_without_a_link_and_text_is_inert(tmp_path: Path) -> None:
    """The question is text, linked only where there is a page; a folder's odd name survives in the link."""
    evil = '<script>alert(1)</script>"><img src=x onerror=alert(2)>'
    run = synthetic.build(jitter=0.05, question=evil)
    stored(run, tmp_path / "a b%&")
    stored(two_arms(jitter=0.05), tmp_path / "plain")
    (tmp_path / "plain" / "report.html").write_text("page")
    page = write_gallery(tmp_path).read_text(encoding="utf-8")
    assert "<script" not in page and "<img" not in page and html.escape(evil, quote=False)[:8] in page
    assert 'href="plain/report.html"' in page and "report.html" not in page.replace('href="plain/report.html"', "")
    assert 'href="a%20b%25%26/run.json"' in page


def test_what_is_no_run_of_this_folder_is_left_out_and_said(cli: Cli, tmp_path: Path) -> None:
    """A link to a run elsewhere, a loop, a dangling one; a header that is a link or a pipe; damage; a newer version."""
    run = two_arms(jitter=0.05)
    elsewhere = stored(run, tmp_path / "elsewhere" / "run")
    folder = tmp_path / "kept"
    stored(run, folder / "good")
    (folder / "link").symlink_to(elsewhere)
    (folder / "loop").symlink_to(folder / "loop")
    (folder / "dangling").symlink_to(tmp_path / "nowhere")
    for name in ("header", "pipe", "damaged", "newer", "<b>evil\n::error"):
        stored(run, folder / name)
        (folder / name / "run.json").unlink()
    (folder / "header" / "run.json").symlink_to(elsewhere / "run.json")
    os.mkfifo(folder / "pipe" / "run.json")
    for name, text in {"damaged": "{", "newer": '{"record_version": 99}', "<b>evil\n::error": "{}"}.items():
        (folder / name / "run.json").write_text(text)
    assert cli(f"gallery {folder}") == 0
    said, page = cli.out, (folder / "index.html").read_text("utf-8")
    assert said.count("left out: ") == page.count("Left out: ") == 8 and page.count("<article") == 1
    assert "newer/run.json: format version 99" in page and "loop: is a symbolic link" in page and "<b>evil" not in page
    assert "::error" not in {line[:7] for line in said.splitlines()}
    shutil.rmtree(folder / "good")
    assert cli(f"gallery {folder}") == 2
    assert "there is no run in it to list" in cli.err


def test_names_of_any_bytes_are_linked(cli: Cli, tmp_path: Path) -> None:
    """No UTF-8, control characters, the longest there is; each link is the folder's own bytes."""
    run = two_arms(jitter=0.05)
    names = [b"\xff\xfe#?", b"a\x1b[31m\n", b"n" * 255, "é%".encode()]
    for name in names:
        stored(run, tmp_path / os.fsdecode(name))
    assert cli(f"gallery {tmp_path}") == 0
    page = (tmp_path / "index.html").read_bytes().decode()
    links = {unquote_to_bytes(link.removesuffix("/run.json")) for link in re.findall(r'href="([^"]*/run.json)"', page)}
    assert links == set(names) and not re.search("[\x00-\x09\x0b-\x1f]", page)


def test_a_page_of_another_state_is_not_linked(tmp_path: Path) -> None:
    """Its row says why: stale, or no regular file."""
    run = two_arms(jitter=0.05)
    for name in ("stale", "piped"):
        stored(run, tmp_path / name)
    meta = f'<meta name="sbd-record" content="{"0" * 64}">'
    (tmp_path / "stale" / "report.html").write_text(meta)
    os.mkfifo(tmp_path / "piped" / "report.html")
    (tmp_path / "piped" / "report.json").symlink_to("/etc/hostname")
    page = write_gallery(tmp_path).read_text("utf-8")
    assert 'report.html"' not in page and 'report.json"' not in page and "/etc/hostname" not in page
    assert "Not linked: report.html is not of this record (stale)" in page and page.count("Not linked: ") == 3
