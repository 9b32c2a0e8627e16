"""Judgements made by hand and by hypothesis, with the text that a careless writer of formats would fall over."""

from __future__ import annotations

import unicodedata
from typing import Any

from hypothesis import strategies as st

from harness.analysis.judge.judgement import GRAVEST_FIRST, Judgement, Judgements, State
from harness.stats.quantity import Quantity

NASTY = (
    "<script>alert(1)</script>",
    "</system-out>",
    "]]>",
    "<!-- ",
    "-->",
    "&amp;",
    "|",
    "\\|",
    "\\",
    "`",
    "``",
    "*",
    "_",
    "~~",
    "[x](y)",
    "![](z)",
    "\n",
    "\r\n",
    "\r",
    "\n::error::x",
    "::",
    "::warning title=a::b",
    "##[error]x",
    "%0A",
    "%25",
    "%",
    ",",
    "=",
    '"',
    "'",
    "{",
    "}",
    "#12",
    "@someone",
    "https://example.com",
    "www.example.com",
    ":tada:",
    "$x$",
    "\x00",
    "\x07",
    "\x1b[31m",
    "\x85",
    "\u2028",
    "\u202e",
    "\ud800",
    "\ufffe",
    "\ufeff",
    "😀",
    "👩\u200d💻",
    "é",
    "e\u0301",
    "γ",
    "\t",
    "# HELP x y",
    "- ",
    "1. ",
    "---",
)
text = st.lists(
    st.sampled_from(NASTY) | st.text(st.characters(exclude_categories=()), max_size=8) | st.text("ab 1", max_size=4), max_size=6
).map("".join)
number = st.none() | st.floats(width=32)
states: st.SearchStrategy[State] = st.sampled_from(GRAVEST_FIRST)


def answer(state: State = "met", **fields: Any) -> Judgement:
    """A claim in this state, with other fields where given."""
    given: dict[str, Any] = {
        "subject": "SBD k=16 γ=0.35, part bandwidth, batch 1",
        "metric": "wall_speedup",
        "kind": "claim",
        "state": state,
        "cell": {"part": "bandwidth", "batch_size": "1"},
        "value": Quantity(value=2.4, low=2.1, high=2.7, n=8),
        "unit": "x",
        "better": "higher",
        "bound": "at least 3",
        "basis": "measured",
        "sizes": {"prompts": 8, "processes": 1},
        "reason": "the whole interval is below 3",
    }
    return Judgement(**(given | fields))


def of(*answers: Judgement, title: str = "sbd verify", runs: tuple[str, ...] = ("reports/quickstart",)) -> Judgements:
    """These answers to one call."""
    return Judgements(title=title, runs=runs, judgements=answers)


quantities = st.builds(Quantity, value=number, low=number, high=number, n=st.integers(0, 99), reason=st.none() | text)
answers = st.builds(
    answer,
    states,
    subject=text,
    metric=st.sampled_from(("wall_speedup", "passes", "latency_p50_s", "tokens_per_s", "odd metric/γ")),
    kind=st.sampled_from(("claim", "deterministic", "timed")),
    cell=st.dictionaries(st.sampled_from(("part", "arm", "task", "odd key")), text),
    value=quantities,
    unit=st.sampled_from(("x", "s", "tokens/s", "", "of the read ceiling")) | text,
    better=st.sampled_from(("higher", "lower", "equal")),
    bound=text,
    reason=text,
    remedy=st.none() | text,
    base=number,
)
judgements = st.builds(
    lambda found, title, runs: of(*found, title=title, runs=tuple(runs)),
    st.lists(answers, max_size=4),
    text,
    st.lists(text, max_size=2),
)


def ink(words: str) -> str:
    """What of a text can be seen: letters, marks, numbers, punctuation and symbols. No spaces, controls or invisible marks."""
    return "".join(letter for letter in words if unicodedata.category(letter)[0] not in "CZ")
