"""The planning part of the page: the choices, the data that answers them, and the first answer for readers without scripts.

Every figure is one of harness.reporting.planner.panel; neither this module nor the page's script (planner.js) computes any.
Both pick: the best batch (or the smallest TP that holds a given one), the cheapest device, from where on SBD pays, and the
Pareto front of tokens/s per user and per GPU. The script does it for every choice, this module for the first one, in the same
words.

The embedded data has every answer once, figures with the digits shown, and reasons by number. ``columns`` are in the order of
places; ``axes`` says how many choices each part of a ``Place`` has.
"""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from math import inf
from operator import attrgetter
from typing import Any, NamedTuple

from harness.capacity.grid import Figures, Place
from harness.capacity.question import DEGREES
from harness.capacity.results import COLUMNS
from harness.capacity.wording import anchored_in_words, cheaper, pays_from
from harness.formatting import count, rate, ratio
from harness.hardware.figures import SourcedFigure
from harness.hardware.profile import load_profile
from harness.models import KNOWN_SHAPES
from harness.reporting.cells import Entry, Numbers
from harness.reporting.planner.panel import (
    BATCHES,
    CHUNK_TOKENS,
    DEVICES,
    KV_DTYPES,
    REQUESTS,
    REQUESTS_PER_S,
    WEIGHTS,
    Choice,
    Panel,
)

PLANNER_VERSION = 3
PACKED = 6
"""Compression level, of nine; level 9 takes longer for 1 % less."""
DIGITS = 3
"""The digits of a rate in harness.formatting; rounding twice may differ from rounding once."""
FOLDER = "FOLDER"
"""Stands for the folder with config.json of a model that has no name on the command line."""
BEST = "best of each arm and device"
"""First choice: one batch for all compares an arm where it is good with another where it is not."""
SPEEDS = (20, 50, 100)
"""Tokens/s per user that the best batch may be asked to keep."""


def embedded(panel: Panel) -> dict[str, Any]:
    """Plain JSON values: the axes with a description of every choice, and the figures."""
    texts, columns = Numbers(), list[object]()
    for column in panel.columns.values():  # [rows that fit, figures by batch], or the number of the reason why there is none
        priced = [column.rows, [list(_carried(figures)) for figures in column.figures]]
        columns.append(priced if column.reason is None else texts[column.reason])
    return {
        "version": PLANNER_VERSION,
        "models": [{"argument": model_argument(shape.name), "where": where(shape.name)} for shape in panel.models],
        "weights": ["" if stored is None else f"--weights {stored}" for stored in WEIGHTS.values()],
        "kv": ["" if dtype is None else f"--kv-dtype {dtype}" for dtype in KV_DTYPES.values()],
        "requests": [_request(number) for number in range(len(REQUESTS))],
        "devices": list(DEVICES),
        "names": ["NTP", *(one.arm for one in panel.choices)],
        "arms": [
            {"said": [said_of(one, shape.name) for shape in panel.models], "arguments": " ".join(one.arguments)}
            for one in panel.choices
        ],
        "degrees": list(DEGREES),
        "batches": list(BATCHES),
        "speeds": [0, *SPEEDS],
        "always": ALWAYS,
        "axes": {axis: last + 1 for axis, last in max(panel.columns)._asdict().items()},
        "columns": columns,
        "texts": list(texts),
    }


def packed(data: dict[str, object]) -> str:
    """The values as JSON, compressed, in base64: a third of the size, and any browser unpacks it."""
    plain = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    return base64.b64encode(gzip.compress(plain.encode(), PACKED, mtime=0)).decode("ascii")


ALWAYS = f"--chunk {CHUNK_TOKENS} --requests-per-s {REQUESTS_PER_S:g}"
"""What every question has in common, for `sbd capacity`."""


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


def carried(value: float) -> float:
    """Rounded to the digits that are shown."""
    rounded = float(f"{value:.{DIGITS}g}")
    return int(rounded) if rounded.is_integer() else rounded


def ratio_carried(value: float) -> float:
    """Rounded to the digits of harness.formatting.ratio."""
    return round(value, 2) if abs(value) < 9.995 else carried(value)


def _carried(exact: Figures) -> Figures:
    *figures, gpus, speedup = exact
    rounded = [None if value is None else carried(value) for value in figures]
    return Figures._make([*rounded, gpus, ratio_carried(speedup)])


HEADS = (
    *(COLUMNS[key].title for key in ("tensor_parallel", "batch", *Figures._fields[:4])),
    f"GPUs for {REQUESTS_PER_S:g} requests/s",
    "Decode speed against NTP",
    COLUMNS["largest_batch"].title,
)


class Axis(NamedTuple):
    """One choice: the name of its element, its label, and the options."""

    name: str
    label: str
    options: tuple[str, ...]


class Setting(NamedTuple):
    """One arm on one device, split and batch (None: it fits nowhere, for ``reason``), with the rows that fit."""

    device: str
    arm: str
    reason: str
    tensor_parallel: int = 0
    batch: int = 0
    rows: int = 0
    figures: Figures | None = None

    @property
    def named(self) -> str:
        """Where it is."""
        return f"{self.device}, TP {self.tensor_parallel}, batch {self.batch}"

    @property
    def offer(self) -> tuple[float, float]:
        """Tokens/s of a user, and USD per million tokens, infinite where there is no price."""
        return (self.figures[0], self.figures.usd_per_million_tokens or inf) if self.figures else (0.0, inf)

    @property
    def per_gpu(self) -> float:
        """Tokens/s."""
        return self.figures.tokens_per_s_per_gpu if self.figures else -1.0


def planner_view(panel: Panel) -> dict[str, Any]:
    """The panel for the template. ``data`` is for the script (``packed``), all else stands before a choice."""
    axes, choice, model = _axes(panel), panel.choices[0], panel.models[0].name
    names = ("NTP", choice.arm)
    every = [[_settings(panel, name, device, arm) for device in range(len(DEVICES))] for arm, name in enumerate(names)]
    rows = [[max(found, key=attrgetter("per_gpu")) for found in of] for of in every]
    fronts = [pareto_front(chain.from_iterable(of)) for of in every]
    devices = " ".join(f"--hardware {name}" for name in DEVICES)
    return {
        "axes": axes,
        "heads": HEADS,
        "data": packed(embedded(panel)),
        "question": "; ".join(axis.options[0] for axis in axes),
        "said": said_of(choice, model),
        "answer": _answer(names, rows, every),
        "rows": [(one, _cells(one)) for pair in zip(*rows, strict=True) for one in pair],
        "caption": _caption(names, fronts),
        "front": [(one, _cells(one)[2:5]) for one in (*fronts[0], *fronts[1])],
        "command": f"sbd capacity --model {model_argument(model)} {devices} {_request(0)} {' '.join(choice.arguments)} "
        f"--batch BATCH --tensor-parallel TP {ALWAYS}{where(model)} (BATCH, TP: those of a row)",
        "notes": (anchored_in_words(), *NOTES),
        "prices": [
            f"{name}: {_sourced(profile.price_usd_per_hour, 'USD per hour')}; {_sourced(profile.power_w, 'W')}"
            for name in DEVICES
            for profile in [load_profile(name)]
        ],
    }


NOTES = (
    f"A replica is always full. Prompts are read in chunks of {CHUNK_TOKENS:,} tokens beside the rows that decode. What that "
    "takes is in every figure but the decode speed.",
    "No row waits for another one and none is padded, as engines run batches. Acceptance is that of a row.",
    f"GPUs are those for {REQUESTS_PER_S:g} such requests a second, all of them busy. sbd capacity --users simulates queues.",
    "Memory holds weights, the KV cache at its longest, logits and activations in 90 % of the device's label.",
    "The best batch has most tokens/s per GPU, at any TP that fits. Weights of 8 bits are multiplied in FP8 where a device has "
    "that peak, others at 0.45 of the 16-bit peak, as vLLM's Marlin does.",
    "USD is the list price of the profile, kWh the board's power: at full load, without host, idle time or cooling.",
)


def _axes(panel: Panel) -> tuple[Axis, ...]:
    return (
        Axis("model", "Model", tuple(f"{shape.name} ({shape.params / 1e9:.1f}B parameters)" for shape in panel.models)),
        Axis("weights", "Weights", tuple(WEIGHTS)),
        Axis("kv", "KV cache", tuple(KV_DTYPES)),
        Axis("request", "Request", tuple(f"{prompt:,} tokens in, {output:,} out" for prompt, output in REQUESTS)),
        Axis("device", "Device", (f"all {len(DEVICES)}", *DEVICES)),
        Axis("degree", "GPUs of a replica (TP)", ("any; for one batch the fewest that fit", *map(str, DEGREES))),
        Axis("batch", "Batch", (BEST, *(f"{BEST} at {speed} tokens/s per user" for speed in SPEEDS), *map(str, BATCHES))),
        Axis("arm", "Beside NTP", tuple(f"{one.label} ({one.remark})" for one in panel.choices)),
    )


def _request(number: int) -> str:
    prompt, output = REQUESTS[number]
    return f"--prompt-tokens {prompt} --output-tokens {output}"


def _sourced(figure: SourcedFigure, unit: str) -> str:
    if figure.value is None:
        return f"no {unit} ({figure.source})"
    return f"{figure.value:g} {unit} ({', '.join(text for text in (figure.source, figure.date) if text)})"


def _settings(panel: Panel, name: str, device: int, arm: int) -> list[Setting]:
    """Of the first choice on one device, the smallest TP and batch first; the last one, without figures, says why."""
    columns = {tp: panel.columns[Place(0, 0, 0, 0, device, arm, degree)] for degree, tp in enumerate(DEGREES)}
    most = max(columns, key=lambda tp: (columns[tp].rows, columns[tp].reason is None))
    fits = columns[most].reason or f"at most {columns[most].rows:,} rows fit (TP {most})"
    settings = [
        Setting(DEVICES[device], name, fits, tp, batch, column.rows, _carried(figures))
        for tp, column in columns.items()
        for batch, figures in zip(BATCHES, column.figures, strict=False)
    ]
    return [*settings, Setting(DEVICES[device], name, fits)]


def pareto_front(settings: Iterable[Setting]) -> list[Setting]:
    """Those that no other beats for the user and per GPU, the fastest user first."""
    front: list[Setting] = []
    for setting in sorted(settings, key=lambda one: (-one.offer[0], -one.per_gpu)):
        if setting.per_gpu > (front[-1].per_gpu if front else 0.0):
            front.append(setting)
    return front


FIGURES = (*(COLUMNS[key].write for key in Figures._fields[:5]), ratio)
WRITE: tuple[Callable[[float], str], ...] = (count, count, *FIGURES, count)
"""Of TP, batch, the fields of Figures, and the rows that fit."""


def _cells(one: Setting) -> list[Entry]:
    """As WRITE has them; none where there is no figure."""
    values = (one.tensor_parallel, one.batch, *one.figures, one.rows) if one.figures else ()
    return [
        Entry(text="not known") if value is None else Entry(text=write(value), raw=value)
        for write, value in zip(WRITE, values, strict=False)
    ]


def _answer(names: Sequence[str], rows: Sequence[Sequence[Setting]], every: Sequence[Sequence[Sequence[Setting]]]) -> str:
    """The cheapest device of each arm, which arm costs less, and from where on the second one does."""
    said, prices = [], list[float]()
    for name, of in zip(names, rows, strict=True):
        cheapest = min(of, key=lambda setting: setting.offer[1])
        speed, usd = cheapest.offer
        prices.append(usd)
        said.append(
            f"With {name} no device does this at a known price."
            if usd == inf
            else f"{name} is cheapest on {cheapest.named}: {rate(usd)} USD per million tokens, {rate(speed)} tokens/s per user."
        )
    if inf not in prices:
        offers = ([setting.offer for setting in chain.from_iterable(of)] for of in every)
        said.append(f"{cheaper(names[1], *reversed(prices))}; {pays_from(*offers)}.")
    return " ".join(said)


def _caption(names: Sequence[str], fronts: Sequence[Sequence[Setting]]) -> str:
    if not all(fronts):
        return "An arm that fits nowhere has no points."
    pairs = list(zip(names, fronts, strict=True))
    user = ", ".join(f"{name} {rate(front[0].offer[0])} ({front[0].named})" for name, front in pairs)
    gpu = ", ".join(f"{name} {rate(front[-1].per_gpu)} ({front[-1].named})" for name, front in pairs)
    return f"Tokens/s of the fastest user: {user}. Most tokens/s per GPU: {gpu}."
