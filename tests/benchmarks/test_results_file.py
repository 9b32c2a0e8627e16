"""Stored figures and the manual show when they are older than their sources: a small house, planted changes, the real pages."""

from __future__ import annotations

import hashlib
import json
import re
from functools import cache
from pathlib import Path

import pytest

from benchmarks import results_file, sources
from benchmarks.results_file import stored, why_stale
from benchmarks.sources import digest_of, sources_of
from tests.helpers import ROOT
from tests.helpers.command_lines import PAGES
from tests.helpers.quoted_figures import FIGURE, faults

FILES = {
    "harness/__init__.py": "",
    "harness/errors.py": "class E(Exception): ...\n",
    "harness/stats/__init__.py": "",
    "harness/stats/mean.py": '"""A."""\nfrom harness.errors import E\n\ndef mean(x):\n    """Of x."""\n    return sum(x) / 2',
    "harness/stats/other.py": "import harness.engine.native\n",
    "harness/stats/table.csv": "1,2\n",
    "harness/engine/__init__.py": "",
    "harness/engine/native.py": "from importlib import import_module\nTWO = import_module(f'harness.named.{2}')\n",
    "harness/named/__init__.py": "",
    "harness/named/two.py": "X = 1\n",
    "benchmarks/__init__.py": "",
    "benchmarks/quiet.py": "def main():\n    from harness.stats.mean import mean\nNAME = 'harness.named.two'\n",
    "benchmarks/reads.py": "from pathlib import Path\nfrom harness.stats import mean\nRUN = Path('.') / 'reports' / 'one'\n",
    "benchmarks/loads.py": "from harness.stats import other\n",
    "benchmarks/runs.py": "WORDS = ['-m', 'harness']\n",
    "harness/__main__.py": "from harness.stats import mean\n",
    "reports/one/run.json": "{}",
    "reports/one/samples.jsonl.gz": "z",
    "reports/one/report.html": "page",
}
"""A house of three packages."""


@pytest.fixture
def house(tmp_path: Path) -> Path:
    """The files of it."""
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    return tmp_path.resolve()


def changed(root: Path, name: str, text: str) -> None:
    """Another text of a file, read anew."""
    (root / name).write_text(text, encoding="utf-8")
    digest_of.cache_clear()
    sources._module.cache_clear()


@pytest.mark.parametrize(
    ("benchmark", "units"),
    [
        ("quiet", {"benchmarks/quiet", "harness/errors", "harness/stats", "harness/named"}),
        ("reads", {"benchmarks/reads", "harness/errors", "harness/stats", "reports/one"}),
        ("loads", {"benchmarks/loads", "harness/stats", "harness/engine", "harness/named"}),
        ("runs", {"benchmarks/runs", "harness/__main__", "harness/errors", "harness/stats"}),
    ],
)
def test_a_benchmark_depends_on_what_it_leads_to(benchmark: str, units: set[str], house: Path) -> None:
    """By an import within a function, a record that it names, modules that are loaded by name, the program that it runs."""
    assert set(sources_of(f"benchmarks.{benchmark}", root=house)) == units


@pytest.mark.parametrize(
    ("file", "text", "units"),
    [
        (
            "harness/stats/mean.py",
            'from harness.errors import E\ndef mean(x):\n    """X."""\n    return sum(x) / 2  # half\n',
            set(),
        ),
        ("harness/stats/mean.py", "from harness.errors import E\ndef mean(x):\n    return sum(x) / 3\n", {"harness/stats"}),
        ("harness/stats/table.csv", "1,3\n", {"harness/stats"}),
        ("harness/stats/other.py", "X = 2\n", set()),
        ("harness/errors.py", "class E(ValueError): ...\n", {"harness/errors"}),
        ("reports/one/samples.jsonl.gz", "y", {"reports/one"}),
        ("reports/one/report.html", "another page", set()),
        ("benchmarks/quiet.py", "X = 2\n", set()),
    ],
)
def test_what_changes_figures_makes_them_stale_and_a_comment_does_not(
    file: str, text: str, units: set[str], house: Path
) -> None:
    """Exactly the units of the file that changed; modules that the benchmark does not lead to count for nothing."""
    result = {"by": "benchmarks.reads", "commit": "c" * 40, "sources": sources_of("benchmarks.reads", root=house)}
    assert why_stale(result, house) == ""
    changed(house, file, text)
    assert why_stale(result, house) == ", ".join(sorted(units))


def test_a_result_without_its_benchmark_its_record_or_its_sources_is_stale(house: Path) -> None:
    """Each with its reason."""
    held = sources_of("benchmarks.quiet", ["reports/one"], house)
    base = {"by": "benchmarks.quiet", "commit": "abcdef0123", "sources": held}
    assert why_stale(base, house) == ""
    assert "commit abcdef01 is not in the history" in why_stale(base | {"sources": {}}, house)
    assert (
        why_stale(base | {"by": "benchmarks.gone"}, house) == "benchmarks/quiet, harness/errors, harness/named, harness/stats"
    )
    assert "reports/two" in why_stale(base | {"sources": held | {"reports/two": "0"}}, house)


def test_a_record_that_left_the_tree_counts_as_it_was(house: Path) -> None:
    """A published record: its digest is that of the samples, which its card has too."""
    before = digest_of(ROOT / "reports" / "quickstart")
    samples = (ROOT / "reports" / "quickstart" / sources.SAMPLES).read_bytes()
    files = {"run.json": "0", sources.SAMPLES: hashlib.sha256(samples).hexdigest()}
    changed(house, "reports/one/elsewhere.json", json.dumps({"files": files}))
    assert digest_of(house / "reports" / "one") == before


def test_what_is_written_names_its_sources_and_is_fresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The caller's module, the day, and a record of the command line."""
    monkeypatch.setattr(results_file, "RESULTS", tmp_path)
    monkeypatch.setattr("sys.argv", ["x", "reports/quickstart/", "5", str(tmp_path)])
    monkeypatch.setitem(globals(), "__spec__", type("Spec", (), {"name": "benchmarks.second_roofline"}))
    results_file.write_results("one", {"a": 1.0})
    result = stored()["one"]
    assert result["by"] == "benchmarks.second_roofline" and re.fullmatch(r"20\d\d-\d\d-\d\d", result["date"])
    assert {"harness/roofline", "reports/quickstart", "benchmarks/second_roofline"} < result["sources"].keys() and why_stale(
        result
    ) == ""


RESULTS = {
    "old": {"date": "2026-11-20", "figures": {"errors_pct": 2.345, "count": 1200, "none": None}},
    "new": {"date": "2026-11-27", "figures": {"errors_pct": 1.0}},
}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("Of them 2.3 % (`old.errors_pct`) are wrong, as measured\non 2026-11-20.", []),
        (
            "Of them 2.4 % (`old.errors_pct`) are wrong, as measured on 2026-11-20.",
            ["2.4 stands beside old.errors_pct, which is 2.3"],
        ),
        ("Of them 2.3 % (`old.errors_pct`) are wrong.", ["no date, and it is stale: because"]),
        ("Measured on 2026-11-21: 1,200 (`old.count`).", ["another date, 2026-11-21"]),
        ("There are 3 (`old.none`) on 2026-11-20.", ["3 stands beside old.none, which is not known"]),
        ("There are 3 (`old.gone`) on 2026-11-20.", ["not known"]),
        ("One percent, 1.0 % (`new.errors_pct`).", []),
        ("One percent, 1.0 % (`new.errors_pct`), on 2026-11-26.", ["another date"]),
        ("* `python -m benchmarks.old` says 5 of 6\n* on 2026-11-20 nothing", ["no date"]),
        ("| a | b |\n|---|---|\n| `benchmarks/results/old.json` (2026-11-20) | 5 |\n| `benchmarks.old` | 6 |", ["no date"]),
        ("`python -m benchmarks.old` measures it, see `benchmarks/old.yaml` of 3 parts", ["no date"]),
        ("`python -m benchmarks.old RUN 5` measures it; 3 parts are in `benchmarks/other.yaml`.", ["no date"]),
        ("`python -m benchmarks.old RUN 5` measures it.", []),
        ("Take `benchmarks/old.yaml` of 3 parts.", []),
        ("Run\n\n    python -m benchmarks.old 3\n\nand wait.", []),
    ],
)
def test_the_quotes_of_a_page(text: str, found: list[str]) -> None:
    """Each wrong one, in words."""
    said = list(faults(text, RESULTS, lambda name: "because" if name == "old" else ""))
    assert len(said) == len(found) and all(words in one for words, one in zip(found, said, strict=True)), said


@cache
def why(name: str) -> str:
    """Of a stored result."""
    return why_stale(stored()[name])


@pytest.mark.parametrize("name", [name for name in PAGES if name.startswith("docs/")])
def test_a_page_dates_the_stale_figures_that_it_quotes(name: str) -> None:
    """And what stands beside the name of a stored figure is that figure."""
    assert list(faults(PAGES[name].read_text(encoding="utf-8"), stored(), why)) == []


UNKNOWN = {"baseline", "engines", "launches"}
"""Measured with commits that did not come into the history; a later measurement is none of these."""


def test_every_result_says_what_it_depends_on() -> None:
    """Its module is there, its date is a day, and its sources have digests."""
    for name, one in stored().items():
        assert re.fullmatch(r"20\d\d-\d\d-\d\d", one["date"]), name
        assert sources._module(one["by"], ROOT) is not None and (one["sources"] or name in UNKNOWN), name


def test_sentences_about_error_rates_name_their_figure() -> None:
    """Of docs/verdicts.md: every share in percent, but for the level of the intervals."""
    page = (ROOT / "docs" / "verdicts.md").read_text(encoding="utf-8")
    for sentence in re.split(r"(?<=[.:|])\s|\n\n|\n\* ", page):
        shares = re.findall(r"(?<!\S)(?!95 %)[\d.]+ ?%", sentence)
        assert len(shares) <= len(FIGURE.findall(sentence)), sentence
    assert FIGURE.search(page)
