"""The stored figures that a page of the manual quotes, and whether it shows how old they are.

A block is a paragraph, an item of a list or a row of a table. It quotes a result in one of two ways:

    2.3 % (`verdict_errors.false_confirmed_pct_mean`)     this very figure, rounded to the digits that are written
    `python -m benchmarks.served` (2026-11-25) ...        figures of that result: the block names it and has some number

A block that quotes a stale result has the result's date in it. A date that a block has is that of the result.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

FIGURE = re.compile(r"(?P<value>\d[\d,]*(?:\.\d+)?)[^\d`(]*\(`(?P<name>\w+)\.(?P<key>[^`\s]+)`")
PROGRAM = re.compile(r"benchmarks[./](?:results/)?(\w+)(?!\w|\.yaml|\.md)")
DATE = re.compile(r"\b20\d\d-\d\d-\d\d\b")
BLOCKS = re.compile(r"\n\s*\n|\n(?=\s*[*-] |\s*\d+\. |\|)")
CODE = re.compile(r"```.*?```|^ {4}.*?$", re.DOTALL | re.MULTILINE)
Results = Mapping[str, Mapping[str, Any]]


def faults(page: str, results: Results, why_stale: Callable[[str], str]) -> Iterator[str]:
    """What is wrong with the quotes of a page, in words. ``why_stale``: of a result by name; empty where it is not stale."""
    for block in BLOCKS.split(CODE.sub("", page)):
        begin = " ".join(block.split())[:60]
        for quote in FIGURE.finditer(block):
            if quote["name"] in results and (right := _written(quote, results)) != quote["value"]:
                yield f"{begin!r}: {quote['value']} stands beside {quote['name']}.{quote['key']}, which is {right}"
        dates = set(DATE.findall(block))
        for name in _quoted(block, results):
            date = results[name]["date"]
            if date not in dates and (dates or (why := why_stale(name))):
                said = f"another date, {', '.join(sorted(dates))}" if dates else f"no date, and it is stale: {why}"
                yield f"{begin!r}: quotes {name}, measured on {date}, and has {said}"


def _quoted(block: str, results: Results) -> set[str]:
    """The results that a block quotes figures of."""
    names = {one["name"] for one in FIGURE.finditer(block)}
    if re.search(r"(?<![\w.-])\d", DATE.sub("", re.sub("`[^`]*`", "", block))):
        names |= set(PROGRAM.findall(block))
    return names & results.keys()


def _written(quote: re.Match[str], results: Results) -> str:
    """A stored figure with as many decimals as the quote has; the quote itself where it is of no result."""
    if quote["name"] not in results:
        return quote["value"]
    value = results[quote["name"]]["figures"].get(quote["key"])
    comma = "," if "," in quote["value"] else ""
    return "not known" if value is None else f"{value:{comma}.{len(quote['value'].partition('.')[2])}f}"
