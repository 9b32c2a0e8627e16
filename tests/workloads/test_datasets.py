"""Prompts from a dataset: templates, patterns, pinning, and a run on local files; offline throughout."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from harness.errors import MissingExtraError, ScenarioError
from harness.scenario.loading import load_scenario
from harness.workloads.datasets import dataset_prompts
from harness.workloads.prompts import Prompt, read_prompts
from harness.workloads.spec import DatasetChoice, digest_of

ROWS = [
    {"question": "2+3", "answer": "two and three\n#### 5", "year": 1999},
    {"question": "7*{1}", "answer": "#### wrong, no:\n#### 1,007", "year": 2001},
]
SCENARIO = """\
version: 1
name: from_dataset
parts:
  - name: one
    model: {reference: sbd}
    dtype: bfloat16
    arms: [{method: ntp}]
    timed: false
    workload:
      dataset:
        path: data
        split: test
        prompt: "Q: {question} ({year})\\nA:"
        answer: "{answer}"
        answer_pattern: '#### (.+)'
        output_pattern: 'Answer: (.+)'
        check: number
      prompts: 2
      max_new_tokens: 4
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A scenario beside a dataset of JSONL files."""
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "test.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    (tmp_path / "data" / "train.jsonl").write_text(json.dumps(ROWS[0]) + "\n")
    (tmp_path / "s.yaml").write_text(SCENARIO)
    return tmp_path


def changed(folder: Path, old: str, new: str) -> str:
    """The message for the scenario with one passage replaced."""
    assert old in SCENARIO
    (folder / "s.yaml").write_text(SCENARIO.replace(old, new))
    with pytest.raises(ScenarioError) as caught:
        load_scenario(folder / "s.yaml")
    return str(caught.value)


def test_a_local_dataset_is_pinned_by_its_content(folder: Path) -> None:
    """The digest is filled in, follows every byte and name below the folder, and a given one must agree."""
    choice = load_scenario(folder / "s.yaml").parts[0].workload.dataset
    assert choice.data_sha256 == digest_of(folder / "data") and choice.revision is None
    assert choice.path == str(folder / "data")
    message = changed(folder, "split: test", f"split: test\n        data_sha256: {'f' * 64}")
    assert message.startswith(f"{folder / 's.yaml'}:13: parts.0.workload.dataset.data_sha256: ") and "other prompts" in message
    with (folder / "data" / "train.jsonl").open("a") as more:
        more.write("\n")
    (folder / "s.yaml").write_text(SCENARIO)
    again = load_scenario(folder / "s.yaml").parts[0].workload.dataset
    assert again.data_sha256 != choice.data_sha256


def test_a_hub_dataset_is_pinned_by_the_commit_in_the_cache(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """main is looked up in the cache and nowhere else; a commit is taken as it is; else the message says what to do."""
    monkeypatch.setenv("HF_HUB_CACHE", str(folder / "hub"))
    (folder / "s.yaml").write_text(SCENARIO.replace("path: data", "path: openai/gsm8k\n        name: main"))
    with pytest.raises(ScenarioError, match=r"s\.yaml:10: .*hf download --repo-type dataset openai/gsm8k"):
        load_scenario(folder / "s.yaml")
    refs = folder / "hub" / "datasets--openai--gsm8k" / "refs"
    refs.mkdir(parents=True)
    (refs / "main").write_text("a" * 40)
    found = load_scenario(folder / "s.yaml").parts[0].workload
    assert found.dataset.revision == "a" * 40 and found.task_names == ("gsm8k",)
    with_commit = SCENARIO.replace("path: data", f"path: not/there\n        revision: {'b' * 40}")
    (folder / "s.yaml").write_text(with_commit)
    found = load_scenario(folder / "s.yaml").parts[0].workload
    assert found.dataset.revision == "b" * 40


@pytest.mark.parametrize(
    ("old", "new", "line", "words"),
    [
        ("path: data", "path: ./nowhere", 11, "a folder, or a file ending in .jsonl"),
        ("path: data", "path: s.yaml", 11, "no dataset at"),
        ("path: data", "path: data\n        revision: main", 12, "remove the revision"),
        ('"Q: {question} ({year})\\nA:"', '"Q: {question"', 13, "write {field}"),
        ('"Q: {question} ({year})\\nA:"', '"Q: {question.__class__}"', 13, "is not the name of a field"),
        ('"Q: {question} ({year})\\nA:"', '"Q: {year:>9}"', 13, "is not the name of a field"),
        ('"Q: {question} ({year})\\nA:"', '"Why?"', 13, "every row would give the same"),
        ("'#### (.+)'", "'#### (.+'", 15, "not a regular expression"),
        ("'#### (.+)'", "'(#+) (.+)'", 15, "2 groups"),
        ('answer: "{answer}"\n        ', "", 10, "answer_pattern needs an answer"),
        ("check: number", "check: numbers", 17, "'number'"),
        ("check: number", "chek: number", 17, "did you mean 'check'"),
        ("prompts: 2\n", "\n", 9, "prompts is missing"),
        ("prompts: 2\n", "prompts: 2\n      tasks: [word_problems]\n", 9, "got tasks, dataset"),
    ],
)
def test_a_mistake_is_named_with_line_and_remedy(folder: Path, old: str, new: str, line: int, words: str) -> None:
    """Each message starts with file:line and says what to do."""
    message = changed(folder, old, new)
    assert message.startswith(f"{folder / 's.yaml'}:{line}: ") and words in message, message


def test_scenarios_without_a_dataset_are_what_they_were() -> None:
    """The key is left out of the resolved scenario, so that runs begun by an earlier version can be continued."""
    assert "dataset" not in load_scenario("reference_accuracy").parts[0].workload.model_dump(mode="json")


@pytest.mark.parametrize(
    ("pattern", "output", "correct"),
    [
        (r"Answer: (\d+)", "2+3=5. Answer: 5", True),
        (r"Answer: (\d+)", "Answer: 4. No, Answer: 5", True),
        (r"Answer: (\d+)", "Answer: 5. No, Answer: 4", False),
        (r"Answer: (\d+)", "5", False),
        (r"\d+", "I say 5 it is", True),
        (None, "I say 5 it is", False),
        (None, " 5\n", True),
    ],
)
def test_a_pattern_picks_what_is_checked(pattern: str | None, output: str, correct: bool) -> None:
    """The last match counts, its group where there is one; no match is no answer, whatever else stands there."""
    assert Prompt(prompt="2+3?", answer="5", check="exact", pattern=pattern).is_correct(output) is correct


def test_jsonl_files_take_a_pattern_too(tmp_path: Path) -> None:
    """The same key in a line of a prompts file; a bad one is named with file and line."""
    file = tmp_path / "p.jsonl"
    file.write_text('{"prompt": "2+3?", "answer": "5", "pattern": "= (\\\\d)"}\n')
    assert read_prompts(file)[0].is_correct("2+3 = 5.") is True
    file.write_text('\n{"prompt": "2+3?", "answer": "5", "pattern": "("}\n')
    with pytest.raises(ScenarioError, match=r"p\.jsonl:2: pattern: .*not a regular expression"):
        read_prompts(file)
    file.write_text('{"prompt": "2+3?", "pattern": "."}\n')
    with pytest.raises(ScenarioError, match=r"p\.jsonl:1: .*add an \"answer\""):
        read_prompts(file)


def test_without_the_library_the_message_names_the_extra(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No traceback of an import: what to install."""
    monkeypatch.setitem(__import__("sys").modules, "datasets", None)
    choice = DatasetChoice(path=str(folder / "data"), prompt="{question} or not")
    with pytest.raises(MissingExtraError, match=r"sbd-bench\[eval\]"):
        dataset_prompts(choice, 1)


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The library, with a cache of its own."""
    library = pytest.importorskip("datasets", reason="datasets is not installed: pip install 'sbd-bench[eval]'")
    monkeypatch.setattr(library.config, "HF_DATASETS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(library.config, "HF_HUB_OFFLINE", True)
    library.disable_progress_bars()
    return library


@pytest.mark.parametrize("form", ["folder", "file", "parquet", "csv", "hub"])
def test_rows_become_prompts(folder: Path, library, form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same two rows from every form, the hub's cache among them; numbers as text; braces in a row stay what they are."""
    path, options = folder / "data", {}
    if form == "file":
        path = path / "test.jsonl"
    elif form in ("parquet", "csv"):
        path = folder / f"rows.{form}"
        getattr(library.Dataset.from_list(ROWS), f"to_{form}")(str(path))
    elif form == "hub":
        monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(folder / "hub"))
        commit = "c" * 40
        place = folder / "hub" / "datasets--some--rows" / "snapshots" / commit
        place.mkdir(parents=True)
        for file in path.iterdir():
            (place / file.name).write_bytes(file.read_bytes())
        path, options = Path("some/rows"), {"revision": commit}
    choice = DatasetChoice(
        path=str(path),
        prompt="Q: {question} ({year})\nA:",
        answer="{answer}",
        answer_pattern="#### (.+)",
        check="number",
        **options,
    )
    first, second = dataset_prompts(choice, 2)
    assert (first.prompt, first.answer) == ("Q: 2+3 (1999)\nA:", "5")
    assert (second.prompt, second.answer) == ("Q: 7*{1} (2001)\nA:", "1,007")
    assert second.is_correct("so 1007") is True and second.is_correct("7") is False


WRITTEN = ("2", "007", "1.50", "NA", "None", "true", "12345678901234567890", "2020-01-05", "1e5")


def answers(path: Path, count: int = len(WRITTEN)) -> list[str | None]:
    """As the dataset at ``path`` gives them."""
    return [one.answer for one in dataset_prompts(DatasetChoice(path=str(path), prompt="{q}?", answer="{a}"), count)]


@pytest.mark.parametrize("form", ["file.csv", "folder.csv", "file.jsonl", "file.json"])
@pytest.mark.parametrize("text", WRITTEN)
def test_text_stays_text(tmp_path: Path, capfd: pytest.CaptureFixture[str], library, form: str, text: str) -> None:
    """A column of one kind of text, and a blank further down: what a row has is what the file says, byte by byte."""
    kind, _, suffix = form.partition(".")
    (tmp_path / "data").mkdir()
    file = tmp_path / "data" / f"test.{suffix}"
    rows = [{"q": f"{number}", "a": text} for number in range(3)] + [{"q": "open", "a": None}]
    if suffix == "csv":
        file.write_text("q,a\n" + "".join(f"{row['q']},{row['a'] or ''}\n" for row in rows))
    else:
        file.write_text(json.dumps(rows) if suffix == "json" else "".join(json.dumps(row) + "\n" for row in rows))
    path = file if kind == "file" else file.parent
    assert answers(path, 3) == [text] * 3
    assert not any(capfd.readouterr()), "the library's bar is drawn into ours"
    with pytest.raises(ScenarioError, match="row 3: answer: the field 'a' is NoneType"):
        answers(path, 4)


@pytest.mark.parametrize("written", ["2", "0.10", "12345678901234567890", "9007199254740993", "2.0"])
def test_numbers_of_json_stay_as_written(tmp_path: Path, library, written: str) -> None:
    """Beside a fraction and a null, which make a column of floats."""
    (tmp_path / "n.jsonl").write_text(f'{{"q": 1, "a": {written}}}\n{{"q": 2, "a": 0.5}}\n{{"q": 3, "a": null}}\n')
    assert answers(tmp_path / "n.jsonl", 2) == [written, "0.5"]


@pytest.mark.parametrize("form", ["parquet", "folder"])
def test_whole_numbers_among_floats_are_whole(tmp_path: Path, library, form: str) -> None:
    """A null or a fraction in the column, as pandas and the library store it: 2 and not 2.0."""
    rows = [{"q": "a", "a": 2.0}, {"q": "b", "a": 0.5}, {"q": "c", "a": None}]
    if form == "parquet":
        library.Dataset.from_list(rows).to_parquet(str(tmp_path / "n.parquet"))
    else:
        (tmp_path / "test.jsonl").write_text('{"q": "a", "a": 2}\n{"q": "b", "a": 0.5}\n{"q": "c", "a": null}\n')
    assert answers(tmp_path / "n.parquet" if form == "parquet" else tmp_path, 2) == ["2", "0.5"]


@pytest.mark.parametrize("text", ["3", "[1, 2]", '{"q": 1}\n{"q"\n'])
def test_json_without_rows_is_refused(tmp_path: Path, library, text: str) -> None:
    """In words, without a traceback."""
    (tmp_path / "n.json").write_text(text)
    with pytest.raises(ScenarioError, match=r"cannot read the dataset|n\.json:2: not JSON"):
        answers(tmp_path / "n.json", 1)


@pytest.mark.parametrize(
    ("changes", "count", "words"),
    [
        ({"prompt": "{questoin}"}, 1, "row 0: prompt: the field 'questoin' is not there; fields of this row: question,"),
        ({"answer_pattern": "=== (.+)"}, 1, "row 0: answer_pattern '=== (.+)' matches nothing"),
        ({"answer": "{question}", "answer_pattern": None, "check": "number", "prompt": "{year}"}, 2, None),
        ({}, 3, "3 prompts are asked for, but it has 2 rows"),
        ({"split": "validation"}, 1, "mend path, name or split"),
        ({"name": "socratic"}, 1, "mend path, name or split"),
    ],
)
def test_what_a_dataset_lacks_is_said(folder: Path, library, changes, count: int, words: str | None) -> None:
    """Dataset, row and remedy; nothing is filled up or skipped in silence."""
    keys = {"prompt": "{question}", "answer": "{answer}", "answer_pattern": "#### (.+)"}
    choice = DatasetChoice(path=str(folder / "data"), **(keys | changes))
    if words is None:
        assert [one.answer for one in dataset_prompts(choice, count)] == ["2+3", "7*{1}"]
        return
    with pytest.raises(ScenarioError) as caught:
        dataset_prompts(choice, count)
    assert words in str(caught.value), caught.value


def test_a_commit_that_is_not_here_is_asked_for(folder: Path, library, monkeypatch: pytest.MonkeyPatch) -> None:
    """Offline and not in the cache: which command fetches it."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(folder / "hub"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    choice = DatasetChoice(path="some/rows", revision="d" * 40, prompt="{question}")
    with pytest.raises(ScenarioError, match=f"hf download --repo-type dataset --revision {'d' * 40} some/rows"):
        dataset_prompts(choice, 1)


def test_a_run_on_a_dataset_is_the_run_on_the_same_prompts(tmp_path: Path, library) -> None:
    """The built-in word problems written to a file and read as a dataset: same outputs, same passes, same verdicts."""
    pytest.importorskip("torch")
    from harness.record.store import read_run
    from harness.runner.runner import run
    from harness.workloads.tasks import TASKS, problems

    drawn = problems(TASKS["word_problems"], "test", 6, 2)
    lines = [json.dumps({"question": one.prompt, "worked": one.solution}) for one in drawn]
    (tmp_path / "rows.jsonl").write_text("\n".join(lines))
    part = """\
  - name: {name}
    model: {{reference: sbd}}
    dtype: float32
    arms: [{{method: ntp}}, {{method: sbd, gamma: 0.35}}]
    batch_sizes: [3]
    workload: {{{source}, prompts: 6, max_new_tokens: 80}}
    seed: 2
    warmup: 0
    timed: false
"""
    dataset = (
        "dataset: {path: rows.jsonl, prompt: '{question}', answer: '{worked}', answer_pattern: 'Answer: (.+)', "
        "output_pattern: 'Answer: (.+)'}"
    )
    parts = part.format(name="tasks", source="tasks: [word_problems]") + part.format(name="dataset", source=dataset)
    (tmp_path / "s.yaml").write_text(f"version: 1\nname: both\nparts:\n{parts}")
    held = read_run(run(tmp_path / "s.yaml", tmp_path / "run"))
    found: dict[tuple[str, int], dict[str, list]] = {}
    for sample in held.samples:
        part_name, _, _, arm = sample.case_id.split("/")
        rows = [(row.output_ids, row.correct) for row in sample.rows]
        found.setdefault((arm, sample.group), {})[part_name] = [rows, sample.passes.final_tokens]
    assert len(found) == 4
    for both in found.values():
        assert both["tasks"] == both["dataset"]
    assert any(correct for both in found.values() for _, correct in both["dataset"][0])
