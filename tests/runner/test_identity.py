"""The same run, or none: other weights, another machine or another program are refused by name, before anything is measured."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from harness.errors import UserError
from harness.models import KNOWN_SHAPES, digests
from harness.models.choice import HuggingFaceModel, RandomModel
from harness.models.digests import file_digest, model_digests
from harness.record.identity import ITEMS, allowed_items, differences, machine_facts
from harness.record.same import LATER_FACTS
from harness.record.store import read_run
from harness.runner import identity, sample_taking, worker
from harness.runner.job import Job
from harness.runner.options import RunOptions
from harness.runner.runner import run
from tests.helpers.begun_runs import make_header
from tests.helpers.child_processes import InThisProcess
from tests.helpers.fake_machine import SCENARIO, FakeEngine, fake_machine
from tests.helpers.sealed_lines import reseal

SHAPE = KNOWN_SHAPES["llama-250m"]
CONFIG = {
    "model_type": "llama",
    "vocab_size": 64,
    "hidden_size": 16,
    "intermediate_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 8,
    "max_position_embeddings": 256,
}


def checkpoint(folder: Path) -> Path:
    """A folder with the files of a checkpoint; nothing in them is ever loaded."""
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(CONFIG))
    (folder / "tokenizer.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(b"weights")
    return folder


@pytest.fixture
def scenario(tmp_path):
    """A model of a folder, and a draft model of another."""
    checkpoint(tmp_path / "model")
    checkpoint(tmp_path / "draft")
    file = tmp_path / "fake.yaml"
    text = SCENARIO.replace("{random: llama-250m}", "{huggingface: ./model}")
    drafting = "{method: draft_model, draft: {huggingface: ./draft}}"
    rest = text.partition("arms: ")[2].partition("\n")[0]
    file.write_text(text.replace(rest, f"[{{method: ntp}}, {drafting}]"))
    return file


@pytest.fixture
def begun(scenario, tmp_path):
    """A run that was interrupted at its 15th decode."""
    out = tmp_path / "out"
    with pytest.raises(KeyboardInterrupt):
        go_on(scenario, out, FakeEngine(fail_at=14, error=KeyboardInterrupt()))
    assert len(read_run(out).samples) == 14
    return out


def go_on(scenario, out, engine=None, allow=()):
    """The same command again; returns the record and the engine."""
    engine = engine or FakeEngine()
    run(Job.of(scenario, RunOptions(allow=tuple(allow))), out, machine=fake_machine(engine))
    return read_run(out), engine


def rewritten(name):
    """A file of the model or the draft model that another version of it has."""
    return lambda tmp_path, patch: (tmp_path / name).write_bytes(b'{"other": 1}')


def retold(**changes):
    """Another environment."""

    def change(tmp_path, patch):
        real = worker.snapshot
        patch.setattr(worker, "snapshot", lambda: real() | changes)

    return change


def other_config(tmp_path, patch):
    """The stop token has changed."""
    (tmp_path / "model" / "config.json").write_text(json.dumps(CONFIG | {"eos_token_id": 7}))


def edited_source(tmp_path, patch):
    """One module of the package reads otherwise."""
    patch.setattr(identity, "source_digest", lambda: "0" * 64)


def other_prompts(tmp_path, patch):
    """The same prompts, rendered otherwise: a template that asks for the day."""
    real = sample_taking.prompt_items
    patch.setattr(sample_taking, "prompt_items", lambda *asked: [replace(one, ids=(*one.ids, 9)) for one in real(*asked)])


@pytest.mark.parametrize(("name", "seen"), [("a.py", True), ("a.cpp", True), ("a.h", True), ("a.csv", True), ("a.md", False)])
def test_an_edit_of_the_source_shows(tmp_path, monkeypatch, name, seen):
    """Kernels are source as modules and tables are."""
    monkeypatch.setattr(identity, "PACKAGE", tmp_path)
    found = []
    for text in ("one", "two"):
        (tmp_path / name).write_text(text)
        found.append(identity.source_digest.__wrapped__())
    assert (found[0] != found[1]) == seen


CHANGES = [
    ("prompts", other_prompts, r"prompts: was [0-9a-f]{12}, is [0-9a-f]{12}"),
    ("caches", retold(caches="3 1M Unified"), "caches: was .*, is 3 1M Unified"),
    ("weights", rewritten("model/model.safetensors"), r"weights: was [0-9a-f]{12}, is [0-9a-f]{12}"),
    ("tokenizer", rewritten("model/tokenizer.json"), "tokenizer: was"),
    ("config", other_config, "config: was"),
    ("drafts", rewritten("draft/model.safetensors"), "drafts: was .*draft [0-9a-f]{12}, is .*draft [0-9a-f]{12}"),
    ("code", edited_source, "code: was [0-9a-f]{12}, is 000000000000"),
    ("cpu", retold(cpu_model="Example CPU", isa_flags=["avx2"]), r"cpu: was .*, is Example CPU \(avx2\)"),
    ("torch", retold(packages={"torch": "9.9", "transformers": "1"}), "torch: was .*, is 9.9\n  transformers: was .*, is 1"),
    ("python", retold(python="2.7"), r"python: was .*, is 2.7"),
]


@pytest.mark.parametrize(("item", "change", "words"), CHANGES, ids=[item for item, *_ in CHANGES])
def test_what_differs_is_refused_by_name_and_goes_on_where_it_is_allowed(
    scenario, begun, tmp_path, monkeypatch, item, change, words
):
    """Nothing is decoded before; nothing that was kept is lost; the record says what was allowed, from what to what."""
    change(tmp_path, monkeypatch)
    engine, before = FakeEngine(), (begun / "samples.jsonl").read_bytes()
    with pytest.raises(UserError, match=f"(?s)part one: the run was begun with something else.*{words}.*--allow {item}"):
        go_on(scenario, begun, engine)
    assert engine.decoded == [] and not hasattr(engine, "measured")
    with pytest.raises(UserError, match=f"{item}: was"):
        go_on(scenario, begun, allow=[other for other in ITEMS if other != item])
    held, _ = go_on(scenario, begun, allow=[item, "transformers"])
    assert (begun / "samples.jsonl").read_bytes().startswith(before)
    [allowed] = held.events("allowed", "one")
    assert item in allowed["items"] and allowed["items"][item]["then"] != allowed["items"][item]["now"]
    assert len({one.key for one in held.samples if not one.warmup}) == 24


def test_nothing_is_refused_where_nothing_changed(scenario, begun):
    """A file that is copied anew has another time and the same contents; another commit with the same source is the same."""
    weights = scenario.parent / "model" / "model.safetensors"
    weights.write_bytes(weights.read_bytes())
    held, _ = go_on(scenario, begun)
    first, prompts, *again = held.events("identity", "one")
    assert again == [first, prompts] and held.events("allowed", "one") == []
    told = {item for item in ITEMS if (first | prompts)[item] is not None}
    untold = {name for name in LATER_FACTS if name in first["reasons"]}  # a virtual machine may hide its product
    assert told == set(ITEMS) - {"gpus"} - untold and first["reasons"]["gpus"] == "the part runs on the CPU"


def test_a_record_without_identities_is_held_against_its_environment(scenario, begun):
    """Older ones know processor, versions and commit; what they do not tell is not refused."""
    events = (begun / "events.jsonl").read_text().splitlines(keepends=True)
    (begun / "events.jsonl").write_text("".join(line for line in events if '"identity"' not in line))
    header = json.loads((begun / "run.json").read_text())

    def older(**environment):
        (begun / "run.json").write_text(json.dumps(header | {"environment": header["environment"] | environment}))
        reseal(begun)

    older(commit="abc", packages={"torch": "1.0"}, isa_flags=None, cpu_model="Example CPU")
    with pytest.raises(UserError, match=r"(?s)cpu: was Example CPU, is .*torch: was 1.0, is") as refused:
        go_on(scenario, begun)
    assert "weights" not in str(refused.value) and "transformers" not in str(refused.value)
    (begun / "run.json").write_text(json.dumps(header | {"environment": {}}))
    reseal(begun)
    go_on(scenario, begun)


def test_another_kind_of_gpu_is_refused_and_another_number_of_them_is_not():
    """For parts on a GPU; a run on nodes of a cluster leaves unlike machines to its reader."""
    h200 = {"name": "H200", "memory_bytes": 141, "multiprocessors": 132}
    one, two, other = (machine_facts({"gpus": gpus}) for gpus in ([h200], [h200, h200], [h200 | {"name": "H100"}]))
    event = {"event": "identity", "part": "one"}
    header = make_header()
    assert differences(header, [event | one], event | two) == ()
    [found] = differences(header, [event | one], event | other)
    assert str(found) == "gpus: H200 (141 bytes, 132 multiprocessors), then H100 (141 bytes, 132 multiprocessors)"
    assert differences(header, [event | one | {"node": "a"}], event | other | {"node": "b"}) == ()


def test_fresh_processes_refuse_too(tmp_path):
    """The second process of a part finds other weights than the first had; --allow reaches it."""
    model = checkpoint(tmp_path / "model")
    file, out = tmp_path / "fake.yaml", tmp_path / "out"
    file.write_text(SCENARIO.replace("{random: llama-250m}", "{huggingface: ./model}\n    processes: 2"))

    class Replaced(InThisProcess):
        """Somebody replaces the weights before the second process of the part starts."""

        def __call__(self, errand):
            if errand.share is not None and errand.share.process == 1:
                (model / "model.safetensors").write_bytes(b"other")
            return super().__call__(errand)

    with pytest.raises(UserError, match=r"(?s)part one: the run was begun with something else.*weights"):
        run(file, out, spawn=Replaced(SHAPE))
    assert {one.process for one in read_run(out).samples} == {0}
    spawn = Replaced(SHAPE)
    run(Job.of(file, RunOptions(allow=("weights",))), out, spawn=spawn)
    assert {one.process for one in read_run(out).samples} == {0, 1} and spawn.errands[-1].options.allow == ("weights",)


def test_the_command_takes_names_with_commas_and_refuses_others(cli, scenario, begun, monkeypatch):
    """Exit code 2 with what is allowed."""
    assert allowed_items(["weights, cpu", "code"]) == ("weights", "cpu", "code") and allowed_items(["all"]) == ITEMS
    assert cli("run", str(scenario), "--out", str(begun), "--allow", "wights") == 2
    assert "--allow wights: there is no such thing to allow; allowed: weights, tokenizer" in cli.err
    (scenario.parent / "model" / "model.safetensors").write_bytes(b"other")
    monkeypatch.setattr("harness.runner.runner.machine_here", lambda folder: fake_machine())
    command = ("run", str(scenario), "--out", str(begun), "--no-report")
    assert cli(*command) == 2
    assert "weights: was" in cli.err
    assert cli(*command, "--allow", "weights,cpu") == 0


def test_weights_that_loading_downloads_are_recorded_afterwards(scenario, tmp_path):
    """Before, nothing is known of them, and nothing refused."""
    weights = tmp_path / "model" / "model.safetensors"
    weights.unlink()

    def opened(part):
        weights.write_bytes(b"weights")
        return FakeEngine()

    run(scenario, tmp_path / "out", machine=replace(fake_machine(), open_engine=opened))
    before, after, _ = read_run(tmp_path / "out").events("identity", "one")
    assert before["weights"] is None and "model has none of *.safetensors" in before["reasons"]["weights"]
    assert after["weights"] is not None


def test_digests_are_of_contents_and_names_and_a_file_is_read_once(tmp_path):
    """Random weights are known by what they are drawn by."""
    one, other = (HuggingFaceModel(huggingface=str(checkpoint(tmp_path / name))) for name in ("one", "other"))
    assert model_digests(one, 1, "float32") == model_digests(other, 2, "bfloat16")
    digests._read.cache_clear()
    weights = tmp_path / "one" / "model.safetensors"
    first = file_digest(weights)
    assert file_digest(weights) == first and digests._read.cache_info().misses == 1
    weights.rename(tmp_path / "one" / "renamed.safetensors")
    assert model_digests(one, 1, "float32")["weights"] != model_digests(other, 1, "float32")["weights"]
    drawn = RandomModel(random="llama-250m")
    found = [
        model_digests(drawn, seed, dtype)["weights"][0] for seed, dtype in ((1, "float32"), (2, "float32"), (1, "bfloat16"))
    ]
    assert len({*found, model_digests(drawn, 1, "float32")["weights"][0]}) == 3
