"""What other programs read, read back by readers that are not ours; and nothing that a text says is taken for markup."""

from __future__ import annotations

import json
import math
import re
import unicodedata
from collections.abc import Iterator
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import example, given
from markdown_it import MarkdownIt
from markdown_it.token import Token
from prometheus_client.parser import text_string_to_metric_families

from harness.analysis.judge.judgement import GRAVEST_FIRST, Judgements
from harness.reporting.exports.formats import FORMATS, export
from harness.reporting.exports.review import LONGEST, marker
from harness.reporting.exports.trackers import family_name
from harness.stats.quantity import Quantity
from tests.helpers import synthetic_judgements as synthetic
from tests.helpers.synthetic_judgements import answer, ink, of

FOUR = of(
    answer("met", metric="nfe_speedup", value=Quantity(value=3.25, low=3.125, high=3.5, n=8)),
    answer(
        "inconclusive",
        metric="latency_p50_s",
        unit="s",
        better="lower",
        remedy="22 more prompts",
        value=Quantity(value=0.03125, low=0.0290, high=0.034, n=8),
    ),
    answer(
        "missed", kind="deterministic", metric="passes", unit="passes", better="equal", base=340.0, value=Quantity(value=341.0)
    ),
    answer("void", metric="tokens_per_s", unit="tokens/s", value=Quantity(value=912.0), reason="the machine was throttled"),
)


def number_of(one: Any) -> tuple[float, float | None, float | None] | None:
    """Value and interval that may leave the house: those of a void answer may not, nor NaN and infinity."""
    parts = (one.value.value, one.value.low, one.value.high)
    fit = one.state != "void" and parts[0] is not None and all(part is None or math.isfinite(part) for part in parts)
    return parts if fit else None


def base_of(one: Any) -> float | None:
    """BASE's own figure where it may leave the house."""
    return one.base if number_of(one) and one.base is not None and math.isfinite(one.base) else None


# ---- what holds for all of them


def test_a_counted_figure_is_exported_as_new_has_it_with_base_beside() -> None:
    """341 passes where BASE had 340, and 64 bytes unchanged: never the difference, which is 0 where nothing changed.

    A tracker that alerts at a share of the last value divides by it.
    """
    given = {"kind": "deterministic", "metric": "peak_memory_bytes", "unit": "bytes", "better": "lower", "basis": "measured"}
    both = of(FOUR.judgements[2], answer("met", value=Quantity(value=64.0), base=64.0, **given))
    read = json.loads(export(both, "bencher"))["SBD k=16 γ=0.35, part bandwidth, batch 1"]
    assert read == {
        "passes": {"value": 341.0},
        "passes-base": {"value": 340.0},
        "peak-memory-bytes": {"value": 64.0},
        "peak-memory-bytes-base": {"value": 64.0},
    }
    samples = [one for family in text_string_to_metric_families(export(both, "prometheus")) for one in family.samples]
    assert {one.name: one.value for one in samples if not one.name.endswith("_state")} == {
        "sbd_passes": 341.0,
        "sbd_base_passes": 340.0,
        "sbd_peak_memory_bytes": 64.0,
        "sbd_peak_memory_base_bytes": 64.0,
    }
    (entry,) = json.loads(export(both, "smaller-is-better"))
    assert entry["value"] == 64.0 and "64\u00a0bytes, BASE 64; asked" in entry["extra"]
    assert [(one["value"]["value"], one["base"]) for one in json.loads(export(both, "json"))["judgements"]] == [
        (341.0, 340.0),
        (64.0, 64.0),
    ]
    for name in ("junit", "markdown", "github"):
        assert "341 passes, BASE 340" in export(both, name).replace("\u00a0", " "), name


@given(found=synthetic.judgements)
def test_every_format_takes_any_text(found: Judgements) -> None:
    """It fits a UTF-8 file, ends in a newline, is the same again, holds no character that a terminal or XML refuses; and no
    line of it is one that a CI runner would obey, except where it is to.
    """
    for name in FORMATS:
        written = export(found, name)
        assert written.encode().decode() == written == export(found, name) and written.endswith("\n"), name
        control = {letter for letter in written if unicodedata.category(letter) in ("Cc", "Cs")} - {"\n"}
        assert name == "json" or not control | (set(written) & {"\u2028", "\u202e", "\ufffe", "\ufeff"}), name
        obeyed = [line for line in written.split("\n") if line.lstrip().startswith("::")]
        assert bool(obeyed) == (name == "github"), name


# ---- JSON


@given(found=synthetic.judgements)
@example(found=synthetic.of(synthetic.answer("missed", reason="half of a pair: \ud800")))
def test_json_is_strict_and_complete(found: Judgements) -> None:
    """A reader that knows no NaN takes it; every text is as it was, a lone surrogate apart."""

    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    read = json.loads(export(found, "json"), parse_constant=refuse)
    whole = lambda text: re.sub("[\ud800-\udfff]", "\ufffd", text)  # noqa: E731 - one line, used twice
    assert read["state"] == found.state and read["version"] == found.version
    assert [one["reason"] for one in read["judgements"]] == [whole(one.reason) for one in found.judgements]
    for one, plain in zip(found.judgements, read["judgements"], strict=True):
        finite = all(part is None or math.isfinite(part) for part in (one.value.value, one.value.low, one.value.high))
        assert plain["value"]["value"] == (one.value.value if finite else None)
        assert finite or plain["value"]["reason"] is not None


# ---- JUnit (its schema: test_exports_junit.py)

TAG = {"met": None, "missed": "failure", "void": "error", "inconclusive": "skipped"}


@given(found=synthetic.judgements)
def test_junit_reads_back(found: Judgements) -> None:
    """One testcase per answer in its own outcome, totals that add up, no name twice, and the reason legible in its message."""
    suite = ElementTree.fromstring(export(found, "junit").encode()).find("testsuite")
    cases = suite.findall("testcase")
    named = [(case.get("classname"), case.get("name")) for case in cases]
    assert len(set(named)) == len(named) == int(suite.get("tests", "-1"))
    for key, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        assert len(suite.findall(f"testcase/{tag}")) == int(suite.get(key, "-1"))
    for case, one in zip(cases, found.judgements, strict=bool(found.judgements)):
        outcomes = [child for child in case if child.tag != "system-out"]
        assert [child.tag for child in outcomes] == ([TAG[one.state]] if TAG[one.state] else [])
        for child in outcomes:
            assert ink(child.get("message", "")) == ink(f"{one.word}:{one.reason}") and ink(one.reason) in ink(child.text or "")
    if not found.judgements:
        assert len(cases) == 1 and cases[0].find("error") is not None  # nothing judged must not look green


# ---- Markdown


def tokens_of(written: str) -> list[Token]:
    """CommonMark with the two extensions of GitHub that markdown-it has; raw HTML is recognised."""
    return MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"]).parse(written)


def shown(token: Token) -> str:
    """The text of a line; nothing else may be in it."""
    children = [child for child in token.children or [] if child.type not in ("strong_open", "strong_close")]
    assert {child.type for child in children} <= {"text"}, [child.type for child in children]
    return "".join(child.content for child in children)


def rows_of(tokens: list[Token]) -> Iterator[list[str]]:
    """The cells of every row below the head."""
    row: list[str] = []
    for place, token in enumerate(tokens):
        if token.type == "td_open":
            row.append(shown(tokens[place + 1]))
        elif token.type == "tr_close" and row:
            yield row
            row = []


@given(found=synthetic.judgements)
@example(found=of(answer("inconclusive", metric="- m", remedy="- x"), runs=("- a", "1. b", "# c")))
def test_markdown_reads_back(found: Judgements) -> None:
    """The marker is the one piece of HTML; a row of six cells per answer, gravest first, that shows the words as they were."""
    tokens = tokens_of(export(found, "markdown"))
    html = [token for token in tokens if token.type == "html_block"]
    assert len(html) == 1 and tokens[0] is html[0] and html[0].content.count("-->") == 1
    lines = [shown(token) for token in tokens if token.type == "inline"]
    assert ink(found.title) in ink(lines[0])
    for line in lines:  # what GitHub looks for in the finished page: a name, an issue, a bare address, an emoji
        assert not re.search(r"@\w|#\d|\w://|www\.\w|:[a-z_]+:", line), line
    rows = list(rows_of(tokens))
    assert len([token for token in tokens if token.type == "table_open"]) == bool(rows) and len(rows) == len(found.judgements)
    ordered = [one for state in GRAVEST_FIRST for one in found.judgements if one.state == state]
    for row, one in zip(rows, ordered, strict=True):
        assert [ink(row[i]) for i in (0, 1, 2, 4, 5)] == [
            ink(words) for words in (one.word, one.metric, one.subject, one.bound, one.reason)
        ]
    items = [token for token in tokens if token.type == "list_item_open"]
    assert len(items) == len(found.runs) + len([one for one in found.judgements if one.remedy])


def test_markdown_fits_a_comment_and_keeps_its_marker() -> None:
    """2,000 long answers stay below GitHub's 65,536 characters and say how many are left out; the refuted one is not."""
    many = [answer("met", reason="long " * 100)] * 1999
    written = export(of(*many, answer("missed", reason="the one that counts")), "markdown")
    rows = list(rows_of(tokens_of(written)))
    assert LONGEST / 2 < len(written) <= LONGEST < 65_536 and rows[0][0] == "refuted"
    assert f"{2000 - len(rows)} more are left out" in written
    assert written.splitlines()[0] == export(of(), "markdown").splitlines()[0] == "<!-- sbd judgements: sbd verify -->"


# ---- GitHub annotations


def command(line: str) -> tuple[str, dict[str, str], str]:
    """Level, properties and message, as the documentation of workflow commands says a line is read."""
    read = re.fullmatch(r"::([a-z]+)(?: ([^:]*))?::(.*)", line, re.DOTALL)
    assert read is not None, line
    level, properties, data = read.groups()
    pairs = dict(pair.split("=", 1) for pair in (properties or "").split(",") if pair)
    codes = {"%0D": "\r", "%0A": "\n", "%3A": ":", "%2C": ",", "%25": "%"}

    def plain(text: str, known: tuple[str, ...]) -> str:
        assert not [code for code in re.findall("%..?", text) if code not in known], text
        return re.sub("|".join(known), lambda code: codes[code[0]], text)

    return level, {key: plain(text, tuple(codes)) for key, text in pairs.items()}, plain(data, ("%0D", "%0A", "%25"))


@given(found=synthetic.judgements)
def test_annotations_read_back(found: Judgements) -> None:
    """A line per answer that is not met and one for all; no text makes a line, a property or a message of its own."""
    read = [command(line) for line in export(found, "github").removesuffix("\n").split("\n")]
    ordered = [one for state in GRAVEST_FIRST[:3] for one in found.judgements if one.state == state]
    assert [level for level, _, _ in read] == [
        *("warning" if one.state == "inconclusive" else "error" for one in ordered),
        "notice",
    ]
    assert all(set(properties) == {"title"} for _, properties, _ in read)
    for (_, properties, message), one in zip(read, ordered, strict=False):
        assert ink(properties["title"]) == ink(f"{one.word}:{one.metric}")
        assert ink(message).startswith(ink(one.subject)) and ink(f"reason:{one.reason}") in ink(message)
    assert ink(found.title)[:150] in ink(read[-1][1]["title"])


# ---- github-action-benchmark


@given(found=synthetic.judgements)
def test_benchmark_action_reads_two_directions(found: Judgements) -> None:
    """Types as its README has them; each number in the file of its direction, and neither void nor equal ones in any."""
    for name, better in (("bigger-is-better", "higher"), ("smaller-is-better", "lower")):
        entries = json.loads(export(found, name))
        for entry in entries:
            assert {"name", "unit", "value", "extra"} <= set(entry) <= {"name", "unit", "value", "range", "extra"}
            assert type(entry["value"]) is float and {type(entry[key]) for key in set(entry) - {"value"}} == {str}
        assert len({entry["name"] for entry in entries}) == len(entries)
        wanted = [one for one in found.judgements if one.better == better and number_of(one)]
        assert [entry["value"] for entry in entries] == [one.value.value for one in wanted]


def test_benchmark_action_by_hand() -> None:
    """One entry as it stands in the file."""
    (entry,) = json.loads(export(FOUR, "smaller-is-better"))
    assert entry == {
        "name": "latency_p50_s: SBD k=16 γ=0.35, part bandwidth, batch 1",
        "unit": "s",
        "value": 0.03125,
        "range": "0.029..0.034",
        "extra": "inconclusive\n0.03125\u00a0s [0.02900, 0.03400]; asked: at least 3\nmeasured; prompts: 8, processes: 1\n"
        "reason: the whole interval is below 3\nto decide: 22 more prompts",
    }


# ---- Bencher


@given(found=synthetic.judgements)
def test_bencher_reads_every_number(found: Judgements) -> None:
    """Names and slugs that Bencher accepts, floats only, and no value lost or doubled but the same one twice."""
    read = json.loads(export(found, "bencher"))
    numbers = []
    for benchmark, measures in read.items():
        assert 0 < len(benchmark) <= 1024 and measures
        for measure, limits in measures.items():
            assert re.fullmatch("[a-z0-9]+(-[a-z0-9]+)*", measure) and len(measure) <= 64
            assert "value" in limits and set(limits) <= {"value", "lower_value", "upper_value"}
            numbers.append((limits["value"], limits.get("lower_value"), limits.get("upper_value")))
    bases = {(base, None, None) for one in found.judgements if (base := base_of(one)) is not None}
    assert all(type(part) is float for triple in numbers for part in triple if part is not None)
    assert set(numbers) == {number_of(one) for one in found.judgements} - {None} | bases


def test_bencher_keeps_unlike_values_apart() -> None:
    """Two bounds on one figure are one entry, another figure of that name is not written over it, a price is labelled."""
    other = Quantity(value=9.0)
    priced = answer("met", basis="predicted")
    asked = of(answer("missed"), answer("met", bound="at least 2"), answer("met", value=other), priced)
    read = json.loads(export(asked, "bencher"))
    subject = "SBD k=16 γ=0.35, part bandwidth, batch 1"
    first = {"value": 2.4, "lower_value": 2.1, "upper_value": 2.7}
    assert read.pop(subject) == {"wall-speedup": first} and read.pop(f"{subject} (predicted)") == {"wall-speedup": first}
    assert list(read.values()) == [{"wall-speedup": {"value": 9.0}}]


# ---- Prometheus


@given(found=synthetic.judgements)
def test_prometheus_reads_back(found: Judgements) -> None:
    """Its own parser takes it: no family or series twice, no timestamp; one state in four holds; every number is there."""
    families = list(text_string_to_metric_families(export(found, "prometheus")))
    assert len({family.name for family in families}) == len(families) and {family.type for family in families} == {"gauge"}
    samples = [sample for family in families for sample in family.samples]
    series = [(sample.name, *sorted(sample.labels.items())) for sample in samples]
    assert len(set(series)) == len(series) and all(sample.timestamp is None for sample in samples)
    states = [sample for sample in samples if sample.name == "sbd_judgement_state" and sample.value == 1]
    assert [sample.labels["state"] for sample in states] == [one.state for one in found.judgements]
    for sample, one in zip(states, found.judgements, strict=True):
        assert sample.labels["judgement"] and ink(one.cell.get("part", "")) == ink(sample.labels.get("cell_part", ""))
    overall = [sample.labels for sample in samples if sample.name == "sbd_verdict_state" and sample.value == 1]
    assert [labels["state"] for labels in overall] == [found.state] and ink(overall[0]["title"]) == ink(found.title)
    numbers = sorted(sample.value for sample in samples if not sample.name.endswith("_state"))
    wanted = [triple for one in found.judgements if (triple := number_of(one))]
    bases = [base for one in found.judgements if (base := base_of(one)) is not None]
    assert numbers == sorted([*(part for triple in wanted for part in triple if part is not None), *bases])


@pytest.mark.parametrize(
    ("metric", "unit", "name"),
    [
        ("wall_speedup", "x", "sbd_wall_speedup_ratio"),
        ("latency_p50_s", "s", "sbd_latency_p50_seconds"),
        ("decode_s_per_token", "s/token", "sbd_decode_seconds_per_token"),
        ("tokens_per_s", "tokens/s", "sbd_tokens_per_second"),
        ("joules_per_token", "J/token", "sbd_joules_per_token"),
        ("modelled_bytes", "bytes", "sbd_modelled_bytes"),
        ("passes", "x", "sbd_passes_ratio"),
        ("bandwidth_share", "of the read ceiling", "sbd_bandwidth_share"),
        ("output_sha256", "", "sbd_output_sha256"),
    ],
)
def test_prometheus_names_end_in_their_unit(metric: str, unit: str, name: str) -> None:
    """Spelled out and said once, as its naming guide asks."""
    assert family_name(answer("met", metric=metric, unit=unit)) == name


def test_prometheus_by_hand() -> None:
    """The lines of one family as they stand in the file, quotes and backslashes in a label escaped."""
    lines = export(of(answer("met", subject='a "b" \\ c', cell={"part": "x"})), "prometheus").splitlines()
    assert lines[:3] == [
        "# HELP sbd_wall_speedup_ratio Value of wall_speedup in x, as sbd judged it.",
        "# TYPE sbd_wall_speedup_ratio gauge",
        'sbd_wall_speedup_ratio{basis="measured",cell_part="x",judgement="wall_speedup: a \\"b\\" \\\\ c"} 2.4',
    ]


@pytest.mark.parametrize("title", ["-->", "--!>", "> a", "a\nb", "<!-- x -->", "é"])
def test_a_first_line_ends_where_it_should(title: str) -> None:
    """A browser ends a comment at the first --> or --!>, and one that begins with > at once."""
    line = marker(title)
    assert line.count("\n") == 0 and line.endswith(" -->")
    assert not re.search("--!?>", line[4:-3]) and not line[4:].lstrip().startswith(">")
