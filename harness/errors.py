"""Every exception this program raises on purpose, so that the command line catches them in one place.

Catching SbdError catches all of them. A message says what was given, what is allowed and what to do; ``in_words`` makes one of
an error of pydantic.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Literal

from harness.formatting import each_line, one_line

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails, ValidationError

EXIT_OK = 0
EXIT_REGRESSION = 1
EXIT_USER_ERROR = 2
EXIT_INCONCLUSIVE = 3
EXIT_VOID = 4
EXIT_TOOL_ERROR = 5
STATUS_AGAIN = 75
"""The processes of a split model ended at a case that cannot be run; a restart leaves it out (EX_TEMPFAIL)."""
EXIT_INTERRUPTED = 130
EXIT_CLOSED_PIPE = 141
"""Whoever read the standard output left: 128 + SIGPIPE, as a shell shows it."""
LONGEST_SHOWN = 200
LONGEST_SENTENCE = 4000
"""Long enough for a list of everything allowed, too short for a whole file given as one value."""
_WHAT_TO_DO = {
    "bool_type": "write true or false, without quotes",
    "float_type": "write a number, without quotes",
    "int_type": "write a whole number, without quotes",
    "string_type": 'write text; put it in quotes if it looks like a number ("2024")',
    "missing": "add it",
    "extra_forbidden": "remove it",
    "literal_error": "choose one of these",
    "union_tag_invalid": "choose one of these",
}


class SbdError(Exception):
    """Base of all errors raised on purpose; ``exit_code`` is what the command line returns.

    Every argument is a line of the message, which may quote foreign text.
    """

    exit_code = EXIT_TOOL_ERROR

    def __str__(self) -> str:
        return "\n".join(one_line(str(line)) for line in self.args)


class UserError(SbdError):
    """The input is wrong and the user can correct it."""

    exit_code = EXIT_USER_ERROR


class ScenarioError(UserError):
    """A scenario file that cannot be accepted; the message starts with ``file:line``."""


class UnknownModelError(UserError):
    """A model, shape or tokenizer that cannot be found."""


class UnknownHardwareError(UserError):
    """A device that no profile describes (hardware is never guessed), or a profile that is refused, with file and line."""


class UnknownTaskError(UserError):
    """A built-in task or split that does not exist."""


class BenchmarkFileError(UserError):
    """A result file of another tool that cannot be imported; the message names file, line and key."""


class MissingExtraError(UserError):
    """A command needs an optional dependency that is not installed."""


class RecordError(SbdError):
    """A run directory that cannot be read."""


class StorageError(SbdError):
    """The disk refused to take a record."""


class ProcessEndedError(SbdError):
    """A fresh process of a run, or a command of a gate, ended before it took its samples; exit code 5, or 2 if it ended so."""

    def __init__(self, message: str, exit_code: int = EXIT_TOOL_ERROR) -> None:
        super().__init__(message)
        self.exit_code = exit_code

    def __str__(self) -> str:
        return each_line(str(self.args[0]))


class HungError(SbdError):
    """A fresh process of a run took longer for one step than its deadline, and was ended."""


class CaseError(SbdError):
    """A case that cannot be run: recorded as its ``outcome``, not fatal to the run."""

    outcome: ClassVar[Literal["does_not_fit", "failed"]] = "failed"


class DoesNotFitError(CaseError):
    """A case needs more memory than the device has."""

    exit_code = EXIT_INCONCLUSIVE
    outcome = "does_not_fit"


class NotPossibleError(CaseError):
    """A case needs something that this machine does not have."""


class RequestError(CaseError):
    """A server did not answer a request as it should: it refused, broke off, fell silent or died."""


class NoTokenError(CaseError):
    """The logits of a pass name no token: one is NaN or infinite, or no token is possible."""


class CheckFailedError(SbdError):
    """A check of a device failed: an engine does not compute there what the reference computes."""

    exit_code = EXIT_REGRESSION


class NothingMeasuredError(SbdError):
    """A run ended without a sample of any arm: every case failed or did not fit; the record says why of each."""

    exit_code = EXIT_VOID


class InvariantError(SbdError):
    """A conservation law is broken: a fault of this program, never of the user."""


def in_words(details: ErrorDetails) -> str:
    """One error of pydantic as what was given, what is allowed and what to do, without its place."""
    todo = _WHAT_TO_DO.get(details["type"])
    return _sentence(details)[:LONGEST_SENTENCE] + (f"; {todo}" if todo else "")


def first_mistake(error: ValidationError, whole: str) -> str:
    """The place and the words of the first of the mistakes; ``whole``: what is named where it is in no single key."""
    first = error.errors(include_url=False)[0]
    return f"{'.'.join(map(str, first['loc'])) or whole}: {in_words(first)}"


def _sentence(details: ErrorDetails) -> str:
    """What was given and what is allowed, in one clause."""
    kind, given, context = details["type"], details["input"], details.get("ctx", {})
    fixed = {
        "missing": "the key is required and missing",
        "extra_forbidden": "unknown key",
        "too_short": "got an empty list, at least one value is needed",
        "union_tag_invalid": f"got {_shown(context.get('tag'))}, allowed: {context.get('expected_tags')}",
    }
    if kind in fixed:
        return fixed[kind]
    message = details["msg"].removeprefix("Value error, ").removeprefix("Input ")
    told_in_full = kind in {"value_error", "unknown_key", "unknown_model", "unknown_task"}
    return message if told_in_full or isinstance(given, dict | list | tuple) else f"got {_shown(given)}, {message}"


def _shown(given: Any) -> str:
    """What was given, cut if it is too long to read."""
    try:
        text = repr(given)
    except ValueError:  # Python writes no number of more than some thousand digits
        return "a number of thousands of digits"
    return text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}..."
