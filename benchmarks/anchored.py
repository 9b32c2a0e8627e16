"""Fits the anchored rung to published speeds and says how far it is off on devices and engines that it was not fitted to.

    python -m benchmarks.anchored

Nothing is measured here. Every device type, and then every engine, is left out in turn: the constants are fitted to the rest
and predict what was left out. The worse of the two is reported and printed as the band. The constants fitted to all go to
harness/roofline/anchored.yaml, the errors to benchmarks/results/anchored.json.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any, get_args

import numpy as np
import yaml
from scipy.optimize import least_squares

from benchmarks.anchored_work import CONSTANTS, DATASHEET, NAMES, PRIOR_WEIGHT, START, Array, Work, predicted, tabulate
from benchmarks.results_file import RESULTS, write_results
from harness.hardware.figures import MemoryType
from harness.hardware.profile import HardwareProfile, known_profiles
from harness.roofline.anchor_values import known_anchors
from harness.roofline.anchored import FILE, Kind
from harness.roofline.anchors import published_s

PERCENTILES = (10, 90)


def fit(columns: dict[str, Array], published: Array, weights: Array, kept: Array) -> Array:
    """The constants with the least robust squared log error on the anchors that are ``kept``."""
    sd = np.array([one.sd for one in CONSTANTS.values()])

    def residuals(x: Array) -> Array:
        errors = weights * np.log(predicted(columns, x) / published)
        return np.concatenate([errors[kept], PRIOR_WEIGHT * np.log(np.maximum(x, 1e-2) / START) / sd])

    bounds = ([one.low for one in CONSTANTS.values()], [one.high for one in CONSTANTS.values()])
    found: Array = least_squares(residuals, START, bounds=bounds, loss="soft_l1", f_scale=0.1, x_scale=START).x
    return found


def held_out(groups: Array, at: Callable[[Array], Array]) -> Array:
    """Ratio of predicted to published seconds of every anchor, predicted without its own group."""
    ratio = np.empty(len(groups))
    for group in np.unique(groups):
        ratio[groups == group] = at(groups != group)[groups == group]
    return ratio


def speed_ratio(kinds: Array, seconds_ratio: Array) -> Array:
    """Predicted over published, in the figure's own direction: speed, or the cost of a block pass."""
    return np.where(kinds == "block_pass", seconds_ratio, 1 / seconds_ratio)


def band(ratios: Array, groups: Array) -> tuple[float, float]:
    """Published over predicted, 10th and 90th percentile; every group weighs the same, since the next one is a new group."""
    order = np.argsort(1 / ratios)
    weights = np.array([1 / np.sum(groups == group) for group in groups])[order]
    below = (np.cumsum(weights) - weights / 2) / np.sum(weights)
    low, high = np.interp(np.array(PERCENTILES) / 100, below, (1 / ratios)[order]).tolist()
    return low, high


def coverage(kinds: Array, groups: Array, ratios: Array) -> float:
    """Share of anchors within the band that the other groups' held-out errors give."""
    inside = []
    for group in np.unique(groups):
        for kind in np.unique(kinds[groups == group]):
            own, others = (groups == group) & (kinds == kind), (groups != group) & (kinds == kind)
            chosen = others if others.sum() >= 10 else groups != group
            low, high = band(ratios[chosen], groups[chosen])
            inside.append((low <= 1 / ratios[own]) & (1 / ratios[own] <= high))
    return 100 * float(np.mean(np.concatenate(inside)))


def median_pct(ratios: Array) -> float:
    """Median absolute error in per cent."""
    return 100 * float(np.median(np.abs(ratios - 1)))


def main() -> None:
    """Fit, hold out, print, write both files."""
    table, profiles = known_anchors(), known_profiles()
    work = tabulate(table, profiles)
    columns, anchors = work.arrays(), work.anchors
    published = np.array([published_s(one) for one in anchors])
    kinds, systems = np.array([one.kind for one in anchors]), np.array([one.system for one in anchors])
    cells = np.array([f"{one.system} {one.device} {one.shape}" for one in anchors])
    # Rows of one model on one device in one source move together, so n of them weigh as much as the root of n.
    weights = np.array([1 / math.sqrt(np.sum(cells == cell)) for cell in cells])

    def without(kept: Array) -> Array:
        ratios: Array = predicted(columns, fit(columns, published, weights, kept)) / published
        return ratios

    splits = {"device": np.array([one.device for one in anchors]), "engine": np.array([one.engine for one in anchors])}
    out = {name: speed_ratio(kinds, held_out(groups, without)) for name, groups in splits.items()}
    everything = fit(columns, published, weights, np.ones(len(anchors), dtype=bool))
    own = speed_ratio(kinds, predicted(columns, everything) / published)
    datasheet = speed_ratio(kinds, predicted(columns, DATASHEET) / published)

    figures: dict[str, float] = {"anchors": len(anchors), **{f"{name}s": len(set(groups)) for name, groups in splits.items()}}
    bands: dict[Kind, tuple[float, float]] = {}
    worst: dict[Kind, float] = {}
    printed = "engine"
    for kind in get_args(Kind):
        of = kinds == kind
        by = {name: median_pct(ratios[of]) for name, ratios in out.items()}
        worse = max(by, key=lambda name: by[name])
        printed = worse if kind == "single_gpu" else printed
        bands[kind], worst[kind] = band(out[worse][of], splits[worse][of]), by[worse]
        figures |= {f"{kind}_anchors": int(of.sum()), f"{kind}_median_abs_error_pct": by[worse]}
        figures |= {f"{kind}_median_abs_error_pct_by_{name}": value for name, value in by.items()}
        sources = [median_pct(out[worse][of & (systems == one)]) for one in np.unique(systems[of])]
        figures[f"{kind}_median_over_sources_pct"] = float(np.median(sources))
        figures[f"{kind}_in_sample_median_abs_error_pct"] = median_pct(own[of])
        figures[f"{kind}_datasheet_median_abs_error_pct"] = median_pct(datasheet[of])
    by_split = {name: coverage(kinds, groups, out[name]) for name, groups in splits.items()}
    figures |= {f"band_coverage_pct_by_{name}": value for name, value in by_split.items()}
    figures["band_coverage_pct"] = by_split[printed]
    calibrated = json.loads((RESULTS / "prediction_published.json").read_text())["figures"]
    # On the CPUs of published runs: no published GPU figure comes with a calibration of its machine.
    names = ("ex_ante_calibrated_median_abs_error_pct_bandwidth_bound", "ex_ante_calibrated_median_abs_error_pct_reference")
    figures |= {name.replace("ex_ante_", ""): calibrated[name] for name in names if name in calibrated}
    for name, groups in splits.items():
        for group in np.unique(groups):
            of = groups == group
            print(f"{name:7} {group:26} {of.sum():4} rows, held out {median_pct(out[name][of]):5.1f} %")
    print(*(f"{name} {value:.4g}" for name, value in zip(NAMES, everything, strict=True)), sep="\n")
    print(*(f"{name} {value:.4g}" for name, value in figures.items()), sep="\n")
    _write_constants(everything, bands, worst, _reached(work, profiles, kinds, 1 / datasheet), len(anchors))
    print(write_results("anchored", {name: round(value, 2) for name, value in figures.items()}))


def _reached(work: Work, profiles: dict[str, HardwareProfile], kinds: Array, share: Array) -> dict[str, Any]:
    """Published over the datasheet's speed, by memory type and kind."""
    found: dict[str, Any] = {}
    memory = np.array([profiles[one.device].memory_type for one in work.anchors])
    for kind_of_memory in np.unique(memory):
        for kind in ("single_gpu", "multi_gpu"):
            own = share[(memory == kind_of_memory) & (kinds == kind)]
            if len(own):
                low, high = (round(float(side), 2) for side in np.percentile(own, PERCENTILES))
                found.setdefault(str(kind_of_memory), {})[kind] = {"low": low, "high": high, "figures": len(own)}
    return found


def _write_constants(
    x: Array, bands: dict[Kind, tuple[float, float]], worst: dict[Kind, float], reached: dict[str, Any], anchors: int
) -> None:
    value = {name: float(f"{one:.3g}") for name, one in zip(NAMES, x, strict=True)}
    document = {
        "version": 1,
        "fitted_from": f"{anchors} published speeds in anchors.yaml, by python -m benchmarks.anchored",
        "copy_share": {memory: value[f"copy_{memory}"] for memory in get_args(MemoryType)},
        "matrix_share": {name: value[f"matrix_{name}"] for name in ("float16", "float8", "weight_only", "unpacked")},
        "metal_attention_share": value["metal_attention"],
        **{name: value[name] for name in NAMES if name.endswith("_us") or name in ("overlap", "expert_reuse")},
        "band": {kind: [round(side, 2) for side in sides] for kind, sides in bands.items()},
        "median_error_pct": {kind: round(error, 1) for kind, error in worst.items()},
        "reached": reached,
    }
    head = "# Written by `python -m benchmarks.anchored`, not by hand; harness/roofline/anchored.py explains the entries.\n"
    FILE.write_text(head + yaml.safe_dump(document, sort_keys=False))


if __name__ == "__main__":
    main()
