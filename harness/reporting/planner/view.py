"""The planning part of the page: the choices, the data that answers them, and a table for readers without scripts.

Every figure is a prediction of harness.capacity.plan; neither this module nor the page's script (planner.js) computes any. The
embedded data has every answer once, figures with the digits shown, and texts by number. ``ntp[i]`` and ``sbd[j]`` are indexed
by the choices: i counts model, device, context and batch, the last fastest, and j also the acceptance. An arm without a plan
is the number of its reason.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from harness import formatting
from harness.capacity.results import ArmPlan, Band, Sourced
from harness.capacity.wording import pays_words
from harness.models import KNOWN_SHAPES
from harness.reporting.cells import Entry, Numbers
from harness.reporting.planner.panel import BATCHES, CONTEXTS, DEVICES, LOADS, OUTPUT_TOKENS, Choice, Panel, Point

PLANNER_VERSION = 1
DIGITS = 3
"""The digits of a rate in harness.formatting; rounding twice may differ from rounding once."""
ITSELF, NONE = "1.00x", "–"
"""In the rows of NTP: its speed against itself, and the batches at which it is faster."""
FOLDER = "FOLDER"
"""Stands for the folder with config.json of a model that has no name on the command line."""
NO_REASON = "no reason recorded"


def embedded(panel: Panel) -> dict[str, Any]:
    """Plain JSON values: the axes with a description of every choice, and the figures."""
    texts, notes = Numbers(), Numbers()
    ntp = [_arm_data(point.plan.ntp, point, 0, texts) for point in panel.points[:: len(panel.choices)]]
    sbd = [_sbd(point, texts, notes) for point in panel.points]
    return {
        "version": PLANNER_VERSION,
        "models": [{"argument": model_argument(shape.name), "where": where(shape.name)} for shape in panel.models],
        "devices": list(DEVICES),
        "contexts": list(CONTEXTS),
        "batches": list(BATCHES),
        "choices": [
            {"said": [said_of(one, shape.name) for shape in panel.models], "arguments": " ".join(one.arguments)}
            for one in panel.choices
        ],
        "loads": ["" if load is None else f"--output-tokens {OUTPUT_TOKENS} --requests-per-s {load:g}" for load in LOADS],
        "itself": ITSELF,
        "none": NONE,
        "ntp": ntp,
        "sbd": sbd,
        "texts": list(texts),
        "notes": [list(one) for one in notes],
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


def pays_at(point: Point) -> str:
    """The batches that fit and at which SBD is faster, in words."""
    return next(map(pays_words, point.plan.break_even), "not known")


def rate_carried(value: float) -> float:
    """Rounded to the digits of harness.formatting.rate."""
    return float(f"{value:.{DIGITS}g}")


def ratio_carried(value: float) -> float:
    """Rounded to the digits of harness.formatting.ratio."""
    return round(value, 2) if abs(value) < 9.995 else rate_carried(value)


def _sbd(point: Point, texts: Numbers, notes: Numbers) -> list[Any]:
    """[arm, wall speedup, where it pays, notes]"""
    speedup = None if point.plan.wall_speedup is None else _band(point.plan.wall_speedup, ratio_carried)
    pays = texts[pays_at(point)]
    arm = _arm_data(point.plan.sbd, point, 1, texts)
    return [arm, speedup, pays, notes[tuple(texts[note] for note in point.notes)]]


def _arm_data(arm: ArmPlan | None, point: Point, place: int, texts: Numbers) -> Any:
    """[devices of a replica, tokens/s per user, per GPU, USD, kWh, [GPUs by load]], or the number of the reason.

    GPUs are [as expected, with nothing overlapped], or one number where both are equal.
    """
    if arm is None or arm.gpus is None:
        return texts[(arm.reason if arm else point.plan.reason) or NO_REASON]
    figures = [texts[reason or ""] if band is None else _band(band) for band, reason in _figures(arm)]
    gpus = [list(dict.fromkeys(by_load[place] or ())) or None for by_load in point.gpus]
    return [arm.tensor_parallel, *figures, gpus]


def _figures(arm: ArmPlan) -> tuple[tuple[Band | None, str | None], ...]:
    """Tokens/s per user and per GPU, USD and kWh per million tokens of an arm, each with the reason for its absence."""
    return (
        (arm.tokens_per_s_per_user, None),
        (arm.tokens_per_s_per_gpu, None),
        (arm.usd_per_million_tokens, arm.usd_reason),
        (arm.kwh_per_million_tokens, arm.kwh_reason),
    )


def _band(band: Band, carried: Callable[[float], float] = rate_carried) -> list[float]:
    """[expected, then low and high where they differ from it]."""
    return list(dict.fromkeys(map(carried, (band.expected, band.low, band.high))))


HEADS = ("GPUs", "Tokens/s per user", "Tokens/s per GPU", "USD per million tokens", "kWh per million tokens",
         "Speed against NTP", "SBD faster at batches, of those that fit")  # fmt: skip
FIRST_BATCH = 1
"""Index of the first choice: nobody serves batch 1, and its price would read like the price."""


class Axis(NamedTuple):
    """One choice: the name of its element, its label, the options, and the index of the first one shown."""

    name: str
    label: str
    options: tuple[str, ...]
    first: int = 0


Line = tuple[str, int, int, str, tuple[Entry, ...]]
"""One arm at one place of the grid: device, context, batch, arm, figures."""


def planner_view(panel: Panel) -> dict[str, Any]:
    """The panel for the template; its table has every model, device, context and batch at the first acceptance.

    ``data`` is JSON, ``sections`` are lines by model, ``answer`` stands before a choice.
    """
    axes = _axes(panel)
    first, reasons, own = panel.choices[0], Numbers(), Numbers()
    shown = [point for point in panel.points if point.choice == 0]
    answer = [point for point in shown if (point.model, point.context, point.batch) == (0, 0, FIRST_BATCH)]
    model, devices = panel.models[0].name, " ".join(f"--hardware {name}" for name in DEVICES)
    asked = f"{' '.join(first.arguments)} --context {CONTEXTS[0]} --batch {BATCHES[FIRST_BATCH]}"
    return {
        "axes": axes,
        "heads": HEADS,
        "data": json.dumps(embedded(panel), ensure_ascii=False, separators=(",", ":")),
        "question": ", ".join(axis.options[axis.first] for axis in axes if axis.name != "device"),
        "said": said_of(first, model),
        "answer": [line for point in answer for line in _lines(point, own)],
        "answer_reasons": own,
        "command": f"sbd capacity --model {model_argument(model)} {devices} {asked}{where(model)}",
        "chosen": f"{first.label} ({first.remark})",
        "sections": [
            (shape.name, [line for point in shown if point.model == model for line in _lines(point, reasons)])
            for model, shape in enumerate(panel.models)
        ],
        "reasons": reasons,
        "prices": [
            f"{name}: {_sourced(plan.price_usd_per_hour, 'USD per GPU and hour')}; {_sourced(plan.power_w, 'W')}"
            for name, plan in {point.plan.hardware: point.plan for point in shown}.items()
        ],
        "notes": shown[0].notes,
    }


def _axes(panel: Panel) -> tuple[Axis, ...]:
    loads = ("one replica" if load is None else f"{load:g} requests/s of {OUTPUT_TOKENS} tokens" for load in LOADS)
    return (
        Axis("model", "Model", tuple(shape.name for shape in panel.models)),
        Axis("device", "Device", ("all of them", *DEVICES)),
        Axis("context", "Context of a row", tuple(f"{formatting.count(tokens)} tokens" for tokens in CONTEXTS)),
        Axis("batch", "Batch of a replica", tuple(map(formatting.count, BATCHES)), FIRST_BATCH),
        Axis("choice", "γ, or acceptance", tuple(f"{one.label} ({one.remark})" for one in panel.choices)),
        Axis("load", "Load", tuple(loads)),
    )


def _sourced(figure: Sourced, unit: str) -> str:
    if figure.value is None:
        return f"no {unit} ({figure.source})"
    return f"{figure.value:g} {unit} ({', '.join(text for text in (figure.source, figure.date) if text)})"


def _lines(point: Point, reasons: Numbers) -> Iterator[Line]:
    """NTP and SBD, for one replica."""
    plan = point.plan
    speedup = _entry(plan.wall_speedup, plan.sbd.reason if plan.sbd else plan.reason, reasons, formatting.ratio)
    beside = {"NTP": (Entry(text=ITSELF, raw=1), Entry(text=NONE)), "SBD": (speedup, Entry(text=pays_at(point)))}
    place = (DEVICES[point.device], CONTEXTS[point.context], BATCHES[point.batch])
    for name, arm in (("NTP", plan.ntp), ("SBD", plan.sbd)):
        yield *place, name, (*_arm(arm, plan.reason, reasons), *beside[name])


def _arm(arm: ArmPlan | None, reason: str | None, reasons: Numbers) -> tuple[Entry, ...]:
    if arm is None or arm.gpus is None:
        return (_entry(None, arm.reason if arm else reason, reasons),) * 5
    figures = (_entry(band, reason, reasons) for band, reason in _figures(arm))
    return (Entry(text=formatting.count(arm.gpus), raw=arm.gpus), *figures)


def _entry(band: Band | None, reason: str | None, reasons: Numbers, write: Callable[[float], str] = formatting.rate) -> Entry:
    """The figure with its ends below it, or the number of ``reason``."""
    if band is None:
        return Entry(text="none", note=reasons[reason or NO_REASON] + 1)
    ends = list(dict.fromkeys((write(band.low), write(band.high))))
    small = " – ".join(ends) if len(ends) > 1 else ""
    return Entry(text=write(band.expected), small=small, raw=band.expected, low=band.low, high=band.high)
