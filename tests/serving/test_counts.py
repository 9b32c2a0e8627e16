"""Passes of served requests, against a speculative engine simulated pass by pass."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from harness.record.trace import Generation
from harness.serving.counts import arrivals, count_passes, described, fed_by_chunk, merged, prompt_pass
from harness.serving.dialects.dialect import Rounds
from harness.serving.stream import Chunk, ServedAnswer

Round = tuple[int, int]
"""(drafted, accepted) of one pass; drafted 0: a pass without a draft."""


def served(rounds: Sequence[Round], most: int) -> tuple[ServedAnswer, dict[str, float], int]:
    """What an engine streams and counts that makes these passes until ``most`` tokens are written; and its decode passes.

    Its counters are vLLM's: a pass without a draft is no round, and accepted drafts behind the end are counted.
    """
    written, passes, drafts, accepted_by, drafted_by = 1, 0, 0, [], []
    chunks = [Chunk(at_s=1.0, ids=(7,))]
    for drafted, accepted in rounds:
        if written == most:
            break
        size = min(accepted + 1, most - written)
        written += size
        passes += 1
        chunks.append(Chunk(at_s=1.0 + passes, ids=(7,) * size))
        if drafted:
            drafts += 1
            accepted_by.append(accepted)
            drafted_by.append(drafted)
    said = {"accepted": sum(accepted_by), "rounds": drafts, "accepted_by_round": accepted_by, "drafted_by_round": drafted_by}
    answer = ServedAnswer(sent_at_s=0.0, chunks=tuple(chunks), stop_reason="length", prompt_tokens=5, said=said)
    return answer, {"passes": passes + 1.0, "accepted": float(sum(accepted_by))}, passes


def of_sglang(rounds: Sequence[int], own: int, most: int) -> ServedAnswer:
    """What SGLang streams and tells of rounds that accept so many drafts and write ``own`` tokens more, as a histogram."""
    sizes, accepted = [1], []
    for one in rounds:
        if sum(sizes) == most:
            break
        sizes.append(min(one + own, most - sum(sizes)))
        accepted.append(one)
    histogram = [accepted.count(number) for number in range(max(accepted, default=0) + 1)]
    said = {"steps": len(accepted), "accepted": sum(accepted), "accepted_histogram": histogram}
    chunks = tuple(Chunk(at_s=1.0 + place, ids=(7,) * size) for place, size in enumerate(sizes))
    return ServedAnswer(sent_at_s=0.0, chunks=chunks, stop_reason="length", prompt_tokens=5, said=said)


ROUNDS = st.lists(st.integers(0, 5).flatmap(lambda d: st.tuples(st.just(d), st.integers(0, d))), min_size=1, max_size=30)


@given(ROUNDS, st.integers(2, 60))
def test_the_three_ways_agree_with_the_engine_and_each_other(rounds: list[Round], most: int) -> None:
    """Whatever is drafted and accepted, and wherever in a draft the answer ends."""
    answer, grown, passes = served(rounds, most)
    ways = count_passes(answer, grown, alone=True)
    assert ways.counts == (passes, passes, passes)
    assert len(ways.counts) > 1 and len(set(ways.counts)) == 1


@given(st.lists(st.integers(0, 5), min_size=1, max_size=30), st.sampled_from([(1, 1), (2, 2)]), st.integers(2, 60))
def test_a_histogram_tells_what_lies_behind_the_end(accepted: list[int], kind: tuple[int, int], most: int) -> None:
    """Rounds of one pass, and of two as in UNO, cut anywhere by the answer's end: all ways count the passes that were made."""
    passes, own = kind
    answer = of_sglang(accepted, own, most)
    ways = count_passes(answer, {}, alone=False, rounds=Rounds(passes=passes, own_tokens=own))
    assert ways.counts == (passes * (len(answer.chunks) - 1),) * 3


def test_by_hand_the_real_vllm_answer_of_24_tokens() -> None:
    """vLLM 0.32.0, n-gram drafts: 7 steps, per_step_accepted 1 2 4 4 4 4; of the last 5 tokens 3 were still wanted."""
    answer, grown, passes = served([(2, 1), (4, 2), (4, 4), (4, 4), (4, 4), (4, 4)], 24)
    assert answer.sizes == (1, 2, 3, 5, 5, 5, 3) and passes == 6
    assert answer.said["accepted"] == 19 and grown["passes"] == 7, "output - accepted would be 4, without the prompt's token"
    assert count_passes(answer, grown, alone=True).accepted == 6


def test_what_only_one_way_sees_makes_them_disagree() -> None:
    """Another client's steps; two passes in one chunk; and one way alone never agrees with itself."""
    answer, grown, _ = served([(0, 0)] * 9, 10)
    assert len(set(count_passes(answer, grown | {"passes": 12.0}, alone=True).counts)) > 1
    first, second, *rest = answer.chunks[1:]
    glued = ServedAnswer(
        sent_at_s=0.0,
        stop_reason="length",
        prompt_tokens=5,
        said=answer.said,
        chunks=(answer.chunks[0], Chunk(at_s=second.at_s, ids=first.ids + second.ids), *rest),
    )
    assert count_passes(glued, grown, alone=True).counts == (9, 9, 8)
    silent = ServedAnswer(sent_at_s=0.0, stop_reason="length", prompt_tokens=5, chunks=answer.chunks)
    assert count_passes(silent, {}, alone=True).counts == (9,)


@given(st.lists(st.tuples(ROUNDS, st.integers(2, 40)), min_size=1, max_size=4))
def test_the_trace_of_a_batch_conserves_every_rows_tokens(rows: list[tuple[list[Round], int]]) -> None:
    """And a row is in as many passes as it made; its context is what was written before."""
    answers = [served(*row)[0] for row in rows]
    prompts = [(1,) * 5] * len(answers)
    passes = merged([arrivals(row, one, 5, one_by_one=False) for row, one in enumerate(answers)])
    found = Generation(
        passes=(prompt_pass(answers, prompts), *(described(one, len(answers)) for one in passes)),
        prompt_tokens=(5,) * len(answers),
        output_ids=tuple(one.ids for one in answers),
        stop_reasons=("length",) * len(answers),
    )
    found.check_conservation()
    for row, answer in enumerate(answers):
        assert found.nfe(row) == len(answer.chunks) - 1
        own = [one for one in found.decode_passes if one.active[row]]
        seen = 5
        for one in own:
            assert one.context_tokens[row] == seen and one.query_tokens[row] >= one.final_tokens[row]
            seen += one.final_tokens[row]


@given(ROUNDS)
def test_a_pass_fed_its_drafts_and_the_token_before(rounds: list[Round]) -> None:
    """In total at least: which of several passes of one token had a draft, the server does not tell."""
    answer, _, passes = served(rounds, 1000)
    fed = fed_by_chunk(answer)
    assert len(fed) == passes and sum(fed) == sum(drafted + 1 for drafted, _ in rounds)


def test_a_chunk_of_two_tokens_is_two_passes_of_next_token_prediction() -> None:
    """An engine that decodes a token a pass may send two together; the time between is shared."""
    answer, _, _ = served([(0, 0)] * 3, 4)
    glued = ServedAnswer(
        sent_at_s=0.0,
        stop_reason="length",
        prompt_tokens=5,
        chunks=(answer.chunks[0], Chunk(at_s=3.0, ids=(7, 7)), answer.chunks[3]),
    )
    assert [(one.at_s, one.written) for one in arrivals(0, glued, 5, one_by_one=True)] == [(2.0, 1), (3.0, 1), (4.0, 1)]
