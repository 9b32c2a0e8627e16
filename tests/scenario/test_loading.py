"""A part on several kinds of device is a part for each, and the keys that no sample depends on are no part of the digest."""

from __future__ import annotations

import pytest

from harness.errors import ScenarioError
from harness.scenario.loading import load_scenario, scenario_digest
from harness.scenario.plan import make_plan

PART = """
  - name: {name}
    model: {{random: llama-250m}}
    dtype: bfloat16
    arms: [{arms}]
    workload: {{synthetic: {{prompt_tokens: 4}}, prompts: 4, max_new_tokens: 3}}
"""


def loaded(tmp_path, text, head=""):
    """The scenario in a file of its own."""
    file = tmp_path / "s.yaml"
    file.write_text(f"version: 1\nname: s\n{head}parts:{text}")
    return load_scenario(file)


def part(name, more="", arms="{method: ntp}"):
    """One part."""
    return PART.format(name=name, arms=arms) + (f"    {more}\n" if more else "")


def test_a_part_on_two_devices_is_two_parts_and_baselines_follow(tmp_path):
    """Each with its device; a baseline on the same devices is that of the same device."""
    sbd = "{method: sbd, block_size: 8, gamma: 0.5}"
    text = part("ntp", "devices: [H100, A100-80G]") + part("sbd", "devices: [H100, A100-80G]\n    baseline: ntp", sbd)
    found = loaded(tmp_path, text)
    names = [(one.name, one.devices, one.baseline) for one in found.parts]
    assert names == [
        ("ntp-H100", ("H100",), None),
        ("ntp-A100-80G", ("A100-80G",), None),
        ("sbd-H100", ("H100",), "ntp-H100"),
        ("sbd-A100-80G", ("A100-80G",), "ntp-A100-80G"),
    ]
    assert {case.case_id.partition("/")[0] for case in make_plan(found).cases} == {name for name, *_ in names}


def test_one_device_and_none_change_no_name(tmp_path):
    """And a scenario without the key resolves, and is digested, as it always was."""
    assert [one.name for one in loaded(tmp_path, part("one", "devices: [H100]")).parts] == ["one"]
    plain = loaded(tmp_path, part("one")).model_dump(mode="json")
    assert "devices" not in plain["parts"][0] and "attempts" not in plain and "deadline_s" not in plain


def test_patience_is_no_part_of_the_digest(tmp_path):
    """A run that hung is continued with another deadline and more attempts; with another device it is another run."""
    digests = [
        scenario_digest(loaded(tmp_path, part("one", more), head).model_dump(mode="json"))
        for head, more in (("", ""), ("deadline_s: 60\nattempts: 5\n", ""), ("", "devices: [H100]"))
    ]
    assert digests[0] == digests[1] != digests[2]


@pytest.mark.parametrize(
    ("text", "head", "words"),
    [
        (part("one", "devices: [H100, H100]"), "", "H100 given twice"),
        (part("one", "devices: [A, B]") + part("one-A"), "", "makes a part one-A, a name that is taken"),
        (part("o" * 60, "devices: [H100, A100]"), "", "longer than 64 letters; rename it"),
        (
            part("ntp", "devices: [A, B]") + part("two", "baseline: ntp", "{method: sbd, block_size: 8, gamma: 0.5}"),
            "",
            "part two: devices: its baseline ntp is measured on A, B; give both the same devices",
        ),
        (part("one"), "attempts: 0\n", "attempts"),
        (part("one"), "deadline_s: 0\n", "deadline_s"),
    ],
)
def test_what_makes_no_sense_is_refused(tmp_path, text, head, words):
    """With the file and what to do."""
    with pytest.raises(ScenarioError, match=words):
        loaded(tmp_path, text, head)
