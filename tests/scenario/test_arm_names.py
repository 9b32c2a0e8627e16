"""The names of arms as people type them: other spellings of one name, and what a typo is answered with."""

from __future__ import annotations

import pytest

from harness.errors import UserError
from harness.scenario.arm_names import refuse_unknown_arms, same_arm

KNOWN = ("NTP", "SBD k=16 γ=0.003", "SBD k=16 γ=0.1", "prompt lookup n=4", "FreeDave k=16 d=2", "SBD k=16 threshold τ=0.95")


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("SBD k=16 g=0.003", "SBD k=16 γ=0.003"),
        ("sbd  k=16 gamma=0.1", "SBD k=16 γ=0.1"),
        ("ntp", "NTP"),
        ("SBD k=16 threshold tau=0.95", "SBD k=16 threshold τ=0.95"),
        ("freedave k=16 d=2", "FreeDave k=16 d=2"),
    ],
)
def test_other_spellings_mean_the_same_arm(given: str, meant: str) -> None:
    """Each means one arm of all, and is not refused."""
    assert [label for label in KNOWN if same_arm(given, label)] == [meant]
    refuse_unknown_arms([given, None, "best"], KNOWN, "here")


@pytest.mark.parametrize(
    ("given", "near"), [("SBD k=16 g=0.03", "'SBD k=16 γ=0.003'"), ("prompt lockup n=4", "'prompt lookup n=4'")]
)
def test_a_typo_is_answered_with_the_nearest_names(given: str, near: str) -> None:
    """The nearest first; where nothing is near, all that there are."""
    with pytest.raises(UserError, match="there is no arm") as refused:
        refuse_unknown_arms([given], KNOWN, "claim")
    assert f"did you mean {near}" in str(refused.value) and given in str(refused.value)
    with pytest.raises(UserError, match="it has 'NTP', "):
        refuse_unknown_arms(["xxxxxxxx"], KNOWN, "claim")
