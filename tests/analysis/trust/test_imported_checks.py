"""An imported record whose own numbers contradict each other, or the tool's figures, is void by name."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from harness.analysis.trust.health import without_void_times
from harness.analysis.trust.integrity import contradictions
from harness.record.imports.formats import read_file
from harness.record.schema import Run
from harness.scenario.imported import About, ImportedArm, imported_run
from tests.helpers import DATA
from tests.helpers.bench_files import cut, vllm_result, written
from tests.helpers.synthetic_run import with_samples

Damage = Callable[[dict[str, Any]], None]


def imported(folder: Path, *results: dict[str, Any]) -> Run:
    """A run of one arm, a file for each result."""
    files = tuple(read_file(written(folder, f"{number}.json", one)) for number, one in enumerate(results))
    about = About(model=None, machine=None, claims=(), command="sbd import")
    header, samples = imported_run([ImportedArm(name="fast", is_ntp=False, files=files)], about)
    return Run(header=header, samples=samples, outcomes=[], sessions=[])


def test_files_as_the_tool_wrote_them_contradict_nothing(tmp_path: Path) -> None:
    """With failed requests and without."""
    run = imported(tmp_path, vllm_result(seed=1), vllm_result(seed=2, failed=(3,)), vllm_result(seed=3))
    assert contradictions(run) == {} and len(run.samples) == 29


def first_after_the_request(result: dict[str, Any]) -> None:
    result["ttfts"][2] = result["latencies"][2] + 1


def other_median(result: dict[str, Any]) -> None:
    result["median_ttft_ms"] *= 1.2


def other_throughput(result: dict[str, Any]) -> None:
    result["output_throughput"] *= 2


def other_tokens(result: dict[str, Any]) -> None:
    result["output_lens"][0] *= 3


def other_count(result: dict[str, Any]) -> None:
    result["completed"] -= 1


def other_gaps(result: dict[str, Any]) -> None:
    result["itls"][4] = [gap / 2 for gap in result["itls"][4]]


def short_duration(result: dict[str, Any]) -> None:
    result["duration"] /= 3


CONTRADICTS: dict[Damage, str] = {
    first_after_the_request: "the last token came before the first",
    other_median: "the median_first_token_s that the tool printed",
    other_throughput: "the output_tokens_per_s that the tool printed",
    other_tokens: "the output_tokens that the tool printed",
    other_count: "the requests that the tool printed",
    other_gaps: "do not add up to its time after the first token",
    short_duration: "took longer than the whole run of the tool",
}


@pytest.mark.parametrize("damage", CONTRADICTS, ids=lambda one: one.__name__)
def test_numbers_that_contradict_each_other_are_named(damage: Damage, tmp_path: Path) -> None:
    """What contradicts what, and in which file or request."""
    result = vllm_result()
    damage(result)
    found = contradictions(imported(tmp_path, result, vllm_result(seed=9)))
    named = [places for words, places in found.items() if CONTRADICTS[damage] in words]
    assert "process 0" in named[0][0] and not any("process 1" in place for one in found.values() for place in one)


def test_one_file_under_two_names_is_seen(tmp_path: Path) -> None:
    """The same requests with a space behind them have another digest, and the same times."""
    first, second = vllm_result(), vllm_result() | {"date": "20261120-100001"}
    assert any("one and the same" in words for words in contradictions(imported(tmp_path, first, second)))


@pytest.mark.parametrize("kept", [range(1, 12), range(11, 5, -1), (3, 7)])
def test_requests_that_two_files_share_are_seen(kept: Sequence[int], tmp_path: Path) -> None:
    """A real file, and its copy with some requests of it in any order, on the other side: void by name. Apart they are not."""
    whole = json.loads((DATA / "imports/vllm-plain-1.json").read_text())
    other = json.loads((DATA / "imports/vllm-plain-2.json").read_text())

    def found(second: dict[str, Any]) -> dict[str, list[str]]:
        sides = [read_file(written(tmp_path, f"{number}.json", one)) for number, one in enumerate((whole, second))]
        arms = [
            ImportedArm(name=name, is_ntp=name == "ntp", files=(one,)) for name, one in zip(("ntp", "fast"), sides, strict=True)
        ]
        header, samples = imported_run(arms, About(model=None, machine=None, claims=(), command="sbd import"))
        return contradictions(Run(header=header, samples=samples, outcomes=[], sessions=[]))

    places = found(cut(whole, kept))
    assert [*places] == ["two files hold the same requests, by their times to the last digit"]
    assert places[next(iter(places))][0].endswith(f"process 0): {len(kept)}")
    assert found(cut(other, kept)) == {}


@pytest.mark.parametrize(("step_s", "void"), [(0.02, 12), (0.01, 4), (0.001, 0), (0.0, 0)])
def test_a_clock_coarser_than_a_hundredth_of_a_decode_voids_its_time(step_s: float, void: int, tmp_path: Path) -> None:
    """A real file, its times rounded: decodes that take less than a hundred steps of its clock lose their time, others none."""
    result = json.loads((DATA / "imports/vllm-plain-1.json").read_text())
    for name in ("ttfts", "latencies") if step_s else ():
        result[name] = [step_s * round(seconds / step_s) for seconds in result[name]]
    decodes = [last - first for last, first in zip(result["latencies"], result["ttfts"], strict=True)]
    assert sum(seconds < 99.99 * step_s for seconds in decodes) == void
    kept, (health,) = without_void_times(imported(tmp_path, result))
    assert health.reasons == ({"a step of its clock is more than 1 % of its decode": void} if void else {})
    assert [one.decode_s is None for one in kept.samples] == [seconds < 99.99 * step_s for seconds in decodes]
    assert all("request_s" in one.meters for one in kept.samples)


def test_rounded_times_may_be_the_same_by_chance(tmp_path: Path) -> None:
    """Of files whose times are whole milliseconds, two equal requests show nothing."""
    first, second = vllm_result(seed=1), vllm_result(seed=2)
    for result in (first, second):
        result["ttfts"], result["latencies"] = [0.1] * 10, [0.4] * 5 + [0.5 + 0.001 * len(result["itls"][0])] * 5
    second["latencies"][9] += 0.001
    assert not any("same requests" in words for words in contradictions(imported(tmp_path, first, second)))


def test_a_sample_that_was_taken_out_is_missed(tmp_path: Path) -> None:
    """The header counts the requests of every file."""
    run = imported(tmp_path, vllm_result())
    lacking = with_samples(run, run.samples[:-1])
    assert any("sent less those that failed" in words for words in contradictions(lacking))
