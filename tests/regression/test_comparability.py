"""Unlike runs are refused with every key that differs and both its values; what a user allows passes, and nothing else."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.errors import UserError
from harness.record.same import ABSENT, differing
from harness.record.schema import RECORD_VERSION, Run
from harness.regression.comparability import refuse_unlike, unlike, work_fingerprint
from harness.scenario.loading import load_scenario
from tests.helpers.environments import with_cases, with_environment, with_header
from tests.helpers.synthetic_run import ARMS, build, with_samples

PLAIN = st.recursive(
    st.none() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=8,
)


def with_scenario(run: Run, **changes: Any) -> Run:
    """The run of another scenario: ``changes`` of its first part, or of the scenario where it has the key."""
    scenario = run.header.scenario
    top = {key: value for key, value in changes.items() if key in ("name", "question", "claims")}
    part = scenario["parts"][0] | {key: value for key, value in changes.items() if key not in top}
    return with_header(run, scenario=scenario | top | {"parts": [part, *scenario["parts"][1:]]})


def test_differing_names_every_place() -> None:
    """Keys on one side only, lists of other lengths and values are all named by their place; absent is not None."""
    assert differing({"a": 1, "b": [1, 2]}, {"a": 1, "b": [1, 3], "c": 0}) == [("b.1", 2, 3), ("c", ABSENT, 0)]
    assert differing({"a": {"b": [1]}}, {"a": {"b": [1, 2]}}) == [("a.b", [1], [1, 2])]
    assert differing({"a": None}, {}) == [("a", None, ABSENT)]


@given(PLAIN, PLAIN)
def test_differing_is_empty_exactly_for_equal_values(one: Any, other: Any) -> None:
    """Whatever the nesting; and swapping the sides swaps the values."""
    assert (differing(one, other) == []) == (one == other)
    swapped = sorted((found.key, repr(found.other), repr(found.one)) for found in differing(other, one))
    assert sorted((found.key, repr(found.one), repr(found.other)) for found in differing(one, other)) == swapped


def test_a_run_is_like_itself_and_like_another_commit_of_sbd() -> None:
    """What is compared may differ: commit, run id, times, name and question of the scenario, its claims."""
    run = build()
    other = with_environment(with_scenario(run, name="other", question="?", claims=[1]), commit="abc", load_average=[9, 9, 9])
    other = with_header(other, run_id="another", created_at="2027-01-01T00:00:00Z")
    assert unlike(run, other) == ()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda run: with_environment(run, cpu_model="Other CPU"), r'hardware.cpu_model: "Example CPU" in BASE, "Other'),
        (lambda run: with_environment(run, logical_cores=2), "hardware.logical_cores: not there in BASE, 2 in NEW"),
        (lambda run: with_environment(run, threads={"torch": 1}), "hardware.threads"),
        (lambda run: with_environment(run, memory_total_bytes=16 << 30), "hardware.memory_gib: null in BASE, 16 in NEW"),
        (lambda run: with_environment(run, gpus=[{"name": "H100"}]), "hardware.gpus"),
        (lambda run: with_environment(run, nvidia_gpus=[{"power_limit_w": 300}]), "hardware.nvidia_gpus"),
        (lambda run: with_environment(run, packages={"torch": "2.14"}), 'versions.torch: "2.13.0" in BASE, "2.14" in NEW'),
        (lambda run: with_environment(run, python="3.12.1"), "versions.python"),
        (lambda run: with_environment(run, nvidia_driver="590"), "versions.nvidia_driver"),
        (lambda run: with_scenario(run, seed=2), "scenario.parts.reference.seed: not there in BASE, 2 in NEW"),
        (lambda run: with_header(run, record_version=3), f"record_version: {RECORD_VERSION} in BASE, 3 in NEW"),
    ],
)
def test_each_key_is_named_with_both_values(change: Any, words: str) -> None:
    """A difference in any fact is found, named, and refused with the group to allow."""
    run = build()
    with pytest.raises(UserError) as refused:
        refuse_unlike(run, [change(run)], names=("a", "b"))
    assert words in str(refused.value) and f"--allow {words.partition('.')[0].partition(':')[0]}" in str(refused.value)


def test_a_refusal_has_at_most_ten_lines_and_the_remedy_first() -> None:
    """What all the differences have in common is told by group, with their number."""
    run = build()
    other = build(name="other")
    with pytest.raises(UserError) as refused:
        refuse_unlike(run, [with_environment(with_scenario(other, seed=2), cpu_model="Other CPU")])
    lines = str(refused.value).splitlines()
    assert len(lines) <= 10 and "--allow hardware," in lines[0] and "`sbd gate --base-cmd" in lines[0]
    assert "more of cases" in lines[-1] and max(map(len, lines[2:])) <= 120


def test_what_is_allowed_passes_and_nothing_else() -> None:
    """A group, a key, or the beginning of keys at a dot; what passed is returned, to be said."""
    run = build()
    other = with_environment(with_scenario(run, seed=2), cpu_model="Other CPU")
    keys = ["hardware.cpu_model", "scenario.parts.reference.seed"]
    for allow in (["hardware", "scenario"], keys, ["hardware.cpu_model", "scenario.parts"]):
        assert [one.key for one in refuse_unlike(run, [other], allow)] == keys
    for allow in (["hardware"], ["hardware.cpu", "scenario"], ["hardware.cpu_model", "scenario.par"]):
        with pytest.raises(UserError, match="not alike"):
            refuse_unlike(run, [other], allow)
    with pytest.raises(UserError, match=r"--allow harware: there is no such thing.*hardware, versions"):
        refuse_unlike(run, [run], ["harware"])


def test_every_further_run_is_held_against_the_first() -> None:
    """The message names the one that is unlike."""
    run = build()
    with pytest.raises(UserError, match=r"BASE a, NEW c\)"):
        refuse_unlike(run, [run, with_environment(run, python="3.12.1")], names=("a", "b", "c"))


def test_a_prompt_on_one_side_only_is_refused_by_name() -> None:
    """Whichever side lacks it: its case and the prompt are named (a smaller set could be faster for no other reason)."""
    run, fewer = build(prompts=8), build(prompts=7)
    with pytest.raises(UserError, match=r"prompts.reference/word_problems/b1/ntp: 8 prompts in BASE, 7 prompts \(without p7\)"):
        refuse_unlike(run, [fewer])
    with pytest.raises(UserError, match=r"7 prompts in BASE, 8 prompts \(also p7\)"):
        refuse_unlike(fewer, [run])


def test_a_prompt_that_is_longer_now_is_refused() -> None:
    """Another tokenizer gives the same prompt other tokens."""
    run = build(arms=ARMS[:1])
    rows = [row.model_copy(update={"prompt_tokens": 41}) for row in run.samples[-1].rows]
    other = with_samples(run, [*run.samples[:-1], run.samples[-1].model_copy(update={"rows": rows})])
    with pytest.raises(UserError, match="of other lengths: p7"):
        refuse_unlike(run, [other])


def test_a_case_on_one_side_only_is_refused_by_name() -> None:
    """An arm that NEW does not have, or has besides."""
    with pytest.raises(UserError, match=r'cases\.reference/word_problems/b1/sbd-k16-g0\.6\S*: "there" in BASE, not there'):
        refuse_unlike(build(), [build(arms=ARMS[:2])])


def test_another_model_is_refused() -> None:
    """The shape that was loaded, how its forwards ran, and the tokenizer that was found."""
    run = build()
    engine = {"event": "engine", "part": "reference", "tokenizer_sha256": "ab"}
    other = with_cases(run, lambda case: {"execution": "compiled"}).model_copy(update={"sessions": [engine]})
    with pytest.raises(UserError, match=r"(?s)model.reference.execution.*model.reference.tokenizer_sha256: null in BASE"):
        refuse_unlike(run, [other])


def test_todays_defaults_stand_for_keys_an_older_scenario_lacks() -> None:
    """A record from before a key existed agrees with one that has the key's default, and with no other."""
    whole = load_scenario("quickstart").model_dump(mode="json")
    older = whole | {"parts": [{k: v for k, v in part.items() if k != "baseline_check"} for part in whole["parts"]]}
    first, second = (with_header(build(), scenario=scenario) for scenario in (older, whole))
    found = [one.key for one in unlike(first, second)]
    assert found == ["scenario.parts.reference.baseline_check"]  # 8 by default, 3 here
    defaults = whole | {"parts": [part | {"baseline_check": 8} for part in whole["parts"]]}
    assert unlike(first, with_header(build(), scenario=defaults)) == ()


def test_a_file_of_prompts_is_known_by_its_digest() -> None:
    """Two checkouts have the same prompts in two places."""

    def workload(place: str, digest: str) -> Run:
        return with_scenario(build(), workload={"prompts_file": place, "prompts_sha256": digest})

    assert unlike(workload("/a/p.jsonl", "1"), workload("/b/p.jsonl", "1")) == ()
    assert [one.key for one in unlike(workload("/a/p.jsonl", "1"), workload("/a/p.jsonl", "2"))] == [
        "scenario.parts.reference.workload.prompts_sha256"
    ]


def test_the_fingerprint_of_the_work_is_of_what_is_measured() -> None:
    """Another commit, question or torch does not change it, a seed or the number of threads does."""
    header = build().header
    same = with_environment(with_scenario(build(), question="?"), commit="abc", packages={"torch": "3"}).header
    assert work_fingerprint(header) == work_fingerprint(same)
    assert work_fingerprint(header) != work_fingerprint(with_scenario(build(), seed=3).header)
    assert work_fingerprint(header) != work_fingerprint(with_environment(build(), threads={"torch": 4}).header)
