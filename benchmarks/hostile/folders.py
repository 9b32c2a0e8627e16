"""Model folders with one hostile file, planned, priced and run: no step of a tokenizer or a template takes the machine."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from random import Random
from typing import Any

from benchmarks.hostile.cases import MODEL_LIMIT_S, Case, Place
from benchmarks.hostile.weights import _one_thread
from benchmarks.hostile.words import check_terminal
from benchmarks.hostile.world import MODEL, TINY, World, at, copied, written
from tests.helpers.fuzzed_files import damage
from tests.helpers.gguf_files import write_gguf
from tests.helpers.hostile_files import Hostile
from tests.helpers.hostile_models import CONFIG, GGUF, HEADERS, PRICED, RUN
from tests.helpers.hostile_templates import TEMPLATE
from tests.helpers.hostile_tokenizers import TOKENIZER

RANDOM = 60
COUNT = len(PRICED) + len(HEADERS) + len(RUN) + RANDOM
OFFLINE = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}
PROMPT = "The " + "e" * 60 + " " + "a" * 40 + "!"
"""Long words without an end that a pattern finds."""


def case(world: World, number: int, chance: Random) -> Case:
    """Configs, GGUF files, what a run reads; then bytes at random."""
    for found, act in ((PRICED, _priced), (HEADERS, _gguf), (RUN, _run)):
        if number < len(found):
            return Case(found[number].what, partial(act, found[number], number, chance))
        number -= len(found)
    name = (GGUF, CONFIG, GGUF, TOKENIZER)[number % 4]
    one = Hostile(f"{name}: bytes changed", partial(_bytes, name))
    return Case(one.what, partial({GGUF: _gguf, CONFIG: _priced, TOKENIZER: _run}[name], one, number, chance))


def _bytes(name: str, folder: Path, chance: Random) -> None:
    if name == GGUF:
        write_gguf(folder / GGUF)
    data = (folder / name).read_bytes()
    head = data[:12_000] if name == GGUF else data
    (folder / name).write_bytes(damage(chance, head) + data[len(head) :])


def _folder(place: Place) -> Path:
    """A model of 1 MB."""
    return copied(place, MODEL / "draft", "model")


def _scenario(place: Place, model: dict[str, Any], **workload: Any) -> Path:
    written(place, "prompts.jsonl", f'{{"prompt": "{PROMPT}"}}\n')
    told = {"prompts_file": "prompts.jsonl", "prompts": 1, "max_new_tokens": 4, **workload}
    scenario = at(at(TINY, "parts.0.model", model), "parts.0.workload", told)
    return written(place, "s.yaml", at(scenario, "parts.0.arms", [{"method": "ntp"}]))


def _priced(one: Hostile, number: int, chance: Random, place: Place) -> None:
    one.plant(_folder(place), chance)
    if number % 3 == 0:
        ended = place.sbd("roofline", "--model", "model", "--hardware", "h100-sxm", exits=one.exits | {3})
    elif number % 3 == 1:
        words = ("capacity", "--model", "model", "--hardware", "h100-sxm", "--nfe-speedup", "3", "--batch", "8")
        ended = place.sbd(*words, exits=one.exits | {3}, names=one.names)  # 3: nothing holds such a model
    else:
        ended = place.sbd("plan", _scenario(place, {"huggingface": "./model"}), exits=one.exits, names=one.names)
    check_terminal(place, ended)


def _gguf(one: Hostile, number: int, chance: Random, place: Place) -> None:
    """Planned; every third is run, too."""
    (place.here / "model").mkdir()
    one.plant(place.here / "model", chance)
    file = _scenario(place, {"huggingface": "./model", "gguf_file": GGUF})
    check_terminal(place, place.sbd("plan", file, exits=one.exits, names=one.names))
    if number % 3 == 0:
        _ran(place, file, one)


def _run(one: Hostile, number: int, chance: Random, place: Place) -> None:
    folder = _folder(place)
    one.plant(folder, chance)
    chat = (
        {"chat_template": True} if TEMPLATE in one.what or "_config.json: " in one.what or one.what.startswith("named") else {}
    )
    _ran(place, _scenario(place, {"huggingface": "./model"}, **chat), one)


def _ran(place: Place, file: Path, one: Hostile) -> None:
    words = ("run", file, "--out", "out", "--no-report")
    beyond = {4} if "10 GB" in one.what else set()  # more than a case may map: it does not fit
    ended = place.sbd(*words, exits=one.exits | beyond, limit_s=MODEL_LIMIT_S, variables=OFFLINE, setup=_one_thread)
    check_terminal(place, ended)
