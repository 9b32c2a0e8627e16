"""`sbd run --on ray`: the same run, its units taken by the nodes of a cluster. Loads no model here, and no torch."""

from __future__ import annotations

from pathlib import Path

from harness.cli.report import take_and_tell
from harness.errors import UserError
from harness.progress import Progress

KIND = "ray"


def run_on_cluster(scenario: str, out: Path | None, report: bool, on: str) -> None:
    """Take every sample that the run directory does not hold yet.

    Raises:
        UserError and its kind: no such cluster; else as harness.runner.runner.run.
    """
    from harness.runner.cluster.ray_cluster import RayCluster
    from harness.runner.runner import run
    from harness.scenario.scenario import find_scenario, load_scenario

    if on != KIND and not on.startswith(f"{KIND}://"):
        raise UserError(f"--on {on}: allowed are {KIND}, for the cluster of this machine, and {KIND}://host:port")
    load_scenario(scenario)  # a mistake in the file is said before anything is connected

    def take(progress: Progress) -> Path:
        with RayCluster(on) as cluster:
            return run(find_scenario(scenario), out, progress, cluster=cluster)

    take_and_tell(take, report)
