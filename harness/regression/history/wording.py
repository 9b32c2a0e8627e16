"""A figure, a change and a trend in words, the same on the terminal and on the page."""

from __future__ import annotations

from collections.abc import Sequence

from harness import formatting
from harness.regression.history.series import HistoryLine
from harness.regression.history.trend import ChangePoint, Judged, Trend
from harness.scenario.metrics import METRICS

ABOUT = {
    "wall_speedup": "wall speedup",
    "nfe_speedup": "NFE speedup",
    "time_per_token_s": "time per decode token",
    "tokens_per_s": "decode tokens per second",
    "ceiling_share": "share of the read ceiling",
    "accuracy": "accuracy",
    "accuracy_difference": "accuracy less that of NTP",
    "wall_speedup_error": "prediction error of the wall speedup",
    "decode_error": "prediction error of the decode time",
}


NO_RUN = "no run is kept that was asked for; `sbd history add RUN` keeps one"


def metric_words(name: str) -> str:
    """``wall_speedup_error.datasheet``: prediction error of the wall speedup (datasheet rung)."""
    base, _, rung = name.partition(".")
    words = ABOUT.get(base) or METRICS[name].words
    return f"{words} ({rung} rung)" if rung else words


def figure_words(metric: str, value: float) -> str:
    """A value with its unit: ``2.31x``, ``31.5 ms``, ``+4.3 %``."""
    base, unit = metric.partition(".")[0], METRICS[metric].unit
    if unit == "x":
        return formatting.ratio(value)
    if unit in ("s", "s/token"):
        return formatting.seconds(value)
    if unit.endswith("/s"):
        return f"{formatting.rate(value)}\u00a0{unit}"
    if base == "accuracy_difference":
        return formatting.points(value)
    return formatting.signed_percent(value) if base.endswith("_error") else formatting.percent(value)


def line_words(line: HistoryLine) -> str:
    """Scenario, machine and branch."""
    branch = f"branch {line.branch}" if line.branch is not None else "branch not known"
    return f"{line.scenario_name} [{line.scenario_digest[:8]}] on {line.machine} [{line.fingerprint}], {branch}"


def change_words(judged: Judged, point: ChangePoint) -> str:
    """The change in one sentence, without its figure."""
    metric, change = judged.series.metric, point.change
    before, after = (figure_words(metric, level) for level in (change.before, change.after))
    size = formatting.points if METRICS[metric].scale == "difference" else formatting.signed_percent
    moved = f"{before} to {after} ({size(change.size)})"
    if point.reached is None:
        words = f"{point.direction}: {moved}, after {point.last_old.label} and by {point.first_new.label}"
    else:
        commits = point.settled - change.index + 1
        newest = ", the newest" if change.end == len(judged.series.points) - 1 else ""  # it is still on the line
        words = (
            f"{point.direction}: a drift, not a step: {moved} over {commits} commits, from about "
            f"{point.last_old.label} to about {point.reached.label}{newest}"
        )
    words += " (p < 1e-6)" if change.p < 1e-6 else f" (p = {change.p:.2g})"  # smaller ones are extrapolated: not distinguished
    versions = [f"{name} {old or 'none'} to {new or 'none'}" for name, (old, new) in point.also_changed.items()]
    return f"{words}; also changed: {', '.join(versions)}" if versions else words


def series_words(judged: Judged) -> str:
    """What the series shows: its changes, no change, or why it was not tested."""
    series = judged.series
    if judged.reason is not None:
        return f"not looked at: {judged.reason}"
    if judged.changes:
        return "; ".join(change_words(judged, change) for change in judged.changes)
    low, high = (figure_words(series.metric, end) for end in (min(series.values), max(series.values)))
    known = f"; correlation with the commit before {judged.correlation:.2f}" if judged.correlation else ""
    return f"no change of level in {len(series.points)} commits ({low} to {high}{known})"


SPARKS = "▁▂▃▄▅▆▇█"


def sparkline(values: Sequence[float], longest: int = 24) -> str:
    """The newest ``longest`` values as bars between their least and their greatest; equal ones are all in the middle."""
    newest = [float(value) for value in values[-longest:]]
    low, span = min(newest), max(newest) - min(newest)
    top = len(SPARKS) - 1
    return "".join(SPARKS[top // 2 if span == 0 else round(top * (value - low) / span)] for value in newest)


def finding(trend: Trend) -> str:
    """How many changes were found, and how often chance alone shows any."""
    changes, tested = len(trend.found), trend.tested
    newest = f", the newest {trend.last} commits of each" if trend.last is not None else ""
    looked = f"{changes} {'change' if changes == 1 else 'changes'} in {tested} series of {trend.runs} runs{newest}"
    return f"{looked}; if nothing had changed, one look in {1 / trend.alpha:.0f} would show any change"


def remarks(trend: Trend) -> list[str]:
    """What was left out, and what to do about it."""
    short = len(trend.judged) - trend.tested
    notes = [*trend.notes]
    if not trend.runs:
        notes.append(NO_RUN)
    if short:
        least, longest = 2 * trend.min_segment, max(len(judged.series.points) for judged in trend.judged)
        notes.append(f"{short} series are too short: two levels need {least} commits")
        if longest < least:
            more = formatting.count(least - longest)
            notes.append(f"the longest has {longest}, so the first verdict can come after {more} more")
    if trend.outdated:
        notes.append(
            f"{trend.outdated} of {trend.runs} runs are left out, their figures are of older formulas than version "
            f"{trend.comparison_version}: `sbd history rebuild` derives them again, --outdated uses them as they are"
        )
    return notes
