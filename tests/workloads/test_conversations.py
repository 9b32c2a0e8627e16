"""A file of conversations, in OpenAI's form or ShareGPT's: each is a prompt up to its last user turn."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from harness.errors import ScenarioError
from harness.workloads.loader import prompt_items
from harness.workloads.prompts import read_prompts
from harness.workloads.spec import Workload
from tests.helpers.letters import Letters

SHAREGPT = {
    "id": "x1",
    "conversations": [
        {"from": "system", "value": "Be short."},
        {"from": "human", "value": "Hello"},
        {"from": "gpt", "value": "Hi."},
        {"from": "human", "value": "2+2?"},
        {"from": "gpt", "value": "4"},
    ],
}
PARTS = {"messages": [{"role": "user", "content": [{"type": "text", "text": "two "}, {"type": "text", "text": "parts"}]}]}
TURNS = [("system", "Be short."), ("user", "Hello"), ("assistant", "Hi."), ("user", "2+2?")]
OPENAI = {
    "messages": [{"role": "developer", "content": "Be short."}, *({"role": who, "content": said} for who, said in TURNS[1:])],
    "answer": "4",
    "check": "number",
    "tools": [],
    "doc": 7,
}


@pytest.mark.parametrize("indent", [None, 2])
@pytest.mark.parametrize("array", [False, True])
def test_both_forms_are_read(tmp_path: Path, array: bool, indent: int | None) -> None:
    """With a plain prompt between them; what was written behind the last user turn is left out, and so are strange keys."""
    rows = [SHAREGPT, {"prompt": "plain\u2028text"}, OPENAI, PARTS]
    text = json.dumps(rows, indent=indent) if array else "\n\n".join(json.dumps(one, ensure_ascii=False) for one in rows)
    (tmp_path / "p.json").write_text(text, encoding="utf-8")
    first, plain, second, parts = read_prompts(tmp_path / "p.json")
    for one in (first, second):
        assert [(turn["role"], turn["content"]) for turn in one.turns] == TURNS
        assert one.prompt == "Be short.\n\nHello\n\nHi.\n\n2+2?"
    assert (plain.prompt, plain.turns) == ("plain\u2028text", ())
    assert (second.answer, second.is_correct("it is 4"), first.answer) == ("4", True, None)
    assert parts.prompt == "two parts"


def test_related_conversations_are_named_by_a_field(tmp_path: Path) -> None:
    """As related prompts are."""
    (tmp_path / "p.jsonl").write_text(json.dumps(OPENAI))
    assert [one.cluster for one in read_prompts(tmp_path / "p.jsonl", "doc")] == ["7"]


@pytest.mark.parametrize(
    ("row", "named"),
    [
        ({"messages": [{"role": "tool", "content": "x"}]}, "'tool'"),
        ({"conversations": [{"from": "human", "value": "a"}, {"from": "narrator", "value": "b"}]}, "'narrator'"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": "u"}]}]}, "image_url"),
        ({"messages": [{"role": "assistant", "content": "x"}]}, "one of them the user's"),
        ({"messages": [{"role": "user", "content": None}]}, "None"),
        ({"messages": []}, "one of them the user's"),
        ({"messages": 5}, "got 5"),
        ({"conversations": ["hello"]}, "got hello"),
        ({"prompt": "p", "messages": [{"role": "user", "content": "x"}]}, "unknown key messages"),
    ],
)
def test_what_is_no_conversation_is_refused_by_file_and_line(tmp_path: Path, row: object, named: str) -> None:
    """On the third line of JSON lines, and where its object begins in an array."""
    lines, array = tmp_path / "p.jsonl", tmp_path / "p.json"
    lines.write_text(f'{{"prompt": "a"}}\n\n{json.dumps(row)}\n')
    array.write_text(f'[\n{{"prompt": "a"}},\n{json.dumps(row)}]')
    for file in (lines, array):
        with pytest.raises(ScenarioError) as caught:
            read_prompts(file)
        assert f"{file}:3: " in str(caught.value) and named in str(caught.value)


@pytest.mark.parametrize("text", ['[{"prompt": "a"},\n{"prompt": "b"}', '[{"prompt": "a"},\n{"pro', '{"prompt": "a"}\n{"pro'])
def test_a_cut_file_is_refused(tmp_path: Path, text: str) -> None:
    """Also where it ends between two prompts of an array."""
    (tmp_path / "p.json").write_text(text)
    with pytest.raises(ScenarioError, match=r"p.json:\d: not JSON"):
        read_prompts(tmp_path / "p.json")


class Marked(Letters):
    """Its template names every role."""

    def encode_chat(self, text: str, turns=()) -> list[int]:
        """Role and text of each turn."""
        return self.encode("".join(f"<{one['role']}>{one['content']}" for one in turns or [{"role": "user", "content": text}]))


@pytest.mark.parametrize(
    ("chat", "expected"),
    [
        (True, ["<system>Be short.<user>Hello<assistant>Hi.<user>2+2?", "<user>plain"]),
        (False, ["Be short.\n\nHello\n\nHi.\n\n2+2?", "plain"]),
    ],
)
def test_turns_go_into_the_chat_template(tmp_path: Path, chat: bool, expected: list[str]) -> None:
    """Turn by turn; a model without one reads them with blank lines between."""
    (tmp_path / "p.jsonl").write_text(json.dumps(SHAREGPT) + '\n{"prompt": "plain"}')
    keys = {"prompts_file": "p.jsonl", "max_new_tokens": 4, "chat_template": chat}
    work = Workload.model_validate(keys, context={"base": tmp_path})
    assert [Marked().decode(one.ids) for one in prompt_items(work, "p", 1, Marked(), 300)] == expected
