"""Files that no one would write on purpose: valid ones with something dropped, doubled, retyped, cut or poisoned, and others.

Strategies of hypothesis give the bytes of a file, or of every file of a run directory.
"""

from __future__ import annotations

import copy
import gzip
import json
import math
import re
from collections.abc import Callable
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
    "!!python/object/apply:os.getcwd []",
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


class Hidden:
    """A tree that hypothesis does not write out in full wherever it names a strategy."""

    def __init__(self, tree: Tree) -> None:
        self.tree = tree


def mutated(tree: Tree) -> st.SearchStrategy[Tree]:
    """The tree with up to three places changed: walked to from the top, so that small branches are met as often as large."""
    return _mutated(Hidden(tree))


@st.composite
def _mutated(draw: st.DrawFn, hidden: Hidden) -> Tree:
    tree = copy.deepcopy(hidden.tree)
    for _ in range(draw(st.integers(1, 3))):
        _mutate(draw, tree)
    return tree


def _mutate(draw: st.DrawFn, tree: Tree) -> None:
    holder = tree
    while isinstance(holder, dict | list) and holder:
        key = draw(st.sampled_from(list(holder) if isinstance(holder, dict) else range(len(holder))))
        inner = holder[key]
        if not (isinstance(inner, dict | list) and inner) or draw(st.integers(0, 3)) == 0:
            break
        holder = inner
    else:
        return
    how = draw(st.sampled_from(("junk", "junk", "junk", "drop", "double", "wrap", "scale", "text", "rename")))
    if how == "junk":
        holder[key] = copy.deepcopy(draw(st.sampled_from(JUNK)))
    elif how == "drop":
        del holder[key]
    elif how == "wrap":
        holder[key] = draw(st.sampled_from(([inner], {"x": inner}, [inner, inner], str(inner))))
    elif how == "scale" and isinstance(inner, int | float):
        holder[key] = inner * draw(st.sampled_from((-1, 0, 10, 1000, 10**9, 10**18, 0.5, 1e-300, 1e300)))
    elif how == "text":
        holder[key] = draw(st.text(max_size=8))
    elif isinstance(holder, list):
        holder.insert(key, copy.deepcopy(inner))
    else:
        holder[draw(st.sampled_from((*holder, "", "x", key + "s" if isinstance(key, str) else "y")))] = copy.deepcopy(inner)


@st.composite
def damaged(draw: st.DrawFn, data: bytes) -> bytes:
    """Some bytes cut, doubled, overwritten or put in."""
    for _ in range(draw(st.integers(1, 3))):
        start = draw(st.integers(0, len(data)))
        end = min(len(data), start + draw(st.sampled_from((0, 1, 2, 7, 100, 10_000))))
        put = draw(st.sampled_from((b"", b"", data[start:end] * 2, *PUT)))
        data = data[:start] + put + data[end:]
    return data


def yaml_files(*valid: Tree) -> st.SearchStrategy[bytes]:
    """A YAML file: mostly a valid one with changes, some damaged as text, some invented."""
    trees = st.one_of([mutated(tree) for tree in valid])
    texts = trees.map(_as_yaml)
    whole = st.sampled_from([yaml.safe_dump(tree, sort_keys=False).encode() for tree in valid])
    others = st.sampled_from(YAML_TEXTS).map(str.encode)
    appended = st.tuples(whole, others).map(b"".join)
    return weighted((12, texts), (2, whole.flatmap(damaged)), (1, appended), (1, others | st.binary(max_size=60)))


def json_files(valid: Tree, dump: Callable[[Tree], bytes] | None = None) -> st.SearchStrategy[bytes]:
    """A JSON file likewise."""
    dump = dump or (lambda tree: json.dumps(tree).encode())
    invented = st.sampled_from(JSON_TEXTS).map(str.encode) | st.binary(max_size=60)
    return weighted((12, mutated(valid).map(dump)), (2, damaged(dump(valid))), (1, invented))


def json_lines(valid: list[Tree]) -> st.SearchStrategy[bytes]:
    """A file of JSON lines likewise."""
    return json_files(valid, _lines)


def packed(lines: st.SearchStrategy[bytes]) -> st.SearchStrategy[bytes]:
    """The same behind gzip, some of it damaged."""
    whole = lines.map(lambda data: gzip.compress(data, 1))
    return weighted((4, whole), (1, whole.flatmap(damaged)))


def weighted(*choices: tuple[int, st.SearchStrategy[Any]]) -> st.SearchStrategy[Any]:
    """One of several strategies, each so many times as likely."""
    return st.one_of([choice for weight, choice in choices for _ in range(weight)])


def _as_yaml(tree: Tree) -> bytes:
    """JSON, which is YAML but for the spelling of some numbers; a dumper would refuse half a surrogate pair."""
    text = json.dumps(tree).replace("-Infinity", "-.inf").replace("Infinity", ".inf").replace("NaN", ".nan")
    return re.sub(r"(\d)e([+-]\d)", r"\1.0e\2", text).encode()


def _lines(tree: Tree) -> bytes:
    lines = tree if isinstance(tree, list) else [tree]
    return "".join(f"{json.dumps(line)}\n" for line in lines).encode()
