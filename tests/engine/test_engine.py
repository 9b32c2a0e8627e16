"""The engine's sessions and its device: what is measured between two samples leaves their graphs alone, and all goes to the GPU
that was asked for.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from harness.engine import engine
from harness.engine.cuda_graphs import GraphedSession
from harness.meters.clock import cuda_index
from harness.meters.host import CAPTURES
from harness.record.schema import SUPPRESSED_FIRST
from harness.runner import local_machine
from harness.scenario.plan import Case
from tests.helpers.emulated_gpu import emulated_graphs
from tests.helpers.plans import plan_of

SHAPE = {"name": "x", "layers": 2, "hidden": 16, "intermediate": 24, "heads": 4, "kv_heads": 2, "head_dim": 4, "vocab": 50}


def cases(**changes: Any) -> tuple[Case, ...]:
    """NTP and SBD at two rows of a tiny shape."""
    part = {
        "model": {"random": SHAPE},
        "dtype": "float32",
        "timed": False,
        "batch_sizes": [2],
        "arms": [{"method": "ntp"}, {"method": "sbd", "block_size": 4, "acceptance": {"replay": {"nfe_speedup": 2.0}}}],
        "workload": {"synthetic": {"prompt_tokens": 4}, "prompts": 2, "max_new_tokens": 8},
    }
    return plan_of(**part | changes).cases


@pytest.fixture(autouse=True)
def leave_no_trace(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What an engine changes in the whole process is left out: other tests run in it."""
    for change in ("map_what_comes", "keep_what_is_freed"):
        monkeypatch.setattr(engine, change, lambda: None)
    with torch.set_grad_enabled(torch.is_grad_enabled()):
        yield


@pytest.fixture
def graphed(monkeypatch: pytest.MonkeyPatch) -> list[GraphedSession]:
    """Engines of graphed sessions on a CPU; every one that is opened."""
    opened: list[GraphedSession] = []

    def open_session(module: Any, **how: Any) -> GraphedSession:
        opened.append(GraphedSession(module, emulated_graphs()))
        return opened[-1]

    monkeypatch.setattr(engine, "open_session", open_session)
    return opened


def test_passes_measured_between_samples_leave_their_graphs_alone(graphed: list[GraphedSession]) -> None:
    """Two rows are decoded, passes measured on one row, two rows decoded again: the second time nothing is captured, neither of
    the samples nor of the passes; a sample with a capture in it is void.
    """
    ntp, sbd = cases()
    opened = engine.open_engine(ntp.part)
    prompts = [(1, 2, 3, 4), (5, 6, 7, 8)]
    made = []
    for _ in range(3):
        before = CAPTURES.made
        tokens = [opened.decode(case, prompts, seed=1).generation.output_ids for case in (ntp, sbd)]
        decoded = CAPTURES.made
        opened.measure_passes([4])
        made.append((decoded - before, CAPTURES.made - decoded))
    assert made == [(3, 3), (0, 0), (0, 0)], "one token, a block, a block behind the one before: once at two rows, once at one"
    assert tokens[0] == engine.open_engine(ntp.part).decode(ntp, prompts, seed=1).generation.output_ids


class Head:
    """A session whose every second wanted logit names ``mask``."""

    def __init__(self, session: Any, mask: int) -> None:
        self._session, self._mask = session, mask

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)

    def forward(self, segments: Any) -> Any:
        """Every second row."""
        logits = self._session.forward(segments)
        logits[::2, :, self._mask] = logits[1::2, :, 3] = 1e4
        return logits


@pytest.mark.parametrize(("warmup", "first"), [(1, 50.0), (0, None)])
def test_a_mask_that_the_head_would_choose_is_counted_in_a_first_warm_up(warmup: int, first: float | None) -> None:
    """One row of two has the mask in front at every position; only the first decode of a case with warm-ups is asked."""
    ntp = cases(timed=True, warmup=warmup, arms=[{"method": "ntp"}])[0]
    opened = engine.open_engine(ntp.part)
    opened._suppressed, opened._session = (49,), Head(opened._session, 49)
    decoded = [opened.decode(ntp, [(1, 2, 3), (4, 5, 6)], seed=1) for _ in range(2)]
    shares = [one.readings.values.get(SUPPRESSED_FIRST) if one.readings else None for one in decoded]
    assert shares == [first, None]
    assert all(49 not in ids for one in decoded for ids in one.generation.output_ids)


def test_both_sessions_give_their_memory_back_when_it_runs_out(
    graphed: list[GraphedSession], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What passes are measured with is memory too, and another batch size may fit without it."""
    ntp, _ = cases()
    opened = engine.open_engine(ntp.part)
    opened.decode(ntp, [(1, 2), (3, 4)], seed=1)
    opened.measure_passes([4])
    assert all(session._keys for session in graphed)

    def full(*_: Any) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(engine, "decoder_of", full)
    with pytest.raises(engine.DoesNotFitError):
        opened.decode(ntp, [(1, 2), (3, 4)], seed=1)
    assert not any(session._keys or session._graphs for session in graphed)


def test_where_nothing_is_captured_one_session_does_both() -> None:
    """An eager session makes nothing anew for other rows."""
    opened = engine.open_engine(cases()[0].part)
    assert opened._measuring is opened._session


class Loaded(Exception):
    """The model was about to be loaded."""


@pytest.mark.parametrize(
    ("device", "local", "current"), [("cuda:3", None, 3), ("cuda", None, 0), ("cuda:0", None, 0), ("cuda", 2, 2)]
)
def test_a_part_makes_its_gpu_the_current_one(
    monkeypatch: pytest.MonkeyPatch, device: str, local: int | None, current: int
) -> None:
    """Before a byte is loaded: with and without other processes that share the model. Plain cuda is the first GPU, even where
    the part before had another one.
    """
    here = [1]

    def load(part: Any, group: Any) -> None:
        raise Loaded(here[0], part.device)

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "set_device", lambda index: here.__setitem__(0, index))
    monkeypatch.setattr(engine, "load_model", load)
    part = cases(device=device)[0].part
    group = None if local is None else SimpleNamespace(ranks=SimpleNamespace(local=local))
    with pytest.raises(Loaded) as told:
        engine.open_engine(part, group)
    assert told.value.args == (current, device if local is None else f"cuda:{local}")


def test_free_memory_and_profile_are_those_of_the_gpu_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four GPUs with 10, 11, 12 and 13 bytes free: the part's own is asked, not the current one."""
    names = ("A", "B", "C", "D")

    def properties(index: int) -> Any:
        return SimpleNamespace(name=names[index], total_memory=1, multi_processor_count=1)

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda index: (10 + index, 100))
    monkeypatch.setattr(torch.cuda, "get_device_properties", properties)
    for device, index in (("cuda", 0), ("cuda:0", 0), ("cuda:3", 3)):
        assert cuda_index(device) == index
        assert local_machine.this_machine().free_bytes(cases(device=device)[0].part) == 10 + index
        profile, reason = local_machine.profile_of(device)
        assert profile is None and repr(names[index]) in str(reason)


def test_passes_measured_beside() -> None:
    """Checks of two drafts, three tokens wide, and quadratic self-speculation of blocks of 2, six wide: in every kept round."""
    opened = engine.open_engine(cases()[0].part)
    found = opened.measure_passes([4], [("causal", 3), ("quadratic", 2)])
    kinds = [{(one.role, one.padded_query) for one in decoded.generation.decode_passes} for decoded in found]
    assert len(kinds) == 4 * engine.ROUNDS
    for ntp, sbd, causal, quadratic in zip(*(kinds[at::4] for at in range(4)), strict=True):
        assert ntp == {("decide", 1)} and sbd == {("decide", 4), ("commit+decide", 8)}
        assert ("verify", 3) in causal and quadratic == {("verify+draft", 6)}


def test_what_is_measured_beside_follows_the_adapter() -> None:
    """Rivals by the tokens that they check, the quadratic form by its block; nothing without an adapter."""
    part = cases()[0].part
    arms = [
        {"method": "ntp"},
        {"method": "self_speculation", "form": ["linear", "quadratic"], "block_size": [4, 6]},
        {"method": "prompt_lookup", "draft_tokens": [4, 10]},
        {"method": "early_exit", "exit_layers": 1, "draft_tokens": 4},
    ]
    asked = type(part).model_validate(part.model_dump(mode="json", exclude_none=True) | {"arms": arms})
    adapted = asked.model_copy(update={"model": asked.model.model_copy(update={"adapter": "/some/folder"})})
    assert asked.measured_beside == ()
    assert adapted.measured_beside == (("quadratic", 4), ("quadratic", 6), ("causal", 5), ("causal", 11))
