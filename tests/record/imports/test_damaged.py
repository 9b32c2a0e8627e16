"""A damaged file gives our error with its file, line and key, or requests that are within all bounds; never a traceback."""

from __future__ import annotations

import copy
import json
import os
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from pydantic_core import from_json

from harness.errors import BenchmarkFileError
from harness.record.imports import document
from harness.record.imports.formats import read_file
from harness.record.imports.measured import MOST_REQUESTS
from harness.record.imports.samples import Placed, imported_of, samples_of
from tests.helpers import DATA
from tests.helpers.bench_files import vllm_result, written

REAL = sorted(path for path in (DATA / "imports").glob("*.json*"))
MADE = {path.name: path.read_bytes() for path in REAL}
NUMBERS = (-1, 0, 1.5, -0.0, 1e-300, 1e300, 10**30, float("inf"), float("nan"))
ODD = (None, True, *NUMBERS, "", "x", "9" * 400, [], {}, [[]], {"a": 1})


def places(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The path of every value in a JSON value, itself included; of long lists the first few."""
    found = [at]
    inner = value.items() if isinstance(value, dict) else enumerate(value[:3]) if isinstance(value, list) else ()
    for key, one in inner:
        found += places(one, (*at, key))
    return found


def changed(value: Any, at: tuple[Any, ...], new: Any) -> Any:
    """A copy with another value at a path; ``new`` is ... to remove it."""
    if not at:
        return None if new is ... else new
    copied = copy.deepcopy(value)
    holder = copied
    for key in at[:-1]:
        holder = holder[key]
    if new is ...:
        del holder[at[-1]]
    else:
        holder[at[-1]] = new
    return copied


def read_or_refuse(file: Path) -> None:
    """Read it all the way to samples; a refusal names the file."""
    try:
        read = read_file(file)
        placed = [Placed(case_id="c", process=0, file=read)]
        origin = imported_of(placed, {})
        for one in samples_of(placed, origin.pairing):
            assert one.model_validate_json(one.model_dump_json()) == one
    except BenchmarkFileError as error:
        assert str(file) in str(error) and len(str(error)) < 6000


@pytest.mark.parametrize("real", REAL, ids=lambda path: path.name)
@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_value_may_be_missing_or_another(real: Path, data: st.DataObject, tmp_path: Path) -> None:
    """In a real file of every tool: any key removed, or any value replaced by an odd one."""
    lines = [json.loads(line) for line in real.read_text(encoding="utf-8").splitlines()]
    number = data.draw(st.integers(0, len(lines) - 1))
    at = data.draw(st.sampled_from(places(lines[number])))
    lines[number] = changed(lines[number], at, data.draw(st.sampled_from([..., *ODD])))
    file = tmp_path / real.name
    file.write_text("\n".join(json.dumps(line) for line in lines), encoding="utf-8")
    read_or_refuse(file)


@pytest.mark.parametrize("real", REAL, ids=lambda path: path.name)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_bytes_may_be_cut_off_or_changed(real: Path, data: st.DataObject, tmp_path: Path) -> None:
    """A file that a full disk cut short, or with bytes of something else in it."""
    whole = real.read_bytes()
    cut = whole[: data.draw(st.integers(0, len(whole)))]
    at = data.draw(st.integers(0, max(0, len(cut) - 1)))
    file = tmp_path / real.name
    file.write_bytes(cut[:at] + data.draw(st.binary(max_size=8)) + cut[at + 1 :])
    read_or_refuse(file)


TOO_SHORT = [1e-320] * 10
"""A rate that no number holds would be made of them."""


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"ttfts": None}, ":1: ttfts"),
        ({"itls": [[0.1]]}, "itls: has 1 entries, errors has 10"),
        ({"ttfts": [-1.0] * 10}, "ttfts.0"),
        ({"duration": "long"}, "duration: got 'long'"),
        ({key: [] for key in ("errors", "itls", "ttfts", "input_lens", "output_lens", "latencies")}, "holds no request"),
        ({"input_lens": [1.5] * 10}, "input_lens.0"),
        ({"errors": ["no"] * 10}, "none of its 10 requests was answered"),
        ({"ttfts": ...}, "--save-detailed"),
        ({"errors": [""] * (MOST_REQUESTS + 1)}, "at most 131072"),
        (
            {"output_lens": [1] * 10, "itls": [[]] * 10, "ttfts": TOO_SHORT, "latencies": TOO_SHORT},
            "1e-12 to 1e+07 s are allowed",
        ),
        ({"model_id": "x" * 20_000_000}, ":1: model_id: "),
    ],
)
def test_a_mistake_is_named_with_line_and_key(change: dict[str, Any], said: str, tmp_path: Path) -> None:
    """What was given, and what is needed; a list that is an option of the tool, and more than anybody can hold."""
    result = {key: value for key, value in (vllm_result() | change).items() if value is not ...}
    with pytest.raises(BenchmarkFileError, match=str(tmp_path)) as refused:
        read_file(written(tmp_path, "a.json", result))
    assert said in str(refused.value) and len(str(refused.value)) < 6000


@pytest.mark.parametrize("real", REAL, ids=lambda path: path.name)
def test_the_first_wrong_value_ends_the_reading(real: Path, tmp_path: Path) -> None:
    """A thousand values of another kind in any list, or under keys that are not read, are not a thousand errors."""
    line = from_json(real.read_bytes().split(b"\n")[0])
    for at in places(line):
        found = line
        for key in at:
            found = found[key]
        if isinstance(found, list | dict) and len(at) < 4:
            junk = [[]] * 1000 if isinstance(found, list) else found | {f"hstl7 {i}": [] for i in range(1000)}
            try:
                read_file(written(tmp_path, "a.json", changed(line, at, junk)))
            except BenchmarkFileError as error:
                assert not isinstance(error.__cause__, ValidationError) or error.__cause__.error_count() <= 2


@pytest.mark.parametrize("name", [b"run\xff.json", b"\xe9.json"])
def test_a_name_that_is_no_utf_8_is_kept_as_escapes(name: bytes, tmp_path: Path) -> None:
    """A record is UTF-8; the file is read all the same."""
    file = tmp_path / os.fsdecode(name)
    file.write_bytes((DATA / "imports" / "vllm-plain-1.json").read_bytes())
    read_or_refuse(file)
    assert imported_of([Placed(case_id="c", process=0, file=read_file(file))], {}).files[0].name.encode().isascii()


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "is empty"),
        (b"\n \n", "is empty"),
        (b"{", ":1: is no JSON"),
        (b"[1]\n{", ":1: is no result file"),
        (b"[" * 100_000, "is no JSON"),
        (b"[]", "no result file that is known"),
        (b"\xff\xfe", "is no JSON"),
        (b'{"benchmarks": 1}', "no result file that is known"),
        (b"\n".join(json.dumps(vllm_result(seed=seed)).encode() for seed in (1, 2)), ":1: the file holds 2 runs"),
        (MADE["guidellm-plain.json"].strip() + b"\n{}", ":1: the file holds 2 runs"),
        (MADE["aiperf-plain.jsonl"] + b"\n{", ":10: is no JSON"),
    ],
    ids=range(11),
)
def test_what_is_no_result_file_is_refused(content: bytes, said: str, tmp_path: Path) -> None:
    """The message lists the known formats; a file is one process, whose lines are parsed one by one."""
    file = tmp_path / "a.json"
    file.write_bytes(content)
    with pytest.raises(BenchmarkFileError, match=r"a\.json") as refused:
        read_file(file)
    assert said in str(refused.value)


def test_what_is_no_file_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Absent, a folder, a pipe (which nobody writes to), or larger than is read."""
    os.mkfifo(tmp_path / "pipe")
    said = {tmp_path / "none.json": "No such file", tmp_path: "no regular file", tmp_path / "pipe": "no regular file"}
    for path, words in said.items():
        with pytest.raises(BenchmarkFileError, match=words):
            read_file(path)
    monkeypatch.setattr(document, "MOST_BYTES", 1000)
    with pytest.raises(BenchmarkFileError, match="it has more than 1,000 bytes; split it"):
        read_file(written(tmp_path, "large.json", vllm_result()))


def test_a_link_to_a_file_is_followed(tmp_path: Path) -> None:
    """It is the user's own file, not one of a run."""
    target = written(tmp_path, "a.json", vllm_result())
    (tmp_path / "link.json").symlink_to(target)
    assert read_file(tmp_path / "link.json").sha256 == read_file(target).sha256


SIGNS = st.sampled_from(
    (
        "[]",
        "{}",
        "1",
        "300",
        "-1.5e300",
        '""',
        '"x"',
        '"\u00e9"',
        '"\U0001f600%d"',
        '{"%d":300}',
        "[[[[]]]]",
        '{"\u00e9%d":"\u00fc"}',
        '{"a":{"a":{"a":{}}}}',
        '{"a":1,"b":2,"c":3,"d":4,"e":5,"f":6}',
        "[1,2,3]",
        "1%040d",
        "null",
    )
)


@settings(max_examples=30, deadline=None)
@given(st.lists(SIGNS, min_size=1, max_size=3))
def test_what_values_need_is_not_taken_for_less(shapes: list[str]) -> None:
    """The memory that Python says it took for a parsed text is no more than what was counted before."""
    items = [shape % place if "%" in shape else shape for place in range(20_000) for shape in shapes]
    text = f"[{','.join(items)}]".encode()
    tracemalloc.start()
    try:
        kept = from_json(text, cache_strings=False)
        took = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert kept
    assert took <= 1.15 * document.needed_bytes(text) + 4 * len(text)


@pytest.mark.parametrize("shape", ["[],", "{},", "1,", '"",', '{"a":[]},', "[[[[[[]]]]]],"])
def test_more_values_than_fit_are_refused_before_they_are_parsed(
    shape: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under a key that nobody reads, or as the lines of a file; the refusal says how much is allowed and what to do."""
    monkeypatch.setattr(document, "from_json", lambda text: pytest.fail(f"parsed {len(text)} bytes"))
    monkeypatch.setattr(document, "MOST_PARSED", 1_000_000)
    good = json.dumps(vllm_result()).encode()[:-1]
    file = tmp_path / "a.json"
    file.write_bytes(good + b', "unread": [' + shape.encode() * 100_000 + b"1]}")
    with pytest.raises(BenchmarkFileError, match=r"a\.json:1: its values would need \d+ MiB of 0; give a file of"):
        read_file(file)


def test_only_one_line_is_parsed_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file of AIPerf may hold more than fits at once; so do empty lines, up to a bound."""
    line = (DATA / "imports" / "aiperf-plain.jsonl").read_bytes().splitlines()[0]
    file = tmp_path / "a.jsonl"
    file.write_bytes(b"\n".join([line] * 50) + b"\n" * 900)
    monkeypatch.setattr(document, "MOST_PARSED", 3 * document.needed_bytes(line))
    assert read_file(file).sent == 50
    monkeypatch.setattr(document, "MOST_LINES", 900)
    with pytest.raises(BenchmarkFileError, match=r"a\.jsonl: has more than 900 lines; give a file of fewer requests"):
        read_file(file)
