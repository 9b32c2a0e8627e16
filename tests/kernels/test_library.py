"""The kernels' own word of how they were built, and why there are none."""

from __future__ import annotations

import os
import platform
import subprocess

import pytest

pytest.importorskip("torch")

from harness.kernels import library
from harness.meters.environment_host import ISA_FLAGS


@pytest.mark.skipif(library.why_not_built() is not None, reason="no C++ compiler")
def test_what_they_were_built_for_is_the_compilers_own_word() -> None:
    """Its version, the processor, and instruction sets of this machine alone, by the names that a record has them under."""
    told = library.built_for()
    version = subprocess.run(
        [os.environ.get("CXX", "g++"), "-dumpfullversion"], capture_output=True, text=True, check=True
    ).stdout.strip()
    compiler, _, sets = told.partition(" for ")
    processor, *flags = sets.split()
    assert version in compiler and processor == platform.machine()
    assert set(flags) <= set(ISA_FLAGS)
    with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
        here = set(file.read().split())
    assert set(flags) <= here


@pytest.mark.parametrize(("compiler", "words"), [("/nowhere/g++", "No such file"), ("false", "returned non-zero exit status")])
def test_without_a_compiler_that_works_its_words_and_the_remedy_are_told(
    monkeypatch: pytest.MonkeyPatch, compiler: str, words: str
) -> None:
    """Nothing is raised: whoever asks goes on without kernels."""
    monkeypatch.setenv("CXX", compiler)
    monkeypatch.setattr(library, "library", library.library.__wrapped__)
    told = library.why_not_built.__wrapped__()
    assert words in told and told.endswith("install g++, or name one in CXX")
