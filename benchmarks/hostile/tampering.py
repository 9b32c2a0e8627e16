"""Records altered on purpose, one kind at a time: as sealed, sealed anew without the key, and with a signature demanded.

An altered record never leaves a verdict while its seal, or the demand for a signature, stands. Sealed anew, its own
contradictions show most kinds; how many is a figure of this benchmark, not a promise.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import tempfile
from functools import partial
from pathlib import Path
from random import Random

from benchmarks.hostile.cases import Case, Place
from benchmarks.hostile.world import PUBLISHED, World
from benchmarks.planted.tampering import TAMPERINGS
from harness.analysis.trust.integrity import integrity_of
from harness.record.publication import publish
from harness.record.store import read_run
from tests.helpers.sealed_lines import reseal

WAYS = ("sealed", "sealed anew", "signature demanded")
COUNT = len(TAMPERINGS) * len(WAYS)
VOID = frozenset({4})


def case(world: World, number: int, chance: Random) -> Case:
    """Every kind in every way."""
    kind, way = list(TAMPERINGS)[number // len(WAYS)], WAYS[number % len(WAYS)]
    return Case(f"{kind}, {way}", partial(_judge, kind, way))


def figures() -> dict[str, float]:
    """Of the kinds: how many leave no verdict as sealed, and how many by contradictions alone."""
    found = {"tamper_kinds": len(TAMPERINGS), "tamper_sealed_caught": 0, "tamper_resealed_caught": 0}
    for kind in TAMPERINGS:
        with tempfile.TemporaryDirectory() as folder:
            run = sealed(Path(folder) / "run")
            TAMPERINGS[kind](run)
            found["tamper_sealed_caught"] += integrity_of(read_run(run)).void is not None
            reseal(run)
            found["tamper_resealed_caught"] += integrity_of(read_run(run)).void is not None
    return {name: float(count) for name, count in found.items()}


def sealed(folder: Path) -> Path:
    """The published quickstart as this version writes and seals it."""
    shutil.copytree(PUBLISHED, folder, ignore=shutil.ignore_patterns("report.*"))
    header = (folder / "run.json").read_text()
    (folder / "run.json").write_text(re.sub(r'"record_version": ?\d+', '"record_version": 7', header, count=1))
    reseal(folder)
    return folder


def key_of(place: Place) -> Path:
    """A key to sign with."""
    key = place.here / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True, stdin=subprocess.DEVNULL)
    return key


def _judge(kind: str, way: str, place: Place) -> None:
    run = sealed(place.here / "run")
    if way == "signature demanded":
        run = publish(run, place.here / "signed", key_of(place))
    TAMPERINGS[kind](run)
    if way != "sealed":
        reseal(run)
    demand = ["--require-signature"] if way == "signature demanded" else []
    ended = place.sbd("verify", run, "--json", *demand)
    if way == "sealed anew":
        told = json.loads(ended.out)["records"][0]
        if not told.startswith(("sealed, not signed", "the record contradicts itself")):
            place.found("untold", f"a record sealed anew is called: {told}")
    elif ended.code not in VOID:
        place.found("wrong_verdicts", f"ended with {ended.code}")
