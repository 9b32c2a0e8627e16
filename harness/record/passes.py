"""The passes of one sample: packed, every column in the fewest bytes, or column by column as lists (``trace.PassColumns``).

A large run has millions of passes and few of them are read one by one; as lists they would fill the memory. In a record's
JSON (from version 6 of the format on) they are an object:

    roles   the roles that occur, in order of first use; the column ``role`` holds their places in this list
    count   passes
    rows    batch rows
    models  the draft models that made passes, in order of first use; the column ``model`` holds their places in this list,
            counted from 1, and 0 where the case's own model made the pass. Both are absent where it made all
    types   per column of COLUMNS, in order, the type of its numbers as Python's array module names it: B, H, I unsigned of
            1, 2, 4 bytes, d a float of 8; - where the column is absent, as are columns beyond the end
    data    the columns one after the other, little-endian, packed by zlib, in base64

In memory they may also be columns of lists, as decoders write them.
"""

from __future__ import annotations

import base64
import binascii
import math
import sys
import zlib
from array import array
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import chain
from typing import Any, get_args

from harness.frozen import positional
from harness.record.trace import PER_ROW, PassColumns, Role

PER_PASS = ("padded_query", "padded_context")
DURATIONS = frozenset(("forward_s", "sampler_s"))
COLUMNS = ("role", *PER_ROW, *PER_PASS, "forward_s", "sampler_s", "slots_given", "slot_counts", "slots", "model")
"""``slots_given``: 1 for a pass that names the positions it decided; the next two hold its rows' counts and positions."""
SLOTS = ("slots_given", "slot_counts", "slots")
STORED = frozenset(("roles", "count", "rows", "types", "data"))
MOST_BYTES = 1 << 30
"""Limit of one sample: a million passes of 36 rows."""
MOST_TOKENS = 1 << 24
"""Limit of one count: longer than any context, and short enough for a table of counts."""
_ROLES = frozenset(get_args(Role))

Arrays = dict[str, "array[Any]"]


@positional
class PackedPasses:
    """The passes of one sample, made and checked by ``pack`` and ``from_stored``; ``data`` is not packed by zlib here."""

    roles: tuple[Role, ...]
    count: int
    rows: int
    types: str
    data: bytes
    models: tuple[str, ...] = ()

    def __len__(self) -> int:
        """How many passes there are."""
        return self.count

    def arrays(self) -> Arrays:
        """Every column that is there; a per-row column is flat, the rows of a pass beside each other."""
        found: Arrays = {}
        start = end = 0
        for name, kind in zip(COLUMNS, self.types, strict=False):
            if kind == "-":
                continue
            one: array[Any] = array(kind)
            end = start + _length(name, found, self.count, self.rows) * one.itemsize
            if end > len(self.data):
                break
            one.frombytes(self.data[start:end])
            found[name], start = _little_endian(one), end
        if end != len(self.data):
            raise ValueError(f"the columns of the passes take {end} bytes or more, {len(self.data)} are there")
        return found

    def untimed(self) -> PackedPasses:
        """The same passes without their durations."""
        kept = {name: one for name, one in self.arrays().items() if name not in DURATIONS}
        return _packed(self.roles, self.rows, kept, self.models)

    def spelt(self) -> PassColumns:
        """The same column by column; the last ones are cached, because they are read repeatedly."""
        return _spelt(self)

    def stored(self) -> dict[str, object]:
        """The object of a record."""
        data = base64.b64encode(zlib.compress(self.data)).decode("ascii")
        models = {"models": list(self.models)} if self.models else {}
        return {"roles": list(self.roles), "count": self.count, "rows": self.rows, "types": self.types, "data": data} | models


def _length(name: str, columns: Arrays, count: int, rows: int) -> int:
    """Numbers in a column; the columns before it give the number of slots."""
    if name == "slots":
        return sum(columns["slot_counts"])
    if name == "slot_counts":
        return sum(columns["slots_given"]) * rows
    return count * rows if name in PER_ROW else count


def read_passes(given: Any) -> PackedPasses:
    """The passes from any form: packed, columns, or the object of a record.

    Raises:
        ValueError: it is none of these; the message says where.
    """
    if isinstance(given, PackedPasses):
        return given
    return pack(given) if isinstance(given, PassColumns) else from_stored(given)


def pack(passes: PassColumns) -> PackedPasses:
    """From one list per column.

    Raises:
        ValueError: a column is of another length than the others, or holds a count that is negative or too large.
    """
    lists: dict[str, Any] = dict(passes)
    try:
        roles = tuple(dict.fromkeys(lists["role"]))
        columns: Arrays = {"role": _unsigned(list(map(roles.index, lists["role"])))}
        rows = len(next(iter(lists["query_tokens"]), ()))
        for name in PER_ROW:
            if set(map(len, lists[name])) - {rows}:
                raise ValueError(f"{name} has passes of different numbers of rows")
            columns[name] = _unsigned(list(chain.from_iterable(lists[name])))
        columns |= {name: _unsigned(lists[name]) for name in PER_PASS}
        columns |= {name: array("d", lists[name]) for name in DURATIONS if lists[name] is not None}
        if passes.decided_slots is not None:
            columns |= _slots(passes.decided_slots, rows)
        models = tuple(dict.fromkeys(name for name in passes.made_by if name is not None))
        if models:
            columns["model"] = _unsigned([0 if name is None else 1 + models.index(name) for name in passes.made_by])
    except OverflowError as error:
        raise ValueError(f"a column holds something else than whole numbers from 0 on: {error}") from error
    count = len(columns["role"])
    uneven = [name for name, one in columns.items() if len(one) != _length(name, columns, count, rows)]
    if uneven:
        raise ValueError(f"there are {count} passes, but not as many entries in {', '.join(uneven)}")
    return _checked(_packed(roles, rows, columns, models))


def from_stored(given: Any) -> PackedPasses:
    """From the object in a record.

    Raises:
        ValueError: it is damaged.
    """
    if not isinstance(given, Mapping):
        raise ValueError("the passes of a sample are an object")
    models = given.get("models", [])
    if set(given) - {"models"} != STORED or not isinstance(models, list):
        raise ValueError(f"packed passes have the keys {', '.join(sorted(STORED))}; got {', '.join(map(str, given))}")
    roles, count, rows, types, data = (given[name] for name in ("roles", "count", "rows", "types", "data"))
    if not (isinstance(roles, list) and type(count) is type(rows) is int and isinstance(types, str) and isinstance(data, str)):
        raise ValueError("packed passes need a list of roles, whole numbers count and rows, and text in types and data")
    try:
        unpacker = zlib.decompressobj()
        plain = unpacker.decompress(base64.b64decode(data, validate=True), MOST_BYTES)
    except (binascii.Error, zlib.error, ValueError) as error:
        raise ValueError(f"the data of the passes is damaged: {error}") from error
    if not unpacker.eof or unpacker.unused_data:
        raise ValueError("the data of the passes is cut off, or goes on after its end")
    return _checked(PackedPasses(tuple(roles), count, rows, types, plain, tuple(models)))


def _slots(slots: Sequence[Sequence[Sequence[int]] | None], rows: int) -> Arrays:
    given = [one for one in slots if one is not None]
    if set(map(len, given)) - {rows}:
        raise ValueError("decided_slots has passes of different numbers of rows")
    of_rows = list(chain.from_iterable(given))
    return {
        "slots_given": _unsigned([one is not None for one in slots]),
        "slot_counts": _unsigned(list(map(len, of_rows))),
        "slots": _unsigned(list(chain.from_iterable(of_rows))),
    }


def _unsigned(values: Sequence[int]) -> array[Any]:
    """The numbers in the fewest bytes that hold them all."""
    for code in "BH":
        try:
            return array(code, values)
        except OverflowError:
            continue
    return array("I", values)


def _packed(roles: Iterable[Any], rows: int, columns: Arrays, models: tuple[str, ...]) -> PackedPasses:
    types = "".join(columns[name].typecode if name in columns else "-" for name in COLUMNS).rstrip("-")
    data = b"".join(_little_endian(columns[name]).tobytes() for name in COLUMNS if name in columns)
    return PackedPasses(tuple(roles), len(columns["role"]), rows, types, data, models)


def _checked(packed: PackedPasses) -> PackedPasses:
    """The same passes, if every column has its length and kind of numbers."""
    allowed = {name: "d" if name in DURATIONS else "BHI" for name in COLUMNS}
    optional = {*DURATIONS, *SLOTS, "model"}
    types = packed.types.ljust(len(COLUMNS), "-")
    fits = all(kind in (allowed[name] + "-" * (name in optional)) for name, kind in zip(COLUMNS, types, strict=False))
    if len(types) != len(COLUMNS) or not fits or len({types[COLUMNS.index(name)] == "-" for name in SLOTS}) > 1:
        raise ValueError(f"the types of the columns ({packed.types!r}) are not those of {', '.join(COLUMNS)}")
    if not all(isinstance(role, str) and role in _ROLES for role in packed.roles):
        raise ValueError(f"got the roles {list(packed.roles)!r}; known are {', '.join(sorted(_ROLES))}")
    if packed.count < 0 or packed.rows < 0 or (packed.count and not packed.rows):
        raise ValueError(f"{packed.count} passes of {packed.rows} rows cannot be")
    columns = packed.arrays()
    if packed.count and (max(columns["role"]) >= len(packed.roles) or max(columns["active"]) > 1):
        raise ValueError("a pass has a role that is not listed, or a row that is neither active nor not")
    most = max(columns.get("model", ()), default=0)
    if not all(isinstance(model, str) for model in packed.models) or most > len(packed.models):
        raise ValueError(f"a pass was made by a model that is not among {list(packed.models)!r}")
    if any(max(one) > MOST_TOKENS for one in columns.values() if one and one.typecode == "I"):
        raise ValueError(f"a pass counts more than {MOST_TOKENS:,} tokens")
    if any(not math.isfinite(sum(columns[name])) or min(columns[name], default=0.0) < 0 for name in DURATIONS & columns.keys()):
        raise ValueError("a duration is negative or no number")
    return packed


@lru_cache(maxsize=8)
def _spelt(packed: PackedPasses) -> PassColumns:
    columns, rows = packed.arrays(), packed.rows
    spelt: dict[str, Any] = {name: columns[name].tolist() for name in (*PER_PASS, *DURATIONS) if name in columns}
    spelt["role"] = [packed.roles[code] for code in columns["role"]]
    for name in PER_ROW:
        flat = columns[name].tolist()
        spelt[name] = [flat[start : start + rows] for start in range(0, len(flat), rows)] if rows else []
    spelt["active"] = [list(map(bool, row)) for row in spelt["active"]]
    if "slots_given" in columns:
        counts, slots = iter(columns["slot_counts"]), iter(columns["slots"])
        spelt["decided_slots"] = [
            [[next(slots) for _ in range(next(counts))] for _ in range(rows)] if given else None
            for given in columns["slots_given"]
        ]
    if "model" in columns:
        spelt["model"] = [packed.models[code - 1] if code else None for code in columns["model"]]
    return PassColumns.model_construct(**spelt)


def _little_endian(one: array[Any]) -> array[Any]:
    """From this machine's order of bytes, or back to it."""
    if sys.byteorder == "little":
        return one
    copy = one[:]
    copy.byteswap()
    return copy
