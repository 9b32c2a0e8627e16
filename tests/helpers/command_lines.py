"""The commands that the manual, the CI files and the files for clusters show; what the program says to one, and one way to run
them.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import typer
import yaml

from harness.cli import app
from harness.errors import EXIT_USER_ERROR
from tests.helpers import ROOT
from tests.helpers.command import sbd

DOCS = ROOT / "docs"
PAGES = {page.relative_to(ROOT).as_posix(): page for page in (ROOT / "README.md", *sorted(DOCS.rglob("*.md")))}
SCRIPTS = {
    file.relative_to(ROOT).as_posix(): file
    for file in (
        *(DOCS / "ci" / name for name in ("github-actions.yml", "gitlab-ci.yml")),
        *(DOCS / "clusters" / name for name in ("rayjob.yaml", "slurm.sbatch")),
    )
}
VARIABLES = {
    "GITHUB_STEP_SUMMARY": "summary.md",
    "GITHUB_SHA": "0123456789abcdef0123456789abcdef01234567",
    "GITHUB_REF_NAME": "main",
    "CI_COMMIT_SHA": "0123456789abcdef0123456789abcdef01234567",
    "CI_COMMIT_BRANCH": "main",
    "PUBLISHED": "published",
    "GITHUB_RUN_ID": "42",
    "CI_PIPELINE_ID": "42",
}
STEPS = ("script", "before_script", "after_script")
JUDGES = {"verify": {0, 1, 3, 4}, "gate": {0, 1, 3, 4}, "compare": {0, 1, 3, 4}}
"""Commands whose exit code is an answer."""


class Block(NamedTuple):
    """A block of code of a page; an indented one has no language."""

    language: str
    text: str


def blocks(text: str) -> list[Block]:
    """Fenced and indented blocks, in order; what is indented below an item of a list is its text."""
    found: list[Block] = []
    parts = re.split(r"^```(\w*)\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)
    for plain, language, code in zip(parts[::3], [*parts[1::3], ""], [*parts[2::3], ""], strict=True):
        indented = re.findall(r"(?<=\n\n)(?:    .*\n)+", plain)
        found += [Block("", re.sub("^    ", "", one, flags=re.MULTILINE)) for one in indented]
        found += [Block(language, code)] if code else []
    return found


def is_shell(block: Block) -> bool:
    """Whether it is of commands; YAML that is indented begins with a key alone."""
    return not block.language and not re.match(r"\w+:\n", block.text)


def files_of(page: str) -> dict[str, str]:
    """The files that a page shows, by the name in their first line."""
    shown = (block.text for block in blocks(PAGES[page].read_text(encoding="utf-8")))
    return {name[1]: text for text in shown if (name := re.match(r"# (\S+\.yaml)\n", text))}


def lines_of(page: str) -> Iterator[str]:
    """The command lines of a page without comments and prompts."""
    for block in blocks(PAGES[page].read_text(encoding="utf-8")):
        for line in block.text.replace("\\\n", " ").splitlines() if is_shell(block) else ():
            command = re.sub(r"^\w+\$\s+", "", re.sub(r"(^|\s)#.*", "", line)).strip()
            if command:
                yield command


def gates(data: dict[str, Any]) -> list[dict[str, Any]]:
    """The inputs of every use of the action or the component."""
    steps = [step for job in data.get("jobs", {}).values() for step in job["steps"] if step.get("uses") == "./docs/ci"]
    return [*(step["with"] for step in steps), *(one["inputs"] for one in data.get("include", ()))]


def scripts(file: Path) -> Iterator[str]:
    """The shell scripts of a GitHub or a GitLab file with the commands that it gives the gate; what a RayJob or a batch job
    runs.
    """
    text = file.read_text(encoding="utf-8")
    if file.suffix == ".sbatch":
        yield "\n".join(re.findall(r"^\s*(sbd .*)$", text, re.MULTILINE))
        return
    data = yaml.safe_load(text)
    if "spec" in data:
        yield data["spec"]["entrypoint"]
    for body in (data.get("jobs") or data).values():
        if isinstance(body, dict):
            yield from (step["run"] for step in body.get("steps", ()) if "run" in step)
            yield from ("\n".join(body[name]) for name in STEPS if name in body)
    for inputs in gates(data):
        yield f"{inputs['base-cmd']}\n{inputs['new-cmd']}"


def sbd_lines(name: str) -> list[tuple[str, ...]]:
    """The words of every sbd command of a page or a file, in order; the shell variables of a CI job are put in."""
    if name in PAGES:
        return [words for line in lines_of(name) for words in commands(line)]
    found = [words for script in scripts(SCRIPTS[name]) for words in commands(script)]
    return [tuple(re.sub(r"\$(\w+)", lambda one: VARIABLES.get(one[1], one[0]), word) for word in words) for words in found]


def run_lines(
    lines: list[tuple[str, ...]],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    codes: Mapping[str, set[int]],
) -> None:
    """In their order; each ends with 0, or with one of the ``codes`` of its command."""
    for words in lines:
        code = sbd(monkeypatch, *words)
        assert code in codes.get(words[0], {0}), (words, code, *capsys.readouterr())
        capsys.readouterr()


def commands(script: str) -> Iterator[tuple[str, ...]]:
    """The words of every sbd command in a shell script, those inside a quoted command (--base-cmd) included."""
    for whole in script.replace("\\\n", " ").splitlines():
        lexer = shlex.shlex(whole, posix=True, punctuation_chars=True)
        lexer.whitespace_split = True
        words, command = [*lexer, ";"], list[str]()
        for word in words:
            if re.fullmatch("[;&|()]+", word):
                if command and Path(command[0]).name == "sbd":
                    yield tuple(command[1:])
                command = []
            else:
                command.append(word)
        for option, value in pairwise(words):
            if option in ("--base-cmd", "--new-cmd"):
                yield from commands(value)


def refusal(words: tuple[str, ...]) -> str | None:
    """What the program says to a line that it cannot read, or None. What commands do is taken out of them: nothing is run."""
    root = typer.main.get_command(app)
    _hollow(root)
    try:
        root.main(list(words), prog_name="sbd", standalone_mode=False)
    except Exception as error:
        if getattr(error, "exit_code", None) != EXIT_USER_ERROR:
            raise
        return str(error)
    return None


def _hollow(command: Any) -> None:
    for name in getattr(command, "commands", ()):
        _hollow(command.get_command(None, name))
    if not hasattr(command, "commands"):
        command.callback = lambda **_: None
