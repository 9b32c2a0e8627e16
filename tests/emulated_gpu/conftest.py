"""Tests on the emulated GPU: `make test-gpu-emulated` runs them in an environment of their own; elsewhere they are skipped."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest

from tests.emulated_gpu import device as counted
from tests.emulated_gpu import on_gpu
from tests.helpers import ROOT

ELSEWHERE = "it wants the emulated GPU: make test-gpu-emulated"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Where pytest itself does not run on the emulated GPU, no test of it can."""
    if counted.runtime() is None:
        for item in items:
            if item.get_closest_marker("emulated"):
                item.add_marker(pytest.mark.skip(reason=ELSEWHERE))


@pytest.fixture
def device() -> ModuleType:
    """What the emulated GPU has counted in this process."""
    return counted


@pytest.fixture
def values() -> Iterator[None]:
    """While the test runs, operations on the GPU compute their values on the CPU; without it no kernel computes anything."""
    from tests.emulated_gpu.values import values as entered

    with entered():
        yield


Emulated = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def emulated(tmp_path: Path) -> Emulated:
    """Runs Python in a process of its own on the emulated GPU, for what ends a process or is a whole program.

    Takes the words behind `python`; ``values``, also for that process's children; the ``folder`` that it runs in, by default
    the checkout; the ``seconds`` that it may take; more variables by name.
    """

    def run(*words: str, values: bool = True, folder: Path = ROOT, seconds: float = 300, **more: str) -> object:
        environment = on_gpu.variables(on_gpu.folder_of_environment(), values, {**os.environ, **more})
        return subprocess.run(
            [sys.executable, *words], cwd=folder, env=environment, capture_output=True, text=True, timeout=seconds, check=False
        )

    return run
