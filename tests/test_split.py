"""A model split over two processes, by gloo on the CPU: the same logits, tokens, traces and record as one process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from harness.processes_ranks import end_all, first_end, start  # noqa: E402 - after the import guard
from harness.runner import run  # noqa: E402
from harness.store import read_run  # noqa: E402
from tests.split_worker import MODELS, logits_of, part_of, stored_bytes  # noqa: E402

ROOT = Path(__file__).resolve().parent.parent
ARMS = [
    {"method": "ntp", "temperature": [0, 0.8]},
    {"method": "sbd", "block_size": 8, "gamma": 0.6, "temperature": [0, 0.8]},
    {"method": "sbd", "block_size": 8, "gamma": 0.6, "batching": "ragged"},
    {"method": "sbd", "block_size": 8, "solver": "threshold", "tau": 0.9},
    {"method": "sbd_verified", "block_size": 8, "gamma": 0.6, "temperature": [0, 0.8]},
    {"method": "self_speculation", "block_size": 4, "form": ["linear", "quadratic"]},
]
COMMON = {"dtype": "float64", "timed": False, "batch_sizes": [2], "arms": ARMS}


def parts(world: int) -> list[dict[str, Any]]:
    """The reference model with real acceptance, and random ones whose widths do not halve; a timed part with generate()."""
    words = {"tasks": ["short_trace"], "prompts": 3, "max_new_tokens": 20}
    random = {"synthetic": {"prompt_tokens": 5}, "prompts": 3, "max_new_tokens": 12}
    timed = {
        "name": "timed", "model": MODELS["llama"], "dtype": "float64", "warmup": 0, "baseline_check": 1,
        "arms": [{"method": "ntp"}, {"method": "sbd", "block_size": 4, "acceptance": {"replay": {"nfe_speedup": 2.0}}}],
        "workload": {"synthetic": {"prompt_tokens": 5}, "prompts": 1, "max_new_tokens": 8},
    }  # fmt: skip
    return [
        one | {"tensor_parallel": world}
        for one in (
            COMMON | {"name": "reference", "model": MODELS["reference"], "workload": words},
            COMMON | {"name": "qwen3", "model": MODELS["qwen3"], "workload": random, "session": "plain"},
            timed,
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
    """The run by one process."""
    folder = tmp_path_factory.mktemp("alone")
    return read_run(run(write(folder, parts(1)), folder / "run"))


def without_times(found: Any) -> dict[Any, Any]:
    """Rows and passes of every sample: tokens, stops, grades and the trace, but no duration."""
    return {
        sample.key: ([row.model_dump() for row in sample.rows], sample.passes.untimed().model_dump(), sample.seed)
        for sample in found.samples
    }


def workers(*arguments: str, folder: Path) -> tuple[int, list[int]]:
    """Two processes of tests.split_worker; the status that decides, and each one's."""
    command = [sys.executable, "-m", "tests.split_worker", *arguments]
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


def test_torchrun_leaves_the_record_of_one_process(tmp_path: Path, alone: Any) -> None:
    """NTP, SBD, verified and self-speculating arms, greedy and sampled, lockstep and ragged, generate() too: every token and
    every pass. Rank 0 alone speaks, and says each thing once.
    """
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "harness", "run"]
    done = subprocess.run(
        [*command, str(write(tmp_path, parts(2))), "--out", str(tmp_path / "run"), "--no-report"],
        capture_output=True, text=True, cwd=tmp_path, env=environment(), check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = read_run(tmp_path / "run")
    assert without_times(found) == without_times(alone) and len(found.samples) > 20
    assert done.stdout.splitlines() == [f"record  {tmp_path / 'run'}"]
    assert done.stderr.count("part reference: loading the model") == 1
    assert {case.tensor_parallel for case in found.header.cases} == {2}
    engines = [one for one in found.sessions if one["event"] == "engine"]
    assert [one["tensor_parallel"] for one in engines] == [{"processes": 2, "backend": "gloo"}] * 3


def test_sbd_run_starts_the_processes_of_each_part(tmp_path: Path) -> None:
    """One part in one process, the same one in two: the same tokens, in one record, written under one lock."""
    part = COMMON | {"arms": ARMS[:1], "model": MODELS["llama"], "workload": parts(1)[1]["workload"]}
    both = [part | {"name": "one"}, part | {"name": "two", "tensor_parallel": 2}]
    done = subprocess.run(
        [sys.executable, "-m", "harness", "run", str(write(tmp_path, both)), "--out", str(tmp_path / "run"), "--no-report"],
        capture_output=True, text=True, cwd=tmp_path, env=environment(), check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "part two, fresh process 1 of 1, 2 sharing the model" in done.stderr
    found = read_run(tmp_path / "run")
    greedy = {name: [[row.output_ids for row in one.rows] for one in found.samples if one.case_id.startswith(f"{name}/")
                     and one.case_id.endswith("/ntp")] for name in ("one", "two")}  # fmt: skip
    assert greedy["one"] == greedy["two"] and len(greedy["one"]) == 2
    assert {case.part: case.tensor_parallel for case in found.header.cases} == {"one": 1, "two": 2}
    assert not list(tmp_path.glob("run/.*")) and not list(Path("/tmp").glob(f"sbd-*/{found.header.run_id}"))


@pytest.mark.parametrize(("started", "words"), [
    (4, "part reference: tensor_parallel is 2, but torchrun started 4 processes; start 2"),
    (0, "part reference: tensor_parallel is 3, but reference-sbd has 4 attention heads and 2 KV heads"),
])  # fmt: skip
def test_a_split_that_cannot_be_is_refused_in_one_line(started: int, words: str, tmp_path: Path) -> None:
    """Exit code 2; the process that would follow is not waited for."""
    file = write(tmp_path, parts(2 if started else 3)[:1])
    ranks = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": str(started)} if started else {}
    done = subprocess.run(
        [sys.executable, "-m", "harness", "run", str(file), "--out", str(tmp_path / "run")],
        capture_output=True, text=True, cwd=tmp_path, env=environment(**ranks), check=False,
    )  # fmt: skip
    assert done.returncode == 2 and words in done.stderr and done.stderr.count("\n") == 1
    assert not (tmp_path / "run" / "run.json").exists()


@pytest.mark.parametrize(
    ("how", "status", "each", "met", "said"),
    [
        ("nobody", 0, [0, 0], ["decoded", "decoded"], ""),
        ("first", 3, [3, -15], ["DoesNotFitError 5: out of memory on a planted device",
                                "ProcessEndedError 75: decode did not come to its end in all 2 processes"], ""),
        ("memory", 5, [-15, 5], None, "rank 1 of 2: out of memory on a planted device\n"),
        ("seed", 5, [-15, 5], None, "rank 1 of 2: rank 1 decided "),
        ("killed", -9, [None, -9], None, ""),
    ],
)  # fmt: skip
def test_one_that_fails_ends_all(
    how: str, status: int, each: list[int | None], met: list[str] | None, said: str, tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """Rank 0 keeps its own failure for the record and goes no further; another rank says its own in one line; ranks that draw
    differently are found out at the first readback; and nobody waits for one that is gone.
    """
    decided, ended = workers("fail", how, str(tmp_path), folder=tmp_path)
    assert decided == status and all(one in (None, found) for one, found in zip(each, ended, strict=True))
    if met is not None:
        written = json.loads((tmp_path / "met.json").read_text())
        assert len(written) == len(met) and all(one.startswith(start) for one, start in zip(written, met, strict=True))
    assert capfd.readouterr().err.startswith(said)
