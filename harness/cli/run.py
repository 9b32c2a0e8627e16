"""`sbd run-process` (hidden), which starts a fresh process of a run (harness.runner.subprocesses), and `sbd run --on ray`.

With --on ray the nodes of a cluster take the run's units. This process loads no model and no torch.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from harness.cli.report import take_and_tell
from harness.errors import UserError
from harness.progress import Progress


def followed() -> bool:
    """Follow another process and return True where this rank follows; then there is nothing else to do."""
    from harness.scenario.ranks import ranks_here

    ranks = ranks_here()
    if ranks is None or ranks.leads:
        return False
    from harness.engine.tensor_parallel import follow

    follow()
    return True


def process_command(
    scenario: Annotated[Path, typer.Argument(metavar="FILE", help="the scenario file of the run")],
    out: Annotated[Path, typer.Option(help="its run directory")],
    lent: Annotated[list[int], typer.Option(help="descriptors of the locked journals: samples, then events")],
    part: Annotated[str | None, typer.Option(help="the part to take; without it the run is begun")] = None,
    process: Annotated[int | None, typer.Option(help="which of the part's processes this is, from 0")] = None,
    calibrate: Annotated[bool, typer.Option("--calibrate", help="first measure this machine's ceilings")] = False,
) -> None:
    """Run one errand of `sbd run`, which starts this; not meant to be called by hand."""
    from harness.cli.progress import TerminalProgress
    from harness.runner.subprocesses import ChildTask, end_with_parent
    from harness.scenario.plan import Share

    if len(lent) != 2 or (part is None) != (process is None):
        raise UserError("run-process is started by sbd run, with two --lent, and with both or none of --part and --process")
    end_with_parent()
    if followed():
        return
    if calibrate:
        from harness.cli.calibrate import profile_of_scenario
        from harness.scenario.loading import load_scenario

        profile_of_scenario(load_scenario(scenario))
    from harness.runner.runner import run_errand

    share = None if part is None or process is None else Share(part=part, process=process)
    progress = TerminalProgress(sys.stderr)
    try:
        run_errand(ChildTask(scenario=scenario, directory=out, share=share, lent=(lent[0], lent[1])), progress)
    finally:
        progress.end_line()


KIND = "ray"


def run_on_cluster(scenario: str, out: Path | None, report: bool, on: str) -> None:
    """Take every sample that the run directory does not hold yet.

    Raises:
        UserError and its kind: an unknown cluster; otherwise as harness.runner.runner.run.
    """
    from harness.runner.cluster.ray_cluster import RayCluster
    from harness.runner.runner import run
    from harness.scenario.loading import find_scenario, load_scenario

    if on != KIND and not on.startswith(f"{KIND}://"):
        raise UserError(f"--on {on}: allowed are {KIND}, for the cluster of this machine, and {KIND}://host:port")
    load_scenario(scenario)  # report a mistake in the file before connecting

    def take(progress: Progress) -> Path:
        with RayCluster(on) as cluster:
            return run(find_scenario(scenario), out, progress, cluster=cluster)

    take_and_tell(take, report)
