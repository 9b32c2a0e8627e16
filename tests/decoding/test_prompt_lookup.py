"""Prompt lookup against transformers' own candidate generator, on random sequences of few words, and by hand."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from harness.decoding.drafters import PromptLookup, looked_up

WORDS = 5


def candidates(sequence, tokens, max_ngram, never, stops):
    """What transformers proposes behind the sequence, where there is room enough."""
    from transformers.generation.candidate_generator import PromptLookupCandidateGenerator

    forbid = transformers.LogitsProcessorList([transformers.SuppressTokensLogitsProcessor(sorted(never))] if never else [])
    theirs = PromptLookupCandidateGenerator(
        eos_token_id=torch.tensor(sorted(stops)) if stops else None, num_output_tokens=tokens,
        max_matching_ngram_size=max_ngram, max_length=10_000, logits_processor=forbid, vocab_size=WORDS,
    )  # fmt: skip
    found, _ = theirs.get_candidates(torch.tensor([sequence]))
    return found[0, len(sequence) :].tolist()


words = st.integers(0, WORDS - 1)


@settings(max_examples=400)
@given(
    sequence=st.lists(words, min_size=1, max_size=24), tokens=st.integers(1, 7), max_ngram=st.integers(1, 4),
    never=st.sets(words, max_size=2), stops=st.sets(words, max_size=2),
)  # fmt: skip
def test_it_proposes_what_transformers_proposes(sequence, tokens, max_ngram, never, stops):
    """Longest n-gram first, leftmost place first, forbidden tokens and stops cut off."""
    assert looked_up(sequence, tokens, max_ngram, never, stops) == candidates(sequence, tokens, max_ngram, never, stops)


@pytest.mark.parametrize(
    ("sequence", "options", "found"),
    [
        ([1, 2, 3, 9, 1, 2], {}, [3, 9, 1]),
        ([7, 2, 8, 1, 2, 3, 9, 1, 2], {}, [3, 9, 1]),
        ([7, 2, 8, 1, 2, 3, 9, 1, 2], {"max_ngram": 1}, [8, 1, 2]),
        ([1, 2, 3], {}, []),
        ([4, 4], {}, [4]),
        ([1, 2, 3, 9, 1, 2], {"never": {9}}, [3]),
        ([1, 2, 3, 1, 2, 5, 1, 2], {"never": {3}}, [5, 1, 2]),
        ([1, 2, 3, 9, 1, 2], {"stops": {9}}, [3]),
        ([1, 2, 9, 3, 1, 2], {"stops": {9}}, []),
        ([5], {}, []),
    ],
    ids=["what followed", "the pair before the word", "the leftmost word", "nothing stood before", "up to the end",
         "cut before a forbidden token", "the next place where all is forbidden", "cut before a stop",
         "not the next place then", "nothing to look up"],
)  # fmt: skip
def test_by_hand(sequence, options, found):
    """Three tokens, pairs unless said otherwise."""
    defaults = {"max_ngram": 2, "never": set(), "stops": set()}
    assert looked_up(sequence, 3, **defaults | options) == found


def test_rows_are_looked_up_by_themselves_and_only_when_asked():
    """Each in its own tokens; no pass is made."""
    proposal = PromptLookup(4, 2, (), ()).propose([[1, 2, 3, 1, 2], [1, 2, 3, 1, 2], [6, 5, 6]], [2, 0, 4])
    with pytest.raises(StopIteration) as returned:
        next(proposal)
    assert returned.value.value == [[3, 1], [], [5, 6]]
