"""Who may look at whom, against a slow reading of Segment's rule, token by token."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.decoding.session import Segment
from harness.engine.attention_masks import validity, wanted_logits
from harness.engine.plain_session import visibility as visible_to
from harness.engine.static_session import visible_slots


@st.composite
def calls(draw):
    """(committed tokens per row, segments): one to three segments of one to four tokens, some with padding."""
    lengths = draw(st.lists(st.integers(0, 5), min_size=1, max_size=4))
    segments = []
    for _ in range(draw(st.integers(1, 3))):
        width = draw(st.integers(1, 4))
        marks = st.lists(st.booleans(), min_size=width, max_size=width)
        padding = st.lists(marks, min_size=len(lengths), max_size=len(lengths))
        visibility = draw(st.sampled_from(["causal", "bidirectional", "explicit"]))
        seen = torch.tensor(draw(st.lists(marks, min_size=width, max_size=width))) if visibility == "explicit" else None
        segments.append(
            Segment(
                tokens=torch.zeros(len(lengths), width, dtype=torch.long),
                positions=torch.zeros(len(lengths), width, dtype=torch.long),
                visibility=visibility,
                logits=draw(st.integers(0, width)),
                valid=torch.tensor(draw(padding)) if draw(st.booleans()) else None,
                seen=seen,
            )
        )
    return lengths, segments


def may_look(segments, query, key):
    """Segment's rule between two fed tokens, by their indices."""
    places = [(s, i) for s, segment in enumerate(segments) for i in range(segment.tokens.shape[1])]
    (own, at), (other, there) = places[query], places[key]
    if other != own:
        return other < own
    rule = {"causal": there <= at, "bidirectional": True}
    return bool(segments[own].seen[at, there]) if segments[own].visibility == "explicit" else rule[segments[own].visibility]


@given(calls())
@settings(max_examples=200, deadline=None)
def test_slots_seen_are_the_rules(call):
    """Real tokens see all committed slots of their row and the slots of the fed tokens the rule names; nothing else."""
    lengths, segments = call
    fed = validity(segments)
    query = sum(s.tokens.shape[1] for s in segments)
    width = max(lengths) + query
    mask = visible_slots(lengths, fed, segments, width)
    for row, length in enumerate(lengths):
        real = list(range(query)) if fed is None else [i for i in range(query) if fed[row, i]]
        for token in range(query):
            seen = {slot for slot in range(width) if mask[row, token, slot]}
            if token not in real:
                assert seen == {0}, "a padding token must see something, and may see anything"
                continue
            expected = set(range(length)) | {length + n for n, key in enumerate(real) if may_look(segments, token, key)}
            assert seen == expected


@given(calls())
@settings(max_examples=200, deadline=None)
def test_the_plain_session_sees_by_the_same_rule(call):
    """All that its cache holds, and of the fed tokens the real ones that the rule names."""
    lengths, segments = call
    fed = validity(segments)
    query, width = sum(s.tokens.shape[1] for s in segments), max(lengths)
    held = torch.arange(width)[None] < torch.tensor(lengths)[:, None]
    mask = visible_to(held, segments)
    for row in range(len(lengths)):
        assert (mask[row, :, :width] == held[row]).all()
        for token in range(query):
            if fed is not None and not fed[row, token]:
                continue
            seen = {key for key in range(query) if mask[row, token, width + key]}
            real = {key for key in range(query) if fed is None or fed[row, key]}
            assert seen == {key for key in real if may_look(segments, token, key)}


@given(calls())
@settings(max_examples=100, deadline=None)
def test_wanted_logits_are_each_segments_last(call):
    """As a number only where that means the same positions."""
    _, segments = call
    query = sum(s.tokens.shape[1] for s in segments)
    expected, end = [], 0
    for segment in segments:
        end += segment.tokens.shape[1]
        expected += list(range(end - segment.logits, end))
    found = wanted_logits(segments, torch.device("cpu"))
    # transformers reads 0 as "all of them"
    assert (list(range(query))[-found:] if isinstance(found, int) else found.tolist()) == expected
    assert not (isinstance(found, int) and found == 0)


def test_who_sees_whom_is_given_where_it_is_explicit_and_only_there():
    """A decoder's mistake, said at once."""
    ids = torch.zeros(1, 2, dtype=torch.long)
    for visibility, seen in (("explicit", None), ("causal", torch.ones(2, 2, dtype=torch.bool))):
        with pytest.raises(ValueError, match="seen is for explicit segments"):
            Segment(tokens=ids, positions=ids, visibility=visibility, logits=0, seen=seen)
