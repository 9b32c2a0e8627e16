"""The panel as the data that its page carries: every answer once, every figure to the digits that are shown, texts by
number. Computes nothing.

``ntp[i]`` and ``sbd[j]`` are found by the places of what was chosen: i counts model, device, context and batch, the last one
fastest, and j the acceptance after them. An arm is its number of a reason where it has no plan.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from harness.capacity.results import ArmPlan, Band
from harness.capacity.wording import pays_words
from harness.models import KNOWN_SHAPES
from harness.reporting.planner.panel import Choice, Panel, Point

PLANNER_VERSION = 1
DIGITS = 3
"""As harness.formatting shows a rate: what is rounded twice may not be what is rounded once."""
ITSELF, NONE = "1.00x", "–"
"""In the rows of NTP: against itself, and where it would be asked at which batches it is the faster."""
FOLDER = "FOLDER"
"""Of a model that has no name on the command line: it is called by where its config.json lies."""


def embedded(panel: Panel) -> dict[str, Any]:
    """Plain JSON values: the axes with what is said of every choice, and the figures."""
    texts = _Texts()
    per_choice = len(panel.choices)
    ntp = [_arm(point.plan.ntp, point, 0, texts) for point in panel.points[::per_choice]]
    sbd = [_sbd(point, texts) for point in panel.points]
    return {
        "version": PLANNER_VERSION,
        "models": [{"argument": model_argument(shape.name), "where": where(shape.name)} for shape in panel.models],
        "devices": list(panel.devices),
        "contexts": list(panel.contexts),
        "batches": list(panel.batches),
        "choices": [
            {"said": [said_of(one, shape.name) for shape in panel.models], "arguments": " ".join(one.arguments)}
            for one in panel.choices
        ],
        "loads": [load_arguments(panel, load) for load in panel.loads],
        "itself": ITSELF,
        "none": NONE,
        "ntp": ntp,
        "sbd": sbd,
        "texts": list(texts.number),
        "notes": [list(one) for one in texts.notes],
    }


def model_argument(name: str) -> str:
    """What ``--model`` takes for it."""
    return name if name in KNOWN_SHAPES else FOLDER


def where(name: str) -> str:
    """What FOLDER stands for, behind a command that has it; empty where the model has a name."""
    return "" if name in KNOWN_SHAPES else f" ({FOLDER}: where the config.json of {name} lies)"


def said_of(choice: Choice, model: str) -> str:
    """Whose acceptance it is, what is known of it, and that it is an assumption about another model."""
    taken_over = "" if choice.model == model else f" Taken over to {model}, which may accept more or less."
    return f"Acceptance {choice.remark}.{taken_over}"


def load_arguments(panel: Panel, load: float | None) -> str:
    """The load as arguments of `sbd capacity`; empty for one replica."""
    return "" if load is None else f"--output-tokens {panel.output_tokens} --requests-per-s {load:g}"


def pays_at(point: Point) -> str:
    """The batches that fit and at which SBD is the faster, in words."""
    return next(map(pays_words, point.plan.break_even), "not known")


def rate_carried(value: float) -> float:
    """To the digits that harness.formatting.rate shows."""
    return float(f"{value:.{DIGITS}g}")


def ratio_carried(value: float) -> float:
    """To the digits that harness.formatting.ratio shows."""
    return round(value, 2) if abs(value) < 9.995 else rate_carried(value)


class _Texts:
    """Numbers texts, and lists of notes, so that each is there once."""

    def __init__(self) -> None:
        self.number: dict[str, int] = {}
        self.notes: dict[tuple[int, ...], int] = {}

    def of(self, text: str) -> int:
        return self.number.setdefault(text, len(self.number))

    def of_notes(self, notes: tuple[str, ...]) -> int:
        return self.notes.setdefault(tuple(map(self.of, notes)), len(self.notes))


def _sbd(point: Point, texts: _Texts) -> list[Any]:
    """[arm, wall speedup, where it pays, notes]"""
    speedup = None if point.plan.wall_speedup is None else _band(point.plan.wall_speedup, ratio_carried)
    pays = texts.of(pays_at(point))
    return [_arm(point.plan.sbd, point, 1, texts), speedup, pays, texts.of_notes(point.notes)]


def _arm(arm: ArmPlan | None, point: Point, place: int, texts: _Texts) -> Any:
    """[devices of a replica, tokens/s per user, per GPU, USD, kWh, [GPUs by load]], or the number of the reason."""
    if arm is None or arm.batch is None or arm.tokens_per_s_per_user is None or arm.tokens_per_s_per_gpu is None:
        return texts.of((arm.reason if arm else point.plan.reason) or "no reason recorded")
    usd, kwh = arm.usd_per_million_tokens, arm.kwh_per_million_tokens
    return [
        arm.tensor_parallel,
        _band(arm.tokens_per_s_per_user),
        _band(arm.tokens_per_s_per_gpu),
        texts.of(arm.usd_reason or "") if usd is None else _band(usd),
        texts.of(arm.kwh_reason or "") if kwh is None else _band(kwh),
        [_gpus(by_load[place]) for by_load in point.gpus],
    ]


def _band(band: Band, carried: Callable[[float], float] = rate_carried) -> list[float]:
    """[expected, the other ends]: of low and high those that differ from it."""
    return list(dict.fromkeys(map(carried, (band.expected, band.low, band.high))))


def _gpus(found: tuple[int, int] | None) -> list[int] | None:
    """[as expected, with nothing overlapped], or one number where they are one."""
    return None if found is None else list(dict.fromkeys(found))
