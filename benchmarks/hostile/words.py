"""Planted texts in records, scenarios and profiles: no page, table, comment or export may obey them.

Every text holds MARK. A page is parsed as a browser does it: MARK is in no element's or attribute's name, in no comment, in no
address that runs code. A line for a terminal or a CI log holds no control character and is no command. A cell of CSV is no
formula.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable
from functools import partial
from html.parser import HTMLParser
from pathlib import Path
from random import Random
from typing import Any
from xml.etree import ElementTree

import yaml

from benchmarks.hostile.cases import Case, Ended, Place
from benchmarks.hostile.world import World, at, copied, written
from tests.helpers.fuzzed_commands import SCENARIO

MARK = "hstl7"
HTML = (
    "<hstl7 onload=hstl7()>",
    "</script><hstl7>",
    "</style><hstl7>",
    "</title><hstl7>",
    '"><hstl7 x="',
    "' onmouseover='hstl7()' x='",
    '" onmouseover="hstl7()" x="',
    "<img src=x onerror=hstl7()>",
    "javascript:hstl7()",
    "data:text/html,<hstl7>",
    "<!-- hstl7",
    "-->hstl7<hstl7>",
    "<svg/onload=hstl7()>",
    "&lt;hstl7&gt;<hstl7>",
    "{{ hstl7 }}{% raw %}",
    "]]><hstl7>",
    "<hstl7\n>",
    '"}];hstl7();//',
    "\\u003chstl7>",
    "</textarea></svg></template><hstl7>",
    "[hstl7](javascript:hstl7())",
    "![hstl7](http://127.0.0.1:9/x)",
    "`<hstl7>`",
    "|<hstl7>|",
    "<\x00hstl7>",
)
TERMINAL = (
    "\x1b[31mhstl7",
    "\x1b]0;hstl7\x07",
    "\x9b31mhstl7",
    "hstl7\rsbd: fine",
    "hstl7\x08\x08",
    "\u202ehstl7",
    "\u2066hstl7",
    "hstl7\nsbd: fine",
    "hstl7\x85sbd",
    "hstl7\u2028sbd",
    "\x00hstl7",
    "\x7fhstl7",
    "hstl7\x0bx",
    "\x1b]8;;http://x\x1b\\hstl7",
)
CI = (
    "::error::hstl7",
    "x\n::error::hstl7",
    "##[error]hstl7",
    "x\n##vso[task.setvariable]hstl7",
    "::set-output name=hstl7::x",
    "%0A::error::hstl7",
    "x\r::error::hstl7",
    "##teamcity[hstl7]",
    "section_start:1:hstl7\r\x1b[0K",
    "::add-mask::hstl7",
    "::stop-commands::hstl7",
)
FORMULAS = (
    "=hstl7()",
    "+hstl7()",
    "-hstl7()",
    "@hstl7()",
    "\t=hstl7()",
    "\r=hstl7()",
    '=HYPERLINK("http://x/hstl7")',
    "=cmd|'/c hstl7'!A1",
)
TEXTS = HTML + TERMINAL + CI + FORMULAS
FIELDS = (
    "run_id",
    "scenario_name",
    "question",
    "command",
    "scenario_digest",
    "scenario.name",
    "scenario.question",
    "hardware.name",
    "hardware.notes",
    "environment.cpu_model",
    "environment.python",
    "environment.commit",
    "environment.packages.torch",
    "environment.reasons.gpus",
    "LABEL",
    "PART",
    "TASK",
    "MODEL",
    "attention",
    "EVENT",
    "OUTCOME",
    "PROMPT",
    "UNGRADED",
    "NODE",
    "CLAIM",
)
REFUSED_FIELDS = ("dtype", "device")
"""What a command may refuse at once; planted alone."""
OWN = re.compile(r"::(error|warning|notice) title=[^:\n]*::")
"""An annotation of the program itself, in the format that was asked for."""
CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
COMMAND = re.compile(r"^\s*(::\w|section_start:.*[\r\x1b]|##teamcity\[)|##(vso)?\[", re.M)


def case(world: World, number: int, chance: Random) -> Case:
    """Every text in every thing shown, at places drawn."""
    text, show = TEXTS[number % len(TEXTS)], SHOWN[number // len(TEXTS) % len(SHOWN)]
    fields = chance.sample(FIELDS, 5) if number % 9 else [chance.choice(REFUSED_FIELDS)]
    if show in OF_FILES:
        return Case(f"{text!r} in a file, {show.__name__}", partial(show, text))
    return Case(f"{text!r} at {', '.join(fields)}", partial(_planted, world, text, fields, show))


def _planted(world: World, text: str, fields: list[str], show: Callable[[Place, Path, Path], None], place: Place) -> None:
    run = copied(place, world.good)
    header = json.loads((run / "run.json").read_text())
    samples = (run / "samples.jsonl").read_text()
    for name in fields:
        if name == "EVENT":
            _append(
                run,
                {"session": {"event": "process_failed", "part": "reference", "reason": text, "message": text, "node": text}},
            )
        elif name == "OUTCOME":
            _append(run, {"outcome": {"case_id": header["cases"][-1]["case_id"], "outcome": "failed", "reason": text}})
        elif name in ("PROMPT", "UNGRADED", "NODE"):
            samples = _in_samples(samples, name, text)
        elif name == "CLAIM":
            header["scenario"]["claims"] = [{"name": text, "source": text, "metric": "nfe_speedup", "min": 3}]
        elif name in ("LABEL", "PART", "TASK", "MODEL", "dtype", "device", "attention"):
            _in_cases(header, name, text)
        else:
            header = at(header, name, text)
    (run / "run.json").write_text(json.dumps(header))
    (run / "samples.jsonl").write_text(samples)
    show(place, run, world.good)


def _append(run: Path, event: dict[str, Any]) -> None:
    with (run / "events.jsonl").open("a") as file:
        file.write(json.dumps(event) + "\n")


def _in_samples(samples: str, name: str, text: str) -> str:
    lines = []
    for sample in map(json.loads, samples.splitlines()):
        if name == "NODE":
            sample["node"] = text
        for row in sample["rows"]:
            if name == "PROMPT":
                row["prompt_id"] += text
            if name == "UNGRADED":
                row |= {"correct": None, "ungraded_reason": text}
        lines.append(json.dumps(sample) + "\n")
    return "".join(lines)


def _in_cases(header: dict[str, Any], name: str, text: str) -> None:
    for case_ in header["cases"]:
        if name == "MODEL":
            case_["model"]["name"], case_["model_source"] = text, {"huggingface": text}
        else:
            case_[name.lower()] = text + (case_["label"] if name == "LABEL" else "")
    if name == "PART":
        header["scenario"]["parts"][0]["name"] = text


class _Page(HTMLParser):
    """What of MARK came to be something else than text."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.wrong: list[str] = []
        self.inside = ""
        self.kind: str | None = None

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Elements and attributes."""
        self.inside, self.kind = tag, dict(attrs).get("type")
        if MARK in tag:
            self.wrong.append(f"element {tag}")
        for name, value in attrs:
            address = name in ("href", "src", "action", "xlink:href", "formaction") and (value or "").strip().lower()
            if (
                MARK in name
                or (name.startswith("on") and MARK in (value or ""))
                or (name in ("srcdoc", "style") and MARK in (value or ""))
            ):
                self.wrong.append(f"attribute {name} of {tag}")
            elif (
                address and MARK in address and not address.startswith(("#", "https://huggingface.co/", "https://github.com/"))
            ):
                self.wrong.append(f"address {address[:60]}")

    def handle_endtag(self, tag: str) -> None:
        """The text that follows is of no script."""
        self.inside = ""

    def handle_comment(self, data: str) -> None:
        """A comment that swallowed text."""
        if MARK in data:
            self.wrong.append("comment")

    def handle_data(self, data: str) -> None:
        """A script that is none of data."""
        if self.inside == "style" and MARK in data:
            self.wrong.append("style")
        if self.inside == "script" and MARK in data:
            if self.kind not in ("application/json", "application/ld+json"):
                self.wrong.append("script")
            else:
                json.loads(data)


def check_page(place: Place, file: Path, *, addresses: bool = True) -> None:
    """A page on disk; ``addresses``: whether MARK may be in none of them."""
    if file.exists():
        page = _Page()
        page.feed(file.read_text())
        page.close()
        for wrong in page.wrong:
            if addresses or not wrong.startswith("address "):
                place.found("injected", f"{file.name}: {wrong}")


def check_terminal(place: Place, ended: Ended, *, controls: bool = True) -> None:
    """What a person or a CI runner reads."""
    for name, text in (("stdout", ended.out), ("stderr", ended.err)):
        if controls and (found := CONTROL.search(text)):
            place.found("injected", f"{name}: control character {found[0]!r} in {_line(text, found.start())!r}")
        for found in COMMAND.finditer(text):
            line = _line(text, text.index(found[0].strip(), found.start()))
            if MARK in line and not OWN.match(line):
                place.found("injected", f"{name}: CI command {line!r}")
                break


def _line(text: str, place: int) -> str:
    return text[max(0, text.rfind("\n", 0, place) + 1) :].partition("\n")[0][:120]


def check_cells(place: Place, text: str) -> None:
    """CSV as a spreadsheet reads it."""
    for row in csv.reader(io.StringIO(text)):
        for cell in row:
            if MARK in cell and cell.startswith(("=", "+", "-", "@", "\t", "\r")):
                place.found("injected", f"formula {cell!r}")


def _page(place: Place, run: Path, good: Path) -> None:
    check_terminal(place, place.sbd("report", run, "--out", "page.html"))
    check_page(place, place.here / "page.html")


def _pages(place: Place, run: Path, good: Path) -> None:
    check_terminal(place, place.sbd("report", good, run, "--out", "pages.html"))
    check_page(place, place.here / "pages.html")


def _gallery(place: Place, run: Path, good: Path) -> None:
    check_terminal(place, place.sbd("publish", run, place.here / "all" / "one"))
    check_terminal(place, place.sbd("gallery", "all"))
    check_page(place, place.here / "all" / "index.html")


def _tables(place: Place, run: Path, good: Path) -> None:
    for words in (
        ("verify", run),
        ("compare", good, run),
        ("gate", good, run),
        ("gate", run, run),
        ("verify", run, "--claim", "nfe_speedup >= 3"),
    ):
        check_terminal(place, place.sbd(*words))


def _exports(place: Place, run: Path, good: Path) -> None:
    """Every format, from a file."""
    from harness.reporting.exports import FORMATS

    for command in (("verify", run), ("gate", good, run)):
        place.sbd(*command, *(f"--to={name}={place.here / name}" for name in FORMATS))
        for name in FORMATS:
            if (place.here / name).exists():
                _check_export(place, name, (place.here / name).read_bytes().decode())
        check_terminal(place, place.sbd(*command, "--to", "github=-"))


def _check_export(place: Place, name: str, text: str) -> None:
    if name == "junit":
        tree = ElementTree.fromstring(text)
        if any(MARK in one.tag or any(MARK in key for key in one.attrib) for one in tree.iter()):
            place.found("injected", "junit: an element or attribute")
    elif name == "markdown":
        bare = re.sub(r"<!--.*?-->|(`+)[^`].*?\1", "", text)
        if re.search(r"(?<!\\)<(/?\w+[^>]*)?hstl7|(?<!\\)\]\(javascript:|(?<![\\&])<!-- hstl7|(?<!\\)!\[hstl7\]\(http", bare):
            place.found("injected", f"markdown: {_line(bare, bare.find(MARK))!r}")
    elif name == "prometheus":
        for line in text.splitlines():
            if not re.match(r'^(#.*|\w+(\{(\w+="([^"\\]|\\.)*",?)*\})? [-+.\deNaIinf]+( \d+)?|)$', line):
                place.found("injected", f"prometheus: {line[:100]!r}")
    elif name == "github":
        lines = [line for line in text.splitlines() if line.strip()]
        if any(not line.startswith("::") or re.search(r"[\x00-\x08\x0b-\x1f]", line) for line in lines):
            place.found("injected", f"github: {lines[0][:100]!r}")
    else:
        json.loads(text)


def _history(place: Place, run: Path, good: Path) -> None:
    database = ("--db", str(place.here / "h.sqlite"))
    for words in (
        ("add", good),
        ("add", run, "--branch", "main"),
        ("list",),
        ("trend", "--html", "trend.html"),
        ("list", "--json"),
    ):
        ended = place.sbd("history", *words, *database)
        check_terminal(place, ended, controls="--json" not in words)
    check_page(place, place.here / "trend.html")


def _others(place: Place, run: Path, good: Path) -> None:
    base = ("--model", "llama-3.1-8b", "--hardware", "h100-sxm", "--from-run", run)
    for words in (
        ("roofline", *base),
        ("capacity", *base, "--csv"),
        ("report", run, "--json"),
        ("report", run, "--markdown", "-"),
    ):
        ended = place.sbd(*words)
        if "--csv" in words:
            check_cells(place, ended.out)
        if "--json" in words and ended.code == 0:
            json.loads(ended.out)
        check_terminal(place, ended, controls="--json" not in words)


def _scenario(text: str, place: Place) -> None:
    """In a scenario and in its refusals."""
    written(place, "prompts.jsonl", '{"prompt": "hi"}\n{"prompt": "ho"}\n')
    for path in (
        "question",
        "name",
        "parts.0.name",
        "parts.0.dtype",
        "claims.0.source",
        "parts.1.workload.prompts_file",
        "parts.0.model.random",
    ):
        check_terminal(place, place.sbd("plan", written(place, "s.yaml", at(SCENARIO, path, text))))
    check_terminal(place, place.sbd("plan", written(place, "s.yaml", SCENARIO | {text: 1})))


def _profile(text: str, place: Place) -> None:
    """In a profile: name, source, notes."""
    from tests.helpers import ROOT

    profile = yaml.safe_load((ROOT / "hardware_profiles" / "h100-sxm.yaml").read_text())
    changes = (("name", text), ("notes", text), ("bandwidth_bytes_per_s.source", text), ("price_usd_per_hour.source", text))
    for path, value in changes:
        file = written(place, "p.yaml", at(profile, path, value))
        capacity = ("capacity", "--model", "llama-3.1-8b", "--nfe-speedup", "3", "--hardware", file)
        for words in (
            ("hardware", file),
            ("roofline", "--model", "llama-3.1-8b", "--hardware", file),
            (*capacity, "--csv"),
            capacity,
        ):
            ended = place.sbd(*words)
            check_cells(place, ended.out if "--csv" in words else "")
            check_terminal(place, ended)


def _arguments(text: str, place: Place) -> None:
    """In the words of the command line, which a script may have from outside."""
    if "\x00" in text:
        return
    for words in (
        ("verify", text),
        ("plan", text),
        ("hardware", text),
        ("roofline", "--model", text, "--hardware", "h100-sxm"),
        ("capacity", "--model", "llama-3.1-8b", "--table1", text),
        ("history", "show", "--", text),
    ):
        check_terminal(place, place.sbd(words[0], "--", *words[1:]) if len(words) == 2 else place.sbd(*words))


SHOWN: tuple[Any, ...] = (_page, _tables, _exports, _history, _others, _scenario, _profile, _arguments, _pages, _gallery)
OF_FILES = (_scenario, _profile, _arguments)
COUNT = len(TEXTS) * len(SHOWN)
