"""Tables: columns, cells with the value behind each and its place in the JSON form; and machine, model and arm in words.

An absent value is shown as "none" with the number of its reason under the table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import field, replace
from functools import reduce
from operator import attrgetter
from typing import Any, Literal

from harness.analysis.results import LEAVES, ArmResult, Cell, Comparison, field_names
from harness.formatting import count
from harness.frozen import frozen, positional
from harness.record.schema import RunHeader
from harness.stats.quantity import Quantity

Write = Callable[[float], str]


class Pointers:
    """JSON Pointers (RFC 6901) into ``to_json(comparison)``, found by identity: ``/cells/0/arms/2/wall_speedup``."""

    def __init__(self, comparison: Comparison | None) -> None:
        self._comparison = comparison  # kept alive: the ids below are those of its values
        self._of: dict[int, str] = {}
        self._walk(comparison, "")

    def of(self, holder: object, field: str = "") -> str:
        """The pointer of ``holder`` or of its field; empty where ``holder`` is not a value of the comparison."""
        found = self._of.get(id(holder))
        if found is None:
            return ""
        return f"{found}/{_escaped(field)}" if field else found

    def _walk(self, value: Any, at: str) -> None:
        names = _fields(value)
        if names:
            self._of.setdefault(id(value), at)
            for name in names:
                inner = getattr(value, name)
                if type(inner) not in LEAVES:
                    self._walk(inner, f"{at}/{name}")
        elif isinstance(value, dict):
            for key, inner in value.items():
                self._walk(inner, f"{at}/{_escaped(str(key))}")
        elif isinstance(value, (tuple, list)) and value and not isinstance(value[0], (int, float, str)):
            for number, inner in enumerate(value):
                self._walk(inner, f"{at}/{number}")


def _fields(value: object) -> tuple[str, ...]:
    return field_names(type(value))  # type: ignore[arg-type]  # a type can be hashed, mypy does not see it


def _escaped(part: str) -> str:
    return part.replace("~", "~0").replace("/", "~1")


Mark = Literal["measured", "counted", "modelled", "predicted", "replayed", "given"]
"""The basis of a figure; ``given`` is an input of a replayed arm."""
Marks = tuple[Mark, ...]


@frozen
class Entry:
    """One cell: text, a second line in small type, the values behind both, their place in the comparison, its note."""

    text: str
    small: str = ""
    raw: float | int | None = None
    low: float | None = None
    high: float | None = None
    key: str = ""
    marks: Marks = ()
    note: int | None = None


Row = dict[str, Entry]


def shown(quantity: Quantity, write: Write, key: str, small: str = "", marks: Marks = (), note: int | None = None) -> Entry:
    """``quantity`` written by ``write``; an absent value is "none", without marks."""
    if quantity.value is None:
        return Entry(text="none", note=note)
    return Entry(
        text=write(quantity.value),
        small=small,
        raw=quantity.value,
        low=quantity.low,
        high=quantity.high,
        key=key,
        marks=marks,
        note=note,
    )


@frozen
class PageTable:
    """Rows of entries under sections; the first column names the row. ``marks``: the basis of all figures of a column."""

    heading: str
    sections: tuple[tuple[str, tuple[Row, ...]], ...]
    notes: tuple[str, ...]
    marks: dict[str, Marks] = field(default_factory=dict)

    @property
    def columns(self) -> list[str]:
        """Heads of the columns of every row; a rung may price one pass and not another."""
        return list(dict.fromkeys(name for _, rows in self.sections for row in rows for name in row))

    def cells(self, row: Row) -> list[Entry]:
        """The entries of ``row``, one per column."""
        return [row.get(name, Entry(text="none")) for name in self.columns]


class Numbers(dict[Any, int]):
    """``numbers[value]``: the number of ``value``, from 0 in the order of their first use; equal values share one."""

    def __missing__(self, value: Any) -> int:
        return self.setdefault(value, len(self))


UNKNOWN = "the files of this imported run do not tell it"


class Notes:
    """Makes the entries of one table and numbers their reasons; equal reasons share a number."""

    def __init__(self, pointers: Pointers | None = None) -> None:
        self._numbers, self._pointers = Numbers(), pointers or Pointers(None)

    def number(self, reason: str) -> int:
        """The number of ``reason``, counted from 1."""
        return self._numbers[reason] + 1

    def entry(self, quantity: Quantity, write: Write, small: str) -> Entry:
        """``quantity`` written by ``write``; an absent value or interval refers to its reason."""
        note = self.number(quantity.reason) if quantity.reason else None
        marks: Marks = ("given",) if quantity.method == "given" else ()
        return shown(quantity, write, self._pointers.of(quantity), small, marks, note)

    def plain(self, holder: Any, name: str, write: Write = count, why: str = UNKNOWN) -> Entry:
        """The plain number of this name in ``holder``, a value of the comparison or a mapping in one."""
        value = _inner(holder, name)
        if value is None:
            return Entry(text="none", note=self.number(why))
        key = self._pointers.of(holder, name) if name in _fields(holder) else ""
        return Entry(text=write(value), raw=value, key=key)

    def table(self, heading: str, sections: Iterable[tuple[str, Sequence[Row]]], marks: dict[str, Marks]) -> PageTable | None:
        """The table of the sections that have rows, with the notes of all entries so far; None without rows."""
        kept = tuple((name, tuple(rows)) for name, rows in sections if rows)
        return PageTable(heading=heading, sections=kept, notes=tuple(map(str, self._numbers)), marks=marks) if kept else None


def between(quantity: Quantity, write: Write) -> str:
    """The interval as text; empty without one."""
    return "" if quantity.low is None or quantity.high is None else f"{write(quantity.low)} – {write(quantity.high)}"


def with_ends(quantity: Quantity, write: Write) -> str:
    """``3.16x (2.90x – 3.45x)``."""
    ends = between(quantity, write)
    return write(quantity.value or 0.0) + (f" ({ends})" if ends else "")


def _inner(holder: Any, name: str) -> Any:
    """A field, or the value of a key; None where there is no holder."""
    if holder is None or isinstance(holder, dict):
        return (holder or {}).get(name)
    return getattr(holder, name)


def _has(subject: Any, paths: Sequence[str]) -> bool:
    """Whether one of these paths leads to a value, not 0 of a count."""
    values = (reduce(_inner, path.split("."), subject) for path in paths)
    return any(value is not None and (value or isinstance(value, float)) for value in values)


@positional
class PageColumn:
    """One column of a table: PageColumn("Wall speedup", ("measured",), "wall_speedup", formatting.ratio, between).

    ``of``      the path of the value from the row's subject, through fields and keys: a Quantity or a plain number
    ``under``   what stands in small type below a value
    ``why``     the reason of a value that is absent without a reason of its own; None: such a row has no entry
    ``entry``   makes what no path leads to
    ``needs``   paths; the column stands where one of them leads to a value for any subject of the table
    ``of_ntp``  whether NTP has such a figure; a comparison with NTP it has not
    ``fixed``   a load may fix the value, so that processes need not differ in it: without interval
    """

    head: str
    marks: Marks = ()
    of: str = ""
    write: Write = count
    under: str | Callable[[Quantity, Write], str] = ""
    why: str | None = UNKNOWN
    entry: Callable[[Any, Cell, Notes], Entry] | None = None
    needs: tuple[str, ...] = ()
    of_ntp: bool = True
    fixed: bool = False

    def cell(self, subject: Any, cell: Cell, notes: Notes) -> Entry | None:
        """The entry of one row."""
        if self.entry is not None:
            return self.entry(subject, cell, notes)
        if not self.of_ntp and subject.is_ntp:
            return Entry(text="")
        *path, name = self.of.split(".")
        holder = reduce(_inner, path, subject)
        value = _inner(holder, name)
        if isinstance(value, Quantity):
            if self.fixed and value.value is not None:
                value = replace(value, low=None, high=None, reason=None)
            under = self.under if isinstance(self.under, str) else self.under(value, self.write)
            return notes.entry(value, self.write, under)
        return None if value is None and self.why is None else notes.plain(holder, name, self.write, self.why or UNKNOWN)


@positional
class Listing:
    """A table of a run: its heading, its columns, and the subjects of its rows in a cell of the comparison.

    ``needs``  paths; a subject has a row where one of them leads to a value
    """

    heading: str
    columns: tuple[PageColumn, ...]
    subjects: Callable[[Cell], Iterable[Any]] = attrgetter("arms")
    needs: tuple[str, ...] = ()

    def table(self, cells: Sequence[Cell], pointers: Pointers, more: str = "") -> PageTable | None:
        """A section per cell, headed for example ``all 3 tasks, batch 1``; ``more`` ends the heading. None without rows."""
        notes = Notes(pointers)
        rows_of = [(cell, [one for one in self.subjects(cell) if not self.needs or _has(one, self.needs)]) for cell in cells]
        every = [one for _, subjects in rows_of for one in subjects]
        columns = [column for column in self.columns if not column.needs or any(_has(one, column.needs) for one in every)]
        sections = []
        for cell, subjects in rows_of:
            entries = [{column.head: column.cell(one, cell, notes) for column in columns} for one in subjects]
            task = f"all {len(cell.tasks)} tasks" if cell.task is None else cell.task
            rows = [{head: entry for head, entry in row.items() if entry is not None} for row in entries]
            sections.append((f"{task}, {cell.size_words}", rows))
        return notes.table(f"{self.heading}{more}", sections, {column.head: column.marks for column in columns if column.marks})


def ends(quantity: Quantity) -> str:
    """The interval of a speedup, ``2.38–2.76``; empty without one."""
    return between(quantity, "{:.2f}".format).replace(" ", "")


def machines(header: RunHeader) -> str:
    """Every device of a run, as ``machine`` names it."""
    return " and ".join(dict.fromkeys(machine(header, case.device) for case in header.cases)) or "no machine"


def machine(header: RunHeader, device: str | None) -> str:
    """The device as the environment snapshot names it, else the plain device (``cpu``)."""
    environment = header.environment
    if device is None:
        return str(environment.get("machine") or "a machine that no file names")
    if device.startswith("cpu"):
        return str(environment.get("cpu_model") or device)
    gpus = environment.get("gpus") or []
    index = int(device.partition(":")[2] or 0)
    return str(gpus[index]["name"]) if index < len(gpus) else device


def model(cell: Cell) -> str:
    """The model of a cell, for example ``llama-250m (250M parameters, bfloat16)``."""
    if cell.params is None:
        return f"{cell.model} (size and dtype not known)"
    millions = cell.params / 1e6
    size = f"{millions / 1e3:.1f}B" if millions >= 1e3 else f"{millions:.{1 if millions < 10 else 0}f}M"
    return f"{cell.model} ({size} parameters, {cell.dtype or 'dtype not known'})"


def place(cell: Cell) -> str:
    """Where a cell ran: ``cuda``, or ``cuda, split over 2 processes (bytes and predictions are of one)``."""
    if cell.device is None:
        return "a device that no file names"
    if cell.tensor_parallel == 1:
        return cell.device
    return f"{cell.device}, split over {cell.tensor_parallel} processes (bytes and predictions are of one)"


def arm(found: ArmResult) -> str:
    """The arm: ``SBD with block size 16 and bound γ=0.1``; the label of an arm of another solver."""
    if found.method != "sbd" or found.block_size is None or found.solver not in (None, "entropy_bounded"):
        return found.label
    bound = f" and bound γ={found.gamma:g}" if found.gamma is not None else ""
    warmth = f", temperature {found.temperature:g}" if found.temperature else ""
    return f"SBD with block size {found.block_size}{bound}{warmth}"
