"""Every way of decoding in every kind of session: a row of a batch writes what it writes alone, in the passes that it takes
alone; and where nothing is lost, what next-token prediction writes. Faults in each of these show.
"""

from __future__ import annotations

from collections import Counter
from functools import cache

import pytest

from harness.decoding.freedave import NestedRow
from harness.decoding.speculative import DraftedRow
from harness.decoding.verification import VerifiedRow
from harness.decoding.verified_blocks import DraftedBlocks
from tests.helpers.few_words import MASK_ID, METHODS, few_words, some_work
from tests.helpers.other_keep import OtherKeep
from tests.helpers.sessions import SESSIONS
from tests.helpers.some_decodes import ARMS, OF_SOLVERS, some_decode
from tests.helpers.tiny_model import drain

ROWS = 5
SOME = [(1, "llama", 2), (4, "qwen3", 4), (12, "llama", 4)]
"""Seeds, architectures and block sizes: prompts that end by an id, by text and by their length."""
KINDS = SESSIONS | {
    "one slot less": lambda model: OtherKeep(SESSIONS["plain-sdpa"](model), -1),
    "one slot more": lambda model: OtherKeep(SESSIONS["plain-sdpa"](model), 1),
}


@cache
def decoded(arm, setting, row=None, kind="static"):
    """A batch, or one of its rows alone."""
    seed, architecture, block_size = setting
    request = some_work(seed, ROWS).request(row)
    return drain(some_decode(arm, few_words(architecture, seed), seed, KINDS[kind], request, architecture, block_size))


def took(generation, row):
    """What each of the row's own passes fed, kept, decided and made final."""
    return [
        (one.query_tokens[row], one.context_tokens[row], one.kept_tokens[row], one.decided_tokens[row], one.final_tokens[row])
        for one in generation.decode_passes
        if one.active[row]
    ]


def oracle(arm):
    """The arm that writes the same: itself where something is lost."""
    if arm == "nested":
        return "one a pass"
    return arm if arm.startswith(("lockstep", "ragged", "apd")) else "ntp"


def check(arm, setting, together):
    """A batch against its rows alone; counts the tokens that a pass made final of a row, draft passes aside."""
    seen = Counter()
    together.check_conservation()
    for row in range(ROWS):
        alone, same = (decoded(one, setting, row) for one in (arm, oracle(arm)))
        assert together.output_ids[row] == same.output_ids[0], arm
        assert together.stop_reasons[row] == same.stop_reasons[0], arm
        assert together.decode_tokens(row) == same.decode_tokens(0), "the prefill gives as many tokens"
        assert took(together, row) == took(alone, 0), f"{arm}: rows go on by themselves"
        assert not arm.startswith("drafts") or together.nfe(row) <= same.nfe(0), "a pass makes one token final at least"
    for one in together.decode_passes:
        if arm.startswith("drafts"):
            assert one.kept_tokens == one.final_tokens and (one.role == "verify") == (one.padded_query > 1)
        for final, decided, active in zip(one.final_tokens, one.decided_tokens, one.active, strict=True):
            assert active or not final
            assert not active or decided or not arm.startswith(("lockstep", "ragged")), "every open row decides a slot"
            seen[final if active and one.role != "draft" else "none"] += 1
    return seen


@pytest.mark.parametrize("arm", [*ARMS, *OF_SOLVERS])
def test_a_row_writes_what_it_writes_alone_or_by_ntp(arm):
    """Fifteen prompts; drafts come out wrong at once, right in part and right throughout. In lockstep alone rows wait."""
    batches = [decoded(arm, setting) for setting in SOME]
    seen = sum((check(arm, setting, one) for setting, one in zip(SOME, batches, strict=True)), Counter())
    waits = sum(len(one.decode_passes) - max(map(one.nfe, range(ROWS))) for one in batches)
    assert not waits or arm.startswith("lockstep")
    if arm in ARMS:
        assert bool(waits) == (arm == "lockstep")
        assert seen[1] and (arm == "ntp" or any(seen[n] for n in range(2, 28)))


@pytest.mark.parametrize("kind", ["plain-sdpa", "graphed"])
@pytest.mark.parametrize("arm", ARMS)
def test_every_session_makes_the_same_passes(arm, kind):
    """And writes the same in them, row by row, as the static session; how far tensors are padded is each session's own."""
    for setting in SOME[1:]:
        own, static = decoded.__wrapped__(arm, setting, None, kind), decoded(arm, setting)
        assert (own.output_ids, own.stop_reasons) == (static.output_ids, static.stop_reasons)
        assert [took(own, row) for row in range(ROWS)] == [took(static, row) for row in range(ROWS)]


@pytest.mark.full
@pytest.mark.parametrize("kind", SESSIONS)
@pytest.mark.parametrize("arm", [*ARMS, *OF_SOLVERS])
def test_hundreds_of_prompts_are_written_alike(arm, kind):
    """200 by every arm, in blocks of every size."""
    for seed in range(40):
        setting = seed, ("llama", "qwen3")[seed % 2], (1, 2, 3, 4, 8)[seed // 2 % 5]
        check(arm, setting, decoded.__wrapped__(arm, setting, None, kind))


def count_a_wrong_draft(monkeypatch):
    """The first draft that the next-token head refuses counts all the same."""
    check = VerifiedRow.check

    def lenient(self, verdicts):
        wrong = next((i for i in range(len(verdicts) - 1) if self.slots[i + 1] not in (verdicts[i], MASK_ID)), None)
        return check(self, verdicts if wrong is None else [*verdicts[:wrong], self.slots[wrong + 1], *verdicts[wrong + 1 :]])

    monkeypatch.setattr(VerifiedRow, "check", lenient)


def forget_slot_0(monkeypatch):
    """The newest token goes to the model as a mask."""

    def upload(self, rows, context, upload=DraftedBlocks._upload):
        upload(self, rows, context)
        self._checked = self._checked.clone()
        self._checked[:, 0] = MASK_ID

    monkeypatch.setattr(DraftedBlocks, "_upload", upload)


def count_a_refused_draft(monkeypatch):
    """The first draft that the target refuses counts all the same."""
    accept = DraftedRow.accept

    def lenient(self, drafts, verdicts):
        wrong = next((i for i, token in enumerate(drafts) if token != verdicts[i]), None)
        return accept(self, drafts, verdicts if wrong is None else [*verdicts[:wrong], drafts[wrong], *verdicts[wrong + 1 :]])

    monkeypatch.setattr(DraftedRow, "accept", lenient)


def go_on_behind_a_stop(monkeypatch):
    """Drafts behind one that stops are checked too, and the row does not look where it ended."""
    monkeypatch.setattr(DraftedRow, "up_to_a_stop", lambda self, drafts: list(drafts))
    monkeypatch.setattr(DraftedRow, "ended", property(lambda self: self._reason == "length"))


def believe_a_wrong_guess(monkeypatch):
    """The first wrong guess counts as right."""
    advance = NestedRow.advance

    def lenient(self, seen):
        for guess, one in zip(self._guesses, seen, strict=False):
            if guess != (one.order[0], one.tokens[one.order[0]]):
                one.order[:] = [guess[0], *[slot for slot in one.order if slot != guess[0]]]
                one.tokens[guess[0]] = guess[1]
                break
        return advance(self, seen)

    monkeypatch.setattr(NestedRow, "advance", lenient)


def forget_to_commit(monkeypatch):
    """A finished block leaves no KV."""
    opens = NestedRow._open

    def forgetful(self):
        opens(self)
        self.finished = []

    monkeypatch.setattr(NestedRow, "_open", forgetful)


FAULTS = [
    *((METHODS[0], plant) for plant in (count_a_wrong_draft, forget_slot_0)),
    *(("drafts: good", plant) for plant in (count_a_refused_draft, go_on_behind_a_stop)),
    *(("nested", plant) for plant in (believe_a_wrong_guess, forget_to_commit)),
    *((arm, kind) for arm in (*METHODS, "drafts: lookup", "lockstep", "ragged") for kind in ("one slot less", "one slot more")),
]


@pytest.mark.parametrize(("arm", "fault"), FAULTS)
def test_a_fault_shows(arm, fault, monkeypatch):
    """In what is checked, drafted and committed, and in the KV that is kept: the property above can fail."""
    settings = [*SOME, *((seed, "llama", 4) for seed in range(5))]
    for setting in settings:
        check(arm, setting, decoded(arm, setting))
    kind = fault if isinstance(fault, str) else fault(monkeypatch) or "static"
    with pytest.raises((AssertionError, IndexError, RuntimeError)):
        for setting in settings:
            check(arm, setting, decoded.__wrapped__(arm, setting, None, kind))
