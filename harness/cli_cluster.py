"""`sbd run --on ray`: the same run, its units taken by the nodes of a cluster. Loads no model here, and no torch."""

from __future__ import annotations

import sys
from pathlib import Path

from harness.errors import UserError

KIND = "ray"


def run_on_cluster(scenario: str, out: Path | None, report: bool, on: str) -> None:
    """Take every sample that the run directory does not hold yet.

    Raises:
        UserError and its kind: no such cluster; else as harness.runner.run.
    """
    from harness.cli_progress import TerminalProgress
    from harness.cli_report import write_page
    from harness.ray_cluster import RayCluster
    from harness.runner import run
    from harness.scenario import find_scenario, load_scenario

    if on != KIND and not on.startswith(f"{KIND}://"):
        raise UserError(f"--on {on}: allowed are {KIND}, for the cluster of this machine, and {KIND}://host:port")
    load_scenario(scenario)  # a mistake in the file is said before anything is connected
    progress = TerminalProgress(sys.stderr)
    try:
        with RayCluster(on) as cluster:
            directory = run(find_scenario(scenario), out, progress, cluster=cluster)
    except KeyboardInterrupt:
        progress.end_line()
        print("interrupted: finished samples are kept; the same command continues the run", file=sys.stderr)
        raise
    progress.end_line()
    print(f"record  {directory}")
    if report:
        write_page(directory, None)
