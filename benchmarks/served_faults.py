"""Faults of a real vLLM and of the way to it: 40 trials, five of each kind, in the midst of an answer.

    SBD_VLLM_PYTHON=... python -m benchmarks.served_faults WORK

A trial takes one whole sample, plants the fault into the next one, and takes a last one after it. Killed, stopped and ended
servers are the real vLLM's processes; answers 500 and halves come from a proxy before it. Out of memory: a server whose KV
cache is larger than the machine, which ends as it starts. A kernel that is out of memory kills, which is the first kind.

faults            trials
lost_samples      whole samples before and after a fault that are not there, or not what they were without faults
wrong_samples     faulty ones that were taken as whole and are not what they were without faults, and not void by a reason
untold            faulty ones that ended without a reason that names the server
processes_left    of vLLM, after the last trial
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import httpx2 as httpx

from benchmarks.results_file import write_results
from harness.errors import NotPossibleError, RequestError
from harness.models import KNOWN_SHAPES
from harness.models.pretrained import found_folder
from harness.scenario.plan import Case, make_plan
from harness.scenario.scenario import Scenario
from harness.serving.engine import ServedEngine
from harness.serving.launch import free_port

TRIALS, TOKENS, SILENT_S = 5, 48, 4.0
PROMPT = tuple(range(100, 140))
MODEL = "smollm2-135m"
TOO_LARGE_GB = "4000"


class FaultyProxy:
    """Between client and server; ``fault`` of the next answer: "", "500" or "half"."""

    def __init__(self, target: int) -> None:
        self.port, self.fault, self._target = free_port(), "", target
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._run, daemon=True).start()
        time.sleep(0.3)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        server = self._loop.run_until_complete(asyncio.start_server(self._connected, "127.0.0.1", self.port))
        assert server.sockets  # and it lives as long as the loop
        self._loop.run_forever()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", self._target)
        head = await reader.read(65536)
        asks = b"POST" in head[:5]
        fault, self.fault = (self.fault, "") if asks else ("", self.fault)
        back.write(head)
        up = asyncio.ensure_future(self._forward(reader, back))
        if fault == "500":
            writer.write(b"HTTP/1.1 500 Internal Server Error\r\nContent-Length: 7\r\nConnection: close\r\n\r\nplanted")
            await writer.drain()
        else:
            await self._back(there, writer, fault)
        up.cancel()
        await asyncio.wait([up])
        back.close()
        writer.close()

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            writer.write(data)

    async def _back(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, fault: str) -> None:
        pieces = 0
        while data := await reader.read(65536):
            pieces += 1
            if fault and pieces > TOKENS // 2:
                return
            writer.write(data)
            await writer.drain()


def case_of(url: str | None, kv_cache_gb: str = "1") -> Case:
    """One server of ours, or one at ``url``."""
    server: dict[str, Any] = {"engine": "vllm", "silent_s": SILENT_S}
    server |= (
        {"url": url}
        if url
        else {
            "arguments": ["--enforce-eager", "--max-model-len", "512"],
            "environment": {"VLLM_CPU_KVCACHE_SPACE": kv_cache_gb},
        }
    )
    scenario = Scenario.model_validate(
        {
            "version": 1,
            "name": "faults",
            "parts": [
                {
                    "name": "vllm",
                    "model": {"pretrained": MODEL},
                    "dtype": "bfloat16",
                    "servers": {"one": server},
                    "timed": False,
                    "arms": [{"method": "ntp", "server": "one"}],
                    "workload": {"synthetic": {"prompt_tokens": len(PROMPT)}, "max_new_tokens": TOKENS, "prompts": 1},
                }
            ],
        }
    )
    return make_plan(scenario).cases[0]


@contextmanager
def engine_at(url: str | None, logs: Path) -> Iterator[Callable[[], tuple[int, ...]]]:
    """A call that takes one sample and returns its ids; a sample that its readings make void raises RequestError."""
    case = case_of(url)
    engine = ServedEngine(case.part, KNOWN_SHAPES[MODEL], None, str(found_folder(MODEL)), logs)

    def take() -> tuple[int, ...]:
        decoded = engine.decode(case, [PROMPT], seed=1)
        if decoded.readings is not None and decoded.readings.values.get("served_foreign_requests"):
            raise RequestError("server one: void, another client used it")
        return decoded.generation.output_ids[0]

    try:
        yield take
    finally:
        engine.close()


SESSIONS: set[int] = set()
"""Of all keepers so far; vLLM's processes rename themselves, and stay in the session."""


def engine_pids() -> list[int]:
    """The API server and every process behind it, those too that nobody waits for any more."""
    found = {}
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended meanwhile
            pid = int(entry.name)
            found[pid] = os.getsid(pid)
            parent = int((entry / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()[1])
            if found[pid] == pid and parent == os.getpid():
                SESSIONS.add(pid)
    return sorted(pid for pid, session in found.items() if session in SESSIONS and pid != session)


def signalled(sign: signal.Signals, also_after_s: float | None = None) -> Callable[[], None]:
    """Sends ``sign`` to vLLM's processes half a second from now; SIGCONT follows."""

    def send() -> None:
        time.sleep(0.5)
        for pid in engine_pids():
            os.kill(pid, sign)
        if also_after_s is not None:
            time.sleep(also_after_s)
            for pid in engine_pids():
                os.kill(pid, signal.SIGCONT)

    return lambda: threading.Thread(target=send, daemon=True).start()


def tenant(port: int) -> Callable[[], None]:
    """Another client's short request, half a second from now."""

    def ask() -> None:
        time.sleep(0.5)
        body = {"model": "model", "prompt": [5, 6, 7], "max_tokens": 2, "temperature": 0}
        httpx.post(f"http://127.0.0.1:{port}/v1/completions", json=body, timeout=60, trust_env=False)

    return lambda: threading.Thread(target=ask, daemon=True).start()


class Tally:
    """What the trials came to."""

    def __init__(self) -> None:
        self.faults = self.lost = self.wrong = self.untold = 0

    def trial(self, kind: str, take: Callable[[], tuple[int, ...]], plant: Callable[[], None], right: tuple[int, ...]) -> None:
        """One: a whole sample, the faulty one, and one after it."""
        self.faults += 1
        said = "a whole answer"
        self.lost += take() != right
        plant()
        try:
            self.wrong += take() != right
        except RequestError as error:
            said = str(error)
            self.untold += "server one" not in said
        for _ in range(3):  # a server that comes back may take its time
            try:
                self.lost += take() != right
                break
            except RequestError:
                time.sleep(3 * SILENT_S)
        else:
            self.lost += 1
        print(f"{kind}: {said[:150]}", flush=True)


def main() -> None:
    """Run the trials; print each, and write the figures."""
    logs, tally = Path(sys.argv[1]), Tally()
    with engine_at(None, logs) as take:
        right = take()
        for _ in range(TRIALS):
            tally.trial("killed", take, signalled(signal.SIGKILL), right)
        for _ in range(TRIALS):
            tally.trial("asked to end", take, signalled(signal.SIGTERM), right)
        for _ in range(TRIALS):
            tally.trial("stopped", take, signalled(signal.SIGSTOP, 2 * SILENT_S), right)
        port = int(next(arg for arg, before in _pairs(engine_pids()[0]) if before == "--port"))
        proxy = FaultyProxy(port)
        with engine_at(f"http://127.0.0.1:{proxy.port}", logs) as by_proxy:
            for fault in ("500", "half"):
                for _ in range(TRIALS):
                    tally.trial(fault, by_proxy, partial(setattr, proxy, "fault", fault), right)
            for _ in range(TRIALS):
                tally.trial("another tenant", by_proxy, tenant(port), right)
        for _ in range(TRIALS):
            tally.faults += 1
            tally.untold += not _refuses_other_model(port, logs)
    for _ in range(TRIALS):
        tally.faults += 1
        tally.untold += not _tells_out_of_memory(logs)
    time.sleep(2.0)
    figures = {
        "faults": tally.faults,
        "lost_samples": tally.lost,
        "wrong_samples": tally.wrong,
        "untold": tally.untold,
        "processes_left": len(engine_pids()),
    }
    print(figures)
    print(write_results("served_faults", figures))


def _pairs(pid: int) -> list[tuple[str, str]]:
    """Every argument of a process with the one before it."""
    words = Path(f"/proc/{pid}/cmdline").read_text(encoding="utf-8").split("\0")
    return list(zip(words[1:], words, strict=False))


def _refuses_other_model(port: int, logs: Path) -> bool:
    """Whether a scenario that names another model than the server's is refused."""
    case = case_of(f"http://127.0.0.1:{port}")
    named = {"one": case.part.servers["one"].model_copy(update={"model": "another"})}
    try:
        ServedEngine(case.part.model_copy(update={"servers": named}), KNOWN_SHAPES[MODEL], None, "", logs)
    except RequestError as error:
        print(f"wrong model: {error}")
        return "another" in str(error)
    return False


def _tells_out_of_memory(logs: Path) -> bool:
    """Whether a server without memory for its KV cache is told, with the end of its log."""
    case = case_of(None, TOO_LARGE_GB)
    try:
        ServedEngine(case.part, KNOWN_SHAPES[MODEL], None, str(found_folder(MODEL)), logs).close()
    except NotPossibleError as error:
        print(f"out of memory: {str(error)[:300]}", flush=True)
        return "server one" in str(error) and "memory" in str(error)
    return False


if __name__ == "__main__":
    main()
