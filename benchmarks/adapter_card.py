"""The figures of a trained adapter for its card: the curve, what ten times the data would give, acceptance by slot and domain.

    python -m benchmarks.adapter_card RUN [RUN ...]

RUN: folders of `sbd train`, the first training first, each further one gone on from the one before. Prints Markdown and writes
curve.png into the last one's adapter. The slope is that of a straight line through the last half of the points over the
logarithm of the masked tokens. A falling learning rate lifts the last points, so it flatters the slope.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from harness.training.curve import CURVE
from harness.training.distillation import finished_lines

Point = dict[str, Any]


def per_decade(points: list[Point]) -> float:
    """Tokens per pass that ten times the masked tokens add."""
    half = points[len(points) // 2 :]
    return float(np.polyfit(np.log10([one["masked_tokens"] for one in half]), [one["tokens_per_pass"] for one in half], 1)[0])


def draw(points: list[Point], slope: float, file: Path) -> None:
    """Tokens per pass over masked tokens, with the line one decade on."""
    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.subplots()
    tokens, last = points[-1]["masked_tokens"], points[-1]["tokens_per_pass"]
    xs, ys = [one["masked_tokens"] for one in points], [one["tokens_per_pass"] for one in points]
    axes.plot(xs, ys, "o-", label="measured while trained")
    axes.plot([tokens, 10 * tokens], [last, last + slope], "--", label=f"by its slope: {slope:+.2f} a decade")
    axes.set(xscale="log", xlabel="masked tokens charged in these trainings", ylabel="tokens final per pass, held-out prompts")
    axes.legend()
    figure.savefig(file, dpi=120)


def table(points: list[Point]) -> str:
    """Markdown of the curve and of the last point."""
    last = points[-1]
    lines = ["| masked tokens | tokens per pass |", "|---|---|"]
    lines += [f"| {one['masked_tokens']:,} | {one['tokens_per_pass']:.2f} |" for one in points]
    lines += ["", "| domain | tokens per pass |", "|---|---|"]
    lines += [f"| {task} | {value:.2f} |" for task, value in last["by_task"].items()]
    lines += ["", "| drafts right in a row | passes |", "|---|---|"]
    lines += [f"| {count} | {passes} |" for count, passes in enumerate(last["accepted"])]
    lines += ["", "| slot | right, slots before it as the answer has them or not |", "|---|---|"]
    lines += [f"| {slot} | {share:.0%} |" for slot, share in enumerate(last["right"])]
    return "\n".join(lines)


def main() -> None:
    """Print the tables; draw the curve."""
    runs = [Path(name) for name in sys.argv[1:]]
    points = [point for run in runs for point in finished_lines(run / CURVE) if point["masked_tokens"]]
    slope = per_decade(points)
    file = runs[-1] / "adapter" / "curve.png"
    draw(points, slope, file)
    print(table(points))
    print(f"\nTen times the masked tokens would add {slope:.2f} tokens per pass by the slope. {file}")


if __name__ == "__main__":
    main()
