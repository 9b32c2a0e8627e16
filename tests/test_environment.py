"""The environment snapshot: what the system says, and a reason wherever it says nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from harness.environment import snapshot

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


def test_every_absent_value_has_a_reason(tmp_path: Path) -> None:
    """On a system without /proc, control groups and git nothing is guessed and nothing fails."""
    found = snapshot(tmp_path / "proc", tmp_path / "cgroup")
    for name, value in found.items():
        if value is None:
            assert found["reasons"][name], name
    assert {"cpu_model", "isa_flags", "memory_total_bytes", "steal_ticks", "cgroup_cpus"} <= found["reasons"].keys()


def test_the_snapshot_is_plain_json_of_this_machine() -> None:
    """It goes into the record as it is; the load average is the kernel's."""
    found = snapshot()
    assert json.loads(json.dumps(found)) == found
    assert found["python"] == ".".join(map(str, sys.version_info[:3]))
    assert found["logical_cores"] == os.cpu_count() and len(found["load_average"]) == 3


def test_the_commit_is_that_of_the_checkout() -> None:
    """Where the package runs from a checkout git's own answer is recorded, else the reason."""
    root = Path(__file__).resolve().parent.parent
    asked = subprocess.run(["git", "rev-parse", "HEAD"], cwd=root, capture_output=True, text=True, check=False)
    found = snapshot()
    if asked.returncode == 0:
        assert found["commit"] == asked.stdout.strip()
    else:
        assert found["commit"] is None and found["reasons"]["commit"]


def test_a_git_that_does_not_answer_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a git program the commit is absent and the snapshot still there."""
    monkeypatch.setenv("PATH", "/nowhere")
    found = snapshot()
    assert found["commit"] is None and found["reasons"]["commit"]


def test_torch_is_never_loaded_by_a_snapshot() -> None:
    """Versions come from package metadata; threads and GPUs are told only where torch is loaded already."""
    program = (
        "import sys; from harness.environment import snapshot; found = snapshot(); "
        "print('torch' in sys.modules, found['reasons']['gpus'])"
    )
    root = Path(__file__).resolve().parent.parent
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=root)
    assert done.stdout.strip() == "False torch is not loaded"


def test_a_loaded_torch_tells_threads_and_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a fake torch that sees one GPU its name and memory are recorded."""

    class Properties:
        name, total_memory, multi_processor_count = "GPU X", 80_000_000_000, 132

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
    assert found["gpus"] == [{"name": "GPU X", "memory_bytes": 80_000_000_000, "multiprocessors": 132}]
    assert found["threads"]["torch"] == 3 and "gpus" not in found["reasons"]
