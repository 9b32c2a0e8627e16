"""The comparison of two engines in step tells rounding from mistakes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.emulated_gpu.in_step import Comparison, in_step
from tests.helpers.graphed_methods import cases, prompts_of


def no_fault(session):
    """As it is."""


def later_positions(session):
    """After the prompt every token is taken to stand one place later: no decision need change by that."""
    forward = session.forward

    def moved(segments):
        after = any(session.context_tokens)
        return forward([replace(one, positions=one.positions + after) for one in segments])

    session.forward = moved


def another_token(session):
    """The host reads other ids of the first row than the device has drawn."""
    read = session.read
    session.read = lambda tokens: [[token + (token > 0 and not row) for token in of] for row, of in enumerate(read(tokens))]


@pytest.mark.parametrize(
    ("dtype", "fault", "wrong"),
    [
        ("bfloat16", no_fault, ""),
        ("bfloat16", later_positions, "other logits"),
        ("float32", later_positions, "other logits"),
        ("bfloat16", another_token, "other answers"),
    ],
)
def test_a_mistake_of_the_first_engine_is_told(monkeypatch, dtype, fault, wrong):
    """In every arm and batch; rounding is no mistake, though the plain session rounds elsewhere than the static one."""
    listen = Comparison.first

    def first_with_a_fault(self, engine):
        fault(engine._session)
        monkeypatch.setattr(engine._drafts, "open_session", lambda module: engine._session)
        listen(self, engine)

    monkeypatch.setattr(Comparison, "first", first_with_a_fault)
    first_prompt, *others = prompts_of(3)
    first, second = (cases("cpu", dtype, "eager", ("ntp", "ragged"), tokens=8, session=one) for one in ("plain", "static"))
    found = [said for *_, said in in_step(first, second, [[first_prompt], others])]
    assert len(found) == 4, found
    assert all(said.startswith(wrong) and bool(said) == bool(wrong) for said in found), found
