"""The rivals from the scenario to the comparison: names, memory, prices of draft passes, agreement with NTP."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from harness.analysis.answer import compare, to_json
from harness.analysis.frames import load_run
from harness.analysis.tally.pass_arrays import TraceArrays
from harness.analysis.tally.pricing import Pricer
from harness.errors import RecordError, ScenarioError, UserError
from harness.models.choice import RandomModel, ReferenceModel, shape_of
from harness.models.shape import with_layers
from harness.record.passes import from_stored, pack
from harness.record.schema import PassColumns
from harness.record.store import read_run
from harness.roofline.pricing import price_pass
from harness.roofline.speedup import describe_pass
from harness.runner.estimates import estimate_memory
from harness.scenario.loading import load_scenario
from harness.scenario.plan import make_plan
from harness.scenario.scenario import Scenario
from tests.helpers.fake_machine import run_of
from tests.helpers.pass_bytes import pass_bytes
from tests.helpers.plans import CEILINGS, DRAFT, PART, SMALL, TARGET, case_of, plan_of
from tests.helpers.synthetic_run import priced

GREEDY = "greedy NTP, same weights"
LOOKUP, MODEL = {"method": "prompt_lookup"}, {"method": "draft_model", "draft": DRAFT}
EXIT = {"method": "early_exit", "exit_layers": 4, "draft_tokens": 3}
STACK = {
    "method": "hierarchical",
    "stack": [{"exit_layers": 4, "draft_tokens": 6}, {"draft": DRAFT, "draft_tokens": 3}, {"max_ngram": 3, "draft_tokens": 4}],
}


def arms_with(*arms: dict) -> list[dict]:
    """Behind NTP."""
    return [{"method": "ntp"}, *arms]


def test_ids_and_labels_name_who_drafts() -> None:
    """One case per point of the axes; all are lossless against greedy NTP, or, warm, in distribution."""
    arms = arms_with(
        {"method": "prompt_lookup", "draft_tokens": [4, 10]},
        {"method": "prompt_lookup", "max_ngram": 3, "temperature": 0.7},
        MODEL | {"draft_tokens": [5]},
        EXIT | {"exit_layers": [2, 4]},
        STACK,
        MODEL | {"least_confidence": [0, 0.4]},
        STACK | {"stack": [stage | {"least_confidence": 0.5} for stage in STACK["stack"][:2]]},
    )
    cases = plan_of(arms=arms, baseline_check=0).cases[1:]
    assert [(case.case_id.rpartition("/")[2], case.label) for case in cases] == [
        ("prompt-lookup-g2-n4-t0", "prompt lookup n=4"),
        ("prompt-lookup-g2-n10-t0", "prompt lookup n=10"),
        ("prompt-lookup-g3-n10-t0.7", "prompt lookup 3-grams n=10 T=0.7"),
        ("draft-model-random-small-n5-t0", "draft model (random small) n=5"),
        ("exit2-n3-t0", "early exit layer 2 n=3"),
        ("exit4-n3-t0", "early exit layer 4 n=3"),
        (
            "exit4-n6-on-draft-model-random-small-n3-on-prompt-lookup-g3-n4-t0",
            "early exit layer 4 n=6 on draft model (random small) n=3 on prompt lookup 3-grams n=4",
        ),
        ("draft-model-random-small-n5-c0-t0", "draft model (random small) n=5 c>0"),
        ("draft-model-random-small-n5-c0.4-t0", "draft model (random small) n=5 c>0.4"),
        (
            "exit4-n6-c0.5-on-draft-model-random-small-n3-c0.5-t0",
            "early exit layer 4 n=6 c>0.5 on draft model (random small) n=3 c>0.5",
        ),
    ]
    assert [case.arm.lossless for case in cases].count(GREEDY) == 9
    assert cases[2].arm.lossless == "NTP at temperature 0.7, same weights, in distribution"
    assert plan_of(arms=arms).scenario.parts[0].block_sizes == ()


def test_drafts_that_a_file_says_nothing_of_end_behind_a_doubted_one(tmp_path: Path) -> None:
    """0 makes every draft. A recorded arm without the key is of a program that made every draft, and stays what it was."""
    given = ["{reference: draft}, draft_tokens: 4", "{reference: draft}, least_confidence: 0"]
    (tmp_path / "s.yaml").write_text(
        "version: 1\nname: s\nparts:\n- name: p\n  model: {reference: sbd}\n  dtype: float32\n"
        f"  arms: [{{method: ntp}}, {{method: draft_model, draft: {given[0]}}}, {{method: draft_model, draft: {given[1]}}}]\n"
        "  workload: {tasks: [word_problems], prompts: 1, max_new_tokens: 4}\n"
    )
    scenario = load_scenario(tmp_path / "s.yaml")
    resolved = scenario.model_dump(mode="json")
    assert [arm.get("least_confidence") for arm in resolved["parts"][0]["arms"]] == [None, [0.7], [0.0]]
    assert Scenario.model_validate(resolved) == scenario
    del resolved["parts"][0]["arms"][1]["least_confidence"]
    older = Scenario.model_validate(resolved)
    assert older.model_dump(mode="json") == resolved
    assert [case.arm.least_confidence for case in make_plan(older).cases[:3]] == [None, None, 0.0]
    assert make_plan(older).cases[1].label == "draft model (reference draft) n=4"


def test_a_header_has_the_shapes_of_all_models_that_make_passes() -> None:
    """By the names that their passes bear; prompt lookup makes none, and the first layers are a model of the same widths."""
    by_method = {case.arm.method: case for case in plan_of(arms=arms_with(LOOKUP, MODEL, EXIT, STACK)).cases}
    headers = {method: case.header(TARGET, "eager") for method, case in by_method.items()}
    four = with_layers(TARGET, 4)
    assert headers["ntp"].draft_models == headers["prompt_lookup"].draft_models == {}
    assert headers["draft_model"].draft_models == {"small": SMALL}
    assert headers["early_exit"].draft_models == {four.name: four} and "4 of" in four.name
    assert headers["hierarchical"].draft_models == {four.name: four, "small": SMALL}


@pytest.mark.parametrize(
    ("arm", "words"),
    [
        (EXIT | {"exit_layers": TARGET.layers}, f"which has {TARGET.layers}; allowed are 1 to {TARGET.layers - 1}"),
        ({"method": "draft_model", "draft": {"huggingface": "nobody/nothing"}}, "download it first"),
        (STACK | {"stack": [{"draft": DRAFT, "draft_tokens": 4}] * 2}, "two drafts of one stack are called small"),
    ],
)
def test_drafts_that_do_not_fit_the_model_are_refused_by_the_plan(arm: dict, words: str) -> None:
    """Before anything runs."""
    with pytest.raises(UserError, match=re.escape(words)):
        plan_of(arms=arms_with(arm))


def test_memory_is_that_of_all_models() -> None:
    """Weights of what is loaded besides, a KV cache for every model; the first layers are there already."""
    ntp, drafted, early, stack = (
        estimate_memory(case_of(method, arms=arms_with(LOOKUP, MODEL, EXIT, STACK)))[0]
        for method in ("ntp", "draft_model", "early_exit", "hierarchical")
    )
    kv = {shape.layers: shape.kv_width * shape.layers * 2 for shape in (TARGET, SMALL, with_layers(TARGET, 4))}
    assert drafted.weight_bytes - ntp.weight_bytes == SMALL.params * 2 == stack.weight_bytes - ntp.weight_bytes
    assert early.weight_bytes == ntp.weight_bytes
    tokens = 64 + 33
    assert ntp.kv_bytes == tokens * kv[TARGET.layers]
    assert drafted.kv_bytes == (tokens + 6) * (kv[TARGET.layers] + kv[2]), "five drafts and the newest token"
    assert early.kv_bytes == (tokens + 4) * (kv[TARGET.layers] + kv[4])
    assert stack.kv_bytes == (tokens + 7) * (kv[TARGET.layers] + kv[4] + kv[2])


def test_a_draft_pass_is_priced_at_the_size_of_the_model_that_made_it() -> None:
    """Bytes and seconds of the draft's shape, the same counts or not; a model that the case does not know is refused."""
    header = case_of("draft_model", arms=arms_with(MODEL)).header(TARGET, "eager")
    pricer = Pricer(header, {"datasheet": CEILINGS})
    own = describe_pass("draft", 1, 1, 70, logits=1, kept=1)
    theirs = own._replace(model="small")
    for shape, one in ((TARGET, own), (SMALL, theirs), (TARGET, own)):
        price = priced(pricer, one)
        assert price.bytes_ == pass_bytes(shape, "bfloat16", own)
        assert price.decode_s["datasheet"][1] == price_pass(shape, "bfloat16", own, CEILINGS).expected_s
    assert priced(pricer, own).bytes_ > 20 * priced(pricer, theirs).bytes_
    columns = PassColumns(
        role=["prefill", "draft", "verify"],
        query_tokens=[[5], [1], [1]],
        context_tokens=[[0], [70], [70]],
        logit_tokens=[[1], [1], [1]],
        kept_tokens=[[5], [1], [1]],
        decided_tokens=[[1], [1], [1]],
        final_tokens=[[1], [0], [1]],
        active=[[True]] * 3,
        padded_query=[5, 1, 1],
        padded_context=[0, 70, 70],
        model=[None, "small", None],
    )
    trace = TraceArrays(pack(columns))
    assert trace.decode.tolist() == [False, True, True] and trace.own.tolist() == [False, False, True]
    costs = pricer.bytes_(pricer.places(trace, trace.decode)).tolist()
    assert costs == [priced(pricer, theirs).bytes_, priced(pricer, own).bytes_]
    again = from_stored(pack(columns).stored())
    assert again.spelt() == columns and again.untimed().spelt().model == [None, "small", None]
    assert [one.model for one in columns.passes()] == [None, "small", None]
    assert columns.model_copy(update={"model": None}).passes()[1].model is None
    with pytest.raises(RecordError, match="'tiny', a draft model whose shape"):
        priced(pricer, own._replace(model="tiny"))


SCENARIO = """
version: 1
name: rivals
parts:
  - name: reference
    model: {reference: sbd}
    dtype: float64
    timed: false
    arms:
      - {method: ntp}
      - {method: prompt_lookup, draft_tokens: 4}
      - {method: draft_model, draft: {reference: draft}, draft_tokens: 4}
      - {method: draft_model, draft: {reference: draft}, draft_tokens: 4, least_confidence: 0}
      - {method: universal_draft, draft: {reference: draft}, draft_tokens: 4}
      - {method: early_exit, exit_layers: 4, draft_tokens: 2}
      - {method: hierarchical, stack: [{draft: {reference: draft}, draft_tokens: 6}, {max_ngram: 2, draft_tokens: 3}]}
    batch_sizes: [1, 4]
    workload: {tasks: [word_problems, variable_trace], prompts: 4, max_new_tokens: 24}
"""


@pytest.fixture(scope="module")
def reference_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All rivals on the reference model, a few prompts alone and in a batch."""
    pytest.importorskip("torch")
    return run_of(SCENARIO, tmp_path_factory.mktemp("rivals"))


def test_a_run_of_the_reference_model_is_identical_to_ntp(reference_run: Path) -> None:
    """From the scenario to the comparison: the very tokens of NTP in fewer passes of the target; draft passes count apart."""
    comparison = compare(read_run(reference_run))
    assert len(comparison.cells) == 6
    for cell in comparison.cells:
        ntp, *arms = cell.arms
        assert len(arms) == 6 and ntp.nfe_speedup.value == 1 and ntp.draft_passes == 0
        for arm in arms:
            assert arm.identical_to_ntp.value == 1 and arm.lossless == GREEDY, arm.label
            assert arm.decode_tokens == ntp.decode_tokens and arm.accuracy.value == ntp.accuracy.value
            assert (arm.draft_passes > 0) == (arm.method != "prompt_lookup") == (arm.draft_query_tokens > 0)
        speed = {arm.method: arm.nfe_speedup.value for arm in arms}
        assert speed["draft_model"] > 1.5 and speed["hierarchical"] > 1.5 and speed["prompt_lookup"] > 1
    names = [f"draft model (reference draft) n=4 {bound}" for bound in ("c>0.7", "c>0")]
    doubting, every = (
        sum(arm.draft_passes for cell in comparison.cells for arm in cell.arms if arm.label == name) for name in names
    )
    assert 0 < doubting < every, "no draft is made behind a doubted one"
    found = to_json(comparison)["cells"][0]["arms"][2]
    assert found["draft_passes"] > 0 and found["draft_query_tokens"] >= found["draft_passes"]


def test_passes_are_counted_as_by_hand(reference_run: Path) -> None:
    """NFE, query tokens and draft passes added up from the record itself, and the frames say the same."""
    run, frames = read_run(reference_run), load_run(reference_run)
    arm = next(one for one in compare(run).cells[0].arms if one.method == "draft_model")
    mine = [sample.passes for sample in run.samples if sample.case_id in arm.case_ids]
    every = [one for passes in mine for one in zip(passes.role, passes.made_by, passes.padded_query, strict=True)]
    own = [(role, query) for role, model, query in every if role != "prefill" and model is None]
    drafts = [(role, query) for role, model, query in every if model == "reference-draft"]
    assert {role for role, _ in own} <= {"verify", "decide"} and {role for role, _ in drafts} == {"draft"}
    assert (arm.passes, arm.draft_passes) == (len(own), len(drafts))
    assert arm.query_tokens_per_pass.value == sum(query for _, query in own) / arm.passes
    assert arm.draft_query_tokens == sum(query for _, query in drafts)
    assert arm.nfe_speedup.value == arm.decode_tokens / arm.passes
    samples = frames.samples[frames.samples.case_id.isin(arm.case_ids)]
    assert (samples.passes.sum(), samples.draft_passes.sum()) == (arm.passes, arm.draft_passes)
    passes = frames.passes[frames.passes.case_id.isin(arm.case_ids)]
    assert passes.model.notna().sum() == arm.draft_passes, "a draft model's reading of the prompt is among them"


def test_the_report_counts_draft_passes(reference_run: Path) -> None:
    """A column where some arm made any, with no other change to the page."""
    from harness.analysis.results import Cell
    from harness.reporting.cells import Pointers
    from harness.reporting.columns import COUNTS

    comparison = compare(read_run(reference_run))
    cells: list[Cell] = [cell for cell in comparison.cells if cell.is_summary]
    table = COUNTS.table(cells, Pointers(comparison))
    assert "Draft passes" in table.columns
    alone = COUNTS.table([replace(cell, arms=cell.arms[:2]) for cell in cells], Pointers(comparison))
    assert "Draft passes" not in alone.columns


def test_a_draft_model_with_other_tokens_is_refused() -> None:
    """Ids would mean something else; the message says which method translates them."""
    pytest.importorskip("torch")
    from harness.engine.drafters import _refuse_other_tokens
    from harness.engine.loading import LoadedModel

    case = case_of("draft_model", arms=arms_with(MODEL))
    target = LoadedModel(module=None, shape=TARGET, tokenizer=None, mask_id=None, stop_ids=frozenset())
    _refuse_other_tokens(case, target, replace(target, shape=SMALL), SMALL)
    fewer = replace(target, shape=SMALL.model_copy(update={"vocab": 100}))
    with pytest.raises(ScenarioError, match="use method: universal_draft"):
        _refuse_other_tokens(case, target, fewer, SMALL)


def test_the_draft_reference_model_is_a_tenth_of_the_reference_model() -> None:
    """Same vocabulary, two layers; the shape that its passes are priced at."""
    (draft, _), (large, _) = (shape_of(ReferenceModel(reference=name)) for name in ("draft", "sbd"))
    assert draft.name == "reference-draft" and draft.vocab == large.vocab and draft.layers == 2
    assert 8 < large.params / draft.params < 12
    assert shape_of(RandomModel(random="llama-250m"))[0] == TARGET and PART["model"] == {"random": "llama-250m"}
