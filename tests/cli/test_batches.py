"""`sbd roofline --from-run`: acceptance of a recorded run instead of a number; what cannot be told is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.errors import RecordError
from harness.roofline.recorded_acceptance import recorded_arms
from tests.helpers.command import Cli
from tests.helpers.synthetic_run import ARMS, NTP, Arm, Part, build
from tests.helpers.two_runs import stored

WHAT_IF = "roofline --model llama-3.1-8b --hardware h100-sxm"


def test_batches_of_equal_rows_take_what_a_row_takes(cli: Cli, tmp_path: Path) -> None:
    """Every prompt of γ=0.1 makes 4 blocks of 4 passes, so every batch makes 16, three of them 2k wide, and no row waits; NTP
    writes 65 tokens in 64 passes. The text names both batchings, their source, and that nothing ran.
    """
    folder = stored(build(repeats=2), tmp_path / "run")
    found = cli.answer(f"{WHAT_IF} --batch 4 --from-run {folder}")
    assert [arm["label"] for arm in found["arms"]] == ["SBD k=16 γ=0.1", "SBD k=16 γ=0.6"]
    careful, fast = found["arms"]
    assert careful["prompts"] == 8, "warm-ups and repeats are not prompts of their own"
    for batching in ("lockstep", "ragged"):
        one = careful[batching]
        assert one["passes"] == pytest.approx(16) and one["row_passes"] == pytest.approx(16)
        assert one["waiting_share"] == pytest.approx(0) and one["ntp_passes"] == pytest.approx(64)
        assert one["query_tokens_per_pass"] == pytest.approx(16 * 19 / 16)
        assert 1 < one["wall_speedup"] < 64 / 16 * 65 / 64 and one["wall_speedup"] < fast[batching]["wall_speedup"]
    text = cli.output(f"{WHAT_IF} --batch 4 --from-run {folder}")
    assert "priced, not run" in text and "16 to 16 in 95 % of batches" in text and "8 prompts of toy-60m" in text
    assert "lockstep" in text and "ragged" in text


def test_a_batch_of_the_whole_record_has_no_interval(cli: Cli, tmp_path: Path) -> None:
    """Eight prompts, batch 8: the mean is known, its spread is not, and the reason stands there."""
    folder = stored(build(), tmp_path / "run")
    assert "nothing tells how another would differ" in cli.output(f"{WHAT_IF} --batch 8 --from-run {folder}")


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        ("--batch 9", 2, "batch of 9 from 8 recorded prompts"),
        ("--nfe-speedup 3", 2, "--nfe-speedup 3 was given too"),
        ("-k 8", 5, "block sizes there: 16"),
    ],
)
def test_what_a_run_cannot_tell_is_refused(cli: Cli, tmp_path: Path, arguments: str, code: int, words: str) -> None:
    """More rows than prompts, two sources of acceptance, a block size that did not run: a message each, no traceback."""
    folder = stored(build(), tmp_path / "run")
    assert words in cli.refusal(f"{WHAT_IF} --from-run {folder} {arguments}", code=code)


def test_replayed_arms_are_no_record_and_the_smallest_batch_stands_for_all() -> None:
    """Acceptance that was put in says nothing; of batch sizes 1 and 4 the rows come from batch 1 once, by part."""
    replayed = Arm(label="SBD replayed", gamma=0.5, passes_per_block=2, replayed={"source": {"nfe_speedup": 8.0}})
    with pytest.raises(RecordError, match="no SBD sample with real acceptance"):
        recorded_arms(build(arms=(NTP, replayed)), 16)
    both = build(Part(batch_size=4), Part(batch_size=1), Part(name="other", batch_size=4))
    found = recorded_arms(both, 16)
    assert [(arm.case.part, arm.case.batch_size) for arm in found] == [("reference", 1)] * 2 + [("other", 4)] * 2
    assert all(len(arm.rows) == 8 and {row.output_tokens for row in arm.rows} == {65} for arm in found)
    assert [arm.rows[0].passes for arm in found[:2]] == [(arm.passes_per_block,) * 4 for arm in ARMS[1:]]
