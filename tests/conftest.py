"""Settings that hold for every test."""

from __future__ import annotations

import gc
import os
from collections.abc import Generator, Iterator

import pytest
from hypothesis import settings

# Kernels in Triton run in its interpreter, on a CPU: read when triton is imported, whoever does that first.
os.environ.setdefault("TRITON_INTERPRET", "1")
# Workers of pytest-xdist inherit a width; what no terminal shows is not broken into lines.
os.environ.pop("COLUMNS", None)
# Several workers and a busy machine: one thread each, and no deadline, for a slow example is not a wrong one.
os.environ.setdefault("OMP_NUM_THREADS", "1")
settings.register_profile("sbd", deadline=None)
settings.load_profile("sbd")

from tests.helpers.command import Cli


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Modules that are imported now stay to the end; looking for garbage among them took a fifth of the time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest tests go first: begun last, they would leave the other workers idle."""
    items.sort(key=lambda item: item.path.name != "test_your_model.py")


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Cli:
    """The command line, called in this process."""
    return Cli(monkeypatch, capsys)


@pytest.fixture(autouse=True, scope="session")
def _without_this_machines_own_profiles(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What `sbd calibrate` has left on a developer's machine must not decide a test."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_DATA_HOME", str(tmp_path_factory.mktemp("data")))
        yield
