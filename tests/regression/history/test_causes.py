"""What the trend draws from two commits on, when it says a verdict can come, and whether NTP or the arm moved a speedup."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from harness.cli.history import trend_table
from harness.regression.history.store import TRACKED, History, HistoryRecord, Wanted, known_metrics
from harness.regression.history.trend import Trend, figure_words, metric_words, sparkline, trend
from tests.helpers.synthetic_history import figure, record


def of_times(commits: int, ntp_from_half: float, own_from_half: float) -> list[HistoryRecord]:
    """Times per token of NTP and of an arm with a few per mille of noise; from half of the commits on times a factor."""
    random, made = np.random.default_rng(3), []
    for number in range(commits):
        later = number >= commits // 2
        noise = np.exp(random.normal(0.0, 0.003, 2))
        ntp, own = 0.04 * noise[0] * (ntp_from_half if later else 1), 0.01 * noise[1] * (own_from_half if later else 1)
        figures = figure(ntp / own), figure(own, "time_per_token_s"), figure(ntp, "time_per_token_s", arm="NTP")
        made.append(record(number, *figures))
    return made


def told(folder: Path, records: list[HistoryRecord]) -> tuple[Trend, str]:
    """The trend over all figures, and its words in a pipe."""
    with History(str(folder / "h.sqlite")) as history:
        for one in records:
            history.add(one)
        found = trend(history, Wanted(), known_metrics([]))
    return found, trend_table(found)


@pytest.mark.parametrize(
    ("ntp", "own", "words"),
    [
        (0.8, 1.0, "the speedup fell because NTP became faster (time per token of NTP -"),
        (1.0, 1.25, "the speedup fell because the arm itself became slower"),
        (1.0, 0.8, "the speedup rose because the arm itself became faster"),
    ],
)
def test_why_a_speedup_moved(tmp_path: Path, ntp: float, own: float, words: str) -> None:
    """Of the change that was put in, and of no other figure's."""
    found, text = told(tmp_path, of_times(24, ntp, own))
    assert len(found.found) >= 2 and words in text
    assert sum("the speedup" in line for line in text.splitlines()) == 1


def test_two_commits_are_drawn_and_the_first_verdict_is_announced(tmp_path: Path) -> None:
    """Every series has its line with the newest value; eight commits more make ten."""
    found, text = told(tmp_path, of_times(2, 1.0, 2.0))
    drawn = [line for line in text.splitlines() if "▁█" in line or "█▁" in line]
    assert len(drawn) == len(found.judged) == 3
    assert "so the first verdict can come after 8 more" in text
    assert "time per decode token" in drawn[0] and "40.1\u00a0ms" in drawn[0]
    alone = tmp_path / "alone"
    alone.mkdir()
    _, text = told(alone, of_times(1, 1.0, 1.0))
    assert "█" not in text and "after 9 more" in text


def test_a_sparkline_is_between_its_least_and_its_greatest() -> None:
    """Eight steps by hand; equal values are all in the middle; only the newest are drawn."""
    assert sparkline([0, 1, 2, 3, 4, 5, 6, 7]) == "▁▂▃▄▅▆▇█"
    assert sparkline([3.0, 3.0]) == "▄▄" and sparkline([9, 0, 1], longest=2) == "▁█"


def test_every_figure_that_is_followed_has_a_name_and_a_unit() -> None:
    """Those over requests too: seconds are no share, requests per second no percentage."""
    names = [metric_words(name) for name in TRACKED]
    assert all(names) and len(set(names)) == len(names)
    assert figure_words("first_token_p50_s", 0.25) == figure_words("time_per_token_s", 0.25) == "250\u00a0ms"
    assert figure_words("goodput_per_s", 4.0) == "4.00\u00a0requests/s"
    assert figure_words("throughput_tokens_per_s", 4.0) == figure_words("tokens_per_s", 4.0) == "4.00\u00a0tokens/s"
