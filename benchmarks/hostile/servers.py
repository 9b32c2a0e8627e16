"""Hostile servers of every dialect: a run of one honest server and one that plays a case of the catalogue.

The catalogue is tests/helpers/hostile_answers; after it come answers changed at random. An honest server answers NTP and the
other one the arm beside it, so that what it sends cannot become a faster arm. Each case is a run of a few answers without a
clock, some with the page.
"""

from __future__ import annotations

import base64
import json
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache, partial
from pathlib import Path
from random import Random
from typing import Any

from benchmarks.hostile.cases import Case, Ended, Place
from benchmarks.hostile.words import check_page, check_terminal
from benchmarks.hostile.world import World, written
from tests.helpers import ROOT
from tests.helpers.fuzzed_files import mutate
from tests.helpers.hostile_answers import SECRET, Hostile, catalogue, honest_events
from tests.helpers.hostile_server import ENGINES, Asked, HostileServer, ids_of, stream

RANDOM = 100
TOKENS, PROMPTS = 9, 4
SILENT_S, READY_S = 1.0, 3.0
ENDS = frozenset({0, 2, 3, 4, 5})
FASTER = 1.5
TRUE = {1: 1.0, 2: (TOKENS - 1) / 3}
"""The most fewer passes of an answer: of a server of one token a pass, and of one of two and three in turn."""
VERDICTS = frozenset({0, 1, 3, 4})
OF_STARTED = frozenset({"health"})
STARTED = """#!{python}
import sys
sys.path.insert(0, {root!r})
from tests.helpers.hostile_answers import catalogue
from tests.helpers.hostile_server import HostileServer
one = catalogue()[{number}]
HostileServer(one.engine, one.door, one.play, port=int(sys.argv[sys.argv.index("--server-port") + 1])).serve()
"""


@cache
def _all() -> list[Hostile]:
    return catalogue()


COUNT = len(_all()) + RANDOM


def case(world: World, number: int, chance: Random) -> Case:
    """The catalogue, then answers changed at random."""
    if number < len(_all()):
        one = _all()[number]
    else:
        engine = ENGINES[number % len(ENGINES)]
        events = mutate(chance, honest_events(engine, per_pass=2, tokens=TOKENS))
        one = Hostile(f"changed at random, {number}", engine, partial(_sent, events), kind="random", per_pass=2)
    paged = one.kind in ("texts", "logins") or chance.random() < 0.1
    return Case(f"{one.engine}, {one.kind}, {one.what} [{one.door}]", partial(_run, one, number, paged))


def _sent(events: list[Any], asked: Asked) -> Iterator[bytes | float]:
    return stream(events)


@contextmanager
def _serving(server: HostileServer) -> Iterator[str]:
    """Its address while a child of this process serves; the child's memory is none of the command's."""
    child = os.fork()
    if child == 0:
        try:
            server.serve()
        finally:
            os._exit(0)
    server.forget()
    try:
        yield server.url
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def scenario(one: Hostile, plain: str, fast: str | None) -> dict[str, Any]:
    """Of two servers; ``fast`` is None where the program starts it."""
    servers: dict[str, Any] = {name: {"engine": one.engine, "silent_s": SILENT_S} for name in ("plain", "fast")}
    servers["plain"]["url"] = plain
    servers["fast"] |= {"ready_s": READY_S} if fast is None else {"url": fast}
    part = {
        "name": "served",
        "model": {"reference": "sbd"},
        "dtype": "float32",
        "servers": servers,
        "timed": False,
        "seed": 1,
        "arms": [{"method": "ntp", "server": "plain"}, {"method": "served", "server": "fast"}],
        "workload": {"synthetic": {"prompt_tokens": 8}, "prompts": PROMPTS, "max_new_tokens": TOKENS},
    }
    claims = [{"name": "faster", "metric": "nfe_speedup", "min": FASTER}]
    return {"version": 1, "name": "hostile", "question": "Is it faster?", "parts": [part], "claims": claims}


def _run(one: Hostile, number: int, paged: bool, place: Place) -> None:
    """A run; then what it kept, said and showed."""
    with ExitStack() as opened:
        plain = HostileServer(one.engine)
        hostile = HostileServer(one.engine, one.door, one.play, one.per_pass)
        place.ports = frozenset({plain.port, hostile.port})
        address: str | None = opened.enter_context(_serving(hostile)).replace("//", f"//{one.login}") + one.query
        variables = {"SBD_SERVER_AUTH_FAST": one.key} if one.key else {}
        if one.kind in OF_STARTED:
            program = written(place, "program", STARTED.format(python=sys.executable, root=str(ROOT), number=number))
            program.chmod(0o755)
            address, variables, place.ports = None, {"SBD_LMDEPLOY": str(program)}, _Any()
        text = json.dumps(scenario(one, opened.enter_context(_serving(plain)), address))
        ended = place.sbd(
            "run",
            written(place, "s.yaml", text),
            "--out",
            "out",
            *(() if paged else ("--no-report",)),
            exits=ENDS,
            variables=variables,
        )
    check_terminal(place, ended)
    check_page(place, place.here / "out" / "report.html")
    if not ended.hung:
        _judge_samples(one, place, ended)
    _judge_secrets(one, place, ended)


class _Any(frozenset[int]):
    """Every port of the loopback: a server that the program starts itself listens on one of its choice."""

    def __contains__(self, port: object) -> bool:
        return True


def _judge_samples(one: Hostile, place: Place, ended: Ended) -> None:
    """Kept samples and their verdict against what the server really did, and who is named where none is kept."""
    said = " ".join((ended.out + " " + ended.err).split())
    kept = [sample for sample in _lines(place.here / "out" / "samples.jsonl") if "fast" in sample["case_id"]]
    if kept:
        verified = place.sbd("verify", "out", "--json", exits=VERDICTS)
        told: dict[str, Any] = {"state": "", "value": None}
        if verified.code in VERDICTS:
            told = json.loads(verified.out)["judgements"][0]
        _judge_verdict(one, place, kept, told["state"], (told["value"] or {}).get("value"))
    elif one.fits == "sound":
        place.found("untold", f"of an honest server nothing is kept, exit {ended.code}: {said[-300:]}")
    elif one.fits == "refused" and "server fast" not in said and "servers.fast" not in said:
        place.found("untold", f"no message names the server: {said[-250:]}")


def _judge_verdict(one: Hostile, place: Place, kept: list[dict[str, Any]], state: str, value: float | None) -> None:
    right = all([row["output_ids"] for row in sample["rows"]] == [ids_of(TOKENS)] for sample in kept)
    if one.fits == "sound":
        if len(kept) != PROMPTS or not right:
            place.found(
                "wrong_verdicts", f"of an honest server {len(kept)} of {PROMPTS} samples are kept, as it wrote them: {right}"
            )
        elif one.per_pass > 1 and state != "met":
            place.found("wrong_verdicts", f"an honest server is not confirmed: {state}")
    elif state == "void":
        return
    elif one.fits == "refused":
        place.found("wrong_verdicts", f"{len(kept)} samples count ({state}), and none is an answer to its request")
    elif state == "met" and one.per_pass == 1:
        place.found("wrong_verdicts", "a speedup is confirmed")
    if value is not None and value > TRUE[one.per_pass] * 1.02:
        place.found(
            "wrong_verdicts", f"{value:.2f}x fewer passes are told; of what was written it is {TRUE[one.per_pass]:.2f} at most"
        )


def _lines(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def _judge_secrets(one: Hostile, place: Place, ended: Ended) -> None:
    """What stands in an address stands nowhere else, plain or as a header has it."""
    if SECRET not in one.login + one.query + one.key:
        return
    coded = base64.b64encode(one.login.removesuffix("@").encode()).rstrip(b"=")[:-3]
    forms = [SECRET.encode(), *([coded] if one.login else [])]
    places: dict[str, Callable[[], bytes]] = {"the output": lambda: (ended.out + ended.err).encode()}
    files = [file for file in place.here.rglob("*") if file.is_file() and file.name != "s.yaml"]
    places |= {str(file.relative_to(place.here)): file.read_bytes for file in files}
    for where, read in places.items():
        if any(form in read() for form in forms):
            place.found("injected", f"the login stands in {where}")
