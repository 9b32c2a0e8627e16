"""How large the program is and how it hangs together: modules, tokens, packages, circles and floors of imports, long sentences.

    python -m benchmarks.house           # measured now; nothing is stored
    python -m benchmarks.house --ratchet # the table that tests/test_house.py holds the house to, as it would be now

Nothing is run. Tokens are those of Python's ``tokenize`` that a program is made of: no comments, line ends or indentation; an
f-string is one. So texts and comments cost nothing. ``floors``: modules of a package are one room, flat modules another; the
longest chain of rooms that import one another downwards; packages are those directly below harness/.
"""

from __future__ import annotations

import argparse
import ast
import io
import json
import re
import tokenize
from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MOST_WORDS = 25
ENTRIES = {"harness", "harness.__main__"}
"""What others enter the program by: they may import anything, and nothing imports them."""
Graph = dict[str, set[str]]
RATCHET = ROOT / "tests" / "house.json"
UNCOUNTED = {
    *(tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENCODING, tokenize.ENDMARKER)
}
FLAT = "flat"
SENTENCE_END = re.compile(r"(?<=[.?!])\s+|\n\s*\n|\n\s*[*-] ")


def name_of(file: Path) -> str:
    """``harness.stats.quantity`` for harness/stats/quantity.py; a package for its __init__.py."""
    parts = file.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports_of(source: str | ast.Module, module: str, for_types: bool = False) -> Iterator[tuple[int, str]]:
    """(line, module) of every import, those inside functions too; imports for type checkers alone only where asked for."""
    tree = ast.parse(source) if isinstance(source, str) else source
    unseen = (
        set()
        if for_types
        else {
            id(inner)
            for node in ast.walk(tree)
            if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING")
            for part in node.body
            for inner in ast.walk(part)
        }
    )
    for node in ast.walk(tree):
        if id(node) in unseen:
            continue
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                base = ".".join([*module.split(".")[: -node.level], *([base] if base else [])])
            yield node.lineno, base
            if base.partition(".")[0] in ("harness", "benchmarks", "tests"):
                yield from ((node.lineno, f"{base}.{alias.name}") for alias in node.names)


def graph_of(sources: dict[str, str]) -> Graph:
    """Which of these modules each of them imports."""
    found: Graph = {}
    for module, source in sources.items():
        names = {name for _, name in imports_of(source, module, for_types=True)}
        found[module] = {name for name in names if name in sources and name != module}
        # ``from harness.record.schema import x`` names that module; harness.record, loaded on the way, is not imported.
        found[module] -= {name for name in found[module] if module.startswith(f"{name}.")}
    return found


def circles(graph: Graph) -> list[set[str]]:
    """Groups of more than one module, each of which leads to each other one (Tarjan's components, by reachability)."""

    @cache
    def reached(start: str) -> frozenset[str]:
        seen, todo = set[str](), list(graph[start])
        while todo:
            if (one := todo.pop()) not in seen:
                seen.add(one)
                todo.extend(graph[one])
        return frozenset(seen)

    groups = {frozenset({one, *(other for other in reached(one) if one in reached(other))}) for one in graph}
    return [set(group) for group in groups if len(group) > 1]


def room_of(module: str, packages: set[str]) -> str:
    """The package of a module; flat modules are one room."""
    place = module.split(".")[1:2]
    return place[0] if place and place[0] in packages else FLAT


def floors(graph: Graph, packages: set[str]) -> int:
    """Rooms on the longest chain of imports; 0 where rooms import one another in a circle."""
    rooms: Graph = defaultdict(set)
    for module, names in graph.items():
        if module in ENTRIES:
            continue
        own = room_of(module, packages)
        rooms[own] |= {room_of(name, packages) for name in names if "." in name} - {own}
    depth: dict[str, int] = {}
    try:
        for room in TopologicalSorter(rooms).static_order():
            depth[room] = 1 + max((depth[below] for below in rooms.get(room, ())), default=0)
    except CycleError:
        return 0
    return max(depth.values())


def sentences(source: str) -> Iterator[str]:
    """Of every docstring, without examples and tables (indented or ruled lines)."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node) or ""
            prose = "\n".join(line for line in text.splitlines() if not line.startswith(("    ", "|", ">>>", "``")))
            yield from (one for one in SENTENCE_END.split(prose) if one.strip())


def tokens_of(source: str) -> int:
    """What a text of Python counts. An f-string is one token, in whichever Python this runs."""
    count = depth = 0
    opens, closes = getattr(tokenize, "FSTRING_START", None), getattr(tokenize, "FSTRING_END", None)
    for one in tokenize.generate_tokens(io.StringIO(source).readline):
        if one.type == closes:
            depth -= 1
            continue
        count += depth == 0 and one.type not in UNCOUNTED
        depth += one.type == opens
    return count


def ratchet(root: Path = ROOT) -> dict[str, dict[str, int]]:
    """Modules, tokens and the modules of the largest folder: of every package of harness/, its flat modules, and of tests/ and
    benchmarks/ as a whole.
    """
    found: dict[str, dict[str, int]] = {}
    for top in ("harness", "tests", "benchmarks"):
        files: dict[str, list[Path]] = defaultdict(list)
        for file in sorted((root / top).rglob("*.py")):
            below = file.relative_to(root / top).parts
            files[f"{top}/{below[0] if len(below) > 1 else FLAT}" if top == "harness" else top].append(file)
        for name, own in files.items():
            modules = [file for file in own if file.name != "__init__.py"]
            found[name] = {
                "modules": len(modules),
                "tokens": sum(tokens_of(file.read_text(encoding="utf-8")) for file in own),
                "largest_folder": max(Counter(file.parent for file in modules).values(), default=0),
            }
    return found


def figures() -> dict[str, float]:
    """All counts, by name."""
    files = sorted((ROOT / "harness").rglob("*.py"))
    sources = {name_of(file): file.read_text(encoding="utf-8") for file in files}
    modules = [file for file in files if file.name != "__init__.py"]
    packages = {file.parent for file in files if file.name == "__init__.py"} - {ROOT / "harness"}
    graph = graph_of(sources)
    said = [len(one.split()) for source in sources.values() for one in sentences(source)]
    tests = {name_of(file): file.read_text(encoding="utf-8") for file in sorted((ROOT / "tests").rglob("*.py"))}
    test_modules = {name for name in tests if name.rpartition(".")[2].startswith("test_")}
    crossing = [
        name
        for name in test_modules
        if any(other in test_modules or f"tests.{other}" in test_modules for _, other in imports_of(tests[name], name))
    ]
    return {
        "modules": len(modules),
        "flat_modules": sum(file.parent == ROOT / "harness" for file in modules),
        "tokens": sum(map(tokens_of, sources.values())),
        "lines": sum(source.count("\n") for source in sources.values()),
        "packages": sum(one.parent == ROOT / "harness" for one in packages),
        "largest_folder_modules": max(Counter(file.parent for file in modules if file.parent in packages).values()),
        "import_cycles": len(circles(graph)),
        "floors": floors(graph, {one.name for one in packages if one.parent == ROOT / "harness"}),
        "test_modules_importing_test_modules": len(crossing),
        "lines_over_25_words_docstring_sentences_pct": round(100 * sum(n > MOST_WORDS for n in said) / len(said), 2),
    }


def main() -> None:
    """Count and print."""
    parser = argparse.ArgumentParser(prog="benchmarks.house")
    parser.add_argument("--ratchet", action="store_true", help="print the table of tests/house.json as it would be now")
    if parser.parse_args().ratchet:
        print(json.dumps(ratchet(), indent=1))
        return
    for name, value in figures().items():
        print(f"{name:<48}{value:>10,g}")


if __name__ == "__main__":
    main()
