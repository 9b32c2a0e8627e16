"""Every command of the program with its arguments and options, from the command line itself."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import typer
from objects import table

from harness.cli import COMMANDS, app

PRINTED_BY_TYPER = re.compile(r"(?<!`)<([^<>]+)>")


def pages() -> Iterator[str]:
    """A section per listed command, and per command of a group."""
    root = typer.main.get_command(app)
    for name, (_, line) in COMMANDS.items():
        if line:
            yield from _section(root.get_command(None, name), f"sbd {name}")


def _section(command: Any, name: str) -> Iterator[str]:
    context = command.make_context(name, [], resilient_parsing=True)
    usage = " ".join(command.get_usage(context).removeprefix("Usage: ").split())
    yield f"## {name}\n\n{_as_text(command.help or '')}\n\n```text\n{usage}\n```\n"
    rows = [one.get_help_record(context) for one in command.params]
    if rows := [one for one in rows if one is not None]:
        yield table(("argument or option", "what it does"), ((f"`{what}`", _as_text(does)) for what, does in rows))
    for inner in getattr(command, "commands", ()):
        yield from _section(command.get_command(context, inner), f"{name} {inner}")


def _as_text(help_text: str) -> str:
    """A help text as Markdown: angle brackets would be HTML; a paragraph after \\b is set as it stands."""
    parts = [part.strip("\n") for part in help_text.strip().split("\n\n")]
    return "\n\n".join(
        f"```text\n{part[1:].strip()}\n```" if part.startswith("\b") else PRINTED_BY_TYPER.sub(r"&lt;\1&gt;", part)
        for part in parts
    )
