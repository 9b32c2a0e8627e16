"""Each solver against a plain statement of its rule: Python floats, one row at a time, searching instead of computing."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from harness.decoding.sampling import usable
from harness.decoding.solvers import BlockView
from harness.scenario.solvers import KNOBS
from harness.scenario.solvers import SOLVERS as SPECS
from tests.helpers.solver_rules import SOLVERS

VOCABULARY = 8
EXAMPLES = pytest.mark.parametrize("examples", [60, pytest.param(2000, marks=pytest.mark.full)])
EVERY = pytest.mark.parametrize("name", SPECS)


@dataclass(frozen=True)
class Slot:
    """What a pass says of one slot."""

    entropy: float
    confidence: float
    margin: float
    masked: bool


@dataclass(frozen=True)
class Given:
    """A view whose figures were made up."""

    masked: Any
    entropy: Any
    confidence: Any
    margin: Any
    vocabulary: int = VOCABULARY


# ----- the rules, stated again -----


def in_order(row: list[Slot], badness: Any) -> list[int]:
    """Masked slots from best to worst, the earlier one first where they tie."""
    return sorted((i for i, slot in enumerate(row) if slot.masked), key=lambda i: (badness(row[i]), i))


def best_start(order: list[int], allowed: Any) -> set[int]:
    """The longest start of ``order`` that is ``allowed``; of one slot if none is, and nothing of nothing."""
    sizes = [size for size in range(1, len(order) + 1) if allowed(order[:size])]
    return set(order[: max(sizes, default=1)])


def eq_18(row: list[Slot], gamma: float, badness: Any) -> set[int]:
    """All but the most uncertain member cost no more than γ."""

    def cheap(chosen: list[int]) -> bool:
        nats = sorted(row[i].entropy for i in chosen)
        return sum(nats[:-1]) <= gamma

    return best_start(in_order(row, badness), cheap)


def by_threshold(row: list[Slot], sure: Any) -> set[int]:
    """Whatever is sure, and the best in any case."""
    order = in_order(row, lambda slot: -slot.confidence)
    return {i for i in order if sure(row[i].confidence)} | set(order[:1])


def by_factor(row: list[Slot], factor: float) -> set[int]:
    """(n + 1)(1 - c_(n)) < f."""
    order = in_order(row, lambda slot: -slot.confidence)
    return best_start(order, lambda chosen: (len(chosen) + 1) * (1 - row[chosen[-1]].confidence) < factor)


def by_released_factor(row: list[Slot], factor: float) -> set[int]:
    """The released loop: it stops at the first slot below its bound, and where that is the last one, takes it after all."""
    order = in_order(row, lambda slot: -slot.confidence)
    for place, i in enumerate(order):
        if place > 0 and row[i].confidence < 1 - factor / (place + 2):
            return set(order) if place == len(order) - 1 else set(order[:place])
    return set(order)


def by_frechet(row: list[Slot], delta: float) -> set[int]:
    """L_n - U_n > δ."""

    def sure(chosen: list[int]) -> bool:
        lower = max(0.0, sum(row[i].confidence for i in chosen) - (len(chosen) - 1))
        return lower - (1 - row[chosen[-1]].confidence) > delta

    return best_start(in_order(row, lambda slot: -slot.confidence), sure)


def leading(row: list[Slot], sure: Any) -> set[int]:
    """Masked slots from the left while they are sure; the first in any case."""
    masked = [i for i, slot in enumerate(row) if slot.masked]
    count = next((n for n, i in enumerate(masked) if not sure(row[i])), len(masked))
    return set(masked[: max(1, count)])


def likeliest(row: list[Slot], count: int) -> set[int]:
    """So many."""
    return set(in_order(row, lambda slot: -slot.confidence)[:count])


def scheduled(row: list[Slot], steps: int) -> int:
    """What the schedule of a whole block gives to the last pass that still begins with as many slots as are left."""
    quotas = [len(row) // steps + (step < len(row) % steps) for step in range(steps)]
    left = sum(slot.masked for slot in row)
    begins = [len(row) - sum(quotas[:step]) for step in range(steps)]
    return next((quotas[step] for step in reversed(range(steps)) if begins[step] >= left and quotas[step]), 0)


def dynamic(row: list[Slot], tau: float, steps: int) -> set[int]:
    """SDAR: all that are sure, if they are enough."""
    above = {i for i, slot in enumerate(row) if slot.masked and slot.confidence > tau}
    quota = scheduled(row, steps)
    return above if len(above) >= quota else likeliest(row, quota)


RULES: dict[str, Any] = {
    "entropy_bounded": lambda row, gamma: eq_18(row, gamma, lambda slot: slot.entropy),
    "entropy_bounded_confidence": lambda row, gamma: eq_18(row, gamma, lambda slot: -slot.confidence),
    "entropy_bounded_margin": lambda row, gamma: eq_18(row, gamma, lambda slot: -slot.margin),
    "threshold": lambda row, tau: by_threshold(row, lambda c: c >= tau),
    "threshold_strict": lambda row, tau: by_threshold(row, lambda c: c > tau),
    "factor": lambda row, factor: by_factor(row, factor),
    "factor_fastdllm": lambda row, factor: by_released_factor(row, factor),
    "frechet": lambda row, delta: by_frechet(row, delta),
    "longest_prefix": lambda row, tau: leading(row, lambda slot: slot.confidence > tau),
    "longest_prefix_entropy": lambda row, tau: leading(row, lambda slot: 1 - slot.entropy / math.log(VOCABULARY) > tau),
    "top_k": lambda row, tokens: likeliest(row, tokens),
    "uniform": lambda row, steps: likeliest(row, scheduled(row, steps)),
    "low_confidence_dynamic": lambda row, tau, steps: dynamic(row, tau, steps),
}

# ----- cases -----


def view_of(rows: list[list[Slot]]) -> Given:
    """The rows as tensors."""

    def figure(name: str) -> Any:
        return torch.tensor([[float(getattr(slot, name)) for slot in row] for row in rows], dtype=torch.float64)

    return Given(
        masked=figure("masked").bool(), entropy=figure("entropy"), confidence=figure("confidence"), margin=figure("margin")
    )


def chosen_by(name: str, rows: list[list[Slot]], knobs: dict[str, Any]) -> list[set[int]]:
    """What the solver picks, row by row."""
    return [{i for i, c in enumerate(row) if c} for row in SOLVERS[name](view_of(rows), **knobs).tolist()]


def binary(top: int, parts: int) -> st.SearchStrategy[float]:
    """Fractions that are exact in binary, so that both sides agree on ties and on what lies on a bound."""
    return st.integers(0, top).map(lambda n: n / parts)


@st.composite
def batches(draw: Any) -> list[list[Slot]]:
    """Rows of one width with masks of their own. Coarse grids make ties; a grid of one value makes all slots equal."""
    width = draw(st.integers(1, 8))
    coarse = draw(st.sampled_from([0, 1, 4, 64]))
    confidence = binary(coarse, 64).map(lambda doubt: 1 - doubt)
    figures = st.builds(Slot, binary(coarse, 16), confidence, binary(coarse, 64), st.booleans())
    return draw(st.lists(st.lists(figures, min_size=width, max_size=width), min_size=1, max_size=3))


KNOB_VALUES = {
    "gamma": binary(64, 16),
    "tau": binary(64, 64),
    "factor": binary(96, 32),
    "delta": binary(64, 64),
    "tokens": st.integers(1, 9),
    "steps": st.integers(1, 9),
}


def knobs_for(name: str) -> st.SearchStrategy[dict[str, Any]]:
    """A value for every knob of a solver."""
    return st.fixed_dictionaries({knob: KNOB_VALUES[knob] for knob in SPECS[name].knobs})


ONE_LEFT = [[Slot(0.0, 1.0, 1.0, False), Slot(3.0, 0.25, 0.0, True), Slot(0.0, 1.0, 1.0, False)]]
ALL_EQUAL = [[Slot(0.5, 0.75, 0.5, True)] * 5, [Slot(0.5, 0.75, 0.5, False)] * 5]
CERTAIN = [[Slot(0.0, 1.0, 1.0, True)] * 4]


@EXAMPLES
@EVERY
def test_a_solver_is_its_rule(name: str, examples: int) -> None:
    """Equal to the search on ties, one slot left, equal slots, zero entropy, bounds met exactly, and rows of other masks."""

    @settings(max_examples=examples)
    @given(batches(), knobs_for(name))
    def check(rows: list[list[Slot]], knobs: dict[str, Any]) -> None:
        chosen = chosen_by(name, rows, knobs)
        assert chosen == [RULES[name](row, **knobs) for row in rows]
        for row, got in zip(rows, chosen, strict=True):
            masked = {i for i, slot in enumerate(row) if slot.masked}
            assert got <= masked and bool(got) == bool(masked)

    middle = {knob: values[1 % len(values)] for knob, values in SPECS[name].sweep.items()}
    for rows in (ONE_LEFT, ALL_EQUAL, CERTAIN):
        check = example(rows, middle)(check)
    check()


@EVERY
def test_a_solver_is_its_rule_on_what_a_model_says(name: str) -> None:
    """From logits, the mask token's among them: 700 rows at each of three settings of the solver's own, not on a grid."""
    rng, suppressed = random.Random(name), VOCABULARY - 1
    logits = [[[rng.gauss(0, rng.choice((1, 4))) for _ in range(VOCABULARY)] for _ in range(6)] for _ in range(700)]
    masked = [[rng.random() < 0.7 for _ in range(6)] for _ in logits]
    rows = [[_said(*of_slot) for of_slot in zip(*of_row, strict=True)] for of_row in zip(logits, masked, strict=True)]
    wide = usable(torch.tensor(logits, dtype=torch.float64), torch.tensor([suppressed]))
    view = BlockView(wide, torch.tensor(masked), temperature=0.0)
    first, *others = SPECS[name].sweep.items()
    for value in first[1]:
        knobs = {first[0]: value} | {knob: values[0] for knob, values in others}
        if "steps" in knobs:
            knobs["steps"] = min(int(knobs["steps"]), 5)
        chosen = SOLVERS[name](view, **knobs).tolist()
        assert [{i for i, c in enumerate(row) if c} for row in chosen] == [RULES[name](row, **knobs) for row in rows]


def _said(logits: list[float], masked: bool) -> Slot:
    """One slot by the definitions, the last token never an answer."""
    powers = [math.exp(value) for value in logits[:-1]]
    p = sorted((power / sum(powers) for power in powers), reverse=True)
    return Slot(-sum(x * math.log(x) for x in p), p[0], p[0] - p[1], masked)


# ----- what the rules have in common, and where they differ -----


@EXAMPLES
@EVERY
def test_a_bolder_knob_picks_a_superset(name: str, examples: int) -> None:
    """Turning any knob to the bolder side, as the registry has it, never takes a slot away."""

    @settings(max_examples=examples)
    @given(batches(), knobs_for(name), st.data())
    def check(rows: list[list[Slot]], knobs: dict[str, Any], data: Any) -> None:
        for knob in knobs:
            two = sorted((knobs[knob], data.draw(KNOB_VALUES[knob])), reverse=KNOBS[knob].bolder == "less")
            cautious, bold = (chosen_by(name, rows, knobs | {knob: value}) for value in two)
            assert all(less <= more for less, more in zip(cautious, bold, strict=True))

    check()


def pick(name: str, confidences: list[float], **knobs: float) -> int:
    """How many of a row of masked slots."""
    return len(chosen_by(name, [[Slot(1.0, c, c, True) for c in confidences]], knobs)[0])


def test_rules_by_hand() -> None:
    """Worked on paper, the misprint of the SBD paper's eq. B.1 (it would take 1 of 8) and the released surplus among them."""
    assert pick("factor", [0.999] * 8, factor=1) == 8  # 9 x .001 < 1
    assert pick("factor", [0.9, 0.7, 0.5], factor=1) == 2  # 2 x .1, 3 x .3 = .9; 4 x .5 = 2
    assert pick("factor", [0.9, 0.1], factor=1) == 1 and pick("factor_fastdllm", [0.9, 0.1], factor=1) == 2
    assert pick("factor", [0.75, 0.5], factor=0.5) == 1  # 2 x .25 is not below .5
    assert pick("factor_fastdllm", [0.9, 0.9, 0.9, 0.8, 0.1, 0.1], factor=1) == 4  # on the bound, which float32 would miss
    assert pick("frechet", [0.9, 0.8, 0.7], delta=0.25) == 2  # .8, .7 - .2 = .5; .4 - .3 = .1
    assert (pick("threshold", [0.5, 0.9, 0.9], tau=0.9), pick("threshold_strict", [0.5, 0.9, 0.9], tau=0.9)) == (2, 1)
    assert pick("longest_prefix", [0.9, 0.7, 0.95], tau=0.8) == 1 and pick("longest_prefix", [0.1, 0.9], tau=0.8) == 1
    assert pick("low_confidence_dynamic", [0.9, 0.85, 0.95, 0.1], tau=0.8, steps=2) == 3
    assert pick("low_confidence_dynamic", [0.9, 0.3, 0.2, 0.1], tau=0.8, steps=2) == 2
