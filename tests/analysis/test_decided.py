"""`sbd run --until decided`: what is looked at between two processes, what is said there, and how it is asked for."""

from __future__ import annotations

import math

import numpy as np
import pytest

from benchmarks.verdict_errors.records import paired_run
from harness.analysis.answer import Derived
from harness.analysis.decided import look
from harness.cli.run import _seconds
from harness.errors import UserError
from harness.record.schema import Looks, Run
from harness.scenario.claims import Claim, Where
from tests.helpers.command import Cli
from tests.helpers.environments import with_header


def run_of(processes: int, *bounds: float, spread: float = 0.1, own: bool = True) -> Run:
    """One arm, 3x as fast as NTP, in processes that differ by ``spread``; a claim of each bound for this arm."""
    luck = spread * np.array([-1.0, 1.0, -0.5, 0.5] * 3)[:processes]
    logs = math.log(3) + np.broadcast_to(luck, (1, 6, processes))
    claims = [Claim(metric="wall_speedup", min=bound, where=Where(arm="SBD k=2 γ=0.1")) for bound in bounds]
    run = paired_run(np.full(6, 50.0), logs, claims, own=True)
    parts = [part | {"own_prompts": own} for part in run.header.scenario["parts"]]
    return with_header(
        run, scenario=run.header.scenario | {"parts": parts}, looks=Looks(first=4, last=12, error=0.025, at_most_s=None)
    )


def test_it_is_decided_once_every_claim_about_the_clock_is() -> None:
    """Bounds far below and far above 3 are; one at 3 is not, and a line says so of each."""
    decided, lines = look(run_of(4, 2.0, 6.0), 4)
    assert decided and [line.partition("; ")[0].rpartition(" ")[2] for line in lines] == ["confirmed", "refuted"]
    assert lines[0].startswith("look after 4 of up to 12 processes: wall_speedup 3 (95 % 2.")
    decided, lines = look(run_of(4, 2.0, 3.0), 4)
    assert not decided and "inconclusive" in lines[1]


def test_a_look_is_stricter_than_the_interval_that_is_shown() -> None:
    """The 95 % interval of four processes leaves the bound out, the level of the first of nine looks does not."""
    shown = look(run_of(4, 1.0), 4)[1][0]
    low = float(shown.partition("95 % ")[2].partition("\u2013")[0])
    assert not look(run_of(4, low - 0.02), 4)[0] and look(run_of(4, 0.75 * low), 4)[0]


def test_what_will_hardly_be_decided_is_told_after_the_third_process() -> None:
    """With what it would take; nothing is decided then, and a claim that the looks will decide is not spoken of."""
    decided, lines = look(run_of(3, 2.0, 2.99), 3)
    assert not decided and len(lines) == 1
    assert lines[0].startswith("wall_speedup 2.95x will hardly be decided at 2.99: ") and lines[0].endswith("12 may come")


def test_a_part_whose_processes_share_their_prompts_keeps_no_run_from_ending() -> None:
    """Its claims wait for no look."""
    assert look(run_of(4, 3.0, own=False), 4) == (True, [])


@pytest.mark.parametrize(("text", "seconds"), [("90s", 90), ("15m", 900), ("1.5h", 5400)])
def test_a_length_of_time_has_its_unit(text: str, seconds: float) -> None:
    assert _seconds(text) == seconds


@pytest.mark.parametrize("text", ["15", "m", "0s", "-3m", "1e3s", "nan", "9999999999h", "1 h", "٣m", ""])
def test_others_are_refused_with_what_is_allowed(text: str) -> None:
    with pytest.raises(UserError, match=r"--at-most .*: give a length of time above 0 such as 90s, 15m or 1h"):
        _seconds(text)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("--until tomorrow", "--until tomorrow: decided is allowed"),
        ("--at-most 15m", "--at-most 15m: belongs to --until decided"),
        ("--until decided --on ray", "--until decided looks after each process, and a cluster takes several at once"),
        ("--until decided --at-most soon", "--at-most soon: give a length of time"),
    ],
)
def test_options_that_do_not_go_together_are_refused_before_anything_is_loaded(cli: Cli, options: str, said: str) -> None:
    assert said in cli.refusal(f"run quickstart {options}")


def test_the_page_shows_a_picked_arm_at_the_level_of_its_verdict() -> None:
    """Two arms and nine looks: what "verdicts take" is the interval that the verdict tells."""
    logs = (
        math.log(3) + np.broadcast_to(0.1 * np.array([-1.0, 1.0, -0.5, 0.5]), (2, 6, 4)) + np.array([0.0, 0.2])[:, None, None]
    )
    run = with_header(paired_run(np.full(6, 50.0), logs, own=True), looks=Looks(first=4, last=12, error=0.025))
    comparison = Derived(run, (Claim(metric="wall_speedup", min=2.0),)).comparison
    (picked,) = (arm for arm in comparison.cells[0].arms if arm.simultaneous)
    shown, (judged,) = picked.simultaneous.figures["wall_speedup"], comparison.judgements.judgements
    assert f"judged at a simultaneous 95 % level, {shown.low:.4g} to {shown.high:.4g}" in judged.reason
