"""YAML is read as its writer means it, or refused with file and line; in little time and memory, whatever stands there."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from harness import config_file
from harness.config_file import MOST_BYTES, parse_yaml, read_yaml
from harness.errors import ScenarioError, UserError
from harness.hardware.profile import load_profile
from harness.integrations.single_arm import read_arm
from tests.helpers import ROOT

FILE = Path("some.yaml")


@pytest.mark.parametrize(
    ("written", "words"),
    [
        ("010", "write 8 or 10"),
        ("0o10", 'write "0o10" or 8'),
        ("1:30", 'write 90 or "1:30"'),
        ("1:30.5", "write 90.5 or"),
        ("1_000", 'write 1000 or "1_000"'),
        ("0b1", "write 1 or"),
        ("0x1_F", "write 31 or"),
        ("-0x1F", "write -31 or"),
        ("09", 'write "09" or 9'),
        ("yes", 'write true or "yes"'),
        ("Off", 'write false or "Off"'),
        ("2026-11-20", '"2026-11-20"'),
        ("=", 'write "="'),
        ("9" * 5000, "5,000 characters"),
        ("1" + ":59" * 5000, "characters"),
        ("0x" + "f" * 5000, "characters"),
        ("!!int '010'", "tag"),
        ("!!set {x}", "tag"),
        ("!!binary YWJj", "tag"),
        ("!own 1", "tag"),
        ("{1: 2}", "no text"),
        ("{~: 2}", "no text"),
        ("{[x]: 2}", "no text"),
    ],
)
def test_what_is_read_in_two_ways_is_refused_with_its_line(written: str, words: str) -> None:
    """What YAML 1.1, which PyYAML reads, gives another value than 1.2 does; and what has a tag."""
    with pytest.raises(ScenarioError, match=r"^some\.yaml:2: ") as refusal:
        parse_yaml(f"first: 1\nhere: {written}\n", FILE)
    assert words in str(refusal.value)


def test_every_spelling_that_both_read_alike_is_kept() -> None:
    """Among them what is in quotes, and numbers with an exponent, which PyYAML alone would take for text."""
    text = (
        "[0, 00, -0, +1, 12, 0x1F, 1.5, .5, 5., 1.0e-3, 1e3, -.5, true, False, TRUE, null, ~, n, y, '010', \"1:30\", 'yes', 1a]"
    )
    values: list[Any] = [0, 0, 0, 1, 12, 31, 1.5, 0.5, 5.0, 1e-3, 1e3, -0.5, True, False, True, None, None]
    found = parse_yaml(text, FILE).data
    assert found == [*values, "n", "y", "010", "1:30", "yes", "1a"]
    assert [type(one) for one in found[:17]] == [type(one) for one in values]
    assert parse_yaml("a: &a {b: 1}\nc: {<<: *a, d: 2}", FILE).data["c"] == {"b": 1, "d": 2}


def test_what_is_written_by_a_proposed_spelling_is_read() -> None:
    """A message never proposes what is refused in turn."""
    for value in (1e-20, -1e22, 1e16, 1.5e-7, 0.1, 1000, -3, True, "1e3", "yes", "ä"):
        found = parse_yaml(f"a: {config_file._spelt(value)}", FILE).data["a"]
        assert (type(found), found) == (type(value), value)


def test_every_file_that_travels_with_the_program_is_read() -> None:
    """Scenarios, recipes, claims, profiles, systems, anchors: with the values that PyYAML gives, but for its text 1e3."""
    files = [file for folder in ("harness", "scenarios", "hardware_profiles") for file in (ROOT / folder).rglob("*.yaml")]
    assert len(files) > 40
    for file in files:
        assert json.dumps(_as_numbers(read_yaml(file).data)) == json.dumps(_as_numbers(yaml.safe_load(file.read_text("utf-8"))))


@pytest.mark.parametrize(
    "text",
    [
        "[" * 50_000,
        "- " * 50_000,
        "{a: " * 50_000,
        "? " * 3000,
        f"[{'1,' * 110_000}]",
        f"# {'x' * MOST_BYTES}\na: 1",
        "a: &a {<<: *a}",
        "a0: &a0 {k: 1}\n" + "".join(f"a{n}: &a{n} {{<<: [{f'*a{n - 1}, ' * 9}]}}\n" for n in range(1, 30)),
    ],
)
def test_a_bomb_is_refused(text: str, tmp_path: Path) -> None:
    """Deep, wide, long, or of aliases, also by merge keys."""
    (tmp_path / "bomb.yaml").write_text(text)
    with pytest.raises(ScenarioError, match=r"bomb\.yaml:1: "):
        read_yaml(tmp_path / "bomb.yaml")


def test_a_file_without_an_end_is_not_read_to_its_end(tmp_path: Path) -> None:
    """A device, a pipe that nobody writes to, and a sparse file of 1 TB."""
    with pytest.raises(ScenarioError, match=r"no regular file"):
        read_yaml(Path("/dev/zero"))
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ScenarioError, match=r"no regular file"):
        read_yaml(tmp_path / "pipe")
    with (tmp_path / "long").open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(ScenarioError, match=r"more than 4,194,304 bytes"):
        read_yaml(tmp_path / "long")


def test_no_figure_is_infinite(tmp_path: Path) -> None:
    """Every number of every file: .inf is a number to YAML, and none to us."""
    text = (ROOT / "hardware_profiles" / "h100-sxm.yaml").read_text(encoding="utf-8")
    for figure in (".inf", ".nan", "-.inf", "1e999"):
        (tmp_path / "own.yaml").write_text(re.sub(r"value: [0-9.e+]+", f"value: {figure}", text, count=1))
        with pytest.raises(UserError, match=r"own\.yaml:\d+: .*finite"):
            load_profile(str(tmp_path / "own.yaml"))


@pytest.mark.parametrize("given", ["{method: sbd, gamma: 010}", "{method: ntp, method: sbd}", "!!set {x}", "", "[" * 5000])
def test_an_arm_in_one_line_is_read_as_strictly(given: str) -> None:
    """Programs that decode with the harness name an arm in one line of YAML."""
    with pytest.raises(UserError, match=r"^arm:1: "):
        read_arm(given)


def _as_numbers(data: Any) -> Any:
    """The same with text such as 312e+12 as a number."""
    if isinstance(data, dict):
        return {key: _as_numbers(value) for key, value in data.items()}
    if isinstance(data, list):
        return [_as_numbers(one) for one in data]
    return float(data) if isinstance(data, str) and re.fullmatch(r"[0-9.]+e[-+]?[0-9]+", data) else data
