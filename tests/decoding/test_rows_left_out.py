"""A session that need not compute what nobody reads: every decoder writes the same in the same passes, by fewer rows."""

from __future__ import annotations

import pytest

from harness.engine.static_session import StaticSession
from tests.helpers import few_words
from tests.helpers.some_decodes import ARMS, some_decode
from tests.helpers.tiny_model import drain

ROWS = 6


def counted(session, rows):
    """The session's model, with the rows of each of its forwards counted behind the prompt's."""

    def note(module, arguments, inputs):
        rows.append(inputs["input_ids"].shape[0])

    session._model.register_forward_pre_hook(note, with_kwargs=True)  # no session says how many rows it computed
    return session


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
