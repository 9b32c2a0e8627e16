"""The CI files: of those under docs/ci every sbd line is known, and those without a model are run; our own call real targets.

tests/integration/test_ci_gate.py runs the action and the component.
"""

from __future__ import annotations

import json
import re
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
import yaml

from harness.record.schema import Run
from tests.helpers import ROOT
from tests.helpers.ci_steps import component_job
from tests.helpers.command_lines import gates, refusal, run_lines, sbd_lines
from tests.helpers.synthetic_run import Part, build
from tests.helpers.two_runs import stored

CI = ROOT / "docs" / "ci"
FILES = {name: yaml.safe_load((CI / name).read_text(encoding="utf-8")) for name in ("github-actions.yml", "gitlab-ci.yml")}
ACTION = yaml.safe_load((CI / "action.yml").read_text(encoding="utf-8"))


@pytest.mark.parametrize("file", FILES)
def test_the_files_are_found(file: str) -> None:
    """In each the commands that the jobs are about, and two gates: of counts on any machine, of times on one's own."""
    found = sbd_lines(f"docs/ci/{file}")
    assert {words[0] for words in found} == {"run", "verify", "history", "publish", "gallery"}
    assert [words for words in found if words[:2] == ("run", "scenarios/gate.yaml") and words[-1] == "{out}"]
    counts, times = gates(FILES[file])
    assert "deterministic-only" not in counts and str(times["deterministic-only"]).lower() == "false"
    assert counts["name"] != times["name"], "each has a comment of its own"


@pytest.mark.parametrize("file", FILES)
def test_gates_are_given_what_they_take(file: str) -> None:
    """The names of inputs; the words that are passed on are words of `sbd gate`."""
    [component, _] = yaml.safe_load_all((CI / "gitlab-component.yml").read_text(encoding="utf-8"))
    known = set(ACTION["inputs"]), set(component["spec"]["inputs"])
    assert known[0] - known[1] == {"token"}, "one interface on both platforms; GitLab's token is a variable"
    for inputs in gates(FILES[file]):
        assert set(inputs) <= known["include" in FILES[file]]
        assert refusal(("gate", *inputs["options"].split())) is None


SCHEMAS = {
    "action.yml": "github-actions",
    "github-actions.yml": "github-workflows",
    "gitlab-ci.yml": "gitlab-ci",
    "gitlab-component.yml": "gitlab-ci",
}
OWN = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


def refused(file: str, text: str) -> list[str]:
    """What SchemaStore's schema of the platform's files finds wrong; check-jsonschema ships these schemas."""
    vendored = pytest.importorskip("check_jsonschema", reason="the extra [dev] brings check-jsonschema").__path__[0]
    jsonschema = pytest.importorskip("jsonschema")
    name = SCHEMAS.get(file, "github-workflows")
    schema = json.loads((Path(vendored) / "builtin_schemas" / "vendor" / f"{name}.json").read_text(encoding="utf-8"))
    checker = jsonschema.validators.validator_for(schema)(schema)
    found = []
    for document in yaml.load_all(text, Loader=WordsStayWords):
        if file == "gitlab-component.yml" and "spec" not in document:
            _, body = component_job(CI / file, {"prepare": ["true"]})
            document = {"sbd-gate": body}
        found += [error.message for error in checker.iter_errors(document)]
    return found


class WordsStayWords(yaml.SafeLoader):
    """YAML 1.2 as both platforms read it: ``on`` is a word."""


WordsStayWords.yaml_implicit_resolvers = {
    key: found for key, found in yaml.SafeLoader.yaml_implicit_resolvers.items() if key not in tuple("oOyYnN")
}


@pytest.mark.parametrize("file", SCHEMAS)
def test_the_files_are_what_the_platforms_read(file: str) -> None:
    """Every file, and the same with a misspelt key is refused."""
    text = (CI / file).read_text(encoding="utf-8")
    assert refused(file, text) == []
    wrong = {"action.yml": "  using: composite", "github-actions.yml": "    runs-on: ubuntu", "gitlab-ci.yml": "  script:"}
    if file in wrong:
        assert refused(file, text.replace(wrong[file], wrong[file].replace(":", "x:")))


@pytest.mark.parametrize("file", OWN, ids=lambda file: file.name)
def test_our_own_workflows_call_targets_that_exist_and_actions_by_their_commit(file: Path) -> None:
    """What SchemaStore's schema takes; `make` of a target of the Makefile; nobody can move what an action's name means."""
    text = file.read_text(encoding="utf-8")
    assert refused(file.name, text) == [] and refused(file.name, text.replace("runs-on:", "runs-onx:"))
    jobs = yaml.safe_load(text)["jobs"].values()
    steps = [step for job in jobs for step in job["steps"]]
    used = [step["uses"] for step in steps if "uses" in step]
    assert used and all(re.fullmatch(r"[\w./-]+@[0-9a-f]{40}", one) for one in used)
    targets = {word for step in steps for word in re.findall(r"make ([\w-]+)", step.get("run", ""))}
    targets |= {target for job in jobs for target in job.get("strategy", {}).get("matrix", {}).get("target", ())}
    made = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    assert targets and targets <= made, targets - made


def varied() -> Run:
    """A run in which every second prompt takes half the passes, so that there is a spread to make an interval of."""
    usual = build(Part(jitter=0.05))
    quick_arms = tuple(replace(arm, passes_per_block=arm.passes_per_block // 2) if arm.gamma else arm for arm in Part().arms)
    fast = build(Part(arms=quick_arms, jitter=0.05))
    samples = [(one, quick)[one.group % 2] for one, quick in zip(usual.samples, fast.samples, strict=True)]
    return usual.model_copy(update={"samples": samples})


@pytest.mark.parametrize("file", FILES)
def test_the_lines_that_need_no_model_run(
    file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In their order, on synthetic runs where `sbd run` would leave its own: all pass, and leave the files that they name."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SBD_HISTORY", str(tmp_path / "history.sqlite"))
    stored(varied(), tmp_path / "runs" / "nightly")
    ran = [words for words in sbd_lines(f"docs/ci/{file}") if words[0] != "run"]
    assert [words[0] for words in ran].count("history") == 2
    run_lines(ran, monkeypatch, capsys, {})
    named = [word.rpartition("=")[2] for words in ran for option, word in pairwise(words) if option in ("--to", "--html")]
    assert len(named) > 3 and [name for name in named if name != "-" and not (tmp_path / name).stat().st_size] == []
    assert (tmp_path / "published" / "index.html").is_file() and (tmp_path / "published" / "42" / "run.json").is_file()


# ---- what a careful reviewer asks of a workflow


def test_the_workflow_has_no_more_rights_than_it_needs() -> None:
    """Reading, and one right more where a job needs it; no trigger that gives a fork's code the rights of the repository."""
    data = FILES["github-actions.yml"]
    assert data["permissions"] == {"contents": "read"}
    assert set(data[True]) == {"pull_request", "push", "schedule", "workflow_dispatch"}  # YAML 1.1 reads on: as true
    for name, job in data["jobs"].items():
        comments = any(step.get("uses") == "./docs/ci" for step in job["steps"])
        rights = {"contents": "read", "pull-requests": "write"} if comments else None
        assert job.get("permissions") == ({"pages": "write", "id-token": "write"} if name == "pages" else rights), name
        assert job["timeout-minutes"] <= 120, name


def test_nothing_of_others_is_unpinned_and_no_expression_is_in_a_script() -> None:
    """Actions of GitHub alone, by commit; `${{ }}` in a script is a place to inject commands."""
    steps = [step for job in FILES["github-actions.yml"]["jobs"].values() for step in job["steps"]]
    for step in [*steps, *ACTION["runs"]["steps"]]:
        if step.get("uses", "./docs/ci") != "./docs/ci":
            assert re.fullmatch(r"actions/[a-z-]+@[0-9a-f]{40}", step["uses"]), step["uses"]
        assert "${{" not in step.get("run", "")
    [job] = [one for one in yaml.safe_load_all((CI / "gitlab-component.yml").read_text(encoding="utf-8")) if "spec" not in one]
    assert "$[[" not in "".join(line for body in job.values() for name in ("script", "after_script") for line in body[name])


def test_a_fork_never_reaches_the_bench_machine() -> None:
    """Whatever runs a pull request on a machine of one's own asks first where it comes from."""
    jobs = FILES["github-actions.yml"]["jobs"].values()
    own = [job["if"] for job in jobs if "self-hosted" in job["runs-on"]]
    assert len(own) == 2
    for condition in own:
        assert "pull_request" not in condition or "head.repo.full_name == github.repository" in condition
    [component, _] = yaml.safe_load_all((CI / "gitlab-component.yml").read_text(encoding="utf-8"))
    usual, data = component["spec"]["inputs"]["if"]["default"], FILES["gitlab-ci.yml"]
    rules = [inputs.get("if", usual) for inputs in gates(data) if "tags" in inputs]
    rules += [rule["if"] for job in data.values() if isinstance(job, dict) and "tags" in job for rule in job["rules"]]
    assert len(rules) == 2
    for rule in rules:
        assert "merge_request" not in rule or "SOURCE_PROJECT_ID == $CI_PROJECT_ID" in rule


def test_the_readme_tells_formats_that_there_are_and_every_exit_code() -> None:
    """The help of `--to` lists the formats by itself; the table says what to do with them."""
    from harness import errors
    from harness.reporting.exports import FORMATS

    text = (CI / "README.md").read_text(encoding="utf-8")
    told = re.findall(r"^\| (`[^|]*) \|", text.partition("| FORMAT |")[2], re.MULTILINE)
    assert set(re.findall(r"`([a-z-]+)`", " ".join(told))) <= set(FORMATS) and told
    codes = [value for name, value in vars(errors).items() if name.startswith("EXIT_")]
    assert [code for code in codes if f"\n| {code} | " not in text] == []
