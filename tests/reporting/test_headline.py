"""The first line of a page: the question, its verdict, the figure of that very verdict, and what is known of the answers."""

from __future__ import annotations

import html
import re

from harness import formatting
from harness.analysis.answer import compare
from harness.analysis.judge.verdict import QUESTION
from harness.reporting.claims_shown import headlines, held_claims, whose_claims
from harness.reporting.page import render
from tests.helpers import synthetic_run as synthetic
from tests.helpers.published import compared


def test_it_is_the_cards_verdict_and_figure() -> None:
    """Of a published run: a replayed arm without answers; of quickstart: an arm without loss, with its answers."""
    _held_to_its_cards("verified_250m", "acceptance replayed, no answers")
    _held_to_its_cards("claim_llama31_8b_h200", "acceptance replayed, no answers")
    _held_to_its_cards("quickstart", "lossless, 30 of 30 answers are NTP's token for token")


def _held_to_its_cards(name: str, said: str) -> None:
    comparison = compared(name)
    held = held_claims(comparison.judgements)
    asked = [one for one in held if one.claim is QUESTION]
    found = headlines(held, comparison)
    assert [one.word for one in found] == [one.judgement.word for one in asked]
    for one, card in zip(found, asked, strict=True):
        value = card.judgement.value
        low = formatting.figure(value.low, 3)
        assert one.found.startswith(f"{value.value:.2f}x ({low}–") and card.judgement.cell["arm"] in one.found
        assert len(found) == 1 or f", {card.judgement.cell['part']}, batch " in one.found, "several lines differ in their place"
    assert any(said in one.found for one in found)


def test_the_page_and_the_gallery_open_with_it() -> None:
    """The badge is that of the question, and every claim is shown; those that nobody made are not counted."""
    run = synthetic.build(jitter=0.02)
    comparison = compare(run)
    held, judged = held_claims(comparison.judgements), comparison.judgements
    page = render(run, comparison)
    first = re.findall(r'<p class="overall">(.*?)</p>', page, re.DOTALL)
    words = [" ".join(html.unescape(re.sub(r"<[^>]+>", " ", one)).split()) for one in first]
    [expected] = headlines(held, comparison)
    assert words[0].startswith(f"{expected.asked}:") and words[0].endswith(expected.found) and expected.word in words[0]
    assert page.count('<li class="claim') == len(held) and whose_claims(run.header, judged) in html.unescape(page)
