"""The part of the page that plans: what to choose from, the data that answers, and a table for readers without scripts.

Everything in it is a prediction that harness.capacity.plan made; nothing is computed here or in the page's script (planner.js).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from harness import formatting
from harness.capacity.results import ArmPlan, Band, DevicePlan, Sourced
from harness.reporting.planner.panel import Panel, Point
from harness.reporting.planner.planner_data import ITSELF, NONE, embedded, model_argument, pays_at, said_of, where

HEADS = ("GPUs", "Tokens/s per user", "Tokens/s per GPU", "USD per million tokens", "kWh per million tokens",
         "Speed against NTP", "SBD faster at batches, of those that fit")  # fmt: skip
FIRST_BATCH = 1
"""Nobody serves one row at a time, and its price reads like the price."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """One thing to choose: the name of its element, its label, the options, and the place of the one to begin with."""

    name: str
    label: str
    options: tuple[str, ...]
    first: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One cell of the table: text with its range in small type and the values behind both, or the number of a reason."""

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
    figures: tuple[Figure, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannerView:
    """What the template shows. ``data`` is JSON; ``sections`` are lines by model; ``answer``, and what is beside it, is what
    stands there before anything is chosen.
    """

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
    """The panel for the page; the table has every model, device, context and batch at the first acceptance."""
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
    beside = {"NTP": (Figure(text=ITSELF, raw=1), Figure(text=NONE)), "SBD": (speedup, Figure(text=pays_at(point)))}
    for name, arm in (("NTP", plan.ntp), ("SBD", plan.sbd)):
        yield Line(
            device=panel.devices[point.device], context=panel.contexts[point.context], batch=panel.batches[point.batch],
            arm=name, figures=(*_arm(arm, plan.reason, reasons), *beside[name]),
        )  # fmt: skip


def _arm(arm: ArmPlan | None, reason: str | None, reasons: _Reasons) -> tuple[Figure, ...]:
    if arm is None or arm.gpus is None:
        return (_figure(None, arm.reason if arm else reason, reasons, formatting.rate),) * 5
    return (
        Figure(text=formatting.count(arm.gpus), raw=arm.gpus),
        _figure(arm.tokens_per_s_per_user, None, reasons, formatting.rate),
        _figure(arm.tokens_per_s_per_gpu, None, reasons, formatting.rate),
        _figure(arm.usd_per_million_tokens, arm.usd_reason, reasons, formatting.rate),
        _figure(arm.kwh_per_million_tokens, arm.kwh_reason, reasons, formatting.rate),
    )


def _figure(band: Band | None, reason: str | None, reasons: _Reasons, write: Callable[[float], str]) -> Figure:
    if band is None:
        return Figure(text="none", reason=reasons.number(reason))
    ends = list(dict.fromkeys((write(band.low), write(band.high))))
    small = " – ".join(ends) if len(ends) > 1 else ""
    return Figure(text=write(band.expected), small=small, raw=band.expected, low=band.low, high=band.high)
