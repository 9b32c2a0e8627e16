"""Prompt lookup by its definition, against transformers' candidate generator where the two agree, and by hand."""

from __future__ import annotations

import pytest
import torch
import transformers
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers.generation.candidate_generator import PromptLookupCandidateGenerator

from harness.decoding.drafters import PromptLookup, looked_up

WORDS = 5


def candidates(sequence, tokens, max_ngram, never, stops):
    """What transformers proposes behind the sequence, where there is room enough."""
    forbid = transformers.LogitsProcessorList([transformers.SuppressTokensLogitsProcessor(sorted(never))] if never else [])
    theirs = PromptLookupCandidateGenerator(
        eos_token_id=torch.tensor(sorted(stops)) if stops else None,
        num_output_tokens=tokens,
        max_matching_ngram_size=max_ngram,
        max_length=10_000,
        logits_processor=forbid,
        vocab_size=WORDS,
    )
    found, _ = theirs.get_candidates(torch.tensor([sequence]))
    return found[0, len(sequence) :].tolist()


words = st.integers(0, WORDS - 1)


def by_definition(sequence, tokens, max_ngram, never, stops):
    """Every n-gram from the longest, every earlier place of it from the newest; then token by token, its own too."""
    end = len(sequence)
    for size in range(min(max_ngram, end - 1), 0, -1):
        for behind in range(end - 1, size - 1, -1):
            if sequence[behind - size : behind] != sequence[end - size :] or sequence[behind] in never:
                continue
            text = list(sequence)
            for i in range(tokens):
                if text[behind + i] in never or text[behind + i] in stops:
                    break
                text.append(text[behind + i])
            return text[end:]
    return []


SEQUENCES = st.lists(words, min_size=1, max_size=24)


@settings(max_examples=400)
@given(
    sequence=SEQUENCES,
    tokens=st.integers(1, 7),
    max_ngram=st.integers(1, 20),
    never=st.sets(words, max_size=2),
    stops=st.sets(words, max_size=2),
)
def test_it_proposes_what_followed_the_newest_place_of_the_longest_match(sequence, tokens, max_ngram, never, stops):
    """As by the definition, with forbidden tokens and stops cut off."""
    assert looked_up(sequence, tokens, max_ngram, never, stops) == by_definition(sequence, tokens, max_ngram, never, stops)


@settings(max_examples=200)
@given(sequence=SEQUENCES, tokens=st.integers(1, 4), max_ngram=st.integers(1, 4), stops=st.sets(words, max_size=1))
def test_transformers_proposes_the_same_where_the_match_has_one_place(sequence, tokens, max_ngram, stops):
    """It takes the leftmost place and ends where the text does, so only there the two rules are one."""
    found = looked_up(sequence, tokens, max_ngram, (), stops)
    theirs = candidates(sequence, tokens, max_ngram, (), stops)
    size = next((n for n in range(min(max_ngram, len(sequence) - 1), 0, -1) if places(sequence, n)), 0)
    if size == 0 or len(places(sequence, size)) == 1:
        assert found[: len(theirs)] == theirs
    assert bool(size) or not found


def places(sequence, size):
    """Where the last ``size`` tokens stood before."""
    return [at for at in range(len(sequence) - size) if sequence[at : at + size] == sequence[-size:]]


@pytest.mark.parametrize(
    ("sequence", "options", "found"),
    [
        ([7, 2, 8, 1, 2, 3, 9, 5, 2, 6, 1, 2], {}, [3, 9, 5]),
        ([9, 1, 2, 7, 8, 1, 2, 3, 9, 1, 2], {"max_ngram": 20}, [7, 8, 1]),
        ([5, 1, 2, 1, 2], {}, [1, 2, 1]),
        ([1, 2, 5, 1, 2, 3, 1, 2], {"never": {3}}, [5, 1, 2]),
        ([1, 2, 3, 4, 1, 2, 9, 3, 1, 2], {"stops": {9}}, []),
    ],
)
def test_the_definition_by_hand(sequence, options, found):
    """Three tokens behind a pair: the pair before the newer word, the longest before the newest, a copy of the copy; an older
    place where a token is forbidden, and none where it stops.
    """
    defaults = {"max_ngram": 2, "never": set(), "stops": set()}
    assert by_definition(sequence, 3, **defaults | options) == found


def test_rows_are_looked_up_by_themselves_and_only_when_asked():
    """Each in its own tokens; no pass is made."""
    proposal = PromptLookup(4, 2, (), ()).propose([[1, 2, 3, 1, 2], [1, 2, 3, 1, 2], [6, 5, 6]], [2, 0, 4])
    with pytest.raises(StopIteration) as returned:
        next(proposal)
    assert returned.value.value == [[3, 1], [], [5, 6, 5, 6]]
