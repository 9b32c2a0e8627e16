"""A small share of the catalogue of hostile input, the same each time; and that its watch sees what it is there for."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random

import pytest

from benchmarks.hostile import __main__ as hostile
from benchmarks.hostile import cases as cases_module
from benchmarks.hostile import memory
from benchmarks.hostile.cases import COUNTERS, Case, Place, judged, watch
from benchmarks.hostile.world import CONFIRMED, REFUTED, World

SHARES = {"scenarios": 13, "claims": 4, "profiles": 6, "records": 2, "configs": 12, "links": 2, "environments": 2}
SERVERS = {"servers": 8}


@pytest.mark.long
@pytest.mark.parametrize("shares", [SHARES, SERVERS], ids=["files", "servers"])
def test_a_few_cases_of_every_light_kind(shares: dict[str, int], tmp_path: Path) -> None:
    """Nothing is lost, nothing runs, nothing is judged otherwise."""
    counts = hostile.kinds()
    World(tmp_path / "world").build()
    one = partial(hostile.conduct, tmp_path, 1, False)
    walked = [
        hostile.walk(one, [(kind, number * counts[kind] // some) for number in range(some)], workers=1)
        for kind, some in shares.items()
    ]
    assert [line for kind in walked for line in kind["lines"]] == []
    figures = hostile.gathered(walked)
    assert figures["cases"] == sum(shares.values()) and not any(figures[counter] for counter in COUNTERS)


def _hangs(folder: Path, times: int, case: tuple[str, int]) -> hostile.Result:
    """So many times, in whichever process."""
    earlier = len(list(folder.iterdir()))
    (folder / str(earlier)).touch()
    return "a case", [("hangs", "sbd plan")] if earlier < times else [], 0.1


@pytest.mark.parametrize(("times", "hangs"), [(0, 0), (1, 0), (2, 1)])
def test_what_hangs_beside_others_is_walked_again_and_counts_if_it_hangs_again(times: int, hangs: int, tmp_path: Path) -> None:
    """By a case that hangs so many times."""
    figures = hostile.gathered([hostile.walk(partial(_hangs, tmp_path, times), [("words", 0)], workers=1)])
    assert (figures["hangs"], figures["walked_again"], figures["cases"]) == (hangs, min(times, 1), 1)


def test_the_catalogue_is_large_enough_and_each_case_can_be_made_again(tmp_path: Path) -> None:
    """At least 2,000 cases, each with a description that follows from seed, kind and number."""
    counts = hostile.kinds()
    assert sum(counts.values()) >= 2000
    for kind, count in counts.items():
        made = hostile.kind_of(kind).case
        for number in (0, count // 2, count - 1):
            first, again = (made(World(tmp_path), number, Random(f"1/{kind}/{number}")).what for _ in range(2))
            assert first == again and first


def test_the_sound_record_has_a_verdict_of_each_kind(tmp_path: Path) -> None:
    """Else no damage could turn one."""
    world, place = World(tmp_path / "world"), Place(tmp_path / "case")
    world.build()
    assert [place.sbd("verify", world.good, "--claim", claim).code for claim in (CONFIRMED, REFUTED)] == [0, 1]
    assert place.findings == []


def _raises() -> None:
    raise ZeroDivisionError


def _connects() -> None:
    with socket.socket() as one:
        one.connect_ex(("127.0.0.1", 9))


@pytest.mark.parametrize(
    ("counter", "what"),
    [
        ("tracebacks", lambda place: _raises()),
        ("hangs", lambda place: time.sleep(9)),
        ("code_run", lambda place: _connects()),
        ("code_run", lambda place: place.canary.touch()),
        ("lost", lambda place: place.mine.write_text("x")),
        ("lost", lambda place: (place.root / "stray").touch()),
        ("untold", lambda place: None),
    ],
)
def test_the_watch_sees(counter: str, what: Callable[[Place], None], tmp_path: Path) -> None:
    """Each kind of failure, planted into the child of one command."""
    watch()
    place = Place(tmp_path)
    fitting = frozenset({3}) if counter == "untold" else frozenset({0})
    place.sbd("--version", setup=partial(what, place), limit_s=1.0 if counter == "hangs" else 30.0, exits=fitting)
    place.close()
    assert counter in {found for found, _ in place.findings}


def test_memory_is_read_of_a_child_and_of_its_own_child(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A reading that is off ends the benchmark; a command above the bound is a finding of its case."""
    assert 0 < memory.check_reading() < 4
    monkeypatch.setattr(memory, "PLANTED_MB", 100)
    monkeypatch.setattr(memory, "_touch", lambda: b"1" * 50_000_000)
    with pytest.raises(SystemExit, match="touched 100 MB, and"):
        memory.check_reading()
    monkeypatch.setattr(cases_module, "ALLOWED_GB", 1e-3)
    with judged(Case("any", lambda place: place.sbd("--version")), tmp_path) as place:
        assert [counter for counter, _ in place.findings] == ["memory"]
