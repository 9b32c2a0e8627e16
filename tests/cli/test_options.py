"""Options as one typed value: a command's own come first, what was typed is known, and what cannot be is refused in words."""

from __future__ import annotations

from inspect import signature

import pytest
import typer
from typer.testing import CliRunner

from harness.cli.options import ModelOptions, takes_options
from harness.errors import UserError

SEEN: list[RowOptions] = []


class RowOptions(ModelOptions):
    """Of a command that asks for rows beside the model's options."""

    rows: int
    """rows at once"""
    spare: int = 3
    """rows to spare"""


@takes_options
def ask(options: RowOptions) -> None:
    """Ask for rows."""
    SEEN.append(options)


APP = typer.Typer(pretty_exceptions_enable=False)
APP.command()(ask)


def asked(*words: str) -> RowOptions:
    """The options that a command line gives."""
    done = CliRunner().invoke(APP, list(words), catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return SEEN[-1]


def test_what_was_typed_is_known_apart_from_its_value() -> None:
    """A default that is typed counts as given; what is not typed has its default."""
    options = asked("--rows", "2", "--spare", "3", "--expert-parallel")
    assert (options.rows, options.spare, options.expert_parallel, options.dtype) == (2, 3, True, "bfloat16")
    assert options.given == ("rows", "spare", "expert_parallel")
    assert options.deployment(4).tensor_parallel == 4 and options.deployment().expert_parallel


def test_own_options_come_first_and_one_without_a_default_is_needed() -> None:
    """As `--help` lists them; the names of those given are no option."""
    names = list(signature(ask).parameters)
    assert names[:3] == ["ctx", "rows", "spare"] and "dtype" in names and "given" not in names
    assert "Missing option '--rows'" in CliRunner().invoke(APP, []).output
    assert "Ask for rows" in CliRunner().invoke(APP, ["--help"]).output


def test_values_are_parsed_where_they_are_declared() -> None:
    """A link and a rung arrive as such; another word is refused with what is allowed."""
    options = asked("--rows", "1", "--link", "25", "--rung", "datasheet", "--matrix-dtype", "fp8")
    assert options.link.rate(2) == 25e9
    assert (options.rung, options.matrix_dtype) == ("datasheet", "float8")
    with pytest.raises(UserError, match="allowed are datasheet, anchored, calibrated"):
        asked("--rows", "1", "--rung", "guess")
