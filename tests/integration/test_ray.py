"""Real Ray clusters on this machine, every node a raylet of its own: the run of one process again, and what it survives."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from contextlib import nullcontext
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import pytest

from harness.analysis.trust.integrity import integrity_of
from harness.record.store import read_run
from harness.runner.cluster import ray_cluster
from harness.runner.cluster.ray_cluster import _ends, _join, lacking, needs_of, why_lost
from harness.scenario.part import Part
from tests.helpers import ROOT
from tests.helpers.child_processes import calibrated as calibrated

PART = {
    "name": "one",
    "model": {"random": "llama-250m"},
    "dtype": "float32",
    "arms": [{"method": "ntp"}],
    "workload": {"synthetic": {"prompt_tokens": 4}, "prompts": 4, "max_new_tokens": 3},
}
SMALL, LARGE, GPUS = {"CPU": 8.0}, {"CPU": 64.0}, {"CPU": 96.0, "GPU": 8.0, "accelerator_type:H100": 1.0}


def needs(cpus, gpus=0, custom=None):
    """The options of a Ray actor."""
    return {"num_cpus": cpus, "num_gpus": gpus, "resources": custom or {}}


@pytest.mark.parametrize(
    ("changes", "nodes", "options"),
    [
        ({}, [SMALL, LARGE], needs(cpus=64)),
        ({}, [SMALL | {"sbd": 1.0}, LARGE | {"sbd": 1.0}], needs(cpus=0, custom={"sbd": 1})),
        ({"timed": False, "threads": 2}, [SMALL], needs(cpus=2)),
        ({"timed": False}, [SMALL], needs(cpus=8)),
        ({"device": "cuda"}, [SMALL, GPUS], needs(cpus=12, gpus=1)),
        ({"device": "cuda", "devices": ["H100"]}, [GPUS], needs(cpus=12, gpus=1, custom={"accelerator_type:H100": 0.001})),
        ({"device": "cuda"}, [GPUS | {"sbd": 1.0}], needs(cpus=12, gpus=1, custom={"sbd": 1})),
    ],
)
def test_what_a_unit_asks_for_leaves_no_room_beside_it(changes, nodes, options):
    """A whole node on a CPU, its GPU and its share of the cores on one."""
    assert needs_of(Part.model_validate(PART | changes), nodes) == options


def test_what_no_node_has_is_said():
    """With what is there instead."""
    part = Part.model_validate(PART | {"device": "cuda", "devices": ["A100"]})
    assert lacking(part, [GPUS]) == "1 GPU of accelerator_type A100; 1 nodes are there, with GPU, accelerator_type:H100"
    assert lacking(Part.model_validate(PART), [SMALL]) is None


@pytest.mark.parametrize(
    ("kind", "text", "words"),
    [
        ("ActorDiedError", "The actor died because its node has died.", "its node is gone"),
        ("ActorDiedError", "The actor is dead because its worker process has died.", "its process was killed"),
        ("OutOfMemoryError", "Task was killed due to the node running low on memory.", "its node ran out of memory"),
        ("ActorDiedError", "raised in its creation task, x\nImportError: no harness", "be begun: ImportError: no harness"),
    ],
)
def test_how_a_unit_was_lost_is_told_in_few_words(kind, text, words):
    """What the record says of a failed try."""
    assert words in why_lost(type(kind, (Exception,), {})(text))


def test_a_client_server_that_cannot_begin_is_told_with_its_cause():
    """Its answer is a traceback, of which the first line alone says nothing."""
    reply = "Initialization failure from server:\nTraceback (most recent call last):\n  File x\nRuntimeError: no room\n"
    assert _ends(ConnectionAbortedError(reply)) == "Initialization failure from server: RuntimeError: no room"
    assert (_ends(ValueError("one line")), _ends(ValueError())) == ("one line", "ValueError")


@pytest.mark.parametrize("refusals", [0, 1, 4, 5])
def test_a_head_that_refuses_is_asked_again(refusals, monkeypatch):
    """Five times at most; the last refusal is the user's to read."""

    def init(**options):
        asked.append(options["address"])
        if len(asked) <= refusals:
            raise ConnectionAbortedError("Initialization failure from server:\nno")

    asked: list[str] = []
    monkeypatch.setattr(ray_cluster, "JOIN_PAUSE_S", 0)
    with pytest.raises(ConnectionAbortedError) if refusals == 5 else nullcontext():
        _join(SimpleNamespace(init=init), "ray://head:1")
    assert asked == ["ray://head:1"] * min(refusals + 1, 5)


def test_what_is_no_cluster_is_refused(monkeypatch, capsys):
    """Another kind of cluster, and Ray that is not installed: exit code 2 and what to do."""
    from tests.helpers.command import sbd

    assert sbd(monkeypatch, "run", "quickstart", "--on", "spark") == 2
    assert "--on spark: allowed are ray, for the cluster of this machine, and ray://host:port" in capsys.readouterr().err
    monkeypatch.setitem(sys.modules, "ray", None)
    assert sbd(monkeypatch, "run", "quickstart", "--on", "ray") == 2
    assert "pip install 'sbd-bench[run,ray]'" in capsys.readouterr().err


TWENTY_FOUR = """
version: 1
name: twenty_four
parts:
  - name: one
    model: &tiny {random: {name: tiny, layers: 1, hidden: 16, intermediate: 16, heads: 2, kv_heads: 1, head_dim: 8, vocab: 64}}
    dtype: float32
    threads: 1
    warmup: 2
    baseline_check: 0
    arms: [{method: ntp}, {method: sbd, block_size: 4, gamma: 0.5}, {method: sbd, block_size: 8, gamma: 0.5}]
    workload: &work {synthetic: {prompt_tokens: 4}, prompts: 4, max_new_tokens: 12}
    batch_sizes: [1, 2, 4]
  - name: two
    model: *tiny
    dtype: float32
    threads: 1
    warmup: 2
    baseline_check: 0
    arms:
      - {method: ntp}
      - {method: sbd, block_size: 4, gamma: [0.1, 1.0]}
      - {method: sbd_verified, block_size: 4, gamma: 0.5}
      - {method: self_speculation, block_size: 4, form: linear}
    workload: *work
    batch_sizes: [1, 2, 4]
"""


@pytest.fixture(scope="module")
def ray():
    """Ray, or a reason to skip."""
    return pytest.importorskip("ray", reason="the extra [ray] is not installed")


@pytest.mark.ray
@pytest.mark.filterwarnings("ignore")
def test_three_nodes_take_what_one_process_takes(ray, tmp_path, calibrated, monkeypatch):
    """24 timed cases over three raylets: every output, trace and seed is that of one process, and no two decodes of different
    units ever overlap on a node.
    """
    from benchmarks.faults import local_cluster
    from harness.progress import Progress
    from harness.runner.cluster.ray_cluster import RayCluster
    from harness.runner.cluster.scheduler import spread
    from harness.runner.job import Job
    from harness.runner.runner import run

    file = tmp_path / "twenty_four.yaml"
    file.write_text(TWENTY_FOUR)
    for name, value in calibrated.items():
        monkeypatch.setenv(name, value)
    alone = read_run(run(file, tmp_path / "alone"))
    assert len(alone.header.cases) == 24
    with local_cluster(workers=3) as cluster:
        monkeypatch.setenv("RAY_ADDRESS", cluster.address)
        with RayCluster("ray") as nodes:
            held = read_run(spread(Job.of(file), tmp_path / "spread", nodes, Progress()))

    def counted(found):
        return {s.key: (s.seed, s.rows, s.passes.untimed()) for s in found.samples if not s.warmup}

    assert counted(held) == counted(alone)
    assert [integrity_of(one).words for one in (held, alone)] == ["sealed, not signed"] * 2
    assert [case.model_dump() for case in held.header.cases] == [case.model_dump() for case in alone.header.cases]
    assert len({sample.node for sample in held.samples}) == 3
    assert overlaps(held) == []
    assert {one["node"] for one in held.sessions if one["event"] == "ceilings" and one.get("calibration")} == {
        sample.node for sample in held.samples
    }


def overlaps(held):
    """Pairs of decodes on one node of which the later began before the earlier had ended."""
    by_node = defaultdict(list)
    for sample in held.samples:
        times = (datetime.fromisoformat(sample.started_at), datetime.fromisoformat(sample.ended_at))
        by_node[sample.node].append((*times, sample.key))
    found = []
    for taken in by_node.values():
        taken.sort()
        found += [(one, other) for one, other in pairwise(taken) if other[0] < one[1]]
    return found


def test_two_decodes_at_once_on_a_node_are_seen():
    """And those on two nodes, or one behind the other, are not."""
    from tests.helpers.synthetic_run import build

    def at(number, node, start, end):
        times = {"started_at": f"2026-11-20T10:00:{start:02d}.000+00:00", "ended_at": f"2026-11-20T10:00:{end:02d}.000+00:00"}
        return run.samples[number].model_copy(update={"node": node, **times})

    run = build()
    apart = [at(0, "a", 0, 10), at(1, "b", 5, 15), at(2, "a", 10, 20)]
    assert overlaps(run.model_copy(update={"samples": apart})) == []
    [pair] = overlaps(run.model_copy(update={"samples": [*apart, at(3, "b", 14, 16)]}))
    assert [one[2] for one in pair] == [run.samples[1].key, run.samples[3].key]


def free_port():
    """One that nobody has now."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


@pytest.fixture
def short_folder():
    """Ray's sockets lie there, whose paths may have 107 letters."""
    with tempfile.TemporaryDirectory(prefix="ray", ignore_cleanup_errors=True) as folder:
        yield folder


def pretended_decodes():
    """The environment of a process whose decodes are pretended."""
    from benchmarks.faults import sbd_environment

    return sbd_environment({"fault": "none", "engine": "pretended"}, PYTHONPATH=str(ROOT))


@pytest.fixture
def head_address(ray, short_folder):
    """The ray:// address of a cluster begun by `ray start`, which a client of Ray's own has reached."""
    pytest.importorskip("grpc", reason="the extra [ray] is not whole")
    # Nodes use the sbd that is installed there: this checkout, and not another one.
    environment = pretended_decodes()
    port, client_port = free_port(), free_port()
    start = [sys.executable, "-m", "ray.scripts.scripts", "start", "--head", "--num-cpus=1", "--include-dashboard=false"]
    options = [f"--port={port}", f"--ray-client-server-port={client_port}", f"--temp-dir={short_folder}", "--block"]
    address = f"ray://127.0.0.1:{client_port}"
    with subprocess.Popen([*start, *options], env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as head:
        try:
            wait_for(client_port, head)
            why = reached_by_ray_alone(address)
            if why is not None:
                pytest.skip(f"Ray's own client does not reach a cluster on this machine: {why}")
            yield address
        finally:
            head.terminate()


def reached_by_ray_alone(address, tries=4):
    """None, or what Ray says: its head listens before it can serve, and on some machines it never can."""
    for _ in range(tries):
        client = f"import ray; ray.init({address!r}, log_to_driver=False); ray.cluster_resources()"
        done = subprocess.run([sys.executable, "-c", client], capture_output=True, text=True, check=False, timeout=120)
        if done.returncode == 0:
            return None
    return done.stderr.strip().splitlines()[-1]


@pytest.mark.ray
@pytest.mark.filterwarnings("ignore")
def test_a_run_from_outside_the_cluster(head_address, tmp_path):
    """A cluster begun by `ray start`, reached by ray://: the plan's samples, once each."""
    from benchmarks.faults import SCENARIO, sbd_command
    from harness.scenario.loading import load_scenario
    from harness.scenario.plan import make_plan

    command = sbd_command(tmp_path / "out", head_address)
    done = subprocess.run(command, env=pretended_decodes(), cwd=ROOT, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    taken = sorted(sample.key for sample in read_run(tmp_path / "out").samples)
    assert taken == sorted(slot.key for slot in make_plan(load_scenario(SCENARIO)).slots())


def wait_for(port, process):
    """Until something listens there."""
    for _ in range(1200):
        with socket.socket() as one:
            if one.connect_ex(("127.0.0.1", port)) == 0:
                return
        assert process.poll() is None, "ray start has ended"
        time.sleep(0.1)
    raise AssertionError("ray start does not listen")


def test_the_count_finds_what_is_lost_doubled_and_different():
    """A record with one sample missing, one twice and one other output: each is counted once, as what it is."""
    from benchmarks.faults import SCENARIO, in_this_process, verdict
    from harness.runner.runner import run

    with tempfile.TemporaryDirectory() as folder:
        whole = read_run(run(SCENARIO, Path(folder) / "out", spawn=in_this_process))
    nothing = {"trials": 1, "lost": 0, "doubled": 0, "different": 0}
    assert verdict(whole, Counter(), whole) == nothing
    first, second, *others = whole.samples
    rows = [second.rows[0].model_copy(update={"output_ids": [0] * second.rows[0].output_tokens}), *second.rows[1:]]
    broken = whole.model_copy(update={"samples": [second.model_copy(update={"rows": rows}), *others, others[0]]})
    assert verdict(broken, Counter([first.key]), whole) == {"trials": 1, "lost": 1, "doubled": 1, "different": 1}


@pytest.mark.ray
@pytest.mark.filterwarnings("ignore")
def test_nothing_is_lost_or_doubled_whatever_breaks(ray, tmp_path):
    """One planted fault of each kind, with real processes; benchmarks/faults has the full count."""
    from benchmarks.faults import figures
    from benchmarks.planted.faults import FAULTS

    found = figures(len(FAULTS), 1, tmp_path, "pretended")
    expected = {"real_model": 0, "trials": 6, "lost": 0, "doubled": 0, "different": 0} | dict.fromkeys(FAULTS, 1)
    assert found == expected


@pytest.mark.parametrize(
    ("where", "address", "switch"), [("ray", None, "0"), ("ray", "head:6379", None), ("ray://head:10001", None, None)]
)
def test_a_cluster_begun_here_is_told_to_keep_to_the_loopback(where, address, switch, monkeypatch):
    """Before Ray is imported; one with an address of its own keeps that."""
    told = []
    begun = SimpleNamespace(init=lambda **_: told.append(os.environ.get(ray_cluster.LOOPBACK_ONLY)), remote=lambda unit: unit)
    monkeypatch.setitem(sys.modules, "ray", begun)
    monkeypatch.setenv("RAY_ADDRESS", address or "")
    monkeypatch.setenv(ray_cluster.LOOPBACK_ONLY, "")
    monkeypatch.delenv(ray_cluster.LOOPBACK_ONLY)
    ray_cluster.RayCluster(where)
    assert told == [switch]


LISTENERS = """
from contextlib import suppress
from harness.runner.cluster.ray_cluster import RayCluster
with RayCluster("ray") as cluster:
    import psutil, ray
    ray.get(ray.remote(lambda: 1).remote())
    mine = psutil.Process()
    for one in [mine, *mine.children(recursive=True)]:
        with suppress(psutil.NoSuchProcess):  # one that has ended meanwhile
            for socket in one.net_connections("inet"):
                if socket.status == "LISTEN":
                    print(socket.laddr.ip.removeprefix("::ffff:"))
"""


@pytest.mark.ray
@pytest.mark.usefixtures("ray")
def test_a_cluster_begun_here_listens_on_the_loopback_alone(monkeypatch):
    """The control store, the raylet, its agents, the workers and this process."""
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    done = subprocess.run([sys.executable, "-c", LISTENERS], capture_output=True, text=True, check=False, timeout=120, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    found = done.stdout.split()
    assert len(found) >= 5 and set(found) == {"127.0.0.1"}
