"""What a stored figure depends on, read off the sources: harness packages, the benchmark's own modules, files and records.

A package counts with the modules that the benchmark leads to, by imports, those inside functions too, and with its data. Where
a module loads others by name, or a benchmark runs a program, the names in its texts are imports too. A digest is that of the
syntax tree: a comment, a docstring or another format changes nothing. A published record counts by its samples, in the tree or
not.
"""

from __future__ import annotations

import ast
import hashlib
import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.house import imports_of

ROOT = Path(__file__).resolve().parent.parent
FORM = ("harness", "benchmarks", "tests", "benchmarks.results_file", "benchmarks.sources")
"""The version, the form of a result, and this file, which names the program: no figure depends on them."""
MODULE = re.compile(r"(?:harness|benchmarks|tests)(?:\.\w+)+\.?")
PATH = re.compile(r"\w[\w/-]{0,99}[/.][\w/.-]{1,99}")
SAMPLES, ELSEWHERE = "samples.jsonl.gz", "elsewhere.json"


class Module(NamedTuple):
    """One file: what it imports, or loads by name, and all its texts."""

    file: Path
    digest: str
    imports: frozenset[str]
    texts: frozenset[str]


def sources_of(benchmark: str, records: Iterable[str] = (), root: Path = ROOT) -> dict[str, str]:
    """The digest of every package, module, file and record that ``benchmark`` (``benchmarks.served``) depends on, by path.

    ``records``: what it was given to read, by path.

    Raises:
        FileNotFoundError: no such record is there.
    """
    units: dict[str, dict[str, str]] = defaultdict(dict)
    paths = {root / path for path in records}
    for name, module in _reached(benchmark, root).items():
        units["/".join(name.split(".")[:2])][name] = module.digest
        paths |= set(_named(module, root)) if name.startswith("benchmarks.") else set()
    found = {unit: _digest(own | _data(root / unit)) for unit, own in units.items()}
    found |= {path.relative_to(root).as_posix(): digest_of(path) for path in paths}
    return {path: digest[:16] for path, digest in sorted(found.items())}


@cache
def digest_of(path: Path) -> str:
    """Of a file, of a published record, or of a folder with all its data."""
    if (path / ELSEWHERE).is_file():
        return str(json.loads((path / ELSEWHERE).read_text(encoding="utf-8"))["files"][SAMPLES])
    if path.is_dir() and not (path / SAMPLES).is_file():
        return _digest(_data(path))
    return hashlib.sha256((path / SAMPLES if path.is_dir() else path).read_bytes()).hexdigest()


def _digest(found: object) -> str:
    return hashlib.sha256(json.dumps(found, sort_keys=True).encode()).hexdigest()


def _data(folder: Path) -> dict[str, str]:
    """The digests of its files that are no Python."""
    files = (one for one in folder.rglob("*") if one.is_file() and one.suffix not in (".py", ".pyc"))
    return {str(one.relative_to(folder)): digest_of(one) for one in files}


def _reached(benchmark: str, root: Path) -> dict[str, Module]:
    """All modules that the benchmark leads to, by name."""
    found: dict[str, Module] = {}
    todo = [benchmark]
    while todo:
        name = todo.pop()
        if name not in found and name not in FORM and (module := _module(name, root)) is not None:
            found[name] = module
            todo += [*module.imports, name.rpartition(".")[0]]
    return found


def _named(module: Module, root: Path) -> Iterator[Path]:
    """What a benchmark names: files beside it, paths below the root, published records, or all of them."""
    places = (folder / text for text in filter(PATH.fullmatch, module.texts) for folder in (module.file.parent, root))
    yield from (one for one in places if one.exists() and one.suffix != ".py")
    if "reports" in module.texts:
        records = {one.parent for name in (SAMPLES, ELSEWHERE) for one in (root / "reports").glob(f"*/{name}")}
        yield from {one for one in records if one.name in module.texts} or records


@cache
def _module(name: str, root: Path) -> Module | None:
    place = root.joinpath(*name.split("."))
    file = next((one for one in (place.with_suffix(".py"), place / "__init__.py") if one.is_file()), None)
    if file is None:
        return None
    tree = ast.parse(file.read_text(encoding="utf-8"))
    texts = frozenset(one.value for one in ast.walk(tree) if isinstance(one, ast.Constant) and isinstance(one.value, str))
    imports = {one for _, one in imports_of(tree, name)}
    if name.startswith("benchmarks.") or "importlib" in imports:
        imports |= set(_loaded(texts, root))
    return Module(file=file, digest=_digest(repr(_plain(tree))), imports=frozenset(imports), texts=texts)


def _loaded(texts: Iterable[str], root: Path) -> Iterator[str]:
    """Modules that are named in texts, those too whose names are put together, and the program."""
    for found in filter(None, map(MODULE.match, texts)):
        yield found[0]
        if found[0].endswith("."):
            yield from (found[0] + one.stem for one in root.joinpath(*found[0].split(".")).glob("*.py"))
    yield from ("harness.__main__" for text in texts if text == "harness")


def _plain(node: Any) -> Any:
    """A syntax tree as tuples without places, docstrings and empty fields, the same in every version of Python."""
    if isinstance(node, list):
        return [_plain(one) for one in node if not (isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant))]
    if not isinstance(node, ast.AST):
        return node
    fields = ((name, _plain(value)) for name, value in ast.iter_fields(node))
    return type(node).__name__, *((name, value) for name, value in fields if value is not None and value != [])
