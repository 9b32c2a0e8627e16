"""What a server's speculation accepted, from a run and from a file of vLLM's answers, and as checks to be replayed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from harness.errors import RecordError
from harness.record.trace import PassColumns
from harness.roofline.recorded_acceptance import accepted_in_file, accepted_of_row, recorded_checks
from tests.helpers import ROOT


def answer(tokens: int, *accepted: int) -> str:
    """One answer of vLLM with its passes that had a draft."""
    listed = {"per_step_accepted": accepted, "per_step_drafted": [4] * len(accepted)}
    return json.dumps({"metrics": {"speculative_decoding": listed}, "usage": {"completion_tokens": tokens}})


def test_passes_without_a_draft_are_found_and_accept_nothing(tmp_path: Path) -> None:
    """8 tokens: one of the prompt, 3 + 1 of two drafts, so 3 passes had no draft. 6 tokens of one draft that ran over: none."""
    file = tmp_path / "answers.jsonl"
    file.write_text(f"{answer(8, 2, 0)}\n\n{answer(4, 4)}\n", encoding="utf-8")
    assert [one for one, _ in accepted_in_file(file)] == [2, 0, 0, 0, 0, 4]
    assert not any(cut for _, cut in accepted_in_file(file)), "vLLM counts what lies behind the end"
    whole = tmp_path / "one.json"
    whole.write_text(json.dumps(json.loads(answer(3, 1)), indent=1), encoding="utf-8")
    assert [one for one, _ in accepted_in_file(whole)] == [1]


def test_as_checks_they_keep_the_tokens_a_pass(tmp_path: Path) -> None:
    """Of 6 passes 4 accept nothing, one 2, one 4: the expected tokens of a pass are their mean, 2."""
    file = tmp_path / "answers.jsonl"
    file.write_text(f"{answer(8, 2, 0)}\n{answer(4, 4)}\n", encoding="utf-8")
    found = recorded_checks(file, 5, None)
    assert found.draft_passes == (1,) * 6
    assert found.misses == (pytest.approx(4 / 6), 0, pytest.approx(1 / 2), 0)
    expected, alive = 1.0, 1.0
    for rate in found.misses:
        alive *= 1 - rate
        expected += alive
    assert expected == pytest.approx((4 * 1 + 3 + 5) / 6)
    assert recorded_checks(file, 3, None).misses == (pytest.approx(4 / 6), 0), "a shorter block accepts at most its drafts"
    longer = recorded_checks(file, 8, None).misses
    assert longer[4:] == (1, 1, 1), "nothing was ever accepted there"


def test_answers_that_vllm_0_32_0_gave() -> None:
    """Recorded on a CPU, not made: 40 tokens with 10 drafts, the last of which ran over; 40 with 4; 8 with one."""
    accepted = [one for one, _ in accepted_in_file(ROOT / "tests" / "data" / "serving" / "vllm_answers.jsonl")]
    first, second, third = [4, 1, 4, 4, 1, 4, 4, 1, 4, 4], [0, 4, 0, 4], [1]
    assert accepted == [*first, *second, *(0,) * 27, *third, *(0,) * 5]
    assert sum(one + 1 for one in first) == 41 > 39 and sum(one + 1 for one in second) + 27 == 39


def test_a_rows_passes_of_a_record() -> None:
    """Passes that only draft and the prompt's are none; the last one is cut."""
    roles = ["prefill", "draft", "verify", "decide", "verify"]
    ones = [[1, 1]] * 5
    passes = PassColumns.model_validate(
        {
            "role": roles,
            "query_tokens": ones,
            "context_tokens": ones,
            "logit_tokens": ones,
            "kept_tokens": ones,
            "decided_tokens": ones,
            "final_tokens": [[1, 1], [0, 0], [4, 2], [1, 1], [2, 0]],
            "active": [[True, True]] * 4 + [[True, False]],
            "padded_query": [1] * 5,
            "padded_context": [1] * 5,
        }
    )
    assert list(accepted_of_row(passes, 0)) == [(3, False), (0, False), (1, True)]
    assert list(accepted_of_row(passes, 1)) == [(1, False), (0, True)]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{}\n[]\n", "answer 1: lacks metrics.*detailed"),
        ('{"a": 1}\nno\n', ":2: is no JSON"),
        (answer(1), "it has no pass"),
        (b"\xff\xfe".decode("latin1"), "is no JSON"),
    ],
)
def test_what_is_no_answer_of_vllm_is_said(text: str, words: str, tmp_path: Path) -> None:
    """By file and place, with what to ask vLLM for."""
    file = tmp_path / "wrong.jsonl"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(RecordError, match=words):
        recorded_checks(file, 4, None)


def test_a_file_that_is_no_text_is_said(tmp_path: Path) -> None:
    """Bytes of another kind."""
    file = tmp_path / "wrong.bin"
    file.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(RecordError, match="it is not UTF-8 text"):
        recorded_checks(file, 4, None)
