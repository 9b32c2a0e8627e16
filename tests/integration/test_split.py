"""A model split over two processes, by gloo on the CPU: the same logits, tokens, traces and record as one process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from tests.helpers import ROOT

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from harness.engine import rank_group
from harness.engine.loading import checkpoint_shape, load_model
from harness.engine.rank_group import RankGroup, RankOrder
from harness.engine.tensor_parallel import open_split_engine, refuse_other_files, refuse_too_few_gpus
from harness.errors import STATUS_AGAIN, DoesNotFitError, ProcessEndedError, ScenarioError, UnknownModelError, UserError
from harness.meters.available import without_energy
from harness.meters.nvml import ENERGY
from harness.record.store import read_run
from harness.runner.runner import run
from harness.runner.subprocesses import end_all, first_end, start
from harness.scenario.ranks import Ranks
from tests.helpers.split_worker import MODELS, logits_of, part_of, stored_bytes

ARMS = [
    {"method": "ntp", "temperature": [0, 0.8]},
    {"method": "sbd", "block_size": 8, "gamma": 0.6, "temperature": [0, 0.8]},
    {"method": "sbd", "block_size": 8, "gamma": 0.6, "batching": "ragged"},
    {"method": "sbd", "block_size": 8, "solver": "threshold", "tau": 0.9},
    {"method": "sbd_verified", "block_size": 8, "gamma": 0.6, "temperature": [0, 0.8]},
    {"method": "self_speculation", "block_size": 4, "form": ["linear", "quadratic"]},
]
RANDOM = {"synthetic": {"prompt_tokens": 5}, "prompts": 3, "max_new_tokens": 10}
COMMON = {"dtype": "float64", "timed": False, "batch_sizes": [2], "arms": ARMS}


def parts(world: int, timed: bool) -> list[dict[str, Any]]:
    """The reference model with real acceptance, and random ones whose widths do not halve, one of them ``timed``."""
    words = {"tasks": ["short_trace"], "prompts": 3, "max_new_tokens": 12}
    replay = [{"method": "ntp"}, {"method": "sbd", "block_size": 4, "acceptance": {"replay": {"nfe_speedup": 2.0}}}]
    return [
        one | {"tensor_parallel": world}
        for one in (
            COMMON | {"name": "reference", "model": MODELS["reference"], "workload": words},
            COMMON | {"name": "qwen3", "model": MODELS["qwen3"], "workload": RANDOM, "session": "plain"},
            COMMON
            | {"name": "llama", "model": MODELS["llama"], "workload": RANDOM | {"prompts": 2}, "arms": replay}
            | {"timed": timed, "warmup": 0, "baseline_check": 1},
        )
    ]


def write(folder: Path, parts: list[dict[str, Any]]) -> Path:
    """A scenario file."""
    file = folder / "s.yaml"
    file.write_text(yaml.safe_dump({"version": 1, "name": "split", "parts": parts}))
    return file


def environment(**more: str) -> dict[str, str]:
    """For child processes: this checkout, one thread each."""
    return os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"} | more


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The run by one process, nothing timed."""
    folder = tmp_path_factory.mktemp("alone")
    return read_run(run(write(folder, parts(1, timed=False)), folder / "run"))


def without_times(found: Any) -> dict[Any, Any]:
    """Rows and passes of every sample: tokens, stops, grades and the trace, but no duration."""
    return {
        sample.key: ([row.model_dump() for row in sample.rows], sample.passes.untimed().model_dump(), sample.seed)
        for sample in found.samples
    }


def written_by_ntp(found: Any, part: str) -> list[list[int]]:
    """The tokens of the first batch."""
    return next([row.output_ids for row in one.rows] for one in found.samples if one.case_id == f"{part}/synthetic/b2/ntp")


def workers(*arguments: str, folder: Path) -> tuple[int, list[int]]:
    """Two processes of tests.helpers.split_worker; the status that decides, and each one's."""
    command = [sys.executable, "-m", "tests.helpers.split_worker", *arguments]
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(ROOT)
        patch.setenv("OMP_NUM_THREADS", "1")
        children = start(command, 2, folder, ())
        try:
            status = first_end(children)
            if status == 0:
                children[1].wait(60)
        finally:
            end_all(children, 5.0)
    return status, [child.wait() for child in children]


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What both ranks said of their logits and memory."""
    folder = tmp_path_factory.mktemp("logits")
    assert workers("logits", str(folder), folder=folder) == (0, [0, 0])
    return folder


@pytest.mark.long
@pytest.mark.parametrize("session", ["static", "plain"])
@pytest.mark.parametrize("name", MODELS)
def test_logits_are_those_of_one_process(name: str, session: str, told: Path) -> None:
    """To 1e-9 in float64, prompt, token, block and two blocks at once; the very same bits on both ranks."""
    _, _, expected = logits_of(part_of(name, session), None)
    found = torch.load(told / f"{name}-{session}.pt")
    for ours, theirs in zip(expected, found, strict=True):
        assert ours.shape == theirs.shape and float((ours - theirs).abs().max()) < 1e-9
        assert float(ours.std()) > 1e-3, "logits that say nothing would agree with anything"
    first, second = (json.loads((told / f"rank{rank}.json").read_text())[f"{name}/{session}"] for rank in (0, 1))
    assert first["digest"] == second["digest"]


@pytest.mark.long
@pytest.mark.parametrize("name", MODELS)
def test_each_process_keeps_its_share_alone(name: str, told: Path) -> None:
    """Half the KV heads; weights that add up to the whole model, but for the norms and what one rank rounds up."""
    model, session, _ = logits_of(part_of(name), None)
    ranks = [json.loads((told / f"rank{rank}.json").read_text())[f"{name}/static"] for rank in (0, 1)]
    rows, heads, slots, width = session._keys[0].shape
    assert [rank["kv_shape"] for rank in ranks] == [[rows, heads // 2, slots, width]] * 2
    whole = stored_bytes(model.module)
    small = sum(weight.nbytes for key, weight in model.module.named_parameters() if "norm" in key or "o_proj.bias" in key)
    assert sum(rank["stored_bytes"] for rank in ranks) == whole + small


@pytest.mark.full
def test_torchrun_leaves_the_record_of_one_process(tmp_path: Path, alone: Any) -> None:
    """NTP, SBD, verified and self-speculating arms, greedy and sampled, lockstep and ragged: every token and every pass; and
    generate() writes what NTP does. Rank 0 alone speaks, and says each thing once.
    """
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "harness", "run"]
    done = subprocess.run(
        [*command, str(write(tmp_path, parts(2, timed=True))), "--out", str(tmp_path / "run"), "--no-report"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=environment(),
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = read_run(tmp_path / "run")
    checks = {case.case_id for case in found.header.cases if case.is_check}
    samples, by_generate = without_times(found), {key for key in without_times(found) if key[0] in checks}
    assert {key: value for key, value in samples.items() if key not in by_generate} == without_times(alone)
    written = {key[0]: [row["output_ids"] for row in samples[key][0]] for key in by_generate}
    assert len(written) == 2 and list(written.values()) == [written_by_ntp(found, "llama")] * 2
    assert done.stdout.splitlines() == [f"record  {tmp_path / 'run'}"]
    assert done.stderr.count("part reference: loading the model") == 1
    assert {case.tensor_parallel for case in found.header.cases} == {2}
    engines = [one for one in found.sessions if one["event"] == "engine"]
    assert [one["tensor_parallel"] for one in engines] == [{"processes": 2, "backend": "gloo"}] * 3


@pytest.mark.long
def test_sbd_run_starts_the_processes_of_each_part(tmp_path: Path) -> None:
    """Without torchrun, under the lock of the process that started them: what one process here writes."""
    part = COMMON | {"name": "p", "arms": ARMS[:2], "model": MODELS["llama"], "workload": RANDOM}
    done = subprocess.run(
        [sys.executable, "-m", "harness", "run", str(write(tmp_path, [part | {"tensor_parallel": 2}])), "--no-report"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=environment(),
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "part p, fresh process 1 of 1, 2 sharing the model" in done.stderr
    found = read_run(Path(tmp_path, done.stdout.removeprefix("record  ").strip()))
    assert without_times(found) == without_times(read_run(run(write(tmp_path, [part]), tmp_path / "alone")))
    assert len(found.samples) == 8 and {case.tensor_parallel for case in found.header.cases} == {2}


@pytest.mark.parametrize(
    ("started", "words"),
    [
        (4, "part reference: tensor_parallel is 2, but torchrun started 4 processes; start 2"),
        (0, "part reference: tensor_parallel is 3, but reference-sbd has 4 attention heads and 2 KV heads"),
    ],
)
def test_a_split_that_cannot_be_is_refused_in_one_line(started: int, words: str, tmp_path: Path) -> None:
    """Exit code 2; the process that would follow is not waited for."""
    file = write(tmp_path, parts(2 if started else 3, timed=False)[:1])
    ranks = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": str(started)} if started else {}
    done = subprocess.run(
        [sys.executable, "-m", "harness", "run", str(file), "--out", str(tmp_path / "run")],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=environment(**ranks),
        check=False,
    )
    assert done.returncode == 2 and words in done.stderr and done.stderr.count("\n") == 1
    assert not (tmp_path / "run" / "run.json").exists()


@pytest.mark.long
@pytest.mark.parametrize(
    ("how", "status", "said"),
    [
        ("seed", 5, "rank 1 of 2: rank 1 decided "),
        pytest.param("memory", 5, "rank 1 of 2: out of memory on a planted device\n", marks=pytest.mark.full),
        pytest.param("killed", -9, "", marks=pytest.mark.full),
    ],
)
def test_one_that_fails_ends_all(how: str, status: int, said: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A rank that draws otherwise is found out at the first readback, and says so in one line, as one without memory does;
    and nobody waits for one that is gone, whose loss rank 0 puts into words if it is left the time.
    """
    decided, (first, second) = workers("fail", how, str(tmp_path), folder=tmp_path)
    assert (decided, second) == (status, status) and first in (-15, 3)
    met = tmp_path / "met"
    assert not met.exists() or (how == "killed" and "ended without a word (" in met.read_text())
    assert capfd.readouterr().err.startswith(said)


@pytest.fixture
def only_one(tmp_path: Path) -> Iterator[RankGroup]:
    """A group of one process, which talks to nobody but talks."""
    group = RankGroup(Ranks(rank=0, local=0, world=1, rendezvous=(tmp_path / "store").as_uri()))
    yield group
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


def raising(error: Exception) -> Callable[[], int]:
    """A call that fails."""

    def call() -> int:
        raise error

    return call


def test_nothing_is_led_behind_an_order_that_was_not_carried_out(only_one: RankGroup) -> None:
    """The case goes into the record with its own reason; then the ranks, which may stand anywhere, are not used any more."""
    assert only_one.lead(RankOrder("decode"), lambda: 7) == 7 == only_one.lead(RankOrder("decode"), lambda: 7)
    with pytest.raises(DoesNotFitError, match="too large"):
        only_one.lead(RankOrder("decode"), raising(DoesNotFitError("too large")))
    for call in (lambda: only_one.lead(RankOrder("open"), lambda: 7), only_one.dismiss):
        with pytest.raises(ProcessEndedError, match="decode did not come to its end in all 1 processes") as ended:
            call()
        assert ended.value.exit_code == STATUS_AGAIN


def test_what_ended_another_rank_is_told_if_it_said_so(only_one: RankGroup, monkeypatch: pytest.MonkeyPatch) -> None:
    """gloo knows only that a connection was closed; a RuntimeError of our own stays what it is."""
    monkeypatch.setattr(rank_group, "LOST_S", 0)
    closed = RuntimeError("[pair.cc:553] Connection closed by peer [127.0.0.1]:1. This is typical\nGLHF")
    for error, kind, words in (
        (closed, ProcessEndedError, "another process of the split model ended without a word .*Connection closed by peer"),
        (RuntimeError("shapes differ"), RuntimeError, "shapes differ"),
    ):
        with pytest.raises(kind, match=words):
            only_one.lead(RankOrder("decode"), raising(error))
        only_one._amid = None
    only_one.leave_word("rank 1 of 2: no memory")
    with pytest.raises(ProcessEndedError, match=r"^rank 1 of 2: no memory$"):
        only_one.lead(RankOrder("decode"), raising(closed))


@pytest.mark.parametrize(("device", "count", "refused"), [("cuda", 1, True), ("cuda", 2, False), ("cpu", 0, False)])
def test_every_process_needs_a_gpu_of_its_own(device: str, count: int, refused: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Said with both numbers; on several machines, of the processes on this one."""
    part = part_of("llama", device=device)
    if not refused:
        return refuse_too_few_gpus(part, count)
    with pytest.raises(ScenarioError, match=r"tensor_parallel is 2, and every process needs a GPU .* sees 1 here"):
        refuse_too_few_gpus(part, count)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "1")
    return refuse_too_few_gpus(part, count)


def test_machines_with_other_files_of_the_model_do_not_share_it() -> None:
    """The first rank of each machine tells; what one of them does not know is not compared."""
    split, own = part_of("reference"), {"weights": "a", "tokenizer": "b"}
    refuse_other_files(split, [own, {}, own | {"tokenizer": None}])
    with pytest.raises(UserError, match=r"rank 2 has other files of the model than that of rank 0 \(weights\)"):
        refuse_other_files(split, [own, {}, own | {"weights": "c"}])


def test_a_split_part_in_one_process_is_refused() -> None:
    """Whoever opens it must be one of several."""
    with pytest.raises(ScenarioError, match="tensor_parallel is 2, but this is one process; start it with `sbd run`"):
        open_split_engine(part_of("llama"))


def test_what_transformers_cannot_split_is_refused(only_one: RankGroup, monkeypatch: pytest.MonkeyPatch) -> None:
    """A model without a plan by its class, an older transformers by its version; each with what to do."""
    model, _, _ = logits_of(part_of("llama"), None)
    model.module.tp_plan = None
    with pytest.raises(UnknownModelError, match="tiny: transformers has no plan how to split LlamaForCausalLM; use"):
        rank_group.split(model.module, "tiny", "cpu", only_one)
    rank_group.refuse_older_transformers()
    monkeypatch.setattr(rank_group.transformers, "__version__", "5.20.3")
    with pytest.raises(UserError, match=r"needs transformers 5.23 or newer, this is 5.20.3"):
        rank_group.refuse_older_transformers()


def test_a_shape_is_read_without_the_weights() -> None:
    """The process that begins the run of a split model holds none of it."""
    part = part_of("reference")
    assert checkpoint_shape(part.model) == load_model(part).shape


def test_one_gpu_does_not_stand_for_the_energy_of_several() -> None:
    """Its energy meter goes, with the reason; other meters of the first GPU stay; what was absent before stays so."""
    energy, other = SimpleNamespace(figures=ENERGY), SimpleNamespace(figures={"sm_clock_mhz": None})
    meters, absent = without_energy([energy, other], [], 2)
    assert meters == [other] and [one.figures for one in absent] == [("energy_j",)] and "split over 2 GPUs" in absent[0].reason
    assert without_energy([other], [], 2) == ([other], [])
