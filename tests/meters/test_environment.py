"""The environment snapshot: what the system says, and a reason wherever it says nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest
import torch

from harness.meters import environment
from harness.meters.environment import snapshot
from tests.helpers import ROOT

CPUINFO = """\
processor\t: 0
model name\t: Some CPU @ 2.0GHz
flags\t\t: fpu avx2 hypervisor avx512_bf16 amx_bf16
"""


def fake_system(root: Path) -> tuple[Path, Path]:
    """A /proc and a control group with known figures."""
    proc, cgroup = root / "proc", root / "cgroup"
    proc.mkdir()
    cgroup.mkdir()
    (proc / "cpuinfo").write_text(CPUINFO)
    (proc / "meminfo").write_text("MemTotal:       2000 kB\nMemFree: 1 kB\nMemAvailable:    500 kB\n")
    (proc / "stat").write_text("cpu  1 2 3 4 5 6 7 88 9 10\ncpu0 1 2 3\n")
    (cgroup / "cpu.max").write_text("150000 100000\n")
    (cgroup / "memory.max").write_text("max\n")
    return proc, cgroup


def test_figures_are_read_as_the_kernel_writes_them(tmp_path: Path) -> None:
    """kB become bytes, the quota becomes CPUs, the eighth figure of /proc/stat is steal."""
    found = snapshot(*fake_system(tmp_path))
    assert found["cpu_model"] == "Some CPU @ 2.0GHz" and found["hypervisor"] is True
    assert found["isa_flags"] == ["avx2", "avx512_bf16", "amx_bf16"]
    assert (found["memory_total_bytes"], found["memory_available_bytes"]) == (2_048_000, 512_000)
    assert found["cgroup_cpus"] == 1.5 and found["steal_ticks"] == 88
    assert found["cgroup_memory_bytes"] is None and found["reasons"]["cgroup_memory_bytes"] == "no limit is set"


def fake_sysfs(root: Path) -> Path:
    """A /sys with four cores on two memory nodes; one core is governed otherwise."""
    cpu, node = root / "sys/devices/system/cpu", root / "sys/devices/system/node"
    for core in range(4):
        (cpu / f"cpu{core}/cpufreq").mkdir(parents=True)
        (cpu / f"cpu{core}/cpufreq/scaling_governor").write_text("powersave\n" if core == 3 else "performance\n")
    for index, cores in enumerate(("0-1", "2-3")):
        (node / f"node{index}").mkdir(parents=True)
        (node / f"node{index}/cpulist").write_text(f"{cores}\n")
    (cpu / "smt").mkdir()
    (cpu / "smt/active").write_text("1\n")
    return root / "sys"


def test_governor_smt_and_memory_nodes_are_read(tmp_path: Path) -> None:
    """Each governor in use is named once, nodes with their cores; the affinity list is the kernel's own of this process."""
    found = snapshot(*fake_system(tmp_path), fake_sysfs(tmp_path))
    assert found["governor"] == "performance, powersave" and found["smt"] is True
    assert found["numa_nodes"] == {"node0": "0-1", "node1": "2-3"}
    own = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("Cpus_allowed_list"))
    assert found["affinity"] == own.split()[1]


@pytest.mark.parametrize("name", ["OMP_NUM_THREADS", "OMP_WAIT_POLICY", "OMP_PROC_BIND", "GOMP_CPU_AFFINITY"])
def test_what_decides_how_threads_run_and_wait_is_kept(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Of torch's threads and of those of the kernels, which are g++'s; what is not set is left out."""
    monkeypatch.delenv(name, raising=False)
    assert name not in snapshot()["threads"]
    monkeypatch.setenv(name, "1")
    assert snapshot()["threads"][name] == "1"


def test_the_tightest_limit_of_the_control_groups_above_this_process_counts(tmp_path: Path) -> None:
    """Version 2: own group 3 CPUs, its parent 2; version 1: 150 % by quota, and no memory limit in its own spelling."""
    proc, cgroup = tmp_path / "proc", tmp_path / "cgroup"
    (proc / "self").mkdir(parents=True)
    own = cgroup / "user/one"
    own.mkdir(parents=True)
    (proc / "self/cgroup").write_text("0::/user/one\n")
    (own / "cpu.max").write_text("300000 100000\n")
    (cgroup / "user/cpu.max").write_text("200000 100000\n")
    (own / "memory.max").write_text("4096\n")
    (cgroup / "user/memory.max").write_text("max\n")
    found = snapshot(proc, cgroup)
    assert found["cgroup_cpus"] == 2.0 and found["cgroup_memory_bytes"] == 4096

    old = tmp_path / "old"
    (old / "cpu/box").mkdir(parents=True)
    (old / "memory").mkdir(parents=True)
    (proc / "self/cgroup").write_text("4:memory:/not/shown/here\n1:cpu,cpuacct:/box\n0::/\n")
    (old / "cpu/cpu.cfs_quota_us").write_text("-1\n")
    (old / "cpu/cpu.cfs_period_us").write_text("100000\n")
    (old / "cpu/box/cpu.cfs_quota_us").write_text("150000\n")
    (old / "cpu/box/cpu.cfs_period_us").write_text("100000\n")
    (old / "memory/memory.limit_in_bytes").write_text("9223372036854771712\n")
    found = snapshot(proc, old)
    assert found["cgroup_cpus"] == 1.5
    assert found["cgroup_memory_bytes"] is None and found["reasons"]["cgroup_memory_bytes"] == "no limit is set"


@pytest.mark.parametrize(
    ("owners", "versions", "words"),
    [
        (["nvidia-ml-py"], {}, None),
        (["nvidia-ml-py"], {"pynvml": "13.0.1"}, "deprecated distribution pynvml 13.0.1"),
        (["pynvml"], {"pynvml": "11.5.3"}, "pip uninstall pynvml"),
        (["something-else"], {}, "comes from something-else"),
        ([], {}, "no installed distribution"),
    ],
)
def test_the_wrong_owner_of_pynvml_is_warned_of(
    monkeypatch: pytest.MonkeyPatch, owners: list[str], versions: dict[str, str], words: str | None
) -> None:
    """NVIDIA's own alone is right; pynvml 13 brings no module of that name but hooks the import, older ones shadow it."""

    def version(name: str) -> str:
        if name not in versions:
            raise metadata.PackageNotFoundError(name)
        return versions[name]

    monkeypatch.setattr(environment.metadata, "packages_distributions", lambda: {"pynvml": owners} if owners else {})
    monkeypatch.setattr(environment.metadata, "version", version)
    value, reason = environment._owner_of_pynvml.__wrapped__()
    assert value == (owners or None) and (words is None) == (reason is None)
    assert words is None or (words in reason and "nvidia-ml-py" in reason)


def test_torch_tells_its_build_and_its_rounding() -> None:
    """Against torch itself: the flag is the one that was set, the build names the version that show() names."""
    before = torch.backends.cudnn.allow_tf32
    try:
        torch.backends.cudnn.allow_tf32 = not before
        found = snapshot()
        assert found["precision"]["tf32_cudnn"] is not before
    finally:
        torch.backends.cudnn.allow_tf32 = before
    assert found["torch_build"]["config"].split("; ")[0] in torch.__config__.show()
    assert "FLAGS" not in found["torch_build"]["config"], "compiler flags are left out"
    assert found["sdpa_enabled"]["math"] is torch.backends.cuda.math_sdp_enabled()


def test_profiling_rights_are_read_where_the_driver_shows_them(tmp_path: Path) -> None:
    """RmProfilingAdminOnly as /proc/driver/nvidia/params writes it."""
    proc, cgroup = fake_system(tmp_path)
    (proc / "driver/nvidia").mkdir(parents=True)
    params = proc / "driver/nvidia/params"
    for written, wanted in (("1", True), ("0", False)):
        params.write_text(f"ResmanDebugLevel: 4294967295\nRmProfilingAdminOnly: {written}\n")
        assert snapshot(proc, cgroup)["profiling_for_admin_only"] is wanted
    params.write_text("ResmanDebugLevel: 4294967295\n")
    assert "no RmProfilingAdminOnly" in snapshot(proc, cgroup)["reasons"]["profiling_for_admin_only"]


def test_every_absent_value_has_a_reason(tmp_path: Path) -> None:
    """On a system without /proc, control groups and git nothing is guessed and nothing fails."""
    found = snapshot(tmp_path / "proc", tmp_path / "cgroup", tmp_path / "sys")
    for name, value in found.items():
        if value is None:
            assert found["reasons"][name], name
    missing = {"cpu_model", "isa_flags", "memory_total_bytes", "steal_ticks", "cgroup_cpus", "governor", "smt", "numa_nodes"}
    assert missing <= found["reasons"].keys()


def test_the_snapshot_is_plain_json_of_this_machine() -> None:
    """It goes into the record as it is; the load average is the kernel's."""
    found = snapshot()
    assert json.loads(json.dumps(found)) == found
    assert found["python"] == ".".join(map(str, sys.version_info[:3]))
    assert found["logical_cores"] == os.cpu_count() and len(found["load_average"]) == 3


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="no checkout")
@pytest.mark.parametrize(
    ("git", "commit", "reason"),
    [
        ("echo $*", f"-C {ROOT} rev-parse HEAD", None),
        ("echo it is broken >&2; exit 128", None, "git: it is broken"),
        (None, None, "git did not answer"),
    ],
)
def test_the_commit_is_what_git_says_of_the_checkout(
    git: str | None, commit: str | None, reason: str | None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """By a program that repeats what it is asked; without an answer the reason is there, and the rest of the snapshot."""
    monkeypatch.setenv("PATH", str(tmp_path))
    if git is not None:
        (tmp_path / "git").write_text(f"#!/bin/sh\n{git}\n")
        (tmp_path / "git").chmod(0o755)
    found = snapshot()
    assert found["commit"] == commit and found["python"]
    assert reason is None or found["reasons"]["commit"].startswith(reason)


def test_torch_is_never_loaded_by_a_snapshot() -> None:
    """Versions come from package metadata; threads and GPUs are told only where torch is loaded already."""
    program = (
        "import sys; from harness.meters.environment import snapshot; found = snapshot(); "
        "print('torch' in sys.modules, found['reasons']['gpus'])"
    )
    root = ROOT
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=root)
    assert done.stdout.strip() == "False torch is not loaded"


def test_a_loaded_torch_tells_threads_and_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a fake torch that sees one GPU its name and memory are recorded; what this torch does not tell is None."""

    class Properties:
        name, total_memory, multi_processor_count, uuid = "GPU X", 80_000_000_000, 132, "1234"
        major, minor, L2_cache_size, memory_bus_width = 9, 0, 50 * 2**20, 5120

    class Cuda:
        is_available = staticmethod(lambda: True)
        device_count = staticmethod(lambda: 1)
        get_device_properties = staticmethod(lambda index: Properties)

    class Torch:
        cuda = Cuda
        get_num_threads = staticmethod(lambda: 3)
        get_num_interop_threads = staticmethod(lambda: 2)

    monkeypatch.setitem(sys.modules, "torch", Torch)  # type: ignore[arg-type]
    found = snapshot()
    assert found["gpus"] == [
        {
            "name": "GPU X",
            "uuid": "1234",
            "memory_bytes": 80_000_000_000,
            "multiprocessors": 132,
            "compute_capability": "9.0",
            "cache_bytes": 50 * 2**20,
            "memory_bus_bits": 5120,
            "memory_clock_khz": None,
        }
    ]
    assert found["threads"]["torch"] == 3 and found["reasons"]["gpus"] == "this torch does not tell memory_clock_khz"
    assert found["precision"] is None and "no attribute" in found["reasons"]["precision"], "an old torch lacks the flags"
