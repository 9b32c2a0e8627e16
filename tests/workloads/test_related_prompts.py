"""Related prompts from the file that names them to the bound of accuracy that counts them as fewer."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from harness.analysis.answer import compare
from harness.errors import ScenarioError
from harness.record.schema import Run
from harness.record.store import read_run
from harness.runner.runner import run
from harness.scenario.loading import load_scenario
from harness.stats.quantity import Quantity
from harness.workloads.prompts import read_prompts
from harness.workloads.spec import DatasetChoice
from tests.helpers import synthetic_run as synthetic
from tests.helpers.fake_machine import FakeEngine, fake_machine
from tests.helpers.letters import Letters

LINES = [{"prompt": "one", "document": "a"}, {"prompt": "two", "document": "a"}, {"prompt": "three", "document": 7}]
SCENARIO = """\
version: 1
name: related
parts:
  - name: one
    model: {reference: sbd}
    dtype: float32
    arms: [{method: ntp}]
    timed: false
    baseline_check: 0
    workload: {prompts_file: p.jsonl, cluster: document, max_new_tokens: 3}
"""


def written(folder: Path, *lines: dict[str, object], scenario: str = SCENARIO) -> Path:
    """The scenario beside its prompts."""
    (folder / "p.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (folder / "s.yaml").write_text(scenario)
    return folder / "s.yaml"


def test_the_record_says_which_prompts_are_related(tmp_path: Path) -> None:
    """Every row has its label as text; where the workload names no field the record has no such key."""
    from harness.models import KNOWN_SHAPES

    unnamed = SCENARIO.replace("cluster: document, ", "")
    for name, text, wanted in (("with", SCENARIO, ["a", "a", "7"]), ("without", unnamed, None)):
        (tmp_path / name).mkdir()
        lines = LINES if wanted else [{"prompt": line["prompt"]} for line in LINES]
        engine = FakeEngine(KNOWN_SHAPES["llama-250m"])
        engine.tokenizer = Letters()
        scenario = written(tmp_path / name, *lines, scenario=text)
        held = read_run(run(scenario, tmp_path / name / "out", machine=fake_machine(engine)))
        rows = {row.prompt_id: row for sample in held.samples for row in sample.rows}
        assert [rows[f"p/{i}"].cluster for i in range(3)] == (wanted or [None] * 3)
        assert ("cluster" in rows["p/0"].model_dump()) == (wanted is not None)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ({"prompt": "x"}, r"p\.jsonl:2: has no field 'document', and cluster: names it; give it in every row"),
        ({"prompt": "x", "document": None}, r"p\.jsonl:2: 'document' is NoneType, not text or a whole number"),
        ({"prompt": "x", "document": "a", "cluster": "b"}, r"p\.jsonl:2: \"cluster\" is read only where"),
    ],
)
def test_a_row_without_the_field_is_named(tmp_path: Path, line: dict[str, object], words: str) -> None:
    """File and line, when the scenario is loaded; nothing is taken for unrelated in silence."""
    with pytest.raises(ScenarioError, match=words):
        load_scenario(written(tmp_path, LINES[0], line))


def test_a_field_of_a_prompt_can_be_the_one_that_is_shared(tmp_path: Path) -> None:
    """Questions with the same answer, say: the field keeps its own meaning; a key that nobody names is still refused."""
    file = written(tmp_path, {"prompt": "x", "answer": "yes"}).with_name("p.jsonl")
    (found,) = read_prompts(file, "answer")
    assert (found.answer, found.cluster) == ("yes", "yes")
    written(tmp_path, {"prompt": "x", "document": "a"})
    with pytest.raises(ScenarioError, match="document"):
        read_prompts(file)


@pytest.mark.parametrize("source", ["synthetic: {prompt_tokens: 8}, prompts: 4", "tasks: [word_problems], prompts: 4"])
def test_built_in_prompts_have_no_such_field(tmp_path: Path, source: str) -> None:
    """They are drawn one by one."""
    with pytest.raises(ScenarioError, match="cluster names a field of a prompts_file or a dataset"):
        load_scenario(written(tmp_path, scenario=SCENARIO.replace("prompts_file: p.jsonl", source)))


def test_rows_of_a_dataset_name_their_relatives(monkeypatch: pytest.MonkeyPatch) -> None:
    """The field of the row, or the dataset and the row that lacks it."""
    from harness.workloads import datasets

    rows = [{"question": "x", "title": "a"}, {"question": "y"}]
    monkeypatch.setattr(datasets, "read_rows", lambda choice: rows)
    choice = DatasetChoice(path="some/rows", prompt="{question} and its relatives")
    assert [one.cluster for one in datasets.dataset_prompts(choice, 1, "title")] == ["a"]
    with pytest.raises(ScenarioError, match="some/rows, test, row 1: has no field 'title'"):
        datasets.dataset_prompts(choice, 2, "title")


def labelled(held: Run, size: int) -> Run:
    """Prompts i, i + 1, ... of each ``size`` ask about the same text."""
    return synthetic.with_rows(held, lambda _, row: {"cluster": str(int(row.prompt_id[1:]) // size)})


def losses(held: Run) -> tuple[Quantity, Quantity]:
    """Of the first SBD arm: the difference to NTP as a share, and the loss in points."""
    found = next(arm for arm in compare(held).summary("reference", 50).arms if not arm.is_ntp)
    return found.accuracy_difference, found.figures["accuracy_loss_points"]


def test_equal_answers_to_related_prompts_show_less() -> None:
    """1,000 equal answers show a loss within 1 point; about 100 texts they are 100: 1 - 0.025^(1/100) may be lost."""
    arms = tuple(replace(arm, wrong=frozenset(range(0, 1_000, 20))) for arm in synthetic.ARMS[:2])
    held = synthetic.build(prompts=1_000, batch_size=50, timed=False, arms=arms)
    alone, points = losses(held)
    assert alone.low > -0.01 and points.high == pytest.approx(-100 * alone.low)
    related, points = losses(labelled(held, 10))
    assert related.low == pytest.approx(0.025 ** (1 / 100) - 1) and points.high == pytest.approx(-100 * related.low)
    assert related.n == alone.n == 1_000
    assert losses(labelled(held, 1))[0] == alone


def test_the_record_knows_equal_prompts_by_their_ids(tmp_path: Path) -> None:
    """The digest is of the ids: two texts of the same ids have one, and two prompts of other ids never."""
    from harness.models import KNOWN_SHAPES

    class Stripping(Letters):
        """As a chat template does, which trims a message."""

        def encode(self, text: str) -> list[int]:
            return super().encode(text.strip())

    engine = FakeEngine(KNOWN_SHAPES["llama-250m"])
    engine.tokenizer = Stripping()
    lines = [{"prompt": "one"}, {"prompt": "two"}, {"prompt": " one"}]
    scenario = written(tmp_path, *lines, scenario=SCENARIO.replace("cluster: document, ", ""))
    held = read_run(run(scenario, tmp_path / "run", machine=fake_machine(engine)))
    digests = {row.prompt_id: row.prompt_digest for one in held.samples for row in one.rows}
    assert digests["p/0"] == digests["p/2"] != digests["p/1"] and all(digests.values())
    assert compare(held).cells[0].arms[0].prompts == 2
