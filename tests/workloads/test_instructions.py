"""Generated instructions: distinct, disjoint between the splits, and the same on every machine, as their digests say."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from random import Random
from statistics import median

import pytest

from harness.errors import InvariantError, ScenarioError
from harness.runner.estimates import prompt_tokens_at_most
from harness.scenario.loading import load_scenario
from harness.scenario.plan import make_plan
from harness.workloads.instructions import draw
from harness.workloads.instructions.draw import DOMAINS, MOST_PROMPTS, TRAINED, UNSEEN, Split, instructions, normalised
from harness.workloads.instructions.grammar import REFERENCE, Several, Sides, read_rules, write
from harness.workloads.loader import prompt_items
from tests.helpers import ROOT
from tests.helpers.letters import Letters
from tests.helpers.scenarios import GOOD
from tests.helpers.scenarios import write as write_scenario

PER_DOMAIN = {"train": 3_000, "test": 500, "unseen": 500}
SEED = 1
DIGESTS = {
    "train": "00064a43ee59390e23d4f564e5e205dde4b1f721422ae01350295fe592fc76bd",
    "test": "c422b681c30e0ac5840af78377e94193111178ba08002401038bc840f0b81f44",
    "unseen": "1774357a13bd2988dfcef55bb945559097a35d72506729c968c63a98ce828129",
}
SHARED = ("names", "topics")
DIGEST = """
import hashlib
from harness.workloads.instructions.draw import DOMAINS, instructions
texts = (text for domain in DOMAINS for text in instructions(domain, "test", 20, 3))
print(hashlib.sha256("".join(f"{text}\\0" for text in texts).encode()).hexdigest())
"""


def instruction_digest(texts: Iterable[str]) -> str:
    """SHA-256 over prompts, each ended by a zero byte."""
    return hashlib.sha256("".join(f"{text}\0" for text in texts).encode()).hexdigest()


@cache
def drawn(domain: str, split: Split) -> tuple[str, ...]:
    return instructions(domain, split, PER_DOMAIN[split], SEED)


def of_split(split: Split) -> list[str]:
    return [text for domain in (UNSEEN if split == "unseen" else TRAINED) for text in drawn(domain, split)]


def content(*files: str) -> dict[str, Sides]:
    """The rules of which training and held-out prompts see different choices."""
    folder = Path(draw.__file__).parent
    return {
        name: rule for file in files for name, rule in read_rules(folder / f"{file}.yaml").items() if isinstance(rule, Sides)
    }


def one_of(words: set[str]) -> re.Pattern[str]:
    """Any of the words or names, the longest first."""
    return re.compile(rf"\b(?:{'|'.join(map(re.escape, sorted(words, key=len, reverse=True)))})\b")


def words_of(side: str, *files: str) -> set[str]:
    return {str(text).lower() for rule in content(*files).values() for text in getattr(rule, side)}


@pytest.mark.parametrize("split", ["train", "test", "unseen"])
def test_nobody_changes_a_split_in_silence(split: Split) -> None:
    """Prompts are fixed before anything is trained on them: another digest is another data set, to be named as such."""
    domains = UNSEEN if split == "unseen" else TRAINED
    assert [len(drawn(domain, split)) for domain in domains] == [PER_DOMAIN[split]] * len(domains)
    assert instruction_digest(of_split(split)) == DIGESTS[split]


def test_prompts_do_not_depend_on_the_process() -> None:
    """Neither on the order of hashes, nor on what was drawn before."""
    found = {
        subprocess.run(
            [sys.executable, "-c", DIGEST],
            env=os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        for seed in ("0", "77")
    }
    assert found == {instruction_digest(text for domain in DOMAINS for text in instructions(domain, "test", 20, 3))}


def test_at_least_twenty_thousand_training_prompts_differ_in_more_than_numbers_and_names() -> None:
    """All 24,000 differ in more than numbers; without the names of people, places and firms, 23,000 still differ."""
    texts = [draw.NUMBER.sub("#", normalised(text)) for text in of_split("train")]
    assert len(set(texts)) == len(texts) == 24_000
    name = one_of(words_of("train", "names"))
    assert len({name.sub("@", text) for text in texts}) > 23_000


def test_held_out_prompts_are_disjoint_from_training_in_text_and_content() -> None:
    """Every prompt holds names or topics of its own side, and none of the other side's."""
    train, held_out = of_split("train"), of_split("test") + of_split("unseen")
    assert not {*map(normalised, train)} & {*map(normalised, held_out)}
    assert not words_of("train", *SHARED, *DOMAINS) & words_of("held_out", *SHARED, *DOMAINS)
    own = {side: one_of(words_of(side, *SHARED, "code")) for side in ("train", "held_out")}
    other = {"held_out": one_of(words_of("train", *SHARED)), "train": one_of(words_of("held_out", *SHARED))}
    for texts, side in ((train[::4], "train"), (held_out[::2], "held_out")):
        low = [text.lower() for text in texts]
        assert [text for text in low if not own[side].search(text)] == []
        assert [(text, found[0]) for text in low if (found := other[side].search(text))] == []


@pytest.mark.parametrize("domain", DOMAINS)
def test_every_domain_writes_clean_text_of_some_length(domain: str) -> None:
    """No brace, double space or tab is left, texts are plain, and a prompt is neither a fragment nor a page."""
    texts = drawn(domain, "unseen" if domain in UNSEEN else "train")
    assert [
        text for text in texts if re.search(r"[{}\t]| \n|\n\n\n|  |\b[Aa] [aeio]|\b[Aa]n (?!SQL|HTML|hour)[^aeiou]", text)
    ] == []
    assert [text for text in texts if text != text.strip()] == []
    lengths = [len(text) for text in texts]
    assert min(lengths) >= 30 and max(lengths) <= 1_200 and 90 <= median(lengths) <= 700
    assert len({text[:12] for text in texts}) >= 20, "openings vary"


@pytest.mark.parametrize("domain", DOMAINS)
def test_every_reference_names_a_rule_and_every_rule_is_used(domain: str) -> None:
    """A text that names no rule would be found by chance alone, when it is drawn."""
    rules = draw.rules_of(domain)
    assert all(re.fullmatch(r"[a-z_]+", name) for name in rules), "a digit at the end is the number of a draw"
    named = {"start"}
    for rule in rules.values():
        if isinstance(rule, Several):
            named.add(rule.of)
        elif isinstance(rule, Sides | tuple):
            choices = rule if isinstance(rule, tuple) else rule.train + rule.held_out
            texts = [text for one in choices for text in (one.values() if isinstance(one, dict) else [one])]
            assert [text for text in texts if re.search(r"[{}]", REFERENCE.sub("", text))] == []
            named |= {found[2][0].lower() + found[2][1:] for text in texts for found in REFERENCE.finditer(text)}
    own = read_rules(Path(draw.__file__).parent / f"{domain}.yaml")
    assert named <= rules.keys() and own.keys() <= named


def test_a_larger_count_continues_a_smaller_one_and_seeds_differ() -> None:
    assert instructions("lists", "train", 50, 4)[:20] == instructions("lists", "train", 20, 4)
    assert set(instructions("lists", "train", 50, 4)) != set(instructions("lists", "train", 50, 5))
    assert instructions("tables", "test", 5, 4) == instructions("tables", "unseen", 5, 4)
    assert len(instructions("dialogue", "test", MOST_PROMPTS, 9)) == MOST_PROMPTS
    with pytest.raises(ValueError, match="of 'tables': ask for at most 5000, of extraction, "):
        instructions("tables", "train", 1, 1)


def test_the_grammar(tmp_path: Path) -> None:
    """A draw is kept in a text, a number asks for another, articles fit, and parts belong together."""
    file = tmp_path / "one.yaml"
    file.write_text(
        "start: ['{A pet}, {pet}, {Pet2} and {a pet2}: {facts.say} {facts.ask}']\n"
        "pet: {train: [owl, cat], held_out: [emu, dog]}\n"
        "facts: {of: fact, least: 2, most: 2, between: {say: '; ', ask: '/'}}\n"
        "fact: [{say: s1, ask: a1}, {say: s2, ask: a2}]\n"
    )
    rules = read_rules(file)
    texts = {write(rules, "train", Random(seed)) for seed in range(40)}
    assert texts == {
        f"{pets}: {facts}"
        for pets in ("An owl, owl, Cat and a cat", "A cat, cat, Owl and an owl")
        for facts in ("s1; s2 a1/a2", "s2; s1 a2/a1")
    }
    assert "mu" in write(rules, "held_out", Random(1))
    with pytest.raises(InvariantError, match="'pet' has too few choices: 2"):
        write(rules | {"start": ("{pet} {pet2} {pet3}",)}, "train", Random(1))
    with pytest.raises(InvariantError, match="the rule 'cow', which is in no file"):
        write({"start": ("{cow}",)}, "train", Random(1))
    file.write_text("start: [one]\npet: {train: [owl]}\n")
    with pytest.raises(InvariantError, match=r"one.yaml:2: pet"):
        read_rules(file)


def scenario(folder: Path, source: str, prompts: int = 4) -> Path:
    text = GOOD.replace("synthetic: {prompt_tokens: 8}", source).replace("prompts: 4", f"prompts: {prompts}")
    return write_scenario(folder, text.replace("{random: llama-250m}", "{reference: sbd}").replace("bfloat16", "float32"))


def test_a_workload_decodes_them_domain_by_domain(tmp_path: Path) -> None:
    """A domain is a task of its own, ungraded; the plan knows the longest prompt."""
    part = load_scenario(scenario(tmp_path, "instructions: {split: unseen}")).parts[0]
    assert part.workload.task_names == UNSEEN
    items = prompt_items(part.workload, "tables", 7, Letters(), 300)
    assert [Letters().decode(item.ids) for item in items] == list(instructions("tables", "unseen", 4, 7))
    assert items[3].prompt_id == "tables/unseen/7/3" and items[0].grade is None and items[0].ungraded_reason
    found = load_scenario(scenario(tmp_path, "instructions: {domains: [code, tables]}"))
    [code, *_] = make_plan(found).cases
    assert {case.task for case in make_plan(found).cases} == {"code", "tables"}
    assert prompt_tokens_at_most(code) == 1 + max(len(one) for one in instructions("code", "test", 4, 1))


@pytest.mark.parametrize(
    ("source", "prompts", "line", "words"),
    [
        ("instructions: {split: tests}", 4, 11, "split: got 'tests'"),
        ("instructions: {domains: [poems]}", 4, 11, "got 'poems'; domains with test prompts: extraction, "),
        ("instructions: {split: train, domains: [tables]}", 4, 11, "got 'tables'; domains with train prompts: extraction, "),
        ("instructions: {split: unseen, domains: [code]}", 4, 11, "got 'code'; domains with unseen prompts: tables, letters"),
        ("instructions: {domains: [code, code]}", 4, 11, "code given twice"),
        ("instructions: {domain: [code]}", 4, 11, "did you mean 'domains'?"),
        ("instructions: {}", 5_001, 12, "got 5001, but a domain has 5000 prompts of a split; ask for at most 5000"),
        ("instructions: {}\n      tasks: [short_trace]", 4, 10, "is needed, got tasks, instructions"),
    ],
)
def test_mistakes_are_named_with_file_and_line(tmp_path: Path, source: str, prompts: int, line: int, words: str) -> None:
    with pytest.raises(ScenarioError) as refusal:
        load_scenario(scenario(tmp_path, source, prompts))
    assert f"s.yaml:{line}: " in str(refusal.value) and words in str(refusal.value)
