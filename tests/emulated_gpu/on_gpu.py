"""Run Python on the emulated GPU: `PYTHON tests/emulated_gpu/on_gpu.py [--values] -m harness doctor`, or a script.

The libraries are built first where they are older than their sources, into the environment of PYTHON. Without ``--values`` all
host code runs, and kernels compute nothing; with it each operation computes its values on the CPU, in child processes too.
"""

from __future__ import annotations

import glob
import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
LIBRARIES = {
    "libemulated_cuda.so": ("runtime.cpp", "memory.cpp", "kernels.cpp", "properties.cpp", "cublas.cpp"),
    "libcuda.so.1": ("driver.cpp",),
    "libnvidia-ml.so.1": ("nvml.cpp",),
}
FLAGS = ("-std=c++17", "-O1", "-fPIC", "-shared", "-Wall", "-Wextra", "-Wno-unused-parameter")


def built(folder: Path) -> Path:
    """The libraries, in a folder of their own.

    Raises:
        CalledProcessError: the compiler's words stand above it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    headers = [f"-I{one}" for path in sys.path for one in glob.glob(f"{path}/nvidia/cu13/include")]
    shared = max(one.stat().st_mtime for one in HERE.glob("*.h"))
    for name, sources in LIBRARIES.items():
        made, files = folder / name, [HERE / one for one in sources]
        if made.exists() and made.stat().st_mtime > max(shared, *(one.stat().st_mtime for one in files)):
            continue
        unfinished = folder / f"{name}.{os.getpid()}"
        command = [os.environ.get("CXX", "g++"), *FLAGS, *headers, f"-Wl,-soname,{name}", *map(str, files), "-ldl", "-lpthread"]
        subprocess.run([*command, "-o", str(unfinished)], check=True)
        unfinished.rename(made)  # two processes may build at once
    return folder


def variables(folder: Path, values: bool, before: dict[str, str]) -> dict[str, str]:
    """The variables of a process on the emulated GPU. ``before``: the caller's own."""
    libraries, paths = built(folder / "libraries"), [str(HERE.parents[1])]
    if values:
        paths.insert(0, str(HERE / "values_everywhere"))
    if before.get("PYTHONPATH"):
        paths.append(before["PYTHONPATH"])
    cache = folder / "cache"
    return {
        **before,
        "LD_PRELOAD": str(libraries / "libemulated_cuda.so"),
        "LD_LIBRARY_PATH": str(libraries),
        "PYTHONPATH": os.pathsep.join(dict.fromkeys(paths)),
        "OMP_NUM_THREADS": "1",
        "HF_HUB_OFFLINE": "1",
        "TORCH_CUDNN_SDPA_DEPRIORITIZED": "1",  # cuDNN is the real one, and finds no GPU
        "TRITON_INTERPRET": "0",
        "TRITON_CACHE_DIR": str(cache / "triton"),
        "TORCHINDUCTOR_CACHE_DIR": str(cache / "inductor"),
    }


def folder_of_environment() -> Path:
    """Where libraries and compiled kernels are kept: the environment's own folder, or EMULATED_GPU_FOLDER."""
    return Path(os.environ.get("EMULATED_GPU_FOLDER", sys.prefix))


def main(words: list[str]) -> None:
    """Become that process."""
    values = words[:1] == ["--values"]
    environment = variables(folder_of_environment(), values, dict(os.environ))
    os.execve(sys.executable, [sys.executable, *words[values:]], environment)


if __name__ == "__main__":
    main(sys.argv[1:])
