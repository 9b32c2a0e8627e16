"""Why a speedup moved: the arm's time or NTP's, worked by hand."""

from __future__ import annotations

import pytest

from harness.regression.metrics import Moved, speedup_reasons, why_moved


@pytest.mark.parametrize(
    ("ntp", "own", "words"),
    [
        (0.8, 1.0, "the speedup fell because NTP became faster (time per token of NTP -20.0\u00a0%, of the arm 0.0\u00a0%)"),
        (1.0, 1.25, "the speedup fell because the arm itself became slower"),
        (1.25, 1.0, "the speedup rose because NTP became slower"),
        (1.01, 0.8, "the speedup rose because the arm itself became faster"),
        (0.9, 1.1, "the speedup fell through both"),
        (1.2, 1.5, "the speedup fell because the arm itself became slower"),
    ],
)
def test_which_of_the_two_moved(ntp: float, own: float, words: str) -> None:
    """The one with two thirds of the movement; where both went the same way, the one that went the speedup's way."""
    assert why_moved(ntp, own).startswith(words)


def test_times_of_the_same_cell_are_taken() -> None:
    """Other batch sizes, other arms and figures without a ratio say nothing."""

    def moved(metric: str, arm: str, ratio: float | None, batch: str = "1") -> Moved:
        return Moved(metric=metric, cell={"part": "p", "batch_size": batch, "arm": arm}, ratio=ratio)

    time = "decode_s_per_token"
    found = speedup_reasons(
        [
            moved("wall_speedup", "SBD", 0.8),
            moved(time, "SBD", 1.0),
            moved(time, "NTP", 0.8),
            moved(time, "NTP", 1.9, "8"),
            moved("wall_speedup", "SBD", 0.5, "8"),
            moved("wall_speedup", "other", 0.5),
            moved("wall_speedup", "SBD", None),
        ]
    )
    assert list(found) == [0] and "because NTP became faster" in found[0]
