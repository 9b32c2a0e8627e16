"""What installed packages add to a table of the program, by an entry point group."""

from __future__ import annotations

from importlib.metadata import entry_points
from typing import TypeVar

from harness.errors import UserError

T = TypeVar("T")


def with_plugins(own: dict[str, T], group: str, kind: type[T]) -> dict[str, T]:
    """``own``, then what the entry points of ``group`` give, each under the entry point's name.

    Raises:
        UserError: one cannot be loaded, is no ``kind``, or has a name that is already taken.
    """
    found = dict(own)
    for entry in entry_points(group=group):
        where = f"the entry point {entry.name} = {entry.value} ({group}) of {entry.dist.name if entry.dist else 'a package'}"
        try:
            given = entry.load()
        except Exception as error:
            raise UserError(f"{where} cannot be loaded: {type(error).__name__}: {error}; mend or uninstall it") from error
        if not isinstance(given, kind):
            raise UserError(f"{where} gives a {type(given).__name__}; allowed is a {kind.__module__}.{kind.__name__}")
        if entry.name in found:
            raise UserError(f"{where} takes a name that is taken; rename it, or uninstall one of the two packages")
        found[entry.name] = given
    return found
