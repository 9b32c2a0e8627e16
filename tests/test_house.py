"""The house grows only on purpose: its size by package against a table beside this file, and a check that the check can fail.

Who has to raise a number says in that commit which issue asked for it, how many tokens it takes, and why:
`Ratchet: issue 48, +2,900 tokens: loads are judged over arrivals`. Who makes it smaller lowers the table with it.
"""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest

from benchmarks.house import RATCHET, ratchet, tokens_of
from tests.helpers import ROOT

SAID = re.compile(r"Ratchet: issue \w+, \+[\d,]+ tokens: \S")
Table = dict[str, dict[str, int]]


def larger(now: Table, allowed: Table) -> list[str]:
    """What exceeds a table, in words; a package that it does not have exceeds it too."""
    return [
        f"{package}: {value:,} {name.replace('_', ' ')}, allowed are {allowed.get(package, {}).get(name, 0):,}"
        for package, counts in now.items()
        for name, value in counts.items()
        if value > allowed.get(package, {}).get(name, 0)
    ]


def test_no_package_is_larger_than_the_table_allows() -> None:
    found = larger(ratchet(), json.loads(RATCHET.read_text(encoding="utf-8")))
    assert not found, "; ".join(found) + f". Delete first; who must raise {RATCHET.name} says why, see the top of this file"


def test_the_table_has_no_room_left_unused() -> None:
    """Slack of some hundred tokens would let the next change in unseen."""
    now, allowed = ratchet(), json.loads(RATCHET.read_text(encoding="utf-8"))
    assert now.keys() == allowed.keys()
    slack = sum(allowed[one]["tokens"] - counts["tokens"] for one, counts in now.items() if one.startswith("harness"))
    assert slack <= 200, f"harness/ is {slack} tokens smaller than {RATCHET.name} says; `python -m benchmarks.house --ratchet`"


def test_a_commit_that_raises_the_table_says_why() -> None:
    listed = subprocess.run(["git", "log", "--format=%H", "--", str(RATCHET)], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode or not listed.stdout:
        pytest.skip("no history of the table is here")
    for newer in listed.stdout.split()[:-1]:  # the first one made the table
        after, before = _table(newer), _table(f"{newer}~1")
        said = subprocess.run(["git", "log", "-1", "--format=%B", newer], cwd=ROOT, capture_output=True, text=True, check=True)
        assert before is None or after is None or not larger(after, before) or SAID.search(said.stdout), newer


def _table(commit: str) -> Table | None:
    """As a commit has it; None where history does not reach that far."""
    shown = subprocess.run(["git", "show", f"{commit}:tests/house.json"], cwd=ROOT, capture_output=True, text=True)
    return None if shown.returncode else json.loads(shown.stdout)


def test_a_module_more_is_seen(tmp_path: Path) -> None:
    (tmp_path / "harness" / "record").mkdir(parents=True)
    (tmp_path / "harness" / "record" / "one.py").write_text("x = 1\n")
    before = ratchet(tmp_path)
    assert before["harness/record"] == {"modules": 1, "tokens": 3, "largest_folder": 1}
    (tmp_path / "harness" / "record" / "two.py").write_text("y = x + 1\n")
    assert len(larger(ratchet(tmp_path), before)) == 3


@pytest.mark.parametrize(
    ("source", "tokens"),
    [
        ("x = 1  # a comment\n", 3),
        ("def f():\n    return {'a': 1}\n", 11),
        ('"""A text of\nseveral lines."""\n', 1),
        ('x = f"{a} and {b!r:>{c}}" "d"\n', 4),
        ("\n\n", 0),
    ],
)
def test_tokens_by_hand(source: str, tokens: int) -> None:
    assert tokens_of(source) == tokens
