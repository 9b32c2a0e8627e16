"""Templates that ask for the date, or draw at random, give the same prompt in every process of a run."""

from __future__ import annotations

from datetime import UTC, datetime
from types import SimpleNamespace

import pytest

from harness.engine.text_tokenizer import TextTokenizer

DATED = """{% if date_string is not defined %}{% set date_string = strftime_now('%d %b %Y') %}{% endif %}\
{{ date_string }}|{{ strftime_now('%Y-%m-%d %H:%M') }}|{{ range(99999) | random }}|{{ messages[0].content }}"""


@pytest.fixture(autouse=True)
def _no_run_afterwards():
    yield
    TextTokenizer.begun = None


def test_the_date_is_that_of_the_begin_in_every_process() -> None:
    """Each tokenizer has a process of its own, as on the next day."""
    TextTokenizer.begun = datetime(2024, 2, 29, 23, 59, tzinfo=UTC)
    asked = [{"role": "user", "content": "hello"}]
    theirs = SimpleNamespace(get_chat_template=lambda: DATED, special_tokens_map={})
    first, second = (TextTokenizer(theirs, "a template").chat_text(asked, answer=True) for _ in range(2))
    assert first == second and first.startswith("29 Feb 2024|2024-02-29 23:59|") and first.endswith("|hello")
