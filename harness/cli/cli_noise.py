"""`sbd noise`: how far the gate's own estimate strays on this machine when nothing has changed."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from harness.cli.gate import DEFAULT_PAIRS, MetricOption, WorkOption

if TYPE_CHECKING:
    from harness.regression.noise_floors import StoredFloors

DEFAULT_GATES = 20


def noise_command(
    scenario: Annotated[
        str | None, typer.Argument(metavar="[FILE]", help="scenario whose noise is wanted; default: the shipped one, gate")
    ] = None,
    cmd: Annotated[
        str | None, typer.Option("--cmd", help="instead of a scenario: a shell command that leaves its run directory at {out}")
    ] = None,
    gates: Annotated[
        int, typer.Option(min=2, help="A/A gates; with fewer than 20 the floor is a careful bound")
    ] = DEFAULT_GATES,
    pairs: Annotated[int, typer.Option(min=2, help="pairs of fresh processes in each")] = DEFAULT_PAIRS,
    pool: Annotated[
        int | None,
        typer.Option(
            min=4, help="measure only so many pairs and draw the gates from them: quicker, blind to drift between gates"
        ),
    ] = None,
    metric: MetricOption = None,
    work: WorkOption = None,
    show: Annotated[bool, typer.Option("--show", help="only show the floors that are kept, of this user's machines")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="print JSON")] = False,
) -> None:
    """Measure this machine's A/A noise floor and keep it for `sbd gate`; takes gates x pairs x 2 runs of the scenario."""
    from harness.errors import UserError
    from harness.regression.noise_floors import every_floor

    if scenario is not None and cmd is not None:
        raise UserError(f"sbd noise takes a scenario or --cmd, got both ({scenario} and {cmd!r}); leave one out")
    if show:
        _print(every_floor(), as_json)
        return
    from harness.regression.revisions_noise import NoiseWish

    command = cmd or shlex.join([sys.executable, "-m", "harness", "run", _file(scenario), "--no-report", "--out"]) + " {out}"
    wish = NoiseWish(gates=gates, pairs=pairs, pool=pool, metrics=metric or ())
    _print([_measured(command, work, wish)], as_json)


def _file(scenario: str | None) -> str:
    """The scenario as a path, so that the command means the same from any folder; a wrong one is said before anything runs."""
    from harness.scenario.scenario import find_scenario, load_scenario

    load_scenario(scenario or "gate")
    return str(find_scenario(scenario or "gate").resolve())


def _measured(command: str, work: Path | None, wish: Any) -> StoredFloors:
    from harness.cli.progress import TerminalProgress
    from harness.regression.noise_floors import every_floor, save_floors
    from harness.regression.revisions import Commands, Revisions, default_work
    from harness.regression.revisions_noise import measure_noise

    commands = Commands(base=command, new=command)
    progress = TerminalProgress(sys.stderr, what="runs")
    revisions = Revisions(commands, work or default_work(commands), progress)
    progress.note(f"runs are kept in {revisions.work}")
    like, floors = measure_noise(revisions, wish, progress)
    progress.end_line()
    file = save_floors(like.header, floors)
    return next(one for one in every_floor() if one.file == file)


def _print(stored: list[StoredFloors], as_json: bool) -> None:
    from dataclasses import asdict

    from harness.formatting import percent

    if as_json:
        print(json.dumps([asdict(one) for one in stored], indent=1, ensure_ascii=False, default=str))
        return
    if not stored:
        print("no noise floor is kept; `sbd noise` measures one")
    for one in stored:
        print(f"{one.scenario} on {one.machine}, {one.measured_at}, commit {one.commit or 'not known'} ({one.file})")
        for floor in one.floors:
            value = "not known" if floor.ratio is None else percent(floor.ratio, 2)
            why = f" ({floor.reason})" if floor.reason else ""
            print(f"  {value:>9}  {floor.metric}: {floor.method}, {floor.repeats} gates of {floor.pairs} pairs{why}")
