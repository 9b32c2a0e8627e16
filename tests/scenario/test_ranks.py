"""A model split over processes, as far as no process is needed: what is refused, planned, started, and what it should cost."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from harness.analysis.tally.prices import ladder
from harness.analysis.tally.pricing import Pricer
from harness.errors import STATUS_AGAIN, ProcessEndedError, ScenarioError, UserError
from harness.hardware.profile import load_profile
from harness.progress import Progress
from harness.record.schema import Run
from harness.record.store import read_run
from harness.roofline.ceilings import ceilings_from_profile
from harness.roofline.pricing import price_pass
from harness.runner.estimates import estimate_memory, estimate_time
from harness.runner.runner import run, run_errand
from harness.runner.subprocesses import ChildTask, end_all, first_end, start, threads_shared
from harness.scenario.loading import load_scenario, scenario_digest
from harness.scenario.plan import Case, make_plan
from harness.scenario.ranks import RENDEZVOUS, Ranks, ranks_here, refuse_other_world
from harness.scenario.scenario import Scenario
from tests.helpers import synthetic_run as synthetic
from tests.helpers.child_processes import InThisProcess
from tests.helpers.environments import with_cases, with_header
from tests.helpers.fake_machine import SCENARIO, FakeEngine, fake_machine
from tests.helpers.plans import PART
from tests.helpers.scenarios import GOOD, write
from tests.helpers.synthetic_run import priced

SPLIT = {
    "tensor_parallel": 2,
    "baseline_check": 2,
    "workload": {"synthetic": {"prompt_tokens": 8}, "prompts": 2, "max_new_tokens": 32},
}


def scenario(*parts: dict[str, object]) -> Scenario:
    """The part above with changes, once per argument."""
    return Scenario.model_validate({"version": 1, "name": "s", "parts": [PART | SPLIT | changes for changes in parts or ({},)]})


def case_of(method: str, **changes: object) -> Case:
    """The first case of that method."""
    return next(case for case in make_plan(scenario(changes)).cases if case.arm.method == method)


def test_a_process_learns_from_its_environment_which_one_it_is() -> None:
    """torchrun's three variables; alone without them, or in a world of one; what we tell a process is what it reads."""
    assert ranks_here({}) is None and ranks_here({"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0"}) is None
    found = ranks_here({"RANK": "3", "LOCAL_RANK": "1", "WORLD_SIZE": "4"})
    assert found == Ranks(rank=3, local=1, world=4, rendezvous="env://") and not found.leads
    ours = Ranks(rank=0, local=0, world=2, rendezvous="file:///tmp/x")
    assert ranks_here(ours.environment()) == ours and ours.leads
    with pytest.raises(UserError, match="LOCAL_RANK='' in the environment: must be a number"):
        ranks_here({"RANK": "3", "WORLD_SIZE": "4"})


@pytest.mark.parametrize(
    ("parts", "words"),
    [
        ([{}], "part p: tensor_parallel is 2, but torchrun started 4 processes; start 2"),
        ([{"tensor_parallel": 4}, {"name": "q", "tensor_parallel": 1}], "part q: tensor_parallel is 1"),
        ([{"tensor_parallel": 4, "processes": 2}], "processes is 2, but torchrun starts each process once"),
    ],
)
def test_torchrun_must_have_started_as_many_as_every_part_asks_for(parts: list[dict[str, object]], words: str) -> None:
    """With both numbers and both ways out; where they agree there is nothing to refuse."""
    with pytest.raises(ScenarioError, match=words) as refused:
        refuse_other_world(scenario(*parts), 4)
    assert "sbd run" in str(refused.value)
    refuse_other_world(scenario({"tensor_parallel": 4}, {"name": "q", "tensor_parallel": 4}), 4)


@pytest.mark.parametrize("devices", [3, 8])
def test_heads_that_do_not_divide_are_refused_before_anything_runs(devices: int) -> None:
    """16 attention heads go into 8, but 4 KV heads do not: nobody may hold half a head, nor the same one twice."""
    shape = make_plan(scenario()).cases[0].shape
    assert (shape.heads, shape.kv_heads) == (16, 4)
    words = f"16 attention heads and 4 KV heads, .* over {devices} processes; allowed: 1, 2, 4$"
    with pytest.raises(ScenarioError, match=words):
        make_plan(scenario({"tensor_parallel": devices}))


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("tensor_parallel: 0", "tensor_parallel"),
        ("tensor_parallel: 2\n    execution: compiled", "is not compiled; use execution: eager, graphs or auto"),
        ("tensor_parallel: 2\n    device: cuda:1", "a GPU of its own, but device is cuda:1; use cuda"),
    ],
)
def test_what_cannot_be_split_is_refused_with_file_and_line(line: str, words: str, tmp_path: Path) -> None:
    """And with what to use instead."""
    with pytest.raises(ScenarioError, match=words) as refused:
        load_scenario(write(tmp_path, GOOD.replace("dtype:", f"{line}\n    dtype:")))
    assert "s.yaml:" in str(refused.value)


def test_a_part_in_one_process_resolves_as_before() -> None:
    """So that runs older than the key can be continued; a split one has another digest."""
    alone, split = (scenario({"tensor_parallel": n}).model_dump(mode="json") for n in (1, 2))
    assert "tensor_parallel" not in alone["parts"][0] and split["parts"][0]["tensor_parallel"] == 2
    assert scenario_digest(alone) != scenario_digest(split)
    assert not scenario({"tensor_parallel": 1}).in_fresh_processes and scenario().in_fresh_processes


def test_generate_is_not_compiled_where_the_model_is_split() -> None:
    """The yardstick is the eager one, on either device."""
    for device in ("cpu", "cuda"):
        checks = [case for case in make_plan(scenario({"device": device, "execution": "auto"})).cases if case.is_check]
        assert {case.arm.execution for case in checks} == {"eager"}


def test_memory_is_that_of_one_gpu_or_of_all_processes_on_a_host() -> None:
    """By hand: llama-250m halved, its norms and the logits whole on both."""
    shape = case_of("ntp").shape
    norms = (2 * shape.layers + 1) * shape.hidden
    weights = 2 * ((shape.params - norms) // 2 + norms)
    kv = 2 * 2 * shape.layers * (shape.kv_heads // 2) * shape.head_dim * 40
    gpu, _ = estimate_memory(case_of("ntp", device="cuda"))
    host, _ = estimate_memory(case_of("ntp"))
    assert (gpu.weight_bytes, gpu.kv_bytes, gpu.logit_bytes) == (weights, kv, shape.vocab * 6)
    assert host.total_bytes == 2 * gpu.total_bytes


UNHEARD_OF = load_profile("l4").model_copy(update={"name": "unheard-of", "links": None})
"""A device of which nobody says how it is joined."""


def test_a_split_case_is_planned_with_what_its_devices_send() -> None:
    """Two H100 take longer than half of what one takes, by the link; without a link rate there is no time, and the reason."""
    profile = load_profile("h100-sxm")
    linked = ceilings_from_profile(profile, "bfloat16")
    one, _ = estimate_time(case_of("ntp", device="cuda", tensor_parallel=1), linked)
    two, _ = estimate_time(case_of("ntp", device="cuda"), linked)
    assert one.total_s / 2 < two.total_s < one.total_s
    none, why = estimate_time(case_of("ntp", device="cuda"), ceilings_from_profile(UNHEARD_OF, "bfloat16"))
    assert none is None and why is not None and "no link rate" in why


def split_run(devices: int, device: str, **header: object) -> Run:
    """A synthetic run of one part, its cases split over so many devices."""
    run = synthetic.build(prompts=2)
    return with_header(with_cases(run, lambda case: {"tensor_parallel": devices, "device": device}), **header)


def test_recorded_passes_are_priced_for_one_of_the_devices() -> None:
    """Bytes, flops and seconds as the roofline's own deployment of two says, and fewer than all of the model's."""
    from harness.models.deployment import Deployment

    profile = load_profile("h100-sxm")
    run = split_run(2, "cuda", hardware=profile.model_dump(mode="json"), calibration=None)
    case, whole = run.header.cases[0], split_run(1, "cuda").header.cases[0]
    rungs = ladder(run, case).ceilings
    one = next(one for one in run.samples[0].passes.passes() if one.role != "prefill")
    cost = priced(Pricer(case, rungs), one)
    expected = price_pass(case.model, Deployment(dtype=case.dtype, tensor_parallel=2), one, rungs["datasheet"])
    assert cost.decode_s["datasheet"] == (expected.low_s, expected.expected_s, expected.high_s)
    assert next(cost for cost in expected.operations if cost.name == "collectives").link_s > 0
    assert 0.5 < cost.bytes_ / priced(Pricer(whole, rungs), one).bytes_ < 0.7


@pytest.mark.parametrize(
    ("device", "words"),
    [
        ("cpu", "2 processes shared this CPU, whose rates one process alone does not show"),
        ("cuda", "what unheard-of can send to another device is not known, and the model was split over several"),
    ],
)
def test_what_cannot_be_priced_says_why(device: str, words: str) -> None:
    """No calibration holds for processes that share a CPU, and nothing for devices whose link is unknown."""
    hardware = UNHEARD_OF.model_dump(mode="json") if device == "cuda" else None
    found = ladder(run := split_run(2, device, hardware=hardware, calibration=None), run.header.cases[0])
    assert not found.ceilings and words in found.reasons.values()


def test_a_split_case_is_read_back_as_one() -> None:
    """The record keeps it; a record that does not say was of one process."""
    case = split_run(2, "cpu").header.cases[0]
    assert json.loads(case.model_dump_json())["tensor_parallel"] == 2
    older = {key: value for key, value in case.model_dump(mode="json").items() if key != "tensor_parallel"}
    assert type(case).model_validate(older).tensor_parallel == 1


# Processes that print who they are and then do as their rank says.
SAYS = "import os, sys, time; rank = int(os.environ['RANK']); print(rank, file=open(sys.argv[1] + f'/{rank}', 'w'), flush=True)"


def started(tmp_path: Path, program: str, world: int = 3) -> tuple[int, list[int]]:
    """The status that decides, and each one's, of ``world`` processes that run a program."""
    children = start([sys.executable, "-c", f"{SAYS}\n{program}", str(tmp_path)], world, tmp_path, ())
    try:
        status = first_end(children)
    finally:
        end_all(children, 5.0)
    return status, [child.wait() for child in children]


@pytest.mark.parametrize(
    ("program", "status", "each"),
    [
        ("time.sleep(0 if rank == 0 else 600)", 0, [0, -15, -15]),
        ("time.sleep(600 if rank != 1 else 0); sys.exit(7)", 7, [-15, 7, -15]),
        ("time.sleep(600) if rank != 2 else os.kill(os.getpid(), 9)", -9, [-15, -15, -9]),
        ("sys.exit(0) if rank else (time.sleep(1), sys.exit(3))", 3, [3, 0, 0]),
    ],
)
def test_processes_that_share_a_model_end_together(tmp_path: Path, program: str, status: int, each: list[int]) -> None:
    """With rank 0's status, or that of the one that failed first; nobody is left waiting for somebody who has gone."""
    assert started(tmp_path, program) == (status, each)


def test_each_process_is_told_who_it_is_and_has_its_share_of_the_cores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ranks 0 to 2 of 3, one place to meet; threads that somebody chose are left alone, others make one a core in all."""
    program = (
        f"names = ('RANK', 'LOCAL_RANK', 'WORLD_SIZE', '{RENDEZVOUS}', 'OMP_NUM_THREADS')\n"
        "print(*(os.environ[name] for name in names), file=open(f'{sys.argv[1]}/{rank}', 'w'))\n"
        "if not rank:\n    while not all(os.path.exists(f'{sys.argv[1]}/{n}') and os.path.getsize(f'{sys.argv[1]}/{n}') > 9"
        " for n in range(3)): time.sleep(0.02)\nelse: time.sleep(600)"
    )
    monkeypatch.setenv("OMP_NUM_THREADS", "5")
    assert started(tmp_path, program)[0] == 0
    told = [(tmp_path / str(rank)).read_text().split() for rank in range(3)]
    assert told == [[str(rank), str(rank), "3", (tmp_path / "store").as_uri(), "5"] for rank in range(3)]
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)))
    assert threads_shared(3) == {"OMP_NUM_THREADS": "2"} and threads_shared(16) == {"OMP_NUM_THREADS": "1"}


class EndsAtWhatDoesNotFit(InThisProcess):
    """A Spawner whose processes end where the ranks of a split model would: behind cases that cannot be run."""

    def __call__(self, errand: ChildTask) -> int:
        """The engines refuse batches of 2, and nothing more can be asked of them then; each case has two attempts."""
        self.errands.append(errand)
        torn = len(self.errands) > 1
        self.engines.append(FakeEngine(self.shape, too_big=2) if torn else FakeEngine(self.shape))
        machine = replace(fake_machine(self.engines[-1]), close=refusing if torn else lambda: None)
        try:
            run_errand(errand, Progress(), machine)
        except ProcessEndedError as error:
            return error.exit_code
        return 0


def refusing() -> None:
    """What closing the machine says of a split model that did not come to the end of its order."""
    raise ProcessEndedError("torn", STATUS_AGAIN)


def test_a_share_is_taken_up_again_behind_a_case_that_did_not_fit(tmp_path: Path) -> None:
    """The processes are started for the same share again as often as they ask for it, as many as share the model each time."""
    file = tmp_path / "s.yaml"
    file.write_text(SCENARIO.replace("repeats: 2", "repeats: 2\n    tensor_parallel: 2"))
    spawn = EndsAtWhatDoesNotFit(make_plan(scenario()).cases[0].shape)
    held = read_run(run(file, tmp_path / "out", spawn=spawn))
    assert [(errand.share is None, errand.ranks) for errand in spawn.errands] == [(True, 1), (False, 2), (False, 2)]
    assert {outcome.outcome for outcome in held.outcomes} == {"does_not_fit"} and len(held.outcomes) == 2
    counted = [sample.key for sample in held.samples if not sample.warmup]
    assert len(counted) == len(set(counted)) == 2 * 2 * 4, "batch 1, two arms, two repeats, four prompts"


def test_under_torchrun_the_first_process_takes_everything_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It starts no other, and lets the ones that follow go when all is done, or when there was nothing left to do."""
    file = tmp_path / "s.yaml"
    file.write_text(SCENARIO.replace("repeats: 2", "repeats: 2\n    tensor_parallel: 2"))
    for name, value in Ranks(rank=0, local=0, world=2, rendezvous="env://").environment().items():
        monkeypatch.setenv(name, value)
    closed: list[str] = []
    engine = FakeEngine(make_plan(scenario()).cases[0].shape)
    machine = replace(fake_machine(engine), close=lambda: closed.append("closed"))
    for _ in range(2):
        held = read_run(run(file, tmp_path / "out", machine=machine, spawn=lambda errand: pytest.fail("a process was started")))
    assert closed == ["closed", "closed"] and {case.tensor_parallel for case in held.header.cases} == {2}
