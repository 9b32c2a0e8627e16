"""On the way from a record to its verdict and its page each value is made once: counted while the commands run."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Hashable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pytest

from harness.analysis import answer
from harness.analysis.figures.arms import FIGURES
from harness.analysis.judge import highlight, verdict
from harness.analysis.tally.tally import tally
from harness.scenario.metrics import PRICES, names_of
from tests.helpers import ROOT
from tests.helpers.command import Cli

QUICKSTART = ROOT / "reports" / "quickstart"
Key = Callable[[dict[str, Any]], Hashable]
"""From the arguments of a call to what it makes."""
WATCHED: dict[CodeType, tuple[str, Key]] = {
    answer.compare.__code__: ("run", lambda local: local["run"].header.run_id),
    tally.__code__: ("sample", lambda local: (local["case"].case_id, local["sample"].key)),
    verdict._judgement.__code__: ("claim", lambda local: (id(local["claim"]), *local["place"].names.values())),
    highlight.answer.__code__: ("answer", lambda local: (local["summary"].part, local["summary"].batch_size)),
    **{
        make.__code__: ("figure", lambda local: (*map(id, [*local.values()][:1]), [*local.values()][1], local.get("row")))
        for make in FIGURES.values()
    },
}


def made(run: Callable[[], object]) -> dict[str, Counter[Hashable]]:
    """How often each value of each kind was made."""
    found: dict[str, Counter[Hashable]] = {}
    kept = []  # so that no identity is given to another object

    def see(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code in WATCHED:
            kind, key = WATCHED[frame.f_code]
            kept.append(frame.f_locals)
            found.setdefault(kind, Counter())[frame.f_code.co_name, key(frame.f_locals)] += 1

    sys.setprofile(see)
    try:
        run()
    finally:
        sys.setprofile(None)
    return found


@pytest.mark.parametrize("command", ["verify", "report --markdown {0}/verdict.md --out {0}/page.html"])
def test_each_value_is_made_once(command: str, tmp_path: Path, cli: Cli) -> None:
    """Run, samples, figures by level, claims by place, and the answer of each part and batch size."""
    found = made(lambda: cli(f"{command.format(tmp_path)} {QUICKSTART}"))
    assert found.keys() == {"run", "sample", "claim", "answer", "figure"}
    assert [(kind, key) for kind, counts in found.items() for key, times in counts.items() if times > 1] == []


def test_every_row_has_its_function() -> None:
    """A figure that a claim names or a history follows is made by the function with the decorator of its row."""
    rows = set(names_of(lambda row: row.claimed or row.tracked))
    derived = {f"{name}.{price}" for name in ("wall_speedup_error", "decode_error") for price in PRICES}
    assert FIGURES.keys() == rows - derived - {"accuracy", "ceiling_share", "time_per_token_s"}, "the last of other fields"
