"""`sbd gate`: has NEW regressed from BASE? It compares two stored runs, or two revisions measured in turn here.

`sbd noise` measures how far the gate's estimate strays on this machine when nothing has changed.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from harness.analysis.answer import Derived
from harness.analysis.judge.judgement import Judgements, by_records
from harness.cli.compare import AllowOption
from harness.cli.judged import InconclusiveOption, RequireOption, SignersOption, ToOption, demanding, finish
from harness.cli.output import Amount, AsJson, json_text, lines_of, show
from harness.cli.progress import TerminalProgress
from harness.cli.run import RemoteCodeOption
from harness.errors import UserError
from harness.formatting import percent
from harness.models.choice import REMOTE_CODE
from harness.record.identity import comma_separated
from harness.record.store import read_on_one_machine
from harness.regression.gate.judge import GateOptions, gate_revisions, gate_runs
from harness.regression.gate.noise import NoiseWish, StoredFloors, every_floor, known_floors, measure_noise, save_floors
from harness.regression.gate.procedure import plan_of
from harness.regression.gate.revisions import RevisionCommands, Revisions, default_work
from harness.regression.metrics import MARGIN
from harness.scenario.loading import find_scenario, load_scenario

MetricOption = Annotated[
    list[str] | None,
    Option("--metric", help="timed metric that decides, at most five: a name, a key or a pattern (decode_s_per_token:*)"),
]
WorkOption = Annotated[
    Path | None, Option("--work", help="folder that keeps the runs; default: a new one in reports/ or the unfinished one")
]
DEFAULT_PAIRS = 12


def gate_command(
    runs: Annotated[list[Path] | None, Argument()] = None,
    base_cmd: str | None = None,
    new_cmd: str | None = None,
    pairs: Annotated[int | None, Option(min=2)] = None,
    work: WorkOption = None,
    metric: MetricOption = None,
    margin: Amount = MARGIN,
    deterministic_only: bool = False,
    allow: AllowOption = None,
    require_signature: RequireOption = False,
    signers: SignersOption = None,
    whole: Annotated[bool, Option("--all")] = False,
    as_json: AsJson = False,
    inconclusive: InconclusiveOption = "report",
    to: ToOption = None,
) -> None:
    """Gate NEW against BASE: counts by equality, times by interval against a margin. Exit code 0 passed, 1 regressed,
    3 inconclusive, 4 void, 2 your mistake, 5 ours or a command's.

    Args:
        runs ([BASE NEW]): two run directories
        base_cmd: instead of BASE: a shell command that leaves its run directory at {out}
        new_cmd: instead of NEW: the same for the other revision
        pairs: most pairs of fresh processes before a re-run, default 12; with --base-cmd
        margin: slowdown that is let pass, 0.02 is 2 %; a noise floor above it takes its place
        deterministic_only: only what is counted: on any machine, the two need not be one
        whole: show what passed and what did not change too
    """
    wish = GateOptions(
        metrics=metric or (),
        deterministic_only=deterministic_only,
        allow=comma_separated(allow or ()),
        least_margin=margin,
        plan=plan_of(pairs or DEFAULT_PAIRS),
    )
    if base_cmd is not None and new_cmd is not None and not runs:
        finish(_measured(base_cmd, new_cmd, work, wish), as_json, inconclusive, to, whole)
    if base_cmd is not None or new_cmd is not None or len(runs or ()) != 2:
        raise UserError(
            "sbd gate takes either two run directories (sbd gate BASE NEW) or two commands (sbd gate --base-cmd '... {out}' "
            f"--new-cmd '... {{out}}'); got {len(runs or ())} directories and {2 - (base_cmd, new_cmd).count(None)} commands"
        )
    if pairs is not None or work is not None:
        raise UserError("--pairs and --work belong to --base-cmd and --new-cmd: two stored runs hold the processes they hold")
    finish(_stored(runs or (), wish, require_signature, signers), as_json, inconclusive, to, whole)


def _stored(paths: Sequence[Path], wish: GateOptions, signed: bool, signers: Path | None) -> Judgements:
    """The answers from two stored runs."""
    base, new = runs = [read_on_one_machine(path) for path in paths]
    records = [demanding(Derived(run).integrity, path, signed, signers) for run, path in zip(runs, paths, strict=True)]
    return by_records(gate_runs(base, new, tuple(map(str, paths)), wish, known_floors), records)


def _measured(base_cmd: str, new_cmd: str, work: Path | None, wish: GateOptions) -> Judgements:
    """The answers from two revisions, measured now or continued."""
    revisions, progress = _revisions(base_cmd, new_cmd, work)
    try:
        answers = gate_revisions(revisions, wish, known_floors, progress)
    except KeyboardInterrupt:
        progress.end_line()
        show("interrupted: finished runs are kept; the same command goes on", sys.stderr)
        raise
    progress.end_line()
    return answers


def _revisions(base: str, new: str, work: Path | None) -> tuple[Revisions, TerminalProgress]:
    """Both revisions with the folder that keeps their runs, and the progress that names it."""
    commands = RevisionCommands(base=base, new=new)
    progress = TerminalProgress(sys.stderr, what="runs")
    revisions = Revisions(commands, work or default_work(commands), progress)
    progress.note(f"runs are kept in {revisions.work}")
    return revisions, progress


DEFAULT_GATES = 20


def noise_command(
    scenario: Annotated[str | None, Argument()] = None,
    cmd: str | None = None,
    gates: Annotated[int, Option(min=2)] = DEFAULT_GATES,
    pairs: Annotated[int, Option(min=2)] = DEFAULT_PAIRS,
    pool: Annotated[int | None, Option(min=4)] = None,
    metric: MetricOption = None,
    work: WorkOption = None,
    show: bool = False,
    as_json: AsJson = False,
    trust_remote_code: RemoteCodeOption = False,
) -> None:
    """Measure this machine's A/A noise floor and keep it for `sbd gate`; takes gates x pairs x 2 runs of the scenario.

    Args:
        scenario ([FILE]): scenario whose noise is wanted; default: the shipped one, gate
        cmd: instead of a scenario: a shell command that leaves its run directory at {out}
        gates: A/A gates; with fewer than 20 the floor is a careful bound
        pairs: pairs of fresh processes in each
        pool: measure only so many pairs and draw the gates from them: quicker, blind to drift between gates
        show: only show the floors that are kept, of this user's machines
    """
    if scenario is not None and cmd is not None:
        raise UserError(f"sbd noise takes a scenario or --cmd, got both ({scenario} and {cmd!r}); leave one out")
    if show:
        _print(every_floor(), as_json)
        return
    granted = [REMOTE_CODE] if trust_remote_code else []
    load_scenario(scenario or "gate")  # a wrong one fails before anything runs
    file = str(find_scenario(scenario or "gate").resolve())  # so that the command works from any folder
    ours = [sys.executable, "-m", "harness", "run", file, "--no-report", *granted, "--out"]
    command = cmd or shlex.join(ours) + " {out}"
    wish = NoiseWish(gates=gates, pairs=pairs, pool=pool, metrics=metric or ())
    revisions, progress = _revisions(command, command, work)
    first, floors = measure_noise(revisions, wish, progress)
    progress.end_line()
    _print([save_floors(first.header, floors)], as_json)


def _print(stored: list[StoredFloors], as_json: bool) -> None:
    if as_json:
        print(json_text([asdict(floors) for floors in stored]))
        return
    if not stored:
        show("no noise floor is kept; `sbd noise` measures one")
    for kept in stored:
        commit = kept.commit or "not known"
        lines = [f"{kept.scenario} on {kept.machine}, {kept.measured_at}, commit {commit} ({kept.file})"]
        for floor in kept.floors:
            value = "not known" if floor.ratio is None else percent(floor.ratio, 2)
            why = f" ({floor.reason})" if floor.reason else ""
            lines.append(f"  {value:>9}  {floor.metric}: {floor.method}, {floor.repeats} gates of {floor.pairs} pairs{why}")
        show(lines_of(*lines))
