"""Scenario files: `plan` reads every one; `run` those that can only be refused."""

from __future__ import annotations

from functools import partial
from random import Random
from typing import Any

from benchmarks.hostile.cases import REFUSED, Case, Place
from benchmarks.hostile.world import SCENARIO, World, at, written
from tests.helpers.fuzzed_files import YAML_TEXTS, damage, mutate

COUNT = 430
PLAIN = "version: 1\nname: n\nquestion: q\nparts:\n  - name: one\n    model: {reference: sbd}\n    dtype: float32\n"
REST = "    arms: [{method: ntp}]\n    workload: {synthetic: {prompt_tokens: 8}, prompts: 2, max_new_tokens: 8}\n"
WHOLE = PLAIN + REST
CODE = (
    "!!python/object/apply:os.system ['touch CANARY']",
    "!!python/object/new:os.system ['touch CANARY']",
    "!!python/object/apply:subprocess.Popen [['touch', 'CANARY']]",
    "!!python/object/apply:builtins.open ['CANARY', 'w']",
    "!!python/object/apply:builtins.eval [\"open('CANARY', 'w')\"]",
    "!!python/name:os.system ''",
    "!!python/module:os ''",
    "!!python/object/apply:pathlib.Path.touch [!!python/object/apply:pathlib.Path ['CANARY']]",
    "!!python/object:benchmarks.hostile.cases.Place {root: CANARY}",
    "!!python/tuple [a]",
    "!!python/complex 1+2j",
    "!<tag:yaml.org,2002:python/object/apply:os.system> ['touch CANARY']",
    "!include CANARY",
    "!ENV ${HOME}",
    "!!js/function 'x'",
)
NUMBERS = (
    "0o17",
    "017",
    "010",
    "1:30",
    "190:20:30",
    "0b11",
    "0x1F",
    "1_000",
    "1e3",
    ".inf",
    "-.inf",
    ".nan",
    "-1",
    "1.5",
    "true",
    "yes",
    "~",
    "''",
    "'3'",
    "9223372036854775808",
    "1" + "0" * 400,
    "[1]",
    "{a: 1}",
    "2026-11-20",
)
AMBIGUOUS = NUMBERS[1:5]
"""Octal and sexagesimal integers of YAML 1.1, which nobody means."""
WHERE_NUMBERS = ("seed: {}\n", "warmup: {}\n", "repeats: {}\n", "threads: {}\n", "batch_sizes: [{}]\n", "processes: {}\n")
HUGE = (
    ("parts.0.workload.prompts", 10**7),
    ("parts.0.repeats", 10**8),
    ("parts.0.batch_sizes", list(range(1, 5000))),
    ("parts.0.processes", 10**7),
    ("parts.0.arms.1.block_size", list(range(1, 3000))),
    ("parts.1.arms.1.gamma", [i / 1e4 for i in range(3000)]),
    ("parts.0.workload.max_new_tokens", 10**15),
    ("parts.0.workload.synthetic.prompt_tokens", 10**12),
    ("parts.0.batch_sizes", [10**12]),
    ("parts", lambda parts: [{**parts[0], "name": f"p{i}", "batch_sizes": list(range(1, 40))} for i in range(300)]),
)
TEXTS = (
    "x" * 5000,
    "../../../etc/passwd",
    "/etc/passwd",
    "a/b",
    "..",
    "con",
    "\x00",
    "\u202egnp",
    "\u2028",
    "\x85",
    "%00",
    "%s%n",
    "{{7*7}}",
    "<script>",
    "\x1b[31m",
    "::error::x",
    "~root",
    "$(touch CANARY)",
    "`touch CANARY`",
    "file:///etc/passwd",
    "http://127.0.0.1:9/x",
)
WHERE_TEXTS = (
    "name",
    "parts.0.name",
    "parts.0.dtype",
    "parts.0.device",
    "parts.1.model.reference",
    "parts.0.model.random",
    "parts.1.workload.prompts_file",
    "parts.0.arms.0.method",
    "claims.0.where.part",
    "claims.0.metric",
    "parts.0.baseline",
)
MODELS = (
    "/dev/zero",
    "/dev",
    "/proc/self",
    "../..",
    "http://127.0.0.1:9/model",
    "file:///etc",
    "x" * 5000,
    "\x00",
    "~",
    "a//b",
    "a/b/c",
    ".",
)


def case(world: World, number: int, chance: Random) -> Case:
    """Listed ones first, then changes at random."""
    listed = _listed()
    if number < len(listed):
        what, content, refused = listed[number]
        return Case(what, partial(_planned, content, refused))
    if chance.random() < 0.8:
        return Case("places of a scenario changed", partial(_planned, mutate(chance, SCENARIO), False))
    return Case("bytes of a scenario changed", partial(_planned, damage(chance, WHOLE.encode()), False))


def _listed() -> list[tuple[str, Any, bool]]:
    """(what, content, whether it can only be refused)"""
    found: list[tuple[str, Any, bool]] = []
    found += [(f"code in a tag: {one[:50]}", f"version: {one}\n", True) for one in CODE]
    found += [(f"code in a tag: {one[:50]}", WHOLE.replace("name: n", f"name: {one}"), True) for one in CODE]
    found += [(f"text {one[:30]!r}", one, True) for one in YAML_TEXTS]
    found += [
        (f"number {one[:20]} at {to.partition(':')[0]}", WHOLE + "    " + to.format(one), one in AMBIGUOUS)
        for one in NUMBERS
        for to in WHERE_NUMBERS
    ]
    found += [(f"huge {path}", at(SCENARIO, path, value), False) for path, value in HUGE]
    found += [
        (f"{one[:20]!r} at {path}", at(SCENARIO, path, one), False)
        for one in TEXTS
        for path in WHERE_TEXTS[:: 1 + len(one) // 100]
    ]
    found += [(f"model {one[:20]!r}", at(SCENARIO, "parts.1.model", {"huggingface": one}), False) for one in MODELS]
    return found


def _planned(content: Any, refused: bool, place: Place) -> None:
    written(place, "prompts.jsonl", '{"prompt": "hi"}\n{"prompt": "ho"}\n')
    file = written(place, "s.yaml", content)
    if refused:
        place.sbd("plan", file, exits=REFUSED, names="s.yaml:")
        place.sbd("run", file, exits=REFUSED, names="s.yaml:")
    else:
        place.sbd("plan", file, exits=frozenset({0, 2}))
