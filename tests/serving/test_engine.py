"""The servers of a part as its engine: the protocol, its faults, and that no process outlives ours.

The other end is tests/helpers/protocol_server.py, which decodes nothing; `make test-serving` asks a real vLLM.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.errors import NotPossibleError, RequestError
from harness.models import KNOWN_SHAPES
from harness.scenario.plan import Case
from harness.scenario.servers import Server
from harness.serving import dialects
from harness.serving.engine import ServedEngine
from harness.serving.launch import StartedServer, free_port
from tests.helpers import ROOT
from tests.helpers.hostile_server import ids_of
from tests.helpers.plans import case_of

PROGRAM = ROOT / "tests" / "helpers" / "protocol_server.py"
PROMPTS = [(5, 6, 7), (8, 9)]


def engine_of(
    fault: str, logs: Path, monkeypatch: pytest.MonkeyPatch, load: dict[str, object] | None = None, **keys: object
) -> tuple[ServedEngine, Case]:
    """A part with one server of that fault, and its case."""
    command = lambda server, model, port, dtype: [sys.executable, str(PROGRAM), str(port), fault, str(logs)]  # noqa: E731
    monkeypatch.setattr(dialects.DIALECTS["vllm"], "command", command)
    part = {
        "model": {"reference": "sbd"},
        "servers": {"one": {"engine": "vllm", **keys}},
        "arms": [{"method": "ntp", "server": "one"}],
        "timed": False,
        "load": load or [],
    }
    case = case_of("ntp", **part)
    return ServedEngine(case.part, KNOWN_SHAPES["smollm2-135m"], None, "weights", logs), case


@pytest.fixture
def quiet(tmp_path: Path) -> Iterator[None]:
    """No process of a test is left after it. Its servers carry its folder: other tests run the same program beside."""
    yield
    time.sleep(0.1)
    found = subprocess.run(["pgrep", "-f", f"{PROGRAM} .* {tmp_path}$"], capture_output=True, text=True, check=False)
    assert found.stdout == ""


@pytest.mark.usefixtures("quiet")
def test_a_batch_is_its_rows_passes_tokens_and_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two prompts at once, then one alone, whose passes the server's steps confirm; it ends with the engine."""
    engine, case = engine_of("none", tmp_path, monkeypatch)
    two = engine.decode(case, PROMPTS, seed=3)
    new = case.workload.max_new_tokens
    assert two.generation.output_ids == (tuple(ids_of(new)),) * 2
    assert [two.generation.nfe(row) for row in (0, 1)] == [new - 1, new - 1]
    one = engine.decode(case, PROMPTS[:1], seed=3)
    assert one.readings is not None and one.readings.values["served_passes_by_steps"] == new - 1
    assert one.readings.values["served_ways_disagree"] == 0 and one.readings.values["served_foreign_requests"] == 0
    assert one.prefill_s > 0 and one.decode_s >= (new - 1) * 0.002
    told = engine.fingerprint(case.part)["servers"]["one"]
    assert told["version"] == "0-protocol-only"
    assert told["command"][1] == PROGRAM.name, "a record that is passed on names no folder of this machine"
    engine.close()


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("refuse", "answered 500: .*planted"),
        ("half", "ended after .* tokens without saying why"),
        ("hang", "fell silent"),
        ("wrong_prompt", "read 4 prompt tokens, 3 were sent"),
        ("no_ids", "no token ids"),
        ("more", "wrote 34 tokens, 33 were asked for"),
        ("short", "wrote 32 tokens, 33 were asked for: .* its context is too short"),
        ("elsewhere", "wrote token 99[0-9]+; the model has 49152"),
    ],
)
@pytest.mark.usefixtures("quiet")
def test_a_fault_is_told_and_leaves_no_sample(fault: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every fault is an outcome with its reason, never a shorter answer."""
    engine, case = engine_of(fault, tmp_path, monkeypatch, silent_s=1.0)
    with pytest.raises(RequestError, match=words):
        engine.decode(case, PROMPTS[:1], seed=3)
    engine.close()


@pytest.mark.usefixtures("quiet")
def test_requests_in_turn_are_counted_and_have_times(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A closed loop of one: the server's steps are those of all three together, and each waits for the one before."""
    engine, case = engine_of("none", tmp_path, monkeypatch, load={"concurrency": 1})
    three = engine.decode(case, [*PROMPTS, (3,)], seed=3)
    new = case.workload.max_new_tokens
    assert three.readings is not None and three.readings.values["served_passes_by_steps"] == 3 * (new - 1)
    assert three.readings.values["served_ways_disagree"] == 0
    assert three.row_times is not None
    first, second, third = three.row_times
    assert first.sent_s == 0 and first.last_token_s <= second.sent_s < second.sent_s + second.last_token_s <= third.sent_s
    assert all(one.gaps_s is not None and len(one.gaps_s) == new - 1 for one in three.row_times)
    engine.close()


@pytest.mark.parametrize("fault", ["none", "short"])
@pytest.mark.usefixtures("quiet")
def test_a_trace_is_answered_in_its_lengths(fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each answer is as long as its line says; a server that ends one earlier is told."""
    lines = [{"timestamp": 10 * i, "input_length": 3, "output_length": 4 + i} for i in range(3)]
    trace = tmp_path / "trace.jsonl"
    trace.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    engine, case = engine_of(fault, tmp_path, monkeypatch, load={"trace": str(trace), "requests": 3})
    if fault == "short":
        with pytest.raises(RequestError, match="wrote 3 tokens, 4 were asked for"):
            engine.decode(case, [(1, 2, 3)] * 3, seed=1)
    else:
        found = engine.decode(case, [(1, 2, 3)] * 3, seed=1)
        assert [len(ids) for ids in found.generation.output_ids] == [4, 5, 6]
        assert found.row_times is not None and [one.sent_s >= 0.01 * i for i, one in enumerate(found.row_times)] == [True] * 3
        assert len(engine.decode(case, [(1, 2, 3)], seed=1).generation.output_ids[0]) == 4, "a warm-up takes the first ones"
    engine.close()


@pytest.mark.usefixtures("quiet")
def test_a_server_that_died_is_told_and_started_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the midst of the third answer; the fourth comes from a new process."""
    engine, case = engine_of("die", tmp_path, monkeypatch)
    for _ in range(2):
        engine.decode(case, PROMPTS[:1], seed=3)
    with pytest.raises(RequestError, match="server one"):
        engine.decode(case, PROMPTS[:1], seed=3)
    assert len(engine.decode(case, PROMPTS[:1], seed=3).generation.output_ids[0]) == case.workload.max_new_tokens
    engine.close()


@pytest.mark.usefixtures("quiet")
def test_another_clients_requests_are_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server counts one more than we sent."""
    engine, case = engine_of("foreign", tmp_path, monkeypatch)
    decoded = engine.decode(case, PROMPTS[:1], seed=3)
    assert decoded.readings is not None and decoded.readings.values["served_foreign_requests"] == 1
    engine.close()


@pytest.mark.usefixtures("quiet")
def test_a_server_that_never_gets_ready_is_told_and_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that takes a second is waited for."""
    engine_of("slow_start", tmp_path, monkeypatch)[0].close()
    with pytest.raises(NotPossibleError, match="was not ready after 1 s"):
        engine_of("never_ready", tmp_path, monkeypatch, ready_s=1.0)


def test_a_command_that_fails_says_so_with_the_end_of_its_log(tmp_path: Path) -> None:
    """Its last words are in the message."""
    server = StartedServer("one", [sys.executable, "-c", "raise SystemExit('no such weights, an Error')"], {}, tmp_path / "log")
    with pytest.raises(NotPossibleError, match="status 1 before it was ready: no such weights"):
        server.wait_ready(f"http://127.0.0.1:{free_port()}/health", 20)


def written(pids: Path) -> list[str]:
    """What a process writes there."""
    until = time.monotonic() + 20
    while not pids.exists() and time.monotonic() < until:
        time.sleep(0.1)
    time.sleep(0.2)
    return pids.read_text(encoding="utf-8").split()


@pytest.mark.parametrize("how", ["killed", "closed"])
def test_what_a_server_put_into_a_session_of_its_own_ends_with_it(how: str, tmp_path: Path) -> None:
    """As vLLM's engine processes are: the first process is killed, or all is closed, and they are orphans of another group."""
    pids = tmp_path / "pids"
    child = (
        "import os, subprocess, sys, time; from pathlib import Path\n"
        "sleeper = [sys.executable, '-c', 'import time; time.sleep(98)']\n"
        "below = subprocess.Popen(sleeper, start_new_session=True)\n"
        f"Path({str(pids)!r}).write_text(f'{{os.getpid()}} {{below.pid}}'); time.sleep(98)"
    )
    server = StartedServer("one", [sys.executable, "-c", child], {}, tmp_path / "log")
    first, below = written(pids)
    if how == "killed":
        os.kill(int(first), signal.SIGKILL)
        assert server.ends_within(20)
    server.end()
    assert not _runs(first) and not _runs(below)


def test_what_a_server_started_ends_where_its_keeper_is_killed(tmp_path: Path) -> None:
    """As by a kernel that is out of memory: the server's own child, in another group, has nobody left but the starter."""
    pids = tmp_path / "pids"
    child = (
        "import subprocess, sys, time; from pathlib import Path\n"
        "below = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(98)'], process_group=0)\n"
        f"Path({str(pids)!r}).write_text(str(below.pid)); time.sleep(98)"
    )
    server = StartedServer("one", [sys.executable, "-c", child], {}, tmp_path / "log")
    [below] = written(pids)
    os.kill(server.pid, signal.SIGKILL)
    assert server.ends_within(20) and _runs(below)
    server.end()
    time.sleep(0.2)
    assert not _runs(below)


def _runs(pid: str) -> bool:
    """Whether the process is there; one that has ended and that nobody has asked about is not."""
    try:
        return Path("/proc", pid, "stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_no_server_outlives_a_killed_run(tmp_path: Path) -> None:
    """SIGKILL of the starter; the server and its own child are gone within seconds."""
    script = (
        "import sys, time; from pathlib import Path; from harness.serving.launch import StartedServer\n"
        'child = \'import subprocess, sys, time; subprocess.Popen([sys.executable, "-c", "import time; time.sleep(987)"]);\'\n'
        f"StartedServer('one', [sys.executable, '-c', child + 'time.sleep(987)'], {{}}, Path({str(tmp_path)!r}) / 'log')\n"
        "print('started', flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, cwd=ROOT) as starter:
        assert starter.stdout is not None and starter.stdout.readline() == b"started\n"
        time.sleep(1.0)
        assert len(_sleepers()) >= 2
        os.kill(starter.pid, signal.SIGKILL)
    until = time.monotonic() + 20
    while _sleepers() and time.monotonic() < until:
        time.sleep(0.1)
    assert _sleepers() == []


def _sleepers() -> list[str]:
    found = subprocess.run(["pgrep", "-f", "time.sleep\\(987\\)"], capture_output=True, text=True, check=False)
    return found.stdout.split()


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"arguments": ["--trust-remote-code"]}, "can load code"),
        ({"arguments": ["--speculative-config", '{"method": "custom_class"}']}, "can load code"),
        ({"arguments": ["--port=80"]}, "is set by sbd"),
        ({"environment": {"LD_PRELOAD": "x.so"}}, "no switch of an engine"),
        ({"url": "http://127.0.0.1:1", "arguments": ["--x"]}, "takes no arguments"),
        ({"url": "file:///etc/passwd"}, "http://HOST:PORT"),
    ],
)
def test_no_scenario_brings_code_to_a_server(keys: dict[str, object], words: str) -> None:
    """Arguments, environment and address are checked before anything runs."""
    with pytest.raises(ValueError, match=words):
        Server.model_validate({"engine": "vllm", **keys})
