"""A session that need not compute what nobody reads: every decoder writes the same in the same passes, by fewer rows."""

from __future__ import annotations

from functools import partial

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from harness.decoding.acceptance import SolverAcceptance
from harness.decoding.apd import decode_adaptive_parallel
from harness.decoding.freedave import decode_nested_drafts
from harness.decoding.next_token import decode_next_token
from harness.decoding.set_block import decode_set_block
from harness.decoding.solvers import SOLVERS
from harness.engine.static_session import StaticSession
from tests import few_rivals, few_words
from tests.few_words import MASK_ID
from tests.test_exactness import drain

ROWS = 6
ARMS = (
    "ntp", "lockstep", "ragged", "nested", "apd", *few_words.METHODS, *(f"drafts: {name}" for name in few_rivals.DRAFTERS),
)  # fmt: skip


def counted(session, rows):
    """The session's model, with the rows of each of its forwards counted behind the prompt's."""

    def note(module, arguments, inputs):
        rows.append(inputs["input_ids"].shape[0])

    session._model.register_forward_pre_hook(note, with_kwargs=True)  # no session says how many rows it computed
    return session


def some_decode(arm, target, seed, opened, request):
    """The generator of passes of one of ARMS; ``opened`` makes a session of a module."""
    block = {"block_size": 5, "mask_id": MASK_ID}
    sets = partial(decode_set_block, acceptance=SolverAcceptance(SOLVERS["entropy_bounded"], gamma=1.5), **block)
    ours = {
        "ntp": decode_next_token, "lockstep": sets, "ragged": partial(sets, batching="ragged"),
        "nested": partial(decode_nested_drafts, draft_steps=3, **block),
        "apd": partial(decode_adaptive_parallel, mixture=0.5, **block),
    }  # fmt: skip
    if arm.startswith("drafts: "):
        return few_rivals.decode(arm.removeprefix("drafts: "), target, "llama", seed, opened, request)[0]
    if arm in ours:
        return ours[arm](opened(target), request)
    return few_words.decoder(arm, opened(target), request, block_size=5)


def decode(arm, seed, *, leaves_out):
    """The whole Generation of an arm over random prompts of random lengths, and the rows of every forward that was made."""
    work, target, rows = few_words.some_work(seed, ROWS), few_words.few_words("llama", seed), []

    def opened(model):
        return counted(StaticSession(model, leaves_out=leaves_out), rows)

    return drain(some_decode(arm, target, seed, opened, work.request())), rows


def computed(active):
    """Rows of a pass that are computed: those that decide, draft or check in it, or all where that is more than 3 of 4."""
    return sum(active) if sum(active) <= 3 / 4 * ROWS else ROWS


@pytest.mark.parametrize("arm", ARMS)
def test_what_is_written_and_in_which_passes_does_not_depend_on_it(arm):
    """Token for token and pass for pass, over batches whose rows end at different times; as few rows are computed as can be."""
    for seed in range(4):
        whole, every_row = decode(arm, seed, leaves_out=False)
        found, rows = decode(arm, seed, leaves_out=True)
        assert found == whole, f"seed {seed}"
        assert len(rows) == len(every_row) and set(every_row) == {ROWS}
        assert rows == [computed(one.active) for one in found.passes]
