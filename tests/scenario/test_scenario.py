"""Scenario files: what is accepted, what is refused, and that a refusal names file, line, key and remedy."""

from __future__ import annotations

import json
import textwrap
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.config_file import read_yaml
from harness.errors import ScenarioError, UnknownModelError, UnknownTaskError, UserError
from harness.scenario.loading import find_scenario, load_scenario, scenario_digest, shipped_names
from harness.scenario.scenario import Scenario
from tests.helpers import ROOT
from tests.helpers.scenarios import GOOD, write


def refused(folder: Path, old: str, new: str, kind: type[UserError] = ScenarioError) -> str:
    """The message for GOOD with one passage replaced."""
    assert old in GOOD
    with pytest.raises(kind) as caught:
        load_scenario(write(folder, GOOD.replace(old, new)))
    return str(caught.value)


def test_defaults_and_axes(tmp_path: Path) -> None:
    """A value that is not a list is an axis with one value; what is left out has the documented default."""
    part = load_scenario(write(tmp_path, GOOD)).parts[0]
    assert part.arms[1].block_size == (16,) and part.arms[1].gamma == (0.0, 0.35)
    assert (part.device, part.attention, part.batch_sizes) == ("cpu", "sdpa", (1,))
    assert (part.repeats, part.warmup, part.seed, part.timed) == (1, 4, 1, True)


@pytest.mark.parametrize("name", shipped_names(ROOT / "scenarios"))
def test_shipped_scenarios_load_and_survive_the_record(name: str) -> None:
    """Every shipped file loads by its bare name, and its dump as JSON is read back as the same scenario."""
    scenario = load_scenario(name)
    assert scenario.name == name
    dumped = json.loads(json.dumps(scenario.model_dump(mode="json")))
    assert Scenario.model_validate(dumped) == scenario
    assert scenario_digest(dumped) == scenario_digest(scenario.model_dump(mode="json"))


@pytest.mark.parametrize(
    ("old", "new", "line", "key", "words"),
    [
        ("name: small", "name: small\nname: other", 3, "name", ["the key is given twice, first on line 2"]),
        ("dtype: bfloat16", "dtpye: bfloat16", 6, "parts.0.dtpye", ["unknown key", "did you mean 'dtype'"]),
        ("gamma: [0, 0.35]", "gama: 1", 9, "parts.0.arms.1.gama", ["unknown key", "did you mean 'gamma'"]),
        ("gamma: [0, 0.35]", "gamma: [0, -0.1]", 9, "parts.0.arms.1.gamma.1", ["-0.1", "greater than or equal to 0"]),
        ("gamma: [0, 0.35]", "gamma: .inf", 9, "parts.0.arms.1.gamma", ["finite"]),
        ("gamma: [0, 0.35]", "gamma: [0, 0]", 9, "parts.0.arms.1.gamma", ["given twice"]),
        ("gamma: [0, 0.35]", "temperature: 0", 9, "parts.0.arms.1", ["gamma is missing"]),
        ("gamma: [0, 0.35]", "gamma: 1, acceptance: {replay: {nfe_speedup: 2}}", 9, "parts.0.arms.1", ["remove gamma"]),
        ("gamma: [0, 0.35]", "acceptance: {replay: {nfe_speedup: 17}}", 9, "parts.0.arms.1", ["17", "block size 16"]),
        ("gamma: [0, 0.35]", "acceptance: {replay: {trace: x}}", 9, "parts.0.arms.1.acceptance.replay.trace", ["recorded run"]),
        ("gamma: [0, 0.35]", "acceptance: {replay: {nfe_speed: 2}}", 9, "parts.0.arms.1.acceptance.replay", ["nfe_speedup"]),
        ("block_size: 16", "block_size: 0", 9, "parts.0.arms.1.block_size", ["0", "greater than or equal to 1"]),
        ("block_size: 16", 'block_size: "16"', 9, "parts.0.arms.1.block_size", ["'16'", "whole number"]),
        ("block_size: 16", "block_size: []", 9, "parts.0.arms.1.block_size", ["empty"]),
        ("{method: ntp}", "{method: ar}", 8, "parts.0.arms.0", ["'ar'", "'ntp', 'sbd'"]),
        ("prompts: 4", "prompts: 0", 12, "parts.0.workload.prompts", ["0", "greater than or equal to 1"]),
        ("prompts: 4\n", "seed: 1\n", 12, "parts.0.workload.seed", ["unknown key"]),
        ("prompts: 4\n      max", "max", 10, "parts.0.workload", ["prompts is missing"]),
        ("synthetic: {prompt_tokens: 8}", "synthetic: {}", 11, "parts.0.workload.synthetic.prompt_tokens", ["required"]),
        ("version: 1", "version: 2", 1, "version", ["2", "1"]),
        ("name: one", "name: a/b", 4, "parts.0.name", ["'a/b'"]),
        ("dtype: bfloat16", "dtype: bf16", 6, "parts.0.dtype", ["'bf16'", "'float32'"]),
        ("dtype: bfloat16", "dtype: bfloat16\n    device: gpu", 7, "parts.0.device", ["'gpu'"]),
        ("dtype: bfloat16", "dtype: bfloat16\n    timed: yes please", 7, "parts.0.timed", ["true or false"]),
        ("dtype: bfloat16", "dtype: bfloat16\n    repeats: many", 7, "parts.0.repeats", ["a number", "standard_error"]),
        ("dtype: bfloat16", "dtype: bfloat16\n    repeats: 0", 7, "parts.0.repeats", ["greater than or equal to 1"]),
        ("dtype: bfloat16", "dtype: bfloat16\n    repeats: {at_mst: 3}", 7, "parts.0.repeats.at_mst", ["did you mean"]),
        ("dtype: bfloat16", "dtype: bfloat16\n    execution: fast", 7, "parts.0.execution", ["'fast'", "'auto'"]),
        ("dtype: bfloat16", "dtype: bfloat16\n    session: plain\n    execution: compiled", 4, "parts.0", ["session: static"]),
        ("dtype: bfloat16", "dtype: bfloat16\n    session: plain\n    execution: graphs", 4, "parts.0", ["session: static"]),
        ("dtype: bfloat16", "dtype: bfloat16\n    attention: flex", 4, "parts.0", ["flex", "device: cuda"]),
        ("dtype: bfloat16", "dtype: bfloat16\n    attention: eager", 4, "parts.0", ["sdpa, flex", "session: plain"]),
        ("dtype: bfloat16", "dtype: bfloat16\n    batch_sizes: [3]", 4, "parts.0", ["do not fill batches of 3"]),
        ("- {method: ntp}", "- {method: ntp}\n      - {method: ntp}", 4, "parts.0", ["two arms make the same case"]),
        ("- {method: ntp}\n", "", 4, "parts.0", ["add {method: ntp}"]),
    ],
)
def test_a_mistake_is_named_with_line_key_and_remedy(
    tmp_path: Path, old: str, new: str, line: int, key: str, words: list[str]
) -> None:
    """Each message starts with file:line: key, and says what was given or what to do."""
    message = refused(tmp_path, old, new)
    lines = [text for text in message.splitlines() if text.startswith(f"{tmp_path / 's.yaml'}:{line}: {key}: ")]
    assert lines, message
    assert all(word in lines[0] for word in words), lines[0]


def test_every_mistake_is_told_at_once(tmp_path: Path) -> None:
    """Two mistakes give two lines, so that a file is mended in one go."""
    message = refused(tmp_path, "dtype: bfloat16", "dtype: x\n    threads: 0")
    assert len(message.splitlines()) == 2


def test_unknown_models_and_tasks_have_errors_of_their_own(tmp_path: Path) -> None:
    """The kind of error tells a program what was wrong; the message lists what is allowed."""
    assert "llama-3.1-8b" in refused(tmp_path, "random: llama-250m", "random: llama-9b", UnknownModelError)
    assert "sbd, ntp_only" in refused(tmp_path, "random: llama-250m", "reference: big", UnknownModelError)
    assert "config.json" in refused(tmp_path, "random: llama-250m", "huggingface: ./nowhere", UnknownModelError)
    assert "one of {reference" in refused(tmp_path, "{random: llama-250m}", "{}", UnknownModelError)
    old = "model: {random: llama-250m}"
    text = GOOD.replace(old, "model: {reference: sbd}").replace("synthetic: {prompt_tokens: 8}", "tasks: [chess]")
    with pytest.raises(UnknownTaskError, match="word_problems"):
        load_scenario(write(tmp_path, text))


def test_a_character_in_two_halves_is_one_and_a_half_is_none(tmp_path: Path) -> None:
    """JSON's spelling of what lies beyond U+FFFF; YAML by itself would make text of it that no file can hold."""
    file = tmp_path / "written.yaml"
    file.write_text('{"here": "\\ud83d\\ude00", "\\ud83d\\ude00": 1}')
    assert read_yaml(file).data == {"here": "\U0001f600", "\U0001f600": 1}
    file.write_text('here: 1\nthere: "\\ud83d"\n')
    with pytest.raises(ScenarioError, match=r"written.yaml:2: .*half of a surrogate pair"):
        read_yaml(file)


@pytest.mark.parametrize(("text", "words"), [("", "empty"), ("a: [", "not valid YAML"), ("- 1", "the file")])
def test_what_is_not_a_scenario_is_refused(tmp_path: Path, text: str, words: str) -> None:
    """Empty files, broken YAML and lists are plain refusals."""
    with pytest.raises(ScenarioError, match=words):
        load_scenario(write(tmp_path, text))


def test_a_scenario_cannot_run_code(tmp_path: Path) -> None:
    """A YAML tag that would call a function is refused and calls nothing."""
    with pytest.raises(ScenarioError, match=r":1: the tag .*os.mkdir is not read here"):
        load_scenario(write(tmp_path, f"a: !!python/object/apply:os.mkdir ['{tmp_path / 'made'}']\n"))
    assert not (tmp_path / "made").exists()


def test_missing_and_unreadable_files(tmp_path: Path) -> None:
    """A path that is not there lists the shipped names; a directory and a binary file say what they are."""
    with pytest.raises(ScenarioError, match="quickstart"):
        load_scenario(tmp_path / "nothing.yaml")
    with pytest.raises(ScenarioError, match="cannot read"):
        load_scenario(tmp_path)
    (tmp_path / "b.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ScenarioError, match="not UTF-8"):
        load_scenario(tmp_path / "b.yaml")


def test_a_path_wins_over_a_shipped_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file in the working directory is never shadowed by a shipped scenario of the same name."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "quickstart").write_text(GOOD)
    assert find_scenario("quickstart") == Path("quickstart")


def with_prompts(tmp_path: Path, lines: str, count: str = "") -> Path:
    """A scenario beside a prompts file."""
    (tmp_path / "p.jsonl").write_text(lines, encoding="utf-8")
    text = GOOD.replace("synthetic: {prompt_tokens: 8}", "prompts_file: p.jsonl").replace("      prompts: 4\n", count)
    return write(tmp_path, text.replace("random: llama-250m", "reference: sbd"))


def test_a_prompts_file_is_found_counted_and_pinned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is looked for beside the scenario, all of it is used, and its digest goes into the resolved scenario."""
    file = with_prompts(tmp_path, '{"prompt": "a"}\n\n{"prompt": "b", "answer": "c"}\n')
    monkeypatch.chdir("/")
    workload = load_scenario(file).parts[0].workload
    assert (workload.prompt_count, workload.prompts_file, workload.task_names) == (2, str(tmp_path / "p.jsonl"), ("p",))
    before = scenario_digest(load_scenario(file).model_dump(mode="json"))
    (tmp_path / "p.jsonl").write_text('{"prompt": "a"}\n{"prompt": "x", "answer": "c"}\n')
    assert scenario_digest(load_scenario(file).model_dump(mode="json")) != before


@pytest.mark.parametrize(
    ("lines", "count", "words"),
    [
        ("", "", "holds no prompt"),
        ('{"prompt": "a"}\nnonsense\n', "", "p.jsonl:2: not JSON"),
        ('{"prompt": ""}\n', "", "p.jsonl:1: prompt"),
        ('{"prompt": "a", "chek": "exact"}\n', "", "did you mean 'check'"),
        ('{"prompt": "a", "check": "exact"}\n', "", 'needs an "answer"'),
        ('{"prompt": "a"}\n', "      prompts: 2\n", "ask for at most 1"),
    ],
)
def test_a_bad_prompts_file_is_refused(tmp_path: Path, lines: str, count: str, words: str) -> None:
    """An empty workload and a bad line are said when the scenario is loaded, not in the middle of a run."""
    with pytest.raises(ScenarioError, match=words):
        load_scenario(with_prompts(tmp_path, lines, count))


def test_baselines_must_be_comparable(tmp_path: Path) -> None:
    """A part without an NTP arm needs another part that has one and decodes the same prompts."""
    second = textwrap.dedent("""\
      - name: two
        model: {random: llama-250m}
        dtype: bfloat16
        baseline: one
        arms: [{method: sbd, gamma: 0.1}]
        workload: {synthetic: {prompt_tokens: 8}, prompts: 4, max_new_tokens: 16}
    """)
    text = GOOD + textwrap.indent(second, "  ")
    assert load_scenario(write(tmp_path, text)).parts[1].baseline == "one"
    for old, new, words in (
        ("baseline: one", "baseline: three", "allowed: one"),
        ("baseline: one", "baseline: two", "not another part"),
        ("prompts: 4, max", "prompts: 8, max", "prompts differ"),
        ("baseline: one", "baseline: one\n    seed: 2", "seed differ"),
    ):
        with pytest.raises(ScenarioError, match=words):
            load_scenario(write(tmp_path, text.replace(old, new)))


def test_scenarios_are_frozen(tmp_path: Path) -> None:
    """A loaded scenario is a value."""
    with pytest.raises(ValueError, match="frozen"):
        load_scenario(write(tmp_path, GOOD)).name = "x"


def test_the_schema_speaks_of_lists_and_single_values() -> None:
    """Editors complete from the schema: an axis is a value or a list, and unknown keys are marked."""
    schema = Scenario.model_json_schema()
    assert schema["additionalProperties"] is False
    gamma = json.dumps(schema["$defs"]["SbdArm"]["properties"]["gamma"])
    assert '"array"' in gamma and '"number"' in gamma


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_no_file_ever_escapes_as_another_exception(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    """Any piece of YAML data at any place of a good file is accepted or refused by our own error, never a crash."""
    anything = st.recursive(
        st.none() | st.booleans() | st.integers(-3, 3) | st.floats() | st.text("ab:{}%", max_size=4),
        lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text("ab", max_size=2), inner, max_size=2),
        max_leaves=4,
    )
    document = yaml.safe_load(GOOD)
    where = data.draw(st.sampled_from(["version", "name", "parts", "model", "dtype", "arms", "workload", "batch_sizes"]))
    (document if where in document else document["parts"][0])[where] = data.draw(anything)
    file = write(tmp_path_factory.mktemp("any"), yaml.safe_dump(document))
    try:
        load_scenario(file)
    except UserError as error:
        assert str(error).startswith(f"{file}:")
