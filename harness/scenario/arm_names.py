"""How an arm is called: its part of a case id, which never changes, and its label, which people read."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

from harness.record.schema import is_check
from harness.scenario import arms_public, masked_arms
from harness.scenario.arms import GREEDY
from harness.scenario.plan_replay import ReplaySpec
from harness.scenario.solvers import setting_id, setting_in_words
from harness.scenario.speculative_arms import RIVALS, rival_id, rival_label

Arm = dict[str, Any]
Named = Callable[[Arm], str]
ReplayNamed = Callable[[Arm, ReplaySpec | None], str]


def arm_id(arm: Arm, replay: ReplaySpec | None) -> str:
    """Its part of a case id."""
    if is_check(arm):
        return f"generate-{arm['cache']}" + ("-compiled" if arm["execution"] == "compiled" else "")
    return _REPLAYABLE[arm["method"]][0](arm, replay) if arm["method"] in _REPLAYABLE else _NAMES[arm["method"]][0](arm)


def arm_label(arm: Arm, replay: ReplaySpec | None) -> str:
    """Its name in tables and figures; a temperature above 0 is said."""
    if is_check(arm):
        by_whom = {"static": "transformers", "dynamic": "us"}[arm["cache"]]
        return f"generate(), {arm['cache']} cache" + (f", compiled by {by_whom}" if arm["execution"] == "compiled" else "")
    warm = f" T={_number(arm['temperature'])}" if arm["temperature"] != GREEDY else ""
    ragged = " ragged" if arm.get("batching") == "ragged" else ""
    replayable = arm["method"] in _REPLAYABLE
    label = _REPLAYABLE[arm["method"]][1](arm, replay) if replayable else _NAMES[arm["method"]][1](arm)
    return f"{label}{warm}{ragged}"


def _number(value: float) -> str:
    return format(value, ".12g")


def _sbd_id(arm: Arm, replay: ReplaySpec | None) -> str:
    chosen = _chosen_id(arm, replay)
    ragged = "-ragged" if arm["batching"] == "ragged" else ""
    return f"sbd-k{arm['block_size']}-{chosen}-t{_number(arm['temperature'])}-{arm['solver']}{ragged}"


def _chosen_id(arm: Arm, replay: ReplaySpec | None) -> str:
    """Who decides what is accepted, or drafted."""
    return setting_id(arm) if replay is None else f"replay-{_replay_id(replay)}"


def _replay_id(replay: ReplaySpec) -> str:
    if cell := replay.source.get("table1"):
        return f"{cell['base_model']}-{cell['task']}-{cell['sampling'].removeprefix('sbd_')}"
    if trace := replay.source.get("trace"):
        drawn_from = trace + (f"\n{arm}" if (arm := replay.source.get("arm")) else "")
        return f"trace-{hashlib.sha256(drawn_from.encode()).hexdigest()[:8]}"
    return f"{_number(replay.source['nfe_speedup'])}x"


def _sbd_label(arm: Arm, replay: ReplaySpec | None) -> str:
    return _with_choice(f"SBD k={arm['block_size']}", arm, replay)


def _with_choice(name: str, arm: Arm, replay: ReplaySpec | None) -> str:
    """``name`` and who decides what is accepted, or drafted; a recorded arm of the same name by what that has besides."""
    if replay is None:
        return f"{name} {setting_in_words(arm)}"
    if cell := replay.source.get("table1"):
        return f"{name} replayed {cell['task']} {'γ low' if cell['sampling'].endswith('low') else 'γ high'}"
    of_record = replay.source.get("arm", "trace").removeprefix(f"{name} ")
    return f"{name} replayed {f'{_number(replay.nfe_speedup)}x' if replay.nfe_speedup else of_record}"


def _ntp_id(arm: Arm) -> str:
    return "ntp" if arm["temperature"] == GREEDY else f"ntp-t{_number(arm['temperature'])}"


def _verified_id(arm: Arm, replay: ReplaySpec | None) -> str:
    end = f"-c{_number(arm['least_confidence'])}" if "least_confidence" in arm else ""
    return f"sbd-verified-k{arm['block_size']}-{_chosen_id(arm, replay)}-t{_number(arm['temperature'])}-{arm['solver']}{end}"


def _verified_label(arm: Arm, replay: ReplaySpec | None) -> str:
    end = f" c>{_number(arm['least_confidence'])}" if "least_confidence" in arm else ""
    return _with_choice(f"SBD verified k={arm['block_size']}", arm, replay) + end


def _self_speculation_id(arm: Arm) -> str:
    return f"{arm['form']}-k{arm['block_size']}-t{_number(arm['temperature'])}"


_NAMES: dict[str, tuple[Named, Named]] = {
    "ntp": (_ntp_id, lambda arm: "NTP"),
    "self_speculation": (_self_speculation_id, lambda arm: f"{arm['form']} self-speculation k={arm['block_size']}"),
    "block_diffusion": (arms_public.arm_id, arms_public.label),
    **dict.fromkeys(("freedave", "apd"), (masked_arms.arm_id, masked_arms.label)),
    **dict.fromkeys(RIVALS, (rival_id, rival_label)),
}
"""What names a method in an id, and in a label."""
_REPLAYABLE: dict[str, tuple[ReplayNamed, ReplayNamed]] = {
    "sbd": (_sbd_id, _sbd_label),
    "sbd_verified": (_verified_id, _verified_label),
}
"""The same of methods whose acceptance may be replayed."""
