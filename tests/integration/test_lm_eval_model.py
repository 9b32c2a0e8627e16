"""The lm_eval model on a local task of word problems: the accuracy of `sbd run`, likelihoods, and the log of passes."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from importlib import import_module
from pathlib import Path

import pytest

from tests.helpers import ROOT

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
lm_eval = pytest.importorskip("lm_eval", reason="lm_eval is not installed: pip install 'sbd-bench[eval]'")

from harness.errors import ScenarioError
from harness.integrations.lm_eval import SbdModel
from harness.record.store import read_run
from harness.runner.runner import run
from harness.workloads.tasks import TASKS, problems

SEED, COUNT = 2, 12
TASK = """\
task: sbd_word_problems
dataset_path: json
dataset_kwargs:
  data_files: {{test: {file}}}
test_split: test
output_type: generate_until
doc_to_text: "{{{{question}}}}"
doc_to_target: "{{{{answer}}}}"
target_delimiter: ""
generation_kwargs:
  until: ["\\n\\n"]
  max_gen_toks: 80
  do_sample: false
filter_list:
  - name: after-the-mark
    filter:
      - {{function: regex, regex_pattern: 'Answer: (-?\\d+)'}}
      - {{function: take_first}}
metric_list:
  - metric: exact_match
    aggregation: mean
    higher_is_better: true
metadata: {{version: 1}}
"""
SCENARIO = """\
version: 1
name: the_same
parts:
  - name: one
    model: {reference: sbd}
    dtype: float32
    arms: [{method: ntp}, {method: sbd, block_size: 16, gamma: 0.35}]
    batch_sizes: [8]
    workload: {tasks: [word_problems], prompts: 12, max_new_tokens: 80}
    seed: 2
    warmup: 0
    timed: false
"""


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the task, its data, and a cache of the datasets library of its own."""
    folder = tmp_path_factory.mktemp("eval")
    drawn = problems(TASKS["word_problems"], "test", COUNT, SEED)
    lines = [json.dumps({"question": one.prompt, "answer": one.answer, "solution": one.solution}) for one in drawn]
    (folder / "problems.jsonl").write_text("\n".join(lines) + "\n")
    (folder / "task.yaml").write_text(TASK.format(file=folder / "problems.jsonl"))
    (folder / "s.yaml").write_text(SCENARIO)
    return folder


@pytest.fixture(scope="module")
def ours(here: Path) -> dict[str, list[bool]]:
    """What `sbd run` finds: per method, whether each problem is answered correctly."""
    held = read_run(run(here / "s.yaml", here / "run"))
    methods = {case.case_id: case.arm.method for case in held.header.cases}
    found: dict[str, dict[str, bool]] = {}
    for sample in held.samples:
        for row in sample.rows:
            found.setdefault(methods[sample.case_id], {})[row.prompt_id] = bool(row.correct)
    order = [f"word_problems/test/{SEED}/{index}" for index in range(COUNT)]
    return {method: [rows[prompt] for prompt in order] for method, rows in found.items()}


@pytest.fixture(scope="module")
def ntp() -> SbdModel:
    """The reference model with the baseline arm."""
    return SbdModel(pretrained="reference-sbd", arm="ntp", dtype="float32", batch_size=4, device="cpu")


def evaluated(here: Path, log: Path, **model_args) -> dict:
    """The task through lm_eval's own entry, with the model found by its name."""
    from lm_eval.tasks import TaskManager

    return lm_eval.simple_evaluate(
        model="sbd",
        model_args={"pretrained": "reference-sbd", "dtype": "float32", "log": str(log), **model_args},
        tasks=["sbd_word_problems"],
        batch_size=8,
        device="cpu",
        bootstrap_iters=0,
        task_manager=TaskManager(include_path=str(here), include_defaults=False),
    )


@pytest.mark.parametrize(
    ("method", "arm"), [("ntp", {"arm": "ntp"}), ("sbd", {"arm": "sbd", "gamma": 0.35}), ("sbd", {"scenario": True})]
)
def test_it_agrees_with_our_own_run(here: Path, ours, method: str, arm: dict, tmp_path: Path) -> None:
    """Problem by problem, not in the mean alone; passes in the log add up to those of the results, and SBD needs fewer."""
    log = tmp_path / "log.jsonl"
    if "scenario" in arm:
        arm = {"pretrained": None, "dtype": None, "scenario": str(here / "s.yaml"), "arm": "1"}
        arm_args = {key: value for key, value in arm.items() if value is not None}
        results = lm_eval_of_scenario(here, log, arm_args)
    else:
        results = evaluated(here, log, **arm)
    name = "sbd_word_problems"
    correct = {one["doc_id"]: bool(one["exact_match"]) for one in results["samples"][name]}
    assert [correct[index] for index in range(COUNT)] == ours[method]
    assert results["results"][name]["exact_match,after-the-mark"] == pytest.approx(sum(ours[method]) / COUNT)
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    begin, *answers, end = lines
    assert begin["event"] == "begin" and begin["arm"]["method"] == method and end["event"] == "summary"
    assert sorted(one["doc_id"] for one in answers) == list(range(COUNT))
    assert end["passes"] == sum(one["passes"] for one in answers)
    assert all(one["passes"] > 0 and one["decode_s"] > 0 and one["query_tokens"] >= one["passes"] for one in answers)
    if method == "ntp":
        assert end["nfe_speedup"] == 1 and end["query_tokens_per_decode_token"] == 1
    else:
        assert end["nfe_speedup"] > 3


def lm_eval_of_scenario(here: Path, log: Path, model_args: dict) -> dict:
    """The same with an arm of a scenario file."""
    from lm_eval.tasks import TaskManager

    return lm_eval.simple_evaluate(
        model="sbd",
        model_args={"log": str(log), **model_args},
        tasks=["sbd_word_problems"],
        batch_size=8,
        bootstrap_iters=0,
        task_manager=TaskManager(include_path=str(here), include_defaults=False),
    )


class Request:
    """What lm_eval hands a model."""

    def __init__(self, *args) -> None:
        self.args, self.task_name, self.doc_id, self.idx = args, "task", 0, 0


def by_hand(model: SbdModel, context: list[int], answer: list[int]) -> tuple[float, bool]:
    """Token after token through the plain module with its own attention, mask token impossible."""
    from transformers import AutoModelForCausalLM

    from harness.models.choice import REFERENCE_DIR

    module = AutoModelForCausalLM.from_pretrained(REFERENCE_DIR / "sbd", dtype=torch.float64)
    total, greedy, fed = 0.0, True, list(context)
    for token in answer:
        logits = module(torch.tensor([fed])).logits[0, -1]
        logits[model._engine._model.mask_id] = -torch.inf
        total += float(torch.log_softmax(logits, dim=-1)[token])
        greedy = greedy and int(logits.argmax()) == token
        fed.append(token)
    return total, greedy


def test_likelihoods_are_those_of_the_next_token_head(ntp: SbdModel) -> None:
    """Pairs of unlike lengths in one batch, left padding among them, against token-by-token sums in float64."""
    [problem] = problems(TASKS["word_problems"], "test", 1, SEED)
    pairs = [(problem.prompt, problem.solution), (problem.prompt, "Answer: 1"), ("Tom has", " 3"), ("", "Mia buys 4 more")]
    found = ntp.loglikelihood([Request(*pair) for pair in pairs], disable_tqdm=True)
    for (context, answer), (total, greedy) in zip(pairs, found, strict=True):
        # lm_eval counts the white space that ends a context to the continuation.
        before = ntp.tok_encode(context.rstrip()) if context else [ntp.prefix_token_id]
        after = ntp.tok_encode(context + answer)[len(before) :]
        expected = by_hand(ntp, before, after)
        assert total == pytest.approx(expected[0], abs=2e-3) and greedy == expected[1]
    ids = ntp.tok_encode(problem.prompt), ntp.tok_encode(problem.solution, add_special_tokens=False)
    [(total, greedy)] = ntp._loglikelihood_tokens([(("", ""), *ids)])
    assert greedy and -0.1 < total < 0, "its own solution is what it writes"
    whole = ntp.loglikelihood_rolling([Request("Mia buys 4 more")], disable_tqdm=True)
    assert whole == [pytest.approx(found[3][0], abs=1e-3)]


def test_until_ends_an_answer_before_it(ntp: SbdModel) -> None:
    """The stop string is not part of the text, as lm_eval has it; decoding ends there."""
    [problem] = problems(TASKS["word_problems"], "test", 1, SEED)
    [whole] = ntp.generate_until([Request(problem.prompt, {"until": []})], disable_tqdm=True)
    [cut] = ntp.generate_until([Request(problem.prompt, {"until": ["Answer"], "max_gen_toks": 80})], disable_tqdm=True)
    assert whole.strip() == problem.solution and whole.startswith(cut) and cut == whole.split("Answer")[0]
    passes = [one["passes"] for one in ntp._decode_log._found[-2:]]
    assert passes[1] < passes[0]


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({}, "give either pretrained="),
        ({"pretrained": "reference-sbd"}, "arm is missing"),
        ({"pretrained": "reference-sbd", "arm": "sbd"}, "gamma is missing"),
        ({"pretrained": "reference-sbd", "arm": "ntp", "batch_size": "auto"}, "batch_size 'auto'"),
        ({"scenario": "gate", "dtype": "float32"}, "dtype: not beside scenario"),
    ],
)
def test_a_mistake_in_the_arguments_is_named(keys: dict, words: str) -> None:
    """Before anything is loaded, with what to give."""
    with pytest.raises(ScenarioError, match=words):
        SbdModel(**keys)


def test_lm_eval_is_told_where_the_model_is() -> None:
    """The entry point by which an installed sbd-bench is found names the class that registers itself as sbd."""
    from lm_eval.api.registry import get_model

    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]["lm_eval.models"]["sbd"]
    module, _, name = declared.partition(":")
    assert getattr(import_module(module), name) is SbdModel is get_model("sbd")


@pytest.mark.full
def test_the_command_line_runs_it(here: Path, tmp_path: Path) -> None:
    """`sbd eval` as a user runs it: keys of the arm beside its name, results file with passes in it. lm_eval first reads all of
    its own tasks, which takes most of a minute.
    """
    arguments = f"pretrained=reference-sbd,arm=sbd_verified,gamma=0.35,dtype=float32,log={tmp_path / 'log.jsonl'}"
    command = [sys.executable, "-m", "harness", "eval", "--model_args", arguments, "--tasks", "sbd_word_problems"]
    more = ["--include_path", str(here), "--limit", "2", "--output_path", str(tmp_path / "out"), "--device", "cpu"]
    done = subprocess.run([*command, *more], capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr[-2000:]
    [results] = (tmp_path / "out").rglob("results_*.json")
    assert json.loads(results.read_text())["config"]["sbd"]["passes"] > 0


@pytest.mark.parametrize(
    ("given", "named"), [([], ["--model", "sbd"]), (["--model", "hf"], []), (["--help"], ["--model", "sbd"])]
)
def test_the_command_hands_everything_to_lm_eval(given, named, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    """Our model where none is named, every argument as it stands, its exit code; a mistake is a sentence and exit code 2."""
    from harness.cli import main

    seen = []

    def pretended() -> None:
        seen.append(list(sys.argv))
        SbdModel(pretrained="reference-sbd", arm="sbd")

    monkeypatch.setattr("lm_eval.__main__.cli_evaluate", pretended)
    monkeypatch.setattr(sys, "argv", ["sbd", "eval", *given, "--tasks", "a,b"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert seen == [["lm_eval", "run", *named, *given, "--tasks", "a,b"]]
    assert ended.value.code == 2 and "gamma is missing" in capsys.readouterr().err
    assert sys.argv[0] == "sbd"
