"""The planning part of the page: the choices, the data that answers them, and a table for readers without scripts.

Every figure is a prediction of harness.capacity.plan; neither this module nor the page's script (planner.js) computes any. The
embedded data has every answer once, figures with the digits shown, and texts by number. ``ntp[i]`` and ``sbd[j]`` are indexed
by the choices: i counts model, device, context and batch, the last fastest, and j also the acceptance. An arm without a plan
is the number of its reason.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from harness import formatting
from harness.capacity.results import ArmPlan, Band, DevicePlan, Sourced
from harness.capacity.wording import pays_words
from harness.models import KNOWN_SHAPES
from harness.reporting.planner.panel import Choice, Panel, Point

PLANNER_VERSION = 1
DIGITS = 3
"""The digits of a rate in harness.formatting; rounding twice may differ from rounding once."""
ITSELF, NONE = "1.00x", "–"
"""In the rows of NTP: its speed against itself, and the batches at which it is faster."""
FOLDER = "FOLDER"
"""Stands for the folder with config.json of a model that has no name on the command line."""


def embedded(panel: Panel) -> dict[str, Any]:
    """Plain JSON values: the axes with a description of every choice, and the figures."""
    texts = _Texts()
    per_choice = len(panel.choices)
    ntp = [_arm_data(point.plan.ntp, point, 0, texts) for point in panel.points[::per_choice]]
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
    """The argument of ``--model``."""
    return name if name in KNOWN_SHAPES else FOLDER


def where(name: str) -> str:
    """What FOLDER means in a command; empty where the model has a name."""
    return "" if name in KNOWN_SHAPES else f" ({FOLDER}: where the config.json of {name} lies)"


def said_of(choice: Choice, model: str) -> str:
    """Whose acceptance it is, its remark, and whether it is an assumption about another model."""
    taken_over = "" if choice.model == model else f" Taken over to {model}, which may accept more or less."
    return f"Acceptance {choice.remark}.{taken_over}"


def load_arguments(panel: Panel, load: float | None) -> str:
    """The load as arguments of `sbd capacity`; empty for one replica."""
    return "" if load is None else f"--output-tokens {panel.output_tokens} --requests-per-s {load:g}"


def pays_at(point: Point) -> str:
    """The batches that fit and at which SBD is faster, in words."""
    return next(map(pays_words, point.plan.break_even), "not known")


def rate_carried(value: float) -> float:
    """Rounded to the digits of harness.formatting.rate."""
    return float(f"{value:.{DIGITS}g}")


def ratio_carried(value: float) -> float:
    """Rounded to the digits of harness.formatting.ratio."""
    return round(value, 2) if abs(value) < 9.995 else rate_carried(value)


class _Texts:
    """Numbers texts and lists of notes, so that each is stored once."""

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
    return [_arm_data(point.plan.sbd, point, 1, texts), speedup, pays, texts.of_notes(point.notes)]


def _arm_data(arm: ArmPlan | None, point: Point, place: int, texts: _Texts) -> Any:
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
    """[expected, then low and high where they differ from it]."""
    return list(dict.fromkeys(map(carried, (band.expected, band.low, band.high))))


def _gpus(found: tuple[int, int] | None) -> list[int] | None:
    """[as expected, with nothing overlapped], or one number where both are equal."""
    return None if found is None else list(dict.fromkeys(found))


HEADS = ("GPUs", "Tokens/s per user", "Tokens/s per GPU", "USD per million tokens", "kWh per million tokens",
         "Speed against NTP", "SBD faster at batches, of those that fit")  # fmt: skip
FIRST_BATCH = 1
"""Index of the first choice: nobody serves batch 1, and its price would read like the price."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """One choice: the name of its element, its label, the options, and the index of the first one shown."""

    name: str
    label: str
    options: tuple[str, ...]
    first: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannerFigure:
    """One cell of the table: text, its range in small type and the values of both, or the number of a reason."""

    text: str
    small: str = ""
    raw: float | None = None
    low: float | None = None
    high: float | None = None
    reason: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One arm at one place of the grid."""

    device: str
    context: int
    batch: int
    arm: str
    figures: tuple[PlannerFigure, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannerView:
    """What the template shows. ``data`` is JSON, ``sections`` are lines by model, ``answer`` stands before a choice."""

    axes: tuple[Axis, ...]
    heads: tuple[str, ...]
    data: str
    question: str
    said: str
    answer: tuple[Line, ...]
    answer_reasons: tuple[str, ...]
    command: str
    chosen: str
    sections: tuple[tuple[str, tuple[Line, ...]], ...]
    reasons: tuple[str, ...]
    prices: tuple[str, ...]
    notes: tuple[str, ...]


def planner_view(panel: Panel) -> PlannerView:
    """The panel for the page; its table has every model, device, context and batch at the first acceptance."""
    axes = tuple(_axes(panel))
    first, reasons, own = panel.choices[0], _Reasons(), _Reasons()
    shown = [point for point in panel.points if point.choice == 0]
    answer = [point for point in shown if (point.model, point.context, point.batch) == (0, 0, FIRST_BATCH)]
    model, context, batch = panel.models[0].name, panel.contexts[0], panel.batches[FIRST_BATCH]
    devices = {point.plan.hardware: point.plan for point in shown}
    return PlannerView(
        axes=axes,
        heads=HEADS,
        data=json.dumps(embedded(panel), ensure_ascii=False, separators=(",", ":")),
        question=", ".join(axis.options[axis.first] for axis in axes if axis.name != "device"),
        said=said_of(first, model),
        answer=tuple(line for point in answer for line in _lines(panel, point, own)),
        answer_reasons=tuple(own.texts),
        command=f"{_command(panel, model, context, batch)}{where(model)}",
        chosen=f"{first.label} ({first.remark})",
        sections=tuple(
            (shape.name, tuple(line for point in shown if point.model == model for line in _lines(panel, point, reasons)))
            for model, shape in enumerate(panel.models)
        ),
        reasons=tuple(reasons.texts),
        prices=tuple(map(_price, devices.values())),
        notes=shown[0].notes,
    )


def _command(panel: Panel, model: str, context: int, batch: int) -> str:
    devices = " ".join(f"--hardware {name}" for name in panel.devices)
    chosen = f"{' '.join(panel.choices[0].arguments)} --context {context} --batch {batch}"
    return f"sbd capacity --model {model_argument(model)} {devices} {chosen}"


def _axes(panel: Panel) -> Iterator[Axis]:
    yield Axis(name="model", label="Model", options=tuple(shape.name for shape in panel.models))
    yield Axis(name="device", label="Device", options=("all of them", *panel.devices))
    contexts = tuple(f"{formatting.count(tokens)} tokens" for tokens in panel.contexts)
    yield Axis(name="context", label="Context of a row", options=contexts)
    yield Axis(name="batch", label="Batch of a replica", options=tuple(map(formatting.count, panel.batches)), first=FIRST_BATCH)
    choices = tuple(f"{one.label} ({one.remark})" for one in panel.choices)
    yield Axis(name="choice", label="γ, or acceptance", options=choices)
    yield Axis(name="load", label="Load", options=tuple(_load(panel, load) for load in panel.loads))


def _load(panel: Panel, load: float | None) -> str:
    return "one replica" if load is None else f"{load:g} requests/s of {panel.output_tokens} tokens"


def _price(plan: DevicePlan) -> str:
    price, power = _sourced(plan.price_usd_per_hour, "USD per GPU and hour"), _sourced(plan.power_w, "W")
    return f"{plan.hardware}: {price}; {power}"


def _sourced(figure: Sourced, unit: str) -> str:
    if figure.value is None:
        return f"no {unit} ({figure.source})"
    return f"{figure.value:g} {unit} ({', '.join(text for text in (figure.source, figure.date) if text)})"


class _Reasons:
    """Numbers the reasons under the table; equal ones share a number."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def number(self, reason: str | None) -> int:
        """From 1."""
        said = reason or "no reason recorded"
        if said not in self.texts:
            self.texts.append(said)
        return self.texts.index(said) + 1


def _lines(panel: Panel, point: Point, reasons: _Reasons) -> Iterator[Line]:
    """NTP and SBD, for one replica."""
    plan = point.plan
    speedup = _figure(plan.wall_speedup, plan.sbd.reason if plan.sbd else plan.reason, reasons, formatting.ratio)
    beside = {
        "NTP": (PlannerFigure(text=ITSELF, raw=1), PlannerFigure(text=NONE)),
        "SBD": (speedup, PlannerFigure(text=pays_at(point))),
    }
    for name, arm in (("NTP", plan.ntp), ("SBD", plan.sbd)):
        yield Line(
            device=panel.devices[point.device], context=panel.contexts[point.context], batch=panel.batches[point.batch],
            arm=name, figures=(*_arm(arm, plan.reason, reasons), *beside[name]),
        )  # fmt: skip


def _arm(arm: ArmPlan | None, reason: str | None, reasons: _Reasons) -> tuple[PlannerFigure, ...]:
    if arm is None or arm.gpus is None:
        return (_figure(None, arm.reason if arm else reason, reasons, formatting.rate),) * 5
    return (
        PlannerFigure(text=formatting.count(arm.gpus), raw=arm.gpus),
        _figure(arm.tokens_per_s_per_user, None, reasons, formatting.rate),
        _figure(arm.tokens_per_s_per_gpu, None, reasons, formatting.rate),
        _figure(arm.usd_per_million_tokens, arm.usd_reason, reasons, formatting.rate),
        _figure(arm.kwh_per_million_tokens, arm.kwh_reason, reasons, formatting.rate),
    )


def _figure(band: Band | None, reason: str | None, reasons: _Reasons, write: Callable[[float], str]) -> PlannerFigure:
    if band is None:
        return PlannerFigure(text="none", reason=reasons.number(reason))
    ends = list(dict.fromkeys((write(band.low), write(band.high))))
    small = " – ".join(ends) if len(ends) > 1 else ""
    return PlannerFigure(text=write(band.expected), small=small, raw=band.expected, low=band.low, high=band.high)
