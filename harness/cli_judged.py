"""How a command that judges ends: a table for people, files for programs, and the exit code."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Literal, NoReturn

import typer

if TYPE_CHECKING:
    from harness.judgement import Judgements

Inconclusive = Literal["report", "pass", "fail"]


def finish(judgements: Judgements, as_json: bool, inconclusive: Inconclusive) -> NoReturn:
    """Print the answers and end with the exit code that they ask for."""
    from harness.judgement import to_json

    if as_json:
        print(json.dumps(to_json(judgements), indent=1, ensure_ascii=False))
    else:
        print(table(judgements))
    raise typer.Exit(judgements.exit_code(inconclusive))


def table(judgements: Judgements) -> str:
    """One line per answer, gravest first."""
    from harness.judgement import GRAVEST_FIRST

    ordered = sorted(judgements.judgements, key=lambda one: GRAVEST_FIRST.index(one.state))
    return "\n".join(f"{one.word}: {one.metric} of {one.subject} {one.bound}: {one.reason}" for one in ordered)
