"""What the record keeps of a request, and which requests are paired with which."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from harness.record.imports.formats import read_file
from harness.record.imports.measured import MeasuredRequest as Request
from harness.record.imports.measured import ResultFile, figures, percentile, weighted_percentile
from harness.record.imports.samples import Placed, pairing_of, samples_of
from tests.helpers.bench_files import LENGTHS, vllm_result, written


def request(place: int, prompt: str | None = None, tokens: int = 40) -> Request:
    """One that took 0.5 s, with ten tokens."""
    return Request(
        place=place, prompt_tokens=tokens, output_tokens=11, first_token_s=0.1, last_token_s=0.4, request_s=0.5, prompt=prompt
    )


def file(process: int, *requests: Request, sent: int | None = None) -> Placed:
    """A file as one process."""
    held = ResultFile(
        format="guidellm",
        tool="GuideLLM",
        requests=requests,
        sent=sent or len(requests),
        concurrency=1,
        printed={},
        lacks={},
        name="f",
        sha256="0" * 64,
    )
    return Placed(case_id="c", process=process, file=held)


def test_a_request_keeps_its_times_and_nothing_is_made_up(tmp_path: Path) -> None:
    """Times as in the file; ids, passes, seed, begin, grade and stop reason are absent."""
    result = vllm_result(failed=(2,))
    of = Placed(case_id="c", process=1, file=read_file(written(tmp_path, "a.json", result)))
    samples = list(samples_of([of], "order"))
    assert [one.group for one in samples] == [0, 1, *range(3, 10)]
    third = samples[2]
    assert third.prefill_s == result["ttfts"][3] and third.meters["request_s"] == result["latencies"][3]
    assert third.decode_s == pytest.approx(result["latencies"][3] - result["ttfts"][3])
    assert third.rows[0].prompt_tokens == LENGTHS[3] and third.rows[0].output_tokens == 16 and third.process == 1
    assert third.lacks == ("passes", "seed", "started_at", "output_ids", "stop_reason") and third.rows[0].correct is None


def test_the_same_prompts_in_any_order_are_paired_by_their_text() -> None:
    """A prompt that comes again is a repeat of it."""
    files = [file(0, request(0, "a" * 64), request(1, "b" * 64)), file(1, request(0, "b" * 64), request(1, "a" * 64))]
    assert pairing_of(files)[0] == "prompts"
    keys = [(one.group, one.repeat, one.process) for one in samples_of(files, "prompts")]
    assert keys == [(0, 0, 0), (1, 0, 0), (1, 0, 1), (0, 0, 1)]
    twice = [file(0, request(0, "a" * 64), request(1, "a" * 64))]
    assert [(one.group, one.repeat) for one in samples_of(twice, "prompts")] == [(0, 0), (0, 1)]


def test_other_prompts_are_not_paired() -> None:
    """Unless only those are missing that failed."""
    one, other = file(0, request(0, "a" * 64), request(1, "b" * 64)), file(1, request(0, "a" * 64), request(1, "c" * 64))
    assert pairing_of([one, other])[0] is None
    lost = file(1, request(0, "a" * 64), sent=2)
    assert pairing_of([one, lost])[0] == "prompts"
    groups = {(sample.process, sample.group) for sample in samples_of([one, other], None)}
    assert groups == {(0, 0), (0, 1), (1, 2), (1, 3)}


@pytest.mark.parametrize(
    ("other", "paired", "words"),
    [((40, 50, 60), True, "order"), ((40, 50, 61), False, "lengths"), ((40, 50), False, "numbers of requests")],
)
def test_without_prompts_equal_lengths_in_order_pair(other: tuple[int, ...], paired: bool, words: str) -> None:
    """Lengths that are all alike show nothing."""
    first = file(0, *(request(place, tokens=tokens) for place, tokens in enumerate((40, 50, 60))))
    second = file(1, *(request(place, tokens=tokens) for place, tokens in enumerate(other)))
    found, said = pairing_of([first, second])
    assert (found == "order") == paired and words in said
    alike = file(0, request(0), request(1))
    assert pairing_of([alike, replace(alike, process=1)])[0] is None


def test_medians_by_hand_by_either_rule() -> None:
    """Interpolated between requests; or the smallest value that half of the tokens do not exceed."""
    found = [
        replace(request(place), first_token_s=first, last_token_s=first + span, output_tokens=tokens)
        for place, (first, span, tokens) in enumerate([(0.1, 1.0, 11), (0.2, 1.0, 101), (0.4, 2.0, 11), (0.3, 0.0, 1)])
    ]
    each, by_token = figures(found), figures(found, "per_token")
    assert each["median_first_token_s"] == pytest.approx(0.25) and by_token["median_first_token_s"] == 0.2
    assert each["median_time_per_token_s"] == pytest.approx(0.1) and by_token["median_time_per_token_s"] == pytest.approx(0.01)
    assert by_token["mean_time_per_token_s"] == pytest.approx(4.0 / 120)
    assert "median_gap_s" not in each
    assert percentile([3.0, 1.0], 99) == pytest.approx(2.98) and weighted_percentile([(1.0, 1.0), (2.0, 1.0)], 50) == 1.0
