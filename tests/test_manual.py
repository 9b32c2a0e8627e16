"""The manual and the README: every command block is read by the program, and run where that takes seconds."""

from __future__ import annotations

import importlib
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import harness
from harness.cli import COMMANDS
from tests.helpers import ROOT
from tests.helpers.command import Cli
from tests.helpers.command_lines import (
    DOCS,
    JUDGES,
    PAGES,
    SCRIPTS,
    blocks,
    commands,
    files_of,
    is_shell,
    lines_of,
    refusal,
    run_lines,
    sbd_lines,
)
from tests.helpers.synthetic_run import build
from tests.helpers.two_runs import stored

MOST_WORDS_OF_README = 750
FOLLOWED = {"docs/your_model.md", "docs/tutorial/my_model.md"}
"""tests/integration/test_your_model.py follows these with a real model, command by command."""
NOT_RUN = {
    "run": "measures; tests/runner and tests/integration run scenarios like it, `make bench` this one",
    "model get": "fetches 93 MB; tests/models and tests/engine convert a wheel of their own",
    "calibrate": "takes a minute of an idle machine; tests/cli/test_calibrate.py has a pretended one",
    "noise": "takes hours; tests/cli/test_gate.py has pretended gates",
    "gate --base-cmd": "measures two revisions; tests/integration/test_gate_real.py does",
    "train --recipe qwen3_0_6b": "needs a dataset of the hub; tests/training/test_recipe.py holds the page against the plan",
    "eval": "needs lm_eval; tests/integration/test_lm_eval_model.py",
    "publish RUN reports/name --sign": "needs somebody's key; tests/record/test_seal.py makes one",
    "verify reports/name --require-signature": "needs somebody's key; tests/record/test_seal.py makes one",
    "import --ntp a.json": "docs/imports.md has one that is run",
    "verify RUN --claim 3-5x at arm='server fast'": "needs two servers; tests/integration/test_vllm.py starts them",
    "verify served-run": "needs two servers; tests/integration/test_vllm.py starts them",
    "acceptance": "needs an arm that decodes without loss; tests/analysis/test_forced_acceptance.py has some",
    "plan scenario.yaml": "of a checkpoint that is not here; tests/cli/test_cli.py plans scenarios of sbd doctor",
    "doctor --model": "of a checkpoint that is not here; tests/cli/test_cli.py has some",
}
"""How commands begin that are read and not run, and why."""
OTHERS = {
    "pip": "installs",
    "hf": "downloads",
    "gh": "writes to GitHub; tests/test_ci_comment.py runs it against a fake",
    "git": "changes a checkout",
    "bash": "needs a GPU",
    "ray": "starts a cluster",
    "tar": "unpacks what another command has packed",
    "torchrun": "needs several processes; tests/integration/test_split.py starts them",
}
"""Programs of others."""


def not_run(words: tuple[str, ...]) -> str | None:
    """Why a command is not run, or None."""
    return next((why for begin, why in NOT_RUN.items() if f"{' '.join(words)} ".startswith(f"{begin} ")), None)


@pytest.mark.parametrize("name", [*PAGES, *SCRIPTS])
def test_every_sbd_line_is_one_that_the_program_knows(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its commands, options and values; a scenario that is named with its folder is shipped."""
    lines = sbd_lines(name)
    monkeypatch.chdir(tmp_path)
    for words in lines:
        told = words[: words.index(">")] if ">" in words else words
        assert refusal(told) is None, told
        assert all((ROOT / word).is_file() for word in told if word.startswith("scenarios/")), told
    assert lines or name in PAGES


@pytest.mark.parametrize("page", PAGES)
def test_every_other_line_is_a_command_that_there_is(page: str) -> None:
    """make knows its targets; other programs are listed with what they do."""
    for line in lines_of(page):
        program = re.sub(r"^(\w+=\S+ )+", "", line).split()[0]
        if program == "make":
            done = subprocess.run(["make", "-n", *line.split()[1:]], cwd=ROOT, capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stderr
        elif program != "sbd":
            assert program in OTHERS, line
    for block in blocks(PAGES[page].read_text(encoding="utf-8")):
        if block.language == "sh":
            subprocess.run(["bash", "-n"], input=block.text, text=True, check=True)


def stand_ins(folder: Path) -> None:
    """What the manual calls RUN, BASE, NEW and so on, as records of no machine; the published run; a folder of a model."""
    run = build()
    for name in ("RUN", "BASE", "NEW", "base-run", "new-run", "reports/quickstart-1a2b3c4d-1"):
        header = run.header.model_copy(update={"run_id": f"{name.rpartition('/')[2].lower()}-1"})
        stored(run.model_copy(update={"header": header}), folder / name)
    shutil.copytree(ROOT / "reports" / "quickstart", folder / "reports" / "quickstart")
    for number in (1, 2, 3):
        for name, tool in (("plain", "vllm-plain"), ("fast", "vllm-ngram")):
            shutil.copy(ROOT / "tests" / "data" / "imports" / f"{tool}-{number}.json", folder / f"{name}{number}.json")
    (folder / "prompts.jsonl").write_text('{"prompt": "Name a bird"}\n' * 4)
    (folder / "my-model").mkdir()
    shutil.copy(ROOT / "harness" / "engine" / "reference" / "sbd" / "config.json", folder / "my-model")


@pytest.mark.parametrize("page", [page for page in PAGES if page not in FOLLOWED and sbd_lines(page)])
def test_the_commands_of_a_page_run(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In their order and beside the page's own files."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SBD_HISTORY", str(tmp_path / "history.sqlite"))
    stand_ins(tmp_path)
    for name, text in files_of(page).items():
        Path(name).write_text(text, encoding="utf-8")
    run_lines([words for words in sbd_lines(page) if not_run(words) is None], monkeypatch, capsys, JUDGES)


def test_the_python_of_the_tutorial_runs(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """On the published run: the frames have the columns that are named."""
    [block] = [one for one in blocks(PAGES["docs/tutorial/first_verdict.md"].read_text()) if one.language == "python"]
    monkeypatch.chdir(ROOT)
    exec(compile(block.text, "first_verdict.md", "exec"), {})
    assert "wall_speedup" in capsys.readouterr().out


def test_reasons_are_given_for_what_there_is() -> None:
    """No entry of the tables is left behind by a page that changed, and the test files that are named exist."""
    every = [words for page in PAGES for words in sbd_lines(page)]
    assert [begin for begin in NOT_RUN if not any(not_run(words) == NOT_RUN[begin] for words in every)] == []
    named = re.findall(r"tests/[\w/]+(?:\.py)?", " ".join([*NOT_RUN.values(), *OTHERS.values()]))
    assert [name for name in named if not (ROOT / name).exists()] == []


def test_a_block_that_cannot_be_read_is_found() -> None:
    """The readers see indented and fenced commands, not YAML or text; an unknown option is refused."""
    told = "Do\n\n    sbd plan a.yaml  # now\n\n```\nsbd run b --nothing\n```\n"
    text = told + "\n```text\nsbd no\n```\n\n    parts:\n      - name: sbd\n"
    shell = [line for block in blocks(text) if is_shell(block) for line in commands(block.text)]
    assert shell == [("plan", "a.yaml"), ("run", "b", "--nothing")]
    for words in (("fly",), ("run",), ("run", "a.yaml", "--no-repport"), ("run", "a.yaml", "b.yaml"), ("report", "a", "--out")):
        assert refusal(words), words


def test_the_readme_is_short() -> None:
    """A reader decides in three minutes whether to go on."""
    assert len((ROOT / "README.md").read_text(encoding="utf-8").split()) <= MOST_WORDS_OF_README


def test_messages_that_troubleshooting_explains_are_messages_of_the_program() -> None:
    """Each is found in the source as it stands on the page."""
    files = (file.read_text(encoding="utf-8") for file in (ROOT / "harness").rglob("*.py"))
    source = " ".join(re.sub(r'"\s*\n\s*f?"', "", text) for text in files)
    told = re.findall(r"^\| `([^`]+)` \|", (DOCS / "troubleshooting.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert len(told) > 12 and [message for message in told if message not in source] == []


def test_links_of_the_readme_and_the_pages_lead_somewhere() -> None:
    """Files beside a page; the pages that a build adds are those of docs/hooks/manual.py."""
    made = set(re.findall(r'^    "([\w/]+\.md)":', (DOCS / "hooks" / "manual.py").read_text(encoding="utf-8"), re.MULTILINE))
    for page, path in PAGES.items():
        for link in re.findall(r"\]\((?!https?:|#)([^)#]+)", path.read_text(encoding="utf-8")):
            target = (path.parent / link).resolve()
            is_made = target.is_relative_to(DOCS) and target.relative_to(DOCS).as_posix() in made
            assert target.exists() or is_made, (page, link)


def test_the_python_interface_is_described() -> None:
    """What harness exports, and every public attribute of it, has a text of its own."""
    assert set(harness.__all__) == {"RunFrames", "__version__", "load_run"}
    for name in ("RunFrames", "load_run"):
        whole = getattr(harness, name)
        parts = [one for key, one in vars(whole).items() if not key.startswith("_")] if isinstance(whole, type) else []
        assert [one for one in (whole, *parts) if not (one.__doc__ or "").strip()] == []
    assert re.search(r'^__version__ = .*\n"""', (ROOT / "harness" / "__init__.py").read_text(encoding="utf-8"), re.MULTILINE)


@pytest.fixture
def hooks(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The modules of docs/hooks under their own names, as mkdocs imports them."""
    monkeypatch.syspath_prepend(str(DOCS / "hooks"))
    yield
    for name in ("objects", "commands"):
        sys.modules.pop(name, None)


@pytest.mark.usefixtures("hooks")
def test_the_reference_has_every_key_with_its_text() -> None:
    """As many rows as the schema has properties, each with the type's section as a link that leads somewhere."""
    from harness.scenario.scenario import Scenario

    schema = Scenario.model_json_schema()
    sections = list(importlib.import_module("objects").tables(schema))
    rows = [row for section in sections for row in section.splitlines() if row.startswith("| `")]
    properties = [one for part in (schema, *schema["$defs"].values()) for one in part.get("properties", {}).values()]
    assert len(rows) == len(properties) > 190
    assert [one["description"] for one in properties if " ".join(one["description"].split()) not in " ".join(rows)] == []
    anchors = {section.partition("\n")[0].removeprefix("## ").lower() for section in sections}
    assert set(re.findall(r"\(#(\w+)\)", " ".join(rows))) <= anchors
    assert [row for row in rows if row.replace("\\|", "").count("|") != 5] == []


@pytest.mark.usefixtures("hooks")
def test_the_command_line_page_has_every_option(cli: Cli) -> None:
    """Every listed command, and every option that its own help shows."""
    page = "\n".join(importlib.import_module("commands").pages())
    for name, (_, line) in COMMANDS.items():
        assert (f"## sbd {name}\n" in page) == (line is not None)
    for words in (["run"], ["gate"], ["report"], ["capacity"], ["model", "get"], ["history", "trend"]):
        assert cli(*words, "--help") == 0
        section = page.partition(f"## sbd {' '.join(words)}\n")[2].partition("\n## ")[0]
        shown = set(re.findall(r"^  (--[\w-]+)", cli.out, re.MULTILINE)) - {"--help"}
        assert shown and [option for option in shown if f"`{option}" not in section] == []


def test_every_page_is_in_the_navigation() -> None:
    """Of what is written by hand; mkdocs itself checks the pages that are made."""
    listed = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    assert [page for page in PAGES if page != "README.md" and f": {page.removeprefix('docs/')}\n" not in listed] == []
