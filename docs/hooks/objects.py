"""The keys of a YAML file, one table per object, from the JSON schema of its pydantic model."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from pydantic import TypeAdapter

from harness.config_file import Name

Schema = dict[str, Any]
NOWHERE: Mapping[str, str] = {}
NAME, NAMES = TypeAdapter(Name).json_schema()["pattern"], "a name of letters, digits, `_`, `.` and `-`"


def tables(schema: Schema, elsewhere: Mapping[str, str] = NOWHERE) -> Iterator[str]:
    """A section per object, the whole file first, then every object where it is first met.

    ``elsewhere``: the page of objects that have their section on another one.
    """
    objects = {schema["title"]: schema, **schema.get("$defs", {})}
    for name in _met(schema["title"], objects):
        if name in elsewhere:
            continue
        one = objects[name]
        required = one.get("required", ())
        rows = (
            (f"`{key}`", takes(value, elsewhere), _default(value, key in required), joined(value.get("description", "")))
            for key, value in one["properties"].items()
        )
        heads = ("key", "what it takes", "default", "what it does")
        yield f"## {name}\n\n{joined(one.get('description', ''))}\n\n{table(heads, rows)}"


def table(heads: tuple[str, ...], rows: Iterable[Sequence[Any]]) -> str:
    """A table in Markdown; a bar inside a cell is escaped."""
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join("| " + " | ".join(str(cell).replace("|", "\\|") for cell in line) + " |" for line in lines) + "\n"


def takes(value: Schema, elsewhere: Mapping[str, str] = NOWHERE) -> str:
    """The values of a key in words; null is left out, for it is the default of what may be left out."""
    if "$ref" in value:
        name = value["$ref"].rpartition("/")[2]
        return f"[{name}]({elsewhere.get(name, '')}#{name.lower()})"
    if "const" in value:
        return f"`{value['const']}`"
    if "enum" in value:
        return ", ".join(f"`{one}`" for one in value["enum"])
    for several in ("anyOf", "oneOf"):
        if several in value:
            kinds = [takes(one, elsewhere) for one in value[several] if one.get("type") != "null"]
            if len(kinds) == 2 and kinds[1] == f"list of: {kinds[0]}":
                return f"{kinds[0]}; or a list"
            return " or ".join(dict.fromkeys(kinds))
    kind = value.get("type")
    if kind == "array":
        return f"list of: {takes(value.get('items') or {'anyOf': value['prefixItems']}, elsewhere)}"
    if kind == "object":
        inner = value.get("additionalProperties") or next(iter(value["patternProperties"].values()))
        return f"mapping of names to: {takes(inner, elsewhere)}"
    if kind == "string":
        pattern = value.get("pattern")
        return NAMES if pattern == NAME else "text" + (f" like `{pattern}`" if pattern else "")
    return {"boolean": "true or false", "integer": "whole number", "number": "number"}[str(kind)] + _range(value)


def _range(value: Schema) -> str:
    least, most = value.get("minimum"), value.get("maximum", value.get("exclusiveMaximum"))
    if "exclusiveMinimum" in value:
        return f" > {value['exclusiveMinimum']:g}"
    if least is None:
        return ""
    return f" ≥ {least:g}" if most is None or most > 1 << 20 else f" {least:g} to {most:g}"


def _default(value: Schema, required: bool) -> str:
    if required:
        return "required"
    given = value.get("default")
    if given in (None, "", [], {}) or isinstance(given, dict):
        return ""
    one = given[0] if isinstance(given, list) and len(given) == 1 else given
    return f"`{json.dumps(one, ensure_ascii=False) if not isinstance(one, str) else one}`"


def _met(first: str, objects: dict[str, Schema]) -> list[str]:
    """Names of the objects in the order in which a reader from the top meets them, breadth first."""
    found = [first]
    for name in found:
        found += [one for one in dict.fromkeys(_named(objects[name]["properties"])) if one not in found]
    return found


def _named(part: Any) -> Iterator[str]:
    if isinstance(part, dict):
        if "$ref" in part:
            yield part["$ref"].rpartition("/")[2]
        for key, one in part.items():
            if key != "discriminator":  # repeats the list before it
                yield from _named(one)
    elif isinstance(part, list):
        for one in part:
            yield from _named(one)


def joined(text: str) -> str:
    """A docstring as one line of Markdown."""
    return " ".join(text.replace("``", "`").split())
