"""A sample of the catalogue of hostile files, records, galleries, histories, models and commands, each through a command.

`python -m benchmarks.hostile --only KIND` runs all of a kind. A case here is a fork of this process and begins
with its memory, so memory is judged there alone.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from random import Random

import pytest

from benchmarks.hostile.__main__ import load
from benchmarks.hostile.cases import judged
from benchmarks.hostile.world import World

SAMPLE = {
    "imports": (
        "vllm: all times are zero",
        "aiperf: all texts are '\\ud800'",
        "guidellm: a text: the same key twice",
        "sglang: gaps: a million empty lists",
        "vllm: an unknown key: 100,000 open lists",
        "guidellm: a million lines of nulls behind",
        "a pipe",
        "a link to /dev/zero",
        "a file named '\\udce9",
        "aiperf: tree changed",
        "sglang: bytes changed",
    ),
    "histories": (
        "the version is '-1'",
        "the version is 'x'",
        "two versions",
        "no table of versions",
        "records.measured_at",
        "figures.value",
        "software is '{'",
        "a row has the id 1099511627776",
        "cut at 0.5",
        "2 pages from 4",
        "in its place: a pipe",
        "-journal beside it: a pipe",
        "records is a view",
        "records lacks path",
        "a trigger that refuses",
        "another program's",
        "values changed",
        "bytes changed",
    ),
    "galleries": (
        "run.json: a pipe",
        "samples.jsonl: a link to a file of the user's",
        "in its place: a pipe",
        "a link to a folder outside",
        "no header",
        "a sound run named '<hstl7>'",
        "a sound run named 'hstl7\\udcff'",
        "a damaged run named '--help'",
        "samples.jsonl: lines changed",
    ),
    "seals": (
        "decode_s halved, published in place",
        "report.html: another page, signed",
        "report.html: a text more, added",
        "PATH is '': verify",
        "PATH is 'bin': gate",
        "samples.jsonl: 3 MiB of empty objects",
        "events.jsonl: 65536 MiB of zeros",
        "seal.json.sig: a pipe",
        "seal.json.sig: 1 GB of zeros",
    ),
    "gates": (
        "NEW's command: sound",
        "NEW's command: a process forked twice, and it ends well",
        "NEW's command: a process in a session, and the gate gets SIGKILL",
        "NEW's command: hands back BASE's record",
        "NEW's command: hands back BASE's with another id",
        "NEW's command: leaves a changed sample",
        "NEW's command: prints control characters and fails",
        "NEW's command: leaves a header that is a pipe",
    ),
    "folders": (
        "config.json: a pipe",
        "config.json: hstl7 is a million empty lists",
        "config.json: model_type is '\\ud800'",
        "config.json: vocab_size is 9223372036854775808",
        "m.gguf: cut at byte 24",
        "m.gguf: 18446744073709551615 settings",
        "m.gguf: zeros",
        "m.gguf: a list beyond the file",
        "m.gguf: 0xff behind the name",
    ),
}
"""The first case of each beginning."""


def first(kind: str, beginning: str) -> int:
    """The number of the first case whose description begins so."""
    module = import_module(f"benchmarks.hostile.{kind}")
    told = (module.case(World(Path()), number, Random(f"1/{kind}/{number}")).what for number in range(module.COUNT))
    return next(number for number, what in enumerate(told) if _shown(what).startswith(beginning))


def _shown(text: str) -> str:
    return text.encode("ascii", "backslashreplace").decode()


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    """The sound files."""
    load()
    made = World(tmp_path_factory.mktemp("hostile") / "world")
    made.build()
    return made


@pytest.mark.parametrize(("kind", "what"), [(kind, what) for kind, found in SAMPLE.items() for what in found])
def test_a_case_is_handled(kind: str, what: str, world: World, tmp_path: Path) -> None:
    """It ends in time, with a fitting code and in words; nothing is lost, nothing runs, nothing is judged otherwise."""
    number = first(kind, what)
    case = import_module(f"benchmarks.hostile.{kind}").case(world, number, Random(f"1/{kind}/{number}"))
    with judged(case, tmp_path / "case") as place:
        assert [found for found in place.findings if found[0] != "memory"] == []


def test_every_case_of_a_kind_has_its_own_description() -> None:
    """What is listed is told apart, so that a finding can be read; what is drawn at random is told by its number."""
    for kind in SAMPLE:
        module = import_module(f"benchmarks.hostile.{kind}")
        told = [module.case(World(Path()), number, Random(number)).what for number in range(module.COUNT)]
        listed = [what for what in told if " changed" not in what]
        assert len(set(listed)) == len(listed)
