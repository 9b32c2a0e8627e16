"""Files that no one would write on purpose: valid ones with something dropped, doubled, retyped, cut or poisoned, and others.

Hypothesis draws the chance in tests, `benchmarks.hostile` from a seed.
"""

from __future__ import annotations

import copy
import json
import math
import re
from collections.abc import Callable
from random import Random
from typing import Any

import yaml
from hypothesis import strategies as st

Tree = Any
DEEP: Tree = 1
for _ in range(300):
    DEEP = [DEEP]
JUNK: tuple[Tree, ...] = (
    None,
    True,
    False,
    "",
    "x",
    "0",
    "-1",
    "1e3",
    "null",
    0,
    -1,
    1,
    2,
    3,
    2**31,
    2**63,
    2**64,
    10**30,
    -(10**18),
    10_000_000,
    0.5,
    -0.0,
    1e-320,
    1e308,
    -1e308,
    math.nan,
    math.inf,
    -math.inf,
    [],
    {},
    [[]],
    [{}],
    {"": 0},
    {"a": {"b": {"c": [None]}}},
    DEEP,
    "../../../../outside",
    "/outside/x",
    "a/b",
    "..",
    "~",
    "$HOME",
    "\x00",
    "\u202egnp",
    "<script>x</script>",
    "\ud800",
    "{{ 7 * 7 }}",
    "%s%n",
    "x" * 20_000,
    "2026-13-45T99:99:99",
    "2026-11-20T10:00:00Z",
    "nan",
    "ntp",
    "sbd",
    "cpu",
    "cuda:99",
    ["ntp", "sbd"],
    [1, 1, 1],
    [0.1, "0.1"],
    {"method": "ntp"},
    {"replay": {"nfe_speedup": 0}},
    1 << 40,
    [16] * 5,
    "ÿ",
)
BOMB = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{chr(98 + i)}: &{chr(98 + i)} [{', '.join([f'*{chr(97 + i)}'] * 9)}]\n" for i in range(9)
)
YAML_TEXTS = (
    "",
    "\n",
    "---\n---\n",
    "a: 1\n---\nb: 2\n",
    "[",
    "{",
    "- - - -",
    "? a\n: b\n? [c]\n: d\n",
    "!!python/name:os.system",
    "!!python/object/apply:os.system [touch ../canary]",
    "version: !!python/object/apply:builtins.eval [\"open('../canary', 'w')\"]",
    "version: !!binary abc",
    "a: !!set {x}",
    "a: &x [*x]",
    "a: *unknown",
    "&a *a",
    "<<: {version: 1}",
    "version: 1\nversion: 1\n",
    "version: 1\nname: a\n<<: [*b]\n",
    "a: 'b",
    'a: "\\ud800"',
    "~",
    "a: =",
    "0x" + "f" * 5000,
    "version: 0x" + "f" * 5000,
    "version: " + "9" * 5000,
    "version: 1\nname: 12:30:45\n",
    "2026-11-20",
    "[" * 2000,
    "{a: " * 1500,
    "- " * 3000,
    BOMB,
    BOMB + "version: 1\nparts: *j\n",
    "version: 1\nname: n\nparts: &p [*p]\n",
    "version: &v {x: *v}\n",
    "!<tag:yaml.org,2002:float> x",
    "a: !!float x",
    "a: !!int ''",
    "a: !!timestamp x",
    "=: 1\n",
    "%YAML 9.9\n---\na: 1\n",
    "%TAG ! !\n---\n!x 1",
    "# only a comment\n",
    "\ufeffversion: 1\n",
    "a: 2026-02-31\n",
    "\t- a",
)
JSON_TEXTS = (
    "",
    "null",
    "[]",
    "{}",
    "1",
    '"x"',
    "NaN",
    "[" * 100_000,
    '{"a":' * 50_000,
    '{"record_version": 1e400}',
    '{"a": 1}{"b": 2}',
    "\ufeff{}",
    '{"record_version": -1}',
    '{"record_version": true}',
    '{"record_version": 6, "record_version": 5}',
    "9" * 5000,
    "{'a': 1}",
    "\x00",
)
PUT = (b"\xff\xfe", b"\x00", b"\n", b"{", b'"', b"- ", b": ", b"\xed\xa0\x80")


def mutate(chance: Random, tree: Tree) -> Tree:
    """The tree with up to three places changed: walked to from the top, so that small branches are met as often as large."""
    tree = copy.deepcopy(tree)
    for _ in range(chance.randint(1, 3)):
        _mutate(chance, tree)
    return tree


def _mutate(chance: Random, tree: Tree) -> None:
    holder = tree
    while isinstance(holder, dict | list) and holder:
        key = chance.choice(list(holder) if isinstance(holder, dict) else range(len(holder)))
        inner = holder[key]
        if not (isinstance(inner, dict | list) and inner) or chance.randrange(4) == 0:
            break
        holder = inner
    else:
        return
    how = chance.choice(("junk", "junk", "junk", "drop", "double", "wrap", "scale", "text", "rename"))
    if how == "drop":
        del holder[key]
    elif how == "wrap":
        holder[key] = chance.choice(([inner], {"x": inner}, [inner, inner], str(inner)))
    elif how == "scale" and isinstance(inner, int | float):
        holder[key] = inner * chance.choice((-1, 0, 10, 1000, 10**9, 10**18, 0.5, 1e-300, 1e300))
    elif how == "text":
        holder[key] = "".join(chr(chance.randrange(0x110000)) for _ in range(chance.randint(0, 8)))
    elif how == "double" and isinstance(holder, list):
        holder.insert(key, copy.deepcopy(inner))
    elif how == "rename" and isinstance(holder, dict):
        holder[chance.choice((*holder, "", "x", f"{key}s"))] = copy.deepcopy(inner)
    else:
        holder[key] = copy.deepcopy(chance.choice(JUNK))


def damage(chance: Random, data: bytes) -> bytes:
    """Some bytes cut, doubled, overwritten or put in."""
    for _ in range(chance.randint(1, 3)):
        start = chance.randint(0, len(data))
        end = min(len(data), start + chance.choice((0, 1, 2, 7, 100, 10_000)))
        put = chance.choice((b"", b"", data[start:end] * 2, *PUT))
        data = data[:start] + put + data[end:]
    return data


def _invented(chance: Random, texts: tuple[str, ...]) -> bytes:
    if chance.randrange(2):
        return chance.choice(texts).encode()
    return bytes(chance.randrange(256) for _ in range(chance.randint(0, 60)))


def yaml_file(chance: Random, *valid: Tree) -> bytes:
    """A YAML file: mostly a valid one with changes, some damaged as text, some invented, alone or behind a valid one."""
    tree, how = chance.choice(valid), chance.randrange(16)
    if how < 12:
        return as_yaml(mutate(chance, tree))
    whole = yaml.safe_dump(tree, sort_keys=False).encode()
    return damage(chance, whole) if how < 14 else (whole if how == 14 else b"") + _invented(chance, YAML_TEXTS)


def json_file(chance: Random, valid: Tree, dump: Callable[[Tree], bytes] | None = None) -> bytes:
    """A JSON file likewise."""
    dump, how = dump or (lambda tree: json.dumps(tree).encode()), chance.randrange(15)
    if how < 12:
        return dump(mutate(chance, valid))
    return damage(chance, dump(valid)) if how < 14 else _invented(chance, JSON_TEXTS)


def json_lines(chance: Random, valid: list[Tree]) -> bytes:
    """A file of JSON lines likewise."""
    return json_file(chance, valid, _lines)


def by_chance(make: Callable[[Random], Any]) -> st.SearchStrategy[Any]:
    """What is made by chance, as hypothesis draws it."""
    return st.randoms(use_true_random=False).map(make)


def as_yaml(tree: Tree) -> bytes:
    """JSON, which is YAML but for the spelling of some numbers; a dumper would refuse half a surrogate pair."""
    text = json.dumps(tree).replace("-Infinity", "-.inf").replace("Infinity", ".inf").replace("NaN", ".nan")
    return re.sub(r"(\d)e([+-]\d)", r"\1.0e\2", text).encode()


def _lines(tree: Tree) -> bytes:
    lines = tree if isinstance(tree, list) else [tree]
    return "".join(f"{json.dumps(line)}\n" for line in lines).encode()
