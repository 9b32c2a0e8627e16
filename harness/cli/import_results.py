"""`sbd import`: result files of other benchmarking tools become a record of ours."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from pydantic import TypeAdapter, ValidationError
from typer import Argument, Option

from harness import formatting
from harness.analysis.trust.health import without_void_times
from harness.analysis.trust.imported import cached
from harness.analysis.trust.integrity import contradictions
from harness.cli.output import AsJson, grid, json_text, lines_of, wrapped
from harness.config_file import Name
from harness.errors import UserError
from harness.models.choice import shape_called
from harness.record.imports.formats import FORMATS, read_file
from harness.record.imports.measured import ResultFile
from harness.record.schema import Run
from harness.record.store import RunStore
from harness.scenario.claim_text import read_claim
from harness.scenario.imported import About, ImportedArm, imported_run

ASKED = "3-5x"
"""What is claimed of the arms where nobody says: this program's own question, by the clock."""
COLUMNS = {
    "first token": "median_first_token_s",
    "per token": "median_time_per_token_s",
    "between pieces": "median_gap_s",
    "request": "median_request_s",
}
LONGEST_NAME = 200


def import_command(
    files: Annotated[list[Path] | None, Argument()] = None,
    ntp: list[Path] | None = None,
    arm: list[str] | None = None,
    out: Path | None = None,
    model: str | None = None,
    machine: str | None = None,
    claim: Annotated[
        list[str] | None, Option(metavar="TEXT", help=f'kept with the record, for verify and the page; default "{ASKED}"')
    ] = None,
    format_: Annotated[
        str | None, Option("--format", metavar="NAME", help=f"instead of looking at the files: {', '.join(FORMATS)}")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Make a record of result files of `vllm bench serve` (detailed), AIPerf (profile_export.jsonl), GuideLLM (benchmarks.json)
    or SGLang's bench_serving (with details).

    \b
    sbd import --ntp plain1.json --ntp plain2.json --ntp plain3.json \\
        --arm fast=fast1.json --arm fast=fast2.json --arm fast=fast3.json --out run
    sbd verify run --claim "wall_speedup >= 1.5"

    Each file is one process of the statistics. Requests are paired by their prompts where the files show that they are the
    same; else means over whole files are compared. The files hold no passes, no token ids and no grades, so claims about
    these are void. sbd verify, gate, history and report read the record.

    Args:
        files ([FILE]...): files of one arm, each one process; figures, no speedup
        ntp (FILE): a file of the baseline, one token a pass; repeat for each file
        arm (NAME=FILE): a file of an arm; repeat for each file and each arm
        out (DIR): where the record goes; without it, figures are only shown
        model (NAME|FOLDER): a known model, or a folder with a config.json: its shape
        machine (TEXT): what the server ran on: gate and history keep machines apart
    """
    if format_ is not None and format_ not in FORMATS:
        raise UserError(f"--format {format_}: there is no such format; allowed: {', '.join(FORMATS)}")
    if machine is not None and not 0 < len(machine.strip()) <= LONGEST_NAME:
        raise UserError(f"--machine: got {len(machine)} letters; give 1 to {LONGEST_NAME}")
    claims = tuple(read_claim(text) for text in claim or (ASKED,))
    arms = _arms(files or (), ntp or (), arm or (), format_)
    command = shlex.join(["sbd", *sys.argv[1:]]).encode(errors="backslashreplace").decode()
    shape, named = shape_called(model) if model else None, machine and machine.strip()
    header, samples = imported_run(arms, About(model=shape, machine=named, claims=claims, command=command))
    if out is not None:
        with RunStore(out) as store:
            store.create(header)
            for one in samples:
                store.append(one, sync=one is samples[-1])
    _show(arms, Run(header=header, samples=samples, outcomes=[], sessions=[]), out, as_json)


def _show(arms: Sequence[ImportedArm], run: Run, out: Path | None, as_json: bool) -> None:
    """Every file's figures, without those of a stream that tells no times; what is void, what is paired, what files lack.

    A file's own figures are worked out from its requests, in seconds.
    """
    origin, health = run.header.imported, without_void_times(run)[1]
    assert origin is not None
    mute = {case_id: of.words for part in health for case_id, of in part.cases.items() if 2 * of.void > of.timed}
    void = [f"void: {case_id}: {words}" for case_id, words in mute.items()]
    void += [f"void: {words} ({places[0]})" for words, places in contradictions(run).items()]
    heads = ("arm", "file", "requests", "failed", *(f"{name}, median" for name in COLUMNS), "tokens/s")
    rows, files = list[list[str]](), list[dict[str, object]]()
    for arm, file in [(side, file) for side in arms for file in side.files]:
        of_stream = ("token_s", "gap_s") if arm.case_id in mute else ()
        figures = {name: one for name, one in file.figures.items() if not name.endswith(of_stream)}
        times = [formatting.seconds(figures[name]) if name in figures else "none" for name in COLUMNS.values()]
        rate = f"{figures['output_tokens_per_s']:.1f}" if "output_tokens_per_s" in figures else "none"
        rows.append([arm.label, file.name, str(file.sent), str(file.failed), *times, rate])
        told = {"figures": figures, "printed": dict(file.printed), "counted": dict(file.counted)}
        files.append({"arm": arm.label, "file": file.name, "sent": file.sent, "failed": file.failed} | told)
    if as_json:
        run_id = run.header.run_id if out else None
        print(json_text({"run_id": run_id, "imported": origin.model_dump(mode="json"), "files": files, "void": void}))
        return
    print(grid(heads, rows, right=heads[2:], folds=("file",)))
    for words in (*void, origin.pairing_words if len(rows) > 1 else "one file: nothing to pair", cached(origin)):
        print(wrapped(words))
    for name, why in origin.lacks.items():
        print(wrapped(f"not known: {name.replace('_', ' ')} ({why})", "  ", "    "))
    if out is not None:
        print(lines_of(f"record  {out}"))


def _arms(files: Sequence[Path], ntp: Sequence[Path], named: Sequence[str], wanted: str | None) -> list[ImportedArm]:
    """The arms with their files read. Raises UserError where the arguments do not say which file is what."""
    if files and (ntp or named):
        raise UserError(f"{files[0]}: belongs to no arm; write --ntp {files[0]} or --arm NAME={files[0]}, once for each file")
    if not (files or ntp or named):
        raise UserError("no file is given; give one, or --ntp FILE and --arm NAME=FILE, once for each file")
    found: dict[str, list[Path]] = {}
    for text in named:
        name, _, file = text.partition("=")
        if not file:
            raise UserError(f"--arm {text}: write NAME=FILE")
        try:
            found.setdefault(TypeAdapter(Name).validate_python(name), []).append(Path(file))
        except ValidationError as error:
            raise UserError(f"--arm {name}=...: a name has letters, digits, dots, - and _, 64 at most") from error
    arms = [ImportedArm(name="ntp", is_ntp=True, files=_read(ntp, wanted))] if ntp else []
    arms += [ImportedArm(name=name, is_ntp=False, files=_read(own, wanted)) for name, own in found.items()]
    if files:
        read = _read(files, wanted)
        arms = [ImportedArm(name=read[0].format, is_ntp=False, files=read)]
    return arms


def _read(files: Sequence[Path], wanted: str | None) -> tuple[ResultFile, ...]:
    return tuple(read_file(file, wanted) for file in files)
