"""The built-in tasks judge every decoding method, so their solutions are recomputed here from the prompts alone."""

from __future__ import annotations

import json
import random
import re
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.workloads.tasks import TASKS, Problem, Task, problem_at, problems, split_of

NAMES = list(TASKS)
SPLITS = ("train", "validation", "test")
SEEDS = st.integers(min_value=0, max_value=2**32)


def drawn(name: str, seed: int) -> Problem:
    return TASKS[name].draw(random.Random(seed))


def many(name: str, count: int = 2000) -> list[Problem]:
    rng = random.Random(7)
    return [TASKS[name].draw(rng) for _ in range(count)]


def calculate(left: int, sign: str, right: int) -> int:
    return {"+": left + right, "-": left - right, "*": left * right}[sign]


def run_program(statements: list[tuple[str, str]]) -> tuple[dict[str, int], dict[str, set[str]]]:
    """Return every value, and for every variable the statements' names on the path to it."""
    values: dict[str, int] = {}
    path: dict[str, set[str]] = {}
    for name, expression in statements:
        parts = re.findall(r"[a-z]|\d+|[-+*]", expression)
        read = [values[part] if part.isalpha() else int(part) for part in parts[::2]]
        values[name] = read[0] if len(read) == 1 else calculate(read[0], parts[1], read[1])
        path[name] = {name}.union(*(path[part] for part in parts[::2] if part.isalpha()))
    return values, path


@pytest.mark.parametrize("name", NAMES)
@given(seed=SEEDS)
@settings(max_examples=50, deadline=None)
def test_own_solution_is_accepted(name: str, seed: int) -> None:
    """Every task accepts its own solution and writes plain ASCII that ends as promised."""
    problem = drawn(name, seed)
    assert TASKS[name].is_correct(problem, problem.solution)
    assert TASKS[name].is_correct(problem, f" {problem.solution}\n")
    assert problem.task == name
    assert (problem.prompt + problem.solution).isascii()
    assert problem.prompt.endswith("\n") and not problem.solution.endswith("\n")


@pytest.mark.parametrize("name", NAMES)
@given(seed=SEEDS, data=st.data())
@settings(max_examples=50, deadline=None)
def test_corrupted_answer_is_rejected(name: str, seed: int, data: st.DataObject) -> None:
    """Changing one digit of the answer, cutting its last character or writing nothing is wrong."""
    problem = drawn(name, seed)
    start = problem.solution.rindex(problem.answer)
    digits = [i for i in range(start, len(problem.solution)) if problem.solution[i].isdigit()]
    assert not TASKS[name].is_correct(problem, "")
    assert not TASKS[name].is_correct(problem, problem.solution[:-1])
    assert not TASKS[name].is_correct(problem, problem.solution + "7")
    if digits:
        at = data.draw(st.sampled_from(digits))
        other = str((int(problem.solution[at]) + data.draw(st.integers(1, 9))) % 10)
        assert not TASKS[name].is_correct(problem, problem.solution[:at] + other + problem.solution[at + 1 :])


@pytest.mark.parametrize("name", NAMES)
@given(seed=SEEDS, text=st.text(), mark=st.booleans())
@settings(max_examples=150, deadline=None)
def test_checkers_never_raise_on_arbitrary_text(name: str, seed: int, text: str, mark: bool) -> None:
    """Whatever a model writes, a checker returns a bool."""
    assert isinstance(TASKS[name].is_correct(drawn(name, seed), f"Answer:{text}" if mark else text), bool)


@pytest.mark.parametrize("text", ["[" * 200_000, '{"id":' * 200_000, '{"id":' + "9" * 10_000 + "}", "NaN", "\ud800"])
@pytest.mark.parametrize("name", NAMES)
def test_checkers_never_raise_on_hostile_text(name: str, text: str) -> None:
    """Absurd nesting, huge integers and lone surrogates are wrong answers, not crashes."""
    assert TASKS[name].is_correct(drawn(name, 1), text) is False


def test_word_problem_equations_hold() -> None:
    """Every equation holds, every number comes from the story or an earlier result, nothing leaves 0..99."""
    for problem in many("word_problems"):
        known = re.findall(r"\d+", problem.prompt)
        equations = re.findall(r"(\d+)([-+*])(\d+)=(-?\d+)\.", problem.solution)
        assert len(equations) == problem.level in (2, 3)
        for left, sign, right, result in equations:
            assert calculate(int(left), sign, int(right)) == int(result)
            assert 0 <= int(result) <= 99 and left in known and right in known
            known.append(result)
        assert set(re.findall(r"\d+", problem.prompt)) <= {part for e in equations for part in (e[0], e[2])}
        assert equations[-1][3] == problem.answer and TASKS["word_problems"].is_correct(problem, problem.solution)


def test_record_values_come_from_the_prompt() -> None:
    """Every value stands in the prompt, keys are in canonical order and numbers are numbers."""
    order = ["id", "name", "age", "city", "role", "team", "since", "language"]
    for problem in many("record_to_json"):
        record = json.loads(problem.solution)
        assert list(record) == [key for key in order if key in record] and len(record) == problem.level
        assert all(re.search(rf"\b{value}\b", problem.prompt) for value in record.values())
        assert {key for key, value in record.items() if isinstance(value, int)} == record.keys() & {"id", "age", "since"}
        numbers = sorted(re.findall(r"\d+", problem.prompt))
        assert numbers == sorted(str(value) for value in record.values() if isinstance(value, int))


def test_record_types_are_compared() -> None:
    """Key order is free, but text for a number, a float or an extra key is wrong."""
    problem = Problem(task="record_to_json", prompt="", solution="", answer='{"name":"Ana Reed","age":34}', level=2)
    check = TASKS["record_to_json"].is_correct
    assert check(problem, '{ "age": 34, "name": "Ana Reed" }')
    for wrong in ('"34"', "34.0", "35", "null", "[34]", '34,"id":1'):
        assert not check(problem, f'{{"name":"Ana Reed","age":{wrong}}}')


@pytest.mark.parametrize(("name", "lengths", "hard_share"), [("variable_trace", {3, 4, 5}, 0.24), ("short_trace", {3}, 0.0)])
def test_traces_match_an_independent_run(name: str, lengths: set[int], hard_share: float) -> None:
    """Values follow from the program; hard products occur in level 2 only, once, on the printed path."""
    found, seen = many(name, 6000), set()
    for problem in found:
        statements = re.findall(r"([a-z])=([a-z0-9+*-]+)", problem.prompt)
        values, path = run_program(statements)
        printed = re.findall(r"\b[a-z]\b", problem.prompt)[-1]
        trace = "".join(f"{name}={values[name]}\n" for name, _ in statements)
        assert problem.solution == f"{trace}Answer: {values[printed]}" and problem.answer == str(values[printed])
        seen.add(len(statements))
        assert min(values.values()) >= 0
        hard = [name for name, expression in statements if "*" in expression and values[name] >= 10_000]
        assert len(hard) == (problem.level == 2)
        assert problem.level == 1 or hard[0] in path[printed]
        assert problem.level == 2 or max(values.values()) <= 99
    share = sum(problem.level == 2 for problem in found) / len(found)
    assert abs(share - hard_share) < 0.02 and seen == lengths


def test_a_problem_has_the_same_split_in_every_task_of_its_family() -> None:
    """A short program held out for testing was never in the training data of the longer ones."""
    short = problems(TASKS["short_trace"], "test", 300, seed=1)
    assert {split_of(replace(problem, task="variable_trace")) for problem in short} == {"test"}
    assert {split_of(replace(problem, family="")) for problem in short} == set(SPLITS), "the task's name would split otherwise"


@pytest.mark.parametrize("entry", TASKS.values(), ids=NAMES)
def test_splits_are_disjoint(entry: Task) -> None:
    """10,000 train prompts share nothing with 2,000 distinct test prompts."""
    train = {problem.prompt for problem in problems(entry, "train", 10_000, seed=1)}
    test = [problem.prompt for problem in problems(entry, "test", 2_000, seed=2)]
    assert len(set(test)) == 2_000 and train.isdisjoint(test)
    assert len(train) > 9_900


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("entry", TASKS.values(), ids=NAMES)
def test_splits_are_reproducible(entry: Task, split: str) -> None:
    """The same seed gives the same problems, one index needs no other, and another seed differs."""
    first = problems(entry, split, 40, seed=3)
    assert first == problems(entry, split, 40, seed=3) != problems(entry, split, 40, seed=4)
    assert problem_at(entry, split, 3, 17) in first
    assert {split_of(problem) for problem in first} == {split}
    assert first[:10] == problems(entry, split, 10, seed=3)


def test_too_small_task_is_reported() -> None:
    """A task with few problems gives a clear error in place of an endless loop."""

    class Tiny:
        name = "tiny"
        description = "three problems"

        def __init__(self, prompts: list[str]) -> None:
            self.prompts = prompts

        def draw(self, rng: random.Random) -> Problem:
            return Problem(task="tiny", prompt=rng.choice(self.prompts), solution="", answer="", level=1)

        def is_correct(self, problem: Problem, output: str) -> bool:
            return False

    with pytest.raises(ValueError, match="distinct test problems"):
        problems(Tiny([str(i) for i in range(64)]), "test", 60, seed=0)
    missing = "test" if split_of(Tiny(["a"]).draw(random.Random(0))) != "test" else "train"
    with pytest.raises(ValueError, match="too few distinct problems"):
        problem_at(Tiny(["a"]), missing, 0, 0)


def test_a_negative_count_is_refused() -> None:
    """It would otherwise give every problem there is."""
    with pytest.raises(ValueError, match="negative"):
        problems(TASKS["word_problems"], "test", -1, seed=0)
