"""What mkdocs adds to the manual as it builds it: the pages made from the program, and the texts that lie outside of docs/.

Nothing of it is committed, so none can be out of date. A page that would load something from the network ends the build.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from commands import pages as command_sections
from mkdocs.structure.files import File, Files
from objects import joined, table, tables

from harness import errors
from harness.scenario.claim_text import ClaimFile
from harness.scenario.metrics import METRICS
from harness.scenario.scenario import Scenario
from harness.training.recipe import TrainRecipe
from harness.workloads.prompts import Prompt

ROOT = Path(__file__).resolve().parents[2]
LOG = logging.getLogger("mkdocs.hooks.manual")
FROM_NETWORK = re.compile(r"<(?:script|link|img|iframe|source)\b[^>]*?(?:src|href)=[\"']?((?:https?:)?//[^\"' >]+)")


def index() -> str:
    """The README, whose links begin at the root."""
    return _rebased((ROOT / "README.md").read_text(encoding="utf-8"))


def scenario() -> str:
    """Every key of a scenario."""
    opening = """# Scenario files

Every key of a scenario file. `sbd schema > sbd.schema.json` writes the same for an editor: with the YAML language server a
first line `# yaml-language-server: $schema=sbd.schema.json` completes keys and shows these texts. Where a key of an arm takes a
list, each value is an arm of its own.
"""
    return "\n".join([opening, *tables(Scenario.model_json_schema())])


def claims_and_recipes() -> str:
    """Every key of the other files that a user writes, without what a scenario has too."""
    elsewhere = dict.fromkeys(Scenario.model_json_schema()["$defs"], "scenario.md")
    found = [one for model in (ClaimFile, TrainRecipe, Prompt) for one in tables(model.model_json_schema(), elsewhere)]
    opening = """# Claims, recipes, prompts

`sbd verify --claims` takes a ClaimFile, `sbd train --recipe` a TrainRecipe, and a `prompts_file` has a Prompt on every line.
"""
    return "\n".join([opening, *found])


def command_line() -> str:
    """Every command."""
    opening = """# Command line

`sbd --debug COMMAND` shows the traceback of an error. [Exit codes](../commands.md#exit-codes) has what a command ends with.
"""
    return "\n".join([opening, *command_sections()])


def metrics() -> str:
    """The one table of metrics."""
    rows = []
    for one in METRICS.values():
        used = ", ".join(use for use, by in (("claim", one.claimed), ("gate", one.gated), ("history", one.tracked)) if by)
        rows.append((f"`{one.name}`", one.words or one.what, one.unit, one.better.replace("_", " "), one.basis, used))
    heads = ("metric", "what it is", "unit", "better", "basis", "used by")
    return "# Metrics\n\nEvery figure that a claim, a gate or a history may name.\n\n" + table(heads, rows)


def error_codes() -> str:
    """Every error of the program with the code that its command ends with."""
    kinds = [one for one in vars(errors).values() if isinstance(one, type) and issubclass(one, errors.SbdError)]
    rows = [(f"`{one.__name__}`", one.exit_code, joined((one.__doc__ or "").partition("\n\n")[0])) for one in kinds]
    opening = """# Errors

A message says what was given, what is allowed and what to do. [Exit codes](../commands.md#exit-codes) has what a code means.
"""
    return "\n".join([opening, table(("error", "exit code", "when"), rows)])


def python() -> str:
    """The Python interface, read by mkdocstrings."""
    return "# Python\n\n::: harness\n"


PAGES: dict[str, Callable[[], str]] = {
    "index.md": index,
    "reference/scenario.md": scenario,
    "reference/claims_and_recipes.md": claims_and_recipes,
    "reference/command_line.md": command_line,
    "reference/metrics.md": metrics,
    "reference/errors.md": error_codes,
    "reference/python.md": python,
    "security.md": lambda: _rebased((ROOT / "SECURITY.md").read_text(encoding="utf-8")),
    "changelog.md": lambda: _rebased((ROOT / "CHANGELOG.md").read_text(encoding="utf-8")),
    "license.md": lambda: "# Licence\n\n```text\n" + (ROOT / "LICENSE").read_text(encoding="utf-8") + "\n```\n",
}


MOVED = {
    "](docs/": "](",
    "](SECURITY.md)": "](security.md)",
    "](CHANGELOG.md)": "](changelog.md)",
    "](LICENSE)": "](license.md)",
}


def _rebased(text: str) -> str:
    for link, moved in MOVED.items():
        text = text.replace(link, moved)
    return text


def on_files(files: Files, config: Any) -> Files:
    """Add the pages."""
    for name, made in PAGES.items():
        files.append(File.generated(config, name, content=made()))
    return files


def on_post_page(output: str, page: Any, config: Any) -> str:
    """Warn, which ends a strict build, where a page would load something from elsewhere."""
    for found in FROM_NETWORK.findall(output):
        LOG.warning("%s would load %s from the network", page.file.src_uri, found)
    return output
