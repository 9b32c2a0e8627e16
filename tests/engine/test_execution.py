"""How the forwards of a part are run, by what it asks for, its device and what the machine can do."""

from __future__ import annotations

import pytest

from harness.engine import compiling, native_forward
from harness.errors import ScenarioError
from tests.helpers.plans import plan_of


def plan(device: str, execution: str, session: str = "static"):
    """A plan of one part."""
    ntp = [{"method": "ntp"}]
    return plan_of(device=device, execution=execution, session=session, arms=ntp, baseline_check=1)


@pytest.mark.parametrize(
    ("device", "execution", "builds", "expected"),
    [
        ("cpu", "eager", True, "eager"),
        ("cpu", "auto", True, "native"),
        ("cpu", "auto", False, "eager"),
        ("cpu", "native", True, "native"),
        ("cuda", "eager", True, "eager"),
        ("cuda:1", "auto", True, "graphs"),
        ("cuda", "auto", False, "graphs"),
        ("cuda", "graphs", True, "graphs"),
        ("cuda", "compiled", True, "compiled"),
    ],
)
def test_what_runs_is_what_is_asked_for_or_the_best_there_is(monkeypatch, device, execution, builds, expected):
    """auto is graphs on a GPU, and never fails: on a CPU it falls back to eager."""
    monkeypatch.setattr(compiling, "can_compile", lambda kind: builds)
    monkeypatch.setattr(native_forward, "why_not_built", lambda: None if builds else "no compiler")
    assert compiling.execution_of(plan(device, execution).cases[0].part) == expected


@pytest.mark.parametrize(
    ("device", "execution", "words"),
    [
        ("cpu", "graphs", "device is cpu"),
        ("cpu", "compiled", "use execution: auto or eager"),
        ("cpu", "native", "cannot be used here: no compiler; use execution"),
        ("cuda", "native", "use graphs or auto"),
        ("cuda", "compiled", "does not work for cuda"),
    ],
)
def test_what_cannot_be_done_is_refused_with_the_remedy(monkeypatch, device, execution, words):
    """Never a silent change to something slower."""
    monkeypatch.setattr(compiling, "can_compile", lambda kind: False)
    monkeypatch.setattr(native_forward, "why_not_built", lambda: "no compiler")
    with pytest.raises(ScenarioError, match=words):
        compiling.execution_of(plan(device, execution).cases[0].part)


def test_the_plain_session_is_eager_whatever_auto_could_do():
    """It is the slow reference."""
    assert compiling.execution_of(plan("cpu", "auto", session="plain").cases[0].part) == "eager"


@pytest.mark.parametrize(
    ("device", "execution", "labels"),
    [
        ("cpu", "eager", ["dynamic cache", "static cache"]),
        ("cpu", "auto", ["dynamic cache", "static cache", "dynamic cache, compiled by us"]),
        ("cuda", "eager", ["dynamic cache", "static cache, compiled by transformers"]),
        ("cuda", "auto", ["dynamic cache", "static cache, compiled by transformers"]),
    ],
)
def test_generate_runs_as_it_would_for_a_user(device, execution, labels):
    """transformers compiles a static cache on a GPU whatever our own arm does; the record says so."""
    checks = [case for case in plan(device, execution).cases if case.is_check]
    assert [case.label for case in checks] == [f"generate(), {label}" for label in labels]
    assert all((case.arm.execution == "compiled") == ("compiled" in case.label) for case in checks)
