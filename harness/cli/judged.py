"""What commands that judge have in common: whether signatures are demanded, and the end: table, files, exit code.

Such a command takes ``as_json: JsonOption = False, inconclusive: InconclusiveOption = "report", to: ToOption = None``. It
calls ``finish`` last. ``--to`` is checked before the command starts, because the measurement may take an hour. The table shows
the remedies of open answers and ends with the verdict.
"""

from __future__ import annotations

import errno
import os
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Literal, NamedTuple, NoReturn

from typer import Context, Exit, Option

from harness.analysis.judge.judgement import Judgements
from harness.analysis.trust.integrity import Integrity
from harness.cli.output import by_reason, grid, show
from harness.errors import StorageError, UserError
from harness.formatting import one_line
from harness.record.regular_file import refuse_irregular, write_whole
from harness.record.seal import SEAL
from harness.record.signature import signer
from harness.record.store import SIGNATURE, kept
from harness.reporting.exports import FORMATS, export
from harness.reporting.exports.wording import HEADS, gravest_first, row, tally, verdict_words

STDOUT = "-"
READER_WAITS, READER_WAIT_S = 100, 0.05
"""How often, and how long, a pipe's reader is waited for."""
BESIDE_THE_TABLE = "github"
"""Workflow commands are read line by line, so they stand below the table; any other format replaces it."""

Inconclusive = Literal["report", "pass", "fail"]


class Target(NamedTuple):
    """One ``--to``: a format by name and its file; None is standard output."""

    format: str
    file: Path | None


def _check_to(ctx: Context, values: list[str] | None) -> list[str] | None:
    targets(values, bool(ctx.params.get("as_json")))
    return values


JsonOption = Annotated[bool, Option("--json", is_eager=True, help="print JSON instead of the table")]
InconclusiveOption = Annotated[
    Inconclusive, Option("--inconclusive", help="what an inconclusive verdict exits with: report is 3, pass is 0, fail is 1")
]
ToOption = Annotated[
    list[str] | None,
    Option(
        "--to",
        metavar="FORMAT=FILE",
        callback=_check_to,
        help="also write the answers for a program, - is standard output; repeat for several; "
        f"FORMAT is {' or '.join(', '.join(FORMATS).rsplit(', ', 1))}",
    ),
]


RequireOption = Annotated[
    bool, Option("--require-signature", help="void unless the record is sealed and signed, by one of --signers if given")
]
SignersOption = Annotated[
    Path | None,
    Option(metavar="FILE", help="whose signatures count: allowed signers as in ssh-keygen(1); needs --require-signature"),
]


def targets(to: Sequence[str] | None, as_json: bool) -> list[Target]:
    """Every ``--to``, checked as far as possible before anything is written; ``--json`` is one more.

    Raises:
        UserError: an unknown format, an unwritable file, or one file or standard output given twice.
    """
    wanted = [*map(_target, to or ()), *([Target("json", None)] if as_json else [])]
    for file, times in Counter(target.file for target in wanted).items():
        if times > 1 and file is None:
            raise UserError("--json and --to FORMAT=-: only one format can go to standard output; give the others a file")
        if times > 1:
            raise UserError(f"--to: {file} was given twice; give every format its own file")
    return wanted


def _target(text: str) -> Target:
    name, _, file = text.partition("=")
    if name not in FORMATS:
        raise UserError(f"--to {text}: unknown format {name!r}; known are {', '.join(FORMATS)}; write FORMAT=FILE, - is stdout")
    if not file:
        raise UserError(f"--to {text}: no file; write {name}=FILE, or {name}=- for standard output")
    if file == STDOUT:
        return Target(name, None)
    path = Path(file)
    if not _is_special(path):
        refuse_irregular(path)
    if not path.parent.is_dir():
        raise UserError(f"--to {text}: there is no folder {path.parent}; make it first (mkdir -p {path.parent})")
    if path.is_dir():
        raise UserError(f"--to {text}: {path} is a folder; name a file")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise UserError(f"--to {text}: {path} cannot be written; check its permissions or name another file")
    return Target(name, path)


def finish(
    judgements: Judgements, as_json: bool, inconclusive: Inconclusive, to: Sequence[str] | None = (), whole: bool = True
) -> NoReturn:
    """Write what ``--to`` names, print the answers and end with their exit code.

    ``whole``: show what was met too, not only its number.

    Raises:
        StorageError: a file could not be written; the others and the table are.
    """
    texts = [(target, export(judgements, target.format)) for target in targets(to, as_json)]
    refusals = []
    for file, text in ((target.file, text) for target, text in texts if target.file is not None):
        try:
            write = _into_special if _is_special(file) else write_whole
            write(file, text.encode())
        except (OSError, StorageError) as error:
            cause = error.__cause__ or error
            why = getattr(cause, "strerror", None) or cause
            refused = f"{file}: could not be written ({why}); the verdict stands above; free space or name another file"
            refusals.append(StorageError(refused))
    printed = {target.format: text for target, text in texts if target.file is None}
    if set(printed) <= {BESIDE_THE_TABLE}:
        show(table(judgements, judgements.exit_code(inconclusive), whole))
    for text in printed.values():
        print(text, end="")
    if refusals:
        raise refusals[0]
    raise Exit(judgements.exit_code(inconclusive))


def _is_special(file: Path) -> bool:
    """Whether it is a device or a pipe (``/dev/fd/63``), which no file may replace."""
    return file.exists() and not file.is_file() and not file.is_dir()


def _into_special(file: Path, data: bytes) -> None:
    """Write into a device or a pipe. Raises OSError, also where nobody opens the pipe for reading in time."""
    for waited in range(READER_WAITS, -1, -1):
        try:
            descriptor = os.open(file, os.O_WRONLY | os.O_NONBLOCK)
            break
        except OSError as error:
            if error.errno != errno.ENXIO or not waited:
                raise
            time.sleep(READER_WAIT_S)
    os.set_blocking(descriptor, True)
    with os.fdopen(descriptor, "wb") as opened:
        opened.write(data)


def table(judgements: Judgements, exit_code: int, whole: bool = True) -> str:
    """Gravest first; text only. Without ``whole`` what passed is only counted."""
    ordered = gravest_first(judgements)
    shown = ordered if whole else [one for one in ordered if one.state != "met"]
    parts = [f"record  {one_line(one)}" for one in dict.fromkeys(judgements.records)]
    parts += [grid(HEADS, map(row, shown), folds=HEADS[2:], ruled=True)] if shown else []
    # What would decide the open answers, each remedy once.
    remedies = by_reason((f"{one.metric} of {one.subject}", one.remedy) for one in ordered if one.remedy)
    parts += [f"to decide {one_line('; '.join(names))}: {one_line(remedy)}" for remedy, names in remedies.items() if remedy]
    said = f"verdict: {verdict_words(judgements)} ({tally(judgements)}; exit code {exit_code}): {one_line(judgements.title)}"
    hidden = f"{len(ordered) - len(shown)} that passed or did not change are not shown; --all shows them"
    return "\n".join([*parts, *([hidden] if len(shown) < len(ordered) else []), said])


def demanding(integrity: Integrity, run: Path, demanded: bool, signers: Path | None) -> Integrity:
    """What a record proves where a signature is ``demanded``; ``signers``: by whom, None for any key.

    Raises:
        UserError: signers without the demand; a file of signers that is not there.
    """
    if not demanded:
        if signers is not None:
            raise UserError(f"--signers {signers} says whose signatures count; add --require-signature")
        return integrity
    folder, lacking = run if run.is_dir() else run.parent, None
    head, signature = kept(folder / SEAL), kept(folder / SIGNATURE)
    if head is None or signature is None or not integrity.signed:
        lacking = f"the record is {integrity.seal_words}"
    elif signers is not None and signer(head, signature, signers) is None:
        lacking = f"the record is {integrity.seal_words}, which is none of {signers}"
    return replace(integrity, demanded=lacking)
