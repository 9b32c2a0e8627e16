"""The ready files under docs/clusters, as far as they can be held against anything without Slurm or Kubernetes."""

from __future__ import annotations

import re
import subprocess
from typing import Any

import pytest
import yaml

from harness.runner.cluster.ray_cluster import NODE_RESOURCE
from tests.helpers import ROOT
from tests.helpers.command_lines import sbd_lines

CLUSTERS = ROOT / "docs" / "clusters"
JOB: dict[str, Any] = yaml.safe_load((CLUSTERS / "rayjob.yaml").read_text(encoding="utf-8"))
SCRIPT = (CLUSTERS / "slurm.sbatch").read_text(encoding="utf-8")
GUIDE = (CLUSTERS / "README.md").read_text(encoding="utf-8")


def test_the_slurm_script_is_one_that_bash_can_read() -> None:
    """And its resource is the one that units ask for."""
    subprocess.run(["bash", "-n", str(CLUSTERS / "slurm.sbatch")], check=True)
    assert f'{{\\"{NODE_RESOURCE}\\": $units}}' in SCRIPT
    assert "--num-cpus=0 --num-gpus=0" in SCRIPT, "the head takes no unit"
    assert all("--on" in words for name in ("rayjob.yaml", "slurm.sbatch") for words in sbd_lines(f"docs/clusters/{name}"))


def test_the_ray_job_has_what_kuberay_asks_for() -> None:
    """The kind, a head that takes no unit, workers that offer the resource, one volume for the record that all of them have."""
    assert (JOB["apiVersion"], JOB["kind"]) == ("ray.io/v1", "RayJob")
    cluster = JOB["spec"]["rayClusterSpec"]
    head, [workers] = cluster["headGroupSpec"], cluster["workerGroupSpecs"]
    assert head["rayStartParams"]["num-cpus"] == "0"
    assert yaml.safe_load(yaml.safe_load(workers["rayStartParams"]["resources"])) == {NODE_RESOURCE: 1}
    assert workers["minReplicas"] <= workers["replicas"] <= workers["maxReplicas"]
    for group in (head, workers):
        pod = group["template"]["spec"]
        volumes = {volume["name"] for volume in pod["volumes"]}
        assert all({mount["name"] for mount in one["volumeMounts"]} <= volumes for one in pod["containers"])
        assert all(one["resources"]["requests"] == one["resources"]["limits"] for one in pod["containers"])
    assert JOB["spec"]["entrypoint"].endswith("--out /runs/sbd")


def test_ray_is_the_pinned_one() -> None:
    """The cluster's Ray and the one that is tested here are one version."""
    pinned = re.search(r"^ray==(.+)$", (ROOT / "constraints.txt").read_text(encoding="utf-8"), re.MULTILINE)
    assert pinned is not None and JOB["spec"]["rayClusterSpec"]["rayVersion"] == pinned[1]


@pytest.mark.parametrize("name", re.findall(r"\]\(([\w.-]+)\)", GUIDE))
def test_the_guide_names_files_that_are_there(name: str) -> None:
    """Links."""
    assert (CLUSTERS / name).is_file()
