"""The pass that reads the prompts is the same work in every arm; what an arm does beyond it is decode time and a pass."""

from __future__ import annotations

import typing
from dataclasses import replace
from pathlib import Path

import pytest

from harness.analysis.answer import compare
from harness.analysis.frames import load_run
from harness.analysis.tally.pass_arrays import TraceArrays
from harness.analysis.tally.tally import Tally, charged, tally
from harness.engine import decoders
from harness.models.block_families import FAMILIES
from harness.record.schema import Run
from harness.record.store import read_run
from harness.regression.timed import processes_of
from harness.runner.runner import run as measure
from harness.scenario.methods import Arm
from tests.helpers.fake_machine import uncalibrated

ARMS = {
    "sbd": [{"gamma": 0.1}, {"gamma": 0.1, "batching": "ragged"}],
    "sbd_verified": [{"gamma": 99}, {"gamma": 0.1, "least_confidence": 0.3}],
    "self_speculation": [{"form": "linear"}, {"form": "quadratic"}],
    "freedave": [{"draft_steps": 2}],
    "apd": [{"mixture": 0.5}],
    "prompt_lookup": [{"draft_tokens": 3}],
    "draft_model": [{"draft": {"reference": "draft"}, "draft_tokens": 3}],
    "universal_draft": [{"draft": {"reference": "draft"}, "draft_tokens": 3}],
    "early_exit": [{"exit_layers": 2, "draft_tokens": 3}],
    "hierarchical": [{"stack": [{"exit_layers": 2, "draft_tokens": 3}, {"max_ngram": 2, "draft_tokens": 2}]}],
    "block_diffusion": [
        {"family": name, "block_size": 8, "solver": family.solver, **family.knobs} for name, family in FAMILIES.items()
    ],
}
"""Of every method but NTP the arms to try."""
BATCHES = (1, 3)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Run]:
    """Every method on the reference model: public families decode its weights by their rules, whatever that gives."""
    import yaml

    here = tmp_path_factory.mktemp("prompts")
    arms = [{"method": "ntp"}, *({"method": method, **one} for method, ways in ARMS.items() for one in ways)]
    part = {
        "name": "all",
        "model": {"reference": "sbd"},
        "dtype": "float32",
        "execution": "eager",
        "arms": arms,
        "batch_sizes": list(BATCHES),
        "repeats": 1,
        "warmup": 0,
        "baseline_check": 0,
        "health": {"kernel": 1000, "steal": 1},
        "workload": {"tasks": ["word_problems"], "prompts": 3, "max_new_tokens": 12},
    }
    (here / "s.yaml").write_text(yaml.safe_dump({"version": 1, "name": "prompts", "parts": [part]}))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(decoders, "_check_family", lambda case, model: None)
        path = measure(here / "s.yaml", here / "run", machine=uncalibrated())
    return path, read_run(path)


def test_every_method_is_tried() -> None:
    """A method that is added is added here."""
    kinds = typing.get_args(typing.get_args(Arm)[0])
    methods = {name for kind in kinds for name in typing.get_args(kind.model_fields["method"].annotation)}
    assert methods == {"ntp", *ARMS, "served"}, "a server has its own prompt pass: tests/serving"


def test_the_prompt_pass_is_that_of_ntp_or_counts_as_a_pass(run: tuple[Path, Run]) -> None:
    """Query tokens, logits and KV kept, in every batch; a draft model's reading is a pass of its own behind it.

    Families that commit whole blocks alone read the rest of the prompt later: never more than NTP. A canvas has no cache: its
    first pass reads the prompt and drafts, and is counted.
    """
    cases = {case.case_id: case for case in run[1].header.cases}
    of_ntp = {}
    for sample in run[1].samples:
        if cases[sample.case_id].arm.method == "ntp":
            of_ntp[cases[sample.case_id].batch_size, sample.group] = sample.passes
    drafting = set()
    for sample in run[1].samples:
        case, passes = cases[sample.case_id], sample.passes
        ntp = of_ntp[case.batch_size, sample.group]
        work = ("role", "query_tokens", "logit_tokens")
        mine, theirs = ([getattr(one, name)[0] for name in work] for one in (passes, ntp))
        assert "prefill" not in passes.role[1:], "nobody reads the prompts outside the clock"
        if case.arm.method != "block_diffusion":
            assert mine == theirs and passes.kept_tokens[0] == ntp.kept_tokens[0], case.label
        elif TraceArrays(sample.packed_passes).drafts_in_prompt:
            drafting.add(case.arm.values["family"])
            assert tally(case, sample, None).sums.passes == len(passes.role)
        else:
            assert all(own <= other for one in zip(mine[1:], theirs[1:], strict=True) for own, other in zip(*one, strict=True))
    assert drafting == {name for name, family in FAMILIES.items() if family.protocol.layout == "canvas"}


def test_a_pass_is_counted_alike_everywhere(run: tuple[Path, Run]) -> None:
    """NFE speedup of NTP is 1; passes of the comparison, of the frames and of the timed metrics agree arm by arm."""
    path, record = run
    comparison, frames = compare(record), load_run(path)
    for cell in comparison.cells:
        for arm in cell.arms:
            mine = frames.samples[frames.samples.case_id.isin(arm.case_ids)]
            assert (mine.passes.sum(), mine.nfe.sum(), mine.decode_tokens.sum()) == (arm.passes, arm.nfe, arm.decode_tokens)
            assert (arm.nfe_speedup.value == 1) or not arm.is_ntp
            assert arm.request_speedup.value is not None or arm.is_ntp
            assert arm.first_token_s.value > 0
    [process] = processes_of(record)
    assert any(one.estimated for one in process.decodes.values()), "a canvas's"


def of_sample(run: Run, method: str) -> tuple[Tally, ...]:
    """Tallies of the first arm of a method at batch 1."""
    case = next(one for one in run.header.cases if one.arm.method == method and one.batch_size == 1)
    return tuple(tally(case, sample, None) for sample in run.samples if sample.case_id == case.case_id)


def test_an_older_prompt_pass_that_drafts_is_charged(run: tuple[Path, Run]) -> None:
    """By hand: a prompt's pass of 5 s where NTP took 2 s on the same prompt adds 3 s; without NTP all 5 s."""
    ntp = [replace(one, prompt_s=2.0 + one.key[1]) for one in of_sample(run[1], "ntp")]
    verified = of_sample(run[1], "sbd_verified")
    older = [
        replace(one, prompt_s=5.0, decode_s=7.0, sums=replace(one.sums, forward_s=6.0), reads_more=True) for one in verified
    ]
    now = charged(older, ntp)
    assert [(one.decode_s, one.sums.forward_s, one.estimated) for one in now] == [(10, 9, True), (9, 8, True), (8, 7, True)]
    assert [one.decode_s for one in charged(older, ())] == [12.0] * 3
    others = [replace(one, key=(*one.key[:2], 4, 0)) for one in ntp]
    assert [one.decode_s for one in charged(older, others)] == [10, 9, 8], "the prompt's other decodes"
    slow = [replace(one, prompt_s=9.0) for one in ntp]
    assert [one.decode_s for one in charged(older, slow)] == [7.0] * 3, "nothing is taken off"
    assert charged(verified, ntp) == verified and not any(one.estimated for one in verified)
